"""What Avro, Parquet and ORC have in common: a file's own schema, and fitting its columns to a table.

A format reader yields one `FileColumns` per file: Arrow columns in BigQuery's own types (`columns.arrow_type` of the
file's schema). Fitting them to a given schema allows what BigQuery allows and refuses the rest; no digit is dropped.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ingestd.formats.columns import arrow_schema, arrow_type, values_array
from ingestd.formats.convert import text_reader
from ingestd.formats.errors import BigQueryError
from ingestd.formats.options import SourceFormat
from ingestd.formats.problems import READING
from ingestd.formats.temporal import UnreadableError
from ingestd.model.schema import Field, Mode, Schema, Type

if TYPE_CHECKING:
    import pyarrow as pa


class UnreadableFileError(Exception):
    """The file cannot be read; the message is what follows `Error while reading data, error message: `."""


@dataclass(frozen=True, slots=True)
class FileColumns:
    """A file's rows in its own schema. `physical` names a column's type as the format does, for error messages."""

    schema: Schema
    arrays: tuple["pa.Array", ...]
    physical: dict[str, str]
    rows: int
    typeless: frozenset[str] = frozenset()  # columns of NULLs that the file has no type for: STRING in the schema


_CPP = {Type.FLOAT64: "DOUBLE", Type.BYTES: "STRING", Type.STRUCT: "MESSAGE"}


def decimal_type(precision: int, scale: int, targets: tuple[Type, ...]) -> Type:
    """The first of the target types that holds every decimal of this precision and scale."""
    for kind in targets:
        whole = precision - scale
        if kind is Type.NUMERIC and scale <= 9 and whole <= 29:
            return kind
        if kind is Type.BIGNUMERIC and scale <= 38 and whole <= 38:
            return kind
        if kind is Type.STRING:
            return kind
    return targets[-1]


def fit(
    file: FileColumns,
    schema: Schema,
    source: SourceFormat,
    *,
    ignore_unknown: bool,
    as_text: frozenset[str] = frozenset(),
) -> "pa.Table":
    """The file's columns as the schema wants them; in columns `as_text`, by dotted name, anything may become text."""
    import pyarrow as pa

    found = {item.name.lower(): (item, array) for item, array in zip(file.schema, file.arrays, strict=True)}
    names = _Names(source, file.physical, ignore_unknown, as_text)
    arrays = []
    for item in schema:
        known = found.pop(item.name.lower(), None)
        if known is None:
            arrays.append(_missing(item, file.rows))
            continue
        arrays.append(_fit(*known, item, item.name, names))
    if found and not ignore_unknown:
        name = next(iter(found.values()))[0].name
        raise BigQueryError("invalid", f"Provided Schema does not match Table. Cannot add fields (field: {name})")
    return pa.table(arrays, schema=arrow_schema(schema))


def _missing(item: Field, rows: int) -> "pa.Array":
    import pyarrow as pa

    if item.mode is Mode.REQUIRED:
        raise UnreadableFileError(f"Required field {item.name} is missing in the file.")
    if item.mode is Mode.REPEATED:
        return pa.array([[]] * rows, arrow_type(item))
    return pa.nulls(rows, arrow_type(item))


@dataclass(frozen=True, slots=True)
class _Names:
    source: SourceFormat
    physical: dict[str, str]
    ignore_unknown: bool
    as_text: frozenset[str]

    def mismatch(self, have: Field, want: Field, path: str) -> UnreadableFileError:
        physical = self.physical.get(path.lower(), have.type.value)
        cpp = _CPP.get(want.type, want.type.value)
        label = {SourceFormat.PARQUET: "Parquet", SourceFormat.AVRO: "Avro", SourceFormat.ORC: "ORC"}[self.source]
        return UnreadableFileError(
            f"{label} column '{path}' has type {physical} which does not match the target cpp_type {cpp}."
        )


def _fit(have: Field, array: "pa.Array", want: Field, path: str, names: _Names) -> "pa.Array":
    import pyarrow as pa

    if (have.mode is Mode.REPEATED) is not (want.mode is Mode.REPEATED):
        raise UnreadableFileError(
            f"Provided Schema does not match Table. Field {path} has changed mode from {want.mode} to {have.mode}"
        )
    if want.mode is Mode.REPEATED:
        elements = _fit(replace(have, mode=Mode.NULLABLE), array.values, replace(want, mode=Mode.NULLABLE), path, names)
        return pa.ListArray.from_arrays(array.offsets, elements, type=arrow_type(want))
    if want.mode is Mode.REQUIRED and array.null_count:
        raise UnreadableFileError(f"Required field {path} cannot be null.")
    if want.type is Type.STRUCT:
        if have.type is not Type.STRUCT:
            raise names.mismatch(have, want, path)
        return _fit_struct(have, array, want, path, names)
    return _fit_scalar(have, array, want, path, names)


def _fit_struct(have: Field, array: "pa.Array", want: Field, path: str, names: _Names) -> "pa.Array":
    import pyarrow as pa
    import pyarrow.compute as pc

    members = {item.name.lower(): (item, array.field(index)) for index, item in enumerate(have.fields)}
    arrays = []
    for item in want.fields:
        known = members.pop(item.name.lower(), None)
        if known is None:
            arrays.append(_missing(item, len(array)))
        else:
            if array.null_count and item.mode is Mode.REQUIRED:
                # A member under a null record is null whatever its mode; under any other it has to be there.
                if pc.any(pc.and_(pc.is_valid(array), pc.is_null(known[1]))).as_py():
                    raise UnreadableFileError(f"Required field {path}.{item.name} cannot be null.")
                item = replace(item, mode=Mode.NULLABLE)
            arrays.append(_fit(*known, item, f"{path}.{item.name}", names))
    if members and not names.ignore_unknown:
        extra = next(iter(members.values()))[0].name
        raise UnreadableFileError(f"Provided Schema does not match Table. Cannot add fields (field: {path}.{extra})")
    mask = pc.is_null(array) if array.null_count else None
    return pa.StructArray.from_arrays(arrays, fields=list(arrow_type(want)), mask=mask)


def _fit_scalar(have: Field, array: "pa.Array", want: Field, path: str, names: _Names) -> "pa.Array":
    import pyarrow as pa

    if have.type is want.type and arrow_type(have) == arrow_type(want) and not _narrower(want):
        return array
    if want.type is Type.STRING and path.lower() in names.as_text:
        return pa.array([None if value is None else _text(value) for value in array.to_pylist()], pa.string())
    if not array.null_count == len(array) and want.type not in _CASTS.get(have.type, {have.type}):
        raise names.mismatch(have, want, path)
    if array.null_count == len(array):
        return pa.nulls(len(array), arrow_type(want))
    try:
        if want.type is Type.FLOAT64:
            return array.cast(pa.float64())
        if have.type in (Type.INT64, Type.DATETIME, Type.TIMESTAMP) and want.type in (Type.DATETIME, Type.TIMESTAMP):
            return array.cast(arrow_type(want))
        return values_array(want, [None if item is None else _recast(want)(item) for item in array.to_pylist()])
    except (pa.ArrowInvalid, UnreadableError, UnicodeDecodeError):
        raise UnreadableFileError(f"Invalid value for column '{path}': it does not fit {want.type.value}.") from None


def _text(value: Any) -> str:
    """A value as JSON would write it."""
    match value:
        case bool():
            return "true" if value else "false"
        case Decimal():
            return f"{value.normalize():f}"
        case bytes():
            return value.decode()
        case date() | time():
            return value.isoformat()
        case _:
            return str(value)


# What a column of a self-describing file may become besides its own type.
_CASTS: dict[Type, set[Type]] = {
    Type.INT64: {Type.INT64, Type.FLOAT64, Type.NUMERIC, Type.BIGNUMERIC},
    Type.NUMERIC: {Type.NUMERIC, Type.BIGNUMERIC},
    Type.BIGNUMERIC: {Type.NUMERIC, Type.BIGNUMERIC},
    Type.BYTES: {Type.BYTES, Type.STRING},
    Type.STRING: set(Type) - {Type.INT64, Type.FLOAT64, Type.BOOL, Type.STRUCT},
    Type.TIMESTAMP: {Type.TIMESTAMP, Type.DATETIME},
    Type.DATETIME: {Type.TIMESTAMP, Type.DATETIME},
}


def _narrower(want: Field) -> bool:
    return want.max_length is not None or want.precision is not None


def _recast(want: Field) -> Callable[[Any], Any]:
    read = text_reader(replace(want, max_length=None) if want.type is Type.BYTES else want)

    def convert(value: Any) -> Any:
        if want.type is Type.BYTES:
            data = value if isinstance(value, bytes) else str(value).encode()
            if want.max_length is not None and len(data) > want.max_length:
                raise UnreadableError
            return data
        return read(value.decode() if isinstance(value, bytes) else str(value))

    return convert


def reading(message: str, uri: str) -> str:
    return f"{READING}{message} File: {uri}"
