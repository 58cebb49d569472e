"""Days that are over, and batches that begin in one of them nevertheless.

A record's folder is the day of its files. Days that are over are written down by name (see `ledger.name_index`), and a
batch that begins later (a backfill, a message that was under way for days) would not be among them. So it leaves a mark
first, one per table, day and date of beginning:

    <JournalURL>/Names/<table>/<day>.<date of beginning>.late

Whoever has written down that day before that date, or on it, looks at the day again. A mark costs a batch nothing
unless it is late, and late batches that begin together share it.
"""

from contextlib import suppress
from datetime import date, timedelta

from ingestd.model.clock import Clock
from ingestd.model.errors import PreconditionFailed
from ingestd.model.objects import ABSENT, ObjectRef
from ingestd.ports import ObjectStore

FOLDER = "Names"
OVER_AFTER = timedelta(days=3)  # a day that is so long ago may be written down
EARLIEST = date(2010, 1, 1)  # Cloud Storage is no older: a day before that is nonsense, and is not written down
_LATE_AFTER = timedelta(days=2)  # a batch of such a day leaves a mark: a day's difference between clocks is nothing
_REMEMBERED = 10_000


class LateMarks:
    def __init__(self, store: ObjectStore, root: ObjectRef, clock: Clock) -> None:
        self._store = store
        self._root = root
        self._clock = clock
        self._left: dict[ObjectRef, None] = {}

    async def leave(self, table: str, day: str) -> None:
        """Before a batch of that day begins (`table`: its folder in the journal); most are of today."""
        today = self._clock.now().date()
        if not EARLIEST.isoformat() <= day <= (today - _LATE_AFTER).isoformat():
            return
        mark = self._root / f"{FOLDER}/{table}/{day}.{today.isoformat()}.late"
        if mark in self._left:
            return
        with suppress(PreconditionFailed):  # left before: by others, or by ourselves if an answer was lost
            await self._store.create(mark, b"", if_generation=ABSENT)
        if len(self._left) >= _REMEMBERED:
            self._left.clear()
        self._left[mark] = None


def over(today: date) -> date:
    """The last day that may be written down."""
    return today - OVER_AFTER
