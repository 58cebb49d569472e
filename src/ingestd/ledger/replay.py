"""`ingestd replay`: another try, now.

A batch that waits for its surroundings is tried at once instead of at its next turn. A batch that failed is opened
again: from the load, or, when the load stood and an action failed, from the actions. Nothing is loaded that the journal
shows as loaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ingestd.batch.journal import Entry, Held, Journal
from ingestd.batch.record import Phase, Record
from ingestd.model.clock import Clock
from ingestd.model.objects import ObjectRef


@dataclass(frozen=True, slots=True)
class Replayed:
    event_id: str
    what: str


class Replayer:
    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock

    async def replay(self, refs: Sequence[ObjectRef], event_ids: Sequence[str]) -> list[Replayed]:
        """Every blocked or failed batch of these files or with these event ids."""
        done: list[Replayed] = []
        for folder in ("Running/", "Done/"):
            async for entry in self._journal.entries(folder):
                if entry.retry_at is None and entry.phase != Phase.FAILED:
                    continue
                held = await self._journal.read(entry.ref)
                if held is not None and _wanted(held.record, refs, event_ids):
                    done.append(await self._again(entry, held))
        return done

    async def _again(self, entry: Entry, held: Held) -> Replayed:
        record = held.record
        if record.phase is not Phase.FAILED:
            held.record = replace(record, retry_at=self._clock.now(), waits=0)
            await self._journal.save(held, claim=False)
            return Replayed(entry.event_id, "was waiting; it is tried now")
        await self._journal.reopen(record.reopened(self._clock.now()))
        return Replayed(entry.event_id, "had failed; it is opened again")


def _wanted(record: Record, refs: Sequence[ObjectRef], event_ids: Sequence[str]) -> bool:
    return record.event_id in event_ids or any(file.ref in refs for file in record.known_files)
