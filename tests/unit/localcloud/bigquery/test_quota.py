"""Quotas by the clock, with BigQuery's reasons."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.unit.localcloud.bigquery.bench import Bench

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery import quota


@pytest.fixture
def strict(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench(enforce_quotas=True)


def test_a_sixth_change_within_ten_seconds_is_rate_limited(strict: Bench) -> None:
    strict.create()
    for _ in range(5):
        assert strict.load().error is None
    refused = strict.load().error
    assert refused is not None
    assert refused.reason == "rateLimitExceeded"
    assert "too many table update operations" in refused.message
    strict.clock.advance(timedelta(seconds=11))
    assert strict.load().error is None


def test_a_partitioned_table_takes_fifty_changes(strict: Bench) -> None:
    strict.create(timePartitioning={"type": "DAY"})
    outcomes = [strict.load().error for _ in range(51)]
    assert outcomes[:50] == [None] * 50
    assert outcomes[50] is not None


def test_patches_count_as_changes(strict: Bench) -> None:
    strict.create()
    for number in range(5):
        strict.core.metadata.update_table("p", "d", "t", {"labels": {"n": str(number)}}, patch=True, etag=None)
    with pytest.raises(BigQueryError) as refused:
        strict.core.metadata.update_table("p", "d", "t", {"labels": {"n": "6"}}, patch=True, etag=None)
    assert refused.value.reason == "rateLimitExceeded"


def test_the_daily_quota_counts_failures_too_and_replenishes(strict: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "MAX_MODIFICATIONS_PER_DAY", 4)
    strict.create()
    for content in ('{"id": 1}\n', '{"id": "x"}\n', '{"id": 2}\n', '{"id": "y"}\n'):
        strict.load(content=content)
        strict.clock.advance(timedelta(seconds=11))
    refused = strict.load().error
    assert refused is not None
    assert (refused.reason, "imports or query appends per table" in refused.message) == ("quotaExceeded", True)
    strict.clock.advance(timedelta(days=1))
    assert strict.load().error is None


def test_loads_per_project_are_limited_at_insert(strict: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "MAX_LOADS_PER_DAY", 2)
    strict.create()
    strict.load()
    strict.load()
    with pytest.raises(BigQueryError, match="imports per project") as refused:
        strict.start()
    assert (refused.value.reason, refused.value.status) == ("quotaExceeded", 403)


def test_without_the_switch_nothing_is_limited(bench: Bench) -> None:
    bench.create()
    assert [bench.load().error for _ in range(12)] == [None] * 12
