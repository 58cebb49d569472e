"""Rows of `tabledata.insertAll`: the JSON converter of NDJSON loads, with errors per row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from ingestd.formats.convert import BadValueError, Fault, JsonRules, row_reader
from ingestd.formats.errors import ErrorProto
from ingestd.formats.problems import streamed_value_text
from ingestd.localcloud.bigquery.files.staging import Staging
from ingestd.model.schema import Schema


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
    rules = JsonRules(ignore_unknown=ignore_unknown_values, exact=False, json_as_text=True)
    read = row_reader(schema, rules)
    good: list[dict[str, Any]] = []
    errors: dict[int, tuple[ErrorProto, ...]] = {}
    for index, row in enumerate(rows):
        try:
            good.append(read(row if type(row) is dict else dict(row)))
        except BadValueError as bad:
            location = "" if bad.fault is Fault.MISSING else bad.path
            errors[index] = (ErrorProto("invalid", streamed_value_text(bad), location),)
    if errors and not skip_invalid_rows:
        good = []
        for index in range(len(rows)):
            errors.setdefault(index, (ErrorProto("stopped", ""),))
    with Staging(conn, staging, schema).open() as table:
        table.append_rows(good)
    return InsertOutcome(len(good), dict(sorted(errors.items())))
