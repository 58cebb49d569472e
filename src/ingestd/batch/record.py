"""The record of one batch: everything needed to finish it, by any replica, whatever happened to the one that began.

The record is what the journal stores. It pins the files (with generations), the destination, the rule and the load
configuration, so that an edited rule never changes a batch under way. Phases move only along `_NEXT`.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self

import orjson

from ingestd.model.jobs import JobRef, Mode, job_id
from ingestd.model.objects import FileVersion, Generation, ObjectRef, generation_time

SCHEMA_VERSION = 1


class Kind(StrEnum):
    LOAD = "load"  # files to load, then actions
    ROUTE = "route"  # somebody's BigQuery job is done, and a route has actions for it


@dataclass(frozen=True, slots=True)
class WindowMark:
    """Which window a batch came from, and the shards that went into it."""

    name: str
    start: int
    shards: tuple[str, ...] = ()
    group: str = ""


class Phase(StrEnum):
    ACCEPTED = "accepted"  # durable; its load job may or may not have been submitted
    LOADED = "loaded"  # the load is proven; OnSuccess actions may have begun
    FAILING = "failing"  # the load finally failed; OnFailure actions may have begun
    DONE = "done"
    FAILED = "failed"
    SUPERSEDED = "superseded"  # overwritten before it was loaded: the newer generation has its own batch
    MISSING = "missing"  # deleted before it was loaded
    IGNORED = "ignored"  # our own move put it there: loading it again would go round in circles

    @property
    def final(self) -> bool:
        return not _NEXT[self]


_NEXT: dict[Phase, frozenset[Phase]] = {
    Phase.ACCEPTED: frozenset({Phase.LOADED, Phase.FAILING, Phase.SUPERSEDED, Phase.MISSING, Phase.IGNORED}),
    Phase.LOADED: frozenset({Phase.DONE, Phase.FAILED}),
    Phase.FAILING: frozenset({Phase.FAILED, Phase.DONE}),  # DONE: a route that dealt with somebody's failed job
    Phase.DONE: frozenset(),
    Phase.FAILED: frozenset(),
    Phase.SUPERSEDED: frozenset(),
    Phase.MISSING: frozenset(),
    Phase.IGNORED: frozenset(),
}


class IllegalTransition(RuntimeError):  # noqa: N818 - a programming error, named for what it is
    def __init__(self, before: Phase, after: Phase) -> None:
        super().__init__(f"a batch cannot go from {before} to {after}")


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What became of one action: its outcome, and the response later actions may refer to."""

    outcome: str
    response: Any = None


@dataclass(frozen=True, slots=True)
class Record:
    event_id: str
    kind: Kind
    phase: Phase
    dest: str  # the destination as users write and read it, `dataset.table`
    files: tuple[FileVersion, ...]
    rule: dict[str, Any]  # the pinned rule (or route) in full
    rule_url: str
    rule_name: str  # stable across edits: the file and the place in it
    rule_hash: str
    created: datetime
    updated: datetime
    asynchronous: bool = False
    project: str = ""
    location: str = ""
    load: dict[str, Any] = field(default_factory=dict)  # BigQuery's JobConfigurationLoad, complete
    values: dict[str, Any] = field(default_factory=dict)  # variables pinned with the batch
    trigger_job: JobRef | None = None  # a route's job
    window: WindowMark | None = None
    overwrote: Generation | None = None  # the generation this one replaced, whose load may still be running
    attempt: int = 1
    steps: dict[int, StepOutcome] = field(default_factory=dict)
    rows: int | None = None
    error: str = ""
    failures: int = 0  # load attempts that failed for a moment; enough of them are final
    waits: int = 0  # times it had to wait for its surroundings; each wait is longer
    retry_at: datetime | None = None
    owner: str = ""
    lease_until: datetime | None = None
    revision: int = 0  # makes every write distinct, so a lost answer can be told from a lost race

    @property
    def mode(self) -> Mode:
        return Mode.DISPATCH if self.asynchronous else Mode.TAIL

    @property
    def sources(self) -> list[str]:
        return [file.ref.url for file in self.files]

    @property
    def known_files(self) -> tuple[FileVersion, ...]:
        """Every file this batch answers for: a message about one of them is a duplicate."""
        return self.files

    @property
    def identity(self) -> str:
        """What the event id stands for: the window, the file's generation, or the job and the route."""
        if self.window:
            return f"window:{self.window.name}"
        return self.files[0].key if self.files else f"{self.trigger_job}|{self.rule_hash}"

    @property
    def day(self) -> str:
        """Part of the record's path, so it derives from the identity alone: redelivery finds the same record."""
        if self.window:
            return datetime.fromtimestamp(self.window.start, UTC).strftime("%Y-%m-%d")
        moment = generation_time(self.files[0].generation) if self.files else self.created
        return moment.strftime("%Y-%m-%d")

    def load_job(self, attempt: int | None = None) -> JobRef:
        name = job_id(self.dest, self.event_id, 1, "load", self.mode, attempt or self.attempt)
        return JobRef(self.project, self.location, name)

    def leased(self, now: datetime) -> bool:
        return self.lease_until is not None and self.lease_until > now

    def waiting(self, now: datetime) -> bool:
        """Whether it shall be left alone until `retry_at`."""
        return self.retry_at is not None and self.retry_at > now

    def enter(self, phase: Phase, **changes: Any) -> Self:
        """This record in its next phase; an illegal move is a bug and raises."""
        if phase not in _NEXT[self.phase]:
            raise IllegalTransition(self.phase, phase)
        return replace(self, phase=phase, failures=0, waits=0, retry_at=None, **changes)

    def to_json(self) -> bytes:
        document = {
            "schema_version": SCHEMA_VERSION,
            "EventID": self.event_id,
            "Kind": self.kind,
            "Status": self.phase,
            "DestTable": self.dest,
            "Files": [_file_json(file) for file in self.files],
            "RuleURL": self.rule_url,
            "RuleName": self.rule_name,
            "RuleHash": self.rule_hash,
            "Rule": self.rule,
            "Async": self.asynchronous,
            "JobID": self.load_job().job_id if self.kind is Kind.LOAD else "",
            "ProjectID": self.project,
            "Region": self.location,
            "Load": self.load,
            "Params": self.values,
            "TriggerJob": _job_json(self.trigger_job),
            "Window": _window_json(self.window),
            "Overwrote": str(self.overwrote) if self.overwrote else None,
            "Attempt": self.attempt,
            "Steps": {str(step): {"outcome": o.outcome, "response": o.response} for step, o in self.steps.items()},
            "Rows": self.rows,
            "Error": self.error,
            "Failures": self.failures,
            "Waits": self.waits,
            "RetryAt": self.retry_at,
            "Owner": self.owner,
            "LeaseUntil": self.lease_until,
            "Created": self.created,
            "Updated": self.updated,
            "Revision": self.revision,
        }
        return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a stored record; a version from the future is refused rather than misread."""
        document = orjson.loads(data)
        version = document.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(f"journal record has schema_version {version!r}; this ingestd reads {SCHEMA_VERSION}")
        return cls(
            event_id=document["EventID"],
            kind=Kind(document["Kind"]),
            phase=Phase(document["Status"]),
            dest=document["DestTable"],
            files=tuple(_file_from_json(item) for item in document["Files"]),
            rule=document["Rule"],
            rule_url=document["RuleURL"],
            rule_name=document["RuleName"],
            rule_hash=document["RuleHash"],
            created=datetime.fromisoformat(document["Created"]),
            updated=datetime.fromisoformat(document["Updated"]),
            asynchronous=document["Async"],
            project=document["ProjectID"],
            location=document["Region"],
            load=document["Load"],
            values=document["Params"],
            trigger_job=_job_from_json(document["TriggerJob"]),
            window=_window_from_json(document.get("Window")),
            overwrote=Generation(int(document["Overwrote"])) if document["Overwrote"] else None,
            attempt=document["Attempt"],
            steps={int(k): StepOutcome(v["outcome"], v["response"]) for k, v in document["Steps"].items()},
            rows=document["Rows"],
            error=document["Error"],
            failures=document["Failures"],
            waits=document["Waits"],
            retry_at=_instant(document["RetryAt"]),
            owner=document["Owner"],
            lease_until=_instant(document["LeaseUntil"]),
            revision=document["Revision"],
        )


def _instant(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _file_json(file: FileVersion) -> dict[str, Any]:
    return {
        "URL": file.ref.url,
        "Generation": str(file.generation),
        "Size": file.size,
        "Time": file.event_time,
        "CRC32C": file.crc32c,
    }


def _file_from_json(item: dict[str, Any]) -> FileVersion:
    return FileVersion(
        ObjectRef.parse(item["URL"]),
        Generation(int(item["Generation"])),
        item["Size"],
        datetime.fromisoformat(item["Time"]),
        item["CRC32C"],
    )


def _job_json(job: JobRef | None) -> dict[str, str] | None:
    return {"project": job.project, "location": job.location, "job_id": job.job_id} if job else None


def _job_from_json(item: dict[str, str] | None) -> JobRef | None:
    return JobRef(item["project"], item["location"], item["job_id"]) if item else None


def _window_json(mark: WindowMark | None) -> dict[str, Any] | None:
    if mark is None:
        return None
    return {"Name": mark.name, "Start": mark.start, "Shards": mark.shards, "Group": mark.group}


def _window_from_json(item: dict[str, Any] | None) -> WindowMark | None:
    return WindowMark(item["Name"], item["Start"], tuple(item["Shards"]), item["Group"]) if item else None
