"""JSON functions. Functions that take JSON text (STRING) and those that take JSON share names and differ in type."""

from ingestd.formats.errors import not_implemented
from ingestd.googlesql.types import BOOL, FLOAT64, INT64, JSON, STRING, SqlType, array_of
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.sql.coercion import cast, string_sql
from ingestd.localcloud.bigquery.sql.library.registry import Call, constant_text, function
from ingestd.localcloud.bigquery.sql.runtime import jsons as runtime


def _json(sql: str) -> Value:
    return Value(f"CAST({sql} AS JSON)", JSON)


def _path(call: Call, args: list[Value]) -> str:
    if len(args) < 2:
        return "'$'"
    path = call.want(args[1], STRING)
    text = constant_text(path)
    if text is not None:
        try:
            runtime.path(text)
        except ValueError as error:
            call.fail(str(error))
    return path.sql


def _source(call: Call, value: Value) -> Value:
    if value.type in (JSON, STRING):
        return value
    return call.want(value, STRING)


@function("JSON_QUERY", "JSON_EXTRACT")
def query(call: Call) -> Value:
    args = call.values()
    value, path = _source(call, args[0]), _path(call, args)
    if value.type is JSON:
        return _json(f"bq_json_query({value.sql}, {path})")
    return Value(f"bq_json_query_text({value.sql}, {path})", STRING)


@function("JSON_VALUE", "JSON_EXTRACT_SCALAR")
def value_(call: Call) -> Value:
    args = call.values()
    value = _source(call, args[0])
    return Value(f"bq_json_value_text({value.sql}, {_path(call, args)})", STRING)


@function("JSON_QUERY_ARRAY", "JSON_EXTRACT_ARRAY")
def query_array(call: Call) -> Value:
    args = call.values()
    value = _source(call, args[0])
    listed = f"bq_json_query_array_text({value.sql}, {_path(call, args)})"
    if value.type is JSON:
        return Value(f"CAST({listed} AS JSON[])", array_of(JSON))
    return Value(listed, array_of(STRING))


@function("JSON_VALUE_ARRAY", "JSON_EXTRACT_STRING_ARRAY")
def value_array(call: Call) -> Value:
    args = call.values()
    value = _source(call, args[0])
    return Value(f"bq_json_value_array_text({value.sql}, {_path(call, args)})", array_of(STRING))


@function("PARSE_JSON")
def parse_json(call: Call) -> Value:
    (value,) = call.values()
    mode = "exact"
    written = call.named("wide_number_mode")
    if written is not None:
        mode = constant_text(call.compiler.expr(written, call.scope)) or ""
        if mode not in ("exact", "round"):
            call.fail("Invalid wide_number_mode; it must be 'exact' or 'round'")
    return _json(f"bq_parse_json({call.want(value, STRING).sql}, '{mode}')")


@function("TO_JSON_STRING")
def to_json_string(call: Call) -> Value:
    args = call.values()
    if len(args) == 2 and args[1].constant is not False:
        raise not_implemented("TO_JSON_STRING with pretty printing")
    return Value(to_json_text(args[0]), STRING)


@function("TO_JSON")
def to_json(call: Call) -> Value:
    (value,) = call.values()
    wide = call.named("stringify_wide_numbers")
    if wide is not None and call.compiler.expr(wide, call.scope).constant is not False:
        raise not_implemented("TO_JSON's stringify_wide_numbers")
    return _json(f"bq_json_canonical({to_json_text(value, json_value=True)})")


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


@function("JSON_TYPE")
def json_type(call: Call) -> Value:
    (value,) = call.values()
    return Value(f"bq_json_type({_json_only(call, value).sql})", STRING)


def _json_only(call: Call, value: Value) -> Value:
    if value.null:
        return cast(value, JSON)
    if value.type is not JSON:
        raise call.mismatch([value])
    return value


@function("BOOL", "INT64", "FLOAT64", "LAX_BOOL", "LAX_INT64", "LAX_FLOAT64", "LAX_STRING")
def converters(call: Call) -> Value:
    (value,) = call.values()
    source = _json_only(call, value)
    kind = {"BOOL": BOOL, "INT64": INT64, "FLOAT64": FLOAT64, "STRING": STRING}[call.name.removeprefix("LAX_")]
    name = "bq_lax" if call.name.startswith("LAX_") else "bq_json_to"
    return Value(f"{name}_{kind.kind.lower()}({source.sql})", kind)


@function("JSON_KEYS")
def json_keys(call: Call) -> Value:
    args = call.values()
    if call.node.named:
        raise not_implemented("JSON_KEYS with mode")
    depth = call.want(args[1], INT64).sql if len(args) == 2 else "1000"
    return Value(f"bq_json_keys({_json_only(call, args[0]).sql}, {depth})", array_of(STRING))


@function("JSON_STRIP_NULLS")
def strip_nulls(call: Call) -> Value:
    if call.node.named:
        raise not_implemented("JSON_STRIP_NULLS with options")
    return _json(f"bq_json_strip_nulls({_json_only(call, call.value(0)).sql})")


@function("JSON_SET")
def json_set(call: Call) -> Value:
    if call.node.named:
        raise not_implemented("JSON_SET with create_if_missing")
    args = call.values()
    sql = _json_only(call, args[0]).sql
    for path, value in zip(args[1::2], args[2::2], strict=True):
        text = to_json_text(value, json_value=True)
        sql = f"bq_json_set({sql}, {call.want(path, STRING).sql}, {text})"
    return _json(sql)


@function("JSON_REMOVE")
def json_remove(call: Call) -> Value:
    args = call.values()
    sql = _json_only(call, args[0]).sql
    for path in args[1:]:
        sql = f"bq_json_remove({sql}, {call.want(path, STRING).sql})"
    return _json(sql)


@function("JSON_ARRAY_APPEND")
def json_array_append(call: Call) -> Value:
    if call.node.named:
        raise not_implemented("JSON_ARRAY_APPEND with options")
    args = call.values()
    sql = _json_only(call, args[0]).sql
    for path, value in zip(args[1::2], args[2::2], strict=True):
        text = to_json_text(value, json_value=True)
        sql = f"bq_json_array_append({sql}, {call.want(path, STRING).sql}, {text})"
    return _json(sql)
