"""GoogleSQL's functions: their names, how many arguments they take and, where that says it all, of what types.

What an engine writes for a call is the engine's own; it has nothing that is not in this table. A function whose types
follow other rules (the type of its first argument, a common type of several) has only the number of its arguments here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ingestd.googlesql.types import SCALARS, SqlType, array_of
from ingestd.googlesql.values import Value

# `names: parameters -> result; …`, one for each overload, or `names: how many arguments`.
_SCALAR = """
# STRING and BYTES
UPPER LOWER SOUNDEX: STRING -> STRING
LENGTH FARM_FINGERPRINT: STRING -> INT64; BYTES -> INT64
CHAR_LENGTH CHARACTER_LENGTH ASCII UNICODE: STRING -> INT64
BYTE_LENGTH OCTET_LENGTH: BYTES -> INT64; STRING -> INT64
REVERSE: STRING -> STRING; BYTES -> BYTES
STARTS_WITH ENDS_WITH: STRING, STRING -> BOOL; BYTES, BYTES -> BOOL
STRPOS EDIT_DISTANCE: STRING, STRING -> INT64; BYTES, BYTES -> INT64
REPLACE TRANSLATE: STRING, STRING, STRING -> STRING
REPEAT: STRING, INT64 -> STRING; BYTES, INT64 -> BYTES
CHR: INT64 -> STRING
INSTR: STRING, STRING -> INT64; STRING, STRING, INT64 -> INT64; STRING, STRING, INT64, INT64 -> INT64
TO_HEX TO_BASE64 TO_BASE32 SAFE_CONVERT_BYTES_TO_STRING: BYTES -> STRING
FROM_HEX FROM_BASE64 FROM_BASE32: STRING -> BYTES
TO_CODE_POINTS: STRING -> ARRAY<INT64>; BYTES -> ARRAY<INT64>
CODE_POINTS_TO_STRING: ARRAY<INT64> -> STRING
CODE_POINTS_TO_BYTES: ARRAY<INT64> -> BYTES
MD5 SHA1 SHA256 SHA512: STRING -> BYTES; BYTES -> BYTES
REGEXP_EXTRACT REGEXP_SUBSTR: STRING, STRING -> STRING; STRING, STRING, INT64 -> STRING
REGEXP_EXTRACT REGEXP_SUBSTR: STRING, STRING, INT64, INT64 -> STRING
REGEXP_INSTR: STRING, STRING -> INT64; STRING, STRING, INT64 -> INT64; STRING, STRING, INT64, INT64 -> INT64
REGEXP_INSTR: STRING, STRING, INT64, INT64, INT64 -> INT64
REGEXP_CONTAINS REGEXP_EXTRACT_ALL LEFT RIGHT CONTAINS_SUBSTR: 2
REGEXP_REPLACE: 3
CONCAT: 1+
SUBSTR SUBSTRING LPAD RPAD: 2-3
TRIM LTRIM RTRIM SPLIT INITCAP NORMALIZE NORMALIZE_AND_CASEFOLD: 1-2
FORMAT: 1+
# Numbers
ABS SIGN: INT64 -> INT64; NUMERIC -> NUMERIC; BIGNUMERIC -> BIGNUMERIC; FLOAT64 -> FLOAT64
CEIL CEILING FLOOR SQRT CBRT EXP LN LOG10: FLOAT64 -> FLOAT64; NUMERIC -> NUMERIC; BIGNUMERIC -> BIGNUMERIC
IS_NAN IS_INF: FLOAT64 -> BOOL
DIV: INT64, INT64 -> INT64; NUMERIC, NUMERIC -> NUMERIC
MOD: INT64, INT64 -> INT64; NUMERIC, NUMERIC -> NUMERIC; BIGNUMERIC, BIGNUMERIC -> BIGNUMERIC
IEEE_DIVIDE ATAN2: FLOAT64, FLOAT64 -> FLOAT64
SINH COSH SIN COS TAN ATAN TANH ASINH COT ASIN ACOS ACOSH ATANH SEC CSC: FLOAT64 -> FLOAT64
LOG: FLOAT64 -> FLOAT64; FLOAT64, FLOAT64 -> FLOAT64; NUMERIC -> NUMERIC; NUMERIC, NUMERIC -> NUMERIC
LOG: BIGNUMERIC -> BIGNUMERIC; BIGNUMERIC, BIGNUMERIC -> BIGNUMERIC
POW POWER: FLOAT64, FLOAT64 -> FLOAT64; NUMERIC, NUMERIC -> NUMERIC; BIGNUMERIC, BIGNUMERIC -> BIGNUMERIC
BIT_COUNT: INT64 -> INT64; BYTES -> INT64
PI: -> FLOAT64
ROUND TRUNC TRUNCATE: 1-2
SAFE_DIVIDE SAFE_MULTIPLY SAFE_ADD SAFE_SUBTRACT COSINE_DISTANCE EUCLIDEAN_DISTANCE: 2
SAFE_NEGATE: 1
# Dates and times
CURRENT_TIMESTAMP: 0
CURRENT_DATE CURRENT_DATETIME CURRENT_TIME: 0-1
DATE TIME: 1-3
DATETIME: 1-6
TIMESTAMP LAST_DAY STRING: 1-2
DATE_ADD DATE_SUB DATETIME_ADD DATETIME_SUB TIME_ADD TIME_SUB TIMESTAMP_ADD TIMESTAMP_SUB ADD_MONTHS TIME_TRUNC: 2
FORMAT_DATE FORMAT_DATETIME FORMAT_TIME: 2
DATE_DIFF DATETIME_DIFF TIMESTAMP_DIFF TIME_DIFF: 3
DATE_TRUNC DATETIME_TRUNC TIMESTAMP_TRUNC FORMAT_TIMESTAMP EXTRACT: 2-3
PARSE_DATE: STRING, STRING -> DATE
PARSE_DATETIME: STRING, STRING -> DATETIME
PARSE_TIME: STRING, STRING -> TIME
PARSE_TIMESTAMP: STRING, STRING -> TIMESTAMP; STRING, STRING, STRING -> TIMESTAMP
UNIX_SECONDS UNIX_MILLIS UNIX_MICROS: TIMESTAMP -> INT64
UNIX_DATE: DATE -> INT64
DATE_FROM_UNIX_DATE: INT64 -> DATE
TIMESTAMP_SECONDS TIMESTAMP_MILLIS TIMESTAMP_MICROS: INT64 -> TIMESTAMP
MAKE_INTERVAL: 0-6
JUSTIFY_HOURS JUSTIFY_DAYS JUSTIFY_INTERVAL: 1
# Arrays
ARRAY_LENGTH ARRAY_REVERSE ARRAY_FIRST ARRAY_LAST ARRAY_IS_DISTINCT ARRAY_SUM ARRAY_AVG ARRAY_MIN ARRAY_MAX: 1
ARRAY_CONCAT: 1+
ARRAY_TO_STRING GENERATE_ARRAY GENERATE_DATE_ARRAY GENERATE_TIMESTAMP_ARRAY GENERATE_DATETIME_ARRAY: 2-3
ARRAY_SLICE: 3
ARRAY_INCLUDES ARRAY_FILTER ARRAY_TRANSFORM: 2
# Conditions, ranges and what belongs to no family
IF: 3
COALESCE GREATEST LEAST: 1+
IFNULL NULLIF RANGE_BUCKET RANGE RANGE_CONTAINS COLLATE: 2
NULLIFZERO ZEROIFNULL ERROR RANGE_START RANGE_END COLLATION: 1
SESSION_USER CURRENT_USER: 0
GENERATE_UUID: -> STRING
RAND: -> FLOAT64
# JSON
JSON_QUERY JSON_EXTRACT JSON_VALUE JSON_EXTRACT_SCALAR JSON_QUERY_ARRAY JSON_EXTRACT_ARRAY JSON_VALUE_ARRAY: 1-2
JSON_EXTRACT_STRING_ARRAY TO_JSON_STRING JSON_KEYS: 1-2
PARSE_JSON: STRING -> JSON
TO_JSON JSON_TYPE BOOL INT64 FLOAT64 LAX_BOOL LAX_INT64 LAX_FLOAT64 LAX_STRING JSON_STRIP_NULLS: 1
JSON_OBJECT JSON_ARRAY: 0+
JSON_SET JSON_ARRAY_APPEND: 3+
JSON_REMOVE: 2+
"""
_AGGREGATE = """
COUNT COUNTIF COUNT_IF SUM AVG MIN MAX ANY_VALUE LOGICAL_AND LOGICAL_OR BIT_AND BIT_OR BIT_XOR STDDEV STDDEV_SAMP: 1
STDDEV_POP VARIANCE VAR_SAMP VAR_POP ARRAY_AGG ARRAY_CONCAT_AGG APPROX_COUNT_DISTINCT GROUPING: 1
MAX_BY MIN_BY CORR COVAR_POP COVAR_SAMP APPROX_QUANTILES APPROX_TOP_COUNT: 2
STRING_AGG: 1-2
APPROX_TOP_SUM HLL_COUNT.INIT HLL_COUNT.MERGE HLL_COUNT.EXTRACT HLL_COUNT.MERGE_PARTIAL: 0+
"""
_WINDOW = """
ROW_NUMBER RANK DENSE_RANK PERCENT_RANK CUME_DIST: 0
NTILE FIRST_VALUE LAST_VALUE: 1
LEAD LAG: 1-3
NTH_VALUE PERCENTILE_CONT PERCENTILE_DISC: 2
"""
# What answers something else each time, or to each who asks.
CHANGEFUL = (
    "RAND", "GENERATE_UUID", "SESSION_USER", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_DATETIME", "CURRENT_TIMESTAMP",
)  # fmt: skip
# GoogleSQL has these as well; no engine here does.
_LACKING = ("ST_", "S2_", "NET.", "KEYS.", "AEAD.", "ML.", "AI.", "D3A_COUNT.", "BAG_", "OBJ.", "DETERMINISTIC_")
_LACKING_NAMES = frozenset(
    {"SEARCH", "VECTOR_SEARCH", "EXTERNAL_QUERY", "JSON_FLATTEN", "TYPEOF", "APPENDS", "CHANGES", "GAP_FILL"}
    | {"DATE_BUCKET", "DATETIME_BUCKET", "TIMESTAMP_BUCKET", "GENERATE_RANGE_ARRAY", "RANGE_OVERLAPS"}
    | {"RANGE_INTERSECT", "RANGE_SESSIONIZE", "PARSE_NUMERIC", "PARSE_BIGNUMERIC", "BIT_CAST_TO_INT64"}
)


def is_lacking(name: str) -> bool:
    """Whether GoogleSQL has a function of this name that no engine here has."""
    return name.startswith(_LACKING) or name in _LACKING_NAMES


@dataclass(frozen=True, slots=True)
class Signature:
    parameters: tuple[SqlType, ...]
    returns: SqlType


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    kind: str  # scalar, aggregate, window
    least: int
    most: int | None  # without a limit
    signatures: tuple[Signature, ...] = ()

    def takes(self, count: int) -> bool:
        return self.least <= count and (self.most is None or count <= self.most)

    @property
    def wanted(self) -> str:
        """How many arguments it takes, in words."""
        if self.most is None:
            return f"at least {self.least}"
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"

    @property
    def described(self) -> str:
        return "; ".join(f"{self.name}({', '.join(map(str, one.parameters))})" for one in self.signatures)


def types(text: str) -> tuple[SqlType, ...]:
    """Types separated by commas or spaces: `STRING ARRAY<INT64>`."""
    return tuple(
        array_of(SCALARS[one[6:-1]]) if one.startswith("ARRAY<") else SCALARS[one]
        for one in text.replace(",", " ").split()
    )


def _read(table: str, kind: str) -> dict[str, Function]:
    found: dict[str, Function] = {}
    for line in table.strip().splitlines():
        if line.startswith("#"):
            continue
        names, _, text = line.partition(": ")
        if "->" in text:
            signatures = tuple(
                Signature(types(before), *types(after))
                for before, _, after in (one.partition("->") for one in text.split("; "))
            )
            for name in names.split():
                known = (*(found[name].signatures if name in found else ()), *signatures)
                sizes = [len(one.parameters) for one in known]
                found[name] = Function(name, kind, min(sizes), max(sizes), known)
            continue
        least, _, most = text.rstrip("+").partition("-")
        for name in names.split():
            found[name] = Function(name, kind, int(least), None if text.endswith("+") else int(most or least))
    return found


FUNCTIONS = {**_read(_SCALAR, "scalar"), **_read(_AGGREGATE, "aggregate"), **_read(_WINDOW, "window")}


def overload(
    function: Function,
    args: Sequence[Value],
    coerce: Callable[[Value, SqlType], Value | None],
    available: Callable[[Signature], bool],
) -> tuple[Signature, list[Value]] | None:
    """The overload whose types are the arguments' own, or the nearest they convert to, and the arguments converted.

    Of equally near ones it is the first that is `available`; what is nearest and not available is still the answer.
    """
    best: tuple[tuple[int, bool], Signature, list[Value]] | None = None
    for signature in function.signatures:
        if len(signature.parameters) != len(args):
            continue
        pairs = list(zip(args, signature.parameters, strict=True))
        distance = sum(_distance(arg, kind) for arg, kind in pairs), not available(signature)
        if best is not None and distance >= best[0]:
            continue
        converted = [coerce(arg, kind) for arg, kind in pairs]
        found = [item for item in converted if item is not None]
        if len(found) == len(args):
            best = distance, signature, found
    return None if best is None else best[1:]


# How far a conversion goes: INT64 rather becomes FLOAT64, but NUMERIC stays exact while it can.
_STEPS = {
    ("INT64", "FLOAT64"): 2, ("INT64", "NUMERIC"): 3, ("INT64", "BIGNUMERIC"): 4, ("NUMERIC", "BIGNUMERIC"): 5,
    ("FLOAT64", "NUMERIC"): 8, ("FLOAT64", "BIGNUMERIC"): 9, ("NUMERIC", "FLOAT64"): 9,
}  # fmt: skip


def _distance(value: Value, kind: SqlType) -> int:
    if value.null or value.type == kind:
        return 0
    return 1 if value.literal and not value.type.numeric else _STEPS.get((value.type.kind, kind.kind), 20)
