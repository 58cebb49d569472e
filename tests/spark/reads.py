"""Spark's readers without Spark: what a worker makes of files, and the same files loaded directly."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from tests.support.loads import schema
from tests.support.memory_objects import MemoryObjects

from ingestd.formats.options import LoadOptions
from ingestd.localcloud.bigquery.files.load import load_files
from ingestd.model.preparation import BadData, Drift
from ingestd.model.schema import Schema
from ingestd.spark.files.output import EncodeLines
from ingestd.spark.files.read_task import Reading, Report, Unit, output_schema
from ingestd.spark.files.readers import ReadPlan
from ingestd.spark.files.reserved import REPORT

EVERYTHING = schema(
    "i INT64",
    "f FLOAT64",
    "n NUMERIC",
    "b BIGNUMERIC",
    "o BOOL",
    "s STRING",
    "y BYTES",
    "d DATE",
    "t TIME",
    "dt DATETIME",
    "ts TIMESTAMP",
    "g GEOGRAPHY",
    "j JSON",
    "v INTERVAL",
    "rd RANGE<DATE>",
    "rt RANGE<TIMESTAMP>",
    "l INT64 REPEATED",
    "lt TIME REPEATED",
    "r STRUCT(x NUMERIC, y TIMESTAMP REPEATED, z STRUCT(q JSON, w BYTES REPEATED) REPEATED)",
    "lr STRUCT(x FLOAT64, y BIGNUMERIC) REPEATED",
)


class Read:
    """What one share of files became."""

    def __init__(self, table: pa.Table, schema: Schema) -> None:
        told = table.column(REPORT)
        self.rows = table.filter(pa.compute.is_null(told))
        self.reports = [Report.parse(text) for text in told.to_pylist() if text]
        self._schema = schema

    def lines(self) -> bytes:
        """The rows as prepared files in JSON have them."""
        told = EncodeLines(self._schema)(iter(self.rows.combine_chunks().to_batches()))
        return b"".join(line.encode() + b"\n" for batch in told for line in batch.column(0).to_pylist())


def read(
    folder: Path,
    contents: Mapping[str, bytes],
    schema: Schema,
    load: Mapping[str, Any],
    policy: BadData = BadData.QUARANTINE_FILE,
    drift: Drift = Drift.FREEZE,
    **more: Any,
) -> Read:
    options = LoadOptions.from_rest(load)
    plan = ReadPlan(
        schema, options, drift, skip=options.skip_leading_rows or 0, delimiter=options.delimiter or ",", **more
    )
    units = []
    for index, (name, data) in enumerate(contents.items()):
        path = folder / f"{index}"
        path.write_bytes(data)
        units.append(Unit(index, name, str(path), 0, len(data)))
    reading = Reading(plan, policy, (tuple(units),), tolerated=options.max_bad_records)
    batches = list(reading(iter([pa.record_batch({"id": [0]})])))
    return Read(pa.Table.from_batches(batches, output_schema(plan)), schema)


def direct(contents: Mapping[str, bytes], schema: Schema | None, load: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The rows of a table after a load of these files."""
    conn = duckdb.connect()
    try:
        conn.execute("SET TimeZone = 'UTC'")
        objects = MemoryObjects({f"gs://b/{name}": data for name, data in contents.items()})
        load_files(conn, objects, LoadOptions.from_rest(load), [f"gs://b/{name}" for name in contents], schema, "t")
        return conn.execute("SELECT * FROM t ORDER BY ALL").fetchall()
    finally:
        conn.close()
