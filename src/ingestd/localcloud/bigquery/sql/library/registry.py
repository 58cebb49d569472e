"""The functions GoogleSQL has. What is not registered here does not exist: nothing falls through to DuckDB's own."""

from collections.abc import Callable

from ingestd.googlesql import library
from ingestd.googlesql.functions import FUNCTIONS
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.sql.expressions import ExpressionCompiler


class Call(library.Call[ExpressionCompiler]):
    __slots__ = ()


Handler = Callable[[Call], Value]


def _simple(call: Call) -> Value:
    args = call.values()
    found = REGISTRY.overload(call.name, args, call.compiler.conversions)
    if found is None:
        raise call.mismatch(args)
    template, signature, converted = found
    return Value(template.format(*(item.sql for item in converted)), signature.returns)


REGISTRY: library.Library[Handler] = library.Library(_simple)


def function(*names: str) -> Callable[[Handler], Handler]:
    return REGISTRY.function(*names, safe=FUNCTIONS[names[0]].kind == "scalar")


def define(names: str, parameters: str, template: str) -> None:
    """An overload that is one DuckDB expression: `{0}` is its first argument."""
    REGISTRY.define(names, parameters, template, safe=library.NEVER_FAILS)  # SAFE.f is an attempt at f


def constant_text(value: Value) -> str | None:
    """The text of a string literal, when it is one."""
    return value.constant if value.literal and not value.parameter and isinstance(value.constant, str) else None
