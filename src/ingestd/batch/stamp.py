"""What the journal notes on a record when it writes it. Only the journal does: the work on a batch leaves it alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self

from ingestd.model.objects import ABSENT, Generation


@dataclass(frozen=True, slots=True)
class Stamp:
    updated: datetime
    revision: int = 0  # makes every write distinct, so a lost answer can be told from a lost race
    owner: str = ""
    lease_until: datetime | None = None
    born: str = ""  # when the record was created, in the journal's own words; a replay does not change it
    reopens: Generation = ABSENT  # the generation under `Done/` that this record takes back (see `Journal.reopen`)

    def leased(self, now: datetime) -> bool:
        return self.lease_until is not None and self.lease_until > now

    def claimed(self, now: datetime, owner: str, lease: timedelta) -> Self:
        """The next write's, by which `owner` has the record for so long."""
        return replace(self.freed(now), owner=owner, lease_until=now + lease)

    def freed(self, now: datetime) -> Self:
        """The next write's, by which the record is anyone's."""
        return replace(self, updated=now, revision=self.revision + 1, owner="", lease_until=None)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        until = document["LeaseUntil"]
        return cls(
            updated=datetime.fromisoformat(document["Updated"]),
            revision=document["Revision"],
            owner=document["Owner"],
            lease_until=datetime.fromisoformat(until) if until else None,
            born=str(document.get("Born") or ""),
            reopens=Generation(int(document.get("Reopens", ABSENT))),
        )
