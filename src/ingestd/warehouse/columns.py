"""Columns in statements: what they are called in SQL, whether two are alike, and how one becomes another.

A value only ever changes to a type that holds it exactly (INT64 to NUMERIC, anything to STRING, text that is parsed):
a column that would lose something on its way is refused by name.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ingestd.googlesql.types import holds, is_wide
from ingestd.model.errors import BadInput
from ingestd.model.schema import Field, Schema, Type, by_name, schema_from_rest

_UNORDERED = frozenset({Type.STRUCT, Type.GEOGRAPHY, Type.JSON, Type.RANGE, Type.INTERVAL})


def fields_of(resource: Mapping[str, Any] | None) -> Schema:
    """The columns of a table resource."""
    return schema_from_rest((resource or {}).get("schema"), verbatim=True)


def quoted(name: str) -> str:
    """A column's name for SQL."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def orderable(field: Field) -> bool:
    return not field.repeated and field.type not in _UNORDERED


def groupable(field: Field) -> bool:
    return orderable(field) and field.type is not Type.FLOAT64


def alike(one: Schema, two: Schema) -> bool:
    """Whether two lists of columns have the same names and types in the same order, nested ones included."""
    return len(one) == len(two) and all(
        (a.key, a.type, a.repeated) == (b.key, b.type, b.repeated) and alike(a.fields, b.fields)
        for a, b in zip(one, two, strict=True)
    )


def type_sql(field: Field) -> str:
    """The column's type in GoogleSQL."""
    name = field.type.value
    if field.type is Type.STRUCT:
        name += f"<{', '.join(f'{quoted(one.name)} {type_sql(one)}' for one in field.fields)}>"
    elif field.type is Type.RANGE:
        name += f"<{field.range_element or Type.DATE}>"
    return f"ARRAY<{name}>" if field.repeated else name


def null_of(field: Field) -> str:
    """No value, typed as the column is."""
    return f"CAST(NULL AS {type_sql(field)})"


def widened(expression: str, want: Field) -> str:
    """An expression whose type is unknown, as a value of that column: wider types are cast to, others must fit."""
    if want.repeated or not is_wide(want.type):
        return expression
    return f"CAST({expression} AS {type_sql(want)})"


def converted(path: str, have: Field, want: Field, *, strict: bool, depth: int = 0) -> str:
    """The value at `path`, a column like `have`, as a column like `want`.

    Nested columns that `want` has not are left out, or refused when `strict`; those that `have` has not are NULL.
    """
    if have.repeated != want.repeated:
        raise BadInput(f"column {want.name} is {words(have)} in the data and {words(want)} in the destination")
    nested = (have.type is Type.STRUCT, want.type is Type.STRUCT)
    if nested == (False, False):
        return _scalar(path, have, want, depth)
    if nested != (True, True):
        raise BadInput(f"column {want.name} is {words(have)} in the data and {words(want)} in the destination")
    if alike(have.fields, want.fields):
        return path
    if not have.repeated:
        return f"IF({path} IS NULL, NULL, {_struct(path, have, want, strict, depth)})"
    return _each(path, depth, lambda each: _struct(each, have, want, strict, depth + 1))


def _struct(path: str, have: Field, want: Field, strict: bool, depth: int) -> str:
    known, wanted = by_name(have.fields), by_name(want.fields)
    if strict and (more := [one.name for key, one in known.items() if key not in wanted]):
        raise BadInput(f"the destination's column {want.name} has no {', '.join(more)}")
    parts = []
    for one in want.fields:
        name, source = quoted(one.name), known.get(one.key)
        if source is None:
            parts.append(f"{null_of(one)} AS {name}")
        else:
            inner = converted(f"{path}.{quoted(source.name)}", source, one, strict=strict, depth=depth)
            parts.append(f"{inner} AS {name}")
    return f"STRUCT({', '.join(parts)})"


def _scalar(path: str, have: Field, want: Field, depth: int) -> str:
    one, two = have.type, want.type
    if one == two:
        return path
    if not holds(two, one):
        raise BadInput(
            f"column {want.name} is {words(have)} in the data and {words(want)} in the destination;"
            " say with Transform how the one becomes the other"
        )
    if not have.repeated:
        return f"CAST({path} AS {two})"
    return _each(path, depth, lambda each: f"CAST({each} AS {two})")


def _each(path: str, depth: int, change: Callable[[str], str]) -> str:
    """An array with each element changed, in its order."""
    each, at = f"_e{depth}", f"_o{depth}"
    rows = f"UNNEST({path}) AS {each} WITH OFFSET AS {at}"
    return f"ARRAY(SELECT {change(each)} FROM {rows} ORDER BY {at})"  # noqa: S608 - names are quoted


def words(field: Field) -> str:
    """The column's type, as REST and its users call it."""
    return f"repeated {field.type.rest}" if field.repeated else field.type.rest
