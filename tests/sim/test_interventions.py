"""People who step in: what they are told is true, and nothing they do at a bad moment loses or doubles rows."""

import asyncio
from contextlib import ExitStack
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.sim.directories import TABLE, batch, convention, explain, idle, interventions, rows, state
from tests.support.sim.journal import replay
from tests.support.sim.names import DATASET
from tests.support.sim.stories import Simulate
from tests.support.sim.world import Fate, World

from ingestd.batch.journal import Held
from ingestd.batch.record import Record
from ingestd.collect.success.queue import TableState
from ingestd.ledger.replay import Selection
from ingestd.localcloud.faults import Fault, FaultKind
from ingestd.model.jobs import JobRef, JobState
from ingestd.model.objects import EPOCH

ORDERED: dict[str, Any] = convention(order_per_table=True)


class DiesOnceDone(Fate):
    """Dies right after the first record got to `Done/`."""

    def happened(self, what: str) -> None:
        super().happened(what)
        if "journal/Done/" in what:
            self.die()


def test_a_batch_whose_rows_are_there_cannot_be_left_out(simulate: Simulate) -> None:
    """Everybody died between the end of a batch and the next move of its table."""

    async def story(world: World) -> None:
        world.create_table("dummy")
        batch(world, "dummy/b2", 2)
        with world.daemon(DiesOnceDone(), **ORDERED) as first:
            await world.until(lambda: not first.alive)
        before = await state(world)
        assert before.current
        assert not before.committed
        said = await interventions(world).skip(TABLE, "ann")
        assert "is left out" not in said
        assert "loaded" in said
        batch(world, "dummy/b3", 3)
        with world.daemon(**ORDERED):
            await world.until(lambda: idle(world))
        after = await state(world)
        assert rows(world) == [2, 3]
        assert after.committed.startswith("b3/")
        assert after.skipped == ()

    simulate(story, plain=True)


def test_a_batch_whose_job_may_still_commit_cannot_be_left_out(simulate: Simulate) -> None:
    """Everybody died while BigQuery was loading, and the lease is over: the job runs on all the same."""

    async def story(world: World) -> None:
        world.create_table("dummy")
        fate = Fate()
        batch(world, "dummy/b1", 1)
        with world.daemon(fate, **ORDERED) as first:
            await world.until(lambda: any("insert_job" in one for one in fate.log))
            first.kill()
        await asyncio.sleep(60)
        said = await interventions(world).skip(TABLE, "ann")
        assert "is left out" not in said
        assert "job" in said
        with world.daemon(**ORDERED):
            await world.until(lambda: idle(world), 3_600)
        assert rows(world) == [1]
        assert [record["Status"] for record in world.record()] == ["done"]

    simulate(story, plain=True, job_latency=900.0)


def test_a_batch_whose_second_job_nobody_has_written_down_cannot_be_left_out(simulate: Simulate) -> None:
    """The first one failed for a moment, and the replica died right after it had submitted the next."""

    async def story(world: World) -> None:
        world.create_table("dummy")
        world.faults.add(Fault("bigquery", "job.load", FaultKind.FAIL, reason="backendError", times=1))
        fate = Fate()
        batch(world, "dummy/b1", 1)
        with world.daemon(fate, **ORDERED, recovery={"lease": "60s", "sweep_every": "5s"}) as first:
            await world.until(lambda: sum("insert_job" in one for one in fate.log) == 2)
            first.kill()
        (record,) = world.record("Running")
        assert record["Progress"]["Jobs"] < 2
        await asyncio.sleep(120)
        said = await interventions(world).skip(TABLE, "ann")
        assert "is left out" not in said
        assert "try2" in said
        with world.daemon(**ORDERED):
            await world.until(lambda: idle(world))
        assert rows(world) == [1]
        assert [record["Status"] for record in world.record()] == ["done"]

    simulate(story, plain=True)


@pytest.mark.parametrize("renewed", [False, True])
def test_a_replica_whose_clock_is_behind_loads_nothing_of_what_was_left_out(simulate: Simulate, renewed: bool) -> None:
    """By its lease, which looks over to everybody else, it is about to repeat a job that failed for a moment.

    Where it has renewed that lease meanwhile, its record tells of the job already.
    """

    async def story(world: World) -> None:
        world.create_table("dummy")
        world.faults.add(Fault("bigquery", "job.load", FaultKind.FAIL, reason="backendError", times=3))
        fate, behind = Fate(), timedelta(minutes=-5)
        batch(world, "dummy/b1", 1)
        lease = "40s" if renewed else "120s"
        with world.daemon(fate, skew=behind, **ORDERED, recovery={"lease": lease, "sweep_every": "5s"}) as daemon:
            await world.until(lambda: sum("insert_job" in one for one in fate.log) == 3)
            await asyncio.sleep(5)
            if renewed:
                await world.until(lambda: world.record("Running")[0]["Progress"]["Jobs"] == 4)
            assert sum("insert_job" in one for one in fate.log) == 3, "it has repeated the job already"
            assert "is left out" in await interventions(world).skip(TABLE, "ann")
            assert world.plain is not None
            assert any("try4" in name for name in world.plain.known), "the job it is about to submit is not used up"
            batch(world, "dummy/b2", 2)
            await world.until(lambda: idle(world), 3_600)
            daemon.raise_if_broken()
        assert rows(world) == [2], "what was left out was loaded"
        assert sorted(record["Status"] for record in world.record()) == ["done", "failed"]

    simulate(story, plain=True)


def test_a_batch_whose_job_is_submitted_while_somebody_looks_cannot_be_left_out(simulate: Simulate) -> None:
    """A replica whose clock is behind submits its first job right after it was asked for, and not found."""

    async def story(world: World) -> None:
        world.create_table("dummy")
        looked, fate = asyncio.Event(), Fate()

        async def before(what: str) -> None:
            if "insert_job" in what:
                await looked.wait()

        fate.before = before
        batch(world, "dummy/b1", 1)
        with world.daemon(fate, skew=timedelta(minutes=-5), **ORDERED, recovery={"lease": "60s"}):
            await world.until(lambda: any(record["Files"] for record in world.record("Running")))
            await asyncio.sleep(5)
            person = interventions(world)
            get_job = person._warehouse.get_job

            async def slow(ref: JobRef) -> JobState | None:
                found = await get_job(ref)
                looked.set()
                await world.until(lambda: any("insert_job" in one for one in fate.log))
                return found

            person._warehouse.get_job = slow  # type: ignore[method-assign]
            said = await person.skip(TABLE, "ann")
            assert "is left out" not in said
            assert "job" in said
            await world.until(lambda: idle(world), 3_600)
        assert rows(world) == [1]
        assert [record["Status"] for record in world.record()] == ["done"]

    simulate(story, plain=True)


class DiesOnceChosen(Fate):
    """Dies when it is decided which batch is next, and before that has a record."""

    def happened(self, what: str) -> None:
        super().happened(what)
        if "state.json" in what:
            self.die()


@pytest.mark.parametrize("submitted", [False, True])
def test_a_batch_that_somebody_takes_meanwhile_cannot_be_left_out(simulate: Simulate, submitted: bool) -> None:
    """A replica whose clock is ahead finds the lease of the one who skips over at once, and goes on with the batch."""
    effect = "insert_job" if not submitted else "journal/Running/"

    async def story(world: World) -> None:
        world.create_table("dummy")
        batch(world, "dummy/b1", 1)
        before = Fate() if submitted else DiesOnceChosen()
        with world.daemon(before, **ORDERED) as first:
            await world.until(lambda: not first.alive or any("insert_job" in one for one in before.log))
            first.kill()
        await asyncio.sleep(60)
        with ExitStack() as stack:
            person, fate = interventions(world), Fate()
            claim = person._journal.claim

            async def slow(held: Held) -> bool:
                claimed = await claim(held)
                stack.enter_context(world.daemon(fate, skew=timedelta(minutes=5), **ORDERED))
                await world.until(lambda: any(effect in one for one in fate.log))
                return claimed

            person._journal.claim = slow  # type: ignore[method-assign]
            said = await person.skip(TABLE, "ann")
            assert "is left out" not in said
            assert ("job" if submitted else "being loaded") in said
            await world.until(lambda: idle(world), 3_600)
        assert rows(world) == [1]
        assert [record["Status"] for record in world.record()] == ["done"]

    simulate(story, plain=True, job_latency=900.0 if submitted else 0.5)


def test_what_was_left_out_is_explained_told_and_not_replayed_by_the_way(simulate: Simulate) -> None:
    some = ORDERED | {"load_state": {"enabled": True, "flush_every": "1s"}}

    async def story(world: World) -> None:
        world.create_table("dummy")
        batch(world, "dummy/b1", 1)
        with world.daemon(DiesOnceChosen(), **some) as first:
            await world.until(lambda: not first.alive)
        assert "is left out" in await interventions(world).skip(TABLE, "ann")
        with world.daemon(**some):
            await world.until(lambda: idle(world))
            assert [one["state"] for one in _load_state(world) if one["final"]] == ["failed"]
            told = await explain(world, f"{DATASET}/dummy/b1/f001.json")
            assert [(one.phase, one.error.startswith("skipped by ann")) for one in told.history] == [("failed", True)]

            (seen,) = await replay(world, Selection(since=EPOCH))
            assert seen.skipped
            assert "left it out" in seen.what
            await asyncio.sleep(60)
            assert rows(world) == []

            (seen,) = await replay(world, Selection(event_ids=[seen.event_id]))
            assert not seen.skipped
            await world.until(lambda: idle(world) and bool(rows(world)))
        assert rows(world) == [1]
        assert [record["Status"] for record in world.record()] == ["done"]

    simulate(story, plain=True)


def _load_state(world: World) -> list[dict[str, Any]]:
    assert world.plain is not None
    return world.plain.load_state()


def test_of_retry_and_skip_at_the_same_moment_the_first_counts_alone(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        batch(world, "dummy/b1", 1)
        world.faults.add(Fault("bigquery", "job.load", FaultKind.FAIL, reason="invalid", times=1))
        with world.daemon(**ORDERED) as daemon:
            while not (await state(world)).hold:
                await world.until(lambda: True)
                await asyncio.sleep(1)
            await world.until(lambda: not world.record("Running"))
            daemon.kill()
        one, other = interventions(world), interventions(world)
        known = one._record

        async def slow(seen: TableState) -> Record | None:
            """The one who skips is faster than the one who retries."""
            said.append(await other.skip(TABLE, "ann"))
            return await known(seen)

        said: list[str] = []
        one._record = slow  # type: ignore[method-assign]
        said.append(await one.retry(TABLE))
        assert "left out" in said[0]
        assert "somebody else" in said[1]
        with world.daemon(**ORDERED):
            await asyncio.sleep(60)
            await world.until(lambda: idle(world))
        assert rows(world) == [], "what was left out was loaded"
        assert [record["Status"] for record in world.record()] == ["failed"]

    simulate(story, plain=True)


def test_a_retry_that_a_daemon_finishes_says_that_the_batch_is_tried_again(simulate: Simulate) -> None:
    """It has opened the batch; a daemon sees that, and frees the table before the command comes to it."""

    async def story(world: World) -> None:
        world.create_table("dummy")
        batch(world, "dummy/b1", 1)
        world.faults.add(Fault("bigquery", "job.load", FaultKind.FAIL, reason="invalid", times=1))
        with world.daemon(**ORDERED):
            while not (await state(world)).hold:
                await world.until(lambda: True)
                await asyncio.sleep(1)
            await world.until(lambda: not world.record("Running"))
            person = interventions(world)
            save = person._queues.save

            async def slow(*what: Any) -> bool:
                while (await state(world)).hold:
                    await asyncio.sleep(1)
                return await save(*what)

            person._queues.save = slow  # type: ignore[method-assign]
            assert (await person.retry(TABLE)).endswith("is tried again")
            await world.until(lambda: idle(world))
        assert rows(world) == [1]

    simulate(story, plain=True)


def test_a_replay_leaves_a_batch_alone_that_somebody_is_working_on(simulate: Simulate) -> None:
    """It had to wait once, so it looks like one that waits; its second try is under way."""

    async def story(world: World) -> None:
        with world.daemon(**convention()) as daemon:
            batch(world, "dummy/b1", 1)
            await world.until(lambda: any(record["RetryAt"] for record in world.record("Running")))
            world.create_table("dummy")
            await world.until(lambda: bool(world.plain and world.plain.known), limit=3_600)
            (running,) = world.record("Running")
            assert running["Owner"]
            (seen,) = await replay(world, Selection(event_ids=[running["EventID"]]))
            assert seen.skipped
            assert "worked on" in seen.what
            (after,) = world.record("Running")
            assert after["Owner"] == running["Owner"]
            await world.until(lambda: idle(world), 7_200)
            daemon.raise_if_broken()
        assert rows(world) == [1]

    simulate(story, plain=True, job_latency=300.0)


def test_a_replica_that_was_frozen_before_its_load_submits_nothing_any_more(simulate: Simulate) -> None:
    """Meanwhile its lease ran out, and the folder was uploaded again: that is one load, by the other replica."""

    async def story(world: World) -> None:
        world.create_table("dummy")
        woken = asyncio.Event()
        with world.daemon(**convention()) as frozen:
            parts = frozen.app.runner._parts
            governor = parts.governor

            async def hang(*args: Any, **kwargs: Any) -> None:
                for port in (parts.store, parts.warehouse):
                    port._pause = woken.wait  # type: ignore[attr-defined]
                await asyncio.sleep(90)
                parts.warehouse._pause = world.pause  # type: ignore[attr-defined]
                await governor.admit(*args, **kwargs)
                asyncio.get_running_loop().call_later(5, woken.set)

            parts.governor = cast("Any", SimpleNamespace(admit=hang))
            batch(world, "dummy/b1", 1, 2)
            await asyncio.sleep(1)
            with world.daemon(**convention()):
                batch(world, "dummy/b1", 3)
                await asyncio.sleep(120)
                await world.until(lambda: idle(world))
        assert rows(world) == [1, 2, 3]

    simulate(story, plain=True)
