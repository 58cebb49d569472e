"""Columns of tables, and the types that expressions have: how one becomes the other.

A column says more than a type (its mode, its length, what is said of it), a type has forms that no column has (unnamed
members, arrays of what is not named): so there are two, with the same names of types.
"""

from ingestd.googlesql.types import SCALARS, SqlType, array_of, struct_of
from ingestd.model.schema import Field, Mode, Schema, Type


def from_field(item: Field) -> SqlType:
    """The type of a column's values."""
    if item.type is Type.STRUCT:
        scalar = struct_of((member.name, from_field(member)) for member in item.fields)
    elif item.type is Type.RANGE:
        scalar = SqlType("RANGE", SCALARS[(item.range_element or Type.DATE).value])
    else:
        scalar = SCALARS[item.type.value]
    return array_of(scalar) if item.repeated else scalar


def from_schema(schema: Schema) -> tuple[tuple[str, SqlType], ...]:
    return tuple((item.name, from_field(item)) for item in schema)


def to_field(name: str, kind: SqlType, *, mode: Mode = Mode.NULLABLE) -> Field:
    """A column that holds values of the type."""
    if kind.kind == "ARRAY":
        assert kind.element is not None
        return to_field(name, kind.element, mode=Mode.REPEATED)
    if kind.kind == "STRUCT":
        members = zip(kind.physical_names, kind.fields, strict=True)
        return Field(name, Type.STRUCT, mode, tuple(to_field(member, inner) for member, (_, inner) in members))
    if kind.kind == "RANGE":
        return Field(name, Type.RANGE, mode, range_element=Type(kind.element.kind) if kind.element else None)
    return Field(name, Type(kind.kind), mode)
