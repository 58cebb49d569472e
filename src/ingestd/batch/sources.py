"""Is the file still the one that was announced?

BigQuery loads whatever a URI holds when it reads it, so an object that is overwritten around its load could be loaded
twice or under the wrong name. The order of things excludes that:

1. A batch's record exists before its source is looked at, and the source is looked at before its job is submitted.
2. A file that overwrote an earlier generation looks for that generation's record. None: the earlier batch will look at
   its source later than now, find the newer generation and give way. Running: wait for it. Done: ask its job when it
   read, and by that whether it read the newer content.
"""

from dataclasses import dataclass, replace
from datetime import timedelta

from ingestd.batch.journal import Journal
from ingestd.batch.record import Phase, Record
from ingestd.model.clock import Clock
from ingestd.model.errors import Fatal, Transient
from ingestd.model.jobs import JobState
from ingestd.model.objects import FileVersion, ObjectInfo
from ingestd.ports import ObjectStore, Warehouse
from ingestd.warehouse.proof import read_newer

_WAIT_FOR_EARLIER = timedelta(seconds=60)
_LOOK_EVERY = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Present:
    """The announced generation is there; `file` has its size and checksum."""

    file: FileVersion
    info: ObjectInfo


@dataclass(frozen=True, slots=True)
class Gone:
    phase: Phase  # MISSING or SUPERSEDED
    why: str


async def look(store: ObjectStore, file: FileVersion) -> Present | Gone:
    info = await store.stat(file.ref)
    if info is None:
        return Gone(Phase.MISSING, f"{file.ref} no longer exists")
    if info.generation != file.generation:
        newer = info.generation > file.generation
        if newer:
            return Gone(Phase.SUPERSEDED, f"{file.ref} was overwritten by generation {info.generation}")
        return Gone(Phase.MISSING, f"{file.ref} has generation {info.generation}, older than the announced one")
    known = replace(file, size=info.size, crc32c=info.crc32c or file.crc32c)
    return Present(known, info)


async def loaded_with_earlier(
    record: Record, present: Present, journal: Journal, warehouse: Warehouse, clock: Clock
) -> JobState | None:
    """The job that, meant for the overwritten generation, has read this one already; None to load as usual."""
    if record.overwrote is None:
        return None
    earlier_file = FileVersion(present.file.ref, record.overwrote)
    earlier = replace(record, files=(earlier_file,), event_id=earlier_file.event_id)
    waited = timedelta()
    while await journal.find(earlier) is not None:
        if waited >= _WAIT_FOR_EARLIER:
            raise Transient(f"the load of the earlier generation {record.overwrote} is still under way")
        await clock.sleep(_LOOK_EVERY)
        waited += _LOOK_EVERY
    finished = await journal.finished(earlier)
    if finished is None or finished.phase not in (Phase.DONE, Phase.FAILED) or finished.rows is None:
        return None
    job = await warehouse.get_job(finished.load_job())
    if job is None or job.failed:
        return None
    answer = read_newer(job, finished.files[0], present.info)
    if answer is None:
        raise Fatal(
            f"{present.file.ref} was overwritten with other content of the same size while job {job.ref} read it; "
            "compare the table with both versions, then `ingestd replay` the file or delete it"
        )
    return job if answer else None
