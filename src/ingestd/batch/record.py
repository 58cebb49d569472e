"""The record of one batch: everything needed to finish it, by any replica, whatever happened to the one that began.

The record is what the journal stores. It pins the files (with generations), the destination, the rule and the load
configuration, so that an edited rule never changes a batch under way. Phases move only as `phases` says; where each
file stands is in `progress`.

Version 1 of the stored form has one file. Several files make it version 2, which a daemon that knows only single files
refuses rather than misreads; a batch of a success file's directory makes it version 3, and a rule whose secrets were
left out (see `rules.secrets`) version 4: an older daemon would send the stars. Several jobs that are named as parts of
one load make it version 5: an older daemon would look for them by other names, and load their files once more.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self

import orjson

from ingestd.batch.content import Chunk, Fate, Load, Progress, SetAside
from ingestd.batch.file_list import file_from_json, file_json
from ingestd.batch.marks import SuccessMark, Trigger, WindowMark, trigger_from_json, trigger_json
from ingestd.batch.phases import IllegalTransition, Phase, Stage
from ingestd.batch.pinned import HOME, UNMATCHED
from ingestd.batch.placement import Placement
from ingestd.batch.rule import PinnedRule
from ingestd.batch.stamp import Stamp
from ingestd.batch.wait import Wait
from ingestd.model.jobs import JobRef, Mode, job_id
from ingestd.model.objects import FileVersion, ObjectRef, generation_time
from ingestd.model.stored import document as read_document
from ingestd.rules.schema import Transient

SCHEMA_VERSION = 5
UNRESOLVED = "unresolved"  # stands for the destination of a directory until its path and `_config/` have told it


class Kind(StrEnum):
    LOAD = "load"  # files to load, then actions
    ROUTE = "route"  # somebody's BigQuery job is done, and a route has actions for it


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
    dest: str  # the destination as users write and read it, `dataset.table`; or `UNRESOLVED`
    files: tuple[FileVersion, ...]
    rule: PinnedRule
    created: datetime
    stamp: Stamp
    trigger: Trigger | None = None
    files_url: str = ""  # where the list of files is kept when it is too long for the record
    asynchronous: bool = False
    placement: Placement = field(default_factory=Placement)
    load: dict[str, Any] = field(default_factory=dict)  # BigQuery's JobConfigurationLoad, complete
    values: dict[str, Any] = field(default_factory=dict)  # variables pinned with the batch
    progress: Progress = field(default_factory=Progress)
    steps: dict[int, StepOutcome] = field(default_factory=dict)
    replays: int = 0  # times it was loaded again: the actions that follow are others than those before
    rows: int | None = None
    error: str = ""
    wait: Wait = field(default_factory=Wait)
    trace: str = ""  # where its trace begins, so that whoever continues the batch continues it (`ops.tracing`)

    @property
    def mode(self) -> Mode:
        return Mode.DISPATCH if self.asynchronous else Mode.TAIL

    @property
    def window(self) -> WindowMark | None:
        return self.trigger if isinstance(self.trigger, WindowMark) else None

    @property
    def success(self) -> SuccessMark | None:
        return self.trigger if isinstance(self.trigger, SuccessMark) else None

    @property
    def trigger_job(self) -> JobRef | None:
        """A route's job."""
        return self.trigger if isinstance(self.trigger, JobRef) else None

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
        if self.success:
            return f"success:{self.success.url}#{self.success.generation}"
        return self.files[0].key if self.files else f"{self.trigger_job}|{self.rule.content_hash}"

    @property
    def home(self) -> str:
        """The journal's folder for it: the destination's, or, where that may follow later, the success file's."""
        return f"_success.{ObjectRef.parse(self.success.url).bucket}" if self.success else self.dest

    @property
    def unresolved(self) -> bool:
        """Whether it is not known yet which table it is for."""
        return self.success is not None and not self.success.resolved

    @property
    def transient(self) -> Transient | None:
        return self.rule.transient if self.kind is Kind.LOAD else None

    @property
    def lands_apart(self) -> bool:
        """Whether rows arrive in a table of the batch's own, and are published from there."""
        return self.progress.staged or self.transient is not None

    @property
    def stage(self) -> Stage:
        progress = self.progress
        if self.phase is not Phase.ACCEPTED:
            return Stage.ACT
        if progress.chunks or (progress.pinned and not all(pour.done for pour in progress.pinned.pours)):
            return Stage.LAND
        if not self.unresolved and all(index in progress.aside for index in range(len(self.files))):
            return Stage.PROVE
        if progress.begun:
            return Stage.PUBLISH if self.lands_apart else Stage.PROVE
        return Stage.PREPARE if progress.preparing else Stage.LOOK

    @property
    def day(self) -> str:
        """Part of the record's path, so it derives from the identity alone: redelivery finds the same record."""
        if self.window:
            return datetime.fromtimestamp(self.window.start, UTC).date().isoformat()
        if self.success:
            return generation_time(self.success.generation).date().isoformat()
        moment = generation_time(self.files[0].generation) if self.files else self.created
        return moment.date().isoformat()

    @property
    def attempt(self) -> int:
        """The number of its latest load job."""
        return max(1, self.progress.jobs)

    @property
    def loaded_files(self) -> tuple[FileVersion, ...]:
        return tuple(self.files[index] for index in self.progress.loaded)

    @property
    def failed_files(self) -> tuple[FileVersion, ...]:
        """What OnFailure is about: everything that went wrong, or, where a part loaded, what failed undecided."""
        wrong = self.progress.with_fate(Fate.FAILED) if self.progress.loaded else self.progress.wrong
        return tuple(self.files[index] for index in wrong)

    def load_job(self, number: int | None = None) -> JobRef:
        step = "query" if self.success and self.success.sql and not self.success.spark else "load"
        number = number or self.attempt
        part = self.progress.parts.get(number)
        return self._job(step, part.attempt if part else number, str(part or ""))

    def publish_job(self, branch: int = HOME, attempt: int | None = None) -> JobRef:
        """The job that brings landed rows to the destination, or to the table of a split's branch."""
        step = {HOME: "publish", UNMATCHED: "unmatched"}.get(branch, f"publish{branch + 1}")
        return self._job(step, attempt or self.progress.publishing)

    def own_job(self, job_id: str) -> JobRef:
        return self.placement.job(job_id)

    def _job(self, step: str, attempt: int, part: str = "") -> JobRef:
        prefix = self.success.job_prefix if self.success else ""
        return self.own_job(job_id(f"{prefix}{self.dest}", self.event_id, 1, step, self.mode, attempt, part))

    def located(self, location: str) -> Self:
        return replace(self, placement=replace(self.placement, location=location))

    def enter(self, phase: Phase, **changes: Any) -> Self:
        """This record in its next phase; an illegal move is a bug and raises."""
        if not self.phase.may_become(phase):
            raise IllegalTransition(self.phase, phase)
        return replace(self, phase=phase, wait=Wait(), **changes)

    def reopened(self, now: datetime) -> Self:
        """A failed batch for another try: what did not load is loaded, or else its actions run again."""
        trigger = replace(self.success, left_out=False) if self.success else self.trigger
        fresh = replace(self, created=now, wait=Wait(until=now), error="", trigger=trigger)
        if self.kind is Kind.ROUTE:
            return replace(fresh, phase=Phase.ACCEPTED)  # its job tells which of its actions are meant
        progress = self.progress
        again = progress.wrong
        if self.rows is not None and not progress.with_fate(Fate.FAILED):
            # Only an action can have failed: files that are bad in themselves fail no batch of which others loaded.
            return replace(fresh, phase=Phase.LOADED)
        before = {
            index: SetAside(Fate.LOADED, "loaded before the batch was replayed", self.load_job(load.job).job_id)
            for load in progress.loads
            for index in load.files
        }
        kept = {index: one for index, one in progress.aside.items() if index not in again}
        progress = Progress(
            aside=kept | before,
            jobs=progress.jobs,
            parts=progress.parts,
            publishing=progress.publishing + 1,
            # A target that got its rows before another one failed must not get them again.
            published=() if before else progress.published,
            preparing=progress.preparing,
        )
        fresh = replace(fresh, phase=Phase.ACCEPTED, progress=progress, rows=None)
        return replace(fresh, steps={}, replays=self.replays + 1)

    @property
    def version(self) -> int:
        """Of the stored form: the oldest that can tell what this record says."""
        if self.progress.parts:
            return SCHEMA_VERSION
        if self.rule.sealed:
            return 4
        if self.success:
            return 3
        return 1 if len(self.files) <= 1 else 2

    def to_json(self) -> bytes:
        document = {
            "schema_version": self.version,
            "EventID": self.event_id,
            "Kind": self.kind,
            "Status": self.phase,
            "DestTable": self.dest,
            "Files": [] if self.files_url else [file_json(file) for file in self.files],
            "FilesURL": self.files_url,
            "FileCount": len(self.files),
            **self.rule.to_json(),
            "Async": self.asynchronous,
            "JobID": self.load_job().job_id if self.kind is Kind.LOAD and not self.unresolved else "",
            "ProjectID": self.placement.project,
            "Region": self.placement.location,
            "Load": self.load if len(self.files) <= 1 else {**self.load, "sourceUris": []},  # `Files` has them
            "Params": self.values,
            **trigger_json(self.trigger),
            "Overwrote": str(self.files[0].overwrote) if len(self.files) == 1 and self.files[0].overwrote else None,
            "Attempt": self.attempt,
            "Progress": self.progress.to_json(),
            "Staged": self.progress.staged,
            **({"Stage": self.stage} if self.phase is Phase.ACCEPTED else {}),  # for people: it follows from the rest
            **({"Engine": self.placement.engine, "Settled": True} if self.placement.settled else {}),
            "Steps": {str(step): {"outcome": o.outcome, "response": o.response} for step, o in self.steps.items()},
            **({"Replays": self.replays} if self.replays else {}),
            **({"Reopens": str(self.stamp.reopens)} if self.stamp.reopens else {}),
            **({"Trace": self.trace} if self.trace else {}),
            "Rows": self.rows,
            "Error": self.error,
            "Failures": max((chunk.failures for chunk in self.progress.chunks), default=0),
            **self.wait.to_json(),
            **({"Born": self.stamp.born} if self.stamp.born else {}),
            "Owner": self.stamp.owner,
            "LeaseUntil": self.stamp.lease_until,
            "Created": self.created,
            "Updated": self.stamp.updated,
            "Revision": self.stamp.revision,
        }
        return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a stored record (without its files, if those are kept apart); `NewerVersion` for one from the future."""
        document = read_document(data, version=SCHEMA_VERSION)
        files = tuple(file_from_json(item, document.get("Overwrote")) for item in document["Files"])
        trigger = trigger_from_json(document)
        unresolved = isinstance(trigger, SuccessMark) and not trigger.resolved
        return cls(
            event_id=document["EventID"],
            kind=Kind(document["Kind"]),
            phase=Phase(document["Status"]),
            dest=UNRESOLVED if unresolved else document["DestTable"],
            files=files,
            files_url=document.get("FilesURL", ""),
            rule=PinnedRule.from_json(document),
            created=datetime.fromisoformat(document["Created"]),
            stamp=Stamp.from_json(document),
            asynchronous=document["Async"],
            placement=Placement.from_json(document),
            load=document["Load"],
            values=document["Params"],
            trigger=trigger,
            progress=_progress(document, len(files)),
            steps={int(k): StepOutcome(v["outcome"], v["response"]) for k, v in document["Steps"].items()},
            replays=document.get("Replays", 0),
            trace=document.get("Trace", ""),
            rows=document["Rows"],
            error=document["Error"],
            wait=Wait.from_json(document),
        )


def _progress(document: dict[str, Any], files: int) -> Progress:
    staged = document.get("Staged", False)
    if kept := document.get("Progress"):
        return Progress.from_json(kept, staged=staged)
    return replace(_old_progress(document, files), staged=staged)


def _old_progress(document: dict[str, Any], files: int) -> Progress:
    """The progress of a record from before it was kept: one job at a time, for all files."""
    attempt, rows = document["Attempt"], document["Rows"]
    everything = tuple(range(files))
    if not files:
        return Progress()
    if rows is not None:
        return Progress(loads=(Load(attempt, everything, rows, 0),), jobs=attempt)
    if document["Status"] == Phase.ACCEPTED:
        return Progress(chunks=(Chunk(attempt, everything, failures=document["Failures"]),), jobs=attempt)
    fate = {
        Phase.SUPERSEDED: Fate.SUPERSEDED,
        Phase.MISSING: Fate.MISSING,
        Phase.IGNORED: Fate.IGNORED,
    }.get(Phase(document["Status"]), Fate.CORRUPTED)
    job = document["JobID"]
    return Progress(aside=dict.fromkeys(everything, SetAside(fate, document["Error"], job)), jobs=attempt)
