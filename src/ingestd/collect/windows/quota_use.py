"""What every replica has used of BigQuery's daily quotas, kept where the others and its successors find it.

One small object per replica under `JournalURL/quota/`, rewritten at most once a minute and only when something was
used: how many changes of which table in which hour. Everybody reads those of the others, so that a day's budget is
counted once for all of them, and what a replica used still counts when it is gone.

States, and what a crash between any two of them costs:
* admitted, not noted yet: up to a minute's changes are forgotten, of one table at most 30 of its 1,500 (the rate
  allows no more). A drained replica notes everything.
* noted, not read by the others yet: they keep to their part of what was left when they last looked.
* started again under the same name: its own note is read before it is first overwritten, and counts as its own.
* gone: its note counts until the last hour in it is a day old. Then whoever reads it removes it.
A note says too much rather than too little: hours are rounded up, so that use is released up to an hour late.
"""

import asyncio
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import quote, unquote

import orjson
import structlog
from prometheus_client import Counter

from ingestd.collect.windows.replicas import Replicas
from ingestd.model.clock import Clock
from ingestd.model.errors import IngestError, NotFound, PreconditionFailed, UnreadableObject
from ingestd.model.objects import ABSENT, Generation, ObjectRef
from ingestd.model.stored import LARGEST, document, placeholder, reading
from ingestd.ops.strangers import Strangers
from ingestd.ports import ObjectStore
from ingestd.warehouse.budget import DAY, LOOK_EVERY
from ingestd.warehouse.governor import QuotaGovernor

log = structlog.get_logger(__name__)

ERRORS = Counter("ingestd_quota_note_errors", "Times the notes on quota use could not be read or written.")
WRITTEN = Counter("ingestd_quota_notes_written", "Notes on quota use that this process wrote.")

_SCHEMA_VERSION = 1
_HOUR = 3600
_PATIENCE = 5.0  # seconds that a replica on its way out waits for its last note

Use = Mapping[str, Mapping[int, int]]
"""By table: the hour's end (in hours since 1970) and how many changes."""


class QuotaUse:
    def __init__(
        self,
        store: ObjectStore,
        root: ObjectRef,
        governor: QuotaGovernor,
        replicas: Replicas,
        clock: Clock,
        strangers: Strangers | None = None,
    ) -> None:
        self._store = store
        self._root = root
        self._governor = governor
        self._replicas = replicas
        self._clock = clock
        self._notes: dict[str, tuple[Generation, Use]] = {}
        self._generation: Generation | None = None  # of this replica's own note; None: not looked for yet
        self._written: Use = {}
        self._strangers = strangers or Strangers(clock)

    async def start(self) -> None:
        """Know who is alive and what was used before the first load is admitted, if the store answers."""
        await self.look(first=True)

    async def run(self) -> None:
        """Root task."""
        while True:
            await self._clock.sleep(timedelta(seconds=LOOK_EVERY))
            await self.look()

    async def close(self) -> None:
        """Note the last of it: a replica that ends in order forgets nothing."""
        if not self._governor.limits.enabled:
            return
        with self._noted():
            async with asyncio.timeout(_PATIENCE):
                await self._write()

    async def look(self, *, first: bool = False) -> None:
        if not self._governor.limits.enabled:
            return
        with self._noted():
            if first:
                await self._replicas.observe()
            await self._read()
            await self._write()

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except (IngestError, TimeoutError) as error:
            ERRORS.inc()
            log.warning("quota.notes_failed", error=str(error) or "the store does not answer")
        except Exception:
            ERRORS.inc()
            log.exception("quota.notes_failed")

    async def _read(self) -> None:
        mine, found = self._ref(self._replicas.name), {}
        own = ABSENT
        async for info in self._store.list(self._root / ""):
            if info.ref == mine:
                own = info.generation
                continue
            if placeholder(info):
                continue
            name = unquote(info.ref.name.rpartition("/")[2].removesuffix(".json"))
            known = self._notes.get(name)
            use = known[1] if known and known[0] == info.generation else await self._use(info.ref)
            if use is None:
                continue
            if self._expired(use):
                await self._store.delete(info.ref, if_generation=info.generation)
            else:
                found[name] = (info.generation, use)
        self._notes = found
        if self._generation is None and own != ABSENT:
            self._governor.restore(self._ago(await self._use(mine) or {}))
        if self._generation is None or own == ABSENT:
            self._generation = own  # absent: after an idle day somebody has removed it
        living = self._replicas.living
        # With a share of its own, a replica leaves to the living what they use.
        fixed = self._governor.limits.share is not None
        counted = [use for name, (_, use) in found.items() if not (fixed and name in living)]
        self._governor.learn(self._ago(*counted), len(living))

    async def _write(self) -> None:
        use = self._own()
        if self._generation is None or use == self._written:
            return
        content = {
            "schema_version": _SCHEMA_VERSION,
            "Hours": {table: {str(hour): count for hour, count in hours.items()} for table, hours in use.items()},
        }
        try:
            self._generation = await self._store.create(
                self._ref(self._replicas.name), orjson.dumps(content), if_generation=self._generation
            )
        except PreconditionFailed:
            # Two processes under one name, or a note that somebody removed: the next look finds what there is.
            self._generation = None if not self._written else await self._present()
            raise
        self._written = use
        WRITTEN.inc()

    async def _present(self) -> Generation:
        info = await self._store.stat(self._ref(self._replicas.name))
        return info.generation if info else ABSENT

    async def _use(self, ref: ObjectRef) -> Use | None:
        """What a note says; None when it is none of ours, or one of a newer version: it is advice only."""
        try:
            data, _ = await self._store.read(ref, largest=LARGEST)
            with reading(ref):
                hours = document(data, version=_SCHEMA_VERSION)["Hours"]
                return {
                    str(table): {_hour(hour): _count(count) for hour, count in used.items()}
                    for table, used in hours.items()
                }
        except NotFound:
            return {}
        except UnreadableObject as error:
            self._strangers.met("quota", ref, error)
            return None

    def _own(self) -> Use:
        now = self._clock.now().timestamp()
        use: dict[str, dict[int, int]] = {}
        for table, used in self._governor.own_use().items():
            hours = use.setdefault(table, {})
            for ago, count in used.items():
                hour = math.ceil((now + ago) / _HOUR)
                hours[hour] = hours.get(hour, 0) + count
        return use

    def _ago(self, *uses: Use) -> dict[str, dict[float, int]]:
        """As the governor has it: seconds from now. The present hour's use may be as young as now."""
        now = self._clock.now().timestamp()
        told: dict[str, dict[float, int]] = {}
        for use in uses:
            for table, hours in use.items():
                used = told.setdefault(table, {})
                for hour, count in hours.items():
                    ago = min(hour * _HOUR - now, 0.0)
                    if ago > -DAY:
                        used[ago] = used.get(ago, 0) + count
        return told

    def _expired(self, use: Use) -> bool:
        now = self._clock.now().timestamp()
        return all(hour * _HOUR + DAY + _HOUR < now for hours in use.values() for hour in hours)

    def _ref(self, name: str) -> ObjectRef:
        return self._root / f"{quote(name, safe='')}.json"


def _hour(text: str) -> int:
    hour = int(text)
    if not 0 <= hour < 1 << 32:
        raise ValueError(f"hour {text} is none")
    return hour


def _count(count: object) -> int:
    if not isinstance(count, int) or not 0 <= count < 1 << 32:
        raise ValueError(f"a use of {count!r}")
    return count
