"""From parsed rows of many files to the staging table, with BigQuery's tolerance for bad records.

Rows of many small files travel together: a batch is converted as columns where the fast path vouches for it and row by
row where it does not, so ten thousand one-row files cost a handful of inserts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ingestd.formats.columns import Doubt, values_array
from ingestd.formats.problems import Tally
from ingestd.model.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 20_000
BATCH_TABLES = 500
FEW_ROWS = 16  # fewer are not worth a table


class Staging(Protocol):
    """Where rows are collected before they appear in their table."""

    def append_table(self, table: "pa.Table") -> None: ...

    def append_rows(self, rows: Sequence[Mapping[str, Any]]) -> None: ...


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file and the values its path gives to every row of it (hive keys, `_FILE_NAME`)."""

    uri: str
    constants: tuple[Any, ...] = ()


class BadRecordError(Exception):
    """A row that cannot be loaded; the message is BigQuery's."""


class Part(Protocol):
    """Consecutive parsed rows of one file."""

    file: SourceFile

    @property
    def rows(self) -> list[Any]: ...

    @property
    def bulky(self) -> bool:
        """Large enough to be worth a try with `Codec.bulk`, before its rows are parsed."""
        ...

    def locate(self, index: int) -> int:
        """The byte at which a row starts."""
        ...


class Codec(Protocol):
    """What a format knows about its rows."""

    label: str
    schema: Schema

    def bulk(self, part: Part) -> "pa.Table":
        """A whole part from its bytes, or `Doubt`."""
        ...

    def table(self, parts: Sequence[Part]) -> "pa.Table":
        """All rows at once, or `Doubt`."""
        ...

    def row(self, part: Part, index: int) -> dict[str, Any]:
        """One row, or `BadRecordError`."""
        ...


def with_constants(table: "pa.Table", constants: Schema, runs: Sequence[tuple[SourceFile, int]]) -> "pa.Table":
    """The table and, after its own columns, those that each file's path decides."""
    for position, item in enumerate(constants):
        values = [value for file, count in runs for value in [file.constants[position]] * count]
        table = table.append_column(item.name, values_array(item, values))
    return table


class TableWriter:
    """Collects the tables of small files and writes them together."""

    def __init__(self, staging: Staging, constants: Schema) -> None:
        self._staging = staging
        self._constants = constants
        self._tables: list[pa.Table] = []
        self._pending = 0

    def add(self, file: SourceFile, table: "pa.Table") -> None:
        self._tables.append(with_constants(table, self._constants, [(file, table.num_rows)]))
        self._pending += table.num_rows
        if self._pending >= BATCH_ROWS or len(self._tables) >= BATCH_TABLES:
            self.flush()

    def flush(self) -> None:
        if not self._tables:
            return
        import pyarrow as pa

        tables, self._tables, self._pending = self._tables, [], 0
        self._staging.append_table(pa.concat_tables(tables))


class RowLoader:
    """Collects parts into batches and writes them."""

    def __init__(self, staging: Staging, codec: Codec, constants: Schema, tally: Tally) -> None:
        self._staging = staging
        self._codec = codec
        self._constants = constants
        self._tally = tally
        self._parts: list[Part] = []
        self._pending = 0

    def add(self, part: Part) -> None:
        if part.bulky and self._add_bulk(part):
            return
        if not part.rows:
            return
        self._parts.append(part)
        self._pending += len(part.rows)
        if self._pending >= BATCH_ROWS:
            self.flush()

    def _add_bulk(self, part: Part) -> bool:
        try:
            table = self._codec.bulk(part)
        except Doubt:
            return False
        self.flush()
        self._tally.good(part.file.uri, table.num_rows)
        if not self._tally.failed:
            runs = [(part.file, table.num_rows)]
            self._staging.append_table(with_constants(table, self._constants, runs))
        return True

    def flush(self) -> None:
        parts, self._parts, self._pending = self._parts, [], 0
        if sum(len(part.rows) for part in parts) > FEW_ROWS:
            try:
                table = self._codec.table(parts)
            except Doubt:
                pass
            else:
                for part in parts:
                    self._tally.good(part.file.uri, len(part.rows))
                if not self._tally.failed:
                    runs = [(part.file, len(part.rows)) for part in parts]
                    self._staging.append_table(with_constants(table, self._constants, runs))
                return
        rows: list[dict[str, Any]] = []
        for part in parts:
            self._read_rows(part, rows)
        if not self._tally.failed:
            self._staging.append_rows(rows)

    def _read_rows(self, part: Part, into: list[dict[str, Any]]) -> None:
        uri = part.file.uri
        constants = {item.name: value for item, value in zip(self._constants, part.file.constants, strict=True)}
        for index in range(len(part.rows)):
            if self._tally.gave_up(uri) or self._tally.full:
                return
            try:
                row = self._codec.row(part, index)
            except BadRecordError as bad:
                self._tally.bad(uri, str(bad))
            else:
                into.append(row | constants if constants else row)
                self._tally.good(uri, 1)
