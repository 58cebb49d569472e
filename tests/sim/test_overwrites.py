"""Files that are overwritten, or deleted and uploaded again, around their load: every content is counted once."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.sim.seeds import FEATURES, run_seeds
from tests.support.rule_documents import modes, together
from tests.support.sim.journal import replay
from tests.support.sim.names import TRIGGER
from tests.support.sim.stories import Simulate, die_everywhere, standing_still, upload
from tests.support.sim.world import Fate, World

from ingestd.ledger.replay import Selection


@pytest.mark.parametrize("after", [9.0, 12.3, 13.0, 14.0, 20.0])
@modes
def test_a_file_overwritten_around_the_load_of_its_window_is_counted_once(
    simulate: Simulate, asynchronous: bool, after: float
) -> None:
    async def story(world: World) -> None:
        world.prepared(together(asynchronous))
        with world.daemon(), world.daemon():
            name, _ = upload(world, 1)
            upload(world, 2)
            await asyncio.sleep(after)
            world.upload(name, {"id": 8, "name": "newer"}, {"id": 9, "name": "newer"})
            await world.settled()
        rows = world.rows()
        assert rows.count(("8", "newer")) == rows.count(("9", "newer")) == 1
        assert rows.count(("1", "x")) <= 1
        assert not world.exists(name)

    simulate(story, job_latency=2.0)


NAME = "data/a.json"


class Producer:
    """Writes one name again and again, every time with one row more than before."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._next = 1
        self.ids: list[list[int]] = []
        self.generations: list[int] = []

    def upload(self, rows: int | None = None) -> None:
        count = rows or len(self.ids) + 1
        ids = list(range(self._next, self._next + count))
        self._next += count
        self.ids.append(ids)
        self.generations.append(self._world.upload(NAME, *({"id": number, "name": "x"} for number in ids)))

    def delete(self) -> None:
        self._world.storage.objects.delete(TRIGGER, NAME)

    async def keeps_overwriting(self, times: int, every: float = 1.0) -> None:
        for _ in range(times):
            self.upload()
            await asyncio.sleep(every)


def given(world: World, window: bool = False, asynchronous: bool = False, **dest: Any) -> Producer:
    world.create_table("dummy")
    ruled(world, window, asynchronous, **dest)
    return Producer(world)


def ruled(world: World, window: bool, asynchronous: bool = False, actions: Any = (), **dest: Any) -> None:
    rule: dict[str, Any] = {
        "When": {"Prefix": "/data/"},
        "Async": asynchronous,
        "Dest": {"Table": "bqtail.dummy", **dest},
        "OnSuccess": list(actions),
    }
    if window:
        rule["Batch"] = {"Window": {"DurationInSec": 10}}
    world.rule("rule.json", rule)


def loaded_once(world: World, producer: Producer) -> None:
    """The newest content is there, once, and claims are as rows are: nothing that is there is claimed by nobody."""
    rows = Counter(int(number) for number, _ in world.rows())
    assert [rows[number] for number in producer.ids[-1]] == [1] * len(producer.ids[-1])
    assert max(rows.values()) == 1
    assert sum(record["Rows"] or 0 for record in world.record()) == rows.total()
    for record in world.record():
        for place, file in enumerate(record["Files"]):
            fate = record["Progress"]["Aside"].get(str(place), {}).get("Fate", "loaded")
            ids = producer.ids[producer.generations.index(int(file["Generation"]))]
            there = {rows[number] for number in ids}
            assert there == ({1} if fate in ("loaded", "read_earlier") else {0}), (fate, ids, rows)


async def submitted(world: World) -> None:
    """Until the first load has looked at its sources and waits for BigQuery."""
    assert world.plain is not None
    await world.until(lambda: bool(world.plain and world.plain.known))


windows = pytest.mark.parametrize("window", [True, False], ids=["window", "alone"])


@windows
@modes
def test_a_file_overwritten_any_number_of_times_while_it_loads_is_counted_once(
    simulate: Simulate, window: bool, asynchronous: bool
) -> None:
    async def story(world: World) -> None:
        producer = given(world, window, asynchronous)
        with world.daemon(), world.daemon():
            producer.upload()
            await submitted(world)
            await producer.keeps_overwriting(14)
            await world.settled(7200)
        loaded_once(world, producer)

    simulate(story, plain=True, job_latency=30.0)


@windows
def test_a_rule_that_spells_its_table_otherwise_since_counts_the_overwritten_file_once(
    simulate: Simulate, window: bool
) -> None:
    async def story(world: World) -> None:
        producer = given(world, window)
        with world.daemon():
            producer.upload()
            await submitted(world)
            ruled(world, window, Table=f"{world.names.project}:bqtail.dummy")
            await asyncio.sleep(100)  # until the rule is read anew
            producer.upload()
            await world.settled(7200)
        assert len({record["DestTable"] for record in world.record()}) == 2
        loaded_once(world, producer)

    simulate(story, plain=True, job_latency=300.0)


@windows
def test_overwrites_while_nobody_was_there_are_counted_once(simulate: Simulate, window: bool) -> None:
    async def story(world: World) -> None:
        producer = given(world, window)
        with world.daemon():
            producer.upload()
            await submitted(world)
        await producer.keeps_overwriting(14)
        with world.daemon():
            await world.settled(7200)
        loaded_once(world, producer)

    simulate(story, plain=True, job_latency=30.0)


@pytest.mark.parametrize("after", [1.0, 20.0, 40.0])
@modes
def test_a_notification_that_is_overtaken_changes_nothing(
    simulate: Simulate, monkeypatch: pytest.MonkeyPatch, asynchronous: bool, after: float
) -> None:
    """The second generation is announced long after the third, which replaced it."""

    async def story(world: World) -> None:
        producer = given(world, asynchronous=asynchronous)
        with world.daemon():
            producer.upload()
            await submitted(world)
            await asyncio.sleep(after)
            late: list[Any] = []
            with monkeypatch.context() as patch:
                patch.setattr("ingestd.localcloud.feeds.Notifications.__call__", lambda _, *what: late.append(what))
                producer.upload()
                world.storage.deliver_notifications()
            await asyncio.sleep(1)
            producer.upload()
            await asyncio.sleep(90)
            for topic, data, attributes in late:
                world.pubsub.publish(topic, [(data, attributes, "")])
            await asyncio.sleep(1)
            await world.settled(7200)
        loaded_once(world, producer)

    simulate(story, plain=True, job_latency=30.0)


@pytest.mark.parametrize("after", [0.2, 10.0, 20.0, 29.0, 40.0])
@windows
def test_a_file_deleted_and_uploaded_again_around_its_load_is_counted_once(
    simulate: Simulate, window: bool, after: float
) -> None:
    """Nothing says that the second upload replaced the first."""

    async def story(world: World) -> None:
        producer = given(world, window)
        with world.daemon(), world.daemon():
            producer.upload()
            await submitted(world)
            await asyncio.sleep(after)
            producer.delete()
            await asyncio.sleep(0.1)
            producer.upload()
            await world.settled(7200)
        loaded_once(world, producer)

    simulate(story, plain=True, job_latency=30.0)


def test_that_a_load_read_something_else_is_still_known_after_a_crash_among_its_actions(simulate: Simulate) -> None:
    """The actions take away the sources by which it was seen."""

    async def story(world: World, fate: Fate) -> None:
        producer = given(world, window=True)
        ruled(world, window=True, actions=[{"Action": "delete"}])
        with world.daemon():
            world.upload("data/0.json", {"id": 100, "name": "x"})
            producer.upload()
            await submitted(world)
        producer.upload()
        await asyncio.sleep(40)  # BigQuery reads the second generation
        producer.delete()
        producer.upload()
        with world.daemon(fate) as first:
            await world.until(lambda: not first.alive or world.quiet())
        with world.daemon():
            await world.settled(7200)
        assert sorted(int(number) for number, _ in world.rows()) == [*producer.ids[1], *producer.ids[2], 100]
        (early,) = [record for record in world.record() if len(record["Files"]) == 2]
        place = [file["URL"] for file in early["Files"]].index(f"gs://{TRIGGER}/{NAME}")
        aside = early["Progress"]["Aside"].get(str(place), {})
        assert (aside.get("Fate"), bool(aside.get("JobID"))) == ("superseded", True), fate.log

    assert die_everywhere(simulate, story, plain=True, job_latency=30.0) >= 8, "the crash points were not reached"


@pytest.mark.parametrize("after", [1.0, 20.0])
@windows
def test_rows_that_landed_apart_are_landed_again_when_their_file_was_overwritten_meanwhile(
    simulate: Simulate, window: bool, after: float
) -> None:
    async def story(world: World) -> None:
        producer = given(world, window, Transient={"Dataset": "temp"})
        with world.daemon():
            producer.upload()
            world.upload("data/b.json", {"id": 100, "name": "x"})
            await submitted(world)
            await asyncio.sleep(after)
            await producer.keeps_overwriting(3)
            await world.settled(7200)
        rows = Counter(int(number) for number, _ in world.rows())
        assert rows == Counter([100, *producer.ids[-1]])

    simulate(story, plain=True, job_latency=30.0)


def test_contents_of_the_same_size_are_refused_and_loaded_when_a_person_says_so(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        producer = given(world)
        with world.daemon():
            producer.upload(rows=2)
            await submitted(world)
            await asyncio.sleep(20)  # BigQuery is reading
            producer.upload(rows=2)
            await world.settled()
            (refused,) = [one for one in world.record() if one["Status"] == "failed"]
            assert "size does not tell" in refused["Error"]
            assert world.exists(NAME)
            assert len(world.rows()) == 2
            await replay(world, Selection(event_ids=[refused["EventID"]]))
            await world.settled()
        (again,) = [one for one in world.record() if one["EventID"] == refused["EventID"]]
        assert (again["Status"], again["Rows"]) == ("done", 2)

    simulate(story, plain=True, job_latency=30.0)


def test_a_file_that_nobody_overwrites_leaves_no_note(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        producer = given(world)
        with world.daemon():
            producer.upload()
            await world.settled()
            assert world.objects("journal/Trail/") == []
            producer.upload()  # long after the load
            await world.settled()
        assert world.objects("journal/Trail/") == []
        assert len(world.rows()) == 3

    simulate(story, plain=True)


def test_names_overwritten_while_their_window_collects_cost_no_write_each(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(together())
        with world.daemon():
            for number in (*range(40), *range(40)):
                upload(world, number)
            await world.settled()
        assert len(world.rows()) == 40
        assert world.objects("journal/Trail/") == []

    simulate(story)


def test_a_job_submitted_while_another_replica_gives_the_file_up_is_heard() -> None:
    """Seed 5009: two replicas with clocks five minutes apart drive one batch, and one of them looks too late."""
    assert run_seeds([5009], replace(FEATURES, overwrites=0.5)).failures == {}


@modes
def test_who_was_overtaken_by_a_replica_whose_clock_is_ahead_does_not_end_the_batch(
    simulate: Simulate, asynchronous: bool
) -> None:
    """It stands still with a batch it has made; the other has submitted the job when the file is overwritten."""

    async def story(world: World) -> None:
        producer = given(world, asynchronous=asynchronous)
        with standing_still(world) as goes_on:
            producer.upload()
            await world.until(lambda: world.objects("journal/Running/") != [])
            with world.daemon(skew=timedelta(minutes=5)):
                await submitted(world)
                producer.upload()
                goes_on.set()
                await world.settled(7200)
        loaded_once(world, producer)

    simulate(story, plain=True, job_latency=30.0)


async def outrun(world: World, producer: Producer, at: str, *, after_the_end: bool = False) -> None:
    """A replica makes a batch and stands still before a call; meanwhile a file is overwritten, and another replica,
    whose clock is five minutes ahead, takes the batch over. Before that one submits a job for it, and the newer
    content's batch had its time, or once it has ended the batch, the first goes on.
    """
    reached, goes_on = asyncio.Event(), asyncio.Event()
    event_id = ""

    async def first_stands_still(call: str) -> None:
        if call.startswith(at):
            reached.set()
            await goes_on.wait()

    async def second_stands_still(call: str) -> None:
        if call.startswith("warehouse.insert_job") and event_id in call and not after_the_end:
            await goes_on.wait()
            await asyncio.sleep(1.0)

    first, second = Fate(), Fate()
    first.before, second.before = first_stands_still, second_stands_still
    patient = {"lease": timedelta(seconds=60), "sweep_every": timedelta(seconds=5)}
    with world.daemon(first, recovery=patient):
        producer.upload()
        await world.until(reached.is_set)
        event_id = world.record("Running")[0]["EventID"]
        producer.upload()
        with world.daemon(second, skew=timedelta(minutes=5), recovery=patient):
            if after_the_end:
                await world.until(lambda: any(event_id in name for name in world.objects("journal/Done/")))
            else:
                await asyncio.sleep(25.0)
            goes_on.set()
            await world.settled(7200)
            await asyncio.sleep(120.0)
    rows = Counter(int(number) for number, _ in world.rows())
    assert {number: times for number, times in rows.items() if number < 100} == dict.fromkeys(producer.ids[-1], 1)


@modes
def test_what_was_given_up_by_who_took_the_batch_over_is_not_loaded_by_the_one_before(
    simulate: Simulate, asynchronous: bool
) -> None:
    """Seed 508699: the one before has looked already, and submits the job for all of the files when it goes on."""

    async def story(world: World) -> None:
        producer = given(world, True, asynchronous)
        world.upload("data/b.json", {"id": 100, "name": "x"})
        await outrun(world, producer, "warehouse.insert_job")
        assert [number for number, _ in world.rows()].count("100") == 1

    simulate(story, plain=True, job_latency=40.0)


@pytest.mark.parametrize("after_the_end", [False, True])
@modes
def test_a_table_that_is_made_after_the_end_of_its_batch_is_dropped(
    simulate: Simulate, asynchronous: bool, after_the_end: bool
) -> None:
    """Seeds 513701 and 519194: whoever was outrun makes the batch's own table once more, and loads into it."""

    async def story(world: World) -> None:
        producer = given(world, False, asynchronous, Transient={"Dataset": "temp"})
        await outrun(world, producer, "warehouse.create_table", after_the_end=after_the_end)
        assert world.plain is not None
        assert [table for table in world.plain.tables if "temp" in str(table)] == []

    simulate(story, plain=True, job_latency=40.0)


def test_files_are_given_up_in_the_end_although_their_table_is_busy() -> None:
    """Each of these batches waits for its turn again and again, and whoever goes on then has taken it over."""
    assert run_seeds([702055, 703571]).failures == {}


def test_seeds_full_of_overwritten_files_hold() -> None:
    assert run_seeds(range(25), replace(FEATURES, overwrites=0.8)).failures == {}
