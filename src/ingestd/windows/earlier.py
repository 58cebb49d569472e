"""The batch of a file's earlier generation, found without any index.

A file's window follows from its name, its rule and its event time, so the batch that has an overwritten generation is
one of the sequences of that generation's window; or a batch of its own, while its rule collected no windows.
"""

from dataclasses import replace
from itertools import count
from urllib.parse import unquote

from ingestd.batch.journal import Journal
from ingestd.batch.landing import destination
from ingestd.batch.record import Record, WindowMark
from ingestd.batch.sources import SingleFileBatches
from ingestd.model.errors import Transient
from ingestd.model.objects import FileVersion, generation_time
from ingestd.rules.schema import RuleSpec
from ingestd.windows.model import WindowKey, WindowSlot, extension
from ingestd.windows.pacing import Pacing

# A generation is the moment of its upload in microseconds; the event time is a moment that the same upload reports.
_TOLERANCE = 2


class WindowedBatches:
    """Looks through the sequences of the window, then for a batch of the file alone."""

    def __init__(self, journal: Journal, pacing: Pacing) -> None:
        self._journal = journal
        self._pacing = pacing
        self._alone = SingleFileBatches(journal)

    async def record_of(self, batch: Record, file: FileVersion) -> Record | None:
        for slot in self._slots(batch, file):
            for sequence in count():
                record = await self._recorded(batch, slot, sequence)
                if record is None:
                    break  # a sequence is opened only once the one before it is recorded
                if any(one.key == file.key for one in record.known_files):
                    return record
        return await self._alone.record_of(batch, file)

    def _slots(self, batch: Record, file: FileVersion) -> list[WindowSlot]:
        """The windows the file may belong to: one, or two when it came close to where one ends."""
        own = RuleSpec.model_validate(batch.rule).batch
        duration = max(1, int(own.duration.total_seconds())) if own else None
        if not self._pacing.fresh:
            raise Transient("how long windows last for now is not known")
        table = destination(batch).partition(None)
        moment = generation_time(file.generation).timestamp()
        key = _key(batch, file)
        slots: dict[WindowSlot, None] = {}
        for near in (moment, moment - _TOLERANCE, moment + _TOLERANCE):
            seconds = self._pacing.stretched(duration, table, near)
            if seconds is not None:
                slots[WindowSlot(*key, int(near) - int(near) % seconds, seconds)] = None
        return list(slots)

    async def _recorded(self, batch: Record, slot: WindowSlot, sequence: int) -> Record | None:
        template = replace(
            batch,
            event_id=slot.event_id(sequence),
            dest=batch.dest.partition("$")[0],
            window=WindowMark(slot.name(sequence), slot.start),
            files=(),
        )
        return await self._journal.known(template)


def _key(batch: Record, file: FileVersion) -> tuple[str, str]:
    """Destination and hash of the window's key: the same name under the same rule has the same."""
    if batch.window is not None:
        dest, digits, _ = batch.window.name.rsplit("_", 2)
        return unquote(dest), digits
    decorator = destination(batch).decorator
    dest = f"{batch.dest}${decorator}" if decorator and "$" not in batch.dest else batch.dest
    folder = f"gs://{file.ref.bucket}/{file.ref.name.rpartition('/')[0]}"
    return dest, WindowKey(batch.rule_name, dest, folder, extension(file.ref.name)).hash
