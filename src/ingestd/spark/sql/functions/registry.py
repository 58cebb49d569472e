"""The table of functions. A simple one is a template of Spark SQL per signature, `@0` its first argument."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ingestd.googlesql import ast
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.library import NEVER_FAILS, Library
from ingestd.googlesql.types import STRING, SqlType
from ingestd.googlesql.values import Value
from ingestd.spark.sql.operators import SparkOperators
from ingestd.spark.sql.values import coerce, fill


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


def _simple(call: Call) -> Value:
    args = call.values()
    found = REGISTRY.overload(call.name, args, call.compiler.conversions, safe=call.safe)
    if found is None:
        raise call.mismatch(args)
    template, signature, converted = found
    return Value(fill(template, *converted), signature.returns)


REGISTRY: Library[Handler] = Library(_simple)
function, define = REGISTRY.function, REGISTRY.define

__all__ = ["NEVER_FAILS", "REGISTRY", "Call", "define", "function"]
