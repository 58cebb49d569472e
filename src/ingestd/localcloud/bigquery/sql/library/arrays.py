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
from ingestd.localcloud.bigquery.sql.library.registry import Call, function
from ingestd.localcloud.bigquery.sql.operators import numbers_of

_UNORDERED = frozenset(["STRUCT", "ARRAY", "JSON", "GEOGRAPHY", "RANGE"])
LIMIT = 1_048_575  # BigQuery refuses larger generated arrays


@function("ARRAY_LENGTH")
def length(call: Call) -> Value:
    value, _ = call.array(call.value(0))
    return Value(f"CAST(len({value.sql}) AS BIGINT)", INT64)


@function("ARRAY_REVERSE")
def reverse(call: Call) -> Value:
    value, _ = call.array(call.value(0))
    return Value(f"list_reverse({value.sql})", value.type)


@function("ARRAY_CONCAT")
def concat(call: Call) -> Value:
    args = [call.array(value)[0] if not value.null else value for value in call.values()]
    kind, converted = call.common(args)
    if len(converted) == 1:
        return converted[0]
    missing = " OR ".join(f"{item.sql} IS NULL" for item in converted)
    joined = " || ".join(item.sql for item in converted)
    return Value(f"(CASE WHEN {missing} THEN NULL ELSE {joined} END)", kind)


@function("ARRAY_TO_STRING")
def to_string(call: Call) -> Value:
    args = call.values()
    value, element = call.array(args[0])
    if element is BYTES:
        text = f"list_transform({value.sql}, lambda _e: decode(_e))"
        parts = [call.want(item, BYTES).sql for item in args[1:]]
        body = _join(text, *(f"decode({part})" for part in parts))
        return Value(f"encode({body})", BYTES)
    if element is not STRING and value.members != ():
        text_item = cast(Value("_e", element), STRING)
        value = Value(f"list_transform({value.sql}, lambda _e: {text_item.sql})", array_of(STRING))
    return Value(_join(value.sql, *(call.want(item, STRING).sql for item in args[1:])), STRING)


def _join(array: str, delimiter: str, missing: str | None = None) -> str:
    absent = f"{array} IS NULL OR {delimiter} IS NULL"
    if missing is not None:
        absent += f" OR {missing} IS NULL"
        array = f"list_transform({array}, lambda _e: coalesce(_e, {missing}))"
    return (
        f"(CASE WHEN {absent} THEN NULL "
        f"ELSE coalesce(array_to_string(list_filter({array}, lambda _e: _e IS NOT NULL), {delimiter}), '') END)"
    )


@function("ARRAY_FIRST", "ARRAY_LAST")
def end(call: Call) -> Value:
    value, element = call.array(call.value(0))
    at = "1" if call.name == "ARRAY_FIRST" else "-1"
    error = f"CAST(bq_error('{call.name} cannot get the first element of an empty array') AS {duckdb_type(element)})"
    return Value(f"(CASE WHEN len({value.sql}) = 0 THEN {error} ELSE {value.sql}[{at}] END)", element)


@function("ARRAY_SLICE")
def slice_(call: Call) -> Value:
    args = call.values()
    value, _ = call.array(args[0])
    x = value.sql
    start, finish = (call.want(item, INT64).sql for item in args[1:])
    first = f"(CASE WHEN {start} < 0 THEN greatest(len({x}) + {start}, 0) ELSE {start} END + 1)"
    last = f"(CASE WHEN {finish} < 0 THEN len({x}) + {finish} ELSE {finish} END + 1)"
    return Value(f"(CASE WHEN {last} < {first} THEN [] ELSE {x}[{first}:{last}] END)", value.type)


@function("ARRAY_IS_DISTINCT")
def is_distinct(call: Call) -> Value:
    value, _ = call.array(call.value(0))
    x = value.sql
    nulls = f"len(list_filter({x}, lambda _e: _e IS NULL))"
    return Value(f"(len({x}) - {nulls} = len(list_distinct({x})) AND {nulls} <= 1)", BOOL)


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


@function("GENERATE_ARRAY")
def generate(call: Call) -> Value:
    args = call.values()
    kind, bounds = call.common(args)
    if not kind.numeric:
        raise call.mismatch(args)
    start, stop = bounds[0].sql, bounds[1].sql
    step = bounds[2].sql if len(bounds) == 3 else f"CAST(1 AS {duckdb_type(kind)})"
    zero = f"CAST(bq_error('Sequence step cannot be 0.') AS {duckdb_type(array_of(kind))})"
    large = f"(CAST({stop} AS DOUBLE) - CAST({start} AS DOUBLE)) / CAST({step} AS DOUBLE) >= {LIMIT}"
    bounded = _bounded(large, start, stop)
    if kind is INT64:
        body = f"generate_series({start}, {bounded}, {step})"
    else:
        steps = f"CAST(floor(({bounded} - {start}) / {step} + 1e-9) AS BIGINT)"
        item = f"CAST({start} + _e * {step} AS {duckdb_type(kind)})"
        body = f"list_transform(generate_series(0, {steps}), lambda _e: {item})"
    missing = f"{start} IS NULL OR {stop} IS NULL OR {step} IS NULL"
    return Value(
        f"(CASE WHEN {missing} THEN NULL WHEN {step} = 0 THEN {zero} WHEN {large} THEN {_too_large(kind)} "
        f"ELSE {body} END)",
        array_of(kind),
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


@function("ARRAY_SUM", "ARRAY_AVG", "ARRAY_MIN", "ARRAY_MAX")
def fold(call: Call) -> Value:
    value, element = call.array(call.value(0))
    name = call.name.removeprefix("ARRAY_").lower()
    if element.kind in _UNORDERED or (name in ("sum", "avg") and not element.numeric):
        raise call.mismatch([value])
    kind = FLOAT64 if name == "avg" and element is INT64 else element
    found = f"list_{name}({value.sql})"
    if kind is FLOAT64 and name in ("min", "max"):  # any NaN makes the result NaN
        nan = f"list_has_any(list_transform({value.sql}, lambda _e: isnan(_e)), [TRUE])"
        found = f"CASE WHEN {nan} THEN CAST('nan' AS DOUBLE) ELSE {found} END"
    return Value(f"CAST({found} AS {duckdb_type(kind)})", kind)
