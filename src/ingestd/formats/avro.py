"""Avro files: the schema as BigQuery maps it, and the rows as Arrow columns.

Rows are decoded without logical types (the annotations are taken out of the file's header), so that every date, time
and decimal is converted from its raw number here, exactly.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import orjson

from ingestd.formats.avrobulk import bulk_columns
from ingestd.formats.avrofile import BrokenAvroError, Container
from ingestd.formats.binary import FileColumns, UnreadableFileError, decimal_type
from ingestd.formats.columns import Doubt, arrow_type, values_array
from ingestd.formats.convert import WIDE, text_reader
from ingestd.formats.errors import not_implemented
from ingestd.formats.options import LoadOptions
from ingestd.formats.temporal import UnreadableError
from ingestd.model.schema import Field, Mode, Type

if TYPE_CHECKING:
    import pyarrow as pa

_PRIMITIVES = {
    "boolean": Type.BOOL,
    "int": Type.INT64,
    "long": Type.INT64,
    "float": Type.FLOAT64,
    "double": Type.FLOAT64,
    "bytes": Type.BYTES,
    "fixed": Type.BYTES,
    "string": Type.STRING,
    "enum": Type.STRING,
}
_LOGICAL = {
    "date": Type.DATE,
    "time-millis": Type.TIME,
    "time-micros": Type.TIME,
    "timestamp-millis": Type.TIMESTAMP,
    "timestamp-micros": Type.TIMESTAMP,
    "local-timestamp-millis": Type.DATETIME,
    "local-timestamp-micros": Type.DATETIME,
}
# BigQuery exports write these themselves; the annotation is honoured with logical types on.
_SQL_TYPES = {
    "DATE": Type.DATE,
    "TIME": Type.TIME,
    "DATETIME": Type.DATETIME,
    "GEOGRAPHY": Type.GEOGRAPHY,
    "JSON": Type.JSON,
    "INTERVAL": Type.INTERVAL,
}
_SQL_TYPES |= {"datetime": Type.DATETIME, "geography_wkt": Type.GEOGRAPHY}


@dataclass(frozen=True, slots=True)
class Column:
    """A field and how its raw values become BigQuery's."""

    field: Field
    physical: str
    convert: Callable[[Any], Any] | None = None
    scale_up: int = 1  # millis are kept as numbers and multiplied: Arrow does the rest
    members: tuple["Column", ...] = ()
    is_map: bool = False


def read_avro(data: bytes, options: LoadOptions) -> FileColumns:
    """Every row of a file. `projectionFields` keeps only the named top-level columns."""
    return read_container(parse_container(data, options), options)


def parse_container(data: bytes, options: LoadOptions) -> Container:
    try:
        return Container.parse(data, options.inflation)
    except BrokenAvroError as error:
        raise UnreadableFileError(
            f"The Apache Avro library failed to parse the header with the following error: {error}"
        ) from None


def read_container(container: Container, options: LoadOptions) -> FileColumns:
    import fastavro

    try:
        schema = orjson.loads(container.metadata.get("avro.schema", b""))
    except orjson.JSONDecodeError as error:
        raise UnreadableFileError(
            f"The Apache Avro library failed to parse the header with the following error: {error}"
        ) from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise UnreadableFileError("The Apache Avro library failed to parse the header: the root type is not a record")
    bare = replace(container, metadata=container.metadata | {"avro.schema": orjson.dumps(_strip(schema))})
    columns = _Mapper(options).members(schema)
    wanted = {name.lower() for name in options.projection_fields}
    if wanted:
        columns = tuple(column for column in columns if column.field.name.lower() in wanted)
    fields, physical = tuple(column.field for column in columns), {c.field.name.lower(): c.physical for c in columns}
    try:
        bulk = bulk_columns(container, schema)
        arrays = tuple(_bulk_array(column, bulk[column.field.name]) for column in columns)
        return FileColumns(fields, arrays, physical, sum(block.rows for block in container.blocks))
    except Doubt:
        pass
    try:
        # fastavro's own names of errors differ per codec and per break: any failure to decode is a broken file.
        rows: list[Any] = list(fastavro.reader(io.BytesIO(bare.build())))
    except Exception as error:
        raise UnreadableFileError(
            f"The Apache Avro library failed to read data with the following error: {error}"
        ) from error
    arrays = tuple(_array(column, [row[column.field.name] for row in rows]) for column in columns)
    return FileColumns(fields, arrays, physical, len(rows))


def _strip(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strip(item) for item in schema]
    if isinstance(schema, dict):
        return {key: _strip(value) for key, value in schema.items() if key not in ("logicalType", "sqlType", "default")}
    return schema


class _Mapper:
    """Avro's types to BigQuery's."""

    def __init__(self, options: LoadOptions) -> None:
        self._logical = options.avro_logical_types
        self._decimals = options.decimal_targets
        self._named: dict[str, Any] = {}

    def members(self, record: dict[str, Any]) -> tuple[Column, ...]:
        self._remember(record)
        if not record.get("fields"):
            raise UnreadableFileError(f"Unsupported empty struct type for field '{record.get('name')}'")
        return tuple(self.column(item["name"], item["type"]) for item in record["fields"])

    def _remember(self, schema: dict[str, Any]) -> None:
        name = schema.get("name", "")
        self._named[name] = self._named[f"{schema.get('namespace', '')}.{name}"] = schema

    def column(self, name: str, schema: Any) -> Column:
        nullable = False
        if isinstance(schema, list):
            branches = [item for item in schema if item != "null" and item != {"type": "null"}]
            nullable = len(branches) < len(schema)
            if len(branches) != 1:
                raise not_implemented("Avro unions of several types other than null")
            schema = branches[0]
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        if isinstance(schema.get("type"), dict | list):
            return self.column(name, schema["type"])
        kind = schema["type"]
        if kind == "array":
            return self._repeated(self.column(name, schema["items"]))
        if kind == "map":
            return self._map(name, schema["values"])
        mode = Mode.NULLABLE if nullable else Mode.REQUIRED
        if kind == "record":
            members = self.members(schema)
            nested = Field(name, Type.STRUCT, mode, tuple(member.field for member in members))
            return Column(nested, "record", members=members)
        if kind not in _PRIMITIVES:
            raise UnreadableFileError(f"Unknown Avro type '{kind}' for field '{name}'")
        if kind in ("fixed", "enum"):
            self._remember(schema)
        return self._scalar(name, mode, schema)

    @staticmethod
    def _repeated(element: Column) -> Column:
        item = element.field
        if item.mode is Mode.REPEATED:
            raise UnreadableFileError(f"Nested arrays are not supported. Field: {item.name}")
        repeated = Field(item.name, item.type, Mode.REPEATED, item.fields, precision=item.precision, scale=item.scale)
        return Column(repeated, element.physical, element.convert, element.scale_up, element.members, element.is_map)

    def _map(self, name: str, values: Any) -> Column:
        key = Column(Field("key", Type.STRING, Mode.REQUIRED), "string")
        value = self.column("value", values)
        pair = Field(name, Type.STRUCT, Mode.REPEATED, (key.field, value.field))
        return Column(pair, "map", members=(key, value), is_map=True)

    def _scalar(self, name: str, mode: Mode, schema: dict[str, Any]) -> Column:
        raw, logical = schema["type"], schema.get("logicalType", "")
        plain = Field(name, _PRIMITIVES[raw], mode)
        if logical == "decimal" and raw in ("bytes", "fixed") and (self._logical or self._decimals):
            return self._decimal(name, mode, schema)
        if not self._logical:
            return Column(plain, raw)
        sql = _SQL_TYPES.get(str(schema.get("sqlType", ""))) or _SQL_TYPES.get(logical)
        if sql is not None and raw == "string":
            field = Field(name, sql, mode)
            return Column(field, raw, _text(text_reader(field)))
        if logical == "uuid":
            return Column(plain, raw)
        kind = _LOGICAL.get(logical)
        if kind is None:
            return Column(plain, raw)
        return Column(Field(name, kind, mode), raw, scale_up=1000 if logical.endswith("millis") else 1)

    def _decimal(self, name: str, mode: Mode, schema: dict[str, Any]) -> Column:
        precision, scale = int(schema.get("precision", 38)), int(schema.get("scale", 0))
        kind = decimal_type(precision, scale, self._decimals or (Type.NUMERIC,))
        field = Field(name, kind, mode)
        read = text_reader(field)

        def convert(raw: bytes) -> Any:
            number = Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale, WIDE)
            return f"{number:f}" if kind is Type.STRING else read(f"{number:f}")

        return Column(field, schema["type"], _text(convert))


def _text(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        return None if value is None else read(value)

    return convert


def _array(column: Column, values: Sequence[Any]) -> "pa.Array":
    import pyarrow as pa

    field = column.field
    if field.mode is Mode.REPEATED:
        lists = [_items(column, value) for value in values]
        offsets = [0]
        for items in lists:
            offsets.append(offsets[-1] + len(items))
        element = Column(
            Field(field.name, field.type, Mode.NULLABLE, field.fields),
            column.physical,
            column.convert,
            column.scale_up,
            column.members,
        )
        flat = [item for items in lists for item in items]
        if None in flat:
            raise UnreadableFileError(f"Null elements are not supported in arrays. Field: {field.name}")
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _array(element, flat), type=arrow_type(field))
    if field.type is Type.STRUCT:
        mask = [value is None for value in values]
        members = [
            _array(member, [None if value is None else value[member.field.name] for value in values])
            for member in column.members
        ]
        return pa.StructArray.from_arrays(
            members, fields=list(arrow_type(field)), mask=pa.array(mask, pa.bool_()) if any(mask) else None
        )
    try:
        if column.convert is not None:
            return values_array(field, [column.convert(value) for value in values])
        if field.type in (Type.DATE, Type.TIME, Type.DATETIME, Type.TIMESTAMP):
            numbers = [None if value is None else value * column.scale_up for value in values]
            width = pa.int32() if field.type is Type.DATE else pa.int64()
            return _in_range(pa.array(numbers, width).cast(arrow_type(field)), field)
        return pa.array(values, arrow_type(field))
    except (pa.ArrowInvalid, OverflowError, UnreadableError) as error:
        raise UnreadableFileError(f"Invalid value for field '{field.name}' of type {field.type}: {error}") from None


def _bulk_array(column: Column, raw: "pa.Array") -> "pa.Array":
    """The same of a column that was decoded as a whole; `Doubt` where a value does not fit."""
    import pyarrow as pa
    import pyarrow.compute as pc

    field = column.field
    try:
        if column.convert is not None:
            return values_array(field, [column.convert(value) for value in raw.to_pylist()])
        if field.type in (Type.DATE, Type.TIME, Type.DATETIME, Type.TIMESTAMP):
            if column.scale_up != 1:
                raw = pc.multiply_checked(raw, pa.scalar(column.scale_up, pa.int64()))
            whole = raw.cast(pa.int32()) if field.type is Type.DATE else raw
            return _in_range(whole.cast(arrow_type(field)), field)
        return raw.cast(arrow_type(field))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError, UnreadableError):
        raise Doubt from None


def _items(column: Column, value: Any) -> list[Any]:
    if value is None:
        return []
    if column.is_map:
        return [{"key": key, "value": item} for key, item in value.items()]
    return list(value)


def _in_range(array: "pa.Array", field: Field) -> "pa.Array":
    import pyarrow as pa
    import pyarrow.compute as pc

    if field.type is Type.TIME:
        ends = pc.min_max(array.cast(pa.int64())).as_py()
        if ends["min"] is not None and not 0 <= ends["min"] <= ends["max"] < 86_400_000_000:
            raise UnreadableError("outside the day")
        return array
    years = pc.min_max(pc.year(array)).as_py()
    if years["min"] is not None and not 1 <= years["min"] <= years["max"] <= 9999:
        raise UnreadableError("outside the years 1 to 9999")
    return array
