"""String and BYTES functions. Positions count characters in a STRING and bytes in BYTES, starting at 1."""

import re

from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.types import BOOL, BYTES, FLOAT64, INT64, NUMERIC, STRING, array_of
from ingestd.googlesql.values import Value
from ingestd.spark.sql.farmhash import NAME as FARM_FINGERPRINT
from ingestd.spark.sql.functions.patterns import java_pattern, java_replacement, matches_nothing, may_be_absent
from ingestd.spark.sql.functions.registry import NEVER_FAILS, Call, define, function
from ingestd.spark.sql.values import cast, fill, fresh, text_sql

# Not least() and greatest(): they skip a NULL.
_MOST = 2**31 - 1
_INT = f"CAST(CASE WHEN {{0}} > {_MOST}L THEN {_MOST}L WHEN {{0}} < -{_MOST}L THEN -{_MOST}L ELSE {{0}} END AS INT)"
_SPACE = "".join(map(chr, (*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
                           0x205F, 0x3000)))  # fmt: skip

define("UPPER", "STRING", "upper(@0)", safe=NEVER_FAILS)
define("LOWER", "STRING", "lower(@0)", safe=NEVER_FAILS)
define("LENGTH CHAR_LENGTH CHARACTER_LENGTH", "STRING", "CAST(length(@0) AS BIGINT)", safe=NEVER_FAILS)
define("LENGTH BYTE_LENGTH OCTET_LENGTH", "BYTES", "CAST(octet_length(@0) AS BIGINT)", safe=NEVER_FAILS)
define("BYTE_LENGTH OCTET_LENGTH", "STRING", "CAST(octet_length(@0) AS BIGINT)", safe=NEVER_FAILS)
define("REVERSE", "STRING", "reverse(@0)", safe=NEVER_FAILS)
for _kind in ("STRING", "BYTES"):
    define("STARTS_WITH", f"{_kind} {_kind}", "startswith(@0, @1)", safe=NEVER_FAILS)
    define("ENDS_WITH", f"{_kind} {_kind}", "endswith(@0, @1)", safe=NEVER_FAILS)
define("STRPOS INSTR", "STRING STRING", "CAST(locate(@1, @0) AS BIGINT)", safe=NEVER_FAILS)
define("REPLACE", "STRING STRING STRING", "replace(@0, @1, @2)", safe=NEVER_FAILS)
_REPEATED = f"repeat(@0, {_INT.format('@1')})"
define(
    "REPEAT", "STRING INT64",
    "CASE WHEN @1 < 0 THEN raise_error('Second argument in REPEAT() cannot be negative') "
    "WHEN length(@0) * @1 > 1048576 THEN raise_error('Output of REPEAT exceeds max allowed output size of 1MB') "
    f"ELSE {_REPEATED} END",
    safe=f"IF(@1 < 0 OR length(@0) * @1 > 1048576, NULL, {_REPEATED})",
)  # fmt: skip
define("UNICODE", "STRING", "CAST(ascii(@0) AS BIGINT)", safe=NEVER_FAILS)
define(
    "ASCII", "STRING",
    "IF(ascii(@0) > 127, raise_error(concat('Non-ASCII character in ASCII(', @0, ')')), CAST(ascii(@0) AS BIGINT))",
    safe="IF(ascii(@0) > 127, NULL, CAST(ascii(@0) AS BIGINT))",
)  # fmt: skip
_CHARACTER = (
    "IF({0} BETWEEN 55296 AND 57343, raise_error(concat('Invalid codepoint ', {0})), "
    "decode(unhex(lpad(hex({0}), 8, '0')), 'UTF-32'))"
)
define("CHR", "INT64", _CHARACTER.format("@0"))
define(
    "CODE_POINTS_TO_STRING", "ARRAY<INT64>",
    f"IF(exists(@0, _p -> _p IS NULL), NULL, array_join(transform(@0, _p -> {_CHARACTER.format('_p')}), ''))",
)  # fmt: skip
define(
    "TO_CODE_POINTS", "STRING",
    "IF(@0 = '', CAST(array() AS ARRAY<BIGINT>), transform(split(@0, ''), _c -> CAST(ascii(_c) AS BIGINT)))",
    safe=NEVER_FAILS,
)  # fmt: skip
define(
    "TRANSLATE", "STRING STRING STRING",
    "IF(@1 <> '' AND size(split(@1, '')) <> size(array_distinct(split(@1, ''))), "
    "raise_error('Duplicate character in TRANSLATE source characters'), translate(@0, @1, @2))",
)  # fmt: skip
define("EDIT_DISTANCE", "STRING STRING", "CAST(levenshtein(@0, @1) AS BIGINT)", safe=NEVER_FAILS)
define("TO_HEX", "BYTES", "lower(hex(@0))", safe=NEVER_FAILS)
define("FROM_HEX", "STRING", "to_binary(@0, 'hex')", safe="try_to_binary(@0, 'hex')")
define("TO_BASE64", "BYTES", "replace(base64(@0), '\\r\\n', '')", safe=NEVER_FAILS)
# The signs that fill it up at its end may be left out.
_BASE64 = "rpad(@0, length(@0) + pmod(- length(@0), 4), '=')"
define(
    "FROM_BASE64", "STRING",
    f"to_binary({_BASE64}, 'base64')", safe=f"try_to_binary({_BASE64}, 'base64')",
)  # fmt: skip
define(
    "SAFE_CONVERT_BYTES_TO_STRING", "BYTES", "make_valid_utf8(CAST(@0 AS STRING))", safe=NEVER_FAILS,
)  # fmt: skip
for _name, _hash in (
    ("MD5", "md5(@0)"),
    ("SHA1", "sha1(@0)"),
    ("SHA256", "sha2(@0, 256)"),
    ("SHA512", "sha2(@0, 512)"),
):
    define(_name, "STRING", "unhex(" + _hash.replace("@0", "CAST(@0 AS BINARY)") + ")", safe=NEVER_FAILS)
    define(_name, "BYTES", f"unhex({_hash})", safe=NEVER_FAILS)
define("FARM_FINGERPRINT", "STRING", f"{FARM_FINGERPRINT}(CAST(@0 AS BINARY))", safe=NEVER_FAILS)
define("FARM_FINGERPRINT", "BYTES", f"{FARM_FINGERPRINT}(@0)", safe=NEVER_FAILS)


@function("CONCAT", safe=True)
def concat(call: Call) -> Value:
    """NULL when any argument is NULL; other types are written as CAST would."""
    args = call.values()
    if any(arg.type is BYTES and not arg.null for arg in args):
        return Value(f"concat({', '.join(call.want(arg, BYTES).sql for arg in args)})", BYTES)
    return Value(f"concat({', '.join(cast(arg, STRING).sql for arg in args)})", STRING)


@function("SUBSTR", "SUBSTRING", safe=True)
def substr(call: Call) -> Value:
    args = call.values()
    kind = BYTES if args[0].type is BYTES else STRING
    size = "octet_length(@0)" if kind is BYTES else "length(@0)"
    values = [call.want(args[0], kind), *(call.want(item, INT64) for item in args[1:])]
    # A position before the start is the start; to Spark it would shorten the answer.
    position = f"IF(@1 < -{size}, 1, {_INT.format('@1')})"
    if len(values) == 2:
        return Value(fill(f"substring(@0, {position})", *values), kind)
    failing = "NULL" if call.safe else f"raise_error('Third argument in {call.name}() cannot be negative')"
    return Value(fill(f"IF(@2 < 0, {failing}, substring(@0, {position}, {_INT.format('@2')}))", *values), kind)


@function("LEFT", "RIGHT", safe=True)
def left_right(call: Call) -> Value:
    args = call.values()
    value, size = call.want(args[0], STRING), call.want(args[1], INT64)
    failing = "NULL" if call.safe else f"raise_error('Second argument in {call.name}() cannot be negative')"
    body = f"{call.name.lower()}(@0, {_INT.format('@1')})"
    return Value(
        fill(f"CASE WHEN @0 IS NULL OR @1 IS NULL THEN NULL WHEN @1 < 0 THEN {failing} ELSE {body} END", value, size),
        STRING,
    )


@function("TRIM", "LTRIM", "RTRIM", safe=True)
def trim(call: Call) -> Value:
    args = call.values()
    value = call.want(args[0], STRING)
    characters = call.want(args[1], STRING).sql if len(args) == 2 else text_sql(_SPACE)
    side = {"TRIM": "BOTH", "LTRIM": "LEADING", "RTRIM": "TRAILING"}[call.name]
    return Value(f"trim({side} {characters} FROM {value.sql})", STRING)


@function("LPAD", "RPAD", safe=True)
def pad(call: Call) -> Value:
    args = call.values()
    values = [call.want(args[0], STRING), call.want(args[1], INT64)]
    values.append(call.want(args[2], STRING) if len(args) == 3 else Value("' '", STRING, simple=True))
    failing = "NULL" if call.safe else f"raise_error('{call.name} length cannot be negative or its pattern empty')"
    large = "NULL" if call.safe else f"raise_error('Output of {call.name} exceeds max allowed output size of 1MB')"
    body = f"{call.name.lower()}(@0, CAST(IF(@1 > 1048576L, 1048576L, @1) AS INT), @2)"
    template = f"CASE WHEN @1 < 0 OR @2 = '' THEN {failing} WHEN @1 > 1048576 THEN {large} ELSE {body} END"
    return Value(fill(template, *values), STRING)


@function("SPLIT", safe=True)
def split(call: Call) -> Value:
    value = call.typed(0, STRING)
    delimiter = call.text(1) if len(call.nodes) == 2 else ","
    pattern = text_sql(re.sub(r"([^A-Za-z0-9 ,;:_-])", r"\\\1", delimiter))
    return Value(f"split({value.sql}, {pattern}, -1)", array_of(STRING))


_WORD_ENDS = ' \t\n\r\f\v[](){}/|<>!?@"^#$&~_,.:;*%+-'


@function("INITCAP", safe=True)
def initcap(call: Call) -> Value:
    """The first letter of each word in capitals, the others not."""
    ends = call.text(1) if len(call.nodes) == 2 else _WORD_ENDS
    value = call.typed(0, STRING)
    if not ends:
        raise SqlError("INITCAP needs delimiters")
    members = re.sub(r"([^A-Za-z0-9])", r"\\\1", ends).replace("\\\n", "\\n").replace("\\\r", "\\r")
    words = f"regexp_extract_all(lower({value.sql}), {text_sql(f'(?s)[{members}]+|[^{members}]+')}, 0)"
    name = fresh("w")
    word = f"IF({name} RLIKE {text_sql(f'^[{members}]')}, {name}, concat(upper(left({name}, 1)), substr({name}, 2)))"
    return Value(f"array_join(transform({words}, {name} -> {word}), '')", STRING)


@function("REGEXP_CONTAINS", safe=True)
def regexp_contains(call: Call) -> Value:
    pattern, _ = java_pattern(call.text(1))
    return Value(f"regexp_like({call.typed(0, STRING).sql}, {text_sql(pattern)})", BOOL)


def _one_group(call: Call) -> tuple[str, int]:
    pattern, groups = java_pattern(call.text(1))
    if groups > 1:
        raise SqlError(f"{call.name}: the pattern has more than one group")
    return text_sql(pattern), groups


@function("REGEXP_EXTRACT", "REGEXP_SUBSTR", safe=True)
def regexp_extract(call: Call) -> Value:
    call.at_most(2)
    pattern, group = _one_group(call)
    if group and may_be_absent(call.text(1)):
        raise SqlError(f"{call.name} of a group that may be left out is not available on Spark")
    template = f"IF(regexp_like(@0, {pattern}), regexp_extract(@0, {pattern}, {group}), NULL)"
    return Value(fill(template, call.typed(0, STRING)), STRING)


@function("REGEXP_EXTRACT_ALL", safe=True)
def regexp_extract_all(call: Call) -> Value:
    pattern, group = _one_group(call)
    if matches_nothing(call.text(1)):
        raise SqlError(f"{call.name}: a pattern that matches an empty text is not available on Spark")
    return Value(f"regexp_extract_all({call.typed(0, STRING).sql}, {pattern}, {group})", array_of(STRING))


@function("REGEXP_REPLACE", safe=True)
def regexp_replace(call: Call) -> Value:
    pattern, groups = java_pattern(call.text(1))
    replacement = java_replacement(call.text(2), groups)
    sql = f"regexp_replace({call.typed(0, STRING).sql}, {text_sql(pattern)}, {text_sql(replacement)})"
    return Value(sql, STRING)


@function("REGEXP_INSTR", safe=True)
def regexp_instr(call: Call) -> Value:
    call.at_most(2)
    pattern, groups = java_pattern(call.text(1))
    if groups:
        raise SqlError("REGEXP_INSTR with a group is not available on Spark")
    return Value(f"CAST(regexp_instr({call.typed(0, STRING).sql}, {text_sql(pattern)}) AS BIGINT)", INT64)


_SPECIFIER = re.compile(r"%(?:%|([-+ 0']*)(\d*)(?:\.(\d+))?([a-zA-Z]))")


@function("FORMAT", safe=True)
def format_(call: Call) -> Value:
    """`%d %i %x %X %o %s %t %f`; NULL when an argument is, as `%t` alone writes it."""
    pattern = call.text(0)
    values = [call.compiler.expr(node, call.scope) for node in call.nodes[1:]]
    pieces: list[str] = []
    at = used = 0
    for found in _SPECIFIER.finditer(pattern):
        if found.start() > at:
            pieces.append(text_sql(pattern[at : found.start()]))
        at = found.end()
        if found[0] == "%%":
            pieces.append("'%'")
            continue
        if used >= len(values):
            raise SqlError("FORMAT has too few arguments")
        pieces.append(_formatted(call, found, values[used]))
        used += 1
    if at < len(pattern):
        pieces.append(text_sql(pattern[at:]))
    if "%" in _SPECIFIER.sub("", pattern) or used < len(values):
        raise SqlError(f"FORMAT {pattern!r} does not fit its arguments")
    return Value(f"concat({', '.join(pieces) or chr(39) * 2})", STRING)


def _padded(flags: str, width: str) -> str:
    return f"{'rpad' if '-' in flags else 'lpad'}(@0, greatest(length(@0), {width}), ' ')" if width else "@0"


def _formatted(call: Call, found: re.Match[str], value: Value) -> str:
    flags, width, precision, code = found[1], found[2], found[3], found[4]
    if code in "st":
        if flags.strip("-") or precision:
            raise SqlError(f"{found[0]} in FORMAT is not available on Spark")
        if code == "s":
            text = call.want(value, STRING)
        else:
            if value.type.kind in ("ARRAY", "STRUCT", "FLOAT64"):
                raise SqlError(f"%t of {value.type} in FORMAT is not available on Spark")
            text = Value(f"coalesce({cast(value, STRING).sql}, 'NULL')", STRING)
        return fill(_padded(flags, width), text)
    if code in "dixXo" and value.type is INT64:
        flags = flags.replace("'", ",")
        if precision or (code in "xXo" and set(flags) - {"0", "-"}):
            raise SqlError(f"{found[0]} in FORMAT is not available on Spark")
        java = f"%{flags}{width}{'d' if code in 'di' else code}"
        if code in "xXo":
            return fill(
                f"IF(@0 < 0, raise_error('FORMAT {code} of a negative number'), format_string('{java}', @0))", value
            )
        return fill(f"IF(@0 IS NULL, NULL, format_string('{java}', @0))", value)
    if code in "fF" and value.type is FLOAT64:
        # Java rounds the shortest digits of a double, GoogleSQL its exact value: 2.675 is 2.67 there.
        raise SqlError("FORMAT %f of a FLOAT64 is not available on Spark: CAST it to NUMERIC")
    if code in "fF" and value.type in (NUMERIC, INT64) and not flags.strip("-") and int(precision or 6) <= 9:
        number = call.want(value, NUMERIC)
        digits = int(precision or 6)
        text = Value(f"CAST(CAST(round({number.sql}, {digits}) AS DECIMAL(38,{digits})) AS STRING)", STRING)
        return fill(_padded(flags, width), text)
    raise SqlError(f"{found[0]} in FORMAT does not take {value.type} on Spark")
