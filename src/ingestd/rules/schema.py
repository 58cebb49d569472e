"""The rule file as typed models: every field of a bqtail rule, validated when it is read.

Contradictions are refused here, at load, with the line they stand on; nothing about a rule is found wrong only when a
file arrives.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ingestd.documents import Document, Many
from ingestd.model.preparation import BadData, Drift, FileLayout, Unmatched
from ingestd.model.quantities import ByteSize, Duration, TimeExpression
from ingestd.rules.actions import Action, AnyAction
from ingestd.rules.fields import AnyCase, Choice, Expression, NanosecondsOr, Pattern, TableText, compile_pattern
from ingestd.rules.functions import parse_expression, references_of
from ingestd.rules.load_options import LoadOptions, WriteDisposition
from ingestd.rules.references import Reference, find_references, group_index
from ingestd.rules.sql import IDENTIFIER_VARIABLES

AS_WRITTEN = "as written"
"""Said by whoever reads a rule from its file, and not by those who read what a batch has pinned of it."""
DEFAULT_WINDOW = timedelta(seconds=95)
DEFAULT_MAX_RELOAD = 15


class When(Document):
    """Which files the rule takes. Given conditions must all hold; the path starts with `/`."""

    prefix: str = ""
    suffix: str = ""
    filter: Pattern = ""
    exclusion: Pattern = ""
    directory: bool | None = None


class Parameter(Document):
    """A named value: `$1…` of `Pattern`, text and functions."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    expression: Expression


class CopyMethod(Choice):
    COPY = "COPY"
    QUERY = "QUERY"
    DML = "DML"


class BalancerStrategy(Choice):
    RAND = "rand"
    FALLBACK = "fallback"


class Balancer(Document):
    """Which project runs the jobs."""

    project_ids: Many[str] = Field((), alias="ProjectIDs")
    strategy: BalancerStrategy = BalancerStrategy.RAND
    max_load_jobs: int = Field(0, ge=0)


class Transient(Document):
    """Load into a temporary table first, then publish."""

    dataset: str = Field(min_length=1)
    project_id: str | None = None
    region: str | None = None
    alias: str = Field("t", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    template: TableText | None = None
    copy_method: CopyMethod | None = None
    criteria: str | None = None
    balancer: Balancer | None = None


class SplitMapping(Document):
    """Rows that satisfy `When` (SQL) go to table `Then`."""

    when: str = Field(min_length=1)
    then: TableText = Field(min_length=1)


class SplitMatch(Choice):
    FIRST = "first"
    ALL = "all"


class Split(Document):
    """Rows of one load spread over several tables.

    A row goes to every mapping it fits, and rows that fit none are left out and counted, unless `Match` and
    `Unmatched` say otherwise: that is what a bqtail rule means.
    """

    mapping: Many[SplitMapping] = Field(min_length=1)
    match: SplitMatch = SplitMatch.FIRST
    """Not given in a rule, it is `all` (see `complete`); the field's own default is what stored rules leave out."""
    unmatched: Annotated[Unmatched, AnyCase] = Unmatched.DROP
    cluster_columns: Many[str] = ()
    time_column: str = "ts"

    @classmethod
    def complete(cls, data: dict[str, Any]) -> dict[str, Any]:
        return data if "Match" in data or "match" in data else {**data, "Match": SplitMatch.ALL}


class SchemaOptions(Document):
    """Where the table's schema comes from, and what becomes of columns it does not have."""

    template: TableText | None = None
    autodetect: bool = False
    drift: Annotated[Drift, AnyCase] | None = None
    split: Split | None = None


class SideInput(Document):
    """A table or sub-select joined to the batch."""

    table: TableText | None = None
    from_: str | None = Field(None, alias="From")
    alias: str = Field(min_length=1)
    on: str = Field(min_length=1)
    inner: bool = False

    @model_validator(mode="after")
    def _names_its_rows(self) -> Self:
        if bool(self.table) == bool(self.from_):
            raise ValueError("give either Table or From")
        return self

    @property
    def reads_files(self) -> bool:
        """Whether its rows are files in a bucket, which Spark reads."""
        return bool(self.from_) and str(self.from_).strip().startswith("gs://")


class UpsertMode(Choice):
    UPSERT = "upsert"
    INSERT = "insert"  # only keys the destination has not
    UPDATE = "update"  # only keys the destination has


class Upsert(Document):
    """Rows find their place in the destination by key, instead of being added.

    A batch has one row per key by then (see `OrderBy`). In the conditions the batch's rows go by `Transient.Alias`
    and the destination's by `dest`.
    """

    keys: Many[str] = Field(min_length=1)
    mode: UpsertMode = UpsertMode.UPSERT
    update: Many[str] = ()
    """Columns that a matching row gets; all but the keys when none is named."""
    update_when: str | None = Field(None, min_length=1)
    delete_when: str | None = Field(None, min_length=1)

    @model_validator(mode="after")
    def _updates_something(self) -> Self:
        if both := {key.lower() for key in self.keys} & {column.lower() for column in self.update}:
            raise ValueError(f"{min(both)} is a key, and a key is never updated")
        if self.mode is UpsertMode.INSERT and (self.update or self.update_when):
            raise ValueError("Mode: insert updates nothing; leave Update and UpdateWhen out")
        return self


DESTINATION_ALIAS = "dest"
"""How an upsert's conditions call the destination's rows."""


class Dest(LoadOptions):
    """Where the rows go, and every option of the load job."""

    other_names: ClassVar[Mapping[str, str]] = {"TempDataset": "TransientDataset"}

    table: TableText = Field(min_length=1)
    partition: str | None = Field(None, min_length=1)
    pattern: Pattern | None = None
    parameters: Many[Parameter] = ()
    override: bool | None = None
    transient: Transient | None = None
    transient_dataset: str | None = None
    schema_options: SchemaOptions = Field(default_factory=SchemaOptions, alias="Schema")
    unique_columns: Many[str] = ()
    order_by: Many[str] = ()
    transform: dict[str, str] = Field(default_factory=dict)
    side_inputs: Many[SideInput] = ()
    merge: Upsert | None = None
    allow_field_addition: bool = False
    expiry: TimeExpression | None = None

    @classmethod
    def resolve_key(cls, key: str, value: Any) -> str | None:
        """`schema` with columns is BigQuery's table schema; any other `Schema` is the rule's own block."""
        if key.lower() == "schema":
            columns = isinstance(value, dict) and any(str(inner).lower() == "fields" for inner in value)
            return "schema" if key == "schema" and columns else "Schema"
        return super().resolve_key(key, value)

    @property
    def append(self) -> bool:
        """Whether a load adds to the destination instead of replacing it."""
        if self.override is not None:
            return not self.override
        return self.write_disposition in {None, WriteDisposition.WRITE_APPEND, WriteDisposition.WRITE_EMPTY}

    @property
    def transforms(self) -> bool:
        """Whether rows need preparation between file and table."""
        return bool(self.side_inputs or self.transform or self.schema_options.split or self.unique_columns)

    @property
    def shapes(self) -> bool:
        """Whether the rows of the table are not the files' own any more."""
        return bool(self.transforms or self.unique_keys or (self.staging and self.staging.criteria))

    @property
    def drift(self) -> Drift:
        """What becomes of columns that the data has and the destination has not."""
        if self.schema_options.drift is not None:
            return self.schema_options.drift
        if self.allow_field_addition:
            return Drift.EVOLVE
        return Drift.DISCARD_VALUE if self.ignore_unknown_values else Drift.FREEZE

    @property
    def alias(self) -> str:
        """How expressions call the batch's rows."""
        return self.staging.alias if self.staging else "t"

    @property
    def unique_keys(self) -> tuple[str, ...]:
        """The columns by which a batch has one row; an upsert needs that for its keys."""
        return self.unique_columns or (self.merge.keys if self.merge else ())

    @property
    def staging(self) -> Transient | None:
        """The transient block, whichever way it was written."""
        if self.transient or not self.transient_dataset:
            return self.transient
        return Transient(dataset=self.transient_dataset)

    @property
    def named_by_event(self) -> str:
        """The key whose name for the destination has `$EventID`, by itself or through a parameter; mostly none."""
        found = {"EventID"}
        for parameter in self.parameters:  # one of that name stands for it from there on
            used = references_of(parse_expression(parameter.expression))
            changing = any(reference.name in found for _, reference in used)
            found = found | {parameter.name} if changing else found - {parameter.name}
        texts = {"Table": self.table, "Partition": self.partition or ""}
        named = (key for key, text in texts.items() if any(one.name in found for one in find_references(text)))
        return next(named, "")

    @model_validator(mode="after")
    def _dispositions_agree(self) -> Self:
        truncating = {WriteDisposition.WRITE_TRUNCATE, WriteDisposition.WRITE_TRUNCATE_DATA}
        if self.override and self.write_disposition in {WriteDisposition.WRITE_APPEND, WriteDisposition.WRITE_EMPTY}:
            raise ValueError(f"Override: true contradicts WriteDisposition: {self.write_disposition}")
        if self.override is False and self.write_disposition in truncating:
            raise ValueError(f"Override: false contradicts WriteDisposition: {self.write_disposition}")
        return self

    @model_validator(mode="after")
    def _schema_sources_agree(self) -> Self:
        if self.schema_options.autodetect and self.autodetect is False:
            raise ValueError("Schema.Autodetect: true contradicts Autodetect: false")
        if self.schema_options.autodetect and self.table_schema:
            raise ValueError("Schema.Autodetect and 'schema' exclude each other; keep one")
        if self.schema_options.template and self.table_schema:
            raise ValueError("Schema.Template and 'schema' exclude each other; keep one")
        if self.schema_options.drift not in {None, Drift.EVOLVE} and self.allow_field_addition:
            raise ValueError(f"AllowFieldAddition: true contradicts Schema.Drift: {self.schema_options.drift}")
        if self.transient and self.transient_dataset not in {None, self.transient.dataset}:
            raise ValueError("TransientDataset contradicts Transient.Dataset; keep the latter")
        return self

    @model_validator(mode="after")
    def _upsert_has_its_way(self) -> Self:
        if self.merge is None:
            return self
        if self.override or not self.append:
            raise ValueError("Merge finds rows by key and Override replaces them all; keep one")
        if self.partition or _has_decorator(self.table):
            raise ValueError("Merge finds rows by key in whichever partition they are; leave Partition out")
        if self.staging and self.staging.copy_method not in {None, CopyMethod.DML}:
            raise ValueError(f"Merge is a DML statement and contradicts CopyMethod: {self.staging.copy_method}")
        if self.unique_columns and set(self.unique_columns) != set(self.merge.keys):
            raise ValueError("Merge needs one row per key: leave UniqueColumns out, or give the same columns")
        if self.alias.lower() == DESTINATION_ALIAS:
            raise ValueError("Merge calls the destination's rows 'dest'; give Transient another Alias")
        return self

    @model_validator(mode="after")
    def _order_has_a_use(self) -> Self:
        if self.order_by and not self.unique_keys:
            raise ValueError("OrderBy says which of several rows with one key is kept; give UniqueColumns or Merge")
        return self

    @model_validator(mode="after")
    def _aliases_differ(self) -> Self:
        aliases = [self.alias.lower(), *(side.alias.lower() for side in self.side_inputs)]
        if twice := next((name for index, name in enumerate(aliases) if name in aliases[:index]), None):
            raise ValueError(f"alias {twice!r} is used twice; the batch's own rows are called {self.alias!r}")
        return self

    @model_validator(mode="after")
    def _partition_named_once(self) -> Self:
        if self.partition and _has_decorator(self.table):
            raise ValueError("Table already ends in a partition ($…); give Partition or the decorator, not both")
        return self

    @model_validator(mode="after")
    def _groups_exist(self) -> Self:
        """`$4` needs a Pattern with four groups; names of parameters are unique."""
        count = compile_pattern(self.pattern).groups if self.pattern else 0
        texts = [("Table", self.table), ("Partition", self.partition or "")]
        if split := self.schema_options.split:
            texts += [("Split.Then", mapping.then) for mapping in split.mapping]
        used = [(where, reference) for where, text in texts for reference in find_references(text)]
        for parameter in self.parameters:
            template = parse_expression(parameter.expression)
            used += [(f"parameter {parameter.name}", reference) for _, reference in references_of(template)]
        for where, reference in used:
            if reference.modulus and not int(reference.modulus[:18]):
                raise ValueError(f"{where} uses $Mod(0); give at least 1")
            if _names_missing_group(reference, count):
                have = f"Pattern has {count} groups" if self.pattern else "there is no Pattern"
                raise ValueError(f"{where} uses {reference.label} but {have}")
        names = [parameter.name for parameter in self.parameters]
        if taken := IDENTIFIER_VARIABLES.intersection(names):
            # Those stand in SQL as trusted names; a value from a path must never pass for one.
            raise ValueError(f"a parameter cannot be called {min(taken)}: the daemon sets that variable itself")
        if len(set(names)) < len(names):
            raise ValueError("two Parameters have the same Name")
        return self


def _names_missing_group(reference: Reference, count: int) -> bool:
    return bool(
        reference.group
        and len(reference.group) <= 3
        and group_index(reference.group, count, braced=reference.braced) is None
    )


def _has_decorator(table: str) -> bool:
    return any(reference.group and len(reference.group) > 3 for reference in find_references(table))


LONGEST_WINDOW = 36_500 * 86_400  # any file's window ends at a date that can be written; `ingestd load` takes all of it


class Window(Document):
    """How long a batch collects files."""

    duration_in_sec: int | None = Field(None, ge=1, le=LONGEST_WINDOW)
    duration: Annotated[Duration, NanosecondsOr] | None = None

    @model_validator(mode="after")
    def _whole_seconds(self) -> Self:
        if self.duration is not None and (self.duration < timedelta(seconds=1) or self.duration.microseconds):
            raise ValueError("a window lasts whole seconds, at least one")
        if self.duration is not None and self.duration.total_seconds() > LONGEST_WINDOW:
            raise ValueError("a window lasts at most 36500 days")
        return self


class Group(Document):
    """Batches that finish together; `OnDone` runs once after all of them."""

    duration_in_sec: int = Field(0, ge=0, le=LONGEST_WINDOW)
    duration_ms: int | None = Field(None, ge=0)
    """bqtail's documentation calls it so: milliseconds, rounded up to whole seconds."""
    on_done: Many[AnyAction] = ()

    @classmethod
    def complete(cls, data: dict[str, Any]) -> dict[str, Any]:
        given = str(data.get("DurationMs", ""))
        if not given.isdigit() or "DurationInSec" in data:
            return data
        kept = {key: value for key, value in data.items() if key != "DurationMs"}
        return {**kept, "DurationInSec": -(-int(given) // 1000)}

    @model_validator(mode="after")
    def _one_duration(self) -> Self:
        if self.duration_ms is not None:
            raise ValueError("DurationMs and DurationInSec say the same; keep the latter")
        return self


class Batch(Document):
    """Load files together: until the window ends, or `MaxFiles` or `MaxBytes` is reached."""

    window: Window = Field(default_factory=Window)
    multi_path: bool = False
    roll_over: bool = False
    max_files: int | None = Field(None, ge=1)
    max_bytes: ByteSize | None = Field(None, ge=1)
    max_delay_in_sec: int = Field(0, ge=0)
    use_pattern_hash: bool = False
    group: Group | None = None

    @property
    def duration(self) -> timedelta:
        if self.window.duration_in_sec:
            return timedelta(seconds=self.window.duration_in_sec)
        return self.window.duration or DEFAULT_WINDOW

    @property
    def seconds(self) -> int:
        return max(1, int(self.duration.total_seconds()))


class Engine(Choice):
    SPARK = "spark"
    BIGQUERY = "bigquery"


class FileFormat(Choice):
    PARQUET = "PARQUET"
    NEWLINE_DELIMITED_JSON = "NEWLINE_DELIMITED_JSON"


class FileCompression(Choice):
    NONE = "NONE"
    SNAPPY = "SNAPPY"
    GZIP = "GZIP"
    ZSTD = "ZSTD"


_UNREADABLE = {
    FileFormat.NEWLINE_DELIMITED_JSON: {FileCompression.SNAPPY, FileCompression.ZSTD},
}
"""Compressions that BigQuery does not read in that format."""


class MergeFiles(Document):
    """How prepared files are written before the load."""

    target_file_size: ByteSize | None = Field(None, ge=1)
    format: FileFormat | None = None
    compression: FileCompression | None = None

    @model_validator(mode="after")
    def _readable(self) -> Self:
        if self.format and self.compression in _UNREADABLE.get(self.format, ()):
            raise ValueError(f"BigQuery does not read {self.format} files with {self.compression} compression")
        return self

    @property
    def layout(self) -> FileLayout:
        given = FileLayout(format=self.format or "", compression=self.compression or "")
        return replace(given, target_size=self.target_file_size) if self.target_file_size else given


class Info(Document):
    """Who owns the rule and what it is for."""

    workflow: str | None = None
    description: str | None = None
    project_url: str | None = None
    lead_engineer: str | None = None
    url: str | None = Field(None, alias="URL")


class RuleSpec(Document):
    """One rule as written."""

    other_names: ClassVar[Mapping[str, str]] = {"InvalidSchemaURLL": "InvalidSchemaURL"}

    when: When = Field(default_factory=When)
    dest: Dest
    disabled: bool = False
    async_: bool = Field(False, alias="Async")
    batch: Batch | None = None
    on_success: Many[AnyAction] = ()
    on_failure: Many[AnyAction] = ()
    on_blocked: Many[AnyAction] = ()
    on_load: AnyAction | None = None
    info: Info = Field(default_factory=Info)
    engine: Engine | None = None
    merge: MergeFiles | None = None
    stalled_threshold_in_sec: int = Field(0, ge=0)
    corrupted_file_url: str | None = Field(None, alias="CorruptedFileURL")
    invalid_schema_url: str | None = Field(None, alias="InvalidSchemaURL")
    counter_url: str | None = Field(None, alias="CounterURL")
    max_reload: int = Field(DEFAULT_MAX_RELOAD, ge=0)
    on_bad_data: Annotated[BadData, AnyCase] = BadData.QUARANTINE_FILE

    @field_validator("corrupted_file_url", "invalid_schema_url")
    @classmethod
    def _in_a_bucket(cls, value: str | None) -> str | None:
        if value and not value.startswith(("gs://", "$")):
            raise ValueError(f"bad files are put into a bucket: write gs://bucket/folder instead of {value!r}")
        return value

    @property
    def needs_spark(self) -> bool:
        """Whether it asks for what Spark alone can do, whatever the default."""
        files = any(side.reads_files for side in self.dest.side_inputs)
        by_row = self.on_bad_data is BadData.QUARANTINE_ROWS or self.dest.drift is Drift.DISCARD_ROW
        return files or by_row or self.merge is not None

    @property
    def layout(self) -> FileLayout:
        """How prepared files are written."""
        return self.merge.layout if self.merge else FileLayout()

    @field_validator("on_blocked")
    @classmethod
    def _files_stay(cls, actions: tuple[Any, ...]) -> tuple[Any, ...]:
        for action in (nested for one in actions for nested in one.nested()):
            if action.name in {"delete", "move"}:
                raise ValueError(f"{action.name} would take away files that are still to be loaded; use OnFailure")
        return actions

    @model_validator(mode="after")
    def _files_find_their_batch(self, info: ValidationInfo) -> Self:
        """`$EventID` is the file's until a window is chosen, by the table's name, and the batch's from then on.

        So no two files would share a window, and actions would look for a table that nobody makes. What an earlier
        version has pinned of such a rule ends as it began.
        """
        key = self.dest.named_by_event if self.batch and info.context == AS_WRITTEN else ""
        if key:
            raise ValueError(
                f"Dest.{key} has $EventID, which is another one for each file, so that Batch would put no two files "
                "together, and actions would look for a table of the batch's own id. Leave Batch out for a table per "
                "file; name the table by $Date, $Hour or $GroupID; or use Transient, and $TempTable for a table per "
                "batch"
            )
        return self

    @model_validator(mode="after")
    def _engine_can_do_it(self) -> Self:
        if self.engine is not Engine.BIGQUERY:
            return self
        if self.merge is not None:
            raise ValueError("Merge writes files, which Engine: bigquery does not do; keep one")
        if self.on_bad_data is BadData.QUARANTINE_ROWS:
            raise ValueError("OnBadData: quarantine rows looks at every row before the load; it needs Engine: spark")
        if self.dest.drift is Drift.DISCARD_ROW:
            raise ValueError("Schema.Drift: discard_row looks at every row before the load; it needs Engine: spark")
        for side in self.dest.side_inputs:
            if side.reads_files:
                raise ValueError(
                    f"the side input {side.alias} reads files ({side.from_}), which needs Engine: spark; for BigQuery "
                    "make an external table of them (CREATE EXTERNAL TABLE), and name it as its Table"
                )
        return self

    def actions(self) -> list[tuple[str, Action]]:
        """Every action of the rule, nested ones included, with the list it stands in."""
        lists: list[tuple[str, tuple[Any, ...]]] = [
            ("OnSuccess", self.on_success),
            ("OnFailure", self.on_failure),
            ("OnBlocked", self.on_blocked),
        ]
        if self.batch and self.batch.group:
            lists.append(("Batch.Group.OnDone", self.batch.group.on_done))
        return [(where, nested) for where, actions in lists for action in actions for nested in action.nested()]
