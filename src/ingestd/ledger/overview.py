"""How things stand, seen from outside: open windows, batches under way, recent failures, how fresh tables are.

Two listings (windows, running records) and two small queries, whatever the number of replicas; the daemon itself need
not run. What only the daemon knows (its quota budget) is asked of its `/status`, where it can be reached.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

from ingestd.batch.journal import Entry, Journal
from ingestd.collect.windows.store import Found, WindowStore
from ingestd.ledger.reading import BatchState, LoadStateReader, TableState
from ingestd.model.clock import Clock
from ingestd.model.errors import IngestError
from ingestd.model.stored import instant


@dataclass(frozen=True, slots=True)
class WindowLine:
    """One open window."""

    name: str
    rule: str
    destination: str
    due: datetime | None
    seconds_left: float | None
    owner: str
    files: int  # durable ones: the newest few seconds are in the owner's memory
    bytes: int
    state: str  # open, overdue, closed (being recorded), orphaned (shards without a lock)

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One batch under way."""

    event_id: str
    destination: str
    phase: str
    files: int
    source: str
    since: datetime
    state: str  # running, waiting (for its surroundings), free (nobody holds it yet), newer version (left to that)
    retry_at: datetime | None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Overview:
    at: datetime
    windows: list[WindowLine] = field(default_factory=list)
    batches: list[BatchLine] = field(default_factory=list)
    failures: list[BatchState] = field(default_factory=list)
    tables: list[TableState] = field(default_factory=list)
    daemon: Mapping[str, Any] | None = None  # its own /status
    notes: list[str] = field(default_factory=list)  # what could not be asked, and why

    def to_json(self) -> dict[str, Any]:
        return {
            "at": self.at,
            "windows": [one.to_json() for one in self.windows],
            "batches": [one.to_json() for one in self.batches],
            "failures": [one.to_json() for one in self.failures],
            "tables": [one.to_json() for one in self.tables],
            "daemon": self.daemon,
            "notes": self.notes,
        }


class Overseer:
    def __init__(
        self, journal: Journal, windows: WindowStore, load_state: LoadStateReader | None, clock: Clock
    ) -> None:
        self._journal = journal
        self._windows = windows
        self._load_state = load_state
        self._clock = clock

    async def look(self, *, since: timedelta, failures: int = 10) -> Overview:
        now = self._clock.now()
        view = Overview(now, await self.windows(), await self.batches())
        if self._load_state is None:
            view.notes.append("the load state is switched off: failures and freshness are not known")
            return view
        try:
            view.failures = await self._load_state.batches(since=now - since, state="failed", limit=failures)
            view.tables = await self._load_state.tables(since=now - since)
        except IngestError as error:
            view.notes.append(f"the load state cannot be read: {error}")
        return view

    async def windows(self) -> list[WindowLine]:
        """Open windows, the next due first."""
        now = self._clock.now()
        lines = [_window(found, now) for found in (await self._windows.everything()).windows]
        return sorted(lines, key=lambda line: (line.due is None, line.due or now, line.name))

    async def batches(self) -> list[BatchLine]:
        """Batches under way, the oldest first."""
        now = self._clock.now()
        lines = [_batch(entry, now) async for entry in self._journal.entries()]
        return sorted(lines, key=lambda line: line.since)


def _window(found: Found, now: datetime) -> WindowLine:
    labels = found.lock.metadata if found.lock else {}
    due = instant(labels.get("ingestd-due"))
    if found.closed:
        state = "closed"
    elif due is None:
        state = "orphaned"
    else:
        state = "open" if due > now else "overdue"
    return WindowLine(
        name=found.name,
        rule=unquote(labels.get("ingestd-rule", "")),
        destination=unquote(labels.get("ingestd-dest", ""))
        or unquote(found.name.rpartition("_")[0].rpartition("_")[0]),
        due=due,
        seconds_left=(due - now).total_seconds() if due else None,
        owner=labels.get("ingestd-owner", ""),
        files=found.files,
        bytes=found.size,
        state=state,
    )


def _batch(entry: Entry, now: datetime) -> BatchLine:
    if entry.newer:
        state = "newer version"
    elif entry.retry_at is not None:
        state = "waiting"
    else:
        state = "running" if entry.lease_until and entry.lease_until > now else "free"
    return BatchLine(
        event_id=entry.event_id,
        destination=entry.dest or unquote("".join(entry.ref.name.split("/")[-3:-2])),
        phase=entry.phase,
        files=entry.files,
        source=unquote(entry.source).rpartition("#")[0],
        since=entry.began,
        state=state,
        retry_at=entry.retry_at,
    )
