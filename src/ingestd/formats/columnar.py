"""Parquet and ORC files: the schema as BigQuery maps it, and the rows as Arrow columns.

https://cloud.google.com/bigquery/docs/loading-data-cloud-storage-parquet#parquet_conversions: a LIST is a record
`list` of records `element` unless `enableListInference` is set; a MAP is a repeated record `key_value`. A timestamp is
a TIMESTAMP whether or not it says that it is adjusted to UTC: BigQuery's own exports say that it is not. DATETIME is
what a schema makes of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ingestd.formats.binary import FileColumns, UnreadableFileError, decimal_type
from ingestd.formats.columns import arrow_type
from ingestd.formats.detect import column_name
from ingestd.formats.inflation import Budget, InflationError
from ingestd.formats.options import LoadOptions
from ingestd.formats.parquetfile import ParquetRows
from ingestd.model.schema import Field, Mode, Type

if TYPE_CHECKING:
    import pyarrow as pa

_VALUE_BYTES = 4  # what Arrow keeps of a value at least
_SMALL_FILE = 1 << 20
_FEW_ROWS, _MANY_ROWS = 16, 1024  # of an ORC file, decoded at once: of a small one, and of others


def read_parquet(data: bytes, options: LoadOptions) -> FileColumns:
    return next(parquet_parts(data, options))


def parquet_parts(data: bytes | memoryview, options: LoadOptions, most: int | None = None) -> Iterator[FileColumns]:
    """The file's rows, of as many row groups at a time as have `most` bytes: at once when there is no such limit."""
    import pyarrow as pa

    if len(data) < 12 or data[:4] not in (b"PAR1", b"PARE") or data[-4:] not in (b"PAR1", b"PARE"):
        raise UnreadableFileError("Input file is not in Parquet format.")
    try:
        rows = ParquetRows(data, options.inflation)
        file = rows.file
        sizes = [file.metadata.row_group(index).total_byte_size for index in range(file.num_row_groups)]
        wanted = _projection(file.schema_arrow.names, options)
        leaves = [file.schema.column(index) for index in range(len(file.schema))]
        physical = {_plain_path(leaf.path).lower(): leaf.physical_type for leaf in leaves}
        groups = {leaf.path.split(".")[0].lower(): leaf.path.split(".") for leaf in leaves}
        enums = {leaf.path.lower() for leaf in leaves if leaf.logical_type.type == "ENUM"}
        shape = _Shape(options, groups, enums, (Type.NUMERIC,))
        for part in _parts(sizes, most):
            yield _columns(rows.groups(part, wanted), shape, physical)
    except InflationError as error:
        raise UnreadableFileError(f"Refused to decompress: {error}") from None
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFileError(f"The Apache Parquet library failed to read data: {error}") from None


def read_orc(data: bytes, options: LoadOptions) -> FileColumns:
    return next(orc_parts(data, options))


def orc_parts(data: bytes | memoryview, options: LoadOptions, most: int | None = None) -> Iterator[FileColumns]:
    """The file's rows, about `most` bytes of them at a time: at once when there is no such limit."""
    import pyarrow as pa
    from pyarrow import orc

    if data[:3] != b"ORC":
        raise UnreadableFileError("The Apache Orc library failed to parse metadata: Not an ORC file.")
    try:
        file = orc.ORCFile(pa.BufferReader(data))
        wanted = _projection(file.schema.names, options)
        shape = _Shape(options, {}, set(), (Type.NUMERIC, Type.STRING), orc=True)
        # Runs of equal values take a few bytes for a million rows: what the footer says of them is looked at first.
        options.inflation.budget(len(data)).take(file.nrows * _leaves(file.schema) * _VALUE_BYTES)
        some: list[pa.RecordBatch] = []
        held = 0
        for batch in _orc_batches(data, wanted, options.inflation.budget(len(data))):
            if most is not None and some and held + batch.nbytes > most:
                yield _columns(pa.Table.from_batches(some), shape, {})
                some, held = [], 0
            some.append(batch)
            held += batch.nbytes
        yield _columns(pa.Table.from_batches(some) if some else file.read(columns=wanted), shape, {})
    except InflationError as error:
        raise UnreadableFileError(f"Refused to decompress: {error}") from None
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFileError(f"The Apache Orc library failed to read data: {error}") from None


def _orc_batches(data: bytes | memoryview, wanted: list[str] | None, budget: Budget) -> "Iterator[pa.RecordBatch]":
    """A stripe is not decoded whole: one long word of its dictionary may stand in each of its million rows.

    Nothing in the file tells before. Few rows at a time, so that a bomb is noticed after that many words.
    """
    import pyarrow as pa
    from pyarrow import dataset

    fragment = dataset.OrcFileFormat().make_fragment(pa.BufferReader(data))
    rows = _FEW_ROWS if len(data) < _SMALL_FILE else _MANY_ROWS
    batches = fragment.to_batches(
        columns=wanted, batch_size=rows, use_threads=False, batch_readahead=0, fragment_readahead=0
    )
    for batch in batches:
        budget.take(batch.nbytes)
        yield batch


def _leaves(types: Any) -> int:
    import pyarrow as pa

    return sum(_leaves(item.type) if pa.types.is_struct(item.type) else 1 for item in types)


def _parts(sizes: list[int], most: int | None) -> list[list[int]]:
    """Consecutive numbers, with as many bytes together as allowed, or one alone."""
    parts: list[list[int]] = [[]]
    held = 0
    for number, size in enumerate(sizes):
        if most is not None and parts[-1] and held + size > most:
            parts.append([])
            held = 0
        parts[-1].append(number)
        held += size
    return parts


def _projection(names: list[str], options: LoadOptions) -> list[str] | None:
    wanted = {name.lower() for name in options.projection_fields}
    return [name for name in names if name.lower() in wanted] if wanted else None


def _plain_path(path: str) -> str:
    """A leaf's path without the groups that only say that something repeats."""
    parts = path.split(".")
    return ".".join(part for part in parts if part not in ("list", "element", "key_value", "bag", "array")) or parts[0]


@dataclass(frozen=True, slots=True)
class _Shape:
    """What decides how Arrow's types read."""

    options: LoadOptions
    groups: dict[str, list[str]]
    enums: set[str]
    default_decimals: tuple[Type, ...]
    orc: bool = False


def _columns(table: "pa.Table", shape: _Shape, physical: dict[str, str]) -> FileColumns:
    import pyarrow as pa

    fields, arrays = [], []
    typeless = set()
    for index, item in enumerate(table.schema):
        chunks = table.column(index).chunks
        whole = pa.concat_arrays(chunks) if chunks else pa.array([], item.type)
        field, array = _convert(item.name, item, whole, shape, item.name)
        fields.append(field)
        arrays.append(array)
        if pa.types.is_null(item.type):
            typeless.add(field.name)
    return FileColumns(tuple(fields), tuple(arrays), physical, table.num_rows, frozenset(typeless))


def _convert(name: str, item: "pa.Field", array: "pa.Array", shape: _Shape, path: str) -> tuple[Field, "pa.Array"]:
    import pyarrow as pa

    kind = item.type
    name = column_name(name, shape.options.character_map)
    mode = Mode.NULLABLE if item.nullable else Mode.REQUIRED
    if isinstance(kind, pa.DictionaryType):
        array, kind = array.cast(kind.value_type), kind.value_type
    if pa.types.is_map(kind):
        return _map(name, mode, kind, array, shape, path)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _list(name, mode, kind, array, shape, path)
    if pa.types.is_struct(kind):
        return _struct(name, mode, kind, array, shape, path)
    field, scalar = _scalar(name, mode, kind, array, shape, path)
    return field, scalar


def _struct(name: str, mode: Mode, kind: Any, array: "pa.Array", shape: _Shape, path: str) -> tuple[Field, "pa.Array"]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not kind.num_fields:
        raise UnreadableFileError(f"Unsupported empty struct type for field '{path}'")
    # `field` looks through the record's own nulls; `flatten` would too, but copies.
    members = [
        _convert(member.name, member, array.field(index), shape, f"{path}.{member.name}")
        for index, member in enumerate(kind)
    ]
    field = Field(name, Type.STRUCT, mode, tuple(member for member, _ in members))
    mask = pc.is_null(array) if array.null_count else None
    arrays = [values for _, values in members]
    return field, pa.StructArray.from_arrays(arrays, fields=list(arrow_type(field)), mask=mask)


def _dense_list(array: "pa.Array") -> "pa.Array":
    """A 32-bit list array without offset in which a null takes no elements."""
    import pyarrow as pa
    import pyarrow.compute as pc

    elements = array.flatten()
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_pylist()
    offsets = [0]
    for length in lengths:
        offsets.append(offsets[-1] + length)
    mask = pc.is_null(array) if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements, mask=mask)


def _list(name: str, mode: Mode, kind: Any, array: "pa.Array", shape: _Shape, path: str) -> tuple[Field, "pa.Array"]:
    import pyarrow as pa
    import pyarrow.compute as pc

    dense = _dense_list(array)
    inner = kind.value_field
    infer = shape.orc or shape.options.parquet_list_inference
    element, values = _convert(name if infer else inner.name, inner, dense.values, shape, path)
    if infer:
        if element.mode is Mode.REPEATED:
            raise UnreadableFileError(f"Nested arrays are not supported. Field: {path}")
        if values.null_count:
            raise UnreadableFileError(f"Null elements are not supported in arrays. Field: {path}")
        repeated = Field(name, element.type, Mode.REPEATED, element.fields)
        return repeated, pa.ListArray.from_arrays(dense.offsets, values, type=arrow_type(repeated))
    group = shape.groups.get(path.lower(), [])
    middle = group[1] if len(group) > 2 else "list"
    holder = Field(middle, Type.STRUCT, Mode.REPEATED, (element,))
    record = Field(name, Type.STRUCT, mode, (holder,))
    structs = pa.StructArray.from_arrays([values], fields=list(arrow_type(holder).value_type))
    lists = pa.ListArray.from_arrays(dense.offsets, structs, type=arrow_type(holder))
    mask = pc.is_null(array) if array.null_count else None
    return record, pa.StructArray.from_arrays([lists], fields=list(arrow_type(record)), mask=mask)


def _map(name: str, mode: Mode, kind: Any, array: "pa.Array", shape: _Shape, path: str) -> tuple[Field, "pa.Array"]:
    import pyarrow as pa
    import pyarrow.compute as pc

    pairs = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
    dense = _dense_list(pairs)
    key, keys = _convert("key", kind.key_field, dense.values.field(0), shape, f"{path}.key")
    value, values = _convert("value", kind.item_field, dense.values.field(1), shape, f"{path}.value")
    direct = shape.orc or shape.options.parquet_map_as_list
    holder = Field(name if direct else "key_value", Type.STRUCT, Mode.REPEATED, (key, value))
    structs = pa.StructArray.from_arrays([keys, values], fields=list(arrow_type(holder).value_type))
    lists = pa.ListArray.from_arrays(dense.offsets, structs, type=arrow_type(holder))
    if direct:
        return holder, lists
    record = Field(name, Type.STRUCT, mode, (holder,))
    mask = pc.is_null(array) if array.null_count else None
    return record, pa.StructArray.from_arrays([lists], fields=list(arrow_type(record)), mask=mask)


def _scalar(name: str, mode: Mode, kind: Any, array: "pa.Array", shape: _Shape, path: str) -> tuple[Field, "pa.Array"]:
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        targets = shape.options.decimal_targets or shape.default_decimals
        field = Field(name, decimal_type(kind.precision, kind.scale, targets), mode)
    else:
        field = Field(name, _type_of(kind, shape, path), mode)
    try:
        if field.type is Type.STRING and pa.types.is_decimal(kind):
            texts = [None if value is None else f"{value:f}" for value in array.to_pylist()]
            return field, pa.array(texts, pa.string())
        if field.type is Type.BYTES and pa.types.is_fixed_size_binary(kind):
            return field, array.cast(pa.binary())
        # BigQuery documents that it drops what an ORC timestamp has below the microsecond; elsewhere that is refused.
        return field, array.cast(arrow_type(field), safe=not (shape.orc and pa.types.is_timestamp(kind)))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnreadableFileError(f"Invalid value for column '{path}' of type {field.type.value}: {error}") from None


def _type_of(kind: Any, shape: _Shape, path: str) -> Type:
    import pyarrow.types as kinds

    if kinds.is_boolean(kind):
        return Type.BOOL
    if kinds.is_integer(kind):
        return Type.INT64
    if kinds.is_floating(kind):
        return Type.FLOAT64
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_null(kind):
        return Type.STRING
    if kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_fixed_size_binary(kind):
        return Type.STRING if path.lower() in shape.enums and shape.options.parquet_enum_as_string else Type.BYTES
    if kinds.is_date(kind):
        return Type.DATE
    if kinds.is_time(kind):
        return Type.TIME
    if kinds.is_timestamp(kind):
        return Type.TIMESTAMP
    raise UnreadableFileError(f"Unsupported type {kind} for column '{path}'")
