"""DuckDB SQL that stands for one thing wherever it is needed."""

from collections.abc import Sequence

from ingestd.googlesql.types import SqlType
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type, quote


def once(body: str, **values: str) -> str:
    """DuckDB SQL that computes each value a single time; `body` reads them as `_n.name`, as often as it wants."""
    packed = ", ".join(f"{name} := {sql}" for name, sql in values.items())
    return f"list_transform([struct_pack({packed})], lambda _n: {body})[1]"


_FIRST_AND_LAST = {
    "DATE": ("DATE '0001-01-01'", "DATE '9999-12-31'"),
    "DATETIME": ("TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59.999999'"),
    "TIMESTAMP": ("TIMESTAMPTZ '0001-01-01 00:00:00+00'", "TIMESTAMPTZ '9999-12-31 23:59:59.999999+00'"),
}


def ranged(value: Value) -> Value:
    """A computed date or time, which fails outside the years 1 to 9999; DuckDB has others as well."""
    bounds = _FIRST_AND_LAST.get(value.type.kind)
    if bounds is None:
        return value
    failing = f"CAST(bq_error('{value.type.kind} value out of range') AS {duckdb_type(value.type)})"
    body = f"CASE WHEN _n.x < {bounds[0]} OR _n.x > {bounds[1]} THEN {failing} ELSE _n.x END"
    return Value(once(body, x=value.sql), value.type)


def pack(kind: SqlType, members: Sequence[Value]) -> str:
    """A DuckDB STRUCT of these members."""
    pairs = zip(kind.physical_names, members, strict=True)
    return "struct_pack(" + ", ".join(f"{quote(name)} := {member.sql}" for name, member in pairs) + ")"
