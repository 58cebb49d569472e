"""Load files into a DuckDB temp table, exactly as a BigQuery load job would read them."""

from dataclasses import dataclass, field

import duckdb

from ingestd.localcloud.bigquery.errors import ErrorProto, not_implemented
from ingestd.localcloud.bigquery.files.objects import Objects
from ingestd.localcloud.bigquery.files.options import LoadOptions
from ingestd.localcloud.bigquery.types import Schema


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """What a load read. `errors` are the bad records that `maxBadRecords` tolerated."""

    schema: Schema
    rows: int
    bad_records: int
    errors: tuple[ErrorProto, ...] = field(default=())
    input_files: int = 0
    input_bytes: int = 0


def load_files(
    conn: duckdb.DuckDBPyConnection,
    objects: Objects,
    options: LoadOptions,
    uris: list[str],
    schema: Schema | None,
    staging: str,
) -> LoadOutcome:
    """Read every file into the temp table `staging`, whose columns are typed as `Field.duckdb` says.

    The table exists when this returns; when it raises, nothing is left behind. The error's `details` are the entries of
    `errors[]` that follow the error itself.
    """
    raise not_implemented("load jobs yet")
