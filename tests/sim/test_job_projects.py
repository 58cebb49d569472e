"""Where a batch's jobs run: those of its actions, too, and across an upgrade."""

import pytest
from tests.support.rule_documents import alone
from tests.support.sim.names import DATASET, PROJECT
from tests.support.sim.stories import LOADED, Simulate, die_everywhere
from tests.support.sim.world import Fate, World

from ingestd.actions.context import ActionSettings

OTHER = "jobs-project"
ELSEWHERE = {"Transient": {"Dataset": "temp", "ProjectID": OTHER}}
COUNT = {
    "Action": "query",
    "Request": {"SQL": "SELECT COUNT(*) AS n FROM $DestTable", "Dest": f"{DATASET}.counted", "Append": True},
}
FILE = "data/case002/dummy1.json"


def begin(world: World) -> None:
    world.prepared(alone(False, Dest=ELSEWHERE, OnSuccess=[COUNT, {"Action": "delete"}]))
    world.upload(FILE, {"id": 1, "name": "a"}, {"id": 2, "name": "b"})


def projects(world: World) -> dict[str, str]:
    """Of each job: what it does, and where it runs."""
    wanted = {"projection": "full", "maxResults": "1000"}
    return {
        job["configuration"]["labels"]["ingestd"]: project
        for project in (PROJECT, OTHER)
        for job in world.bigquery.jobs.list_jobs(project, wanted, []).get("jobs", [])
    }


def test_actions_run_where_the_load_runs(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        begin(world)
        with world.daemon():
            await world.settled()
        assert world.rows() == LOADED
        assert world.rows("counted") == [("2",)]
        assert set(projects(world).values()) == {OTHER}
        assert {"load", "query"} <= projects(world).keys()

    simulate(story)


def test_an_action_that_an_earlier_version_has_begun_is_not_begun_again(
    simulate: Simulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version before dies after any effect; the next one finds its job in the daemon's own project."""
    now = ActionSettings.jobs_in
    adopted = []

    async def story(world: World, fate: Fate) -> None:
        begin(world)
        monkeypatch.setattr(ActionSettings, "jobs_in", property(lambda self: self.project))
        with world.daemon(fate) as first:
            await world.until(lambda: not first.alive or world.quiet())
        monkeypatch.setattr(ActionSettings, "jobs_in", now)
        with world.daemon():
            await world.settled(limit=3600)
        assert world.rows() == LOADED
        assert world.rows("counted") == [("2",)]
        adopted.append(projects(world)["query"])

    die_everywhere(simulate, story)
    assert set(adopted) == {PROJECT, OTHER}, "the version before was to die on both sides of the job"
