"""Spark SQL over a batch's rows: the `spark` post-action's half that runs on Spark.

The batch's files (its prepared ones, or its sources) are read as the preparer reads them and become the view `batch`;
the statement's rows are written, uploaded and named in a manifest as a prepared attempt's are. So the same holds: a run
that dies leaves files that nobody names, and one whose manifest exists is the answer whenever it is asked for again.
"""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ingestd.model.errors import BadInput
from ingestd.model.objects import ObjectRef
from ingestd.model.preparation import FileLayout, Output, Prepared, PrepareRequest
from ingestd.model.schema import Schema
from ingestd.ports import FileStore
from ingestd.spark.files.carriers import spark_type
from ingestd.spark.files.output import Format
from ingestd.spark.files.reserved import FILE, HOME, LINE, REPORT
from ingestd.spark.files.scratch import Scratch
from ingestd.spark.preparer import SparkPreparer, Where
from ingestd.spark.session.failures import explain
from ingestd.spark.session.session import Spark
from ingestd.spark.shape import pipeline
from ingestd.spark.shape.quarantine import Verdict
from ingestd.spark.sql.types import DECIMALS, from_spark, quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField, StructType

VIEW = "batch"
# The batch's files were loaded, so they can be read. If one cannot any more, or has more bad rows than its load allows,
# that is told instead of passed over; it is told by the rows themselves, since a statement may read the view twice, or
# only a column of it. Asking for the partition keeps Spark from asking anything else of a row before: it moves no
# filter past one whose answer may differ from task to task.
_TOLD = f"""CASE WHEN {REPORT} IS NULL THEN true
    WHEN get_json_object({REPORT}, '$.whole') IS NULL AND {{bad}} <= {{tolerated}} THEN spark_partition_id() < 0
    ELSE raise_error(concat('unreadable [', coalesce(get_json_object({REPORT}, '$.index'), '0'), ' ',
        coalesce(get_json_object({REPORT}, '$.line'), '-'), ' ',
        left(get_json_object({REPORT}, '$.why'), 1000), ']')) END"""
_BAD = f"coalesce(CAST(get_json_object({REPORT}, '$.bad') AS BIGINT), 0)"
_UNREADABLE = re.compile(r"unreadable \[(\d+) (\d+|-) (.*?)\](?= SQLSTATE|$)")
_AVRO = "org.apache.spark.sql.avro.AvroFileFormat"  # by its class: the name `avro` is only known with a package


@dataclass(frozen=True, slots=True)
class ResultFormat(Format):
    """How a statement's rows are written."""

    writer: str  # as Spark names it
    ending: str

    @property
    def suffix(self) -> str:
        return self.ending

    @property
    def load_options(self) -> dict[str, Any]:
        """Decimals become the smallest type that holds them."""
        if self.name != "PARQUET":
            return {}
        return {
            "parquetOptions": {"enableListInference": True},
            "decimalTargetTypes": [kind.value for kind in DECIMALS],
        }


_FORMATS = {
    "PARQUET": ("parquet", ".parquet", "zstd"),
    "AVRO": (_AVRO, ".avro", "snappy"),
    "ORC": ("orc", ".orc", "zstd"),
    "NEWLINE_DELIMITED_JSON": ("json", ".json", "none"),
    "CSV": ("csv", ".csv", "none"),
}
_CODECS = {
    "PARQUET": {"none": "uncompressed", "snappy": "snappy", "gzip": "gzip", "zstd": "zstd"},
    "AVRO": {"none": "uncompressed", "snappy": "snappy", "deflate": "deflate", "zstd": "zstandard"},
    "ORC": {"none": "none", "snappy": "snappy", "gzip": "zlib", "zstd": "zstd"},
    "NEWLINE_DELIMITED_JSON": {"none": "none", "gzip": "gzip"},
    "CSV": {"none": "none", "gzip": "gzip"},
}
# Spark's text has milliseconds, and its CSV is trimmed and escaped with backslashes, which BigQuery does not know.
_MICROSECONDS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_WRITING = {
    "NEWLINE_DELIMITED_JSON": _MICROSECONDS,
    "CSV": _MICROSECONDS
    | {"header": "true", "escape": '"', "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"},
}


def result_format(layout: FileLayout) -> ResultFormat:
    name = layout.format or "PARQUET"
    writer, suffix, codec = _FORMATS[name]
    if layout.compression:
        known = _CODECS[name]
        if layout.compression.lower() not in known:
            raise BadInput(f"Compression {layout.compression} is none of {', '.join(known).upper()} for {name}")
        codec = known[layout.compression.lower()]
    packed = name in ("NEWLINE_DELIMITED_JSON", "CSV") and codec == "gzip"
    return ResultFormat(name, codec, writer, suffix + (".gz" if packed else ""))


class SparkStatements:
    """`SparkSql` on the daemon's session."""

    def __init__(self, spark: Spark, store: FileStore, scratch: Scratch, where: Where) -> None:
        self._parts = (spark, store, scratch, where)

    async def query(self, statement: str, request: PrepareRequest) -> Prepared:
        return await _Statement(*self._parts, statement=statement).prepare(request)

    async def discard(self, folder: ObjectRef) -> None:
        await SparkPreparer(*self._parts).discard(folder)


class _Statement(SparkPreparer):
    """A preparer whose rows come out of a statement."""

    def __init__(self, spark: Spark, store: FileStore, scratch: Scratch, where: Where, *, statement: str) -> None:
        super().__init__(spark, store, scratch, where)
        self._statement = statement

    async def _run(self, request: PrepareRequest, work: pipeline.Work) -> pipeline.Made:
        return await self._spark.run(
            lambda session: execute(session, work, self._statement),
            tag=f"sql/{request.batch}",
            pool="actions",
            table=request.table,
        )

    # A result without rows is one, too: its file has the columns, and replaces what a table held before.

    async def _upload(self, request: PrepareRequest, made: pipeline.Made) -> tuple[tuple[Output, ...], tuple[str, ...]]:
        outputs, rejected = await super()._upload(request, _kept(made))
        return _counted(outputs, made), rejected

    async def _listed(self, made: pipeline.Made) -> tuple[Output, ...]:
        return _counted(await super()._listed(_kept(made)), made)


def _kept(made: pipeline.Made) -> pipeline.Made:
    return replace(made, rows={HOME: max(made.rows[HOME], 1)})


def _counted(outputs: tuple[Output, ...], made: pipeline.Made) -> tuple[Output, ...]:
    return tuple(replace(output, rows=made.rows[HOME]) for output in outputs)


def execute(session: "SparkSession", work: pipeline.Work, statement: str) -> pipeline.Made:
    """Run the statement over the files' rows; its own rows are in `Made.target` when this returns."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    form = result_format(work.layout)
    work = replace(work, rejects="")
    if not work.plan.schema:  # files that nobody described say themselves what they have
        work = replace(work, plan=replace(work.plan, schema=pipeline.detect(session, work)))
    tolerated = work.plan.options.max_bad_records
    frame = pipeline.read_rows(session, work, tolerated)
    frame = frame.where(_TOLD.format(bad=_BAD, tolerated=tolerated)).drop(FILE, LINE, REPORT)
    frame.selectExpr("*", *_absent(work.destination, frame.columns)).createOrReplaceTempView(VIEW)
    result = session.sql(statement)
    if not result.columns:
        raise BadInput("the statement of a `spark` action returns no rows; give a SELECT")
    target = f"{work.target}/{uuid.uuid4().hex[:8]}"
    counted = Observation(f"result-{uuid.uuid4().hex[:8]}")
    if form.name == "CSV":
        result = result.selectExpr(*map(_in_csv, result.schema))
    writer = result.observe(counted, sql.count(sql.lit(1)).alias("rows")).write.mode("error").format(form.writer)
    writer = writer.options(compression=form.codec, **_WRITING.get(form.name, {}))
    try:
        writer.save(target)
    except Exception as error:
        if (told := _unreadable(explain(error), work.names)) is not None:
            raise told from None
        raise
    columns = result_columns(result.schema) if form.name == "PARQUET" else ()
    return pipeline.Made(target, form, columns, Verdict(), {HOME: counted.get["rows"]})


def result_columns(result: "StructType") -> Schema:
    """The columns for a load to name, where its files do not say them: a time without a zone reads as an instant.

    Empty where the file tells all: columns of the table may then be of a type that BigQuery makes of the file's.
    """
    if "timestamp_ntz" not in result.simpleString():
        return ()
    return tuple(from_spark(item.name, item.dataType) for item in result)


def _in_csv(column: "StructField") -> str:
    """A column of a CSV file: BYTES as BigQuery writes and reads them there, in base64."""
    name = quote(column.name)
    return f"base64({name}) AS {name}" if column.dataType.typeName() == "binary" else name


def _absent(destination: Schema, columns: Sequence[str]) -> list[str]:
    """The table's columns that the files have not, as the table has them: NULL."""
    there = {name.lower() for name in columns}
    return [
        f"CAST(NULL AS {spark_type(item)}) AS {quote(item.name)}"
        for item in destination
        if item.name.lower() not in there
    ]


def _unreadable(text: str, names: Sequence[str]) -> BadInput | None:
    """The file that made the statement fail, if one did."""
    found = _UNREADABLE.search(text)
    if found is None:
        return None
    name, line = names[int(found[1])], "" if found[2] == "-" else f", line {found[2]}"
    return BadInput(f"{name}{line}: {found[3]}", (name,))
