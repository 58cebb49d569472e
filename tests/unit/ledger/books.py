"""A journal with finished batches, for those that ask it about a file."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from tests.support.manual_clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.records import record

from ingestd.batch.journal import Held, Journal
from ingestd.batch.marks import WindowMark
from ingestd.batch.phases import Phase
from ingestd.batch.record import Record
from ingestd.ledger.history import FileRecords, Remembered
from ingestd.model.objects import FileVersion, Generation, ObjectRef, event_id


class Books:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.root = ObjectRef("ops", "journal")
        self.journal = Journal(cast("Any", self.store), self.root, self.clock, owner="r", lease=timedelta(seconds=60))
        self.records = FileRecords(self.journal, cast("Any", self.store), self.clock)

    def file(self, name: str, ago: timedelta = timedelta()) -> FileVersion:
        moment = self.clock.now() - ago
        return FileVersion(ObjectRef("data", name), Generation(int(moment.timestamp() * 1_000_000)), 1, moment)

    def batch(self, *files: FileVersion, start: timedelta | None = None) -> Record:
        mark = None
        if start is not None:
            mark = WindowMark(f"w{files[0].generation}", int((self.clock.now() - start).timestamp()))
        made = replace(record(), files=files, trigger=mark, phase=Phase.ACCEPTED, dest="d.t")
        return replace(made, event_id=event_id(made.identity), phase=Phase.DONE)

    async def begun(self, one: Record) -> Held:
        held = await self.journal.open(replace(one, phase=Phase.ACCEPTED), claim=True)
        assert held is not None
        return held

    async def finished(self, held: Held) -> None:
        held.record = replace(held.record, phase=Phase.DONE)
        await self.journal.finish(held)

    async def done(self, *records: Record) -> None:
        for one in records:
            await self.finished(await self.begun(one))
        self.store.operations.clear()

    async def about(self, name: str, remembered: Remembered | None = None) -> list[str]:
        template = replace(record(), dest="d.t")
        found = await self.records.about(ObjectRef("data", name), template, remembered)
        for place, one in found:
            assert place == (self.journal.done(one) if one.phase.final else self.journal.running(one))
        return [one.event_id for _, one in found]
