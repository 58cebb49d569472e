"""The table of functions. A simple one is a template of Spark SQL per signature; the others have a handler."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ingestd.googlesql import ast
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.functions import FUNCTIONS, overload, types
from ingestd.googlesql.types import STRING, SqlType
from ingestd.googlesql.values import Value
from ingestd.spark.sql.operators import SparkOperators
from ingestd.spark.sql.values import coerce, fill

NEVER_FAILS = "never fails"  # SAFE.f is f


@dataclass(frozen=True, slots=True)
class Call:
    """One call, with its arguments as they are written."""

    compiler: SparkOperators
    name: str
    nodes: tuple[ast.Expression, ...]
    scope: Any
    safe: bool = False

    def values(self) -> list[Value]:
        return [self.compiler.expr(node, self.scope) for node in self.nodes]

    def at_most(self, count: int) -> None:
        """Further arguments, which GoogleSQL has, are not available."""
        if len(self.nodes) > count:
            raise SqlError(f"{self.name} takes {count} arguments at most on Spark, not {len(self.nodes)}")

    def value(self, index: int) -> Value:
        return self.compiler.expr(self.nodes[index], self.scope)

    def typed(self, index: int, kind: SqlType) -> Value:
        return self.want(self.value(index), kind)

    def common(self, values: Sequence[Value], what: str) -> tuple[SqlType, list[Value]]:
        return self.compiler.common(values, what, self.nodes[0])

    def want(self, value: Value, kind: SqlType) -> Value:
        converted = coerce(value, kind)
        if converted is None:
            raise self.mismatch([value])
        return converted

    def text(self, index: int) -> str:
        """An argument that has to be a constant text: a pattern, a format, a path."""
        value = self.value(index)
        if not isinstance(value.constant, str) or value.type is not STRING:
            raise SqlError(f"{self.name} needs a constant text there on Spark")
        return value.constant

    def mismatch(self, values: Sequence[Value]) -> SqlError:
        kinds = ", ".join("NULL" if value.null else str(value.type) for value in values)
        return SqlError(f"{self.name} does not take {kinds} on Spark")

    def word(self, index: int) -> str:
        """An argument that is a keyword, such as a date part."""
        node = self.nodes[index]
        return node.parts[0].upper() if isinstance(node, ast.Path) and len(node.parts) == 1 else ""


Handler = Callable[[Call], Value]


@dataclass(frozen=True, slots=True)
class Function:
    handler: Handler
    safe: bool  # whether SAFE.f is available


REGISTRY: dict[str, Function] = {}


def function(*names: str, safe: bool = False) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for name in names:
            REGISTRY[name] = Function(handler, safe)
        return handler

    return register


_Templates = tuple[str, str]  # of f and of SAFE.f, which may be none
_TEMPLATES: dict[tuple[str, tuple[SqlType, ...]], _Templates] = {}


def define(names: str, parameters: str, template: str, *, safe: str = "") -> None:
    """An overload that is one template, `@0` its first argument.

    `safe` is the template of `SAFE.f`, or NEVER_FAILS; without it `SAFE.f` is not available.
    """
    kinds = types(parameters)
    for name in names.split():
        assert any(one.parameters == kinds for one in FUNCTIONS[name].signatures), (name, parameters)
        _TEMPLATES[name, kinds] = template, template if safe == NEVER_FAILS else safe
        REGISTRY[name] = Function(_simple, bool(safe) and (name not in REGISTRY or REGISTRY[name].safe))


def _simple(call: Call) -> Value:
    """The overload that the arguments choose; another that GoogleSQL has must not be taken instead of it."""
    args = call.values()
    found = overload(FUNCTIONS[call.name], args, coerce, lambda one: (call.name, one.parameters) in _TEMPLATES)
    if found is None:
        raise call.mismatch(args)
    signature, converted = found
    template = _TEMPLATES.get((call.name, signature.parameters), ("", ""))[call.safe]
    if not template:
        raise call.mismatch(args)
    return Value(fill(template, *converted), signature.returns)
