"""What an action may use, and what it hands back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from pydantic import SecretStr

from ingestd.actions.plan import PlannedAction
from ingestd.model.errors import BadInput
from ingestd.model.jobs import JobRequest, JobState, Mode
from ingestd.model.objects import FileVersion, ObjectRef
from ingestd.model.schema import Schema
from ingestd.model.tables import InvalidTableName, TableName, parse_table
from ingestd.ports import HttpClient, ObjectStore, Publisher, SparkSql, Warehouse
from ingestd.retry import Retrier
from ingestd.rules.actions import Request


class ActionHttp(HttpClient, Protocol):
    """The HTTP port with OAuth tokens, which only the `call` action needs."""

    async def access_token(self, scopes: Sequence[str]) -> str: ...


class JobRunner(Protocol):
    async def run(self, make: Callable[[int], JobRequest]) -> JobState:
        """Submit `make(1)` and wait; transient failures go on with `make(2)`… The answer is `DONE`, perhaps failed."""
        ...


class Progress(Protocol):
    """Which steps of this batch are behind us; it outlives the process."""

    def finished(self, step: int) -> bool: ...

    def response(self, step: int) -> Any:
        """What a finished step answered."""
        ...

    async def record(self, step: int, outcome: str, response: Any, *, durable: bool) -> None:
        """Note that the step is finished. `durable`: before returning, since repeating it would be noticed outside."""
        ...


@dataclass(frozen=True, slots=True)
class ActionSettings:
    """What the operator allows and provides."""

    project: str
    location: str = "US"
    """Where jobs run whose datasets cannot be asked."""
    allowed_hosts: tuple[str, ...] = ()
    timeout: timedelta = timedelta(seconds=60)
    call_retries: int = 3
    slack_token: SecretStr | None = None
    slack_token_file: Path | None = None
    slack_url: str = "https://slack.com/api"
    staging: ObjectRef = field(default_factory=lambda: ObjectRef("", ""))
    """Where files lie on their way into tables."""
    max_concurrency: int = 8
    """Objects or partitions one action works on at the same time."""
    job_project: str = ""
    """Where the batch's jobs run, and with them those of its actions; empty: in `project`."""

    @property
    def jobs_in(self) -> str:
        return self.job_project or self.project

    @property
    def home(self) -> str:
        """What SQL has to say of tables that name no project, since its job would take them for its own project's."""
        return self.project if self.jobs_in != self.project else ""


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Where the batch's rows can be read again: its prepared files, or else the files it was made of."""

    load: Mapping[str, Any] = field(default_factory=dict)
    """BigQuery's JobConfigurationLoad of these files."""
    schema: Schema = ()
    """Their columns, in their order; empty: the destination's."""
    prepared: tuple[str, ...] | None = None
    """URIs of the prepared files, of which a batch without rows has none; None: the batch's own files are read."""


class OpenRequest(Protocol):
    async def __call__(self, action: PlannedAction) -> Request:
        """The action's request with its secrets, which are not pinned with the batch."""
        ...


async def as_planned(action: PlannedAction) -> Request:
    return action.action.body


@dataclass(frozen=True, slots=True)
class ActionContext:
    """One batch, seen from its actions."""

    store: ObjectStore
    warehouse: Warehouse
    publisher: Publisher
    http: ActionHttp
    jobs: JobRunner
    progress: Progress
    settings: ActionSettings
    event_id: str
    dest: str
    mode: Mode = Mode.TAIL
    replays: int = 0
    """Times the batch was loaded again: what its actions did before was for other files."""
    rule_key: str = ""
    files: tuple[FileVersion, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    retrier: Retrier = field(default_factory=Retrier)
    opened: OpenRequest = as_planned
    spark: SparkSql | None = None
    rows: BatchRows = field(default_factory=BatchRows)
    _by_ref: dict[ObjectRef, FileVersion] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_ref", {file.ref: file for file in self.files})

    def file_at(self, ref: ObjectRef) -> FileVersion | None:
        """The batch's own version of that object."""
        return self._by_ref.get(ref)

    @property
    def again(self) -> str:
        """What tells the names of this replay's jobs, keys and files from those before; empty the first time."""
        return f"_again{self.replays}" if self.replays else ""

    @property
    def dest_table(self) -> TableName | None:
        """The table the batch is about; None for a route that follows an extract, which wrote files."""
        try:
            return parse_table(self.dest).in_project(self.settings.project)
        except InvalidTableName:
            return None

    def table(self, text: str, project: str | None = None) -> TableName:
        """A table's name; without a project of its own it is in `project`, or in the daemon's."""
        try:
            return parse_table(text).in_project(project or self.settings.project)
        except InvalidTableName as error:
            raise BadInput(str(error)) from error


@dataclass(frozen=True, slots=True)
class Step:
    """One action about to run: its number, the values its request was expanded with, and the job it follows."""

    number: int
    action: str
    values: Mapping[str, Any] = field(default_factory=dict)
    job: JobState | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an action did. `response` feeds the next action's variables; `job` the nested lists'."""

    response: Any = None
    job: JobState | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def idempotency_key(ctx: ActionContext, step: Step) -> str:
    """The same for every repetition of this step of this batch, and for nothing else."""
    return f"{ctx.event_id}-{step.number:05d}{ctx.again}"
