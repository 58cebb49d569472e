"""The Python functions DuckDB may call, by the name translated SQL uses."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypeVar, get_args

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
        # DuckDB lets a function that sees no NULLs return none either; one that may is given the NULLs too.
        answers_null = NoneType in get_args(call.__annotations__["return"])
        wrapped = _null_in_null_out(call) if answers_null and not nulls else call
        FUNCTIONS[name] = RuntimeFunction(name, wrapped, tuple(parameters.split()), returns, nulls or answers_null)
        return call

    return register


def _null_in_null_out(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def guarded(*arguments: Any) -> Any:
        return None if None in arguments else call(*arguments)

    return guarded
