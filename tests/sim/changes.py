"""What people and the quota governor change while files are under way: rules' names and windows, tables' paces.

None of it may load a file twice: neither where a rule is kept nor how it collects files is part of a file's identity.
Drawn from a chance of its own, so that whatever else a seed draws stays as it is.
"""

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from tests.sim.scenario import RulePlan

_SHARED = {"Workflow": "everybody's"}  # copied from rule to rule: each is called by its file then
_LONG_AFTER = 40 * 86_400.0  # seconds: longer than Pub/Sub keeps anything


@dataclass(frozen=True, slots=True)
class Change:
    """An edit of a rule, in place; or a pace for its tables, as another replica would have written it down."""

    at: float
    rule: int
    edit: dict[str, Any] = field(default_factory=dict)  # None takes a key away
    pace: int | None = None
    moved: bool = False  # to a file of another name
    since: float = 0.0  # the pace applies from so many seconds after the beginning

    @property
    def kind(self) -> str:
        if self.pace is not None:
            return "pace of a table"
        if self.edit.get("Info") == _SHARED:
            return "rules of one workflow"
        if "Info" in self.edit:
            return "rule moved to another file" if self.moved else "rule's workflow renamed"
        return "window taken away" if self.edit.get("Batch", 0) is None else "window of another length"

    def apply(self, document: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in {**document, **self.edit}.items() if value is not None}

    def note(self, table: str, begin: float) -> bytes:
        entries = [[int(begin + self.since), self.pace, "another-replica"]]
        return orjson.dumps({"schema_version": 1, "Table": table, "Entries": entries})


def draw_changes(seed: int, rules: "tuple[RulePlan, ...]", last: float) -> tuple[Change, ...]:
    """Few or none; more often around the end, when duplicates and late files come."""
    chance = random.Random(f"changes {seed}")
    if chance.random() < 0.6:
        return ()
    changes = []
    for number in range(chance.randint(1, 4)):
        rule, at = chance.choice(rules), chance.uniform(0, last + 30)
        kind = chance.choice(("name", "window", "window", "alone", "pace", "pace"))
        if kind == "pace":
            since, pace = at + chance.uniform(-30, 30), chance.choice((30, 60, 120))
            changes.append(Change(at, rule.number, pace=pace, since=since))
            continue
        edit: dict[str, Any] = {"Info": {"Workflow": f"renamed{number}"}}
        if kind == "window":
            edit = {"Batch": {"Window": {"DurationInSec": chance.choice((5, 10, 15, 30, 60))}}}
        elif kind == "alone":
            edit = {"Batch": None}
        changes.append(Change(at, rule.number, edit, moved=kind == "name" and chance.random() < 0.5))
    return tuple(sorted((*changes, *_sharing(seed, rules, last)), key=lambda change: change.at))


def _sharing(seed: int, rules: "tuple[RulePlan, ...]", last: float) -> list[Change]:
    """Now and then several rules come to have one workflow, one after the other."""
    chance = random.Random(f"workflows {seed}")
    if len(rules) < 2 or chance.random() < 0.7:
        return []
    some = chance.sample(rules, chance.randint(2, len(rules)))
    return [Change(chance.uniform(0, last + 30), rule.number, {"Info": _SHARED}) for rule in some]


def draw_patience(seed: int) -> float:
    """How long after the end the last duplicates come; everybody restarts before those that come long after."""
    return random.Random(f"patience {seed}").choice((0.0, 0.0, 90.0, _LONG_AFTER))
