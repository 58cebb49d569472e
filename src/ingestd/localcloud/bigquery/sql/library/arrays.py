"""Array functions, and generators of arrays."""

from ingestd.googlesql import ast
from ingestd.googlesql.civil import TIME_PARTS
from ingestd.googlesql.names import Scope
from ingestd.googlesql.types import BOOL, BYTES, DATE, DATETIME, FLOAT64, INT64, STRING, TIMESTAMP, SqlType, array_of
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.coercion import cast, string_sql
from ingestd.localcloud.bigquery.sql.expressions import ExpressionCompiler
from ingestd.localcloud.bigquery.sql.library.dates import ADDABLE
from ingestd.localcloud.bigquery.sql.library.intervals import add
from ingestd.localcloud.bigquery.sql.library.registry import Call, define, function, writes
from ingestd.localcloud.bigquery.sql.operators import numbers_of

LIMIT = 1_048_575  # BigQuery refuses larger generated arrays


define("ARRAY_LENGTH", "ARRAY<T>", "CAST(len({0}) AS BIGINT)")
define("ARRAY_REVERSE", "ARRAY<T>", "list_reverse({0})")


@writes("ARRAY_CONCAT")
def concat(call: Call, *arrays: Value) -> str:
    if len(arrays) == 1:
        return arrays[0].sql
    missing = " OR ".join(f"{item.sql} IS NULL" for item in arrays)
    joined = " || ".join(item.sql for item in arrays)
    return f"(CASE WHEN {missing} THEN NULL ELSE {joined} END)"


@writes("ARRAY_TO_STRING")
def to_string(call: Call, value: Value, *rest: Value) -> str:
    element = value.type.element
    assert element is not None
    if call.returns is BYTES:
        text = f"list_transform({value.sql}, lambda _e: decode(_e))"
        return f"encode({_join(text, *(f'decode({part.sql})' for part in rest))})"
    if element is BYTES:
        raise call.mismatch([value, *rest])
    array = value.sql
    if element is not STRING and value.members != ():
        array = f"list_transform({array}, lambda _e: {cast(Value('_e', element), STRING).sql})"
    return _join(array, *(part.sql for part in rest))


def _join(array: str, delimiter: str, missing: str | None = None) -> str:
    absent = f"{array} IS NULL OR {delimiter} IS NULL"
    if missing is not None:
        absent += f" OR {missing} IS NULL"
        array = f"list_transform({array}, lambda _e: coalesce(_e, {missing}))"
    return (
        f"(CASE WHEN {absent} THEN NULL "
        f"ELSE coalesce(array_to_string(list_filter({array}, lambda _e: _e IS NOT NULL), {delimiter}), '') END)"
    )


@writes("ARRAY_FIRST ARRAY_LAST")
def end(call: Call, value: Value) -> str:
    at = "1" if call.name == "ARRAY_FIRST" else "-1"
    message = f"{call.name} cannot get the first element of an empty array"
    error = f"CAST(bq_error('{message}') AS {duckdb_type(call.returns)})"
    return f"(CASE WHEN len({value.sql}) = 0 THEN {error} ELSE {value.sql}[{at}] END)"


_FIRST = "(CASE WHEN {1} < 0 THEN greatest(len({0}) + {1}, 0) ELSE {1} END + 1)"
_LAST = "(CASE WHEN {2} < 0 THEN len({0}) + {2} ELSE {2} END + 1)"
define(
    "ARRAY_SLICE", "ARRAY<T>, INT64, INT64",
    f"(CASE WHEN {_LAST} < {_FIRST} THEN [] ELSE {{0}}[{_FIRST}:{_LAST}] END)",
)  # fmt: skip
_NULLS = "len(list_filter({0}, lambda _e: _e IS NULL))"
define(
    "ARRAY_IS_DISTINCT", "ARRAY<C>", f"(len({{0}}) - {_NULLS} = len(list_distinct({{0}})) AND {_NULLS} <= 1)"
)  # fmt: skip


@function("ARRAY_INCLUDES")
def includes(call: Call) -> Value:
    value, element = call.array(call.value(0))
    if isinstance(call.nodes[1], ast.Lambda):
        body = _lambda(call.compiler, call.nodes[1], call.scope, element, BOOL)
        return Value(f"(len(list_filter({value.sql}, {body.sql})) > 0)", BOOL)
    wanted = call.typed(1, element)
    missing = f"{value.sql} IS NULL OR {wanted.sql} IS NULL"
    found = f"coalesce(list_contains({numbers_of(value)}, {wanted.sql}), FALSE)"
    return Value(f"(CASE WHEN {missing} THEN NULL ELSE {found} END)", BOOL)


def _lambda(c: ExpressionCompiler, node: ast.Lambda, scope: Scope, element: SqlType, wanted: SqlType | None) -> Value:
    name = f"_l{c.collected.alias()}"
    values = {node.names[0].lower(): Value(name, element)}
    names = name
    if len(node.names) == 2:
        index = f"_i{c.collected.alias()}"
        values[node.names[1].lower()] = Value(f"({index} - 1)", INT64)
        names = f"{name}, {index}"
    body = c.expr(node.body, scope.inside(values))
    if wanted is not None:
        body = c.must(body, wanted, node)
    return Value(f"lambda {names}: {body.sql}", body.type)


@function("ARRAY_FILTER", "ARRAY_TRANSFORM")
def higher_order(call: Call) -> Value:
    value, element = call.array(call.value(0))
    if not isinstance(call.nodes[1], ast.Lambda):
        call.fail(f"{call.name} needs a lambda")
    if call.name == "ARRAY_FILTER":
        body = _lambda(call.compiler, call.nodes[1], call.scope, element, BOOL)
        return Value(f"list_filter({value.sql}, {body.sql})", value.type)
    body = _lambda(call.compiler, call.nodes[1], call.scope, element, None)
    return Value(f"list_transform({value.sql}, {body.sql})", array_of(body.type))


@writes("GENERATE_ARRAY")
def generate(call: Call, first: Value, last: Value, by: Value | None = None) -> str:
    kind, start, stop = first.type, first.sql, last.sql
    step = by.sql if by is not None else f"CAST(1 AS {duckdb_type(kind)})"
    zero = f"CAST(bq_error('Sequence step cannot be 0.') AS {duckdb_type(call.returns)})"
    large = f"(CAST({stop} AS DOUBLE) - CAST({start} AS DOUBLE)) / CAST({step} AS DOUBLE) >= {LIMIT}"
    bounded = _bounded(large, start, stop)
    if kind is INT64:
        body = f"generate_series({start}, {bounded}, {step})"
    else:
        steps = f"CAST(floor(({bounded} - {start}) / {step} + 1e-9) AS BIGINT)"
        item = f"CAST({start} + _e * {step} AS {duckdb_type(kind)})"
        body = f"list_transform(generate_series(0, {steps}), lambda _e: {item})"
    missing = f"{start} IS NULL OR {stop} IS NULL OR {step} IS NULL"
    return (
        f"(CASE WHEN {missing} THEN NULL WHEN {step} = 0 THEN {zero} WHEN {large} THEN {_too_large(kind)} "
        f"ELSE {body} END)"
    )


def _bounded(large: str, start: str, stop: str) -> str:
    """The end of a series that is small whatever happens: DuckDB computes constant branches it will not take."""
    return f"(CASE WHEN {large} THEN {start} ELSE {stop} END)"


def _too_large(kind: SqlType) -> str:
    message = string_sql(f"Cannot generate arrays with more than {LIMIT} elements.")
    return f"CAST(bq_error({message}) AS {duckdb_type(array_of(kind))})"


@function("GENERATE_DATE_ARRAY", "GENERATE_TIMESTAMP_ARRAY", "GENERATE_DATETIME_ARRAY")
def generate_dates(call: Call) -> Value:
    kind = {"DATE": DATE, "TIMESTAMP": TIMESTAMP, "DATETIME": DATETIME}[call.name.split("_")[1]]
    start, stop = (call.want(call.compiler.expr(item, call.scope), kind) for item in call.nodes[:2])
    step, written_part, count_sql = "to_days(1)", "DAY", "1"
    amount: Value | None = None
    if len(call.nodes) == 3:
        written = call.nodes[2]
        if not isinstance(written, ast.IntervalValue):
            call.fail(f"{call.name} needs an INTERVAL")
        if written.part not in ADDABLE[kind.kind]:
            call.fail(f"{call.name} does not support the {written.part} date part", written)
        amount = call.compiler.typed(written.value, call.scope, INT64)
        step, written_part, count_sql = add(amount, written.part), written.part, f"nullif({amount.sql}, 0)"
    elif kind is not DATE:
        call.fail(f"{call.name} needs an INTERVAL")
    large = f"(epoch_us({stop.sql}) - epoch_us({start.sql})) / {_shortest(written_part)} / {count_sql} >= {LIMIT}"
    listed = f"generate_series({start.sql}, {_bounded(large, start.sql, stop.sql)}, {step})"
    if kind is DATE:
        listed = f"list_transform({listed}, lambda _e: CAST(_e AS DATE))"
    missing = f"{start.sql} IS NULL OR {stop.sql} IS NULL"
    zero = ""
    if amount is not None:
        missing += f" OR {amount.sql} IS NULL"
        zero = (
            f" WHEN {amount.sql} = 0 THEN CAST(bq_error('Sequence step cannot be 0.') AS {duckdb_type(array_of(kind))})"
        )
    return Value(
        f"(CASE WHEN {missing} THEN NULL{zero} WHEN {large} THEN {_too_large(kind)} ELSE {listed} END)", array_of(kind)
    )


def _shortest(part: str) -> int:
    """Microseconds in the shortest such part."""
    days = {"DAY": 1, "WEEK": 7, "MONTH": 28, "QUARTER": 90, "YEAR": 365}
    return days[part] * 86_400_000_000 if part in days else TIME_PARTS[part]


@writes("ARRAY_SUM ARRAY_AVG ARRAY_MIN ARRAY_MAX")
def fold(call: Call, value: Value) -> str:
    name = call.name.removeprefix("ARRAY_").lower()
    found = f"list_{name}({value.sql})"
    if call.returns is FLOAT64 and name in ("min", "max"):  # any NaN makes the result NaN
        nan = f"list_has_any(list_transform({value.sql}, lambda _e: isnan(_e)), [TRUE])"
        found = f"CASE WHEN {nan} THEN CAST('nan' AS DOUBLE) ELSE {found} END"
    return f"CAST({found} AS {duckdb_type(call.returns)})"
