"""Wider windows for tables whose daily budget runs short.

Which window a file belongs to must not depend on when or by whom its message is handled, or a redelivered file would
find another window and load twice. So a change of pace is written down before it applies: from a given event time on,
loads of a table are at least so many seconds apart. Replicas read these notes all the time, and one that has not been
able to read them lately takes no files until it has.

A window becomes the next multiple of its duration; files of rules without a window collect in one of their own.
"""

import math
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import quote, unquote

import orjson
import structlog
from prometheus_client import Counter, Gauge

from ingestd.model.clock import Clock
from ingestd.model.errors import NewerVersion, PreconditionFailed, Transient, UnreadableObject
from ingestd.model.objects import ABSENT, Generation, ObjectInfo, ObjectRef
from ingestd.model.segments import MOST
from ingestd.model.stored import LARGEST, document, placeholder, reading
from ingestd.model.tables import TableName, parse_table
from ingestd.ops.strangers import Strangers
from ingestd.ops.survival import surviving
from ingestd.ports import ObjectStore
from ingestd.rules.destination import named_after_group
from ingestd.rules.rule import Rule
from ingestd.warehouse.governor import QuotaGovernor

log = structlog.get_logger(__name__)

PACE = Gauge("ingestd_window_pace_seconds", "The widest pace in force: seconds between loads of one table; 0: none.")
CHANGES = Counter("ingestd_window_pace_changes", "Changes of a table's pace that this process wrote down.")

ERRORS = Counter("ingestd_window_pace_errors", "Times the notes on paces could not be read or written.")

_SCHEMA_VERSION = 1
_BASE = timedelta(seconds=60)  # a pace is found by asking how much a window of this length should widen
_STEP = 30  # seconds: paces are multiples of this
_WIDEST = 6 * 3600
_LEAD = timedelta(minutes=10)  # more than clocks differ and notes take to be read
_LOOK_EVERY = timedelta(seconds=30)
_STALE = timedelta(minutes=2)
_OUTLIVED = timedelta(days=1)
_KEPT = timedelta(days=31)  # Pub/Sub keeps a message for so long at most
_UP, _DOWN = 1.3, 0.5  # smaller changes are not worth a note


@dataclass(frozen=True, slots=True)
class _Entry:
    since: int  # Unix seconds of event time
    pace: int  # seconds between loads; 0: as the rule has it
    by: str  # the replica that asked for it


@dataclass(slots=True)
class _Notes:
    """A table's changes of pace, oldest first."""

    generation: Generation = ABSENT
    entries: list[_Entry] = field(default_factory=list)

    def at(self, moment: float) -> int:
        return next((entry.pace for entry in reversed(self.entries) if entry.since <= moment), 0)

    @property
    def last(self) -> _Entry:
        return self.entries[-1] if self.entries else _Entry(0, 0, "")


class Pacing:
    def __init__(
        self,
        store: ObjectStore,
        root: ObjectRef,
        governor: QuotaGovernor | None,
        clock: Clock,
        *,
        replica: str = "",
        strangers: Strangers | None = None,
    ) -> None:
        self._store = store
        self._root = root
        self._governor = governor
        self._clock = clock
        self._replica = replica
        self._notes: dict[str, _Notes] = {}
        self._newer: set[str] = set()  # tables whose notes a newer version wrote: their pace is not known
        self._read_at: float | None = None
        self._strangers = strangers or Strangers(clock)

    @property
    def active(self) -> bool:
        """Whether any table is, was lately or will be paced."""
        return bool(self._notes or self._newer)

    @property
    def fresh(self) -> bool:
        """Whether the notes were read recently enough to rely on."""
        return self._read_at is not None and self._clock.monotonic() - self._read_at < _STALE.total_seconds()

    def seconds(self, rule: Rule, table: TableName, moment: float) -> int | None:
        """How long the window of a file with this event time lasts; None: the file loads on its own."""
        own = rule.spec.batch.seconds if rule.spec.batch else None
        if named_after_group(rule):
            return own  # a table per group has a budget of its own, and its name follows from this length
        return self.stretched(own, table, moment)

    def stretched(self, own: int | None, table: TableName, moment: float) -> int | None:
        """A window of so many seconds (None: no window) at the pace of its table at that event time.

        `Transient` when a newer version keeps the table's notes: its files wait, others do not.
        """
        if not self.active:
            return own
        if (name := str(table.partition(None))) in self._newer:
            raise Transient(f"how long windows of {name} last is noted by a newer version")
        notes = self._notes.get(name)
        pace = notes.at(moment) if notes else 0
        if own is None:
            return pace or None
        return own * max(1, math.ceil(pace / own))

    async def refresh(self) -> None:
        """Read what has changed."""
        read_at = self._clock.monotonic()
        newer: set[str] = set()
        async for info in self._store.list(self._root / ""):
            name = self._table(info)
            known = self._notes.get(name) if name else None
            if name and (known is None or known.generation != info.generation):
                try:
                    await self._read(name)
                except NewerVersion as error:
                    newer.add(name)
                    self._strangers.met("paces", info.ref, error)
                except UnreadableObject as error:
                    self._strangers.met("paces", info.ref, error)
                    # What was known of the table holds; whoever notes its next change replaces the object.
                    self._notes[name] = _Notes(info.generation, known.entries if known else [])
        self._newer = newer
        self._read_at = read_at
        now = self._clock.now().timestamp()
        PACE.set(max((notes.at(now) for notes in self._notes.values()), default=0))

    async def consider(self) -> None:
        """Write down a change of pace for every table whose budget asks for one."""
        if self._governor is None:
            return
        for name in {*self._notes, *(one["table"] for one in self._governor.status()["tables"])} - self._newer:
            if len(self._ref(name).name.encode()) > MOST:
                continue  # a name that nobody could read the pace by
            wanted = _pace(self._governor.stretch(parse_table(name), _BASE))
            notes = self._notes.get(name) or _Notes()
            # What the others loaded is known a minute late: a pace is lowered by the one that asked for it, or when it
            # has outlived the day whose budget it saved.
            last = notes.last
            mine = last.by == self._replica or self._clock.now().timestamp() - last.since > _OUTLIVED.total_seconds()
            if wanted > last.pace * _UP or (mine and wanted < last.pace * _DOWN):
                await self._write(name, notes, wanted)

    async def run(self) -> None:
        """Root task."""
        while True:
            await self.look()
            await self._clock.sleep(_LOOK_EVERY)

    async def look(self) -> None:
        with surviving("pacing", "window.pace_unknown", ERRORS.inc):
            await self.refresh()
            await self.consider()

    def status(self) -> dict[str, int]:
        """The paces in force, by table."""
        now = self._clock.now().timestamp()
        return {name: pace for name, notes in self._notes.items() if (pace := notes.at(now))}

    def _table(self, info: ObjectInfo) -> str:
        """The table that a note is about; empty for whatever else lies there."""
        if placeholder(info):
            return ""
        name = unquote(info.ref.name.removeprefix((self._root / "").name).removesuffix(".json"))
        try:
            parse_table(name)
        except ValueError as error:
            self._strangers.met("paces", info.ref, UnreadableObject(f"{info.ref}: no note of ours: {error}"))
            return ""
        return name if self._ref(name) == info.ref else ""

    async def _read(self, name: str) -> None:
        ref = self._ref(name)
        data, info = await self._store.read(ref, largest=LARGEST)
        with reading(ref):
            found = document(data, version=_SCHEMA_VERSION)
            entries = [_entry(*entry) for entry in found["Entries"]]
        self._notes[name] = _Notes(info.generation, entries)

    async def _write(self, name: str, notes: _Notes, pace: int) -> None:
        now = self._clock.now()
        if notes.last.since > now.timestamp():
            return  # the last change has not come into force yet
        oldest = (now - _KEPT).timestamp()
        kept = [entry for at, entry in enumerate(notes.entries) if not _superseded(notes.entries, at, oldest)]
        entries = [*kept, _Entry(int((now + _LEAD).timestamp()), pace, self._replica)]
        content = {
            "schema_version": _SCHEMA_VERSION,
            "Table": name,
            "Entries": [(entry.since, entry.pace, entry.by) for entry in entries],
        }
        try:
            generation = await self._store.create(
                self._ref(name), orjson.dumps(content), if_generation=notes.generation
            )
        except PreconditionFailed:
            return  # another replica wrote one: it is read at the next look
        self._notes[name] = _Notes(generation, entries)
        CHANGES.inc()
        log.warning("window.pace_changed", table=name, seconds=pace, since=entries[-1].since)

    def _ref(self, name: str) -> ObjectRef:
        return self._root / f"{quote(name, safe='.:-_')}.json"


def _entry(since: object, pace: object, by: object) -> _Entry:
    if not isinstance(since, int) or not isinstance(pace, int) or not 0 <= pace <= _WIDEST:
        raise ValueError(f"a pace of {pace!r} seconds since {since!r}")
    return _Entry(since, pace, str(by))


def _pace(stretch: float) -> int:
    """Seconds between loads; 0 while there is plenty of budget."""
    if stretch <= 1.0:
        return 0
    return min(math.ceil(_BASE.total_seconds() * stretch / _STEP) * _STEP, _WIDEST)


def _superseded(entries: list[_Entry], at: int, oldest: float) -> bool:
    """Whether no message can ask for this entry any more."""
    return at + 1 < len(entries) and entries[at + 1].since < oldest
