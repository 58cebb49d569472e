"""The table of functions. A simple one is a template of Spark SQL per signature, `@0` its first argument."""

from collections.abc import Callable, Sequence
from typing import Concatenate

from ingestd.googlesql import library
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.library import NEVER_FAILS
from ingestd.googlesql.types import STRING
from ingestd.googlesql.values import Value
from ingestd.spark.sql.operators import SparkOperators
from ingestd.spark.sql.values import fill


class Call(library.Call[SparkOperators]):
    __slots__ = ()

    def at_most(self, count: int) -> None:
        """Further arguments, which GoogleSQL has, are not available."""
        if len(self.nodes) > count:
            raise SqlError(f"{self.name} takes {count} arguments at most on Spark, not {len(self.nodes)}")

    def text(self, index: int) -> str:
        """An argument that has to be a constant text: a pattern, a format, a path."""
        value = self.value(index)
        if not isinstance(value.constant, str) or value.type is not STRING:
            raise SqlError(f"{self.name} needs a constant text there on Spark")
        return value.constant


Writer = Callable[Concatenate[Call, ...], str]
REGISTRY: library.Library[Call] = library.Library(lambda template, args: fill(template, *args))
function, define = REGISTRY.function, REGISTRY.define


def writes(names: str, *overloads: str, safe: bool = False, texts: Sequence[int] = ()) -> Callable[[Writer], Writer]:
    """As `Library.writes`. The arguments in `texts` have to be constant, which is seen to before there are types."""

    def register(writer: Writer) -> Writer:
        REGISTRY.writes(names, *overloads, safe=safe)(writer)
        for name in names.split() if texts else ():
            REGISTRY[name] = library.Entry(_constant(REGISTRY[name].handler, texts), safe)
        return writer

    return register


def _constant(handler: Callable[[Call], Value], texts: Sequence[int]) -> Callable[[Call], Value]:
    def handle(call: Call) -> Value:
        for index in texts:
            if index < len(call.nodes):
                call.text(index)
        return handler(call)

    return handle


__all__ = ["NEVER_FAILS", "REGISTRY", "Call", "define", "function", "writes"]
