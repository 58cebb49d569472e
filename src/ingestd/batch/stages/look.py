"""Looking at a batch's files, and deciding which jobs load them.

| dies after              | what is there            | who goes on, and how                                          |
|-------------------------|--------------------------|---------------------------------------------------------------|
| entered in the register | record, entries          | enters the same files again: they are this batch's            |
| notes on names          | the same, notes          | the same: notes are facts, and stay as they are               |
| said what it gave up    | record with files aside  | looks at the others, and decides                              |
| decided, nothing saved  | record                   | decides again; a job that exists is the one job for all files |
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ingestd.batch import recovery
from ingestd.batch.content import Fate, SetAside
from ingestd.batch.drive import Drive
from ingestd.batch.landing import destination
from ingestd.batch.load_config import source_format
from ingestd.batch.overwrites import Overwrites
from ingestd.batch.parts import Parts
from ingestd.batch.record import Record
from ingestd.batch.register import batch_name
from ingestd.batch.sources import MANY_FILES, Looked, choose, described, judge, without
from ingestd.batch.stages.fence import reads_nothing, unsure, use_up
from ingestd.model.aside import aside
from ingestd.model.errors import BadInput
from ingestd.model.objects import FileVersion


async def adopt(drive: Drive) -> bool:
    """One job for all of the files. One that exists although nothing was saved is just that."""
    count = len(drive.record.files)
    everything = recovery.JobLimits(files=count + 1, size=2**62)
    progress = await aside(count > MANY_FILES, recovery.begin, drive.progress, [0] * count, everything)
    drive.change(progress=progress)
    return True


class Look:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._overwrites = Overwrites(parts.underway, parts.trails, parts.journal, parts.clock)

    async def __call__(self, drive: Drive) -> bool:
        """Look at a rule's files, and give those that are left to jobs.

        A directory was looked at when it was pinned: it is loaded as it is, and as often as its producer says so.
        """
        number = drive.progress.jobs + 1
        await one_format(drive.record)
        if drive.record.success is None:
            await self.enter(drive)
            if not await self.at(drive, left(drive.record), drive.set_aside, number):
                if not reads_nothing(drive, await use_up(drive, number)):
                    return True  # it is adopted
                drive.advance(jobs=number)
                await self.at(drive, left(drive.record), drive.set_aside)
        record, limits = drive.record, self._parts.settings.jobs
        most = recovery.JobLimits(limits.max_files, limits.max_bytes)
        sizes = [file.size for file in record.files]
        progress = await aside(len(sizes) > MANY_FILES, recovery.begin, record.progress, sizes, most)
        drive.looked = {chunk.job: self._parts.clock.monotonic() for chunk in progress.chunks}
        drive.change(progress=replace(progress, staged=progress.staged or len(progress.chunks) > 1))
        return True

    async def enter(self, drive: Drive) -> None:
        """Enter the files into the register; those that another batch has are its to load.

        Before the first look at them, and so before any job: see `register`.
        """
        record, parts = drive.record, self._parts
        heavy = len(record.files) > MANY_FILES
        indexes = left(record)
        files = [record.files[index] for index in indexes]
        name = batch_name(parts.journal.place(record), record.stamp.born)
        others = await parts.register.enter(destination(record), name, files)
        if others:
            drive.set_aside(await aside(heavy, _held_by, others, indexes, files))

    async def at(
        self, drive: Drive, indexes: Sequence[int], drop: Callable[[Mapping[int, SetAside]], None], job: int = 0
    ) -> bool:
        """Look at these sources, and ask what earlier loads have read; `drop` takes files out of the record.

        False, and nothing is dropped, where somebody else may submit the `job` that loads all of them (see `fence`).
        """
        looked = await self.seen(drive, indexes)
        files = drive.record.files
        drive.change(files=await aside(len(files) > MANY_FILES, looked.described, files))
        if looked.aside and unsure(drive, job):
            return False
        drop(looked.aside)
        # Saved before it waits: others may wait to learn that these are not loaded, while we wait for theirs.
        found = await self._overwrites.check(drive.record, looked, drive.pin, partial(self.seen, drive))
        if found and unsure(drive, job):
            return False
        drop(found)
        return True

    async def seen(self, drive: Drive, indexes: Sequence[int]) -> Looked:
        """What is there of these sources; generations that are not leave a note on their name where it may matter."""
        parts, record, files = self._parts, drive.record, drive.record.files
        heavy = len(files) > MANY_FILES
        looked, wanted = await aside(heavy, choose, files, list(indexes))
        found, failed = await described(parts.store, [files[index].ref for index in wanted])
        if failed:
            out_of_reach = {index: failed[files[index].ref] for index in wanted if files[index].ref in failed}
            left_out = {*out_of_reach, *looked.aside}
            looked.aside |= without(record, left_out, out_of_reach, patient=parts.patient(record))
            wanted = [index for index in wanted if index not in out_of_reach]
        await aside(heavy, judge, looked, wanted, files, found, partial(parts.actions.guarded, record))
        gone = [index for index, one in looked.aside.items() if one.fate in (Fate.SUPERSEDED, Fate.MISSING)]
        await self._overwrites.note_gone(record, [files[index] for index in gone])
        return looked


def left(record: Record) -> list[int]:
    """The files that are not set aside."""
    return [index for index in range(len(record.files)) if index not in record.progress.aside]


def _held_by(others: Mapping[str, str], indexes: Sequence[int], files: Sequence[FileVersion]) -> dict[int, SetAside]:
    """The files that other batches have entered, by their keys."""
    return {
        index: SetAside(Fate.IGNORED, f"in batch {others[file.key]} already")
        for index, file in zip(indexes, files, strict=True)
        if file.key in others
    }


async def one_format(record: Record) -> None:
    """Files of several formats cannot share a job: BigQuery would read them all as the first one's."""
    dest = record.rule.document.get("Dest") or {}
    formats = await aside(len(record.files) > MANY_FILES, _formats, record)
    if len(formats) > 1 and not (dest.get("SourceFormat") or dest.get("sourceFormat")):
        raise BadInput(f"the batch mixes {', '.join(sorted(str(one) for one in formats))}: one format per batch")


def _formats(record: Record) -> set[str | None]:
    return {source_format(file.ref.name) for file in record.files} - {None}
