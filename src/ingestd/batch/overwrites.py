"""Files that are overwritten, or deleted and uploaded again, around their load: every content is counted once.

BigQuery reads whatever a URI holds when it reads it, and takes no generation with a URI. Reading pinned copies instead
would cost a write per file for the sake of the few that change under a load. So a load is made first and proven
afterwards, and only what could not be proven leaves a note on its name (`trails`):

1. A batch's record exists before it looks at its sources; it looks before it submits a job; and it stays under
   `Running/` until that job has ended and been judged.
2. Once a job has ended, its sources are looked at again. Generations only grow and none ever comes back, so a source
   that is still the pinned generation was it all along: that is what was read. Otherwise, before the record says
   anything, the facts (when the job ran, how much it read) are noted on the name. If they show that the pinned content
   was not read, the batch does not claim it. Rows that landed apart are thrown away instead, and landed again without
   the file.
3. A batch that finds its file's generation live lists the batches under way, and waits until each that has an earlier
   generation of the name is decided. Then it reads the notes on the name.

So no content is loaded twice. Let job J, of a batch that pinned generation m, have read generation x > m. Then x was
there before J ended, and the look after J's end did not find m: there is a note. The batch of x asks after x was there.
If J's batch is under way then, it is waited for, and its note found; if it is finished, the note was there before; if
its record does not exist yet, it will look at its sources later than now, find x or a newer generation, and never
submit m. None of this depends on the order of notifications, on how often the name was overwritten, on what replaced
what, or on which of them were announced at all.

And none is lost. The batch of x gives way only to a note that says its content was read. It looks at its source once
more after the wait: if x is still there, it was there from its upload until J's end. So J read x if x was there before
J started, and did not if it was there after J ended. In between the bytes tell, when the sizes differ from those of
every generation that was there during the job: those are known by `overwroteGeneration` and by the notes of the batches
that gave way (`note_gone`), and one that is not announced yet is waited for. Only a generation that was uploaded, read
and deleted again within one job, and whose notification is later than everyone else's, could pass unnoticed, and only
in exactly the size of its successor. Where the bytes do not tell (the same size, or several files of one job were
overwritten while it ran), the file is refused: nothing is loaded or deleted, and a person has to compare.

A job is never submitted behind its batch's back: a replica that takes a batch over and is about to give one of its
files up first uses up the id of the job that the one before it may be about to submit (`stages.fence`), or hears it.

Nobody waits in a circle: a batch waits only for earlier generations of files it found live, after saying which of its
own it gave up. Rows that are prepared are read from the pinned generation or not at all: nobody waits for those.

| dies after                  | what is there       | who goes on, and how                                         |
|-----------------------------|---------------------|--------------------------------------------------------------|
| job ended                   | record, job         | looks at the sources, notes, saves                           |
| noted on the name           | the same, the note  | the same: the note of the same job stays as it was           |
| record saved or finished    | the same            | as every batch                                               |
| waited, nothing saved       | record              | asks again: notes stay                                       |
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from ingestd.batch.content import Fate, SetAside
from ingestd.batch.journal import Journal
from ingestd.batch.phases import Phase
from ingestd.batch.record import Record
from ingestd.batch.sources import MANY_FILES, Looked
from ingestd.batch.trails import Reading, Trail, Trails, Version, versions_trail
from ingestd.batch.underway import UnderWay
from ingestd.model.aside import aside
from ingestd.model.clock import Clock
from ingestd.model.errors import Transient
from ingestd.model.jobs import JobState
from ingestd.model.objects import ABSENT, FileVersion, Generation, ObjectInfo, ObjectRef
from ingestd.warehouse.proof import loaded_bytes, loaded_rows

_WAIT_FOR_EARLIER = timedelta(seconds=60)
_LOOK_EVERY = timedelta(seconds=2)
_CLOCKS = timedelta(milliseconds=100)  # by which the clocks of two services may differ; job times are milliseconds


@dataclass(slots=True)
class Overwrites:
    """Whether the load of an earlier generation has read a newer one already."""

    underway: UnderWay
    trails: Trails
    journal: Journal
    clock: Clock

    async def check(
        self,
        record: Record,
        looked: Looked,
        give_up: Callable[[], Awaitable[None]],
        look_again: Callable[[list[int]], Awaitable[Looked]],
    ) -> dict[int, SetAside]:
        """The files that need not (or must not) be loaded, since their rows are (or may be) there.

        `give_up` says durably which files of the batch are not loaded, before it waits for others.
        """
        if not looked.present:
            return {}
        mine, names = await aside(len(looked.present) > MANY_FILES, _mine, record.files, looked.present)
        under_way = await self.underway.earlier(record, names)
        if under_way:
            await give_up()
        for one in under_way:
            await self._decided(one, names)
        trails = await self.trails.of(record, mine)
        asked = [
            mine[ref] for ref, trail in trails.items() if any(one.generation < names[ref] for one in trail.readings)
        ]
        if not asked:
            return {}
        again = await look_again(asked)
        return await aside(len(record.files) > MANY_FILES, _verdicts, record, again, trails)

    async def note_gone(self, record: Record, gone: Sequence[FileVersion]) -> None:
        """Note generations that went before they were loaded, where somebody may have read them or ask for them.

        That takes a load of an earlier generation, which was looked at before this one came: its batch is under way
        still, or has left its own note before it went. Where there is neither, there never will be.
        """
        if not gone:
            return
        heavy = len(gone) > MANY_FILES
        names = await aside(heavy, _latest, gone)
        under_way = await self.underway.earlier(record, names)
        loading = {ref for some in under_way.values() for ref in some}
        trails = await self.trails.of(record, await aside(heavy, _without, names, loading) if loading else names)
        loaded = {ref for ref, trail in trails.items() if any(one.generation < names[ref] for one in trail.readings)}
        if asked := loading | loaded:
            await self.trails.note(record, await aside(heavy, _noted, gone, asked))

    async def _decided(self, place: ObjectRef, names: Mapping[ObjectRef, Generation]) -> None:
        """Wait until the batch has decided what becomes of its earlier generations of these names."""
        waited = timedelta()
        while True:
            other = await self.journal.whereabouts(place)
            if other is None or await aside(len(other.files) > MANY_FILES, decided, other, names):
                return
            if waited >= _WAIT_FOR_EARLIER:
                raise Transient(f"batch {other.event_id} is still loading an earlier generation of a file of this one")
            await self.clock.sleep(_LOOK_EVERY)
            waited += _LOOK_EVERY


def decided(batch: Record, names: Mapping[ObjectRef, Generation]) -> bool:
    """Whether it is known what becomes of the batch's earlier generations of these names, though it may go on."""
    progress = batch.progress
    if batch.phase is not Phase.ACCEPTED or progress.preparing:
        return True
    known = set(progress.aside)
    if not batch.lands_apart:
        known.update(index for load in progress.loads for index in load.files)
    return all(
        index in known
        for index, file in enumerate(batch.files)
        if file.ref in names and file.generation < names[file.ref]
    )


def _mine(
    files: Sequence[FileVersion], present: Iterable[int]
) -> tuple[dict[ObjectRef, int], dict[ObjectRef, Generation]]:
    """The names that are there, by their place in the batch and with their generations."""
    mine = {files[index].ref: index for index in present}
    return mine, {ref: files[index].generation for ref, index in mine.items()}


def _latest(files: Iterable[FileVersion]) -> dict[ObjectRef, Generation]:
    names: dict[ObjectRef, Generation] = {}
    for file in files:
        names[file.ref] = max(file.generation, names.get(file.ref, file.generation))
    return names


def _without(names: Iterable[ObjectRef], some: Collection[ObjectRef]) -> list[ObjectRef]:
    return [ref for ref in names if ref not in some]


def _noted(gone: Iterable[FileVersion], asked: Collection[ObjectRef]) -> dict[ObjectRef, Trail]:
    return versions_trail(file for file in gone if file.ref in asked)


def _verdicts(record: Record, looked: Looked, trails: Mapping[ObjectRef, Trail]) -> dict[int, SetAside]:
    """What becomes of files that an earlier load may have read, as they were found just now."""
    files, found = record.files, dict(looked.aside)
    own: dict[ObjectRef, list[FileVersion]] = {files[index].ref: [] for index in looked.present}
    for file in files:
        if file.ref in own:
            own[file.ref].append(file)
    for index, info in looked.present.items():
        ref = files[index].ref
        verdict = _verdict(record, files[index], info, trails[ref], own[ref])
        if verdict is not None:
            found[index] = verdict
    return found


def _verdict(
    record: Record, file: FileVersion, info: ObjectInfo, trail: Trail, own: Iterable[FileVersion]
) -> SetAside | None:
    """`own`: the generations of that name that the batch itself has."""
    versions = {one.generation: one for one in trail.versions}
    versions |= {one.generation: Version.of(one) for one in own}
    unsure: Reading | None = None
    for one in trail.readings:
        if one.generation >= file.generation:
            continue
        answer = has_read(one, file, info, versions)
        if answer:
            return SetAside(
                Fate.READ_EARLIER, f"read by the load of generation {one.generation}", one.job_id, rows=one.rows
            )
        unsure = one if answer is None else unsure
    if unsure is None or record.replays:
        return None  # a batch is replayed by a person, who has looked
    why = (
        f"{file.ref} was overwritten while job {unsure.job_id} read it, and its size does not tell which content that "
        "was; compare the table with the file, then `ingestd replay` the batch or upload the file again to load it"
    )
    return SetAside(Fate.REFUSED, why, unsure.job_id)


def has_read(
    reading: Reading, file: FileVersion, info: ObjectInfo, versions: Mapping[Generation, Version]
) -> bool | None:
    """Whether the job, meant for an earlier generation, read this one, which is there after its end.

    None when there is no telling; `Transient` when it takes a generation that was not announced yet.
    """
    if reading.ended is not None and info.created >= reading.ended + _CLOCKS:
        return False
    if reading.started is not None and info.created <= reading.started - _CLOCKS:
        return True
    if reading.read is None:
        return None
    if reading.read != info.size:
        return False
    if reading.size == info.size:
        # Equal content was read as the earlier generation's, and this one is counted by its own load.
        return False if reading.crc32c and reading.crc32c == info.crc32c else None
    between = [one for generation, one in versions.items() if reading.generation < generation < info.generation]
    before = file.overwrote
    while before not in (ABSENT, reading.generation):
        if before not in versions:
            raise Transient(f"generation {before} of {file.ref} was not announced yet, and it may have been read")
        before = versions[before].overwrote
    for one in between:
        known = one.crc32c or one.size  # without a payload, a notification tells neither
        if not known or (one.size == info.size and one.crc32c != info.crc32c):
            return None
    return True


@dataclass(slots=True)
class Changed:
    """Sources that are not what they were when their job was submitted."""

    notes: dict[ObjectRef, Trail] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)  # pinned generations that were not what was read, and why

    def __bool__(self) -> bool:
        return bool(self.notes or self.unread)


def changed(job: JobState, files: Mapping[int, FileVersion], live: Mapping[ObjectRef, ObjectInfo]) -> Changed:
    """What the look after the job's end says about what the job has read."""
    found = Changed()
    moved = {
        index: live.get(file.ref)
        for index, file in files.items()
        if file.ref not in live or live[file.ref].generation != file.generation
    }
    if not moved:
        return found

    def newer(info: ObjectInfo | None) -> bool:
        """Whether it was there all the time that the job ran."""
        return info is not None and job.started is not None and info.created <= job.started - _CLOCKS

    left = loaded_bytes(job) - sum(file.size for index, file in files.items() if index not in moved)
    left -= sum(info.size for info in moved.values() if info is not None and newer(info))
    unsure = [index for index, info in moved.items() if not newer(info)]
    told = left if len(unsure) == 1 and loaded_bytes(job) else None
    for index, info in moved.items():
        file = files[index]
        read = info.size if info is not None and newer(info) else told
        if newer(info) or (read is not None and read != file.size):
            since = f"generation {info.generation}" if info else "a newer generation, which is gone"
            found.unread[index] = (
                f"{file.ref} was overwritten by {since} before its load read it: the rows of job {job.ref.job_id} are "
                "not its own"
            )
        if info is not None and (job.ended is None or info.created < job.ended + _CLOCKS):
            rows = loaded_rows(job) if len(files) == 1 else None
            facts = Reading(job.ref.job_id, file.generation, file.size, file.crc32c, job.started, job.ended, read, rows)
            found.notes[file.ref] = Trail(readings=(facts,))
    return found
