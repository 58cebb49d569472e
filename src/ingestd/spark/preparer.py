"""`Preparer` on Spark: a batch's pinned files into few prepared ones, with a manifest as the last word.

What an attempt leaves, in this order, and what its death in between means:

    1. a folder in scratch, with the fetched files and Spark's output    removed when the attempt ends, however it ends;
                                                                        after a crash, by `start` of the next process
    2. objects `<folder>/<run>/…`: prepared files, bad rows              named by nobody: never loaded, removed by
                                                                        `discard`
    3. `<folder>/manifest.json`, created only if there is none           the attempt is done; asked again, it is the
                                                                        answer, whoever asks

A run has a random name, so that two replicas at the same attempt never write the same object; one of them creates the
manifest and the other takes it over.

Files come to Spark either way: fetched into scratch (`Files.LOCAL`), or read by Spark from the bucket (`Files.GS`), in
which case the generations are looked at before and after.
"""

import asyncio
import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import structlog

from ingestd.formats.inflation import BOUND, Inflation
from ingestd.model.bounded import bounded
from ingestd.model.errors import BadInput, NotFound, PreconditionFailed, Transient, raise_first
from ingestd.model.objects import ABSENT, FileVersion, ObjectRef
from ingestd.model.preparation import BadFile, Output, Prepared, PrepareRequest, Shaping
from ingestd.model.stored import LARGEST_LIST
from ingestd.ports import Deletion, FileStore
from ingestd.spark.files import bucket, content, inflate, kept, manifest
from ingestd.spark.files.fetch import PARALLEL, fetch
from ingestd.spark.files.read_task import Unit
from ingestd.spark.files.scratch import Scratch, no_room
from ingestd.spark.session.masters import Files
from ingestd.spark.session.session import Spark
from ingestd.spark.shape import pipeline, plans

log = structlog.get_logger(__name__)

MOST_IN_MEMORY = 1 << 30  # of a file that Spark reads from the bucket, and hands over as one
_HEAD = 16  # bytes that tell whether a file is compressed


class SideInputs(Protocol):
    """Side inputs, made ready on the event loop and turned into frames in the session's thread."""

    async def ready(self, shaping: Shaping) -> pipeline.Sides: ...


@dataclass(frozen=True, slots=True)
class Where:
    """How files reach Spark, and what it has."""

    files: Files = Files.LOCAL
    cores: int = 0
    inflation: Inflation = BOUND


class SparkPreparer:
    def __init__(
        self,
        spark: Spark,
        store: FileStore,
        scratch: Scratch,
        where: Where,
        side_inputs: SideInputs | None = None,
    ) -> None:
        self._spark = spark
        self._store = store
        self._scratch = scratch
        self._where = where
        self._side_inputs = side_inputs

    async def start(self) -> None:
        """Remove what earlier processes left in scratch."""
        if found := await asyncio.to_thread(self._scratch.clean):
            log.info("prepare.scratch_cleaned", folders=found)

    async def prepare(self, request: PrepareRequest) -> Prepared:
        if (done := await self._done(request)) is not None:
            return done
        plans.check(request)
        began = time.monotonic()
        sides: pipeline.Sides | None = None
        if request.shaping.side_inputs:
            if self._side_inputs is None:
                raise BadInput("this daemon has no way to read side inputs")
            sides = await self._side_inputs.ready(request.shaping)
        if self._where.files is Files.LOCAL:
            prepared = await self._locally(request, sides)
        else:
            prepared = await self._in_the_bucket(request, sides)
        settled = await self._settle(request, prepared)
        log.info(
            "prepare.done",
            batch=request.batch,
            attempt=request.attempt,
            files=len(request.files),
            bad=len(settled.bad),
            rows_read=settled.rows_read,
            rows=sum(item.rows for item in settled.outputs),
            outputs=sum(len(item.uris) for item in settled.outputs),
            bytes=sum(item.size for item in settled.outputs),
            format=settled.format,
            seconds=round(time.monotonic() - began, 3),
        )
        return settled

    async def discard(self, folder: ObjectRef) -> None:
        prefix = ObjectRef(folder.bucket, folder.name.rstrip("/") + "/")
        found = [Deletion(info.ref, None) async for info in self._store.list(prefix)]
        raise_first(await self._store.delete_all(found))

    async def _done(self, request: PrepareRequest) -> Prepared | None:
        try:
            data, _ = await self._store.read(request.folder / manifest.NAME, largest=LARGEST_LIST)
        except NotFound:
            return None
        return manifest.decode(data)

    async def _settle(self, request: PrepareRequest, prepared: Prepared) -> Prepared:
        try:
            await self._store.create(request.folder / manifest.NAME, manifest.encode(prepared), if_generation=ABSENT)
        except PreconditionFailed:
            other = await self._done(request)
            if other is None:
                raise Transient(f"the manifest in {request.folder} came and went") from None
            log.info("prepare.adopted", batch=request.batch, attempt=request.attempt)
            return other
        return prepared

    async def _locally(self, request: PrepareRequest, sides: pipeline.Sides | None) -> Prepared:
        size = sum(file.size for file in request.files)
        async with self._scratch.room(size, beside=kept.room(size)) as folder:
            fetched = await fetch(self._store, request.files, folder)
            gone = tuple(_missing(index) for index in sorted(fetched.gone))
            if not fetched.places:
                return _nothing(request, gone)

            def plan() -> pipeline.Work:
                heads = (plans.head(fetched, index) for index in sorted(fetched.places))
                read, constants = plans.read_plan(request, sorted(fetched.places), heads, self._where.inflation)
                units = plans.units_of(request, fetched, constants, read)
                work = plans.work_of(request, read, units, str(folder / "out"), sides, self._where.cores)
                return replace(work, rejects=str(folder / "rejected"), content=content.guess(read, units))

            work = await asyncio.to_thread(plan)
            more = kept.room(work.size) - kept.room(size)
            if more > 0 and not self._scratch.more(folder, more):
                work = replace(work, room=kept.room(size))
            with no_room(folder):
                made = await self._run(request, work)
                outputs, rejected = await self._upload(request, made)
        return _prepared(request, made, outputs, rejected, gone)

    async def _in_the_bucket(self, request: PrepareRequest, sides: pipeline.Sides | None) -> Prepared:
        gone = await self._replaced(request.files)
        present = [index for index in range(len(request.files)) if index not in gone]
        unread = tuple(_missing(index) for index in sorted(gone))
        if not present:
            return _nothing(request, unread)
        heads: list[bytes] = []
        if request.load.get("autodetect"):
            for index in present[:3]:
                file = request.files[index]
                end = min(file.size, plans.HEAD_BYTES)
                data = await self._store.fetch(file.ref, generation=file.generation, end=end) if end else b""
                heads.append(await asyncio.to_thread(plans.beginning, data or b"", file.size))
        read, constants = plans.read_plan(request, present, iter(heads), self._where.inflation)
        units: list[Unit] = []
        for index in present:
            file = request.files[index]
            unit = Unit(index, file.ref.url, length=file.size, constants=constants[index])
            units.append(replace(unit, in_parts=read.cuttable and await self._plain_lines(file)))
        unread += tuple(BadFile(unit.index, why) for unit in units if (why := _unreadable(unit)))
        readable = tuple(unit for unit in units if not _unreadable(unit))
        if not readable:
            return _nothing(request, unread)
        run = request.folder / f"run-{uuid.uuid4().hex[:12]}"
        work = plans.work_of(request, read, readable, run.url, sides, self._where.cores)
        try:
            made = await self._run(request, replace(work, in_bucket=True))
        except BadInput as error:  # Spark complains of a path that is not there: a file that went before it was listed
            if not await self._replaced([request.files[unit.index] for unit in readable]):
                raise
            raise Transient(f"files were replaced or deleted before Spark read them: {error}") from error
        if changed := await self._replaced([request.files[index] for index in present]):
            raise Transient(f"{len(changed)} file(s) were replaced while Spark read them")
        outputs = await self._listed(made)
        rejected: tuple[str, ...] = ()
        if made.rejected:
            ref = run / "rejected-00000.jsonl"
            await self._store.create(ref, "".join(line + "\n" for line in made.rejected).encode())
            rejected = (ref.url,)
        return _prepared(request, made, outputs, rejected, unread)

    async def _plain_lines(self, file: FileVersion) -> bool:
        """Whether the file is large, and its lines lie in it as they are: then several tasks read it."""
        if file.size <= 2 * plans.PART_BYTES or file.ref.name.endswith(bucket.CODECS):
            return False
        head = await self._store.fetch(file.ref, generation=file.generation, end=_HEAD)
        return not inflate.compressed(head or b"")

    async def _run(self, request: PrepareRequest, work: pipeline.Work) -> pipeline.Made:
        return await self._spark.run(
            lambda session: pipeline.prepare(session, work),
            tag=f"prepare/{request.batch}/{request.attempt}",
            table=request.table,
        )

    async def _replaced(self, files: Sequence[FileVersion]) -> set[int]:
        """Which of the files are not there any more in their pinned generation."""

        async def there(file: FileVersion) -> bool:
            info = await self._store.stat(file.ref)
            return info is not None and info.generation == file.generation

        found = await bounded(files, there, PARALLEL)
        return {index for index, present in enumerate(found) if not present}

    async def _upload(self, request: PrepareRequest, made: pipeline.Made) -> tuple[tuple[Output, ...], tuple[str, ...]]:
        run = request.folder / f"run-{uuid.uuid4().hex[:12]}"

        async def send(file: tuple[str, Path]) -> str:
            ref = run / file[0]
            await self._store.upload(ref, file[1])
            return ref.url

        found = await asyncio.to_thread(pipeline.local_files, made.target, made.rows)
        _all_there(made, found)
        outputs: list[Output] = []
        for branch, paths in sorted(found.items()):
            label = "rows" if branch < 0 else f"branch{branch}"
            named = [(f"{label}-{number:05d}{made.form.suffix}", path) for number, path in enumerate(paths)]
            urls = await bounded(named, send, PARALLEL)
            size = sum(path.stat().st_size for path in paths)
            outputs.append(Output(branch, tuple(urls), made.rows[branch], size))
        bad = [(f"rejected-{number:05d}.jsonl", path) for number, path in enumerate(pipeline.rejected_files(made))]
        return tuple(outputs), tuple(await bounded(bad, send, PARALLEL))

    async def _listed(self, made: pipeline.Made) -> tuple[Output, ...]:
        """What Spark wrote into the bucket."""
        root = ObjectRef.parse(made.target)
        found: dict[int, list[tuple[str, int]]] = {}
        async for info in self._store.list(ObjectRef(root.bucket, root.name + "/")):
            *folders, name = info.ref.name.removeprefix(root.name + "/").split("/")
            if any(folder.startswith("_temporary") for folder in folders):
                continue  # of a task that was not committed
            branch = pipeline.branch_of(folders[-1] if folders else "")
            if name.startswith("part-") and made.rows.get(branch, 0):
                found.setdefault(branch, []).append((info.ref.url, info.size))
        _all_there(made, found)
        return tuple(
            Output(branch, tuple(url for url, _ in files), made.rows[branch], sum(size for _, size in files))
            for branch, files in sorted(found.items())
        )


def _all_there(made: pipeline.Made, found: Collection[int]) -> None:
    """Files that somebody cleared away must never pass for a batch without rows: its sources would be deleted.

    Where only some of a target's files are gone, the load job counts fewer rows than were written.
    """
    if missing := [branch for branch, rows in made.rows.items() if rows and branch not in found]:
        raise Transient(f"the prepared files of {len(missing)} target(s) in {made.target} are gone")


def _missing(index: int) -> BadFile:
    return BadFile(index, "the file is gone or was overwritten", missing=True)


def _unreadable(unit: Unit) -> str:
    """Why Spark cannot read this object from the bucket: others are not held up by it. Empty when it can."""
    remedy = "let the daemon fetch files (spark.files: local)"
    if bucket.unspeakable(ObjectRef.parse(unit.name).name):
        return f"Spark cannot read an object with such a name from the bucket: rename it, or {remedy}"
    if unit.length > MOST_IN_MEMORY and not unit.in_parts:
        return f"Spark hands a file like this over as one, up to {MOST_IN_MEMORY:,} bytes: split it, or {remedy}"
    return ""


def _nothing(request: PrepareRequest, bad: tuple[BadFile, ...]) -> Prepared:
    return Prepared(request.attempt, "PARQUET", request.schema, (), bad)


def _prepared(
    request: PrepareRequest,
    made: pipeline.Made,
    outputs: tuple[Output, ...],
    rejected: tuple[str, ...],
    gone: tuple[BadFile, ...],
) -> Prepared:
    verdict = made.verdict
    left_out = dict(made.left_out)
    if verdict.bad_rows:
        left_out["bad"] = verdict.bad_rows
    if verdict.left:
        left_out["drift"] = verdict.left
    return Prepared(
        attempt=request.attempt,
        format=made.form.name,
        schema=made.schema,
        outputs=outputs,
        bad=tuple(sorted((*verdict.bad, *gone), key=lambda item: item.index)),
        added=made.added,
        relaxed=made.relaxed,
        rows_read=sum(verdict.rows_per_file.values()) + verdict.bad_rows + verdict.left,
        rows_left_out=left_out,
        rows_per_file=verdict.rows_per_file,
        rejected=rejected,
        load_options=made.form.load_options,
    )
