"""Groups among everything else: `OnDone` runs once, after the batches of the group, and somebody watches.

The watcher sees every record the moment it is created, and every message that a group's end publishes, on the world's
own clock: replicas' clocks are skewed.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sim.scenario import RulePlan

TOPIC = "groups-done"
_SLACK = 30.0  # seconds between looking for batches of the group and writing down that it is over, calls repeated


def draw_groups(seed: int, rules: "tuple[RulePlan, ...]", *, wanted: bool) -> "tuple[RulePlan, ...]":
    """Some windowed rules get a group; from a chance of its own, so that whatever else is drawn stays as it is."""
    chance = random.Random(f"groups {seed}")
    found = []
    for rule in rules:
        drawn, seconds = chance.random() < 0.12, chance.choice((60, 60, 120))
        if rule.batch is not None and (drawn or (wanted and rule.number == 0)):
            push = {"Action": "push", "Request": {"Topic": TOPIC, "Message": "group $GroupID is done"}}
            rule = replace(rule, batch={**rule.batch, "Group": {"DurationInSec": seconds, "OnDone": [push]}})
        found.append(rule)
    return tuple(found)


class GroupWatch:
    def __init__(self) -> None:
        self._began: dict[str, float] = {}  # records, by event id
        self._ended: dict[str, float] = {}
        self._announced: dict[str, set[str]] = defaultdict(set)  # keys, by the event id of the group's end

    def wrote(self, name: str, now: float) -> None:
        event = name.rpartition("/")[2].removesuffix(".run")
        if name.startswith("journal/Running/"):
            self._began.setdefault(event, now)
        elif name.startswith("journal/Done/"):
            self._ended.setdefault(event, now)

    def published(self, messages: Iterable[Mapping[str, str]]) -> None:
        for attributes in messages:
            self._announced[attributes["ingestd-event"]].add(attributes["ingestd-idempotency-key"])

    def problems(self, records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """`records`: all that are finished in the end."""
        batches: dict[str, list[str]] = defaultdict(list)
        ends: dict[str, str] = {}
        for record in records:
            window = record["Window"] or {}
            if record["Kind"] == "load" and window.get("Group"):
                batches[window["Group"]].append(record["EventID"])
            elif window.get("Name", "").startswith("group:"):
                ends[window["Name"].removeprefix("group:")] = record["EventID"]
        for group, events in batches.items():
            end = ends.get(group)
            if end is None or not self._announced[end]:
                yield f"G5: group {group} was never done, and its batches {events} are"
                continue
            if len(self._announced[end]) > 1:
                yield f"G2: the end of group {group} was announced under {len(self._announced[end])} keys"
            over = self._began[end]
            for event in events:
                if self._began[event] < over - _SLACK and self._ended[event] > over:
                    yield f"G6: group {group} was done at {over:.0f}, and its batch {event} was under way"
