"""Mathematical functions. Domain errors are errors here, where DuckDB answers NaN or infinity."""

from ingestd.googlesql.types import FLOAT64, NUMERIC, SqlType
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.library.registry import Call, define, writes
from ingestd.localcloud.bigquery.sql.library.safe import attempt


def _guard(condition: str, message: str, body: str) -> str:
    return f"(CASE WHEN {condition} THEN CAST(bq_error({message}) AS DOUBLE) ELSE {body} END)"


def _overflow(name: str, arguments: str = "{0}") -> str:
    """Where finite arguments give an infinite result."""
    return f"isinf({name}({arguments})) AND " + " AND ".join(f"isfinite({item})" for item in arguments.split(", "))


_TEXT = "bq_float64_to_string({0})"
_BEYOND = "NOT isnan({0}) AND abs({0})"  # to DuckDB a NaN is the largest number
_SIGN = "CASE WHEN isnan({0}) THEN {0} ELSE CAST(sign({0}) AS DOUBLE) END"
for _kind, _type in (("INT64", "INT64"), ("NUMERIC", "NUMERIC"), ("BIGNUMERIC", "BIGNUMERIC"), ("FLOAT64", "FLOAT64")):
    define("ABS", _kind, "abs({0})")
    define("SIGN", _kind, f"CAST(sign({{0}}) AS {duckdb_type(SqlType(_kind))})" if _kind != "FLOAT64" else _SIGN)
define("CEIL CEILING", "FLOAT64", "ceil({0})")
define("FLOOR", "FLOAT64", "floor({0})")
define("IS_NAN", "FLOAT64", "isnan({0})")
define("IS_INF", "FLOAT64", "isinf({0})")
define("DIV", "INT64 INT64", "bq_int_divide({0}, {1})")
define("DIV", "NUMERIC NUMERIC", "CAST(trunc(bq_numeric_divide({0}, {1})) AS DECIMAL(38,9))")
define("MOD", "INT64 INT64", "bq_mod({0}, {1})")
define("IEEE_DIVIDE", "FLOAT64 FLOAT64", "({0} / {1})")
define("SQRT", "FLOAT64", _guard("{0} < 0", f"'Argument to SQRT cannot be negative: ' || {_TEXT}", "sqrt({0})"))
define("CBRT", "FLOAT64", "cbrt({0})")
for _name in ("EXP", "SINH", "COSH"):
    _lower = _name.lower()
    _message = f"'Floating point error in function: {_name}(' || {_TEXT} || ')'"
    define(_name, "FLOAT64", _guard(_overflow(_lower), _message, f"{_lower}({{0}})"))
define(
    "LN LOG",
    "FLOAT64",
    _guard("{0} <= 0", f"'Floating point error in function: LN(' || {_TEXT} || ')'", "ln({0})"),
)
define(
    "LOG10",
    "FLOAT64",
    _guard("{0} <= 0", f"'Floating point error in function: LOG10(' || {_TEXT} || ')'", "log10({0})"),
)
define(
    "LOG", "FLOAT64 FLOAT64",
    _guard("{0} <= 0 OR {1} <= 0 OR {1} = 1", "'Floating point error in function: LOG'",
           "(CASE WHEN isinf({1}) THEN CAST('nan' AS DOUBLE) ELSE log({1}, {0}) END)"),
)  # fmt: skip
define(
    "POW POWER", "FLOAT64 FLOAT64",
    _guard("({0} = 0 AND {1} < 0) OR ({0} < 0 AND isfinite({1}) AND {1} <> floor({1})) OR "
           f"({_overflow('pow', '{0}, {1}')})",
           f"'Floating point error in function: POW(' || {_TEXT} || ', ' || bq_float64_to_string({{1}}) || ')'",
           "pow({0}, {1})"),
)  # fmt: skip
for _kind in ("NUMERIC", "BIGNUMERIC"):
    _duckdb = duckdb_type(SqlType(_kind))
    define("CEIL CEILING", _kind, f"CAST(ceil({{0}}) AS {_duckdb})")
    define("FLOOR", _kind, f"CAST(floor({{0}}) AS {_duckdb})")
    define("MOD", f"{_kind} {_kind}", f"CAST({{0}} % nullif({{1}}, 0) AS {_duckdb})")
    for _name in ("SQRT", "CBRT", "EXP", "LN", "LOG10"):
        define(_name, _kind, f"bq_{_kind.lower()}_function('{_name}', {{0}}, 1)")
    define("LOG", _kind, f"bq_{_kind.lower()}_function('LN', {{0}}, 1)")
    for _name in ("LOG", "POW", "POWER"):
        define(_name, f"{_kind} {_kind}", f"bq_{_kind.lower()}_function('{_name}', {{0}}, {{1}})")
for _name in ("SIN", "COS", "TAN", "ATAN", "TANH", "ASINH", "COT"):
    define(_name, "FLOAT64", f"{_name.lower()}({{0}})")
for _name in ("ASIN", "ACOS"):
    define(
        _name,
        "FLOAT64",
        _guard(f"{_BEYOND} > 1", f"'Floating point error in function: {_name}'", f"{_name.lower()}({{0}})"),
    )
define("ACOSH", "FLOAT64", _guard("{0} < 1", "'Floating point error in function: ACOSH'", "acosh({0})"))
define(
    "ATANH",
    "FLOAT64",
    _guard(f"{_BEYOND} >= 1", "'Floating point error in function: ATANH'", "atanh({0})"),
)
define("ATAN2", "FLOAT64 FLOAT64", "atan2({0}, {1})")
define("SEC", "FLOAT64", "(1 / cos({0}))")
define("CSC", "FLOAT64", "(1 / sin({0}))")
define("BIT_COUNT", "INT64", "CAST(bit_count({0}) AS BIGINT)")
define("BIT_COUNT", "BYTES", "CAST(bit_count(CAST({0} AS BIT)) AS BIGINT)")
define("PI", "", "pi()")


@writes("ROUND TRUNC TRUNCATE")
def rounding(call: Call, value: Value, places: Value | None = None) -> str:
    """Half away from zero, or towards zero."""
    name = "round" if call.name == "ROUND" else "trunc"
    kind = value.type
    if kind is FLOAT64:
        return f"{name}({value.sql})" if places is None else f"bq_{name}_float({value.sql}, {places.sql})"
    if places is None:
        return f"CAST({name}({value.sql}) AS {duckdb_type(kind)})"
    scale = 9 if kind is NUMERIC else 18
    if isinstance(places.constant, int) and 0 <= places.constant <= scale and name == "round":
        return f"CAST(round({value.sql}, {places.constant}) AS {duckdb_type(kind)})"
    # DuckDB wants a constant scale: shift by a power of ten, round, shift back.
    power = f"CAST(pow(10, greatest(-29, least({scale}, {places.sql}))) AS DECIMAL(38,9))"
    shifted = f"bq_numeric_multiply(CAST({value.sql} AS DECIMAL(38,9)), {power})"
    return f"CAST(bq_numeric_divide({name}({shifted}), {power}) AS {duckdb_type(kind)})"


@writes("SAFE_DIVIDE SAFE_MULTIPLY SAFE_ADD SAFE_SUBTRACT")
def safe_arithmetic(call: Call, left: Value, right: Value) -> str:
    op = {"SAFE_DIVIDE": "/", "SAFE_MULTIPLY": "*", "SAFE_ADD": "+", "SAFE_SUBTRACT": "-"}[call.name]
    c = call.compiler
    return attempt(c, [left, right], lambda values: c.computed(op, values[0], values[1], call.node)).sql


@writes("SAFE_NEGATE")
def safe_negate(call: Call, value: Value) -> str:
    kind = value.type
    negated = attempt(
        call.compiler, [value], lambda values: Value(f"CAST((- {values[0].sql}) AS {duckdb_type(kind)})", kind)
    )
    return negated.sql


define("COSINE_DISTANCE", "ARRAY<FLOAT64>, ARRAY<FLOAT64>", "list_cosine_distance({0}, {1})")
define("EUCLIDEAN_DISTANCE", "ARRAY<FLOAT64>, ARRAY<FLOAT64>", "list_distance({0}, {1})")
