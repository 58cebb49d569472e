"""The journal: one object per batch, under `Running/` until its very last step moves it to `Done/`.

What is true at any moment, whoever dies when:
- A batch whose message was acknowledged has a record, under `Running/` or `Done/`.
- `Done/` is written before `Running/` is deleted. So whoever manages to create a `Running/` record looks for `Done/`
  next, and learns whether the batch was finished before.
- Every change of a record names the generation it replaces. A replica that was paused while another took over
  fails its next write (`LeaseLost`) and stops. What creates something (a job, `Done/`) is preceded by such a write
  when the lease is over (`confirm`).
- A finished batch is opened again by a `Running/` record that names the very `Done/` it takes back. From then on it is
  open: whoever meets the two removes that `Done/` (and no other) and goes on, however long its opener stands still.
- With a witness, `Running/` outlives `Done/` until the witness has told the end elsewhere, durably. Whoever finds both
  tells it again, so an end is told at least once, and telling it costs the batch nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Protocol
from urllib.parse import quote, unquote

import structlog

from ingestd.batch.file_list import INLINE, from_manifest, to_manifest
from ingestd.batch.late import LateMarks
from ingestd.batch.names import MOST as MOST_NAMES
from ingestd.batch.names import name_filter
from ingestd.batch.phases import Phase
from ingestd.batch.record import SCHEMA_VERSION, Kind, Record
from ingestd.model.aside import aside
from ingestd.model.clock import Clock
from ingestd.model.errors import NotFound, PreconditionFailed, UnreadableObject
from ingestd.model.objects import ABSENT, Generation, ObjectInfo, ObjectRef
from ingestd.model.segments import MOST, segment
from ingestd.model.stored import LARGEST, LARGEST_LIST, instant, number, reading
from ingestd.ops.strangers import Strangers
from ingestd.ports import ObjectStore

log = structlog.get_logger(__name__)

SOURCE_SAFE = "/#:.=@ "  # what stays as it is in the mark that names a record's first file: header-safe

_TELLING = 100  # last characters of a job id: event, step, attempt and mode
_MANY_FILES = 20_000  # from which on their list is written and read beside the event loop


class LeaseLost(Exception):  # noqa: N818 - a verdict: stop, somebody else carries on
    """Another replica took the record over."""


@dataclass(slots=True)
class Held:
    """A record in somebody's hands: change `record` freely, `Journal.save` writes it over `generation`."""

    record: Record
    generation: Generation
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # the lease keeper and the work both save


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a journal listing: enough to decide without reading the record."""

    ref: ObjectRef
    event_id: str
    phase: str
    source: str
    lease_until: datetime | None
    retry_at: datetime | None
    created: datetime  # of the object as it is: every change of the record makes it anew
    began: datetime  # of the batch itself
    group: str = ""
    files: int = 0
    rule: str = ""  # empty in records from before it was noted
    dest: str = ""
    version: int = 0  # of its schema; 0 in records from before it was noted

    @property
    def newer(self) -> bool:
        """Whether a newer version wrote it, and it is left to that."""
        return self.version > SCHEMA_VERSION


class Witness(Protocol):
    """Told of every durable change of a record; it must neither wait nor raise."""

    def changed(self, record: Record) -> None: ...

    def ended(self, record: Record, forget: Callable[[], Awaitable[None]]) -> None:
        """The record is under `Done/`; `forget` removes it from `Running/` once the end need not be told again."""
        ...


class Journal:
    def __init__(
        self,
        store: ObjectStore,
        root: ObjectRef,
        clock: Clock,
        *,
        owner: str,
        lease: timedelta,
        witness: Witness | None = None,
        strangers: Strangers | None = None,
    ) -> None:
        self._store = store
        self._root = root
        self._clock = clock
        self._owner = owner
        self._lease = lease
        self.witness = witness
        self.strangers = strangers or Strangers(clock)
        self._late = LateMarks(store, root, clock)

    @property
    def lease(self) -> timedelta:
        return self._lease

    def running(self, record: Record) -> ObjectRef:
        return self._root / f"Running/{_path(record)}.run"

    def done(self, record: Record) -> ObjectRef:
        return self._root / f"Done/{_path(record)}.run"

    def place(self, record: Record) -> str:
        """What names the record below `Running/` and `Done/`."""
        return _path(record)

    async def at(self, place: str) -> Record | None:
        """The record of this place, running or finished; what is finished counts."""
        held = await self.read(self._root / f"Running/{place}.run")
        done = await self.read(self._root / f"Done/{place}.run")
        if done is None or (held is not None and held.record.stamp.reopens == done.generation):
            return held.record if held else None
        return done.record

    def beside(self, record: Record, name: str, job_id: str = "") -> ObjectRef:
        """Job documents kept for people: `<table>/<date>/<jobID>/tail-job.json` and its siblings."""
        job_id = job_id or record.load_job().job_id
        place = self._root / f"{_folder(record)}/{job_id}/{name}"
        if len(place.name.encode()) <= MOST:
            return place
        # The table is in it twice, and once is enough: what tells jobs of a table apart is at the end of their ids.
        return self._root / f"{_folder(record)}/{job_id[-_TELLING:]}/{name}"

    def folder(self, path: str) -> ObjectRef:
        return self._root / path

    def table_folder(self, record: Record) -> str:
        """The path segment that all records of the same destination share."""
        return _table(record)

    async def open(self, record: Record, *, claim: bool) -> Held | None:
        """Create the record (claimed by us, or free for anyone); None when it exists already."""
        record = self._stamp(await self.with_files(record), claim=claim)
        born = f"{int(record.stamp.updated.timestamp() * 1_000_000):x}"
        record = replace(record, stamp=replace(record.stamp, born=born))
        await self._late.leave(_table(record), record.day)
        try:
            generation = await self._write(self.running(record), record, ABSENT)
        except PreconditionFailed:
            return None
        await self._late.leave(_table(record), record.day)  # once more, if we stood still for so long
        self._tell(record)
        return Held(record, generation)

    async def find(self, record: Record) -> Held | None:
        """The running record with the identity of this one."""
        return await self.read(self.running(record))

    async def read(self, ref: ObjectRef) -> Held | None:
        """The record at that place; `UnreadableObject` when something else is there, or one from the future."""
        try:
            return await self._read(ref)
        except UnreadableObject as error:
            self.strangers.met("journal", ref, error)
            raise

    async def _read(self, ref: ObjectRef) -> Held | None:
        try:
            data, info = await self._store.read(ref, largest=LARGEST)
        except NotFound:
            return None
        with reading(ref):
            record = Record.from_json(data)
            files = ObjectRef.parse(record.files_url) if record.files_url else None
        if files is not None:
            try:
                listed, _ = await self._store.read(files, largest=LARGEST_LIST)
            except NotFound as error:
                raise UnreadableObject(f"{ref}: its list of files {files} is gone") from error
            with reading(files):
                record = replace(record, files=await aside(len(listed) > _MANY_FILES * 100, from_manifest, listed))
        return Held(record, info.generation)

    async def finished(self, record: Record) -> Record | None:
        """The finished record of this identity, if there is one."""
        held = await self.read(self.done(record))
        return held.record if held else None

    async def known(self, record: Record) -> Record | None:
        """The record of this identity, running or finished; what is finished counts.

        A replica that comes late may create `Running/` once more, with other files, until it looks for `Done/`.
        """
        return await self.at(self.place(record))

    async def whereabouts(self, running: ObjectRef) -> Record | None:
        """The batch that had its running record there, as it stands now; what is finished counts."""
        return await self.at(running.name.removeprefix((self._root / "Running/").name).lstrip("/").removesuffix(".run"))

    async def is_finished(self, record: Record) -> bool:
        """Whether the batch of this record has ended. If the record only takes that end back, this is done now."""
        done = await self._store.stat(self.done(record))
        if done is None:
            return False
        if done.generation != record.stamp.reopens:
            return True
        await self._take_back(record)
        return False

    async def _take_back(self, record: Record) -> None:
        """Remove the `Done/` that the record reopens: that generation, never the end of a later try."""
        try:
            await self._store.delete(self.done(record), if_generation=record.stamp.reopens)
        except PreconditionFailed:
            log.info("journal.ended_again", event_id=record.event_id)

    async def claim(self, held: Held) -> bool:
        """Become the owner, unless somebody else's lease is alive or was faster."""
        stamp = held.record.stamp
        if stamp.leased(self._clock.now()) and stamp.owner != self._owner:
            return False
        try:
            await self.save(held)
        except LeaseLost:
            return False
        return True

    async def save(self, held: Held, *, claim: bool = True) -> None:
        """Write the record as it is now and (re)new our lease on it; `claim=False` lets go of it."""
        async with held.lock:
            stamped = self._stamp(held.record, claim=claim)
            try:
                held.generation = await self._write(self.running(stamped), stamped, held.generation)
            except (PreconditionFailed, NotFound) as error:
                raise LeaseLost(f"record {stamped.event_id} changed under us") from error
            # The work may have moved on while the write was under way: keep its changes, take over the stamp.
            held.record = replace(held.record, stamp=stamped.stamp)
        self._tell(stamped)

    async def confirm(self, held: Held) -> None:
        """Before an effect that replaces nothing, and so cannot fail by itself: is the record still ours?

        Within the lease it is, and nothing is asked. A replica that was frozen for longer finds `LeaseLost`.
        """
        until = held.record.stamp.lease_until or held.record.stamp.updated + self._lease
        if until <= self._clock.now():
            await self.save(held)

    async def finish(self, held: Held) -> None:
        """The last step: `Done/` first, then `Running/` goes."""
        assert held.record.phase.final
        await self._at_rest(held)
        await self.confirm(held)
        record = self._stamp(held.record, claim=False)
        if not await self._conclude(record):
            log.info("journal.finished_before", event_id=record.event_id)
            await self.leave(held)
        else:
            await self._part_with(held, record)

    async def end(self, held: Held) -> bool:
        """`Done/` is written, and `Running/` left, free: whoever sweeps tells the end elsewhere, and removes it.

        For those who are gone before they could tell it themselves. False when the batch was finished before.
        """
        assert held.record.phase.final
        await self.confirm(held)
        first = await self._conclude(self._stamp(held.record, claim=False))
        with suppress(LeaseLost):  # somebody has found the end, and did the rest
            await self.save(held, claim=False)
        return first

    async def _conclude(self, record: Record) -> bool:
        """Write `Done/`; False when the batch was finished before."""
        try:
            await self._write(self.done(record), record, ABSENT)
        except PreconditionFailed:
            if await self.is_finished(record):
                return False
            await self._write(self.done(record), record, ABSENT)
        return True

    async def _at_rest(self, held: Held) -> None:
        """Wait for a renewal of the lease that is under way: its revision is not free for the batch's end.

        It was stamped before the end was known, and is told when its answer comes: of two rows with one revision the
        load state would show the later one, and the batch as open for ever.
        """
        async with held.lock:
            return

    async def leave(self, held: Held) -> None:
        """Part with the running record of a batch that was finished before, by whomever."""
        await self._at_rest(held)
        try:
            finished = await self.finished(held.record) if self.witness else None
        except UnreadableObject:
            finished = None  # whoever wrote that end has told it
        if finished is not None:
            # What we have told of it meanwhile must not look newer than its end, nor be the same row.
            revision = max(finished.stamp.revision, held.record.stamp.revision + 1)
            finished = replace(finished, stamp=replace(finished.stamp, revision=revision))
        await self._part_with(held, finished or held.record)

    async def _part_with(self, held: Held, finished: Record) -> None:
        if self.witness is None or finished.kind is not Kind.LOAD or not finished.phase.final:
            await self.forget(held)
        else:
            self.witness.ended(finished, partial(self.forget, held))

    def _tell(self, record: Record) -> None:
        if self.witness is not None:
            self.witness.changed(record)

    async def forget(self, held: Held) -> None:
        """Remove a running record that `Done/` (or nobody) needs any more."""
        try:
            async with held.lock:
                await self._store.delete(self.running(held.record), if_generation=held.generation)
        except PreconditionFailed as error:
            raise LeaseLost(f"record {held.record.event_id} changed under us") from error

    async def reopen(self, record: Record, *, keep: bool = False) -> Held:
        """Take a finished record back to `Running/`, free for anyone unless we `keep` it; the next sweep continues it.

        | dies after         | what is there                           | then                                          |
        |--------------------|-----------------------------------------|-----------------------------------------------|
        | nothing            | `Done/`                                 | nothing has changed                           |
        | `Running/` written | both; `Running/` names this very `Done/`| whoever finds them removes `Done/` (see above)|
        | `Done/` removed    | `Running/`, leased                      | whoever finds it after the lease goes on      |

        `PreconditionFailed` when the batch has only just ended and its running record is still there, or when somebody
        else opened it since `record` was read.
        """
        done = await self.read(self.done(record))
        if done is None or done.record.stamp.revision != record.stamp.revision:
            raise PreconditionFailed(f"record {record.event_id} was opened again by somebody else")
        opened = replace(record, stamp=replace(record.stamp, reopens=done.generation))
        stamped = self._stamp(opened, claim=True)
        await self._late.leave(_table(stamped), stamped.day)
        held = Held(stamped, await self._write(self.running(stamped), stamped, ABSENT))
        await self._take_back(stamped)
        if not keep:
            try:
                await self.save(held, claim=False)
            except LeaseLost:
                log.info("journal.reopened_and_taken", event_id=record.event_id)  # we stood still; somebody goes on
        return held

    async def entries(self, folder: str = "Running/") -> AsyncIterator[Entry]:
        async for info in self._store.list(self._root / folder):
            if info.ref.name.endswith(".run"):
                yield _entry(info)

    async def under_way(self, table: str) -> AsyncIterator[Entry]:
        """The running records of a table that rules spell like this, with or without a partition."""
        place = self._root / f"Running/{_segment(table)}"
        async for info in self._store.list(place, start=f"{place.name}$", end=f"{place.name}0"):
            if info.ref.name.endswith(".run") and info.ref.name[len(place.name)] in "/$":
                yield _entry(info)

    async def note(self, ref: ObjectRef, data: bytes) -> None:
        await self._store.create(ref, data)

    async def with_files(self, record: Record) -> Record:
        """The record, its files put away in an object of their own if they are many."""
        if len(record.files) <= INLINE or record.files_url:
            return record
        data, name = await aside(len(record.files) > _MANY_FILES, to_manifest, record.files)
        ref = self._root / f"Files/{_path(record)}-{name}.json"
        try:
            await self._store.create(ref, data, if_generation=ABSENT)
        except PreconditionFailed:
            log.info("journal.files_kept_before", event_id=record.event_id)
        return replace(record, files_url=ref.url)

    def _stamp(self, record: Record, *, claim: bool) -> Record:
        now = self._clock.now()
        stamp = record.stamp.claimed(now, self._owner, self._lease) if claim else record.stamp.freed(now)
        return replace(record, stamp=stamp)

    async def _write(self, ref: ObjectRef, record: Record, if_generation: Generation | None) -> Generation:
        data = await aside(len(record.files) > _MANY_FILES, record.to_json)
        return await self._store.create(ref, data, if_generation=if_generation, metadata=_metadata(record))


def _folder(record: Record) -> str:
    return f"{_table(record)}/{record.day}"


def _table(record: Record) -> str:
    return _segment(record.home)


_segment = lru_cache(maxsize=10_000)(segment)


def _path(record: Record) -> str:
    return f"{_folder(record)}/{record.event_id}"


def _metadata(record: Record) -> dict[str, str]:
    """Carried on the object itself, so that a listing answers most questions without reading any record."""
    metadata: dict[str, Any] = {
        "ingestd-phase": record.phase,
        "ingestd-event": record.event_id,
        "ingestd-version": record.version,
    }
    if record.files:
        metadata["ingestd-source"] = quote(record.files[0].key, safe=SOURCE_SAFE)
        metadata["ingestd-files"] = len(record.files)
    if record.phase.final and 1 < len(record.files) <= MOST_NAMES:
        metadata["ingestd-names"] = name_filter([file.ref for file in record.known_files])
    if record.rule.name:
        metadata["ingestd-rule"] = quote(record.rule.name, safe="/.:-_ ")
    if record.dest:
        metadata["ingestd-dest"] = _segment(record.dest)
    if record.window and record.window.group:
        metadata["ingestd-group"] = record.window.group
    metadata["ingestd-began"] = record.created.isoformat()
    if record.success:
        metadata["ingestd-source"] = quote(record.identity.removeprefix("success:gs://"), safe=SOURCE_SAFE)
    if record.stamp.lease_until:
        metadata["ingestd-lease-until"] = record.stamp.lease_until.isoformat()
    if record.wait.until:
        metadata["ingestd-retry-at"] = record.wait.until.isoformat()
    return {key: str(value) for key, value in metadata.items()}


def _entry(info: ObjectInfo) -> Entry:
    meta: Mapping[str, str] = info.metadata

    return Entry(
        ref=info.ref,
        event_id=meta.get("ingestd-event", info.ref.name.rpartition("/")[2].removesuffix(".run")),
        phase=meta.get("ingestd-phase", Phase.ACCEPTED),
        source=meta.get("ingestd-source", ""),
        lease_until=instant(meta.get("ingestd-lease-until")),
        retry_at=instant(meta.get("ingestd-retry-at")),
        created=info.created,
        began=instant(meta.get("ingestd-began")) or info.created,
        group=meta.get("ingestd-group", ""),
        files=number(meta.get("ingestd-files")),
        rule=unquote(meta.get("ingestd-rule", "")),
        dest=unquote(meta.get("ingestd-dest", "")),
        version=number(meta.get("ingestd-version")),
    )
