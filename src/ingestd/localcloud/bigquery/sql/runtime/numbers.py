"""Numbers: GoogleSQL's reading and writing of them, exact NUMERIC arithmetic, and FORMAT()'s conversions."""

import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext

from ingestd.googlesql.literals import EXACT, NUMERIC_LIMIT, NUMERIC_STEP, decimal, exact, parse_numeric
from ingestd.localcloud.bigquery.sql.runtime.registry import runtime

_INT = re.compile(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|\d+)\s*$")
_FLOAT = re.compile(r"\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|inf|infinity)\s*$", re.IGNORECASE)
_BIGNUMERIC_STEP, _BIGNUMERIC_LIMIT = Decimal("1e-18"), Decimal(10) ** 20


@runtime("bq_error", "VARCHAR", "VARCHAR", nulls=True)
def error(message: str | None) -> str:
    """Not DuckDB's error(): that one is volatile, which TRY refuses."""
    raise ValueError(message or "")


@runtime("bq_string_to_int64", "VARCHAR", "BIGINT")
def parse_int64(text: str) -> int:
    match = _INT.match(text)
    if match is None:
        raise ValueError(f"Bad int64 value: {text}")
    digits = match[2]
    value = int(digits, 16) if digits[:2].lower() == "0x" else int(digits)
    value = -value if match[1] == "-" else value
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"Bad int64 value: {text}")
    return value


def parse_float64(text: str) -> float:
    if not _FLOAT.match(text):
        raise ValueError(f"Bad double value: {text}")
    return float(text)


@runtime("bq_string_to_bool", "VARCHAR", "BOOLEAN")
def parse_bool(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"Bad bool value: {text}")
    return lowered == "true"


def _fit(value: Decimal, text: object, kind: str, step: Decimal, limit: Decimal) -> Decimal:
    if kind == "BIGNUMERIC" and value.is_finite() and limit <= value.copy_abs() < Decimal(10) ** 38:
        raise ValueError(
            f"the local BigQuery does not support BIGNUMERIC values of more than 20 integer digits: {text}"
        )
    return exact(value, text, kind, step, limit)


runtime("bq_string_to_numeric", "VARCHAR", "DECIMAL(38,9)")(parse_numeric)


@runtime("bq_string_to_bignumeric", "VARCHAR", "DECIMAL(38,18)")
def parse_bignumeric(text: str) -> Decimal:
    return _fit(decimal(text, "BIGNUMERIC"), text, "BIGNUMERIC", _BIGNUMERIC_STEP, _BIGNUMERIC_LIMIT)


@runtime("bq_float64_to_numeric", "DOUBLE", "DECIMAL(38,9)")
def float_to_numeric(value: float) -> Decimal:
    if not math.isfinite(value):
        raise ValueError(f"Illegal conversion of non-finite floating point number to numeric: {float_string(value)}")
    return _fit(Decimal(value), float_string(value), "NUMERIC", NUMERIC_STEP, NUMERIC_LIMIT)


@runtime("bq_float64_to_bignumeric", "DOUBLE", "DECIMAL(38,18)")
def float_to_bignumeric(value: float) -> Decimal:
    if not math.isfinite(value):
        raise ValueError(f"Illegal conversion of non-finite floating point number to bignumeric: {float_string(value)}")
    return _fit(Decimal(value), float_string(value), "BIGNUMERIC", _BIGNUMERIC_STEP, _BIGNUMERIC_LIMIT)


@runtime("bq_float64_to_int64", "DOUBLE", "BIGINT")
def float_to_int64(value: float) -> int:
    if not math.isfinite(value):
        raise ValueError(f"Illegal conversion of non-finite floating point number to an integer: {float_string(value)}")
    whole = int(Decimal(value).to_integral_value(ROUND_HALF_UP))
    if not -(2**63) <= whole < 2**63:
        raise ValueError(f"double out of int64 range: {float_string(value)}")
    return whole


@runtime("bq_float64_to_string", "DOUBLE", "VARCHAR")
def float_string(value: float) -> str:
    """The shortest of 15 or 17 digits that reads back as the same value; no `.0` on whole numbers."""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if value == 0:
        return "0"
    text = f"{value:.15g}"
    return text if float(text) == value else f"{value:.17g}"


def _arithmetic(kind: str, left: Decimal, op: str, right: Decimal, step: Decimal, limit: Decimal) -> Decimal:
    with localcontext(EXACT):
        if op == "/":
            if right == 0:
                raise ValueError(f"division by zero: {plain(left)} / {plain(right)}")
            value = left / right
        else:
            value = left * right
    if value.copy_abs() >= limit:
        raise ValueError(f"{kind.lower()} overflow: {plain(left)} {op} {plain(right)}")
    with localcontext(EXACT):
        return value.quantize(step)


def plain(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@runtime("bq_numeric_multiply", "DECIMAL(38,9) DECIMAL(38,9)", "DECIMAL(38,9)")
def numeric_multiply(left: Decimal, right: Decimal) -> Decimal:
    return _arithmetic("NUMERIC", left, "*", right, NUMERIC_STEP, NUMERIC_LIMIT)


@runtime("bq_numeric_divide", "DECIMAL(38,9) DECIMAL(38,9)", "DECIMAL(38,9)")
def numeric_divide(left: Decimal, right: Decimal) -> Decimal:
    return _arithmetic("NUMERIC", left, "/", right, NUMERIC_STEP, NUMERIC_LIMIT)


@runtime("bq_bignumeric_multiply", "DECIMAL(38,18) DECIMAL(38,18)", "DECIMAL(38,18)")
def bignumeric_multiply(left: Decimal, right: Decimal) -> Decimal:
    return _arithmetic("BIGNUMERIC", left, "*", right, _BIGNUMERIC_STEP, _BIGNUMERIC_LIMIT)


@runtime("bq_bignumeric_divide", "DECIMAL(38,18) DECIMAL(38,18)", "DECIMAL(38,18)")
def bignumeric_divide(left: Decimal, right: Decimal) -> Decimal:
    return _arithmetic("BIGNUMERIC", left, "/", right, _BIGNUMERIC_STEP, _BIGNUMERIC_LIMIT)


_DECIMAL = Context(prec=90, rounding=ROUND_HALF_UP)
_FUNCTIONS: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "SQRT": lambda x, _: _DECIMAL.sqrt(x),
    "CBRT": lambda x, _: _DECIMAL.power(x.copy_abs(), _DECIMAL.divide(1, 3)).copy_sign(x),
    "EXP": lambda x, _: _DECIMAL.exp(x),
    "LN": lambda x, _: _DECIMAL.ln(x),
    "LOG10": lambda x, _: _DECIMAL.log10(x),
    "LOG": lambda x, base: _DECIMAL.divide(_DECIMAL.ln(x), _DECIMAL.ln(base)),
    "POW": _DECIMAL.power,
    "POWER": _DECIMAL.power,
}


def _function(kind: str, name: str, x: Decimal, y: Decimal, step: Decimal, limit: Decimal) -> Decimal:
    wrong = f"{kind} error in function: {name}({plain(x)})"
    if name.startswith(("LN", "LOG")) and x <= 0:
        raise ValueError(wrong)
    try:
        value = _FUNCTIONS[name](x, y)
    except (InvalidOperation, DivisionByZero, Overflow):
        raise ValueError(wrong) from None
    return _fit(value, plain(x), kind, step, limit)


@runtime("bq_numeric_function", "VARCHAR DECIMAL(38,9) DECIMAL(38,9)", "DECIMAL(38,9)")
def numeric_function(name: str, x: Decimal, y: Decimal) -> Decimal:
    """SQRT, EXP, LN, LOG10, LOG and POW of NUMERIC, exact to its last digit."""
    return _function("NUMERIC", name, x, y, NUMERIC_STEP, NUMERIC_LIMIT)


@runtime("bq_bignumeric_function", "VARCHAR DECIMAL(38,18) DECIMAL(38,18)", "DECIMAL(38,18)")
def bignumeric_function(name: str, x: Decimal, y: Decimal) -> Decimal:
    return _function("BIGNUMERIC", name, x, y, _BIGNUMERIC_STEP, _BIGNUMERIC_LIMIT)


@runtime("bq_round", "DOUBLE BIGINT", "DOUBLE")
def round_float(value: float, digits: int) -> float:
    """Half away from zero at a decimal place, of the number that the FLOAT64 is: 2.675 lies below its tie."""
    if not math.isfinite(value) or digits > 308:
        return value
    with localcontext(Context(prec=1200, rounding=ROUND_HALF_UP)):
        return float(Decimal(value).quantize(Decimal(1).scaleb(-digits)))


@runtime("bq_trunc", "DOUBLE BIGINT", "DOUBLE")
def trunc_float(value: float, digits: int) -> float:
    if not math.isfinite(value) or digits > 308:
        return value
    with localcontext(Context(prec=1200, rounding="ROUND_DOWN")):
        return float(Decimal(value).quantize(Decimal(1).scaleb(-digits)))


def _pad(text: str, flags: str, width: str) -> str:
    if not width or len(text) >= int(width):
        return text
    size = int(width)
    if "-" in flags:
        return text.ljust(size)
    if "0" in flags:
        sign = text[:1] if text[:1] in "+- " and text[:1] else ""
        return sign + text[len(sign) :].rjust(size - len(sign), "0")
    return text.rjust(size)


def _signed(text: str, flags: str) -> str:
    if text.startswith("-"):
        return text
    return "+" + text if "+" in flags else " " + text if " " in flags else text


@runtime("bq_format_int", "VARCHAR VARCHAR VARCHAR VARCHAR BIGINT", "VARCHAR")
def format_int(conversion: str, flags: str, width: str, precision: str, value: int) -> str:
    """FORMAT's %d %i %u %o %x %X."""
    if conversion in "diu":
        digits = f"{abs(value):,}" if "'" in flags else str(abs(value))
    elif conversion == "o":
        digits = ("0" if "#" in flags else "") + f"{abs(value):o}"
    else:
        digits = ("0x" if "#" in flags else "") + f"{abs(value):x}"
        digits = digits.upper() if conversion == "X" else digits
    if precision:
        digits = digits.rjust(int(precision), "0")
    return _pad(_signed("-" + digits if value < 0 else digits, flags), flags, width)


@runtime("bq_format_float", "VARCHAR VARCHAR VARCHAR VARCHAR DOUBLE", "VARCHAR")
def format_float(conversion: str, flags: str, width: str, precision: str, value: float) -> str:
    """FORMAT's %f %e %g and their capitals."""
    if not math.isfinite(value):
        text = float_string(value)
        text = text.upper() if conversion.isupper() else text
        return _pad(_signed(text, flags), flags.replace("0", ""), width)
    comma = "," if "'" in flags and conversion in "fF" else ""
    alternate = "#" if "#" in flags else ""
    text = format(value, f"{alternate}{comma}.{int(precision) if precision else 6}{conversion}")
    return _pad(_signed(text, flags), flags, width)


@runtime("bq_format_decimal", "VARCHAR VARCHAR VARCHAR VARCHAR DECIMAL(38,18)", "VARCHAR")
def format_decimal(conversion: str, flags: str, width: str, precision: str, value: Decimal) -> str:
    """FORMAT's %f for NUMERIC, exact."""
    digits = int(precision) if precision else 6
    if conversion in "fF":
        with localcontext(EXACT):
            rounded = value.quantize(Decimal(1).scaleb(-digits))
        text = f"{rounded:,f}" if "'" in flags else f"{rounded:f}"
        return _pad(_signed(text, flags), flags, width)
    return format_float(conversion, flags, width, precision, float(value))


@runtime("bq_format_string", "VARCHAR VARCHAR VARCHAR VARCHAR", "VARCHAR")
def format_string(flags: str, width: str, precision: str, value: str) -> str:
    return _pad(value[: int(precision)] if precision else value, flags.replace("0", ""), width)


def _wrap(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


@runtime("bq_shift_left", "BIGINT BIGINT", "BIGINT")
def shift_left(value: int, bits: int) -> int:
    if bits < 0:
        raise ValueError("Bitwise shift by negative offset.")
    return 0 if bits >= 64 else _wrap(value << bits)


@runtime("bq_shift_right", "BIGINT BIGINT", "BIGINT")
def shift_right(value: int, bits: int) -> int:
    """Zeros come in from the left, also for negative numbers."""
    if bits < 0:
        raise ValueError("Bitwise shift by negative offset.")
    return 0 if bits >= 64 else _wrap((value & (2**64 - 1)) >> bits)
