"""JSON functions, of JSON values (which travel as text) and of JSON text. Paths are constants."""

import re

from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.types import (
    BOOL,
    DATE,
    DATETIME,
    FLOAT64,
    INT64,
    JSON,
    NUMERIC,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
)
from ingestd.googlesql.values import Value
from ingestd.spark.sql.functions.registry import Call, define, writes
from ingestd.spark.sql.types import quote
from ingestd.spark.sql.values import cast, fill, fresh, literal, text_sql

_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\.\"([^\"]+)\"|\['([^']+)'\]|\[\"([^\"]+)\"\]|\[(\d+)\]")
_DEEPEST = 1_000  # Spark calls itself once per element before the one it looks for, until the JVM's stack is full
_IS_TEXT = "schema_of_variant(variant_get(parse_json(@0), {path}, 'variant')) = 'STRING'"


_WHOLE = literal("$", STRING)


def _path(path: Value) -> str:
    """The path in Spark's form, as a literal."""
    written = str(path.constant)
    if not written.startswith("$"):
        raise SqlError(f"JSON path {written!r} does not start with $")
    out, at = "$", 1
    while at < len(written):
        step = _STEP.match(written, at)
        if step is None:
            raise SqlError(f"JSON path {written!r} is not available on Spark")
        at = step.end()
        name = step[1] or step[2] or step[3] or step[4]
        if name is None and int(step[5]) > _DEEPEST:
            raise SqlError(f"JSON path {written!r}: Spark finds only the first {_DEEPEST:,} elements of an array")
        if name is None:
            out += f"[{step[5]}]"
        elif "'" in name or "\\" in name:
            raise SqlError(f"JSON path {written!r} is not available on Spark")
        else:
            out += f"['{name}']"
    return text_sql(out)


_FOUND = "get_json_object({text}, {path})"
# Spark reads a number with a fraction or an exponent as a double, or as a decimal without its last zeros. Written as
# a text it keeps what was written; the mark, a character that no text has, tells it from others. `\G` goes on where the
# last number ended, over whole texts and integers; every repetition is possessive, so that Java never recurses.
_MARK = "\ufdd0"
_SKIPPED = r'(?:[^"0-9-]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?[0-9]++(?![.eE]))*+'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+(?![0-9A-Za-z_.+-])"
_DECIMALS = text_sql(r"(?s)\G(" + _SKIPPED + ")(" + _NUMBER + ")")
_MARKED = "regexp_replace(@0, " + _DECIMALS + ", " + text_sql('$1"' + _MARK + '$2"') + ")"
_UNMARKED = "regexp_replace({text}, " + text_sql('"?' + _MARK + '([0-9.eE+-]*)"?') + ", '$1')"


def _found(path: str) -> str:
    """What is at the path, every number in it as it was written; few need the second look."""
    found = _FOUND.format(text="@0", path=path)
    exact = _UNMARKED.format(text=_FOUND.format(text=_MARKED, path=path))
    return f"IF({found} RLIKE '[0-9][.E]|Infinity', {exact}, {found})"


@writes("JSON_VALUE JSON_EXTRACT_SCALAR", safe=True, texts=[1])
def value_(call: Call, value: Value, path: Value = _WHOLE) -> str:
    """The text of a scalar; NULL for an object or an array."""
    where = _path(path)
    found = _FOUND.format(text="@0", path=where)
    # An object, an array or a text that looks like one.
    text = f"IF({_IS_TEXT.format(path=where)}, {found}, NULL)"
    return fill(f"IF({found} RLIKE '^[\\\\[{{]', {text}, {_found(where)})", value)


@writes("JSON_QUERY JSON_EXTRACT", safe=True, texts=[1])
def query(call: Call, value: Value, path: Value = _WHOLE) -> str:
    """JSON as JSON: a text keeps its quotes."""
    where = _path(path)
    variant = f"try_variant_get(try_parse_json(@0), {where}, 'variant')"
    kind = f"schema_of_variant({variant})"
    found = f"IF({kind} = 'STRING', to_json({variant}), {_found(where)})"
    nothing = "'null'" if value.type is JSON else "NULL"
    return fill(f"CASE WHEN {kind} = 'VOID' THEN {nothing} ELSE {found} END", value)


def _listed(path: str) -> str:
    """The elements of the array at the path; numbers are marked texts."""
    return f"try_variant_get(try_parse_json({_MARKED}), {path}, 'array<variant>')"


@writes("JSON_VALUE_ARRAY JSON_EXTRACT_STRING_ARRAY", safe=True, texts=[1])
def value_array(call: Call, value: Value, path: Value = _WHOLE) -> str:
    """The scalars of an array; NULL when it is none, or holds something else."""
    listed, name = _listed(_path(path)), fresh("v")
    nested = f"exists({listed}, {name} -> schema_of_variant({name}) RLIKE '^(OBJECT|ARRAY)')"
    text = _UNMARKED.format(text=f"try_variant_get({name}, '$', 'string')")
    return fill(f"IF({nested}, NULL, transform({listed}, {name} -> {text}))", value)


@writes("JSON_QUERY_ARRAY JSON_EXTRACT_ARRAY", safe=True, texts=[1])
def query_array(call: Call, value: Value, path: Value = _WHOLE) -> str:
    name = fresh("v")
    text = _UNMARKED.format(text=f"to_json({name})")
    return fill(f"transform({_listed(_path(path))}, {name} -> {text})", value)


define("PARSE_JSON", "STRING", "to_json(parse_json(@0))", safe="to_json(try_parse_json(@0))")


@writes("TO_JSON_STRING TO_JSON")
def to_json(call: Call, value: Value, *rest: Value) -> str:
    call.at_most(1)
    return f"coalesce({_text(value.type, value, exact=call.returns is JSON)}, 'null')"


def _text(kind: SqlType, value: Value, *, exact: bool) -> str:
    """JSON text of a value, as GoogleSQL writes it."""
    if kind.element is not None:
        item = fresh("e")
        inner = f"coalesce({_text(kind.element, Value(item, kind.element, simple=True), exact=exact)}, 'null')"
        return f"concat('[', array_join(transform({value.sql}, {item} -> {inner}), ','), ']')"
    if kind.kind == "STRUCT":
        pieces: list[str] = []
        for physical, (name, inner_kind) in zip(kind.physical_names, kind.fields, strict=True):
            member = Value(f"{value.sql}.{quote(physical)}", inner_kind, simple=value.simple)
            escaped = name.replace("\\", "\\\\").replace('"', '\\"')
            head = text_sql(("," if pieces else "") + f'"{escaped}":')
            pieces.append(f"{head}, coalesce({_text(inner_kind, member, exact=exact)}, 'null')")
        return f"IF({value.sql} IS NULL, NULL, concat('{{', {', '.join(pieces)}, '}}'))"
    if kind is INT64:
        if exact:
            return f"CAST({value.sql} AS STRING)"
        # Larger integers lose digits in JavaScript: they are written as texts.
        large = "@0 > 9007199254740992L OR @0 < -9007199254740992L"
        return fill(f"IF({large}, concat('\"', @0, '\"'), CAST(@0 AS STRING))", value)
    if kind is BOOL or (kind is NUMERIC and exact):
        return cast(value, STRING).sql
    if kind is NUMERIC:
        # What is no whole number that JavaScript holds is written as a text.
        text = cast(Value("@0", kind, simple=True), STRING).sql
        plain = "@0 = floor(@0) AND abs(@0) <= 9007199254740992BD"
        return fill(f"IF({plain}, {text}, concat('\"', {text}, '\"'))", value)
    if kind is FLOAT64:
        text = cast(value, STRING).sql
        whole = "IF(@0 RLIKE '^-?[0-9]+$', concat(@0, '.0'), @0)" if exact else "@0"
        special = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        cases = " ".join(f"WHEN '{key}' THEN '\"{name}\"'" for key, name in special.items())
        return fill(f"CASE @0 {cases} ELSE {whole} END", Value(text, STRING))
    if kind is JSON:
        return value.sql
    if kind is STRING:
        # Spark writes JSON of structs alone: take the text out of one.
        inside = "regexp_replace(to_json(named_struct('v', @0)), '(?s)^.\"v\":(.*).$', '$1')"
        return fill(f"IF(@0 IS NULL, NULL, {inside})", value)
    if kind is TIMESTAMP:
        return f"concat('\"', replace(regexp_replace({cast(value, STRING).sql}, '[+]00$', 'Z'), ' ', 'T'), '\"')"
    if kind is DATETIME:
        return f"concat('\"', replace({cast(value, STRING).sql}, ' ', 'T'), '\"')"
    if kind in (DATE, TIME):
        return f"concat('\"', {cast(value, STRING).sql}, '\"')"
    if kind.kind == "BYTES":
        return f"concat('\"', replace(base64({value.sql}), '\\r\\n', ''), '\"')"
    raise SqlError(f"JSON of {kind} is not available on Spark")
