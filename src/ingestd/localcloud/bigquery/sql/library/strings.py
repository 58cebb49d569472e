"""String and BYTES functions. Positions count characters in a STRING and bytes in BYTES, starting at 1."""

import re

from ingestd.formats.errors import not_implemented
from ingestd.googlesql import ast
from ingestd.googlesql.types import BYTES, STRING
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.coercion import cast, coerce, string_sql
from ingestd.localcloud.bigquery.sql.library.registry import Call, constant_text, define, function, writes
from ingestd.localcloud.bigquery.sql.runtime import strings as runtime

for _name in ("UPPER", "LOWER"):  # a letter may become several, which DuckDB does not know
    _lower = _name.lower()
    _other = f"CASE WHEN strlen({{0}}) = length({{0}}) THEN {_lower}({{0}}) ELSE bq_{_lower}({{0}}) END"
    define(_name, "STRING", _other)
define("LENGTH CHAR_LENGTH CHARACTER_LENGTH", "STRING", "length({0})")
define("LENGTH BYTE_LENGTH OCTET_LENGTH", "BYTES", "octet_length({0})")
define("BYTE_LENGTH OCTET_LENGTH", "STRING", "octet_length(encode({0}))")
define("REVERSE", "STRING", "reverse({0})")
define("REVERSE", "BYTES", "bq_reverse_bytes({0})")
define("STARTS_WITH", "STRING STRING", "starts_with({0}, {1})")
define("STARTS_WITH", "BYTES BYTES", "starts_with(hex({0}), hex({1}))")
define("ENDS_WITH", "STRING STRING", "ends_with({0}, {1})")
define("ENDS_WITH", "BYTES BYTES", "ends_with(hex({0}), hex({1}))")
define("STRPOS", "STRING STRING", "strpos({0}, {1})")
define("STRPOS", "BYTES BYTES", "((strpos(hex({0}), hex({1})) + 1) // 2)")
define("REPLACE", "STRING STRING STRING", "CASE WHEN {1} = '' THEN {0} ELSE replace({0}, {1}, {2}) END")
for _kind, _duckdb, _size in (("STRING", "VARCHAR", "length"), ("BYTES", "BLOB", "octet_length")):
    _negative = f"CAST(bq_error('Second argument in REPEAT() cannot be negative') AS {_duckdb})"
    _large = f"CAST(bq_error('Output of REPEAT exceeds max allowed output size of 1MB') AS {_duckdb})"
    _check = f"CAST({_size}({{0}}) AS HUGEINT) * {{1}} > 1048576"
    # The inner CASE keeps DuckDB from computing a huge constant that the outer one then refuses.
    define(
        "REPEAT",
        f"{_kind} INT64",
        f"CASE WHEN {{1}} < 0 THEN {_negative} WHEN {_check} THEN {_large} "
        f"ELSE repeat({{0}}, CASE WHEN {_check} THEN 0 ELSE {{1}} END) END",
    )
define(
    "ASCII", "STRING", "CASE WHEN {0} = '' THEN 0 WHEN ascii({0}) > 127 "
    "THEN CAST(bq_error('Non-ASCII character in ASCII(' || {0} || ')') AS BIGINT) ELSE ascii({0}) END",
)  # fmt: skip
define("UNICODE", "STRING", "CASE WHEN {0} = '' THEN 0 ELSE unicode({0}) END")
define("CHR", "INT64", "bq_code_points_to_string([{0}])")
define("SOUNDEX", "STRING", "bq_soundex({0})")
define("TRANSLATE", "STRING STRING STRING", "bq_translate({0}, {1}, {2})")
define("INSTR", "STRING STRING", "bq_instr({0}, {1}, 1, 1)")
define("INSTR", "STRING STRING INT64", "bq_instr({0}, {1}, {2}, 1)")
define("INSTR", "STRING STRING INT64 INT64", "bq_instr({0}, {1}, {2}, {3})")
# DuckDB counts bytes, BigQuery characters; of text whose characters are bytes DuckDB's is the faster one.
define(
    "EDIT_DISTANCE",
    "STRING STRING",
    "CASE WHEN strlen({0}) = length({0}) AND strlen({1}) = length({1}) THEN levenshtein({0}, {1}) "
    "ELSE bq_edit_distance({0}, {1}) END",
)
define("EDIT_DISTANCE", "BYTES BYTES", "bq_edit_distance_bytes({0}, {1})")
define("TO_HEX", "BYTES", "lower(hex({0}))")
define("FROM_HEX", "STRING", "bq_from_hex({0})")
define("TO_BASE64", "BYTES", "to_base64({0})")
define("FROM_BASE64", "STRING", "from_base64({0} || repeat('=', (4 - length({0}) % 4) % 4))")
define("TO_BASE32", "BYTES", "bq_base32({0})")
define("FROM_BASE32", "STRING", "bq_from_base32({0})")
define("SAFE_CONVERT_BYTES_TO_STRING", "BYTES", "bq_safe_convert({0})")
define("TO_CODE_POINTS", "STRING", "bq_to_code_points({0})")
define("TO_CODE_POINTS", "BYTES", "bq_to_code_points_bytes({0})")
define("CODE_POINTS_TO_STRING", "ARRAY<INT64>", "bq_code_points_to_string({0})")
define("CODE_POINTS_TO_BYTES", "ARRAY<INT64>", "bq_code_points_to_bytes({0})")
define("FARM_FINGERPRINT", "STRING", "bq_farm_fingerprint({0})")
define("FARM_FINGERPRINT", "BYTES", "bq_farm_fingerprint_bytes({0})")
for _name in ("MD5", "SHA1", "SHA256", "SHA512"):
    define(_name, "STRING", f"bq_hash('{_name.lower()}', encode({{0}}))")
    define(_name, "BYTES", f"bq_hash('{_name.lower()}', {{0}})")
_OPTIONAL = re.compile(r"\)[?*{]|\|")
define("REGEXP_INSTR", "STRING STRING", "bq_regexp_instr({0}, {1}, 1, 1, 0)")
define("REGEXP_INSTR", "STRING STRING INT64", "bq_regexp_instr({0}, {1}, {2}, 1, 0)")
define("REGEXP_INSTR", "STRING STRING INT64 INT64", "bq_regexp_instr({0}, {1}, {2}, {3}, 0)")
define("REGEXP_INSTR", "STRING STRING INT64 INT64 INT64", "bq_regexp_instr({0}, {1}, {2}, {3}, {4})")


def _constant_pattern(call: Call, pattern: Value) -> str | None:
    """A literal pattern, checked here, which then runs on DuckDB's own RE2."""
    text = constant_text(pattern)
    if text is None:
        return None
    try:
        if call.name in ("REGEXP_CONTAINS", "REGEXP_REPLACE"):
            runtime.pattern(text)
        else:
            runtime.one_group(text)
    except ValueError as error:
        call.fail(str(error))
    return text


@writes("REGEXP_CONTAINS")
def regexp_contains(call: Call, value: Value, pattern: Value) -> str:
    native = _constant_pattern(call, pattern) is not None
    return f"{'regexp_matches' if native else 'bq_regexp_contains'}({value.sql}, {pattern.sql})"


@writes("REGEXP_EXTRACT REGEXP_SUBSTR")
def regexp_extract(call: Call, value: Value, pattern: Value, *numbers: Value) -> str:
    text = _constant_pattern(call, pattern)
    # A group that took no part is NULL; DuckDB does not tell it from an empty one.
    optional = text is not None and runtime.one_group(text) == 1 and _OPTIONAL.search(text) is not None
    if not numbers and text is not None and not optional:
        found = f"regexp_extract({value.sql}, {pattern.sql}, {runtime.one_group(text)})"
        return f"(CASE WHEN regexp_matches({value.sql}, {pattern.sql}) THEN {found} END)"
    position, occurrence = [*(item.sql for item in numbers), "1", "1"][:2]
    return f"bq_regexp_extract({value.sql}, {pattern.sql}, {position}, {occurrence})"


@writes("REGEXP_EXTRACT_ALL")
def regexp_extract_all(call: Call, value: Value, pattern: Value) -> str:
    text = _constant_pattern(call, pattern)
    plain = text is not None and runtime.pattern(text).search("") is None
    if text is not None and plain and not (runtime.one_group(text) == 1 and _OPTIONAL.search(text)):
        return f"regexp_extract_all({value.sql}, {pattern.sql}, {runtime.one_group(text)})"
    return f"bq_regexp_extract_all({value.sql}, {pattern.sql})"


@writes("REGEXP_REPLACE")
def regexp_replace(call: Call, value: Value, pattern: Value, new: Value) -> str:
    text, replacement = _constant_pattern(call, pattern), constant_text(new)
    if text is None or replacement is None:
        return f"bq_regexp_replace({value.sql}, {pattern.sql}, {new.sql})"
    try:
        runtime.replacement(replacement, runtime.group_count(text))
    except ValueError as error:
        call.fail(str(error))
    return f"regexp_replace({value.sql}, {pattern.sql}, {new.sql}, 'g')"


@function("CONCAT")
def concat(call: Call) -> Value:
    """NULL when any argument is NULL; other types are written as CAST would."""
    parts = call.texts()
    return Value("(" + " || ".join(part.sql for part in parts) + ")", parts[0].type)


@writes("SUBSTR SUBSTRING")
def substr(call: Call, value: Value, position: Value, length: Value | None = None) -> str:
    if value.type is BYTES:
        body = f"bq_substr_bytes({value.sql}, {position.sql}, {length.sql if length else '-1'})"
    else:
        body = f"bq_substr({value.sql}, {position.sql})"
        if length is not None:
            body = f"left({body}, nullif(least(coalesce({length.sql}, -1), 2147483647), -1))"
    if length is None:
        return body if value.type is BYTES else f"({body})"
    error = f"CAST(bq_error('Third argument in SUBSTR() cannot be negative') AS {duckdb_type(value.type)})"
    return f"(CASE WHEN {length.sql} < 0 THEN {error} ELSE {body} END)"


@writes("LEFT RIGHT")
def left_right(call: Call, value: Value, size: Value) -> str:
    x, length, name = value.sql, size.sql, call.name.lower()
    if value.type is BYTES:
        start = "1" if name == "left" else f"greatest(octet_length({x}) - {length} + 1, 1)"
        return f"bq_substr_bytes({x}, {start}, {length})"
    error = f"CAST(bq_error('Second argument in {call.name}() cannot be negative') AS VARCHAR)"
    return f"(CASE WHEN {length} < 0 THEN {error} ELSE {name}({x}, {length}) END)"


for _name in ("TRIM", "LTRIM", "RTRIM"):
    # Without a set, all Unicode white space goes.
    _space = " || ".join(["' '", *(f"chr({_code})" for _code in (9, 10, 11, 12, 13, 133, 160, 8195, 12288))])
    define(_name, "STRING", f"{_name.lower()}({{0}}, {_space})")
    define(_name, "STRING, STRING", f"{_name.lower()}({{0}}, {{1}})")
    # Bytes as code points below 256, so that trimming works byte by byte.
    _text, _cut = (f"bq_code_points_to_string(bq_to_code_points_bytes({x}))" for x in ("{0}", "{1}"))
    _trimmed = f"{_name.lower()}({_text}, {_cut})"
    _points = f"list_transform(string_split({_trimmed}, ''), lambda _e: CAST(unicode(_e) AS BIGINT))"
    define(
        _name, "BYTES, BYTES",
        f"CASE WHEN {_trimmed} = '' THEN from_hex('') ELSE bq_code_points_to_bytes({_points}) END",
    )  # fmt: skip


@writes("LPAD RPAD")
def pad(call: Call, value: Value, size: Value, pattern: Value | None = None) -> str:
    x, length = value.sql, size.sql
    if value.type is BYTES:
        filler = pattern.sql if pattern is not None else "from_hex('20')"
        return f"bq_bytes_pad({x}, {length}, {filler}, {call.name == 'LPAD'})"
    filler = pattern.sql if pattern is not None else "' '"
    error = f"CAST(bq_error('{call.name} length cannot be negative, and the pattern cannot be empty') AS VARCHAR)"
    large = f"CAST(bq_error('Output of {call.name} exceeds max allowed output size of 1MB') AS VARCHAR)"
    body = f"{call.name.lower()}({x}, CAST(least({length}, 1048576) AS INTEGER), {filler})"
    checks = (
        f"WHEN {x} IS NULL OR {length} IS NULL THEN NULL WHEN {length} < 0 OR {filler} = '' "
        f"THEN {error} WHEN {length} > 1048576 THEN {large}"
    )
    return f"(CASE {checks} ELSE {body} END)"


@writes("SPLIT")
def split(call: Call, value: Value, delimiter: Value | None = None) -> str:
    if value.type is BYTES:
        raise not_implemented("SPLIT of BYTES")
    between = delimiter.sql if delimiter is not None else "','"
    return f"(CASE WHEN {value.sql} = '' THEN [''] ELSE string_split({value.sql}, {between}) END)"


define(
    "INITCAP",
    "STRING",
    f"bq_initcap({{0}}, {string_sql(runtime.default_delimiters()).replace('{', '{{').replace('}', '}}')})",
)
define("INITCAP", "STRING, STRING", "bq_initcap({0}, {1})")


@function("NORMALIZE", "NORMALIZE_AND_CASEFOLD")
def normalize(call: Call) -> Value:
    value = call.typed(0, STRING)
    form = "NFC"
    if len(call.nodes) == 2:
        written = call.nodes[1]
        form = written.parts[0].upper() if isinstance(written, ast.Path) else ""
        if form not in ("NFC", "NFD", "NFKC", "NFKD"):
            call.fail("Invalid normalization mode; it must be one of NFC, NFKC, NFD, NFKD", written)
    return Value(f"bq_normalize({value.sql}, '{form}', {call.name != 'NORMALIZE'})", STRING)


@writes("CONTAINS_SUBSTR")
def contains_substr(call: Call, value: Value, wanted: Value) -> str:
    """Searches a value's text; rows, structs and arrays are searched through all their values."""
    if call.named("json_scope") is not None:
        raise not_implemented("CONTAINS_SUBSTR's json_scope")
    return _search(value, wanted.sql)


def _search(value: Value, wanted: str) -> str:
    kind = value.type
    if kind.kind == "STRUCT":
        members = [
            Value(f"struct_extract({value.sql}, {string_sql(name)})", inner)
            for name, (_, inner) in zip(kind.physical_names, kind.fields, strict=True)
        ]
        parts = [f"coalesce({_search(member, wanted)}, FALSE)" for member in members]
        return "(" + " OR ".join(parts) + ")"
    if kind.kind == "ARRAY":
        assert kind.element is not None
        inner = _search(Value("_e", kind.element), wanted)
        return f"(len(list_filter({value.sql}, lambda _e: {inner})) > 0)"
    text = coerce(value, STRING) or cast(value, STRING)
    return f"bq_contains_substr({text.sql}, {wanted})"
