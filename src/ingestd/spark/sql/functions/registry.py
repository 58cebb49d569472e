"""The table of functions. A simple one is a template of Spark SQL per signature, `@0` its first argument."""

from collections.abc import Callable

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


Handler = Callable[[Call], Value]


def _simple(call: Call) -> Value:
    args = call.values()
    found = REGISTRY.overload(call.name, args, call.compiler.conversions, safe=call.safe)
    if found is None:
        raise call.mismatch(args)
    template, signature, converted = found
    return Value(fill(template, *converted), signature.returns)


REGISTRY: library.Library[Handler] = library.Library(_simple)
function, define = REGISTRY.function, REGISTRY.define

__all__ = ["NEVER_FAILS", "REGISTRY", "Call", "define", "function"]
