"""Mathematical functions. Domain errors are errors here, where Spark answers NaN or NULL."""

from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.types import FLOAT64, INT64, NUMERIC
from ingestd.googlesql.values import Value
from ingestd.spark.sql.functions.registry import NEVER_FAILS, Call, define, writes
from ingestd.spark.sql.values import fill

_INFINITE = "double('Infinity')"


def _guarded(names: str, parameters: str, condition: str, body: str) -> None:
    """A FLOAT64 function that fails where `condition` holds."""
    first = names.split()[0]
    failing = f"IF({condition}, raise_error('Floating point error in function: {first}'), {body})"
    define(names, parameters, failing, safe=f"IF({condition}, NULL, {body})")


define("ABS", "INT64", "abs(@0)", safe="IF(@0 = -9223372036854775807L - 1L, NULL, abs(@0))")
define("ABS", "FLOAT64", "abs(@0)", safe=NEVER_FAILS)
define("ABS", "NUMERIC", "abs(@0)", safe=NEVER_FAILS)
define("SIGN", "INT64", "CAST(sign(@0) AS BIGINT)", safe=NEVER_FAILS)
define("SIGN", "FLOAT64", "sign(@0)", safe=NEVER_FAILS)
define("SIGN", "NUMERIC", "CAST(sign(@0) AS DECIMAL(38,9))", safe=NEVER_FAILS)
for _name, _spark in (("CEIL CEILING", "ceil"), ("FLOOR", "floor")):
    # Spark's answer is a BIGINT, which large numbers do not fit: those are whole already.
    define(
        _name, "FLOAT64",
        f"IF(abs(@0) < 9007199254740992D, CAST({_spark}(@0) AS DOUBLE), @0)", safe=NEVER_FAILS,
    )  # fmt: skip
    define(_name, "NUMERIC", f"CAST({_spark}(@0) AS DECIMAL(38,9))")
define("IS_NAN", "FLOAT64", "IF(@0 IS NULL, NULL, isnan(@0))", safe=NEVER_FAILS)
define("IS_INF", "FLOAT64", f"(abs(@0) = {_INFINITE})", safe=NEVER_FAILS)
_LEAST = "-9223372036854775807L - 1L"
define(
    "DIV", "INT64 INT64",
    f"IF(@0 = {_LEAST} AND @1 = -1L, raise_error('int64 overflow'), @0 div @1)",
    safe=f"IF(@1 = 0 OR (@0 = {_LEAST} AND @1 = -1L), NULL, @0 div @1)",
)  # fmt: skip
define("MOD", "INT64 INT64", "(@0 % @1)", safe="try_mod(@0, @1)")
define("MOD", "NUMERIC NUMERIC", "CAST(@0 % @1 AS DECIMAL(38,9))", safe="try_mod(@0, @1)")
define(
    "IEEE_DIVIDE", "FLOAT64 FLOAT64",
    f"CASE WHEN @1 <> 0 THEN @0 / @1 WHEN @0 IS NULL OR @1 IS NULL THEN NULL WHEN @0 = 0 OR isnan(@0) "
    f"THEN double('NaN') ELSE sign(@0) * IF(CAST(@1 AS STRING) = '-0.0', -1, 1) * {_INFINITE} END",
    safe=NEVER_FAILS,
)  # fmt: skip
_guarded("SQRT", "FLOAT64", "@0 < 0", "sqrt(@0)")
_guarded("LN", "FLOAT64", "@0 <= 0", "ln(@0)")
_guarded("LOG", "FLOAT64", "@0 <= 0", "ln(@0)")
_guarded("LOG", "FLOAT64 FLOAT64", "@0 <= 0 OR @1 <= 0 OR @1 = 1",
         f"IF(@1 = {_INFINITE}, double('NaN'), ln(@0) / ln(@1))")  # fmt: skip
_guarded("LOG10", "FLOAT64", "@0 <= 0", "log10(@0)")
_guarded("EXP", "FLOAT64", f"exp(@0) = {_INFINITE} AND @0 < {_INFINITE}", "exp(@0)")
_guarded(
    "POW POWER", "FLOAT64 FLOAT64",
    f"(@0 = 0 AND @1 < 0) OR (@0 < 0 AND abs(@1) < {_INFINITE} AND @1 <> floor(@1)) OR "
    f"(abs(pow(@0, @1)) = {_INFINITE} AND abs(@0) < {_INFINITE} AND abs(@1) < {_INFINITE})",
    f"IF(@0 = 1 OR (@0 = -1 AND abs(@1) = {_INFINITE}), IF(@1 IS NULL, NULL, 1D), pow(@0, @1))",
)  # fmt: skip
define("CBRT", "FLOAT64", "cbrt(@0)", safe=NEVER_FAILS)
for _name in ("SINH", "COSH"):
    _guarded(_name, "FLOAT64", f"abs({_name}(@0)) = {_INFINITE} AND abs(@0) < {_INFINITE}", f"{_name}(@0)")
for _name in ("SIN", "COS", "TAN", "ATAN", "TANH", "ASINH"):
    define(_name, "FLOAT64", f"{_name.lower()}(@0)", safe=NEVER_FAILS)
for _name in ("ASIN", "ACOS"):
    _guarded(_name, "FLOAT64", "abs(@0) > 1", f"{_name.lower()}(@0)")
_guarded("ACOSH", "FLOAT64", "@0 < 1", "acosh(@0)")
_guarded("ATANH", "FLOAT64", "abs(@0) >= 1", "atanh(@0)")
define("ATAN2", "FLOAT64 FLOAT64", "atan2(@0, @1)", safe=NEVER_FAILS)
define("BIT_COUNT", "INT64", "CAST(bit_count(@0) AS BIGINT)", safe=NEVER_FAILS)
define("PI", "", "pi()", safe=NEVER_FAILS)


@writes("ROUND TRUNC", "FLOAT64, INT64?", "NUMERIC, INT64?")
def rounding(call: Call, value: Value, places: Value | None = None) -> str:
    """Half away from zero, or towards zero."""
    digits = 0 if places is None else places.constant
    if not isinstance(digits, int) or abs(digits) > 300:
        raise SqlError(f"{call.name} needs a constant number of digits on Spark")
    if value.type is NUMERIC:
        if call.name == "ROUND":
            return f"CAST(round({value.sql}, {digits}) AS DECIMAL(38,9))"
        return fill(f"CAST(IF(@0 < 0, - floor(- @0, {digits}), floor(@0, {digits})) AS DECIMAL(38,9))", value)
    if digits:
        return _at_digit(call.name, value, digits)
    if call.name == "ROUND":
        return f"round({value.sql})"
    return fill("IF(abs(@0) < 9007199254740992D, CAST(IF(@0 < 0, ceil(@0), floor(@0)) AS DOUBLE), @0)", value)


_SPLIT = 134217729.0  # 2**27 + 1: halves a FLOAT64 into two whose products are exact
_WHOLE = "4503599627370496D"  # from here on every FLOAT64 is a whole number
_MOST_DIGITS = 22  # the largest power of ten that a FLOAT64 holds


def _halves(sql: str) -> tuple[str, str]:
    high = f"({_SPLIT!r}D * {sql} - ({_SPLIT!r}D * {sql} - {sql}))"
    return high, f"({sql} - {high})"


def _rest(product: str, a: str, b: float) -> str:
    """By how much the product of two FLOAT64 was rounded (Dekker)."""
    high, low = _halves(a)
    upper = _SPLIT * b - (_SPLIT * b - b)
    lower = b - upper
    return f"({low} * {lower!r}D - ((({product} - {high} * {upper!r}D) - {low} * {upper!r}D) - {high} * {lower!r}D))"


def _at_digit(name: str, value: Value, digits: int) -> str:
    """Rounded or cut at a digit, going by the number that the FLOAT64 is: 2.675 lies below its tie, 2.3 below 2.3."""
    if abs(digits) > _MOST_DIGITS:
        raise SqlError(f"{name} at {digits} digits is not available on Spark: {_MOST_DIGITS} at most")
    power = float(10 ** abs(digits))
    scaled = Value(fill(f"(abs(@0) {'*' if digits > 0 else '/'} {power!r}D)", value), FLOAT64)
    # What the scaled number lacks to the true one.
    error = _rest("@1", "abs(@0)", power)
    if digits < 0:
        product = f"(@1 * {power!r}D)"
        error = f"((abs(@0) - {product}) - {_rest(product, '@1', power)}) / {power!r}D"
    tie, above, below = (0.5, 1, 0) if name == "ROUND" else (0.0, 0, -1)
    step = f"floor(@1) + IF((@1 - floor(@1) - {tie}D) + {error} >= 0, {above}, {below})"
    moved = f"sign(@0) * CAST({step} AS DOUBLE) {'/' if digits > 0 else '*'} {power!r}D"
    keep = f"isnan(@0) OR @1 >= {_WHOLE} OR @0 IS NULL"
    return fill(f"IF({keep}, @0, {moved})", value, scaled)


@writes("SAFE_DIVIDE SAFE_MULTIPLY SAFE_ADD SAFE_SUBTRACT", safe=True)
def safe_arithmetic(call: Call, left: Value, right: Value) -> str:
    op = {"SAFE_DIVIDE": "/", "SAFE_MULTIPLY": "*", "SAFE_ADD": "+", "SAFE_SUBTRACT": "-"}[call.name]
    return call.compiler.computed(op, left, right, call.nodes[0], safe=True).sql


@writes("SAFE_NEGATE", safe=True)
def safe_negate(call: Call, value: Value) -> str:
    if value.type.kind == "BIGNUMERIC":
        raise call.mismatch([value])
    return f"try_subtract(0L, {value.sql})" if value.type is INT64 else f"(- {value.sql})"
