"""BigQuery jobs as the daemon sees them: what to run, and what became of it."""

import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
MAX_JOB_ID = 1024


class Mode(StrEnum):
    """Who continues after the job: the process that waits for it, or whoever sees its completion."""

    TAIL = "tail"
    DISPATCH = "dispatch"


def job_id(dest: str, event: str, step: int, action: str, mode: Mode, attempt: int = 1, part: str = "") -> str:
    """The deterministic job id of one attempt at one step: submitting twice is adopting once.

    `proj:ds.table`, event 117, step 2 → `proj_ds_table--117_00002_copy--dispatch`; a second attempt adds `_try2`. A
    step of several jobs names each (`part2of3`), before the attempt.
    """
    suffix = (f"_{part}" if part else "") + (f"_try{attempt}" if attempt > 1 else "")
    tail = f"--{event}_{step:05d}_{action}{suffix}--{mode}"
    return _UNSAFE.sub("_", dest)[: MAX_JOB_ID - len(tail)] + tail


@dataclass(frozen=True, slots=True)
class JobRef:
    project: str
    location: str
    job_id: str

    def __str__(self) -> str:
        return f"{self.project}:{self.location}.{self.job_id}"


class JobKind(StrEnum):
    LOAD = "load"
    QUERY = "query"
    COPY = "copy"
    EXTRACT = "extract"


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job to insert; `configuration` is BigQuery's own configuration block for `kind`."""

    ref: JobRef
    kind: JobKind
    configuration: dict[str, Any]
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobError:
    reason: str
    message: str
    location: str = ""


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as `jobs.get` tells it: the truth about a completion."""

    ref: JobRef
    kind: JobKind
    state: str  # PENDING, RUNNING, DONE
    configuration: dict[str, Any]
    error: JobError | None = None
    errors: tuple[JobError, ...] = ()
    statistics: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    created: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None

    @property
    def done(self) -> bool:
        return self.state == "DONE"

    @property
    def failed(self) -> bool:
        return self.done and self.error is not None
