"""The daemon's own backfill: on a timer it looks for files whose notification was lost, and takes them.

Each prefix has a note, `<journal>/sweep/<hash>.json`: when it was last looked through, and until which creation time
everything in it is accounted for. A replica that wants to look writes the note first (naming the generation it
replaces), so of several replicas one looks. Dying in the middle costs a round: `through` is written at the end, and
only when nothing was left over, so the next round starts from the same place.

What a look costs: a list call per 1,000 objects of the prefix, and a look-up for objects created since the last one.
"""

from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import orjson
import structlog
from prometheus_client import Counter

from ingestd.ledger.announcing import Announcer
from ingestd.ledger.backfill import Account, Backfill, Period
from ingestd.model.clock import Clock
from ingestd.model.errors import NotFound, PreconditionFailed, UnreadableObject
from ingestd.model.objects import ABSENT, Generation, ObjectInfo, ObjectRef
from ingestd.model.stored import LARGEST, document, instant, reading
from ingestd.ops.strangers import Strangers
from ingestd.ops.survival import surviving
from ingestd.ports import ObjectStore

log = structlog.get_logger(__name__)

LOOKS = Counter("ingestd_sweep_looks", "Prefixes looked through for files that nobody announced.")
OBJECTS = Counter("ingestd_sweep_objects", "Objects listed by those looks.")
FOUND = Counter("ingestd_sweep_files_found", "Files found that nobody had announced, and taken.")
FAILED = Counter("ingestd_sweep_look_errors", "Looks that failed and are repeated.")

_OFTEN = timedelta(seconds=30)


class LostFiles:
    def __init__(
        self,
        store: ObjectStore,
        backfill: Backfill,
        announcer: Announcer,
        clock: Clock,
        *,
        notes: ObjectRef,
        replica: str,
        prefixes: tuple[ObjectRef, ...],
        every: timedelta,
        older_than: timedelta,
        max_files: int,
    ) -> None:
        self._store = store
        self._backfill = backfill
        self._announcer = announcer
        self._clock = clock
        self._notes = notes
        self._replica = replica
        self._prefixes = prefixes
        self._every = every
        self._older_than = older_than
        self._max_files = max_files
        self._strangers = Strangers(clock)

    async def run(self) -> None:
        """Root task."""
        while True:
            for prefix in self._prefixes:
                with surviving("sweep:lost-files", "sweep.look_failed", FAILED.inc, prefix=prefix.url):
                    await self.look(prefix)
            await self._clock.sleep(min(self._every, max(_OFTEN, self._every / 10)))

    async def look(self, prefix: ObjectRef) -> Account | None:
        """Look through the prefix if it is time, and if no other replica does."""
        now = self._clock.now()
        note, generation = await self._read(prefix)
        # A look in the far future is one of a replica whose clock was wrong.
        looked = instant(note.get("Looked"))
        if looked is not None and now - self._every < looked <= now + self._every:
            return None
        through = instant(note.get("Through"))
        claimed = await self._write(prefix, now, through, generation)
        if claimed is None:
            return None
        until = await self._until(prefix, now)
        LOOKS.inc()
        period = Period(through, until)
        account = await self._backfill.run(prefix, self._announcer, period=period, limit=self._max_files)
        OBJECTS.inc(account.objects)
        FOUND.inc(account.told.taken)
        if account.told.taken >= self._max_files or account.told.returned:
            return account  # there may be more: the next look begins where this one did
        await self._write(prefix, now, until, claimed)
        if account.missing:
            log.warning("sweep.files_found", prefix=prefix.url, files=account.missing, examples=account.examples[:3])
        return account

    async def _until(self, prefix: ObjectRef, now: datetime) -> datetime:
        """Objects that were there by then are accounted for after this look. If our clock is ahead, Cloud Storage's
        counts, which says when it took our note: files of the time between would never be looked for.
        """
        claimed = await self._store.stat(self._ref(prefix))
        return min(now, claimed.created if claimed else now) - self._older_than

    def _ref(self, prefix: ObjectRef) -> ObjectRef:
        return self._notes / f"{sha256(prefix.url.encode()).hexdigest()[:16]}.json"

    async def _read(self, prefix: ObjectRef) -> tuple[dict[str, Any], Generation]:
        """What the note says; one that cannot be read says nothing, and the whole prefix is looked through anew."""
        ref = self._ref(prefix)
        info: ObjectInfo | None = None
        try:
            data, info = await self._store.read(ref, largest=LARGEST)
            with reading(ref):
                return document(data), info.generation
        except NotFound:
            return {}, ABSENT
        except UnreadableObject as error:
            self._strangers.met("notes", ref, error)
            info = info or await self._store.stat(ref)
            return {}, info.generation if info else ABSENT

    async def _write(
        self, prefix: ObjectRef, looked: datetime, through: datetime | None, generation: Generation
    ) -> Generation | None:
        note = {"Prefix": prefix.url, "Looked": looked, "Through": through, "Replica": self._replica}
        try:
            return await self._store.create(self._ref(prefix), orjson.dumps(note), if_generation=generation)
        except PreconditionFailed:
            return None
