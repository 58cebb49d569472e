"""Rehearsed failures: make any operation of the local cloud fail, crawl, lose its answer or repeat itself.

A core wraps each operation in `Hooks.operation`, which counts it and applies the matching faults. What a core cannot do
by itself (waiting, since cores never wait) the server does before it calls the core: see `Hooks.delay`.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from threading import Lock


class FaultKind(StrEnum):
    FAIL = "fail"  # refuse the operation; nothing is done
    DELAY = "delay"  # wait before doing the work
    DROP_RESPONSE = "drop_response"  # do the work, then lose the answer
    DUPLICATE = "duplicate"  # deliver a message twice
    WITHHOLD = "withhold"  # do not deliver a message while the fault lasts


@dataclass(frozen=True, slots=True)
class Fault:
    """One rehearsed failure. `method` and `resource` are shell patterns; `times` None means until removed."""

    service: str
    method: str
    kind: FaultKind
    resource: str = "*"
    status: int = 503
    reason: str = "backendError"
    message: str = "rehearsed failure"
    seconds: float = 0.0
    times: int | None = None

    def matches(self, service: str, method: str, resource: str) -> bool:
        return (
            fnmatchcase(service, self.service)
            and fnmatchcase(method, self.method)
            and fnmatchcase(resource, self.resource)
        )


class FaultInjected(Exception):  # noqa: N818 - it is a rehearsal, not a defect
    """Raised by a core instead of doing the work; the server turns it into the wire error."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class ResponseLost(Exception):  # noqa: N818
    """Raised after the work was done: the server must drop the connection (or answer the status)."""

    def __init__(self, fault: Fault) -> None:
        super().__init__("response lost")
        self.fault = fault


@dataclass(slots=True)
class FaultPlan:
    """The faults in force, shared by the three services."""

    _faults: list[Fault] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def active(self) -> list[dict[str, object]]:
        with self._lock:
            return [asdict(fault) for fault in self._faults]

    @property
    def is_empty(self) -> bool:
        return not self._faults

    def take(self, service: str, method: str, resource: str, *kinds: FaultKind) -> Fault | None:
        """The first matching fault of these kinds, using up one of its `times`."""
        if not self._faults:
            return None
        with self._lock:
            for index, fault in enumerate(self._faults):
                if fault.kind in kinds and fault.matches(service, method, resource):
                    if fault.times is not None:
                        if fault.times <= 1:
                            del self._faults[index]
                        else:
                            self._faults[index] = replace(fault, times=fault.times - 1)
                    return fault
        return None


@dataclass(slots=True)
class Hooks:
    """What a core calls around each operation: counting by class, and faults."""

    service: str
    plan: FaultPlan = field(default_factory=FaultPlan)
    operations: Counter[str] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)

    def operation(self, method: str, resource: str = "", *, cost: str = "") -> "Operation":
        """Count the operation (and its billing class), fail before it or lose its answer after it as planned."""
        return Operation(self, method, resource, cost)

    def count(self, method: str, times: int, *, cost: str = "") -> None:
        """Operations that are carried out together: counted, and beyond any fault."""
        self.operations[method] += times
        if cost:
            self.classes[cost] += times

    def delay(self, method: str, resource: str = "") -> float:
        """Seconds the server waits before it calls the core."""
        fault = self.plan.take(self.service, method, resource, FaultKind.DELAY)
        return fault.seconds if fault else 0.0

    def message_fault(self, method: str, resource: str = "") -> FaultKind | None:
        """Whether a message about to be delivered is duplicated or withheld."""
        fault = self.plan.take(self.service, method, resource, FaultKind.DUPLICATE, FaultKind.WITHHOLD)
        return fault.kind if fault else None


class Operation:
    """One operation, as `with` sees it; by hand, since everything that a core does passes here."""

    __slots__ = ("_cost", "_hooks", "_method", "_resource")

    def __init__(self, hooks: Hooks, method: str, resource: str, cost: str) -> None:
        self._hooks = hooks
        self._method = method
        self._resource = resource
        self._cost = cost

    def __enter__(self) -> None:
        hooks = self._hooks
        hooks.operations[self._method] += 1
        if self._cost:
            hooks.classes[self._cost] += 1
        if fault := hooks.plan.take(hooks.service, self._method, self._resource, FaultKind.FAIL):
            raise FaultInjected(fault)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        hooks = self._hooks
        if kind is None and (
            fault := hooks.plan.take(hooks.service, self._method, self._resource, FaultKind.DROP_RESPONSE)
        ):
            raise ResponseLost(fault)
