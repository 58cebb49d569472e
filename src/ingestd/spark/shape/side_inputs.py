"""Side inputs: small BigQuery tables, the rows of a query, or files, that a batch is joined with on Spark.

They are read through the clients into Arrow once and kept in memory: a table's rows until it is changed (its last
modification is asked for each batch) or the time to live is over, a query's rows until then. Rows that are too many are
refused, and so are tables whose size says so before anything is read. Small rows are broadcast, so the batch itself is
never shuffled for a join.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import structlog

from ingestd.googlesql.words import parameters_in
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput, IngestError, NotFound
from ingestd.model.preparation import Shaping, SideInput
from ingestd.model.tables import TableName
from ingestd.ports import FileStore, TableReader, TableRows, Warehouse
from ingestd.spark.files.carriers import carry, spark_ddl
from ingestd.spark.files.side_files import SCHEME, SideFiles, look, read_files
from ingestd.spark.shape.steps import SideFrame
from ingestd.warehouse.statements import rest_parameter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)

BROADCAST_BYTES = 64 << 20
KEPT = 4  # as many times the most that one may have

Sides = Callable[["SparkSession"], Mapping[str, SideFrame]]
_Key = tuple[str, ...]
_Source = TableName | SideFiles | str


@dataclass(frozen=True, slots=True)
class _Kept:
    rows: TableRows  # as they go to Spark
    version: str
    until: float

    @property
    def size(self) -> int:
        return int(self.rows.table.nbytes)


class SideInputs:
    """Rows for joins, read once and shared by the batches that need them."""

    def __init__(
        self,
        warehouse: Warehouse,
        tables: TableReader,
        clock: Clock,
        *,
        store: FileStore | None = None,
        most: int = 256 << 20,
        ttl: timedelta = timedelta(minutes=5),
    ) -> None:
        self._store = store
        self._warehouse = warehouse
        self._tables = tables
        self._clock = clock
        self._most = most
        self._ttl = ttl.total_seconds()
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._reading: dict[_Key, asyncio.Lock] = {}

    async def ready(self, shaping: Shaping) -> Sides:
        """The rows of every side input; what comes back makes frames of them in a session's thread."""
        found = {}
        for side in shaping.side_inputs:
            try:
                found[side.alias] = await self._rows(side, shaping)
            except NotFound as error:
                raise NotFound(f"side input {side.alias}: {error}") from error
            except BadInput as error:
                raise BadInput(f"side input {side.alias}: {error}") from error
        return lambda session: {alias: side_frame(session, rows) for alias, rows in found.items()}

    async def _rows(self, side: SideInput, shaping: Shaping) -> TableRows:
        if side.table is not None:
            name = side.table.in_project(self._warehouse.project)
            source: _Source
            key: _Key = ("table", str(name))
            parameters: list[dict[str, Any]] = []
            version, source = await self._version(name)
        elif side.select.strip().startswith(SCHEME):
            if self._store is None:
                raise BadInput("this daemon has no way to read files for joins")
            source = await look(self._store, side.select, self._most)
            key, version, parameters = ("files", side.select), source.version, []
        else:
            used = parameters_in(side.select, shaping.parameters)
            parameters = [rest_parameter(name, value) for name, value in shaping.parameters.items() if name in used]
            source, version = side.select, ""
            key = ("query", side.select, repr(parameters))
        lock = self._reading.setdefault(key, asyncio.Lock())
        async with lock:  # whoever comes meanwhile waits for the first one's rows
            kept = self._kept.get(key)
            if kept is None or kept.version != version or kept.until <= self._clock.monotonic():
                kept = await self._read(key, source, version, parameters)
            self._kept[key] = kept
            self._kept.move_to_end(key)
        self._forget()
        return kept.rows

    async def _version(self, name: TableName) -> tuple[str, TableName | str]:
        """What tells one state of a table from the next, and how to read it: a view has rows only by a query."""
        info = await self._warehouse.table(name)
        if info is None:
            raise NotFound(f"there is no table {name}")
        size = int(info.resource.get("numBytes") or 0)
        if size > self._most and name.decorator is None:
            raise BadInput(f"{name} has {size} bytes; a side input may have {self._most} at most")
        version = f"{info.resource.get('lastModifiedTime')}/{info.resource.get('etag')}"
        if info.resource.get("type", "TABLE") not in ("TABLE", "SNAPSHOT"):
            return "", f"SELECT * FROM {name.sql}"  # noqa: S608 - a table's name holds nothing else
        return version, name

    async def _read(self, key: _Key, source: _Source, version: str, parameters: Sequence[Mapping[str, Any]]) -> _Kept:
        began = self._clock.monotonic()
        try:
            carried = await self._fetched(source, parameters)
        except IngestError:
            self._kept.pop(key, None)
            raise
        log.info(
            "side_input.read",
            source=key[1][:200],
            rows=carried.table.num_rows,
            bytes=carried.table.nbytes,
            seconds=round(self._clock.monotonic() - began, 3),
        )
        return _Kept(carried, version, began + self._ttl)

    async def _fetched(self, source: _Source, parameters: Sequence[Mapping[str, Any]]) -> TableRows:
        if isinstance(source, SideFiles):
            assert self._store is not None
            return await read_files(self._store, source, self._most)
        rows = await self._tables.read(source, parameters=parameters, most=self._most)
        return replace(rows, table=await asyncio.to_thread(carry, rows.table, rows.schema))

    def _forget(self) -> None:
        """Expired rows go, and the least used ones when all together are too many."""
        now = self._clock.monotonic()
        for key in [key for key, kept in self._kept.items() if kept.until <= now]:
            del self._kept[key]
        while len(self._kept) > 1 and sum(kept.size for kept in self._kept.values()) > KEPT * self._most:
            self._kept.popitem(last=False)
        for key in [key for key, lock in self._reading.items() if key not in self._kept and not lock.locked()]:
            del self._reading[key]


def side_frame(session: "SparkSession", rows: TableRows) -> SideFrame:
    """The rows as Spark joins them."""
    from pyspark.sql import functions as sql

    table: Any = rows.table  # PySpark takes Arrow tables; its annotations do not say so
    frame = session.createDataFrame(table, spark_ddl(rows.schema))
    if rows.table.nbytes <= BROADCAST_BYTES:
        frame = sql.broadcast(frame)
    return SideFrame(frame, rows.schema)
