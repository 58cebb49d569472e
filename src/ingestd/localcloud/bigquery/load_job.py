"""Load jobs: read the files, then write the rows, all or nothing."""

from collections.abc import Mapping
from typing import Any

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.formats.options import LoadOptions, SourceFormat
from ingestd.formats.schemas import schema_from_rest
from ingestd.localcloud.bigquery.destination import Destination, Staged, WriteDisposition, write_to
from ingestd.localcloud.bigquery.execution import Outcome, Run
from ingestd.localcloud.bigquery.files.load import LoadOutcome, load_files
from ingestd.localcloud.bigquery.files.objects import check_source_uri
from ingestd.localcloud.bigquery.quota import check_load_bytes, check_load_limits
from ingestd.localcloud.bigquery.resources import Table
from ingestd.localcloud.bigquery.sizes import logical_bytes, measure
from ingestd.model.schema import Schema

_STAGING = "__load_staging"
_TEXT_FORMATS = (SourceFormat.CSV, SourceFormat.JSON)
_MAX_ATTEMPTS = 5


def validate(load: Mapping[str, Any], project: str, *, uploaded: bool) -> None:
    """What jobs.insert refuses at once."""
    if not load.get("sourceUris") and not uploaded:
        raise BigQueryError("required", "Required parameter is missing: sourceUris")
    for uri in load.get("sourceUris") or ():
        check_source_uri(uri)
    for feature in ("destinationEncryptionConfiguration", "createSession"):
        if load.get(feature):
            raise not_implemented(f"load.{feature}")
    check_load_limits(load)
    Destination.from_rest(load, project, WriteDisposition.APPEND)
    LoadOptions.from_rest(load)
    schema_from_rest(load.get("schema"))


def run(run: Run) -> None:
    load = run.job.details
    destination = Destination.from_rest(load, run.job.key.project, WriteDisposition.APPEND)
    options = LoadOptions.from_rest(load)
    declared = schema_from_rest(load.get("schema"))
    uris = [run.job.upload] if run.job.upload else [str(uri) for uri in load["sourceUris"]]
    for _ in range(_MAX_ATTEMPTS):
        generation = run.data_lock.generation
        before = run.catalog.find_table(destination.ref)
        if before is None:
            run.catalog.dataset(destination.ref.project, destination.ref.dataset)
        schema = declared or _schema_of_destination(before, destination, options)
        outcome = load_files(
            run.conn, run.objects, options, uris, schema, _STAGING, inline=True, check_bytes=check_load_bytes
        )
        run.check_cancelled()
        with run.writing() as catalog:
            # The files were read for the schema the table had; another job may have changed it meanwhile.
            unchanged = run.data_lock.generation == generation
            after = before if unchanged else catalog.find_table(destination.ref)
            if (after.schema if after else None) == (before.schema if before else None):
                run.quotas.check_table(
                    run.conn, destination.ref, partitioned=bool(after and after.partitioned), daily=True
                )
                staged = _staged(outcome, declared=bool(declared))
                written = write_to(catalog, destination, staged, after)
                run.quotas.record(run.conn, destination.ref, daily=True)
                run.finish(Outcome(_statistics(run, outcome, written.rows), outcome.errors))
                return
        run.conn.execute(f"DROP TABLE IF EXISTS {_STAGING}")
    raise BigQueryError("backendError", f"The schema of {destination.ref} kept changing while the load was running")


def _staged(outcome: LoadOutcome, *, declared: bool) -> Staged:
    if outcome.inline is None:
        return Staged(_STAGING, outcome.schema, declared=declared)
    return Staged(outcome.inline.relation, outcome.schema, declared=declared, values=outcome.inline.values)


def _schema_of_destination(table: Table | None, destination: Destination, options: LoadOptions) -> Schema | None:
    """The table's own schema, for files that bring none and a job that names none."""
    if table is None or not table.schema or options.source_format not in _TEXT_FORMATS or options.autodetect:
        return None
    return table.schema


def _statistics(run: Run, outcome: LoadOutcome, rows: int) -> dict[str, Any]:
    if outcome.inline is not None:
        size = logical_bytes(outcome.inline.rows, outcome.schema)
    else:
        _, size = measure(run.conn, _STAGING, outcome.schema)
    return {
        "load": {
            "inputFiles": str(outcome.input_files),
            "inputFileBytes": str(outcome.input_bytes),
            "outputRows": str(rows),
            "outputBytes": str(size),
            "badRecords": str(outcome.bad_records),
        }
    }
