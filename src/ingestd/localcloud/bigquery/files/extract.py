"""Write a relation to files, exactly as a BigQuery extract job would."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from ingestd.localcloud.bigquery.errors import not_implemented
from ingestd.localcloud.bigquery.files.objects import Objects
from ingestd.localcloud.bigquery.types import Schema


@dataclass(frozen=True, slots=True)
class ExtractOutcome:
    """`file_counts` has one entry per destination URI, as `destinationUriFileCounts` in the job's statistics."""

    file_counts: list[int]
    rows: int
    bytes: int


def extract(
    conn: duckdb.DuckDBPyConnection,
    objects: Objects,
    relation_sql: str,
    schema: Schema,
    config: Mapping[str, Any],
    uris: Sequence[str],
) -> ExtractOutcome:
    """Write what `relation_sql` (a SELECT, or a quoted table name) yields; `config` is a `JobConfigurationExtract`."""
    raise not_implemented("extract jobs yet")
