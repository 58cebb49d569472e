"""Side inputs that are files: `From: gs://bucket/folder/*.csv`, read whole, their columns told by their content.

The files are read as a batch's own are (NDJSON, CSV with a header, Avro, Parquet, ORC, compressed or not); a side input
with a row that cannot be read is refused, since a join would lose it without a word. The names and generations of the
files tell one state from the next.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ingestd.formats.delimited import Dialect
from ingestd.formats.detect import detect_csv
from ingestd.formats.errors import BigQueryError
from ingestd.formats.inflation import Inflation
from ingestd.formats.options import LoadOptions, SourceFormat
from ingestd.model.errors import BadInput, NotFound, Transient
from ingestd.model.objects import ObjectInfo, ObjectRef
from ingestd.model.preparation import Drift
from ingestd.model.schema import Schema
from ingestd.ports import FileStore, TableRows
from ingestd.spark.files import inflate
from ingestd.spark.files.readers import Bad, Good, ReadPlan, Unknown, reader
from ingestd.spark.files.unknown import agree, extended

if TYPE_CHECKING:
    import pyarrow as pa

SCHEME = "gs://"
_FORMATS = {
    ".json": SourceFormat.JSON, ".jsonl": SourceFormat.JSON, ".ndjson": SourceFormat.JSON, ".csv": SourceFormat.CSV,
    ".avro": SourceFormat.AVRO, ".parquet": SourceFormat.PARQUET, ".orc": SourceFormat.ORC,
}  # fmt: skip
_COMPRESSED = (".gz", ".bz2", ".zst")


@dataclass(frozen=True, slots=True)
class SideFiles:
    """The files of a side input, as they are now."""

    form: SourceFormat
    files: tuple[ObjectInfo, ...]

    @property
    def version(self) -> str:
        return " ".join(f"{info.ref.name}#{info.generation}" for info in self.files)


async def look(store: FileStore, url: str, most: int) -> SideFiles:
    """Which files the address means; one `*` stands for any part of a name."""
    address = url.strip()
    ref = ObjectRef.parse(address)
    prefix, star, suffix = ref.name.partition("*")
    if "*" in suffix:
        raise BadInput(f"{address}: one * is possible, not more")
    if star:
        listed = [info async for info in store.list(ObjectRef(ref.bucket, prefix))]
        files = [info for info in listed if info.ref.name.endswith(suffix)]
    else:
        found = await store.stat(ref)
        files = [found] if found is not None else []
    if not files:
        raise NotFound(f"there is no file {address}")
    size = sum(info.size for info in files)
    if size > most:
        raise BadInput(f"{address} has {size} bytes; a side input may have {most} at most")
    forms = {_form(info.ref.name) for info in files}
    if len(forms) > 1:
        raise BadInput(f"{address} has files of several formats")
    return SideFiles(forms.pop(), tuple(files))


def _form(name: str) -> SourceFormat:
    plain = name.lower()
    for ending in _COMPRESSED:
        plain = plain.removesuffix(ending)
    for ending, form in _FORMATS.items():
        if plain.endswith(ending):
            return form
    raise BadInput(f"{name}: its name does not say a format ({', '.join(_FORMATS)})")


async def read_files(store: FileStore, side: SideFiles, most: int) -> TableRows:
    """The rows of all files, as they go to Spark."""
    contents = []
    for info in side.files:
        data = await store.fetch(info.ref, generation=info.generation)
        if data is None:
            raise Transient(f"{info.ref} was overwritten while it was read")
        contents.append((info.ref.name, data))
    return await asyncio.to_thread(_parse, side.form, contents, most)


def _parse(form: SourceFormat, contents: Sequence[tuple[str, bytes]], most: int) -> TableRows:
    import pyarrow as pa

    bound = Inflation(free=most, ratio=1, advice="spark.side_input_size")
    try:
        plain = [(name, inflate.inflated(name, data, bound)) for name, data in contents]
    except inflate.CorruptError as error:
        raise BadInput(str(error)) from None
    if sum(len(data) for _, data in plain) > most:
        raise BadInput(f"its files have more than {most} bytes, which is the most a side input may have")
    plan = _plan(form, plain, bound)
    tables = [table for name, data in plain for table in _tables(plan, name, data)]
    if not tables:
        raise BadInput("its files have no rows")
    return TableRows(plan.schema, pa.concat_tables(tables))


def _plan(form: SourceFormat, contents: Sequence[tuple[str, bytes]], bound: Inflation) -> ReadPlan:
    """How to read the files: whatever columns any of them has."""
    plan = ReadPlan(
        (), LoadOptions(source_format=form, autodetect=form is SourceFormat.CSV, inflation=bound), Drift.EVOLVE
    )
    try:
        if form is SourceFormat.CSV:
            dialect = Dialect(plan.options, plan.delimiter)
            found = detect_csv(plan.options, [dialect.decode(data) for _, data in contents])
            return replace(plan, schema=found.schema, delimiter=found.delimiter, skip=found.skip, drift=Drift.FREEZE)
        schema: Schema = ()
        untyped: Schema = ()
        for name, data in contents:
            for item in reader(plan).read(data, name):
                if isinstance(item, Unknown):
                    schema, untyped = agree(schema, item.fields), agree(untyped, item.untyped)
    except BigQueryError as error:
        raise BadInput(error.message) from None
    return replace(plan, schema=extended(schema, untyped), drift=Drift.DISCARD_VALUE)


def _tables(plan: ReadPlan, name: str, data: bytes) -> "list[pa.Table]":
    found = []
    for item in reader(plan).read(data, name):
        if isinstance(item, Bad):
            where = f"{name}, line {item.line}" if item.line is not None else name
            raise BadInput(f"{where}: {item.why}")
        if isinstance(item, Good):
            found.append(item.table)
    return found
