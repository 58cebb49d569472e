"""String and BYTES functions. Positions count characters in a STRING and bytes in BYTES, starting at 1."""

import re

from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.types import BYTES, FLOAT64, INT64, NUMERIC, STRING
from ingestd.googlesql.values import Value
from ingestd.spark.sql.farmhash import NAME as FARM_FINGERPRINT
from ingestd.spark.sql.functions.patterns import java_pattern, java_replacement, matches_nothing, may_be_absent
from ingestd.spark.sql.functions.registry import NEVER_FAILS, Call, define, function, writes
from ingestd.spark.sql.values import cast, fill, fresh, literal, text_sql

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
    parts = call.texts()
    return Value(f"concat({', '.join(part.sql for part in parts)})", parts[0].type)


@writes("SUBSTR SUBSTRING", safe=True)
def substr(call: Call, value: Value, position: Value, length: Value | None = None) -> str:
    size = "octet_length(@0)" if value.type is BYTES else "length(@0)"
    # A position before the start is the start; to Spark it would shorten the answer.
    start = f"IF(@1 < -{size}, 1, {_INT.format('@1')})"
    if length is None:
        return fill(f"substring(@0, {start})", value, position)
    failing = "NULL" if call.safe else f"raise_error('Third argument in {call.name}() cannot be negative')"
    body = f"substring(@0, {start}, {_INT.format('@2')})"
    return fill(f"IF(@2 < 0, {failing}, {body})", value, position, length)


for _name in ("LEFT", "RIGHT"):
    _side = (
        "CASE WHEN @0 IS NULL OR @1 IS NULL THEN NULL WHEN @1 < 0 THEN {} "
        f"ELSE {_name.lower()}(@0, {_INT.format('@1')}) END"
    )
    _negative = f"raise_error('Second argument in {_name}() cannot be negative')"
    define(_name, "STRING, INT64", _side.format(_negative), safe=_side.format("NULL"))
for _name, _side in (("TRIM", "BOTH"), ("LTRIM", "LEADING"), ("RTRIM", "TRAILING")):
    define(_name, "STRING", f"trim({_side} {text_sql(_SPACE)} FROM @0)", safe=NEVER_FAILS)
    define(_name, "STRING, STRING", f"trim({_side} @1 FROM @0)", safe=NEVER_FAILS)


_BLANK, _COMMA = literal(" ", STRING), literal(",", STRING)


@writes("LPAD RPAD", "STRING, INT64, STRING?", safe=True)
def pad(call: Call, value: Value, size: Value, filler: Value = _BLANK) -> str:
    failing = "NULL" if call.safe else f"raise_error('{call.name} length cannot be negative or its pattern empty')"
    large = "NULL" if call.safe else f"raise_error('Output of {call.name} exceeds max allowed output size of 1MB')"
    body = f"{call.name.lower()}(@0, CAST(IF(@1 > 1048576L, 1048576L, @1) AS INT), @2)"
    template = f"CASE WHEN @1 < 0 OR @2 = '' THEN {failing} WHEN @1 > 1048576 THEN {large} ELSE {body} END"
    return fill(template, value, size, filler)


@writes("SPLIT", "STRING, STRING?", safe=True, texts=[1])
def split(call: Call, value: Value, delimiter: Value = _COMMA) -> str:
    pattern = text_sql(re.sub(r"([^A-Za-z0-9 ,;:_-])", r"\\\1", str(delimiter.constant)))
    return f"split({value.sql}, {pattern}, -1)"


_WORD_ENDS = literal(' \t\n\r\f\v[](){}/|<>!?@"^#$&~_,.:;*%+-', STRING)


@writes("INITCAP", safe=True, texts=[1])
def initcap(call: Call, value: Value, delimiters: Value = _WORD_ENDS) -> str:
    """The first letter of each word in capitals, the others not."""
    ends = str(delimiters.constant)
    if not ends:
        raise SqlError("INITCAP needs delimiters")
    members = re.sub(r"([^A-Za-z0-9])", r"\\\1", ends).replace("\\\n", "\\n").replace("\\\r", "\\r")
    words = f"regexp_extract_all(lower({value.sql}), {text_sql(f'(?s)[{members}]+|[^{members}]+')}, 0)"
    name = fresh("w")
    word = f"IF({name} RLIKE {text_sql(f'^[{members}]')}, {name}, concat(upper(left({name}, 1)), substr({name}, 2)))"
    return f"array_join(transform({words}, {name} -> {word}), '')"


@writes("REGEXP_CONTAINS", safe=True, texts=[1])
def regexp_contains(call: Call, value: Value, pattern: Value) -> str:
    return f"regexp_like({value.sql}, {text_sql(java_pattern(str(pattern.constant))[0])})"


def _one_group(call: Call, pattern: str) -> tuple[str, int]:
    java, groups = java_pattern(pattern)
    if groups > 1:
        raise SqlError(f"{call.name}: the pattern has more than one group")
    return text_sql(java), groups


@writes("REGEXP_EXTRACT REGEXP_SUBSTR", safe=True, texts=[1])
def regexp_extract(call: Call, value: Value, pattern: Value, *rest: Value) -> str:
    call.at_most(2)
    java, group = _one_group(call, str(pattern.constant))
    if group and may_be_absent(str(pattern.constant)):
        raise SqlError(f"{call.name} of a group that may be left out is not available on Spark")
    return fill(f"IF(regexp_like(@0, {java}), regexp_extract(@0, {java}, {group}), NULL)", value)


@writes("REGEXP_EXTRACT_ALL", safe=True, texts=[1])
def regexp_extract_all(call: Call, value: Value, pattern: Value) -> str:
    java, group = _one_group(call, str(pattern.constant))
    if matches_nothing(str(pattern.constant)):
        raise SqlError(f"{call.name}: a pattern that matches an empty text is not available on Spark")
    return f"regexp_extract_all({value.sql}, {java}, {group})"


@writes("REGEXP_REPLACE", safe=True, texts=[1, 2])
def regexp_replace(call: Call, value: Value, pattern: Value, new: Value) -> str:
    java, groups = java_pattern(str(pattern.constant))
    replacement = java_replacement(str(new.constant), groups)
    return f"regexp_replace({value.sql}, {text_sql(java)}, {text_sql(replacement)})"


@writes("REGEXP_INSTR", safe=True, texts=[1])
def regexp_instr(call: Call, value: Value, pattern: Value, *rest: Value) -> str:
    call.at_most(2)
    java, groups = java_pattern(str(pattern.constant))
    if groups:
        raise SqlError("REGEXP_INSTR with a group is not available on Spark")
    return f"CAST(regexp_instr({value.sql}, {text_sql(java)}) AS BIGINT)"


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
