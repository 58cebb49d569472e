"""`_bqlock` beside the data of a held table, for people who look for it there. Being allowed to write it is optional.

`_BACKFILL`, which people drop to let a table go on, goes when its backlog is empty: scripts wait for that.

Deleting it tells the table to go on. Before we delete it, the state remembers its generation (`gesture`), so that our
own deletion is not taken for somebody's wish.
"""

from collections.abc import Awaitable

import structlog

from ingestd.collect.success.listing import BACKFILL, LOCK
from ingestd.collect.success.queue import OrderedTable, Queues, TableState
from ingestd.model.errors import IngestError
from ingestd.model.objects import ObjectRef
from ingestd.ports import ObjectStore

log = structlog.get_logger(__name__)


class LockMarker:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(self, state: TableState) -> None:
        await _kindly(self._store.create(_place(state.table), state.to_json()), state.table)

    async def generation(self, table: OrderedTable) -> int:
        """Of the marker that is there; 0 when none is, or when it cannot be seen."""
        try:
            info = await self._store.stat(_place(table))
        except IngestError:
            return 0
        return info.generation if info else 0

    async def remove(self, table: OrderedTable) -> None:
        await _kindly(self._store.delete(_place(table)), table)


class BackfillFile:
    """Removed after the last batch is committed and before it leaves the queue, so that whoever dies is followed up."""

    def __init__(self, store: ObjectStore, queues: Queues) -> None:
        self._store = store
        self._queues = queues

    async def drained(self, table: OrderedTable, last: str = "") -> None:
        """Nothing but `last` is in the queue: the file goes. A newer one that takes its place meanwhile stays."""
        place = ObjectRef(table.bucket, table.prefix) / BACKFILL
        try:
            info = await self._store.stat(place)
        except IngestError:
            return  # to see it is as optional as to delete it
        if info is None or any([entry.order != last async for entry in self._queues.entries(table)]):
            return
        await _kindly(self._store.delete(place, if_generation=info.generation), table)


def _place(table: OrderedTable) -> ObjectRef:
    return ObjectRef(table.bucket, table.prefix) / LOCK


async def _kindly(work: Awaitable[object], table: OrderedTable) -> None:
    try:
        await work
    except IngestError as error:
        log.warning("ordered.no_marker", table=table.url, error=str(error))
