"""An engine's SQL with the GoogleSQL type it has."""

from dataclasses import dataclass

from ingestd.googlesql.types import SqlType


@dataclass(frozen=True, slots=True)
class Value:
    """Text in an engine's SQL, and what is known of what it computes."""

    sql: str
    type: SqlType
    literal: bool = False  # a constant that converts to what its surroundings want
    constant: object = None  # its Python value, where it is known
    null: bool = False  # an untyped NULL
    members: "tuple[Value, ...] | None" = None  # of an ARRAY or STRUCT written out, to convert each one
    parameter: bool = False  # a constant whose value is given when it runs
    raises: bool = False  # ERROR(): of whatever type its surroundings want; `constant` is the SQL that fails
    simple: bool = False  # the text may be repeated at no cost
