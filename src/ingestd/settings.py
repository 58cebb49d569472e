"""The service's settings: one typed model, from a YAML file and `INGESTD_…` environment variables.

Unknown keys are errors with a suggestion; every default has its reason beside it.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Literal

import re2
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from ingestd.model.objects import ObjectRef
from ingestd.model.quantities import ByteSize, Duration
from ingestd.model.tables import parse_table
from ingestd.model.unknown_keys import UnknownKeys


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def _bqtail(name: str, alias: str) -> AliasChoices:
    """bqtail's own name for the setting is accepted beside ours."""
    return AliasChoices(name, alias)


class Subscriptions(_Section):
    notifications: str = Field("ingestd-notifications", description="Pulls GCS object notifications.")
    completions: str = Field("ingestd-completions", description="Pulls BigQuery audit-log job completions.")
    dead_letter_topic: str = Field("", description="Where unreadable messages go; empty: to `error_url` instead.")


class Intake(_Section):
    concurrent_pulls: int = Field(4, ge=1, le=64, description="Pulls in flight per subscription.")
    messages_per_pull: int = Field(1000, ge=1, le=1000, description="1,000 is Pub/Sub's own limit.")
    max_messages: int = Field(5000, ge=1, description="Unsettled messages at most; beyond it pulling pauses.")
    max_bytes: ByteSize = Field(256 * 1024**2, description="Unsettled payload bytes at most.")
    ack_deadline: Duration = Field(
        timedelta(seconds=60),
        ge=timedelta(seconds=10),
        le=timedelta(seconds=600),
        description="Lease per extension, within Pub/Sub's own 10 s to 10 m; renewed at half of it.",
    )
    silence: Duration = Field(timedelta(seconds=90), description="A pull silent for longer is given up and repeated.")
    remember: int = Field(100_000, ge=0, description="Recently finished files remembered to drop duplicates cheaply.")


class Jobs(_Section):
    location: str = Field("US", description="Where jobs run whose destination dataset cannot be asked.")
    poll_every: Duration = Field(timedelta(seconds=30), description="Safety net: audit events may be lost.")
    max_attempts: int = Field(5, ge=1, description="Attempts of one load before its failure counts as final.")
    retry_pause: Duration = Field(timedelta(seconds=5), description="Before the next attempt; grows with each.")
    throttle_pause: Duration = Field(timedelta(seconds=30), description="After rateLimitExceeded.")
    quota_pause: Duration = Field(timedelta(minutes=15), description="After quotaExceeded, which takes hours to mend.")
    max_running: int = Field(
        100,
        ge=1,
        description="Batches this process works on at the same time; one table has three quarters of them at most.",
    )
    max_files: int = Field(10_000, ge=1, le=10_000, description="Files per load job; a larger batch is staged.")
    max_bytes: ByteSize = Field(15 * 1024**4, ge=1, description="Bytes per load job; 15 TB is BigQuery's own limit.")


class Quotas(_Section):
    enabled: bool | None = Field(None, description="Pace loads; by default unless BIGQUERY_EMULATOR_HOST is set.")
    share: float | None = Field(
        None, gt=0, le=1, description="Of each quota, for this process; by default replicas that are alive share them."
    )
    table_changes: int = Field(5, ge=1, description="Changes of a table per 10 s.")
    partitioned_table_changes: int = Field(50, ge=1, description="Changes of a partitioned table per 10 s.")
    table_daily: int = Field(1_500, ge=1, description="Loads per table and day, failed ones included.")
    project_daily: int = Field(100_000, ge=1, description="Loads per project and day.")


class Recovery(_Section):
    lease: Duration = Field(
        timedelta(seconds=60), description="A batch whose owner is silent for this long is adopted."
    )
    sweep_every: Duration = Field(
        timedelta(seconds=30), description="How often abandoned and blocked batches are found."
    )
    retry_first: Duration = Field(
        timedelta(seconds=30), description="First pause of a blocked batch (missing table, 403)."
    )
    retry_longest: Duration = Field(timedelta(minutes=15), description="Longest pause of a blocked batch.")
    tell_after: Duration = Field(
        timedelta(minutes=1),
        description="A batch blocked for longer (missing table, 403) runs what only tells (notify, push, call) of "
        "`OnFailure`, once, and goes on trying; `OnBlocked` of a rule runs at once.",
    )
    give_up_after: Duration = Field(
        timedelta(days=7),
        le=timedelta(days=150),
        description="Then a blocked batch fails and OnFailure runs; BigQuery forgets job ids after 180 days.",
    )
    horizon: Duration = Field(
        timedelta(days=400),
        ge=timedelta(days=45),
        description="How long a loaded file must be known at least: `ingestd doctor` holds lifecycle rules to it.",
    )

    @model_validator(mode="after")
    def _known_until_settled(self) -> "Recovery":
        # Pub/Sub keeps a message for 31 days at most, and a batch may be under way for as long as it is not given up.
        least = self.give_up_after + timedelta(days=31)
        if self.horizon < least:
            raise ValueError(
                f"horizon is {self.horizon.days} days, yet a file may be announced again {least.days} days after its "
                "batch began (give_up_after and the 31 days that Pub/Sub keeps messages): raise horizon"
            )
        return self


class Windows(_Section):
    flush_files: int = Field(2500, ge=1, description="Files per shard: this many are made durable at once.")
    flush_after: Duration = Field(timedelta(seconds=5), description="Longest a file waits to become durable.")
    grace: Duration = Field(timedelta(seconds=2), description="Added to a window: its last notifications may be late.")
    late_patience: Duration = Field(timedelta(seconds=60), description="How long a window for late files collects.")


class LoadState(_Section):
    enabled: bool = Field(True, description="Keep a table of what became of every batch; see docs/ledger.md.")
    table: str = Field(
        "bigquery_loads.serverless_bq_loads",
        description="`[project.]dataset.table`, made on first use; `BQ_LOAD_STATE_TABLE` is honoured.",
    )
    flush_every: Duration = Field(
        timedelta(seconds=5), ge=timedelta(milliseconds=50), description="At most one write to the table in this time."
    )

    @field_validator("table")
    @classmethod
    def _is_a_table(cls, value: str) -> str:
        parse_table(value)
        return value


class Sweep(_Section):
    prefixes: tuple[str, ...] = Field(
        (), description="`gs://bucket/prefix` to look through for files nobody announced; none: no sweep."
    )
    every: Duration = Field(timedelta(hours=1), description="How often; a look costs a list call per 1,000 objects.")
    older_than: Duration = Field(
        timedelta(minutes=15), description="Files younger than this may still be announced by themselves."
    )
    max_files: int = Field(10_000, ge=1, description="Files delivered per look; the others wait for the next.")

    @field_validator("prefixes")
    @classmethod
    def _gs_urls(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            ObjectRef.parse(one)
        return value


class Late(StrEnum):
    """What becomes of an ordered batch that comes after one that should have followed it."""

    APPLY = "apply"  # it is loaded now
    HOLD = "hold"  # the table waits until a person decides
    REJECT = "reject"  # it fails, and the table goes on


class SuccessOptions(_Section):
    """What may be said for all conventions, and by each of them differently."""

    success_filename: str = Field("_SUCCESS", min_length=1, description="The file that says a directory is complete.")
    destination_regex: str = Field(
        "", description="RE2 with groups dataset, table, partition, yyyy, mm, dd, hh, batch; empty: the usual layout."
    )
    nested: Literal["separate", "include"] = Field(
        "separate", description="Directories below that have a success file of their own are batches of their own."
    )
    job_project: str = Field("", description="Runs (and pays for) the jobs; empty: `project`.")
    storage_project: str = Field("", description="Has the tables, unless path or config say; empty: `job_project`.")
    job_prefix: str = Field("gcf-ingest-", pattern=r"^[A-Za-z0-9_-]{0,64}$", description="Job ids start with it.")
    function_name: str = Field("", description="Label `cloud-function-name` of the jobs, for those who filter by it.")
    fail_on_zero_dml_rows: bool = Field(True, description="A transformation's DML that changes no row is a failure.")
    order_per_table: bool = Field(False, description="Order the batches of every table, not only where ORDERME lies.")
    order_grace: Duration = Field(
        timedelta(seconds=5), description="An ordered batch waits this long for earlier ones that are on their way."
    )
    late: Late = Field(Late.APPLY, description="An ordered batch that comes after a later one: apply, hold or reject.")
    start_backfill_filename: str = Field("", description="Ordered tables wait until this file is in their folder.")
    wait_for_validation: bool = Field(False, description="Ordered tables stop after each batch until told to go on.")
    transform_sql: bool = Field(True, description="Whether `_config/*.sql` is run at all.")
    destination_overrides: bool = Field(True, description="Whether load.json may name another table or regex.")
    allowed_datasets: tuple[str, ...] = Field(
        (), description="`dataset` or `project.dataset`: where batches may go; empty: anywhere."
    )
    config_url: str = Field(
        "", description="`gs://bucket/prefix` whose `_config/` folders count instead of those beside the data."
    )

    @field_validator("destination_regex")
    @classmethod
    def _is_re2(cls, value: str) -> str:
        if value:
            options = re2.Options()
            options.log_errors = False
            try:
                re2.compile(value, options)
            except re2.error as error:
                raise ValueError(f"no RE2 pattern: {error}") from None
        return value


class Convention(SuccessOptions):
    bucket: str = Field(min_length=1, description="The bucket; `*` is every bucket.")
    prefix: str = Field("", description="Only objects whose names start with it.")
    root: str = Field("", description="The folder whose subfolders are datasets; empty: the bucket.")

    @field_validator("root")
    @classmethod
    def _is_a_folder(cls, value: str) -> str:
        return f"{value.strip('/')}/" if value.strip("/") else ""


class Success(SuccessOptions):
    conventions: tuple[Convention, ...] = Field((), description="Buckets in which success files make batches.")

    def effective(self) -> tuple[Convention, ...]:
        """The conventions, with what they leave open taken from here."""
        common = {name: getattr(self, name) for name in SuccessOptions.model_fields}
        return tuple(
            Convention.model_validate(common | {name: getattr(one, name) for name in one.model_fields_set})
            for one in self.conventions
        )


class Actions(_Section):
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="Hosts `call` may reach, by the scheme's own port unless `:8443` or `:*` follows; empty: none. "
        "`*.example.com` leads to public addresses only; `api.corp` to private ones too; `127.0.0.1` has to be listed. "
        "On Kubernetes a NetworkPolicy stops ports other than 443: docs/deployment.md#what-pods-may-reach.",
    )
    timeout: Duration = Field(
        timedelta(seconds=60), description="Per HTTP call, to the end of its answer, unless the action says otherwise."
    )
    slack_token: SecretStr | None = Field(None, description="Token for `notify`; better from a file.")
    slack_token_file: Path | None = Field(None, description="File that holds the Slack token (a mounted secret).")
    slack_url: str = Field("https://slack.com/api", description="Slack's API; another address for rehearsals.")


class Rules(_Section):
    url: str = Field("config/rules", description="A folder, or gs://bucket/prefix.")
    check_every: Duration = Field(timedelta(seconds=60), description="How often edits are looked for (also on SIGHUP).")
    unknown_keys: UnknownKeys = Field(
        UnknownKeys.TYPOS,
        description="Keys a rule does not have: `typos` refuses what is nearly one it has and warns of the others, "
        "`refuse` is strict, `warn` passes over all as bqtail does.",
    )


class Spark(_Section):
    start: Literal["auto", "always", "never"] = Field(
        "auto", description="auto: at start-up when a rule prepares its files, otherwise when the first one does."
    )
    master: str = Field(
        "local[*]", description="Where Spark runs: local[*], spark://, yarn, k8s://, or sc:// (Connect)."
    )
    image: str = Field("", description="Image of executors on Kubernetes: the daemon's own, for the same Spark.")
    conf: dict[str, str] = Field({}, description="Spark's own settings; they win over what the daemon sets.")
    heap: ByteSize | None = Field(
        None, description="Heap of the local JVM; by default what workers leave of half the memory, 1 to 4 GiB."
    )
    max_jobs: int = Field(
        4,
        ge=1,
        le=64,
        description="Batches prepared at the same time, of one table three quarters at most; they share Spark fairly.",
    )
    files: Literal["auto", "local", "gs"] = Field(
        "auto", description="local: fetched to `scratch`; gs: Spark reads the bucket itself; auto: gs on a cluster."
    )
    scratch: Path | None = Field(None, description="Folder for fetched files and spills; by default a temporary one.")
    scratch_size: ByteSize | None = Field(
        None,
        ge=1,
        description="Fetched files and rows kept of them at most; more batches wait. By default two fifths of the "
        "volume, 20 GiB at most.",
    )
    inflated_size: ByteSize = Field(
        512 * 1024**2, ge=1, description="Compressed files may grow to this, whatever their own size."
    )
    inflated_ratio: int = Field(
        250, ge=1, description="Larger ones to that many times their own size; what grows further is set aside."
    )
    side_input_size: ByteSize = Field(
        256 * 1024**2, ge=1, description="Rows of one side input at most; they are held in memory."
    )
    side_input_ttl: Duration = Field(
        timedelta(minutes=5), description="Rows of a side input are kept that long, unless their table changes."
    )
    cache: Path | None = Field(
        None, description="Where a Java that Spark cannot use as it is gets its wrapper; by default ~/.cache/ingestd."
    )
    warm_up: bool = Field(
        True, description="Compile first what batches use. Without it, a session only proves that it can prepare one."
    )
    start_timeout: Duration = Field(
        timedelta(minutes=3),
        description="A session that is not up by then, or not warm that long after, is given up.",
    )
    call_timeout: Duration = Field(
        timedelta(hours=2), description="What Spark has not done by then is cancelled; the batch is tried again."
    )
    heartbeat: Duration = Field(
        timedelta(seconds=5), description="How often the JVM is asked whether it still answers."
    )
    heartbeat_timeout: Duration = Field(timedelta(seconds=60), description="Silent for longer: killed and replaced.")
    restart_first: Duration = Field(timedelta(seconds=1), description="First pause before a new session.")
    restart_longest: Duration = Field(timedelta(minutes=2), description="Longest pause, after repeated failures.")


class Http(_Section):
    host: str = Field("0.0.0.0", description="Kubernetes probes come from outside the pod's loopback.")  # noqa: S104
    port: int = Field(
        9090, ge=0, le=65535, description="The console, /metrics, /healthz, /readyz, /status; 0 picks a free port."
    )
    token: SecretStr | None = Field(
        None, description="What whoever asks for more than probes must know; without one: only this machine may ask."
    )
    token_file: Path | None = Field(
        None, description="File that holds that token (a mounted secret); read again when it changes."
    )
    protect_metrics: bool = Field(
        True, description="Ask for the token on /metrics too; false where a network policy says who may scrape."
    )
    remember: int = Field(5_000, ge=100, description="Ended batches, and troubles, that the console shows.")

    @field_validator("token")
    @classmethod
    def _is_known_to_somebody(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().strip():
            raise ValueError("is empty, which everybody knows; leave it out to let only this machine ask")
        return value


class Logging(_Section):
    format: Literal["auto", "json", "console"] = Field("auto", description="auto: console on a terminal, else JSON.")
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least that is logged.")


class Tracing(_Section):
    endpoint: str = Field(
        "",
        pattern=r"^(https?://\S+)?$",
        description="OTLP over HTTP, e.g. http://otel-collector:4318/v1/traces; empty: none. Needs the extra `otel`.",
    )
    sample: float = Field(1.0, ge=0, le=1, description="Of all batches, the part that is traced.")


class Settings(_Section):
    """Everything the daemon can be told."""

    other_variables: ClassVar[Mapping[str, str]] = {
        "SUCCESS_FILENAME": "success.success_filename",
        "DESTINATION_REGEX": "success.destination_regex",
        "MAX_BATCH_BYTES": "jobs.max_bytes",
        "JOB_PREFIX": "success.job_prefix",
        "BQ_PROJECT": "success.job_project",
        "BQ_STORAGE_PROJECT": "success.storage_project",
        "K_SERVICE": "success.function_name",
        "FAIL_ON_ZERO_DML_ROWS_AFFECTED": "success.fail_on_zero_dml_rows",
        "ORDER_PER_TABLE": "success.order_per_table",
        "START_BACKFILL_FILENAME": "success.start_backfill_filename",
        "WAIT_FOR_VALIDATION": "success.wait_for_validation",
        "BQ_LOAD_STATE_TABLE": "load_state.table",
        "MAX_RETRIES_ON_BIGQUERY_ERROR": "jobs.max_attempts",
        "GCP_PROJECT": "project",
        "FUNCTION_NAME": "success.function_name",
    }
    """Variables of gcs_ocn_bq_ingest, honoured under their own names; `INGESTD_…` comes before them."""

    # Set by Google's platforms for every program there is: they count where nobody says otherwise.
    fallback_variables: ClassVar[frozenset[str]] = frozenset({"GCP_PROJECT", "FUNCTION_NAME"})
    converted_variables: ClassVar[Mapping[str, Callable[[str], str]]] = {
        "MAX_RETRIES_ON_BIGQUERY_ERROR": lambda text: str(int(text) + 1) if text.strip().isdecimal() else text
    }
    idle_variables: ClassVar[Mapping[str, str]] = {
        "WAIT_FOR_JOB_SECONDS": "every job is followed to its end",
        "FUNCTION_TIMEOUT_SEC": "a daemon has no deadline",
        "RESTART_BUFFER_SECONDS": "a daemon has no deadline",
        "USE_ERROR_REPORTING_API": "JSON logs carry what Error Reporting reads (logging.format)",
    }
    """Variables of gcs_ocn_bq_ingest that mean nothing here, and why: whoever sets one is told."""

    bqtail_variables: ClassVar[Mapping[str, str]] = {
        "CONFIG": "`ingestd settings --from-bqtail` makes settings of it",
        "MAX_RETRIES": "jobs.max_attempts says it",
        "GS_MAX_RETRIES": "jobs.max_attempts says it",
        "LOGGING": "logging.level says it",
    }
    """bqtail's variables without effect. Others may mean something else by such names: it is told, and no warning."""

    project: str = Field(
        min_length=1,
        validation_alias=_bqtail("project", "ProjectID"),
        description="The Google Cloud project that runs the jobs.",
    )
    rules: Rules = Rules()
    subscriptions: Subscriptions = Subscriptions()
    journal_url: str = Field(
        "",
        validation_alias=_bqtail("journal_url", "JournalURL"),
        description="Records of batches, running and done; empty: `gs://<project>-ops/journal`.",
    )
    error_url: str = Field(
        "",
        validation_alias=_bqtail("error_url", "ErrorURL"),
        description="Errors, refused files, unreadable messages; empty: `gs://<project>-ops/errors`.",
    )
    defer_task_url: str = Field(
        "",
        validation_alias=AliasChoices("defer_task_url", "DeferTaskURL", "AsyncTaskURL", "async_task_url"),
        description="Deferred tasks of asynchronous rules; empty: `gs://<project>-ops/tasks`.",
    )
    batch_url: str = Field(
        "",
        validation_alias=_bqtail("batch_url", "BatchURL"),
        description="Locks and shards of batch windows; empty: `gs://<project>-ops/batch`.",
    )
    corrupted_file_url: str = Field(
        "",
        validation_alias=_bqtail("corrupted_file_url", "CorruptedFileURL"),
        description="Where broken files are moved, unless a rule says otherwise; empty: they stay.",
    )
    invalid_schema_url: str = Field(
        "",
        validation_alias=_bqtail("invalid_schema_url", "InvalidSchemaURL"),
        description="Where files that do not fit their table are moved; empty: as `corrupted_file_url`.",
    )
    staging_url: str = Field(
        "",
        validation_alias=_bqtail("staging_url", "StagingURL"),
        description="Prepared files on their way into tables; empty: `gs://<project>-ops/staging`.",
    )
    engine: Literal["spark", "bigquery"] = Field(
        "spark",
        validation_alias=_bqtail("engine", "Engine"),
        description="Who prepares rows before they reach their table, unless a rule says otherwise.",
    )
    max_concurrent_load: int = Field(
        0,
        ge=0,
        validation_alias=AliasChoices(
            "max_concurrent_load", "MaxConcurrentLoad", "max_concurrent_jobs", "MaxConcurrentJobs"
        ),
        description="Load jobs of this process in flight per project; 0: as many as come.",
    )
    max_concurrent_sql: int = Field(
        0,
        ge=0,
        validation_alias=_bqtail("max_concurrent_sql", "MaxConcurrentSQL"),
        description="Query jobs of this process in flight per project; 0: as many as come.",
    )
    routes: tuple[dict[str, Any], ...] = Field(
        (),
        validation_alias=_bqtail("routes", "Routes"),
        description="Actions after any BigQuery job of the project; see docs/rules.md.",
    )
    intake: Intake = Intake()
    jobs: Jobs = Jobs()
    quotas: Quotas = Quotas()
    recovery: Recovery = Recovery()
    windows: Windows = Windows()
    success: Success = Success()
    load_state: LoadState = LoadState()
    sweep: Sweep = Sweep()
    actions: Actions = Actions()
    spark: Spark = Spark()
    http: Http = Http()
    logging: Logging = Logging()
    tracing: Tracing = Tracing()
    drain: Duration = Field(
        timedelta(seconds=25), description="Time to finish on SIGTERM; below the pod's grace period."
    )
    replica: str = Field("", description="Name of this process in leases; empty: host name and a random part.")

    @field_validator(
        "journal_url",
        "batch_url",
        "error_url",
        "defer_task_url",
        "staging_url",
        "corrupted_file_url",
        "invalid_schema_url",
    )
    @classmethod
    def _gs_url(cls, value: str) -> str:
        if value:
            ObjectRef.parse(value)
        return value

    @property
    def rules_optional(self) -> bool:
        """A convention needs no rule, so the folder that nobody named need not be there."""
        return bool(self.success.conventions) and "url" not in self.rules.model_fields_set

    @property
    def ops(self) -> ObjectRef:
        """What is given no place of its own lives in the conventional operations bucket."""
        return ObjectRef(f"{self.project}-ops", "")

    @property
    def journal(self) -> ObjectRef:
        return ObjectRef.parse(self.journal_url) if self.journal_url else self.ops / "journal"

    @property
    def register(self) -> ObjectRef:
        return self.journal / "register"

    @property
    def errors(self) -> ObjectRef:
        return ObjectRef.parse(self.error_url) if self.error_url else self.ops / "errors"

    @property
    def tasks(self) -> ObjectRef:
        return ObjectRef.parse(self.defer_task_url) if self.defer_task_url else self.ops / "tasks"

    @property
    def staging(self) -> ObjectRef:
        return ObjectRef.parse(self.staging_url) if self.staging_url else self.ops / "staging"

    @property
    def batches(self) -> ObjectRef:
        return ObjectRef.parse(self.batch_url) if self.batch_url else self.ops / "batch"
