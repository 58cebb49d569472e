"""GoogleSQL's function library, one module per family. `call` compiles a call of any of them."""

from ingestd.formats.errors import not_implemented
from ingestd.googlesql import ast
from ingestd.googlesql.functions import FUNCTIONS, is_lacking
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
from ingestd.localcloud.bigquery.sql.library.registry import REGISTRY, Call
from ingestd.localcloud.bigquery.sql.library.safe import attempt_call

_FAMILIES = (aggregates, arrays, conditionals, dates, formats, intervals, jsons, maths, strings, windows)


def call(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    user = c.session.functions.get(node.name.lower())
    if user is not None:
        return _user_function(c, node, scope)
    if node.name not in REGISTRY and is_lacking(node.name):
        raise not_implemented(f"the function {node.name}")
    handler = c.called(node, REGISTRY).handler
    # The argument of an aggregate sees the FROM clause alone.
    seen = scope if FUNCTIONS[node.name].kind == "scalar" else scope.without_aliases()
    return attempt_call(Call(c, node, seen), handler) if node.safe else handler(Call(c, node, seen))


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
