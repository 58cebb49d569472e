"""The functions GoogleSQL has. What is not registered here does not exist: nothing falls through to DuckDB's own."""

from collections.abc import Callable
from typing import Concatenate

from ingestd.googlesql import library
from ingestd.googlesql.functions import FUNCTIONS
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.sql.expressions import ExpressionCompiler


class Call(library.Call[ExpressionCompiler]):
    __slots__ = ()


Handler = Callable[[Call], Value]
Writer = Callable[Concatenate[Call, ...], str]
REGISTRY: library.Library[Call] = library.Library(lambda template, args: template.format(*(item.sql for item in args)))


def function(*names: str) -> Callable[[Handler], Handler]:
    return REGISTRY.function(*names, safe=FUNCTIONS[names[0]].kind == "scalar")


def writes(names: str, *overloads: str) -> Callable[[Writer], Writer]:
    return REGISTRY.writes(names, *overloads, safe=True)


def define(names: str, parameters: str, template: str) -> None:
    """An overload that is one DuckDB expression: `{0}` is its first argument."""
    REGISTRY.define(names, parameters, template, safe=library.NEVER_FAILS)  # SAFE.f is an attempt at f


def constant_text(value: Value) -> str | None:
    """The text of a string literal, when it is one."""
    return value.constant if value.literal and not value.parameter and isinstance(value.constant, str) else None
