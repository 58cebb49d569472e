"""FORMAT(), CAST … AS type(parameters) and CAST … FORMAT."""

import re

from ingestd.formats.errors import not_implemented
from ingestd.googlesql import ast
from ingestd.googlesql.names import Scope
from ingestd.googlesql.types import (
    BIGNUMERIC,
    BYTES,
    DATE,
    DATETIME,
    FLOAT64,
    INT64,
    NUMERIC,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
)
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.coercion import cast, coerce, string_sql
from ingestd.localcloud.bigquery.sql.expressions import ExpressionCompiler
from ingestd.localcloud.bigquery.sql.library.registry import Call, constant_text, function
from ingestd.localcloud.bigquery.sql.library.safe import attempt
from ingestd.localcloud.bigquery.sql.reading import mistake

_SPECIFIER = re.compile(
    r"%(?P<flags>[-+ #0']*)(?P<width>\d+|\*)?(?:\.(?P<precision>\d+|\*))?(?P<kind>[diouxXfFeEgGsctTpP%])"
)


@function("FORMAT")
def format_(call: Call) -> Value:
    args = call.values()
    pattern = constant_text(args[0])
    if pattern is None:
        if args[0].null:
            return cast(args[0], STRING)
        raise not_implemented("FORMAT with a format string that is not a literal")
    rest = iter(args[1:])
    used, pieces, at = 0, [], 0
    for match in _SPECIFIER.finditer(pattern):
        gap = pattern[at : match.start()]
        if "%" in gap:
            call.fail(f"Invalid format string: {pattern}")
        if gap:
            pieces.append(string_sql(gap))
        at = match.end()
        if match["kind"] == "%":
            pieces.append("'%'")
            continue
        width, precision = match["width"] or "", match["precision"] or ""
        sizes = []
        for size in (width, precision):
            if size == "*":
                used += 1
                value = next(rest, None)
                number = coerce(value, INT64) if value is not None else None
                if number is None:
                    call.fail("Invalid format string: * needs an INT64 argument")
                sizes.append(f"CAST({number.sql} AS VARCHAR)")
            else:
                sizes.append(string_sql(size))
        value = next(rest, None)
        used += 1
        if value is None:
            call.fail(
                f"Too few arguments to FORMAT for pattern {string_sql(pattern)}; Expected {used + 1}; Got {len(args)}"
            )
        pieces.append(_convert(call, match["kind"], match["flags"], sizes[0], sizes[1], value))
    tail = pattern[at:]
    if "%" in tail:
        call.fail(f"Invalid format string: {pattern}")
    if tail:
        pieces.append(string_sql(tail))
    if used != len(args) - 1:
        call.fail(
            f"Too many arguments to FORMAT for pattern {string_sql(pattern)}; Expected {used + 1}; Got {len(args)}"
        )
    return Value("(" + (" || ".join(pieces) or "''") + ")", STRING)


def _convert(call: Call, kind: str, flags: str, width: str, precision: str, value: Value) -> str:
    flag = string_sql(flags)
    if kind in "diouxX":
        number = coerce(value, INT64)
        if number is not None:
            return f"bq_format_int('{kind}', {flag}, {width}, {precision}, {number.sql})"
    elif kind in "fFeEgG":
        if value.type in (NUMERIC, BIGNUMERIC):
            return f"bq_format_decimal('{kind}', {flag}, {width}, {precision}, CAST({value.sql} AS DECIMAL(38,18)))"
        number = coerce(value, FLOAT64)
        if number is not None:
            return f"bq_format_float('{kind}', {flag}, {width}, {precision}, {number.sql})"
    elif kind == "s":
        text = coerce(value, STRING)
        if text is not None:
            return f"bq_format_string({flag}, {width}, {precision}, {text.sql})"
    elif kind in "tT":
        return f"bq_format_string({flag}, {width}, {precision}, {printable(value, literal=kind == 'T')})"
    elif kind in "pP":
        from ingestd.localcloud.bigquery.sql.library.jsons import to_json_text

        if kind == "P":
            raise not_implemented("FORMAT's %P")
        return f"bq_format_string({flag}, {width}, {precision}, {to_json_text(value)})"
    raise mistake(
        call.compiler.source,
        f"Invalid type for argument to FORMAT; Expected a value for %{kind}, got {value.type}",
        call.node.pos,
    )


def printable(value: Value, *, literal: bool) -> str:
    """%t and %T: a readable value, or one that could be pasted into SQL."""
    kind, x = value.type, value.sql
    return f"coalesce({_printable(kind, x, literal=literal)}, 'NULL')"


def _printable(kind: SqlType, x: str, *, literal: bool) -> str:
    if kind.kind == "ARRAY":
        assert kind.element is not None
        inner = f"coalesce({_printable(kind.element, '_e', literal=literal)}, 'NULL')"
        return f"'[' || array_to_string(list_transform({x}, lambda _e: {inner}), ', ') || ']'"
    if kind.kind == "STRUCT":
        members = [
            f"coalesce({_printable(inner, f'struct_extract({x}, {string_sql(name)})', literal=literal)}, 'NULL')"
            for name, (_, inner) in zip(kind.physical_names, kind.fields, strict=True)
        ]
        opening = "'STRUCT(' || " if literal and len(members) == 1 else "'(' || "
        return opening + " || ', ' || ".join(members) + " || ')'"
    if kind is FLOAT64 and literal:
        text = f"bq_float64_to_string({x})"
        return (
            f"CASE WHEN isfinite({x}) "
            f"THEN {text} || CASE WHEN regexp_matches({text}, '^-?[0-9]+$') THEN '.0' ELSE '' END"
            f" ELSE 'CAST(\"' || {text} || '\" AS FLOAT64)' END"
        )
    if kind is FLOAT64:
        text = f"bq_float64_to_string({x})"
        return f"{text} || CASE WHEN regexp_matches({text}, '^-?[0-9]+$') THEN '.0' ELSE '' END"
    if kind is STRING:
        return f"CAST(to_json({x}) AS VARCHAR)" if literal else x
    if kind is BYTES:
        return f"'b\"' || decode({x}) || '\"'" if literal else f"decode({x})"
    if kind.kind == "JSON":
        text = f"CAST({x} AS VARCHAR)"
        return f"'JSON ''' || {text} || ''''" if literal else text
    if kind.kind in ("GEOGRAPHY", "RANGE"):
        raise not_implemented(f"FORMAT of {kind.kind}")
    text = cast(Value(x, kind), STRING).sql
    if literal and kind in (DATE, DATETIME, TIME, TIMESTAMP, NUMERIC, BIGNUMERIC):
        return f"'{kind.kind} \"' || {text} || '\"'"
    if literal and kind.kind == "INTERVAL":
        return f"'INTERVAL \"' || {text} || '\" YEAR TO SECOND'"
    return text


def safe_cast(c: ExpressionCompiler, value: Value, target: SqlType) -> Value:
    if value.null:
        return cast(value, target)
    if value.literal and isinstance(value.constant, str) and not value.parameter:
        value = Value(value.sql, value.type)  # decide at run time: a bad value is NULL, not an error
    return attempt(c, [value], lambda values: cast(values[0], target))


def cast_with_parameters(c: ExpressionCompiler, value: Value, target: SqlType, node: ast.Cast) -> Value:
    """CAST(x AS NUMERIC(10, 2)), CAST(x AS STRING(5))."""
    plain = safe_cast(c, value, target) if node.safe else cast(value, target)
    first, *more = node.type.parameters
    if target in (STRING, BYTES):
        size = f"length({plain.sql})" if target is STRING else f"octet_length({plain.sql})"
        error = (
            f"CAST(bq_error('maximum length {first} but got a value with length ' || {size}) AS {duckdb_type(target)})"
        )
        return Value(f"CASE WHEN {size} > {first} THEN {'NULL' if node.safe else error} ELSE {plain.sql} END", target)
    if target in (NUMERIC, BIGNUMERIC):
        scale = more[0] if more else 0
        rounded = f"round({plain.sql}, {scale})"
        shown = f"'{target}({first}, {scale}) has too many digits: ' || CAST({plain.sql} AS VARCHAR)"
        error = f"CAST(bq_error({shown}) AS {duckdb_type(target)})"
        digits = f"abs({rounded}) >= CAST('1{'0' * (first - scale)}' AS HUGEINT)"
        checked = f"CASE WHEN {digits} THEN {'NULL' if node.safe else error} ELSE {rounded} END"
        return Value(f"CAST({checked} AS {duckdb_type(target)})", target)
    raise not_implemented(f"type parameters of {target}")


_DATE_ELEMENTS = (
    ("YYYY", "%Y"), ("YYY", None), ("YY", "%y"), ("MONTH", "%B"), ("MON", "%b"), ("MM", "%m"), ("DDD", "%j"),
    ("DD", "%d"), ("DAY", "%A"), ("DY", "%a"), ("HH24", "%H"), ("HH12", "%I"), ("HH", "%I"), ("MI", "%M"),
    ("SSSSS", None), ("SS", "%S"), ("AM", "%p"), ("PM", "%p"), ("A.M.", None), ("P.M.", None),
    ("TZH", None), ("TZM", None),
)  # fmt: skip


def cast_with_format(c: ExpressionCompiler, value: Value, target: SqlType, node: ast.Cast, scope: Scope) -> Value:
    """Dates by their format model, and BYTES by an encoding; other models answer 501."""
    assert node.format is not None
    pattern = constant_text(c.expr(node.format, scope))
    if pattern is None:
        raise not_implemented("CAST … FORMAT with a format that is not a literal")
    zone = c.expr(node.zone, scope).sql if node.zone is not None else "'UTC'"

    def convert(values: list[Value]) -> Value:
        made = _bytes_format(values[0], target, pattern) or _date_format(values[0], target, pattern, zone)
        if made is None:
            raise not_implemented(f"CAST from {value.type} to {target} FORMAT '{pattern}'")
        return made

    return attempt(c, [value], convert) if node.safe else convert([value])


def _bytes_format(value: Value, target: SqlType, pattern: str) -> Value | None:
    pair, name = (value.type, target), pattern.upper()
    if pair == (BYTES, STRING):
        known = {"HEX": "lower(hex({0}))", "BASE64": "to_base64({0})", "UTF-8": "decode({0})", "UTF8": "decode({0})"}
    elif pair == (STRING, BYTES):
        known = {"HEX": "bq_from_hex({0})", "BASE64": "from_base64({0})", "UTF-8": "encode({0})", "UTF8": "encode({0})"}
    else:
        return None
    return Value(known[name].format(value.sql), target) if name in known else None


def _date_format(value: Value, target: SqlType, pattern: str, zone: str) -> Value | None:
    converted = _strftime_model(pattern)
    if converted is None:
        return None
    text = string_sql(converted)
    if target is STRING:
        if value.type in (DATE, DATETIME):
            return Value(f"bq_format_datetime({text}, CAST({value.sql} AS TIMESTAMP))", STRING)
        if value.type is TIMESTAMP:
            return Value(f"bq_format_timestamp({text}, {value.sql}, {zone})", STRING)
        return Value(f"bq_format_time({text}, {value.sql})", STRING) if value.type is TIME else None
    source = coerce(value, STRING)
    if source is None:
        return None
    if target is TIMESTAMP:
        return Value(f"bq_parse_timestamp({text}, {source.sql}, {zone})", TIMESTAMP)
    if target in (DATE, DATETIME, TIME):
        return Value(f"bq_parse_{target.kind.lower()}({text}, {source.sql})", target)
    return None


def _strftime_model(pattern: str) -> str | None:
    out, at = "", 0
    while at < len(pattern):
        if pattern[at] == '"':
            end = pattern.find('"', at + 1)
            if end < 0:
                return None
            out += pattern[at + 1 : end].replace("%", "%%")
            at = end + 1
            continue
        if pattern[at] in "-./,:; ":
            out += pattern[at]
            at += 1
            continue
        for name, element in _DATE_ELEMENTS:
            if pattern[at : at + len(name)].upper() == name:
                if element is None:
                    return None
                written = pattern[at : at + len(name)]
                if element in ("%B", "%b", "%A", "%a") and not written.istitle():
                    return None
                out += element
                at += len(name)
                break
        else:
            return None
    return out
