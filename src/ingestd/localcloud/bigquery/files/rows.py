"""Rows of `tabledata.insertAll`: the JSON converter of NDJSON loads, with errors per row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from ingestd.localcloud.bigquery.errors import ErrorProto, not_implemented
from ingestd.localcloud.bigquery.types import Schema


@dataclass(frozen=True, slots=True)
class InsertOutcome:
    """`errors` maps a row's index to its errors; rows not named there are in the staging table, in order."""

    rows: int
    errors: dict[int, tuple[ErrorProto, ...]] = field(default_factory=dict)


def insert_rows(
    conn: duckdb.DuckDBPyConnection,
    schema: Schema,
    rows: Sequence[Mapping[str, Any]],
    staging: str,
    *,
    skip_invalid_rows: bool = False,
    ignore_unknown_values: bool = False,
) -> InsertOutcome:
    """Convert JSON rows into the temp table `staging`.

    Without `skip_invalid_rows`, one bad row stops them all: the good ones are answered with reason `stopped`.
    """
    raise not_implemented("insertAll yet")
