"""The Python functions DuckDB may call, by the name translated SQL uses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class RuntimeFunction:
    name: str
    call: Callable[..., Any]
    parameters: tuple[str, ...]
    returns: str
    nulls: bool  # whether it wants to see NULL arguments; otherwise any NULL makes the result NULL


FUNCTIONS: dict[str, RuntimeFunction] = {}


def runtime(name: str, parameters: str, returns: str, *, nulls: bool = False) -> Callable[[_Function], _Function]:
    """Make a function callable from SQL. `parameters` are DuckDB types, separated by spaces. Raising ValueError makes
    the query fail with that message, as BigQuery words it."""

    def register(call: _Function) -> _Function:
        FUNCTIONS[name] = RuntimeFunction(name, call, tuple(parameters.split()), returns, nulls)
        return call

    return register
