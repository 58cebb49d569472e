"""Announcing files, and looking for those that nobody announced."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_store import MemoryStore

from ingestd.intake.notifications import parse_notification
from ingestd.ledger import sweep
from ingestd.ledger.announcing import InProcess, Publishing, Told, message_of
from ingestd.ledger.backfill import Account, Backfill, Period, by_name, by_rules
from ingestd.ledger.known import Candidate, KnownFiles, Standing
from ingestd.ledger.sweep import LostFiles
from ingestd.model.errors import Transient
from ingestd.model.objects import ObjectInfo, ObjectRef
from ingestd.rules.matching import NoMatch

PREFIX = ObjectRef("data", "in/")


class Known(KnownFiles):
    """Remembers what it was asked, and knows what it is told."""

    def __init__(self) -> None:
        self.loaded: set[str] = set()
        self.chunks: list[int] = []

    async def look_up(self, candidates: Any) -> list[Standing]:
        self.chunks.append(len(candidates))
        return [
            Standing.LOADED if candidate.info.ref.name in self.loaded else Standing.UNKNOWN for candidate in candidates
        ]


class Announcer:
    def __init__(self, known: Known) -> None:
        self.known = known
        self.announced: list[str] = []
        self.returning = 0

    async def announce(self, objects: Iterable[ObjectInfo]) -> Told:
        names = [info.ref.name for info in objects]
        back = min(self.returning, len(names))
        self.announced += names[back:]
        self.known.loaded |= set(names[back:])
        return Told(taken=len(names) - back, returned=back)


class Setup:
    def __init__(self, **changes: Any) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.known = Known()
        self.announcer = Announcer(self.known)
        self._changes = changes

    def put(self, name: str) -> ObjectInfo:
        return self.store.put(ObjectRef("data", f"in/{name}"), b"x")

    def replica(self, name: str = "r1") -> LostFiles:
        given: dict[str, Any] = {
            "prefixes": (PREFIX,),
            "every": timedelta(hours=1),
            "older_than": timedelta(minutes=10),
            "max_files": 100,
        }
        return LostFiles(
            self.store,
            Backfill(self.store, self.known, Candidate),
            self.announcer,
            self.clock,
            notes=ObjectRef("ops", "sweep"),
            replica=name,
            **(given | self._changes),
        )


async def test_only_files_that_are_old_enough_and_new_since_the_last_look_are_looked_up() -> None:
    setup = Setup()
    setup.put("old")
    setup.clock.advance(timedelta(hours=1))
    setup.put("young")
    first = await setup.replica().look(PREFIX)
    assert first is not None
    assert (first.objects, first.told.taken, first.young) == (2, 1, 1)
    assert setup.announcer.announced == ["in/old"]
    assert await setup.replica().look(PREFIX) is None, "not yet time"
    setup.clock.advance(timedelta(hours=1))
    await setup.replica().look(PREFIX)
    assert setup.announcer.announced == ["in/old", "in/young"]
    assert setup.known.chunks == [1, 1], "what was accounted for is not looked up again"


async def test_of_several_replicas_one_looks() -> None:
    setup = Setup()
    setup.put("a")
    setup.clock.advance(timedelta(hours=1))
    looks = await asyncio.gather(*(setup.replica(f"r{number}").look(PREFIX) for number in range(5)))
    assert sum(look is not None for look in looks) == 1
    assert setup.announcer.announced == ["in/a"]


async def test_what_could_not_be_handed_over_is_found_by_the_next_look() -> None:
    setup = Setup()
    setup.put("a")
    setup.clock.advance(timedelta(hours=1))
    setup.announcer.returning = 1
    await setup.replica().look(PREFIX)
    assert setup.announcer.announced == []
    setup.announcer.returning = 0
    setup.clock.advance(timedelta(hours=1))
    await setup.replica().look(PREFIX)
    assert setup.announcer.announced == ["in/a"]


async def test_a_look_takes_no_more_files_than_it_may_and_the_next_one_goes_on() -> None:
    setup = Setup(max_files=3)
    for number in range(7):
        setup.put(f"{number}")
    setup.clock.advance(timedelta(hours=1))
    for expected in (3, 6, 7):
        await setup.replica().look(PREFIX)
        assert len(setup.announcer.announced) == expected
        setup.clock.advance(timedelta(hours=1))


async def test_a_look_that_dies_is_repeated_from_where_it_began() -> None:
    setup = Setup()
    setup.put("a")
    setup.clock.advance(timedelta(hours=1))

    async def dies(_: object) -> Told:
        raise Transient("killed")

    alive, setup.announcer.announce = setup.announcer.announce, dies  # type: ignore[method-assign]
    try:
        await setup.replica().look(PREFIX)
    except Transient:
        setup.announcer.announce = alive  # type: ignore[method-assign]
    setup.clock.advance(timedelta(hours=1))
    await setup.replica("r2").look(PREFIX)
    assert setup.announcer.announced == ["in/a"]


async def test_a_large_prefix_is_looked_up_in_chunks() -> None:
    setup = Setup()
    for number in range(4_500):
        setup.put(f"{number:05d}")
    seen: list[int] = []
    account = await Backfill(setup.store, setup.known, Candidate).run(
        PREFIX, None, progress=lambda account: seen.append(account.objects)
    )
    assert setup.known.chunks == [2000, 2000, 500]
    assert (account.objects, account.missing, len(account.examples)) == (4500, 4500, 20)
    assert seen == [2000, 4000, 4500, 4500]
    assert account.to_json()["missing_bytes"] == 4500


def test_a_message_about_a_found_file_reads_as_cloud_storage_s_own() -> None:
    setup = Setup()
    info = setup.store.put(ObjectRef("data", "in/ä #1?.json"), b"xyz", {"k": "v"})
    message = message_of(info, setup.clock.now())
    event = parse_notification(message.data, message.attributes)
    assert (event.file.ref, event.file.generation, event.file.size) == (info.ref, info.generation, 3)
    assert event.file.event_time == info.created
    assert event.metadata == {"k": "v"}
    assert event.finalized


async def test_handing_over_waits_until_each_file_is_durable_or_given_back() -> None:
    setup = Setup()
    infos = [setup.put(name) for name in ("acked", "later", "returned", "raises")]

    def handle(message: Any, receipt: Any) -> Any:
        name = message.attributes["objectId"].rpartition("/")[2]

        async def work() -> None:
            await asyncio.sleep(0)
            if name == "raises":
                raise Transient("down")
            receipt.ack()

        if name == "acked":
            receipt.ack()
            return None
        if name == "returned":
            receipt.retry_later(timedelta(seconds=1))
            return None
        return work()

    told = await InProcess(handle, setup.clock.now).announce(infos)
    assert (told.taken, told.returned, told.why) == (2, 2, "down")


async def test_a_call_that_fails_gives_all_of_its_files_back() -> None:
    setup = Setup()
    infos = [setup.put(f"{number:04d}") for number in range(1200)]
    calls: list[int] = []

    class Topic:
        async def publish_all(self, topic: str, messages: Any) -> list[str]:
            calls.append(len(messages))
            if len(calls) == 2:
                raise Transient("unavailable")
            return [topic] * len(messages)

    told = await Publishing(Topic(), "t", setup.clock.now).announce(infos)  # type: ignore[arg-type]
    assert sorted(calls) == [200, 500, 500]
    assert (told.taken, told.returned, told.why) == (700, 500, "unavailable")


def test_success_files_are_told_by_their_whole_name() -> None:
    setup = Setup()
    select = by_name("_SUCCESS")
    names = ["d/t/_SUCCESS", "d/t/foo_SUCCESS", "d/t/_SUCCESS.crc", "d/_SUCCESS/a.csv"]
    assert [bool(select(setup.put(name))) for name in names] == [True, False, False, False]
    nothing = by_rules(lambda _: NoMatch(), lambda ref: ref.name.endswith("/_SUCCESS"))
    assert [bool(nothing(setup.put(name))) for name in [*names, "folder/"]] == [True, False, False, False, False]


def test_a_period_ends_where_the_next_begins() -> None:
    moments = [datetime(2024, 1, day) for day in (1, 2, 3)]  # noqa: DTZ001
    first, second = Period(None, moments[1]), Period(moments[1], None)
    assert [(one in first, one in second) for one in moments] == [(True, False), (True, False), (False, True)]
    assert Account().missing == 0


async def test_a_replica_whose_clock_runs_ahead_hides_no_file_from_the_others() -> None:
    """Its look counts until when Cloud Storage says it was, and does not keep the others from looking for a day."""
    setup = Setup()
    setup.put("before")
    setup.clock.advance(timedelta(hours=1))
    ahead = Setup()
    ahead.clock = ManualClock(setup.clock.now() + timedelta(days=1))
    ahead.store, ahead.known, ahead.announcer = setup.store, setup.known, setup.announcer
    await ahead.replica("ahead").look(PREFIX)
    assert setup.announcer.announced == ["in/before"]
    setup.put("lost")
    for _ in range(3):
        setup.clock.advance(timedelta(hours=1))
        await setup.replica("right").look(PREFIX)
    assert setup.announcer.announced == ["in/before", "in/lost"]


async def test_a_note_that_is_too_large_says_nothing_and_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "LARGEST", 1_000)
    setup = Setup()
    setup.put("a")
    setup.clock.advance(timedelta(hours=1))
    await setup.replica().look(PREFIX)
    (note,) = setup.store.names("ops", "sweep/")
    setup.store.put(ObjectRef("ops", note), b'{"Looked": "2099-01-01T00:00:00+00:00", "x": "%s"}' % (b"x" * 1_000))
    account = await setup.replica().look(PREFIX)
    assert account is not None and account.objects == 1
    assert len(setup.store.content(ObjectRef("ops", note))) < 1_000
