"""GoogleSQL's function library, one module per family. `call` compiles a call of any of them."""

from difflib import get_close_matches

from ingestd.formats.errors import not_implemented
from ingestd.googlesql import ast
from ingestd.googlesql.functions import FUNCTIONS, Function
from ingestd.googlesql.names import Scope
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.sql.coercion import coerce
from ingestd.localcloud.bigquery.sql.expressions import ExpressionCompiler
from ingestd.localcloud.bigquery.sql.library import (
    aggregates,
    arrays,
    conditionals,
    dates,
    formats,
    intervals,
    jsons,
    maths,
    strings,
    windows,
)
from ingestd.localcloud.bigquery.sql.library.registry import REGISTRY
from ingestd.localcloud.bigquery.sql.library.safe import attempt_call

_FAMILIES = (aggregates, arrays, conditionals, dates, formats, intervals, jsons, maths, strings, windows)

# GoogleSQL has these; the local BigQuery does not.
_UNSUPPORTED = ("ST_", "S2_", "NET.", "KEYS.", "AEAD.", "ML.", "AI.", "D3A_COUNT.", "BAG_", "OBJ.", "DETERMINISTIC_")
_UNSUPPORTED_NAMES = frozenset(
    {"SEARCH", "VECTOR_SEARCH", "EXTERNAL_QUERY", "JSON_FLATTEN", "TYPEOF", "APPENDS", "CHANGES", "GAP_FILL"}
    | {"DATE_BUCKET", "DATETIME_BUCKET", "TIMESTAMP_BUCKET", "GENERATE_RANGE_ARRAY", "RANGE_OVERLAPS"}
    | {"RANGE_INTERSECT", "RANGE_SESSIONIZE", "PARSE_NUMERIC", "PARSE_BIGNUMERIC", "BIT_CAST_TO_INT64"}
)


def call(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    user = c.session.functions.get(node.name.lower())
    if user is not None:
        return _user_function(c, node, scope)
    handler = REGISTRY.get(node.name)
    if handler is None:
        if node.name.startswith(_UNSUPPORTED) or node.name in _UNSUPPORTED_NAMES:
            raise not_implemented(f"the function {node.name}")
        close = get_close_matches(node.name, REGISTRY, n=1, cutoff=0.8)
        hint = f"; Did you mean {close[0].lower()}?" if close else ""
        c.fail(f"Function not found: {node.written or node.name}{hint}", node)
    _check(c, node, FUNCTIONS[node.name])
    return attempt_call(c, node, scope, handler) if node.safe else handler(c, node, scope)


def _check(c: ExpressionCompiler, node: ast.Call, function: Function) -> None:
    """What a call may have besides its arguments, and how many of them."""
    if function.kind == "scalar":
        if node.over is not None:
            c.fail(f"Function {node.name} does not support an OVER clause", node)
        if node.distinct or node.order_by or node.limit is not None or node.having is not None or node.nulls:
            c.fail(f"{node.name} is not an aggregate function: it takes no DISTINCT, ORDER BY, LIMIT or NULLS", node)
        if node.star:
            c.fail("Argument * can only be used in COUNT(*)", node)
    elif function.kind == "window" and node.over is None:
        c.fail(f"Analytic function {node.name} cannot be called without an OVER clause", node)
    if node.safe and function.kind != "scalar":
        c.fail(f"Function {node.name} does not support SAFE error mode", node)
    # A wrong number for an overloaded one is told with the signatures that it has.
    wrong = node.name != "COUNT" if node.star else not function.takes(len(node.args)) and not function.signatures
    if wrong:
        c.fail(f"Number of arguments does not match for function {node.name}: it takes {function.wanted}", node)


def _user_function(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    function = c.session.functions[node.name.lower()]
    if len(node.args) != len(function.parameters):
        c.fail(f"Number of arguments does not match for function {function.name}", node)
    values: dict[str, Value] = {}
    for item, (name, kind) in zip(node.args, function.parameters, strict=True):
        value = c.expr(item, scope)
        if kind is not None:
            converted = coerce(value, kind)
            if converted is None:
                c.fail(f"No matching signature for function {function.name} for argument types: {value.type}", node)
            value = converted
        values[name.lower()] = Value(value.sql, value.type)
    inner = type(c)(c.session, function.source, c.collected)
    body = inner.expr(function.body, Scope(values=values))
    if function.returns is not None:
        converted = coerce(body, function.returns)
        if converted is None:
            c.fail(f"Function {function.name} declared to return {function.returns} but its body has {body.type}", node)
        body = converted
    return Value(f"({body.sql})", body.type)
