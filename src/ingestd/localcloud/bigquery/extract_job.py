"""Extract jobs: a table's rows out to files."""
# ruff: noqa: S608 - identifiers go through `quote`

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.localcloud.bigquery.destination import source_partition
from ingestd.localcloud.bigquery.duckdb_types import quote
from ingestd.localcloud.bigquery.execution import Outcome, Run, settle
from ingestd.localcloud.bigquery.files.extract import extract
from ingestd.localcloud.bigquery.resources import TableKind, TableRef, split_decorator


def uris_of(config: Mapping[str, Any]) -> list[str]:
    given = config.get("destinationUris") or ([config["destinationUri"]] if config.get("destinationUri") else [])
    return [str(uri) for uri in given]


def validate(config: Mapping[str, Any], project: str) -> None:
    """What jobs.insert refuses at once."""
    if config.get("sourceModel"):
        raise not_implemented("extracting models")
    if not config.get("sourceTable"):
        raise BigQueryError("required", "Required parameter is missing: sourceTable")
    TableRef.from_rest(config["sourceTable"], project)
    uris = uris_of(config)
    if not uris:
        raise BigQueryError("required", "Required parameter is missing: destinationUris")
    for uri in uris:
        if not uri.startswith("gs://"):
            raise BigQueryError(
                "invalid", f"Invalid extract destination URI '{uri}'. Must be a valid Google Storage path."
            )


def run(run: Run) -> None:
    config = run.job.details
    source = TableRef.from_rest(config["sourceTable"], run.job.key.project)
    name, decorator = split_decorator(source.table)
    table = run.catalog.table(replace(source, table=name))
    if table.kind not in (TableKind.TABLE, TableKind.SNAPSHOT):
        raise BigQueryError(
            "invalid", f"{table.ref} is not allowed for this operation because it is currently a {table.kind}."
        )
    columns = ", ".join(quote(item.name) for item in table.schema)
    relation = f"SELECT {columns} FROM {source_partition(table, decorator)}"
    settle(run.conn)
    outcome = extract(run.conn, run.objects, relation, table.schema, config, uris_of(config))
    with run.writing():
        run.finish(
            Outcome(
                {
                    "totalBytesProcessed": str(outcome.bytes),
                    "extract": {
                        "destinationUriFileCounts": [str(count) for count in outcome.file_counts],
                        "inputBytes": str(outcome.bytes),
                    },
                }
            )
        )
