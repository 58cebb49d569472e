"""Prepared rows of several tables: one load's trouble never makes another's rows forgotten, and so loaded twice."""

import asyncio
from datetime import timedelta

import pytest
import structlog
from tests.support.rule_documents import modes, together
from tests.support.sim.journal import replay
from tests.support.sim.names import OPS
from tests.support.sim.stories import Simulate, die_everywhere, expected, name, standing_still, upload_all
from tests.support.sim.ways import everything, prepare
from tests.support.sim.world import Fate, World

from ingestd.ledger.replay import Selection
from ingestd.localcloud.faults import Fault, FaultKind

JOBS = {"poll_every": "30s", "max_files": 100, "retry_pause": "1s"}
STAGED = f"store.create gs://{OPS}/staging/"
GONE = "Not found: URI gs://ops/staging/1.json"


def one_of_three_fails(world: World, reason: str, message: str = "rehearsed", others: float = 1.0) -> None:
    """The load of the first of three tables fails after a second; the others are done after so many."""
    assert world.plain is not None
    latencies = iter([1.0])
    world.plain._latency = lambda: next(latencies, others)
    first = "*_00001_load_part1of3--*"
    world.faults.add(Fault("bigquery", "job.load", FaultKind.FAIL, first, reason=reason, message=message, times=1))


@modes
@pytest.mark.parametrize("others", [1.0, 8.0])
def test_tables_that_got_their_rows_beside_one_that_failed_for_good_are_named_and_left_alone_by_a_replay(
    simulate: Simulate, asynchronous: bool, others: float
) -> None:
    async def story(world: World) -> None:
        prepare(world, "prepared, split", asynchronous)
        one_of_three_fails(world, "invalid", others=others)
        with world.daemon(jobs=JOBS) as daemon:
            upload_all(world, 6)
            await world.settled()
            (record,) = world.record()
            assert record["Status"] == "failed"
            assert "bqtail.third (2 rows), " in record["Error"]
            assert "bqtail.even (2 rows)" in record["Error"]
            assert (world.rows("dummy"), world.rows("third")) == ([], expected(0, 3))
            assert len(await replay(world, Selection(rule=record["RuleName"]))) == 1
            await world.settled()
            await daemon.stopped()
        assert everything(world) == expected(*range(6))
        assert [record["Status"] for record in world.record()] == ["done"]

    simulate(story, plain=True)


@modes
@pytest.mark.parametrize("others", [1.0, 8.0])
def test_tables_that_got_their_rows_keep_them_when_prepared_files_of_another_are_gone(
    simulate: Simulate, asynchronous: bool, others: float
) -> None:
    async def story(world: World) -> None:
        prepare(world, "prepared, split", asynchronous)
        one_of_three_fails(world, "notFound", GONE, others=others)
        with world.daemon(jobs=JOBS):
            upload_all(world, 6)
            await world.settled()
        assert everything(world) == expected(*range(6))
        assert [record["Status"] for record in world.record()] == ["done"]

    simulate(story, plain=True)


@modes
@pytest.mark.parametrize("way", ["direct", "transient copy", "prepared"])
def test_a_batch_is_not_given_up_while_a_job_of_it_may_bring_its_rows(
    simulate: Simulate, way: str, asynchronous: bool
) -> None:
    async def story(world: World) -> None:
        assert world.plain is not None
        if way == "direct":
            world.prepared(together(asynchronous))
        else:
            prepare(world, way, asynchronous)
        plain = world.plain
        slow = "copy" if "copy" in way else "load"
        plain._latency = lambda: 100.0 if list(plain.known.values())[-1].kind == slow else 1.0
        with world.daemon(recovery={"lease": "20s", "sweep_every": "5s", "give_up_after": "60s"}) as daemon:
            upload_all(world, 3)
            await world.until(lambda: any(job.kind == slow for job in plain.known.values()))
            await asyncio.sleep(65)
            world.faults.add(Fault("bigquery", "jobs.get", FaultKind.FAIL, times=60))
            await world.settled(limit=3600)
            for record in world.record():
                if record["Status"] == "failed":
                    await replay(world, Selection(rule=record["RuleName"]))
                    await world.settled(limit=3600)
            await daemon.stopped()
        assert everything(world) == expected(0, 1, 2)
        assert [record["Status"] for record in world.record()] == ["done"]

    simulate(story, plain=True)


def test_a_failure_that_was_acted_upon_stays_one_whoever_goes_on(simulate: Simulate) -> None:
    """A batch is given up, `OnFailure` takes its files away, the process dies, and what was missing is there again."""

    def begin(world: World) -> None:
        failed = [{"Action": "move", "Request": {"DestURL": f"gs://{OPS}/failed"}}]
        world.rule("rule.json", together(False, OnFailure=failed))
        upload_all(world, 2)

    def run(fate: Fate) -> None:
        async def story(world: World) -> None:
            begin(world)
            recovery = {"lease": "20s", "sweep_every": "5s", "give_up_after": "30s"}
            with world.daemon(fate, recovery=recovery) as first:
                await world.until(lambda: not first.alive or world.quiet())
            moved = bool(world.objects("failed/"))
            world.create_table("dummy")
            with world.daemon(recovery=recovery):
                await world.settled(limit=3600)
            (record,) = world.record()
            told = (record["Status"], len(world.objects("failed/")), len(world.rows()))
            assert told == ("failed", 2, 0) if moved else told in {("failed", 2, 0), ("done", 0, 2)}, fate.log[-3:]

        simulate(story, plain=True)

    run(whole := Fate())
    first = next(number for number, what in enumerate(whole.log) if what.startswith("store.copy"))
    for effects in range(first - 1, whole.effects):
        run(Fate(dies_after=effects))


def test_a_batch_that_meets_a_bug_says_so_and_waits_like_any_other(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        prepare(world, "prepared", False)
        broken = [True]
        world.mishap = lambda: broken[0] and 1 // 0 > 0
        with world.daemon(jobs=JOBS):
            upload_all(world, 3)
            await world.until(lambda: any(record["RetryAt"] for record in world.record("Running")), limit=60)
            (record,) = world.record("Running")
            assert "ZeroDivisionError" in record["Error"]
            assert not record["Owner"]
            broken.clear()
            broken.append(False)
            await world.settled()
        assert everything(world) == expected(0, 1, 2)

    simulate(story, plain=True)


def test_bad_rows_that_could_not_be_kept_are_told(simulate: Simulate) -> None:
    """Somebody emptied the staging folder after the load had begun: the good rows are loaded, the bad ones lost."""

    async def story(world: World) -> None:
        world.prepared(together(False, OnBadData="quarantine rows"))
        with world.daemon(jobs=JOBS):
            upload_all(world, 2, invalid=(2,))
            await world.until(
                lambda: bool(world.record("Running")) and "Prepared" in world.record("Running")[0]["Progress"]
            )
            (rejected,) = [one for one in world.objects("staging/") if "rejected" in one]
            world.storage.objects.delete(OPS, rejected)
            with structlog.testing.capture_logs() as told:
                await world.settled()
        assert everything(world) == expected(0, 1, 2)
        (lost,) = [one for one in told if one["event"] == "batch.bad_rows_lost"]
        assert (lost["log_level"], lost["lost"]) == ("error", f"gs://{OPS}/{rejected}")

    simulate(story, plain=True)


@pytest.mark.parametrize("way", ["transient copy", "prepared", "prepared, split"])
def test_who_stood_still_while_another_loaded_its_batch_does_not_end_it_as_if_nothing_was_loaded(
    simulate: Simulate, way: str
) -> None:
    """The other's clock is ahead; it takes the batch over, loads it, deletes the sources, and dies on the way."""

    async def story(world: World, fate: Fate) -> None:
        prepare(world, way, False)
        with standing_still(world, jobs=JOBS) as goes_on:
            upload_all(world, 6)
            await world.until(lambda: world.objects("journal/Running/") != [])
            with world.daemon(fate, skew=timedelta(minutes=5), jobs=JOBS) as other:
                await world.until(lambda: not other.alive or world.quiet(), 900)
            goes_on.set()
            with world.daemon(jobs=JOBS):
                await world.settled(3600)
        assert everything(world) == expected(*range(6))
        assert [record["Status"] for record in world.record()] == ["done"]

    assert die_everywhere(simulate, story, plain=True) > 10


def test_nothing_that_a_dead_attempt_wrote_is_taken_for_that_of_whoever_goes_on(simulate: Simulate) -> None:
    """It dies after each of its prepared files, and after its manifest, which was not pinned. Then a file changes."""

    def run(fate: Fate, *, survives: bool = False) -> None:
        async def story(world: World) -> None:
            prepare(world, "prepared, split", False)
            with world.daemon(fate, jobs=JOBS) as first:
                upload_all(world, 6)
                await world.until(lambda: not first.alive or world.quiet())
            if survives:
                return
            world.upload(name(4), {"id": 11, "name": "x"})  # the row of the old content is in what was written before
            with world.daemon(heir := Fate(), jobs=JOBS):
                await world.settled(3600)
            assert everything(world) == expected(0, 1, 2, 3, 5, 11)
            assert staged(fate) != set()
            assert staged(fate).isdisjoint(staged(heir)), "two attempts wrote to the same folder"

        simulate(story, plain=True)

    run(whole := Fate(), survives=True)
    writes = [number for number, what in enumerate(whole.log, 1) if what.startswith(STAGED)]
    assert len(writes) == 4, "of three tables, and the manifest"
    for effects in writes:
        run(Fate(dies_after=effects))


def staged(fate: Fate) -> set[str]:
    """The folders of the staging area that it wrote to."""
    writes = [what for what in fate.log if what.startswith(STAGED)]
    return {what.rpartition("/")[0] for what in writes}
