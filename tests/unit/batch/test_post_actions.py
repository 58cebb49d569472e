"""What a batch's actions are given."""

from dataclasses import replace
from typing import Any, cast

import pytest
from tests.support.records import ruled

from ingestd.actions.context import ActionContext
from ingestd.batch.journal import Held
from ingestd.batch.placement import Placement
from ingestd.batch.post_actions import PostActions
from ingestd.batch.record import Kind, Record
from ingestd.batch.stages.ready import settle
from ingestd.model.objects import Generation
from ingestd.settings import Settings


class _Journal:
    def running(self, record: Record) -> Any:
        return record.files[0].ref

    done = running


class _Keyring:
    async def request(self, _record: Record, _steps: object, action: Any) -> Any:
        return action.action.body


def given(record: Record) -> ActionContext:
    parts: dict[str, Any] = dict.fromkeys(("store", "warehouse", "publisher", "http", "jobs"))
    settings = Settings.model_validate({"project": "p"})
    acting = PostActions(**parts, journal=cast("Any", _Journal()), keyring=cast("Any", _Keyring()), settings=settings)
    return acting._context(Held(record, Generation(1)), record.files)


@pytest.mark.parametrize(
    "transient",
    [{"ProjectID": "jobs-proj"}, {"Balancer": {"ProjectIDs": ["jobs-proj"]}}],
    ids=["project", "balancer"],
)
def test_actions_run_where_the_batch_runs_and_its_variable_says_so(transient: dict[str, Any]) -> None:
    batch = settle(ruled({"Transient": {"Dataset": "temp", **transient}}), "spark", cast("Any", None))
    ctx = given(batch)
    assert ctx.settings.jobs_in == ctx.values["ProjectID"] == "jobs-proj"
    assert str(ctx.table("ds.x")) == "p.ds.x"
    assert str(ctx.dest_table) == "p.ds.t"


def test_actions_of_a_batch_without_a_project_of_its_own_run_in_the_daemons() -> None:
    ctx = given(ruled({}))
    assert (ctx.settings.jobs_in, ctx.settings.home) == ("p", "")


def test_actions_of_a_route_run_in_the_daemons_project_and_not_in_that_of_somebody_elses_job() -> None:
    record = replace(ruled({}), kind=Kind.ROUTE, placement=Placement("theirs", "US"))
    assert given(record).settings.jobs_in == "p"
