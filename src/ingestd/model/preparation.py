"""What a batch's preparation is asked for and what it answers: plain values between the batch and the engine.

The batch pins the files and says what shall become of their rows; a preparer (Spark, see `spark`) reads every file
once, sets bad ones aside, and leaves few well-sized files in the attempt's folder. Nothing of it counts before the
manifest is there: it is written last, and only files that it names are loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ingestd.model.objects import FileVersion, ObjectRef
from ingestd.model.schema import Schema
from ingestd.model.tables import TableName


class BadData(StrEnum):
    """What becomes of rows that do not fit the schema, and of the file they came in."""

    QUARANTINE_FILE = "quarantine file"  # not one row of a bad file is loaded
    QUARANTINE_ROWS = "quarantine rows"  # bad rows go to a file of their own, good rows are loaded
    FAIL = "fail"  # the batch fails


class Drift(StrEnum):
    """What becomes of columns that the data has and the destination has not."""

    EVOLVE = "evolve"  # the destination gets them (and relaxes what the data leaves out)
    FREEZE = "freeze"  # such a file does not fit the schema
    DISCARD_VALUE = "discard_value"  # the row is loaded without them
    DISCARD_ROW = "discard_row"  # the row is left out


DRIFT_REMEDY = (
    "add it to the table, or say what becomes of it: Schema.Drift: evolve adds it, discard_value leaves it out"
)
"""For messages about columns that the table has not."""


class Unmatched(StrEnum):
    """What becomes of rows that no mapping of a split takes."""

    KEEP = "keep"  # they go to the destination itself
    DROP = "drop"  # they are left out, and counted
    REFUSE = "refuse"  # the batch fails


@dataclass(frozen=True, slots=True)
class SideInput:
    """Rows joined to the batch: a table or a sub-select in GoogleSQL, under an alias that `on` refers to."""

    alias: str
    on: str  # GoogleSQL; the batch's own rows are called `Shaping.alias`
    table: TableName | None = None
    select: str = ""
    inner: bool = False


@dataclass(frozen=True, slots=True)
class Branch:
    """One mapping of a split: rows for which the condition holds (GoogleSQL over the shaped columns)."""

    condition: str


@dataclass(frozen=True, slots=True)
class Shaping:
    """What happens to the rows, in this order: join, transform, criteria, one row per key, split."""

    alias: str = "t"
    side_inputs: tuple[SideInput, ...] = ()
    transform: Mapping[str, str] = field(default_factory=dict)  # column → GoogleSQL over alias and side inputs
    criteria: str = ""  # GoogleSQL; only such rows are kept
    unique_columns: tuple[str, ...] = ()
    keep_keyless: bool = False  # rows with a NULL in their key are all kept: in an upsert it equals nothing
    order_by: tuple[str, ...] = ()  # GoogleSQL `expr [ASC|DESC]`: the first row per key wins; empty: the newest file
    branches: tuple[Branch, ...] = ()
    every_branch: bool = False  # a row goes to every branch it fits, not to the first alone
    unmatched: Unmatched = Unmatched.KEEP
    conditions: tuple[str, ...] = ()  # of an upsert that follows: columns they name come along, stored or not
    parameters: Mapping[str, Any] = field(default_factory=dict)  # named parameters (@name) of every expression

    @property
    def asked(self) -> bool:
        return bool(self.side_inputs or self.transform or self.criteria or self.unique_columns or self.branches)


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How prepared files are written."""

    target_size: int = 256 * 1024**2
    format: str = ""  # PARQUET unless the schema has what only text carries exactly
    compression: str = ""


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    batch: str  # event id
    attempt: int
    folder: ObjectRef  # `<StagingURL>/<batch>/<attempt>/`: everything the attempt writes
    files: tuple[FileVersion, ...]  # pinned, of one format
    load: Mapping[str, Any]  # BigQuery's JobConfigurationLoad: source format and how to read it
    schema: Schema  # the destination's columns; empty: detected from the data
    source_schema: Schema = ()  # the files' own columns where they differ; empty: the same
    shaping: Shaping = field(default_factory=Shaping)
    bad_data: BadData = BadData.QUARANTINE_FILE
    drift: Drift = Drift.FREEZE
    absent: Drift = Drift.DISCARD_VALUE  # of columns that are declared, or read for expressions, and not the table's
    layout: FileLayout = field(default_factory=FileLayout)
    table: str = ""  # the destination: preparers share what they have fairly among tables


@dataclass(frozen=True, slots=True)
class Output:
    """Prepared files of one target: branch number, or -1 for the destination itself."""

    branch: int
    uris: tuple[str, ...]
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file that is not loaded, or whose bad rows are not, and why; `index` is its place in the request."""

    index: int
    why: str
    schema: bool = False  # it can be read, but does not fit the schema
    line: int | None = None
    column: str = ""
    rows: int = 0  # bad rows found in it
    missing: bool = False  # it is gone or was overwritten: look again
    loaded: bool = False  # its good rows are loaded all the same


@dataclass(frozen=True, slots=True)
class Prepared:
    """The manifest: what one attempt made of the files."""

    attempt: int
    format: str  # of the prepared files, as BigQuery names it
    schema: Schema  # the columns of the prepared files, for a load job to name
    outputs: tuple[Output, ...]
    bad: tuple[BadFile, ...] = ()
    added: Schema = ()  # columns the destination has to get first (`Drift.EVOLVE`)
    relaxed: tuple[str, ...] = ()  # REQUIRED columns that have to become NULLABLE first
    rows_read: int = 0
    rows_left_out: Mapping[str, int] = field(default_factory=dict)  # duplicate, criteria, unmatched, bad, drift …
    rows_per_file: Mapping[int, int] = field(default_factory=dict)
    rejected: tuple[str, ...] = ()  # where bad rows went (`BadData.QUARANTINE_ROWS`)
    load_options: Mapping[str, Any] = field(default_factory=dict)  # what a load of the files needs besides
