"""GoogleSQL's functions: their names, and what types they take and answer.

What an engine writes for a call is the engine's own; it has nothing that is not in this table, and takes and answers
what the table says. Only where no table says it (a date part, a lambda or a name as an argument, texts that are CAST,
pairs) a function has the number of its arguments alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ingestd.googlesql.coercion import CIVIL, Conversions
from ingestd.googlesql.types import SCALARS, STRING, SqlType
from ingestd.googlesql.values import Value

# One type in all the places of a signature where it stands, and what it may be.
VARIABLES: dict[SqlType, Callable[[SqlType], bool]] = {
    SqlType("T"): lambda kind: True,
    SqlType("C"): lambda kind: kind.comparable,
    SqlType("O"): lambda kind: kind.ordered,
    SqlType("N"): lambda kind: kind.numeric,
}
_ANY = SqlType("ANY")  # a variable, to those who read of it
# `names: parameters -> result; …`, one for each overload, or `names: how many arguments`. A parameter with `?` may be
# left out, one with `...` comes once or more, one with `!` is no NULL that has no type. A signature has one variable at
# most.
_SCALAR = """
# STRING and BYTES
UPPER LOWER SOUNDEX: STRING -> STRING
LENGTH FARM_FINGERPRINT: STRING -> INT64; BYTES -> INT64
CHAR_LENGTH CHARACTER_LENGTH ASCII UNICODE: STRING -> INT64
BYTE_LENGTH OCTET_LENGTH: BYTES -> INT64; STRING -> INT64
REVERSE: STRING -> STRING; BYTES -> BYTES
STARTS_WITH ENDS_WITH: STRING, STRING -> BOOL; BYTES, BYTES -> BOOL
STRPOS EDIT_DISTANCE: STRING, STRING -> INT64; BYTES, BYTES -> INT64
REPLACE TRANSLATE REGEXP_REPLACE: STRING, STRING, STRING -> STRING
REPEAT LEFT RIGHT: STRING, INT64 -> STRING; BYTES, INT64 -> BYTES
SUBSTR SUBSTRING: STRING, INT64, INT64? -> STRING; BYTES, INT64, INT64? -> BYTES
LPAD RPAD: STRING, INT64, STRING? -> STRING; BYTES, INT64, BYTES? -> BYTES
TRIM LTRIM RTRIM: STRING, STRING? -> STRING; BYTES, BYTES -> BYTES
SPLIT: STRING, STRING? -> ARRAY<STRING>; BYTES, BYTES -> ARRAY<BYTES>
INITCAP: STRING, STRING? -> STRING
CHR: INT64 -> STRING
INSTR: STRING, STRING, INT64?, INT64? -> INT64
TO_HEX TO_BASE64 TO_BASE32 SAFE_CONVERT_BYTES_TO_STRING: BYTES -> STRING
FROM_HEX FROM_BASE64 FROM_BASE32: STRING -> BYTES
TO_CODE_POINTS: STRING -> ARRAY<INT64>; BYTES -> ARRAY<INT64>
CODE_POINTS_TO_STRING: ARRAY<INT64> -> STRING
CODE_POINTS_TO_BYTES: ARRAY<INT64> -> BYTES
MD5 SHA1 SHA256 SHA512: STRING -> BYTES; BYTES -> BYTES
REGEXP_CONTAINS: STRING, STRING -> BOOL
REGEXP_EXTRACT REGEXP_SUBSTR: STRING, STRING, INT64?, INT64? -> STRING
REGEXP_EXTRACT_ALL: STRING, STRING -> ARRAY<STRING>
REGEXP_INSTR: STRING, STRING, INT64?, INT64?, INT64? -> INT64
CONTAINS_SUBSTR: T, STRING -> BOOL
NORMALIZE NORMALIZE_AND_CASEFOLD: 1-2
CONCAT FORMAT: 1+
# Numbers
ABS SIGN: INT64 -> INT64; NUMERIC -> NUMERIC; BIGNUMERIC -> BIGNUMERIC; FLOAT64 -> FLOAT64
CEIL CEILING FLOOR SQRT CBRT EXP LN LOG10: FLOAT64 -> FLOAT64; NUMERIC -> NUMERIC; BIGNUMERIC -> BIGNUMERIC
ROUND TRUNC TRUNCATE: FLOAT64, INT64? -> FLOAT64; NUMERIC, INT64? -> NUMERIC; BIGNUMERIC, INT64? -> BIGNUMERIC
IS_NAN IS_INF: FLOAT64 -> BOOL
DIV: INT64, INT64 -> INT64; NUMERIC, NUMERIC -> NUMERIC
MOD: INT64, INT64 -> INT64; NUMERIC, NUMERIC -> NUMERIC; BIGNUMERIC, BIGNUMERIC -> BIGNUMERIC
IEEE_DIVIDE ATAN2: FLOAT64, FLOAT64 -> FLOAT64
SINH COSH SIN COS TAN ATAN TANH ASINH COT ASIN ACOS ACOSH ATANH SEC CSC: FLOAT64 -> FLOAT64
LOG: FLOAT64, FLOAT64? -> FLOAT64; NUMERIC, NUMERIC? -> NUMERIC; BIGNUMERIC, BIGNUMERIC? -> BIGNUMERIC
POW POWER SAFE_DIVIDE: FLOAT64, FLOAT64 -> FLOAT64; NUMERIC, NUMERIC -> NUMERIC
POW POWER SAFE_DIVIDE: BIGNUMERIC, BIGNUMERIC -> BIGNUMERIC
SAFE_MULTIPLY SAFE_ADD SAFE_SUBTRACT: N, N -> N
SAFE_NEGATE NULLIFZERO ZEROIFNULL: N -> N
COSINE_DISTANCE EUCLIDEAN_DISTANCE: ARRAY<FLOAT64>, ARRAY<FLOAT64> -> FLOAT64
BIT_COUNT: INT64 -> INT64; BYTES -> INT64
PI: -> FLOAT64
# Dates and times
CURRENT_TIMESTAMP: -> TIMESTAMP
CURRENT_DATE: STRING? -> DATE
CURRENT_DATETIME: STRING? -> DATETIME
CURRENT_TIME: STRING? -> TIME
DATE: DATE -> DATE; DATETIME -> DATE; TIMESTAMP, STRING? -> DATE; STRING -> DATE; INT64, INT64, INT64 -> DATE
DATETIME: DATE -> DATETIME; DATETIME -> DATETIME; TIMESTAMP, STRING? -> DATETIME; STRING -> DATETIME
DATETIME: DATE, TIME -> DATETIME; INT64, INT64, INT64, INT64, INT64, INT64 -> DATETIME
TIME: TIMESTAMP, STRING? -> TIME; DATETIME -> TIME; TIME -> TIME; INT64, INT64, INT64 -> TIME
TIMESTAMP: TIMESTAMP -> TIMESTAMP; STRING, STRING? -> TIMESTAMP; DATE, STRING? -> TIMESTAMP
TIMESTAMP: DATETIME, STRING? -> TIMESTAMP
STRING: DATE -> STRING; DATETIME -> STRING; TIME -> STRING; TIMESTAMP, STRING? -> STRING; JSON -> STRING
FORMAT_DATE: STRING, DATE -> STRING; STRING, DATETIME -> STRING; STRING, TIMESTAMP -> STRING
FORMAT_DATETIME: STRING, DATETIME -> STRING; STRING, DATE -> STRING; STRING, TIMESTAMP -> STRING
FORMAT_TIMESTAMP: STRING, TIMESTAMP, STRING? -> STRING; STRING, DATE -> STRING; STRING, DATETIME -> STRING
FORMAT_TIME: STRING, TIME -> STRING
PARSE_DATE: STRING, STRING -> DATE
PARSE_DATETIME: STRING, STRING -> DATETIME
PARSE_TIME: STRING, STRING -> TIME
PARSE_TIMESTAMP: STRING, STRING, STRING? -> TIMESTAMP
UNIX_SECONDS UNIX_MILLIS UNIX_MICROS: TIMESTAMP -> INT64
UNIX_DATE: DATE -> INT64
DATE_FROM_UNIX_DATE: INT64 -> DATE
TIMESTAMP_SECONDS TIMESTAMP_MILLIS TIMESTAMP_MICROS: INT64 -> TIMESTAMP
ADD_MONTHS: DATE, INT64 -> DATE; DATETIME, INT64 -> DATETIME; TIMESTAMP, INT64 -> TIMESTAMP
JUSTIFY_HOURS JUSTIFY_DAYS JUSTIFY_INTERVAL: INTERVAL -> INTERVAL
DATE_ADD DATE_SUB DATETIME_ADD DATETIME_SUB TIME_ADD TIME_SUB TIMESTAMP_ADD TIMESTAMP_SUB TIME_TRUNC: 2
DATE_DIFF DATETIME_DIFF TIMESTAMP_DIFF TIME_DIFF: 3
DATE_TRUNC DATETIME_TRUNC TIMESTAMP_TRUNC EXTRACT: 2-3
LAST_DAY: 1-2
MAKE_INTERVAL: 0-6
# Arrays
ARRAY_LENGTH: ARRAY<T> -> INT64
ARRAY_REVERSE: ARRAY<T> -> ARRAY<T>
ARRAY_FIRST ARRAY_LAST: ARRAY<T> -> T
ARRAY_SLICE: ARRAY<T>, INT64, INT64 -> ARRAY<T>
ARRAY_CONCAT: ARRAY<T>... -> ARRAY<T>
ARRAY_TO_STRING: ARRAY<STRING>, STRING, STRING? -> STRING; ARRAY<BYTES>, BYTES, BYTES? -> BYTES
ARRAY_TO_STRING: ARRAY<T>, STRING, STRING? -> STRING
ARRAY_IS_DISTINCT: ARRAY<C> -> BOOL
ARRAY_MIN ARRAY_MAX: ARRAY<O> -> O
ARRAY_SUM ARRAY_AVG: ARRAY<FLOAT64> -> FLOAT64; ARRAY<NUMERIC> -> NUMERIC; ARRAY<BIGNUMERIC> -> BIGNUMERIC
ARRAY_SUM: ARRAY<INT64> -> INT64
ARRAY_AVG: ARRAY<INT64> -> FLOAT64
GENERATE_ARRAY: N, N, N? -> ARRAY<N>
GENERATE_DATE_ARRAY GENERATE_TIMESTAMP_ARRAY GENERATE_DATETIME_ARRAY: 2-3
ARRAY_INCLUDES ARRAY_FILTER ARRAY_TRANSFORM: 2
# Conditions, ranges and what belongs to no family
IF: BOOL, T, T -> T
IFNULL: T, T -> T
COALESCE: T... -> T
NULLIF: C, C -> C
GREATEST LEAST: O... -> O
RANGE_BUCKET: O, ARRAY<O>! -> INT64
RANGE: DATE, DATE -> RANGE<DATE>; DATETIME, DATETIME -> RANGE<DATETIME>; TIMESTAMP, TIMESTAMP -> RANGE<TIMESTAMP>
RANGE_START RANGE_END: RANGE<T>! -> T
RANGE_CONTAINS: RANGE<T>!, T -> BOOL; RANGE<T>!, RANGE<T>! -> BOOL
SESSION_USER CURRENT_USER: -> STRING
GENERATE_UUID: -> STRING
RAND: -> FLOAT64
COLLATE: 2
COLLATION ERROR: 1
# JSON
JSON_QUERY JSON_EXTRACT: STRING, STRING? -> STRING; JSON, STRING? -> JSON
JSON_VALUE JSON_EXTRACT_SCALAR: STRING, STRING? -> STRING; JSON, STRING? -> STRING
JSON_QUERY_ARRAY JSON_EXTRACT_ARRAY: STRING, STRING? -> ARRAY<STRING>; JSON, STRING? -> ARRAY<JSON>
JSON_VALUE_ARRAY JSON_EXTRACT_STRING_ARRAY: STRING, STRING? -> ARRAY<STRING>; JSON, STRING? -> ARRAY<STRING>
PARSE_JSON: STRING -> JSON
TO_JSON: T -> JSON
TO_JSON_STRING: T, BOOL? -> STRING
JSON_TYPE LAX_STRING: JSON -> STRING
BOOL LAX_BOOL: JSON -> BOOL
INT64 LAX_INT64: JSON -> INT64
FLOAT64 LAX_FLOAT64: JSON -> FLOAT64
JSON_KEYS: JSON, INT64? -> ARRAY<STRING>
JSON_STRIP_NULLS: JSON -> JSON
JSON_REMOVE: JSON, STRING... -> JSON
JSON_OBJECT JSON_ARRAY: 0+
JSON_SET JSON_ARRAY_APPEND: 3+
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
    repeated: bool = False  # whether the last parameter may come again
    typed: bool = False  # whether a NULL without a type is no ARRAY or RANGE of the variable

    def of(self, count: int) -> tuple[SqlType, ...] | None:
        """The parameters of a call with so many arguments, if it may have them."""
        more = count - len(self.parameters)
        if more and not (self.repeated and more > 0):
            return None
        return self.parameters + self.parameters[-1:] * more

    def shared(self, args: Sequence[Value]) -> list[Value]:
        """The arguments that have to have a common type."""
        parameters = self.of(len(args)) or ()
        return [arg for arg, kind in zip(args, parameters, strict=False) if kind in VARIABLES]


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    kind: str  # scalar, aggregate, window
    least: int
    most: int | None  # without a limit
    signatures: tuple[Signature, ...] = ()

    def takes(self, count: int) -> bool:
        return self.least <= count and (self.most is None or count <= self.most)

    def overloads(self, written: str) -> list[Signature]:
        """Those of these parameters, written as in the table."""
        wanted = [(one.parameters, one.repeated) for one in _signatures(written, STRING)]
        found = [one for one in self.signatures if (one.parameters, one.repeated) in wanted]
        assert len(found) == len(wanted), (self.name, written)
        return found

    @property
    def wanted(self) -> str:
        """How many arguments it takes, in words."""
        if self.most is None:
            return f"at least {self.least}"
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"

    @property
    def described(self) -> str:
        return "; ".join(
            f"{self.name}({', '.join(str(_put(kind, _ANY)) for kind in one.parameters)}{'...' if one.repeated else ''})"
            for one in self.signatures
        )


@dataclass(frozen=True, slots=True)
class Chosen:
    """The overload of a call."""

    signature: Signature  # as the table has it
    args: tuple[Value, ...]  # converted to its parameters
    returns: SqlType


def types(text: str) -> tuple[SqlType, ...]:
    """Types separated by commas or spaces: `STRING ARRAY<INT64>`."""
    return tuple(map(_type, text.replace(",", " ").split()))


def _type(text: str) -> SqlType:
    kind, _, element = text.removesuffix(">").partition("<")
    found = SqlType(kind, _type(element)) if element else SCALARS.get(kind, SqlType(kind))
    assert element or kind in SCALARS or found in VARIABLES, text
    return found


def _signatures(parameters: str, returns: SqlType) -> list[Signature]:
    """One overload; as many as there are numbers of arguments, where some may be left out."""
    written = parameters.replace(",", " ").split()
    kinds = types(" ".join(one.rstrip("?!.") for one in written))
    least = sum(not one.endswith("?") for one in written)
    repeated, typed = "..." in parameters, "!" in parameters
    return [Signature(kinds[:count], returns, repeated, typed) for count in range(least, len(kinds) + 1)]


def _read(table: str, kind: str) -> dict[str, Function]:
    found: dict[str, Function] = {}
    for line in table.strip().splitlines():
        if line.startswith("#"):
            continue
        names, _, text = line.partition(": ")
        if "->" in text:
            overloads = (one.partition("->") for one in text.split("; "))
            signatures = [one for before, _, after in overloads for one in _signatures(before, *types(after))]
            for name in names.split():
                known = (*(found[name].signatures if name in found else ()), *signatures)
                sizes = [len(one.parameters) for one in known]
                most = None if any(one.repeated for one in known) else max(sizes)
                found[name] = Function(name, kind, min(sizes), most, known)
            continue
        least, _, most_text = text.rstrip("+").partition("-")
        for name in names.split():
            found[name] = Function(name, kind, int(least), None if text.endswith("+") else int(most_text or least))
    return found


FUNCTIONS = {**_read(_SCALAR, "scalar"), **_read(_AGGREGATE, "aggregate"), **_read(_WINDOW, "window")}


def overload(
    function: Function,
    args: Sequence[Value],
    conversions: Conversions,
    available: Callable[[Signature], bool] = lambda signature: True,
) -> Chosen | None:
    """The overload whose types are the arguments' own, or the nearest they convert to.

    Of equally near ones it is the first that is `available`; what is nearest and not available is still the answer.
    """
    fitting = [(one, bound) for one in function.signatures if (bound := _bound(one, args, conversions)) is not None]

    def distance(pair: tuple[Signature, Signature]) -> tuple[int, bool]:
        return sum(map(_distance, args, pair[1].parameters)), not available(pair[0])

    for signature, bound in sorted(fitting, key=distance):
        converted = list(map(conversions.coerce, args, bound.parameters))
        found = tuple(item for item in converted if item is not None)
        if len(found) == len(args):
            return Chosen(signature, found, bound.returns)
        pairs = zip(args, bound.parameters, converted, strict=True)
        if all(item is not None or _is_read(arg, kind) for arg, kind, item in pairs):
            return None  # a text that is none of that type is not taken for another's
    return None


def _is_read(value: Value, kind: SqlType) -> bool:
    """Whether a value becomes one of that type by reading it, if it can be read."""
    return value.literal and value.type is STRING and kind.kind in CIVIL


def _bound(signature: Signature, args: Sequence[Value], conversions: Conversions) -> Signature | None:
    """The signature with a parameter for each argument, and a type for its variable."""
    parameters = signature.of(len(args))
    variable = next((one for kind in signature.parameters for one in (kind, kind.element) if one in VARIABLES), None)
    if parameters is None or variable is None:
        return None if parameters is None else Signature(parameters, signature.returns)
    items: list[Value] = []  # what has to have a common type
    empty: list[Value] = []  # elements of arrays that have none
    for arg, kind in zip(args, parameters, strict=True):
        if kind == variable:
            items.append(arg)
        elif kind.element == variable and (signature.typed or not (arg.null or arg.raises)):
            if arg.type.kind != kind.kind or arg.type.element is None:
                return None
            (items if arg.members != () else empty).extend(arg.members or [Value("", arg.type.element)])
    found = conversions.supertype(items or empty)
    if found is None or not VARIABLES[variable](found):
        return None
    return Signature(tuple(_put(kind, found) for kind in parameters), _put(signature.returns, found))


def _put(kind: SqlType, found: SqlType) -> SqlType:
    """The type with another in place of its variable."""
    return found if kind in VARIABLES else SqlType(kind.kind, found) if kind.element in VARIABLES else kind


# How far a conversion goes: INT64 rather becomes FLOAT64, but NUMERIC stays exact while it can.
_STEPS = {
    ("INT64", "FLOAT64"): 2, ("INT64", "NUMERIC"): 3, ("INT64", "BIGNUMERIC"): 4, ("NUMERIC", "BIGNUMERIC"): 5,
    ("FLOAT64", "NUMERIC"): 8, ("FLOAT64", "BIGNUMERIC"): 9, ("NUMERIC", "FLOAT64"): 9,
}  # fmt: skip


def _distance(value: Value, kind: SqlType) -> int:
    if value.null or value.raises or value.type == kind:
        return 0
    return 1 if value.literal and not value.type.numeric else _STEPS.get((value.type.kind, kind.kind), 20)
