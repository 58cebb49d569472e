"""What a record remembers of its post-actions, in memory."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class MemoryProgress:
    """What a record remembers; `crash` forgets what was not made durable."""

    steps: dict[int, tuple[str, Any]] = field(default_factory=dict)
    durable: dict[int, tuple[str, Any]] = field(default_factory=dict)

    def finished(self, step: int) -> bool:
        return step in self.steps

    def response(self, step: int) -> Any:
        return self.steps[step][1]

    async def record(self, step: int, outcome: str, response: Any, *, durable: bool) -> None:
        self.steps[step] = (outcome, response)
        if durable:
            self.durable = dict(self.steps)

    def crash(self) -> None:
        self.steps = dict(self.durable)
