"""The action tree of a batch, numbered.

Numbers are given depth first: an action, then its OnSuccess, then its OnFailure; the load itself is step 1. They are
part of job ids and idempotency keys, so the same rule always gives the same numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from ingestd.model.errors import BadInput
from ingestd.rules.actions import Action, AnyAction

LOAD_STEP = 1

_ADAPTER: TypeAdapter[Any] = TypeAdapter(AnyAction)


@dataclass(frozen=True, slots=True)
class PlannedAction:
    step: int
    action: Action
    on_success: tuple[Self, ...] = ()
    on_failure: tuple[Self, ...] = ()

    @property
    def name(self) -> str:
        return self.action.name

    def walk(self) -> Iterator[Self]:
        """This action and everything below it, in step order."""
        yield self
        for child in (*self.on_success, *self.on_failure):
            yield from child.walk()

    def to_json(self) -> dict[str, Any]:
        own = self.action.model_dump(
            mode="json", by_alias=True, exclude_unset=True, exclude={"on_success", "on_failure"}
        )
        document: dict[str, Any] = {"Step": self.step, "Action": self.name, **own}
        if self.on_success:
            document["OnSuccess"] = [child.to_json() for child in self.on_success]
        if self.on_failure:
            document["OnFailure"] = [child.to_json() for child in self.on_failure]
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        own = {key: value for key, value in document.items() if key not in ("Step", "OnSuccess", "OnFailure")}
        on_success = tuple(cls.from_json(child) for child in document.get("OnSuccess", ()))
        on_failure = tuple(cls.from_json(child) for child in document.get("OnFailure", ()))
        bare: Action = _ADAPTER.validate_python(own)
        children = {
            "on_success": tuple(child.action for child in on_success),
            "on_failure": tuple(child.action for child in on_failure),
        }
        action = bare.model_copy(update={name: found for name, found in children.items() if found})
        return cls(int(document["Step"]), action, on_success, on_failure)


@dataclass(frozen=True, slots=True)
class Plan:
    """What follows a job: one of two lists, and the clean-up that ends either. `on_blocked` comes before either."""

    on_success: tuple[PlannedAction, ...] = ()
    on_failure: tuple[PlannedAction, ...] = ()
    cleanup: tuple[PlannedAction, ...] = ()
    on_blocked: tuple[PlannedAction, ...] = ()

    def walk(self) -> Iterator[PlannedAction]:
        for action in (*self.on_success, *self.on_failure, *self.cleanup, *self.on_blocked):
            yield from action.walk()

    def to_json(self) -> dict[str, Any]:
        return {
            "OnSuccess": [action.to_json() for action in self.on_success],
            "OnFailure": [action.to_json() for action in self.on_failure],
            "Cleanup": [action.to_json() for action in self.cleanup],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        def actions(key: str) -> tuple[PlannedAction, ...]:
            return tuple(PlannedAction.from_json(item) for item in document.get(key) or ())

        return cls(actions("OnSuccess"), actions("OnFailure"), actions("Cleanup"))


@dataclass(slots=True)
class _Numbers:
    last: int

    def take(self) -> int:
        self.last += 1
        return self.last


def plan(
    on_success: Sequence[Action | Mapping[str, Any]],
    on_failure: Sequence[Action | Mapping[str, Any]] = (),
    cleanup: Sequence[Action | Mapping[str, Any]] = (),
    *,
    on_blocked: Sequence[Action | Mapping[str, Any]] = (),
    after: int = LOAD_STEP,
) -> Plan:
    """Number the actions of a rule, route or task, typed or as written; clean-up's numbers come after both lists'."""
    numbers = _Numbers(after)
    lists = (_numbered(actions, numbers) for actions in (on_success, on_failure, cleanup, on_blocked))
    return Plan(*lists)


def parse_action(document: Action | Mapping[str, Any]) -> Action:
    """An action as a rule writes it; `BadInput` when it cannot be one (a task written by hand may hold anything)."""
    if isinstance(document, Action):
        return document
    try:
        action: Action = _ADAPTER.validate_python(dict(document))
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise BadInput(f"not an action: {problems}") from error
    return action


def _numbered(actions: Sequence[Action | Mapping[str, Any]], numbers: _Numbers) -> tuple[PlannedAction, ...]:
    return tuple(_number(parse_action(action), numbers) for action in actions)


def _number(action: Action, numbers: _Numbers) -> PlannedAction:
    step = numbers.take()
    on_success = _numbered(action.on_success, numbers)
    return PlannedAction(step, action, on_success, _numbered(action.on_failure, numbers))
