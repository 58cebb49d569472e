"""The functions GoogleSQL has. What is not registered here does not exist: nothing falls through to DuckDB's own."""

from collections.abc import Callable
from dataclasses import dataclass

from ingestd.googlesql import ast
from ingestd.googlesql.types import SCALARS, SqlType, array_of
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.sql.coercion import coerce
from ingestd.localcloud.bigquery.sql.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.expressions import ExpressionCompiler
from ingestd.localcloud.bigquery.sql.names import Scope

Handler = Callable[[ExpressionCompiler, ast.Call, Scope], Value]


@dataclass(frozen=True, slots=True)
class Function:
    handler: Handler
    kind: str  # scalar, aggregate, window


REGISTRY: dict[str, Function] = {}


def function(*names: str, kind: str = "scalar") -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for name in names:
            REGISTRY[name] = Function(handler, kind)
        return handler

    return register


@dataclass(frozen=True, slots=True)
class Signature:
    parameters: tuple[SqlType, ...]
    returns: SqlType
    template: str

    def describe(self, name: str) -> str:
        return f"{name}({', '.join(map(str, self.parameters))})"


_SIGNATURES: dict[str, list[Signature]] = {}


def _parse(text: str) -> SqlType:
    return array_of(SCALARS[text[6:-1]]) if text.startswith("ARRAY<") else SCALARS[text]


def define(names: str, parameters: str, returns: str, template: str) -> None:
    """A function that is one DuckDB expression: `{0}` is its first argument. Several definitions make overloads; the
    first whose types match exactly wins, then the first the arguments convert to."""
    signature = Signature(tuple(map(_parse, parameters.split())), _parse(returns), template)
    for name in names.split():
        if name not in _SIGNATURES:
            _SIGNATURES[name] = []
            REGISTRY[name] = Function(_simple, "scalar")
        _SIGNATURES[name].append(signature)


def _simple(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    args = [c.expr(item, scope) for item in node.args]
    return match(c, node, args)


def match(c: ExpressionCompiler, node: ast.Call, args: list[Value]) -> Value:
    candidates = [item for item in _SIGNATURES[node.name] if len(item.parameters) == len(args)]
    for signature in candidates:
        if all(arg.null or arg.type == kind for arg, kind in zip(args, signature.parameters, strict=True)):
            return _apply(signature, args)
    best: tuple[int, Signature, list[Value]] | None = None
    for signature in candidates:
        converted = [coerce(arg, kind) for arg, kind in zip(args, signature.parameters, strict=True)]
        found = [item for item in converted if item is not None]
        cost = sum(_cost(arg, kind) for arg, kind in zip(args, signature.parameters, strict=True))
        if len(found) == len(args) and (best is None or cost < best[0]):
            best = cost, signature, found
    if best is not None:
        return _apply(best[1], best[2])
    no_signature(c, node, args)
    raise AssertionError


# How far a conversion goes: INT64 rather becomes FLOAT64, but NUMERIC stays exact while it can.
_STEPS = {("INT64", "FLOAT64"): 2, ("INT64", "NUMERIC"): 3, ("INT64", "BIGNUMERIC"): 4, ("NUMERIC", "BIGNUMERIC"): 5,
          ("FLOAT64", "NUMERIC"): 8, ("FLOAT64", "BIGNUMERIC"): 9}  # fmt: skip


def _cost(value: Value, kind: SqlType) -> int:
    if value.null or value.type == kind:
        return 0
    return 1 if value.literal and not value.type.numeric else _STEPS.get((value.type.kind, kind.kind), 20)


def _apply(signature: Signature, args: list[Value]) -> Value:
    typed = [
        f"CAST(NULL AS {duckdb_type(kind)})" if arg.null else arg.sql
        for arg, kind in zip(args, signature.parameters, strict=True)
    ]
    return Value(signature.template.format(*typed), signature.returns)


def no_signature(c: ExpressionCompiler, node: ast.Call, args: list[Value], supported: str = "") -> None:
    kinds = ", ".join("NULL" if arg.null else str(arg.type) for arg in args) or "no arguments"
    known = supported or "; ".join(item.describe(node.name) for item in _SIGNATURES.get(node.name, ()))
    plural = "s" if ";" in known else ""
    suffix = f". Supported signature{plural}: {known}" if known else ""
    c.fail(f"No matching signature for function {node.name} for argument types: {kinds}{suffix}", node)


def arguments(c: ExpressionCompiler, node: ast.Call, scope: Scope, least: int, most: int | None = None) -> list[Value]:
    """The compiled arguments, when their number is right."""
    count(c, node, least, most)
    return [c.expr(item, scope) for item in node.args]


def count(c: ExpressionCompiler, node: ast.Call, least: int, most: int | None = None) -> None:
    most = least if most is None else most
    if not least <= len(node.args) <= most or node.star:
        c.fail(
            f"Number of arguments does not match for function {node.name}: it takes "
            + (f"{least}" if least == most else f"{least} to {most}"),
            node,
        )


def want(c: ExpressionCompiler, node: ast.Call, value: Value, kind: SqlType) -> Value:
    """An argument converted to the type the function takes."""
    converted = coerce(value, kind)
    if converted is None:
        no_signature(c, node, [value])
        raise AssertionError
    return converted


def named(node: ast.Call, name: str) -> ast.Expression | None:
    return next((value for key, value in node.named if key == name), None)


def constant_text(value: Value) -> str | None:
    """The text of a string literal, when it is one."""
    return value.constant if value.literal and not value.parameter and isinstance(value.constant, str) else None
