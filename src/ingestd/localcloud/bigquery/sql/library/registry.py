"""The functions GoogleSQL has. What is not registered here does not exist: nothing falls through to DuckDB's own."""

from collections.abc import Callable
from typing import NoReturn

from ingestd.googlesql import ast
from ingestd.googlesql.functions import FUNCTIONS, overload, types
from ingestd.googlesql.names import Scope
from ingestd.googlesql.types import SqlType
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.sql.coercion import coerce
from ingestd.localcloud.bigquery.sql.expressions import ExpressionCompiler

Handler = Callable[[ExpressionCompiler, ast.Call, Scope], Value]


REGISTRY: dict[str, Handler] = {}
_TEMPLATES: dict[tuple[str, tuple[SqlType, ...]], str] = {}


def function(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for name in names:
            REGISTRY[name] = handler
        return handler

    return register


def define(names: str, parameters: str, template: str) -> None:
    """An overload that is one DuckDB expression: `{0}` is its first argument."""
    kinds = types(parameters)
    for name in names.split():
        assert any(one.parameters == kinds for one in FUNCTIONS[name].signatures), (name, parameters)
        _TEMPLATES[name, kinds] = template
        REGISTRY[name] = _simple


def _simple(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    args = arguments(c, node, scope)
    found = overload(FUNCTIONS[node.name], args, coerce, lambda one: (node.name, one.parameters) in _TEMPLATES)
    if found is None:
        no_signature(c, node, args)
    signature, converted = found
    template = _TEMPLATES[node.name, signature.parameters]
    return Value(template.format(*(item.sql for item in converted)), signature.returns)


def no_signature(c: ExpressionCompiler, node: ast.Call, args: list[Value], supported: str = "") -> NoReturn:
    kinds = ", ".join("NULL" if arg.null else str(arg.type) for arg in args) or "no arguments"
    known = supported or FUNCTIONS[node.name].described
    plural = "s" if ";" in known else ""
    suffix = f". Supported signature{plural}: {known}" if known else ""
    c.fail(f"No matching signature for function {node.name} for argument types: {kinds}{suffix}", node)


def arguments(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> list[Value]:
    return [c.expr(item, scope) for item in node.args]


def want(c: ExpressionCompiler, node: ast.Call, value: Value, kind: SqlType) -> Value:
    """An argument converted to the type the function takes."""
    converted = coerce(value, kind)
    if converted is None:
        no_signature(c, node, [value])
    return converted


def named(node: ast.Call, name: str) -> ast.Expression | None:
    return next((value for key, value in node.named if key == name), None)


def constant_text(value: Value) -> str | None:
    """The text of a string literal, when it is one."""
    return value.constant if value.literal and not value.parameter and isinstance(value.constant, str) else None
