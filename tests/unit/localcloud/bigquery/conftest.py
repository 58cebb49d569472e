"""BigQuery cores driven by hand, closed at the end."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.localcloud.bigquery.bench import Bench


@pytest.fixture
def make_bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**settings: Any) -> Bench:
        made.append(Bench(**settings))
        return made[-1]

    yield make
    for bench in made:
        bench.core.close()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()
