"""External tables: the files behind an `ExternalDataConfiguration` as a DuckDB temp table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from ingestd.localcloud.bigquery.errors import not_implemented
from ingestd.localcloud.bigquery.files.objects import Objects
from ingestd.localcloud.bigquery.types import Schema

FILE_NAME = "_FILE_NAME"


@dataclass(frozen=True, slots=True)
class ExternalTable:
    """`relation` is the quoted temp table; it has `schema`'s columns and, last, the hidden `_FILE_NAME`."""

    relation: str
    schema: Schema


def attach_external(
    conn: duckdb.DuckDBPyConnection,
    objects: Objects,
    name: str,
    config: Mapping[str, Any],
    schema: Schema | None = None,
) -> ExternalTable:
    """Read the files of an external definition into the temp table `name`."""
    raise not_implemented("external tables yet")
