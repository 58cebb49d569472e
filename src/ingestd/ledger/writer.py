"""Keeping the load-state table: every batch's life, in batches of its own, without ever holding one up.

The journal is the truth, and this is told of every change of it (`Journal.witness`). Rows wait in memory, newest state
per batch, and go out together every `flush_every`. A batch whose end is not written yet keeps its record under
`Running/`, beside the one under `Done/`; that is the whole outbox, and it costs no call. So, if the process dies:

| after                   | what is there                  | who goes on, and how                                   |
|-------------------------|--------------------------------|--------------------------------------------------------|
| `Done/` was written     | both records                   | any sweep finds both and tells the end again           |
| the row was inserted    | both records, the row          | the same; the row is there twice, the views show it once |
| the rows were put away  | both records, a file of rows   | the same, and the file is brought in later             |
| `Running/` was removed  | the row, or the file of rows   | nobody has to                                          |
| the file was brought in | its rows, the file             | it is brought in again: twice there, shown once        |

When BigQuery refuses the rows they are put away as one object under `<journal>/LoadState/` and brought in when it takes
rows again. States on the way to a batch's end are told as well as can be: dying loses those that wait in memory, and
the batch's next state says more anyhow.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import orjson
import structlog
from prometheus_client import Counter, Gauge

from ingestd.batch.journal import LeaseLost
from ingestd.batch.record import Kind, Record
from ingestd.batch.sources import MANY_FILES
from ingestd.ledger.columns import row_id, row_of
from ingestd.ledger.table import LoadStateTable
from ingestd.model.aside import aside
from ingestd.model.bounded import bounded
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput, IngestError, NotFound, UnreadableObject
from ingestd.model.objects import ObjectRef
from ingestd.model.stored import LARGEST, document, placeholder, reading
from ingestd.ops.strangers import Strangers
from ingestd.ops.survival import surviving
from ingestd.ports import ObjectStore

log = structlog.get_logger(__name__)

ROWS = Counter("ingestd_load_state_rows", "Rows of the load-state table, by what became of them.", ["outcome"])
ERRORS = Counter("ingestd_load_state_errors", "Times the load-state table could not be written; it is tried again.")
WAITING = Gauge("ingestd_load_state_waiting", "Batches whose state is not written yet.")
for _outcome in ("written", "put_away", "brought_in"):
    ROWS.labels(_outcome)

_MAX_ROWS = 500  # per request, as BigQuery advises
_MAX_BYTES = 4_000_000  # of the ten million that a request may have
_AT_ONCE = 16
_LONGEST_PAUSE = timedelta(minutes=5)
_BRING_IN_EVERY = timedelta(minutes=5)
_REMEMBERED = 20_000

Forget = Callable[[], Awaitable[None]]
Row = dict[str, Any]


@dataclass(slots=True)
class _Waiting:
    record: Record
    forget: list[Forget] = field(default_factory=list)


class LoadStateWriter:
    """The journal's witness."""

    def __init__(
        self,
        table: LoadStateTable,
        store: ObjectStore,
        clock: Clock,
        *,
        put_away: ObjectRef,
        replica: str,
        flush_every: timedelta,
        max_waiting: int = 10_000,
        strangers: Strangers | None = None,
    ) -> None:
        self._table = table
        self._store = store
        self._clock = clock
        self._put_away = put_away
        self._replica = replica
        self._flush_every = flush_every
        self._max_waiting = max_waiting
        self._waiting: dict[str, _Waiting] = {}
        self._told: OrderedDict[str, tuple[object, ...]] = OrderedDict()  # the last state of batches under way
        self._some = asyncio.Event()
        self._failures = 0
        self._strangers = strangers or Strangers(clock)
        self._files = 0

    def changed(self, record: Record) -> None:
        """A batch is in another state, or has only renewed its lease: that is not told.

        Nor is an end that is not under `Done/` yet: somebody else may have ended the batch otherwise.
        """
        if record.kind is not Kind.LOAD or record.phase.final or self._told_before(record):
            return
        known = self._waiting.get(record.event_id)
        if known is None:
            if len(self._waiting) >= self._max_waiting:
                return  # what comes next of this batch says more
            self._waiting[record.event_id] = _Waiting(record)
        elif known.record.stamp.revision < record.stamp.revision:
            known.record = record
        self._some.set()

    def ended(self, record: Record, forget: Forget) -> None:
        """A load's record is final and under `Done/`."""
        known = self._waiting.get(record.event_id)
        if known is None:
            if len(self._waiting) >= self._max_waiting:
                return  # its running record stays, and a later sweep brings it back
            known = self._waiting[record.event_id] = _Waiting(record)
        elif known.record.stamp.revision <= record.stamp.revision:
            known.record = record
        known.forget.append(forget)
        self._told.pop(record.event_id, None)
        self._some.set()

    def _told_before(self, record: Record) -> bool:
        state = (record.phase, record.error, record.wait.until, record.progress.jobs, record.rows)
        if self._told.get(record.event_id) == state:
            return True
        self._told[record.event_id] = state
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        return False

    async def run(self) -> None:
        """Root task."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flush_forever(), name="load-state:flush")
            group.create_task(self._bring_in_forever(), name="load-state:bring-in")

    async def _flush_forever(self) -> None:
        while True:
            await self._some.wait()
            # What happens together goes together; the first row after a silence does not wait for long.
            await self._clock.sleep(min(self._flush_every, timedelta(seconds=1)))
            with surviving("load-state:flush", "load_state.flush_failed", ERRORS.inc):
                await self.flush()
            pause = self._flush_every * 2 ** min(self._failures, 10)
            await self._clock.sleep(min(pause, max(_LONGEST_PAUSE, self._flush_every)))

    async def _bring_in_forever(self) -> None:
        while True:
            with surviving("load-state:bring-in", "load_state.bring_in_failed", ERRORS.inc):
                await self.bring_in()
            await self._clock.sleep(_BRING_IN_EVERY)

    async def close(self) -> None:
        """Write what waits, if that is quick; what is not written is told again by another replica."""
        try:
            async with asyncio.timeout(5):
                await self.flush()
        except (TimeoutError, IngestError) as error:
            log.warning("load_state.not_flushed", waiting=len(self._waiting), error=str(error))

    async def flush(self) -> None:
        """Write what waits; rows that BigQuery refuses are put away."""
        waiting, self._waiting = self._waiting, {}
        self._some.clear()
        now = self._clock.now()
        records = [one.record for one in waiting.values()]
        heavy = sum(len(one.files) for one in records) > MANY_FILES
        chunks, broken = await aside(heavy, _rows, records, replica=self._replica, recorded=now)
        for event_id, error in broken:
            # A bug, most likely: its record stays under `Running/`, and the others' rows are written.
            ERRORS.inc()
            log.error("load_state.no_row", event_id=event_id, error=repr(error))
        refused = False
        while chunks:
            rows = chunks[0]
            try:
                refused = refused or await self._insert(rows) is not None
                if refused:
                    await self._put_rows_away(rows)
            except IngestError as error:
                # Neither BigQuery nor Cloud Storage: keep everything, memory and `Running/` alike.
                self._failures += 1
                ERRORS.inc()
                log.warning("load_state.kept", rows=sum(map(len, chunks)), error=str(error))
                for row in (row for rest in chunks for row in rest):
                    self._keep(waiting[row["event_id"]])
                break
            chunks.pop(0)
            await self._forget([one for row in rows for one in waiting[row["event_id"]].forget])
        else:
            self._failures = self._failures + 1 if refused else 0
        WAITING.set(len(self._waiting))

    def _keep(self, one: _Waiting) -> None:
        newer = self._waiting.get(one.record.event_id)
        if newer is None:
            self._waiting[one.record.event_id] = one
        else:
            newer.forget += one.forget
        self._some.set()

    async def _insert(self, rows: Sequence[Row]) -> IngestError | None:
        """Why they are not written, or None."""
        try:
            await self._table.ensure()
            await self._table.insert(rows)
        except IngestError as error:
            if isinstance(error, NotFound):
                self._table.doubt()
            ERRORS.inc()
            log.warning("load_state.refused", table=str(self._table.name), rows=len(rows), error=str(error))
            return error
        ROWS.labels("written").inc(len(rows))
        return None

    async def write(self, rows: Sequence[Row]) -> None:
        """Write these rows now, or put them away: for commands, which do not stay."""
        for chunk in _chunks((row, _length(row)) for row in rows):
            if await self._insert(chunk) is not None:
                await self._put_rows_away(chunk)

    async def _put_rows_away(self, rows: Sequence[Row]) -> None:
        self._files += 1
        stamp = self._clock.now().strftime("%Y%m%dT%H%M%S%f")
        name = f"{stamp}-{quote(self._replica, safe='')}-{self._files:06d}.json"
        await self._store.create(self._put_away / name, orjson.dumps({"rows": rows}))
        ROWS.labels("put_away").inc(len(rows))

    async def bring_in(self) -> int:
        """Insert rows that were put away, by whomever, and remove their files; how many rows."""
        files = [info async for info in self._store.list(self._put_away / "") if not placeholder(info)]
        brought = 0
        for info in files:
            try:
                data, found = await self._store.read(info.ref, largest=LARGEST)
                with reading(info.ref):
                    rows = document(data)["rows"]
                    for row in rows:
                        row_id(row)
            except NotFound:
                continue  # another replica was faster
            except UnreadableObject as error:
                ERRORS.inc()
                self._strangers.met("load_state", info.ref, error)  # nobody of us wrote it: it stays
                continue
            refusal = await self._insert(rows)
            left = rows
            if refusal is None:
                left = []
            elif not isinstance(refusal, BadInput):
                break  # BigQuery does not take rows now
            elif len(rows) > 1:
                # One of them is to blame, and the others, and files that were put away later, need not wait for it.
                left = [row for row in rows if await self._insert([row]) is not None]
                if left:
                    await self._put_rows_away(left)
            else:
                continue
            await self._store.delete(info.ref, if_generation=found.generation)
            ROWS.labels("brought_in").inc(len(rows) - len(left))
            brought += len(rows) - len(left)
        return brought

    async def _forget(self, forgetting: Sequence[Forget]) -> None:
        async def one(forget: Forget) -> None:
            try:
                await forget()
            except (LeaseLost, IngestError) as error:
                log.info("load_state.record_stays", error=str(error))  # the sweep finds it and tells it again

        await bounded(forgetting, one, _AT_ONCE)


def _rows(
    records: Sequence[Record], *, replica: str, recorded: datetime
) -> tuple[list[list[Row]], list[tuple[str, Exception]]]:
    """The records' rows, in requests; and those of which none can be made."""
    rows: list[tuple[Row, int]] = []
    broken: list[tuple[str, Exception]] = []
    for one in records:
        try:
            row = row_of(one, replica=replica, recorded=recorded)
            rows.append((row, _length(row)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the others' rows are not lost with it
            broken.append((one.event_id, error))
    return list(_chunks(rows)), broken


def _length(row: Row) -> int:
    return len(orjson.dumps(row)) + len(row_id(row))


def _chunks(rows: Iterable[tuple[Row, int]]) -> Iterator[list[Row]]:
    """As many rows as a request takes; each comes with its length."""
    chunk: list[Row] = []
    size = 0
    for row, length in rows:
        if chunk and (len(chunk) >= _MAX_ROWS or size + length > _MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += length
    if chunk:
        yield chunk
