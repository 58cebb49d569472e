"""The functions GoogleSQL has. What is not registered here does not exist: nothing falls through to DuckDB's own."""

from collections.abc import Callable
from typing import NoReturn

from ingestd.googlesql import ast
from ingestd.googlesql.functions import FUNCTIONS
from ingestd.googlesql.library import NEVER_FAILS, Library
from ingestd.googlesql.names import Scope
from ingestd.googlesql.types import SqlType
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.sql.coercion import coerce
from ingestd.localcloud.bigquery.sql.expressions import ExpressionCompiler

Handler = Callable[[ExpressionCompiler, ast.Call, Scope], Value]


def _simple(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    args = arguments(c, node, scope)
    found = REGISTRY.overload(node.name, args, c.conversions)
    if found is None:
        no_signature(c, node, args)
    template, signature, converted = found
    return Value(template.format(*(item.sql for item in converted)), signature.returns)


REGISTRY: Library[Handler] = Library(_simple)


def function(*names: str) -> Callable[[Handler], Handler]:
    return REGISTRY.function(*names, safe=FUNCTIONS[names[0]].kind == "scalar")


def define(names: str, parameters: str, template: str) -> None:
    """An overload that is one DuckDB expression: `{0}` is its first argument."""
    REGISTRY.define(names, parameters, template, safe=NEVER_FAILS)  # SAFE.f is an attempt at f


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
