"""Which replicas are alive.

Each replica rewrites one small object every few seconds. Others do not compare clocks: a replica is dead when its
object has not changed for the length of the lease, as measured by the observer's own monotonic clock. So clocks that
are minutes apart change nothing, and the cost does not grow with the number of windows.
"""

from datetime import timedelta
from urllib.parse import quote, unquote

import structlog
from prometheus_client import Counter, Gauge

from ingestd.model.clock import Clock
from ingestd.model.objects import Generation, ObjectRef
from ingestd.ops.survival import surviving
from ingestd.ports import ObjectStore

log = structlog.get_logger(__name__)

ALIVE = Gauge("ingestd_replicas_alive", "Replicas whose heartbeat was seen within the lease.")
MISSED = Counter("ingestd_heartbeat_errors", "Heartbeats that could not be written.")


class Replicas:
    def __init__(self, store: ObjectStore, root: ObjectRef, clock: Clock, *, name: str, lease: timedelta) -> None:
        self._store = store
        self._root = root
        self._clock = clock
        self._name = name
        self._lease = lease
        self._seen: dict[str, tuple[Generation, float]] = {}
        self._beating: frozenset[str] = frozenset()  # who had a heartbeat at the last look

    @property
    def name(self) -> str:
        return self._name

    @property
    def living(self) -> set[str]:
        """Everybody whose heartbeat was seen within the lease, and this one."""
        return {unquote(name) for name in self._beating if self._fresh(name)} | {self._name}

    async def beat_forever(self) -> None:
        """Root task."""
        while True:
            with surviving("heartbeat", "replica.heartbeat_failed", MISSED.inc):
                await self._store.create(self._ref(self._name), b"{}")
            await self._clock.sleep(self._lease / 3)

    async def observe(self) -> None:
        """Look at everybody's heartbeat; owners unknown from now on count as just seen."""
        now = self._clock.monotonic()
        root = self._root / ""
        listed = [(info.ref.name[len(root.name) :], info.generation) async for info in self._store.list(root)]
        beats = {name: generation for name, generation in listed if name and "/" not in name}
        for name, generation in beats.items():
            known = self._seen.get(name)
            if known is None or known[0] != generation:
                self._seen[name] = (generation, now)
        self._beating = frozenset(beats)
        ALIVE.set(sum(1 for name in beats if self._fresh(name)))
        for name in [name for name, (_, seen) in self._seen.items() if now - seen > 3600]:
            await self._store.delete(self._root / name)  # long gone: its file would only be listed for ever
            del self._seen[name]
        self._beating = frozenset(name for name in self._beating if name in self._seen)

    def dead(self, owner: str) -> bool:
        """Whether this owner has shown no sign of life for a whole lease."""
        if owner == self._name:
            return False
        name = quote(owner, safe="")
        if name not in self._seen:
            self._seen[name] = (Generation(0), self._clock.monotonic())
        return not self._fresh(name)

    def _fresh(self, name: str) -> bool:
        return self._clock.monotonic() - self._seen[name][1] < self._lease.total_seconds()

    def _ref(self, name: str) -> ObjectRef:
        return self._root / quote(name, safe="")
