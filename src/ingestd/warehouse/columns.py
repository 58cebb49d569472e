"""Columns in BigQuery's REST form: what they are called in SQL, whether two are alike, and how one becomes another.

A value only ever changes to a type that holds it exactly (INT64 to NUMERIC, anything to STRING, text that is parsed):
a column that would lose something on its way is refused by name.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ingestd.googlesql.types import holds, is_wide
from ingestd.model.errors import BadInput

Field = Mapping[str, Any]
"""A column in REST form: `name`, `type`, `mode`, `fields`."""

_CANONICAL = {"INT64": "INTEGER", "FLOAT64": "FLOAT", "BOOL": "BOOLEAN", "STRUCT": "RECORD"}
_SQL_TYPES = {"INTEGER": "INT64", "FLOAT": "FLOAT64", "BOOLEAN": "BOOL"}
_UNORDERED = frozenset({"RECORD", "GEOGRAPHY", "JSON", "RANGE", "INTERVAL"})


def kind(field: Field) -> str:
    """The column's type, in the spelling that the REST API answers with."""
    name = str(field["type"]).upper()
    return _CANONICAL.get(name, name)


def _sql_type(field: Field) -> str:
    return _SQL_TYPES.get(kind(field), kind(field))


def repeated(field: Field) -> bool:
    return str(field.get("mode") or "").upper() == "REPEATED"


def required(field: Field) -> bool:
    return str(field.get("mode") or "").upper() == "REQUIRED"


def members(field: Field) -> tuple[Field, ...]:
    return tuple(field.get("fields") or ())


def fields_of(resource: Mapping[str, Any] | None) -> tuple[Field, ...]:
    """The columns of a table resource."""
    return tuple(((resource or {}).get("schema") or {}).get("fields") or ())


def by_name(fields: Iterable[Field]) -> dict[str, Field]:
    """Columns by lower-cased name: BigQuery does not tell case apart."""
    return {str(field["name"]).lower(): field for field in fields}


def quoted(name: str) -> str:
    """A column's name for SQL."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def orderable(field: Field) -> bool:
    return not repeated(field) and kind(field) not in _UNORDERED


def groupable(field: Field) -> bool:
    return orderable(field) and kind(field) != "FLOAT"


def alike(one: Sequence[Field], two: Sequence[Field]) -> bool:
    """Whether two lists of columns have the same names and types in the same order, nested ones included."""
    return len(one) == len(two) and all(
        str(a["name"]).lower() == str(b["name"]).lower()
        and kind(a) == kind(b)
        and repeated(a) == repeated(b)
        and alike(members(a), members(b))
        for a, b in zip(one, two, strict=True)
    )


def type_sql(field: Field) -> str:
    """The column's type in GoogleSQL."""
    name = kind(field)
    if name == "RECORD":
        inner = ", ".join(f"{quoted(str(one['name']))} {type_sql(one)}" for one in members(field))
        name = f"STRUCT<{inner}>"
    elif name == "RANGE":
        name = f"RANGE<{(field.get('rangeElementType') or {}).get('type', 'DATE')}>"
    else:
        name = _SQL_TYPES.get(name, name)
    return f"ARRAY<{name}>" if repeated(field) else name


def null_of(field: Field) -> str:
    """No value, typed as the column is."""
    return f"CAST(NULL AS {type_sql(field)})"


def widened(expression: str, want: Field) -> str:
    """An expression whose type is unknown, as a value of that column: wider types are cast to, others must fit."""
    if repeated(want) or not is_wide(_sql_type(want)):
        return expression
    return f"CAST({expression} AS {type_sql(want)})"


def converted(path: str, have: Field, want: Field, *, strict: bool, depth: int = 0) -> str:
    """The value at `path`, a column like `have`, as a column like `want`.

    Nested columns that `want` has not are left out, or refused when `strict`; those that `have` has not are NULL.
    """
    if repeated(have) != repeated(want):
        raise BadInput(f"column {want['name']} is {_words(have)} in the data and {_words(want)} in the destination")
    nested = (kind(have) == "RECORD", kind(want) == "RECORD")
    if nested == (False, False):
        return _scalar(path, have, want, depth)
    if nested != (True, True):
        raise BadInput(f"column {want['name']} is {_words(have)} in the data and {_words(want)} in the destination")
    if alike(members(have), members(want)):
        return path
    if not repeated(have):
        return f"IF({path} IS NULL, NULL, {_struct(path, have, want, strict, depth)})"
    return _each(path, depth, lambda each: _struct(each, have, want, strict, depth + 1))


def _struct(path: str, have: Field, want: Field, strict: bool, depth: int) -> str:
    known = by_name(members(have))
    wanted = by_name(members(want))
    if strict and (more := [str(one["name"]) for key, one in known.items() if key not in wanted]):
        raise BadInput(f"the destination's column {want['name']} has no {', '.join(more)}")
    parts = []
    for one in members(want):
        name = quoted(str(one["name"]))
        source = known.get(str(one["name"]).lower())
        if source is None:
            parts.append(f"{null_of(one)} AS {name}")
        else:
            inner = converted(f"{path}.{quoted(str(source['name']))}", source, one, strict=strict, depth=depth)
            parts.append(f"{inner} AS {name}")
    return f"STRUCT({', '.join(parts)})"


def _scalar(path: str, have: Field, want: Field, depth: int) -> str:
    one, two = _sql_type(have), _sql_type(want)
    if one == two:
        return path
    if not holds(two, one):
        raise BadInput(
            f"column {want['name']} is {_words(have)} in the data and {_words(want)} in the destination;"
            " say with Transform how the one becomes the other"
        )
    if not repeated(have):
        return f"CAST({path} AS {two})"
    return _each(path, depth, lambda each: f"CAST({each} AS {two})")


def _each(path: str, depth: int, change: Callable[[str], str]) -> str:
    """An array with each element changed, in its order."""
    each, at = f"_e{depth}", f"_o{depth}"
    rows = f"UNNEST({path}) AS {each} WITH OFFSET AS {at}"
    return f"ARRAY(SELECT {change(each)} FROM {rows} ORDER BY {at})"  # noqa: S608 - names are quoted


def _words(field: Field) -> str:
    return f"repeated {kind(field)}" if repeated(field) else kind(field)
