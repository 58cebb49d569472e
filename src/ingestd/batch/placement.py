"""Where a batch's jobs run, and who prepares its rows: chosen once, before the first job (see `stages.ready`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ingestd.model.jobs import JobRef


@dataclass(frozen=True, slots=True)
class Placement:
    project: str = ""
    location: str = ""  # empty: not known yet
    engine: str = ""  # who prepares its rows, where the rule leaves that open
    settled: bool = False  # engine and project were chosen, and stay

    def job(self, job_id: str) -> JobRef:
        return JobRef(self.project, self.location, job_id)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        return cls(
            project=document["ProjectID"],
            location=document["Region"],
            engine=document.get("Engine", ""),
            settled=document.get("Settled", False),
        )
