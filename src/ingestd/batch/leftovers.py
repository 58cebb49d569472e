"""Prepared files that no batch needs any more: attempts that died, or that a paused replica finished too late.

A batch has its record under `Running/` before anything of it is prepared, until after its folder was emptied. So what
is found in the staging area first, and whose batch is not found under `Running/` afterwards, belongs to nobody. Only
objects that were seen are deleted: a batch that is reopened meanwhile writes others. And only those whose names are
made as ours are: whoever points `staging_url` at a folder with other things in it does not lose them.
"""

import re
from datetime import timedelta

import structlog
from prometheus_client import Counter

from ingestd.batch.journal import Journal
from ingestd.model.clock import Clock
from ingestd.model.errors import PreconditionFailed, raise_first
from ingestd.model.objects import ObjectInfo, ObjectRef
from ingestd.ops.survival import surviving
from ingestd.ports import Deletion, ObjectStore

log = structlog.get_logger(__name__)

COLLECTED = Counter("ingestd_staging_leftovers", "Prepared files of dead attempts that were removed.")

_OURS = re.compile(r"(\d{10,20})/(?:[1-9]\d*|spark-\w+)/.")  # `<event id>/<attempt>/…`, `<event id>/spark-<step>/…`


class Leftovers:
    def __init__(
        self, store: ObjectStore, staging: ObjectRef, journal: Journal, clock: Clock, *, every: timedelta
    ) -> None:
        self._store = store
        self._staging = staging
        self._journal = journal
        self._clock = clock
        self._every = every

    async def run(self) -> None:
        """Root task."""
        while True:
            await self._clock.sleep(self._every)
            with surviving("sweep:staging", "sweep.failed", what="staging"):
                await self.collect()

    async def collect(self) -> int:
        """Remove what belongs to no running batch; how many objects."""
        root = self._staging / ""
        found: dict[str, list[ObjectInfo]] = {}
        async for info in self._store.list(root):
            if ours := _OURS.match(info.ref.name, len(root.name)):
                found.setdefault(ours[1], []).append(info)
        if not found:
            return 0
        async for entry in self._journal.entries():
            found.pop(entry.event_id, None)
        left = [info for infos in found.values() for info in infos]
        if left:
            removed = await self._store.delete_all([Deletion(info.ref, info.generation) for info in left])
            raise_first(removed, but=PreconditionFailed)  # one that was written anew stays
            COLLECTED.inc(len(left))
            log.info("staging.collected", objects=len(left), batches=sorted(found)[:3])
        return len(left)
