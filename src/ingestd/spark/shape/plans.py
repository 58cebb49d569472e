"""What a request means for Spark: how its files are read, in which parts, and what is known before anything runs.

Pure but for looking into fetched files: at their beginnings, where columns must be detected, and for line ends, where a
large file is cut.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ingestd.formats.delimited import Dialect, by_name
from ingestd.formats.detect import detect_csv
from ingestd.formats.errors import BigQueryError
from ingestd.formats.hive import partition_columns
from ingestd.formats.inflation import BOUND, Inflation
from ingestd.formats.options import LoadOptions, SourceFormat
from ingestd.googlesql.errors import SqlError
from ingestd.model.errors import BadInput
from ingestd.model.preparation import Drift, PrepareRequest
from ingestd.model.schema import Mode, Schema
from ingestd.spark.files import inflate
from ingestd.spark.files.fetch import Fetched
from ingestd.spark.files.read_task import Unit
from ingestd.spark.files.readers import ReadPlan
from ingestd.spark.shape import pipeline
from ingestd.spark.sql.expressions import columns_of

PART_BYTES = 32 << 20  # larger files of lines are read by several tasks
HEAD_BYTES = 4 << 20  # of a file, looked at to detect columns


# Options that say where else the files or their columns are told.
_UNKNOWN_TO_SPARK = {"fileSetSpecType": "FILE_SET_SPEC_TYPE_FILE_SYSTEM_MATCH", "referenceFileSchemaUri": ""}


def check(request: PrepareRequest) -> None:
    """Refuse what can never work before anything is fetched."""
    options = _options(request)
    for name, harmless in _UNKNOWN_TO_SPARK.items():
        if request.load.get(name) not in (None, "", harmless):
            raise BadInput(f"{name} is not for batches that Spark prepares: leave it out, or load the files directly")
    given = request.schema or request.source_schema or options.autodetect
    if options.source_format in (SourceFormat.CSV, SourceFormat.JSON) and not given:
        raise BadInput("the table has no schema yet and the rule neither gives one nor asks for autodetect")


def _options(request: PrepareRequest) -> LoadOptions:
    try:
        return LoadOptions.from_rest(request.load)
    except BigQueryError as error:
        raise BadInput(f"load options: {error.message}") from None


def read_plan(
    request: PrepareRequest, present: Sequence[int], heads: Iterable[bytes], bound: Inflation = BOUND
) -> tuple[ReadPlan, dict[int, tuple[Any, ...]]]:
    """How the files are read, and what each file's path says. `heads` are looked at when columns must be detected."""
    options = replace(_options(request), inflation=bound)
    schema = request.source_schema or request.schema
    if options.source_format in _SELF_DESCRIBING and not request.source_schema and _asks_for_more(request):
        schema = ()  # the files themselves say what they have
    keys: Schema = ()
    constants: dict[int, tuple[Any, ...]] = dict.fromkeys(present, ())
    if options.hive:
        urls = {index: request.files[index].ref.url for index in present}
        try:
            keys, values = partition_columns(options.hive, list(urls.values()), schema or None)
        except BigQueryError as error:
            raise BadInput(error.message) from None
        constants = {index: values[url] for index, url in urls.items()}
        named = {item.name.lower() for item in keys}
        schema = tuple(item for item in schema if item.name.lower() not in named)
    if request.drift is Drift.EVOLVE:
        schema = tuple(replace(item, mode=Mode.NULLABLE) if item.mode is Mode.REQUIRED else item for item in schema)
    plan = ReadPlan(
        schema,
        options,
        request.drift,
        keys,
        skip=options.skip_leading_rows or 0,
        delimiter=options.delimiter or ",",
        by_name=by_name(options),
    )
    if options.source_format is SourceFormat.CSV and options.autodetect:
        plan = _detected(plan, heads)
    return plan, constants


_SELF_DESCRIBING = frozenset({SourceFormat.AVRO, SourceFormat.PARQUET, SourceFormat.ORC})


def _asks_for_more(request: PrepareRequest) -> bool:
    """Whether expressions use columns that the destination has not: then those are the files' own."""
    shaping = request.shaping
    known = {column.key for column in request.schema}
    known |= {shaping.alias.lower(), *(side.alias.lower() for side in shaping.side_inputs)}
    texts = [*shaping.transform.values(), *(side.on for side in shaping.side_inputs)]
    texts += [shaping.criteria] if shaping.criteria else []
    later = [branch.condition for branch in shaping.branches] + list(shaping.unique_columns)
    try:
        own = {_column(shaping.alias, parts) for text in texts for parts in columns_of(text)}
        own |= {_column(shaping.alias, parts) for text in later for parts in columns_of(text)} - {
            name.lower() for name in shaping.transform
        }
    except SqlError:
        return False  # told by whoever translates it
    return bool(request.schema) and not own <= known


def _column(alias: str, parts: tuple[str, ...]) -> str:
    return parts[1 if parts[0].lower() == alias.lower() and len(parts) > 1 else 0].lower()


def _detected(plan: ReadPlan, heads: Iterable[bytes]) -> ReadPlan:
    """A CSV file's separator and header and, where no columns are given, their names."""
    dialect = Dialect(plan.options, plan.delimiter)
    texts: list[str] = []
    size = 0
    for beginning in heads:
        texts.append(dialect.decode(beginning))
        size += len(texts[-1])
        if size > HEAD_BYTES:
            break
    try:
        found = detect_csv(plan.options, texts)
    except BigQueryError as error:
        raise BadInput(error.message) from None
    if not plan.schema and not found.schema:
        raise BadInput("no columns could be detected in the batch's files")
    detected = () if plan.schema else found.schema
    return replace(plan, detected=detected, delimiter=found.delimiter, skip=found.skip)


def head(fetched: Fetched, index: int) -> bytes:
    """The first lines of a fetched file."""
    place = fetched.places[index]
    with fetched.pack.open("rb") as file:
        return beginning(os.pread(file.fileno(), min(place.length, HEAD_BYTES), place.start), place.length)


def beginning(data: bytes, size: int) -> bytes:
    """The first lines of a file of that size whose first bytes are these; nothing when they make no sense."""
    whole = len(data) == size
    if inflate.compressed(data):
        found = bytearray()
        try:
            for chunk in inflate.chunks(data):
                found += chunk
                if len(found) > HEAD_BYTES:
                    whole = False
                    break
        except inflate.CorruptError:
            if whole:
                return b""
        data = bytes(found)
    return data if whole else data[: data.rfind(b"\n") + 1]


def units_of(
    request: PrepareRequest, fetched: Fetched, constants: dict[int, tuple[Any, ...]], plan: ReadPlan
) -> tuple[Unit, ...]:
    """Every fetched file, large ones of lines cut at line ends."""
    units: list[Unit] = []
    with fetched.pack.open("rb") as file:
        for index, place in sorted(fetched.places.items()):
            unit = Unit(
                index,
                request.files[index].ref.url,
                str(fetched.pack),
                place.start,
                place.length,
                constants=constants[index],
            )
            if plan.cuttable and place.length > 2 * PART_BYTES:
                units += _parts(file.fileno(), unit)
            else:
                units.append(unit)
    return tuple(units)


def _parts(descriptor: int, unit: Unit) -> list[Unit]:
    if inflate.compressed(os.pread(descriptor, 16, unit.start)):
        return [unit]
    parts: list[Unit] = []
    at, end = unit.start, unit.start + unit.length
    while at < end:
        stop = _line_end(descriptor, min(at + PART_BYTES, end), end)
        parts.append(replace(unit, start=at, length=stop - at, part=len(parts), followed=stop < end))
        at = stop
    return parts


def _line_end(descriptor: int, at: int, end: int) -> int:
    """The place after the first newline from there on."""
    while at < end:
        step = os.pread(descriptor, min(1 << 20, end - at), at)
        found = step.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(step)
    return end


def work_of(
    request: PrepareRequest,
    plan: ReadPlan,
    units: tuple[Unit, ...],
    target: str,
    sides: pipeline.Sides | None,
    cores: int,
) -> pipeline.Work:
    return pipeline.Work(
        plan=plan,
        units=units,
        destination=request.schema,
        shaping=request.shaping,
        policy=request.bad_data,
        absent=request.absent,
        layout=request.layout,
        target=target,
        names=tuple(file.ref.url for file in request.files),
        order=pipeline.rank([(file.event_time, file.ref.name) for file in request.files]),
        cores=cores,
        sides=sides,
    )
