"""Query parameters: from REST's strings to typed values that DuckDB binds. They are never pasted into SQL."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """`name` is empty for a positional parameter. `type` and `value` are REST's parameterType and parameterValue."""

    name: str
    type: dict[str, Any]
    value: dict[str, Any]


def parameters_from_rest(resources: Sequence[dict[str, Any]] | None) -> tuple[QueryParameter, ...]:
    return tuple(
        QueryParameter(str(item.get("name") or ""), item.get("parameterType") or {}, item.get("parameterValue") or {})
        for item in resources or ()
    )
