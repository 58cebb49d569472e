"""The actions by name."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ingestd.actions import call, copy, delete, drop, export, insert, move, notify, push, query, spark
from ingestd.actions.context import ActionContext, Outcome, Step


@dataclass(frozen=True, slots=True)
class ActionKind:
    run: Callable[[ActionContext, Step, Any], Awaitable[Outcome]]
    durable: bool = False
    """Repeating it would be noticed outside, so its end is made durable before the next action starts."""
    own_sql: frozenset[str] = frozenset()
    """SQL fields the action fills in by itself, with variables that are known only while it runs."""


ACTIONS: dict[str, ActionKind] = {
    "delete": ActionKind(delete.run),
    "move": ActionKind(move.run),
    "copy": ActionKind(copy.run, own_sql=frozenset({"partition_sql"})),
    "query": ActionKind(query.run),
    "export": ActionKind(export.run),
    "insert": ActionKind(insert.run, durable=True),
    "spark": ActionKind(spark.run),
    "drop": ActionKind(drop.run),
    "push": ActionKind(push.run, durable=True),
    "call": ActionKind(call.run, durable=True),
    "notify": ActionKind(notify.run, durable=True),
}
