"""How a batch waits for its surroundings: each wait in a row is longer, and whatever moves it on ends them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Wait:
    times: int = 0  # in a row
    until: datetime | None = None  # None: it does not wait; one that is to be tried at once waits until now

    def lasts(self, now: datetime) -> bool:
        return self.until is not None and self.until > now

    def to_json(self) -> dict[str, Any]:
        return {"Waits": self.times, "RetryAt": self.until}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        until = document["RetryAt"]
        return cls(document["Waits"], datetime.fromisoformat(until) if until else None)
