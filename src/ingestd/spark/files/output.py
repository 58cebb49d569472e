"""Prepared files: in which format, how large, and how rows become lines where only text carries them exactly.

Parquet (Zstandard) unless the schema has a column that only text carries (`carriers.textual`): then newline-delimited
JSON (gzip), whose values BigQuery parses by the explicit schema. Numbers that a double would not hold are written as
text.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from ingestd.model.errors import BadInput
from ingestd.model.preparation import FileLayout
from ingestd.model.schema import Field, Mode, Schema, Type
from ingestd.spark.files.carriers import spark_type, textual
from ingestd.spark.files.reserved import BRANCH
from ingestd.spark.sql.types import quote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

PARQUET, NDJSON = "PARQUET", "NEWLINE_DELIMITED_JSON"
_NAMES = {"": "", "PARQUET": PARQUET, "JSON": NDJSON, "NDJSON": NDJSON, NDJSON: NDJSON}
_CODECS = {
    PARQUET: {"": "zstd", "zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "none": "uncompressed"},
    NDJSON: {"": "gzip", "gzip": "gzip", "none": "none"},
}
SUFFIX = ".parquet"
_SUFFIX = {PARQUET: SUFFIX, NDJSON: ".json"}
FAST_LEVEL = 1  # of Zstandard: written once, read once, deleted; the next take longer for a few hundredths of the size
_FAST = {
    # A dictionary of many values costs more time than Zstandard takes to find the same repetitions.
    "parquet.dictionary.page.size": str(64 << 10),
    "parquet.page.row.count.limit": "200000",
    "parquet.compression.codec.zstd.level": str(FAST_LEVEL),
    # For readers that skip parts of a file; a load reads all of it, once.
    "parquet.column.statistics.enabled": "false",
    "parquet.size.statistics.enabled": "false",
}
_EXACT_IN_DOUBLE = 1 << 53  # whoever reads JSON's numbers as doubles rounds larger ones
_RANGE = re.compile(r"\[(.*), (.*)\)")


@dataclass(frozen=True, slots=True)
class Format:
    name: str  # as BigQuery names it
    codec: str

    @property
    def suffix(self) -> str:
        return _SUFFIX[self.name] + (".gz" if self.name == NDJSON and self.codec == "gzip" else "")

    @property
    def load_options(self) -> dict[str, Any]:
        """What a load of such files needs to be told."""
        if self.name == NDJSON:
            return {}
        # Without the map, BigQuery takes a name with a blank or an umlaut in a file for another one.
        return {"parquetOptions": {"enableListInference": True}, "columnNameCharacterMap": "V2"}


def choose(layout: FileLayout, schema: Schema) -> Format:
    """The format for these columns; `BadInput` when the one asked for cannot carry them."""
    asked = _NAMES.get(layout.format.upper())
    if asked is None:
        raise BadInput(f"Merge.Format {layout.format!r} is none of PARQUET and NEWLINE_DELIMITED_JSON")
    only_text = textual(schema)
    if asked == PARQUET and only_text:
        raise BadInput(
            f"Merge.Format PARQUET cannot carry {', '.join(only_text)} exactly: ask for NEWLINE_DELIMITED_JSON, or "
            "leave the format out"
        )
    name = asked or (NDJSON if only_text else PARQUET)
    codec = _CODECS[name].get(layout.compression.lower())
    if codec is None:
        known = ", ".join(known for known in _CODECS[name] if known)
        raise BadInput(f"Merge.Compression {layout.compression!r} is none of {known} for {name}")
    return Format(name, codec)


def make_folder(target: str) -> None:
    """The folder on this machine's disk, and those in it that Spark's committer makes for its tasks.

    It would start a process to set the permissions of each folder that it makes itself: tens of milliseconds a batch.
    """
    (Path(target) / "_temporary" / "0" / "_temporary").mkdir(parents=True)


def write(
    frame: "DataFrame",
    schema: Schema,
    form: Format,
    target: str,
    *,
    branches: bool,
    ready: bool = False,
    made: bool = False,
) -> None:
    """Run the plan: this is where everything happens.

    `ready`: the frame has just these columns, in this order. `made`: the folder is there, and empty.
    """
    columns = [BRANCH] if branches else []
    if form.name == NDJSON:
        lines = "value STRING" + (f", {BRANCH} INT" if branches else "")
        frame = frame.mapInArrow(EncodeLines(schema, branches=branches), lines).select("value", *columns)
    else:
        presented = [_present(item) for item in schema]
        if not ready or presented != [quote(item.name) for item in schema]:
            frame = frame.selectExpr(*presented, *columns)
    writer = frame.write.mode("append" if made else "error").options(**_FAST).option("compression", form.codec)
    if branches:
        writer = writer.partitionBy(BRANCH)
    if form.name == NDJSON:
        writer.text(target)
    else:
        writer.parquet(target)


_FILLERS = {
    Type.INT64: "0",
    Type.FLOAT64: "0",
    Type.NUMERIC: "0",
    Type.BOOL: "false",
    Type.STRING: "''",
    Type.BYTES: "''",
    Type.DATE: "'1970-01-01'",
    Type.DATETIME: "'1970-01-01'",
    Type.TIMESTAMP: "'1970-01-01'",
}


def declared(field: Field) -> bool:
    """Whether a file says that the column has no NULL: BigQuery compares a file's modes with the table's."""
    return field.mode is Mode.REQUIRED and field.type in _FILLERS


def _present(field: Field) -> str:
    """The column; one that is REQUIRED is declared so.

    No such value is NULL (the caller counts them and refuses the batch): the filler only tells Spark so.
    """
    name = quote(field.name)
    if declared(field):
        return f"coalesce({name}, CAST({_FILLERS[field.type]} AS {spark_type(field)})) AS {name}"
    if field.mode is Mode.REPEATED:
        # BigQuery has no NULL arrays; a transformation may.
        return f"coalesce({name}, CAST(array() AS {spark_type(field)})) AS {name}"
    return name


@dataclass(frozen=True, slots=True)
class EncodeLines:
    """Rows to lines of JSON, in Spark's workers."""

    schema: Schema
    branches: bool = False

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa

        for batch in batches:
            lines = [self._line(row) for row in batch.to_pylist()]
            columns = {"value": pa.array(lines, pa.string())}
            if self.branches:
                columns[BRANCH] = batch.column(BRANCH).cast(pa.int32())
            yield pa.RecordBatch.from_pydict(columns)

    def _line(self, row: Mapping[str, Any]) -> str:
        return orjson.dumps(_members(self.schema, row)).decode()


def _members(schema: Schema, row: Mapping[str, Any]) -> dict[str, Any]:
    return {item.name: told for item in schema if (told := _value(item, row[item.name])) is not None}


def _value(field: Field, value: Any) -> Any:
    if value is None:
        return None
    if field.mode is Mode.REPEATED:
        return [_scalar(field, item) for item in value]
    return _scalar(field, value)


def _scalar(field: Field, value: Any) -> Any:
    match field.type:
        case Type.STRUCT:
            return _members(field.fields, value)
        case Type.JSON:
            return orjson.Fragment(value)
        case Type.RANGE:
            return _range(field, value)
        case Type.BYTES:
            return base64.b64encode(value).decode()
        case Type.INT64:
            return value if abs(value) < _EXACT_IN_DOUBLE else str(value)
        case Type.NUMERIC:
            return f"{value:f}"
        case Type.FLOAT64:
            return value if value - value == 0 else str(value)
        case Type.DATE | Type.DATETIME:
            return value.isoformat()
        case Type.TIMESTAMP:
            return value.replace(tzinfo=None).isoformat() + "Z"
        case _:
            return value


def _range(field: Field, text: str) -> dict[str, Any]:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ValueError(f"{field.name}: {text!r} is no RANGE")
    ends = zip(("start", "end"), found.groups(), strict=True)
    return {name: None if bound in ("UNBOUNDED", "NULL") else bound for name, bound in ends}
