"""Columns that the data has and the table has not: found in single files, agreed on over the whole batch.

Types are inferred from every value that was seen, not from a sample: a column with 1 in one file and 0.5 in another is
FLOAT64, one with a date here and any other text there is STRING. Keys that are always null or empty prove nothing and
add nothing.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ingestd.formats.detect import fields_of, see_members
from ingestd.formats.errors import BigQueryError
from ingestd.formats.schemas import schema_from_rest
from ingestd.model.schema import Field, Mode, Schema, Type, by_name, schema_rest
from ingestd.spark.files.reserved import RESERVED


def unknown_fields(rows: Iterable[dict[str, Any]], schema: Schema) -> Schema:
    """What these JSON rows have beyond the schema; of a known record, its new members alone."""
    members: dict[str, Any] = {}
    for row in rows:
        see_members(members, beyond(row, schema), "")
    return fields_of(members, "")


def beyond(row: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """What a row has beyond the schema, without what is null or empty."""
    known = {item.name.lower(): item for item in schema}
    found: dict[str, Any] = {}
    for key, value in row.items():
        item = known.get(key.lower())
        if item is None:
            if (kept := _substance(value)) is not None:
                found[key] = kept
        elif item.type is Type.STRUCT and (inner := _inside(value, item)):
            found[item.name] = inner
    return found


def _inside(value: Any, item: Field) -> Any:
    if isinstance(value, dict):
        return beyond(value, item.fields)
    if isinstance(value, list):
        return [inner for member in value if isinstance(member, dict) and (inner := beyond(member, item.fields))]
    return None


def _substance(value: Any) -> Any:
    """The value without keys that are null or empty; None when nothing is left."""
    if isinstance(value, dict):
        kept = {key: inner for key, member in value.items() if (inner := _substance(member)) is not None}
        return kept or None
    if isinstance(value, list):
        return [inner for member in value if (inner := _substance(member)) is not None] or None
    return value


def missing_from(file: Schema, schema: Schema) -> Schema:
    """The columns of a file that describes itself which the table has not; of a known record, its new members alone."""
    known = by_name(schema)
    found: list[Field] = []
    for item in file:
        relaxed = replace(item, mode=Mode.REPEATED if item.mode is Mode.REPEATED else Mode.NULLABLE)
        there = known.get(item.key)
        if there is None:
            found.append(relaxed)
        elif item.type is there.type is Type.STRUCT and (members := missing_from(item.fields, there.fields)):
            found.append(replace(relaxed, fields=members))
    return tuple(found)


def leaves(schema: Schema, prefix: str = "") -> frozenset[str]:
    """The dotted names of all columns that are no records, in lower case."""
    found: set[str] = set()
    for item in schema:
        name = prefix + item.key
        found |= leaves(item.fields, f"{name}.") if item.fields else {name}
    return frozenset(found)


def usable(fields: Schema) -> Schema:
    """The new columns of a file; `BigQueryError`, which is that file's alone, when no table can have them."""
    for item in fields:
        if item.key.startswith(RESERVED):
            raise BigQueryError(
                "invalid", f'Invalid field name "{item.name}". Names with {RESERVED} are ingestd\'s own.'
            )
    return schema_from_rest(schema_rest(fields))


def usable_ones(fields: Schema) -> Schema:
    """Those of the columns that a table can have."""
    found: list[Field] = []
    for item in fields:
        with suppress(BigQueryError):
            found += usable((item,))
    return tuple(found)


def agree(left: Schema, right: Schema, prefix: str = "") -> Schema:
    """What two files have beyond the schema, as one; a record here and a scalar there cannot agree (BigQueryError)."""
    merged = by_name(left)
    for item in right:
        other = merged.get(item.key)
        merged[item.key] = item if other is None else _agreed(other, item, prefix + item.name)
    return tuple(merged.values())


_WIDER = {
    frozenset([Type.INT64, Type.FLOAT64]): Type.FLOAT64,
    frozenset([Type.INT64, Type.NUMERIC]): Type.NUMERIC,
    frozenset([Type.NUMERIC, Type.BIGNUMERIC]): Type.BIGNUMERIC,
    frozenset([Type.DATE, Type.TIMESTAMP]): Type.TIMESTAMP,
}


def _agreed(left: Field, right: Field, path: str) -> Field:
    mode = Mode.REPEATED if Mode.REPEATED in (left.mode, right.mode) else Mode.NULLABLE
    if left.type is right.type:
        return replace(left, mode=mode, fields=agree(left.fields, right.fields, path + "."))
    if Type.STRUCT in (left.type, right.type):
        raise BigQueryError(
            "invalid", f"Invalid schema update. Field {path} has changed type from {left.type} to {right.type}"
        )
    return Field(left.name, wider(left.type, right.type), mode)


def wider(left: Type, right: Type) -> Type:
    """The type of a column that has values of both."""
    return left if left is right else _WIDER.get(frozenset([left, right]), Type.STRING)


def extended(schema: Schema, added: Schema) -> Schema:
    """The schema with the new columns at the end, and new members at the end of their records."""
    new = by_name(added)
    known = [
        replace(item, fields=extended(item.fields, new[item.key].fields))
        if item.type is Type.STRUCT and item.key in new
        else item
        for item in schema
    ]
    names = {item.key for item in schema}
    return (*known, *(item for item in added if item.key not in names))
