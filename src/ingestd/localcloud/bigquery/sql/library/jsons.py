"""JSON functions. Functions that take JSON text (STRING) and those that take JSON share names and differ in type."""

from ingestd.formats.errors import not_implemented
from ingestd.googlesql.types import JSON, STRING, SqlType
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.sql.coercion import cast, string_sql
from ingestd.localcloud.bigquery.sql.library.registry import Call, constant_text, define, function, writes
from ingestd.localcloud.bigquery.sql.runtime import jsons as runtime


def _json(sql: str) -> Value:
    return Value(f"CAST({sql} AS JSON)", JSON)


def _path(call: Call, path: Value | None) -> str:
    text = constant_text(path) if path is not None else None
    if text is not None:
        try:
            runtime.path(text)
        except ValueError as error:
            call.fail(str(error))
    return path.sql if path is not None else "'$'"


@writes("JSON_QUERY JSON_EXTRACT")
def query(call: Call, value: Value, path: Value | None = None) -> str:
    if value.type is JSON:
        return f"CAST(bq_json_query({value.sql}, {_path(call, path)}) AS JSON)"
    return f"bq_json_query_text({value.sql}, {_path(call, path)})"


@writes("JSON_VALUE JSON_EXTRACT_SCALAR")
def value_(call: Call, value: Value, path: Value | None = None) -> str:
    return f"bq_json_value_text({value.sql}, {_path(call, path)})"


@writes("JSON_QUERY_ARRAY JSON_EXTRACT_ARRAY")
def query_array(call: Call, value: Value, path: Value | None = None) -> str:
    listed = f"bq_json_query_array_text({value.sql}, {_path(call, path)})"
    return f"CAST({listed} AS JSON[])" if value.type is JSON else listed


@writes("JSON_VALUE_ARRAY JSON_EXTRACT_STRING_ARRAY")
def value_array(call: Call, value: Value, path: Value | None = None) -> str:
    return f"bq_json_value_array_text({value.sql}, {_path(call, path)})"


@writes("PARSE_JSON")
def parse_json(call: Call, value: Value) -> str:
    mode = "exact"
    written = call.named("wide_number_mode")
    if written is not None:
        mode = constant_text(call.compiler.expr(written, call.scope)) or ""
        if mode not in ("exact", "round"):
            call.fail("Invalid wide_number_mode; it must be 'exact' or 'round'")
    return f"CAST(bq_parse_json({value.sql}, '{mode}') AS JSON)"


@writes("TO_JSON_STRING")
def to_json_string(call: Call, value: Value, pretty: Value | None = None) -> str:
    if pretty is not None and pretty.constant is not False:
        raise not_implemented("TO_JSON_STRING with pretty printing")
    return to_json_text(value)


@writes("TO_JSON")
def to_json(call: Call, value: Value) -> str:
    wide = call.named("stringify_wide_numbers")
    if wide is not None and call.compiler.expr(wide, call.scope).constant is not False:
        raise not_implemented("TO_JSON's stringify_wide_numbers")
    return f"CAST(bq_json_canonical({to_json_text(value, json_value=True)}) AS JSON)"


def to_json_text(value: Value, *, json_value: bool = False) -> str:
    """JSON text of any value; NULL is `null`."""
    return f"coalesce({_text(value.type, value.sql, 0, json_value=json_value)}, 'null')"


def _text(kind: SqlType, x: str, depth: int, *, json_value: bool) -> str:
    def inner(type_: SqlType, sql: str) -> str:
        return f"coalesce({_text(type_, sql, depth + 1, json_value=json_value)}, 'null')"

    match kind.kind:
        case "ARRAY":
            assert kind.element is not None
            item = f"_e{depth}"
            listed = f"list_transform({x}, lambda {item}: {inner(kind.element, item)})"
            written = f"'[' || coalesce(array_to_string({listed}, ','), '') || ']'"
            return f"CASE WHEN {x} IS NULL THEN NULL ELSE {written} END"
        case "STRUCT":
            if not kind.fields:
                return "'{}'"
            members = []
            for physical, (name, type_) in zip(kind.physical_names, kind.fields, strict=True):
                key = string_sql(runtime.dump(name) + ":")
                members.append(f"{key} || {inner(type_, f'struct_extract({x}, {string_sql(physical)})')}")
            body = " || ',' || ".join(members)
            return f"CASE WHEN {x} IS NULL THEN NULL ELSE '{{' || {body} || '}}' END"
        case "INT64":
            if json_value:
                return f"CAST({x} AS VARCHAR)"
            # Larger integers lose digits in JavaScript: they are written as strings.
            text = f"CAST({x} AS VARCHAR)"
            return f"CASE WHEN abs(CAST({x} AS HUGEINT)) > 9007199254740992 THEN '\"' || {text} || '\"' ELSE {text} END"
        case "FLOAT64":
            text = f"bq_float64_to_string({x})"
            infinite = f"WHEN {x} > 0 THEN '\"Infinity\"' WHEN {x} < 0 THEN '\"-Infinity\"'"
            special = f"CASE WHEN isnan({x}) THEN '\"NaN\"' {infinite} END"
            if json_value:
                text = f"CASE WHEN regexp_matches({text}, '^-?[0-9]+$') THEN {text} || '.0' ELSE {text} END"
            return f"CASE WHEN isfinite({x}) THEN {text} ELSE {special} END"
        case "BOOL":
            return f"CAST({x} AS VARCHAR)"
        case "NUMERIC" | "BIGNUMERIC":
            text = cast(Value(x, kind), STRING).sql
            if json_value:
                return text
            # What is no whole number that JavaScript holds is written as a string.
            plain = f"{x} = trunc({x}) AND abs({x}) <= 9007199254740992"
            return f"CASE WHEN {plain} THEN {text} ELSE '\"' || {text} || '\"' END"
        case "STRING" | "GEOGRAPHY":
            return f"CAST(to_json(CAST({x} AS VARCHAR)) AS VARCHAR)"
        case "BYTES":
            return f"'\"' || to_base64({x}) || '\"'"
        case "JSON":
            return f"CAST({x} AS VARCHAR)"
        case "TIMESTAMP":
            return f"'\"' || replace(bq_datetime_to_string({x} AT TIME ZONE 'UTC'), ' ', 'T') || 'Z\"'"
        case "DATETIME":
            return f"'\"' || replace(bq_datetime_to_string({x}), ' ', 'T') || '\"'"
        case "DATE" | "TIME" | "INTERVAL":
            return f"'\"' || {cast(Value(x, kind), STRING).sql} || '\"'"
    raise not_implemented(f"JSON of {kind}")


@function("JSON_OBJECT")
def json_object(call: Call) -> Value:
    args = call.values()
    if len(args) == 2 and all(arg.type.kind == "ARRAY" for arg in args):
        raise not_implemented("JSON_OBJECT of two arrays")
    if len(args) % 2:
        call.fail("JSON_OBJECT needs an even number of arguments")
    members = []
    for key, value in zip(args[::2], args[1::2], strict=True):
        name = call.want(key, STRING)
        members.append(f"CAST(to_json({name.sql}) AS VARCHAR) || ':' || {to_json_text(value, json_value=True)}")
    body = " || ',' || ".join(members) if members else "''"
    return _json(f"bq_json_canonical('{{' || {body} || '}}')")


@function("JSON_ARRAY")
def json_array(call: Call) -> Value:
    items = [to_json_text(call.compiler.expr(item, call.scope), json_value=True) for item in call.nodes]
    body = " || ',' || ".join(items) if items else "''"
    return _json(f"bq_json_canonical('[' || {body} || ']')")


define("JSON_TYPE", "JSON", "bq_json_type({0})")
for _name in ("BOOL", "INT64", "FLOAT64"):
    define(_name, "JSON", f"bq_json_to_{_name.lower()}({{0}})")
for _name in ("BOOL", "INT64", "FLOAT64", "STRING"):
    define(f"LAX_{_name}", "JSON", f"bq_lax_{_name.lower()}({{0}})")


@writes("JSON_KEYS")
def json_keys(call: Call, value: Value, depth: Value | None = None) -> str:
    if call.node.named:
        raise not_implemented("JSON_KEYS with mode")
    return f"bq_json_keys({value.sql}, {depth.sql if depth is not None else '1000'})"


@writes("JSON_STRIP_NULLS")
def strip_nulls(call: Call, value: Value) -> str:
    if call.node.named:
        raise not_implemented("JSON_STRIP_NULLS with options")
    return f"CAST(bq_json_strip_nulls({value.sql}) AS JSON)"


@writes("JSON_REMOVE")
def json_remove(call: Call, value: Value, *paths: Value) -> str:
    sql = value.sql
    for path in paths:
        sql = f"bq_json_remove({sql}, {path.sql})"
    return f"CAST({sql} AS JSON)"


def _each(call: Call, name: str) -> Value:
    """The function for each path and value."""
    args = call.values()
    sql = call.want(args[0], JSON).sql
    for path, value in zip(args[1::2], args[2::2], strict=True):
        sql = f"{name}({sql}, {call.want(path, STRING).sql}, {to_json_text(value, json_value=True)})"
    return _json(sql)


@function("JSON_SET")
def json_set(call: Call) -> Value:
    if call.node.named:
        raise not_implemented("JSON_SET with create_if_missing")
    return _each(call, "bq_json_set")


@function("JSON_ARRAY_APPEND")
def json_array_append(call: Call) -> Value:
    if call.node.named:
        raise not_implemented("JSON_ARRAY_APPEND with options")
    return _each(call, "bq_json_array_append")
