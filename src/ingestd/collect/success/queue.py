"""The durable queue of an ordered table: one small object per waiting batch, one per table that says how far it is.

    <journal>/ordered/<key>/queue/<path below the table>/_SUCCESS@<generation>   a batch that waits or is under way
    <journal>/ordered/<key>/state.json                                           what was committed, what is under way

A listing of the queue is in the order in which batches commit. The state is only ever replaced by its generation
(compare and swap), so that of two replicas one moves the table on and the other sees that it did.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Self
from urllib.parse import quote, unquote

import orjson
import structlog

from ingestd.model.errors import BadInput, NotFound, PreconditionFailed, UnreadableObject
from ingestd.model.objects import ABSENT, FileVersion, Generation, ObjectInfo, ObjectRef, generation_time
from ingestd.model.stored import LARGEST, placeholder, reading
from ingestd.model.stored import document as read_document
from ingestd.ops.strangers import Strangers
from ingestd.ports import ObjectStore

log = structlog.get_logger(__name__)

SCHEMA_VERSION = 1
_LONGEST_NAME = 1024
_REMEMBERED = 100
_DIGITS = 20  # a generation, so that later ones sort behind


class Hold(StrEnum):
    """Why an ordered table does not go on by itself."""

    NONE = ""
    FAILED = "failed"  # the batch under way failed for good
    LATE = "late"  # the next batch comes after one that should have followed it
    VALIDATION = "validation"  # somebody wants to look at what was committed first


@dataclass(frozen=True, slots=True)
class OrderedTable:
    """The folder of a table whose batches are ordered."""

    bucket: str
    prefix: str

    @property
    def key(self) -> str:
        digest = sha256(f"{self.bucket}/{self.prefix}".encode()).hexdigest()[:16]
        readable = quote("/".join(self.prefix.split("/")[-2:]).replace("/", "."), safe=".-_")[:80]
        return f"{readable}-{digest}"

    @property
    def url(self) -> str:
        return f"gs://{self.bucket}/{self.prefix}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A batch in the queue; `order` compares as batches commit."""

    order: str
    success: FileVersion
    created: datetime
    pointer: Generation = ABSENT


@dataclass(frozen=True, slots=True)
class TableState:
    table: OrderedTable
    committed: str = ""  # the order of the last batch in sequence that was committed
    current: str = ""  # the order of the batch under way
    current_url: str = ""
    current_generation: Generation = ABSENT
    hold: Hold = Hold.NONE
    note: str = ""  # why, for people
    allowed: tuple[str, ...] = ()  # batches that may be late
    skipped: tuple[str, ...] = ()  # the last ones that a person left out: their entries go, whenever they appear
    open: bool = False  # the gate file was seen
    gesture: int = 0  # the last `_BACKFILL` that was heeded, by its generation
    updated: str = ""

    @property
    def success(self) -> FileVersion | None:
        """The success file of the batch under way."""
        if not self.current:
            return None
        ref = ObjectRef.parse(self.current_url)
        return FileVersion(ref, self.current_generation, event_time=generation_time(self.current_generation))

    def began(self, entry: Entry) -> Self:
        return replace(
            self,
            current=entry.order,
            current_url=entry.success.ref.url,
            current_generation=entry.success.generation,
            hold=Hold.NONE,
            note="",
        )

    def ended(self) -> Self:
        """Without a batch under way."""
        allowed = tuple(one for one in self.allowed if one != self.current)
        return replace(
            self, current="", current_url="", current_generation=ABSENT, hold=Hold.NONE, note="", allowed=allowed
        )

    def without_current(self) -> Self:
        """The batch under way was left out by a person."""
        return replace(self.ended(), skipped=(*self.skipped, self.current)[-_REMEMBERED:])

    def to_json(self) -> bytes:
        document = {
            "schema_version": SCHEMA_VERSION,
            "Table": self.table.url,
            "Committed": self.committed,
            "Current": self.current,
            "CurrentURL": self.current_url,
            "CurrentGeneration": str(self.current_generation),
            "Hold": self.hold,
            "Note": self.note,
            "Allowed": self.allowed,
            "Skipped": self.skipped,
            "Open": self.open,
            "Gesture": str(self.gesture),
            "Updated": self.updated,
        }
        return orjson.dumps(document, option=orjson.OPT_INDENT_2)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        document = read_document(data, version=SCHEMA_VERSION)
        ref = ObjectRef.parse(document["Table"])
        return cls(
            table=OrderedTable(ref.bucket, ref.name),
            committed=document["Committed"],
            current=document["Current"],
            current_url=document["CurrentURL"],
            current_generation=Generation(int(document["CurrentGeneration"])),
            hold=Hold(document["Hold"]),
            note=document["Note"],
            allowed=tuple(document["Allowed"]),
            skipped=tuple(document["Skipped"]),
            open=document["Open"],
            gesture=int(document["Gesture"]),
            updated=document["Updated"],
        )


def order_of(table: OrderedTable, success: FileVersion) -> str:
    """The place of a batch: its path below the table, then its generation."""
    below = success.ref.name[len(table.prefix) :].lstrip("/")
    return f"{below}@{success.generation:0{_DIGITS}d}"


class Queues:
    """Every ordered table's queue and state."""

    def __init__(self, store: ObjectStore, root: ObjectRef, strangers: Strangers | None = None) -> None:
        self._store = store
        self._root = root
        self._strangers = strangers or Strangers()

    def _state_ref(self, table: OrderedTable) -> ObjectRef:
        return self._root / f"{table.key}/state.json"

    def _queue(self, table: OrderedTable) -> ObjectRef:
        return self._root / f"{table.key}/queue/"

    async def put(self, table: OrderedTable, success: FileVersion) -> bool:
        """Make the arrival durable; False when it is queued already."""
        ref = self._queue(table) / order_of(table, success)
        if len(ref.name.encode()) > _LONGEST_NAME:
            raise BadInput(f"the path of {success.ref} is too long for an ordered batch")
        metadata = {
            "ingestd-success": quote(success.ref.url, safe="/:."),
            "ingestd-generation": str(success.generation),
            "ingestd-table": quote(table.url, safe="/:."),
        }
        try:
            await self._store.create(ref, b"{}", if_generation=ABSENT, metadata=metadata)
        except PreconditionFailed:
            return False
        return True

    async def first(self, table: OrderedTable) -> Entry | None:
        async for entry in self.entries(table):
            return entry
        return None

    async def entries(self, table: OrderedTable) -> AsyncIterator[Entry]:
        prefix = self._queue(table)
        async for info in self._store.list(prefix):
            if (entry := self._entry(info, info.ref.name[len(prefix.name) :])) is not None:
                yield entry

    def _entry(self, info: ObjectInfo, order: str) -> Entry | None:
        """None for what we did not write: mounted or copied folders hold other things, too, which stop no table."""
        if placeholder(info):
            return None
        try:
            with reading(info.ref):
                entry = _entry(info, order)
                if not order.endswith(f"@{entry.success.generation:0{_DIGITS}d}"):
                    raise ValueError(f"{order} is not where the batch of generation {entry.success.generation} waits")
                return entry
        except UnreadableObject as error:
            self._strangers.met("queues", info.ref, error)
            return None

    async def repeated(self, table: OrderedTable, order: str) -> bool:
        """Whether the success file of this batch was uploaded once more, and that waits, too."""
        path = order.rpartition("@")[0]
        prefix = self._queue(table) / f"{path}@"
        return any([info.ref.name[-len(order) :] > order async for info in self._store.list(prefix)])

    async def remove(self, table: OrderedTable, order: str) -> None:
        await self._store.delete(self._queue(table) / order)

    async def state(self, table: OrderedTable) -> tuple[TableState, Generation]:
        """How far the table is; a table nobody knows yet is at its beginning."""
        ref = self._state_ref(table)
        try:
            data, info = await self._store.read(ref, largest=LARGEST)
        except NotFound:
            return TableState(table), ABSENT
        return self._state(ref, data), info.generation

    def _state(self, ref: ObjectRef, data: bytes) -> TableState:
        try:
            with reading(ref):
                return TableState.from_json(data)
        except UnreadableObject as error:
            self._strangers.met("queues", ref, error)
            raise

    async def save(self, state: TableState, over: Generation, now: datetime) -> bool:
        """Replace the very state that was read; False when somebody else was first."""
        data = replace(state, updated=now.isoformat()).to_json()
        metadata = {"ingestd-table": quote(state.table.url, safe="/:."), "ingestd-hold": str(state.hold)}
        try:
            await self._store.create(self._state_ref(state.table), data, if_generation=over, metadata=metadata)
        except PreconditionFailed:
            return False
        return True

    async def waiting(self) -> list[OrderedTable]:
        """Tables with batches in their queues."""
        return list((await self.survey()).waiting)

    async def survey(self) -> "Survey":
        """What one listing tells of all tables, without reading any state."""
        found = Survey()
        async for _, rest, info in self._all():
            queued = rest.startswith("queue/")
            if not (queued or info.metadata.get("ingestd-hold")) or placeholder(info):
                continue
            try:
                with reading(info.ref):
                    ref = ObjectRef.parse(unquote(info.metadata["ingestd-table"]))
            except UnreadableObject as error:
                self._strangers.met("queues", info.ref, error)
                continue
            (found.waiting if queued else found.held)[OrderedTable(ref.bucket, ref.name)] = None
        return found

    async def states(self) -> AsyncIterator[TableState]:
        """How far every table is that ever moved."""
        async for _, rest, info in self._all():
            if rest == "state.json":
                try:
                    data, _ = await self._store.read(info.ref, largest=LARGEST)
                    state = self._state(info.ref, data)
                except (UnreadableObject, NotFound):
                    continue  # counted and told
                yield state

    async def _all(self) -> AsyncIterator[tuple[str, str, ObjectInfo]]:
        root = self._root / ""
        async for info in self._store.list(root):
            key, _, rest = info.ref.name[len(root.name) :].partition("/")
            yield key, rest, info


@dataclass(frozen=True, slots=True)
class Survey:
    """Tables with batches in their queues, and those whose state says that they are held; in order."""

    waiting: dict[OrderedTable, None] = field(default_factory=dict)
    held: dict[OrderedTable, None] = field(default_factory=dict)


def _entry(info: ObjectInfo, order: str) -> Entry:
    ref = ObjectRef.parse(unquote(info.metadata["ingestd-success"]))
    generation = Generation(int(info.metadata["ingestd-generation"]))
    success = FileVersion(ref, generation, event_time=generation_time(generation))
    return Entry(order, success, info.created, info.generation)
