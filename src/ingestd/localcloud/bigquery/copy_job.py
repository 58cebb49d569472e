"""Copy jobs: tables or partitions into one table, and the snapshots, clones and restores that are copies here too."""
# ruff: noqa: S608 - identifiers go through `quote`

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.localcloud.bigquery.catalog import Catalog
from ingestd.localcloud.bigquery.destination import (
    Destination,
    Staged,
    WriteDisposition,
    Written,
    source_partition,
    write,
)
from ingestd.localcloud.bigquery.duckdb_types import column_type, quote
from ingestd.localcloud.bigquery.execution import Outcome, Run
from ingestd.localcloud.bigquery.quota import check_copy_sources
from ingestd.localcloud.bigquery.resources import PARTITION_TIME, Table, TableKind, TableRef, split_decorator


class Operation(StrEnum):
    COPY = "COPY"
    SNAPSHOT = "SNAPSHOT"
    RESTORE = "RESTORE"
    CLONE = "CLONE"


def sources_of(copy: Mapping[str, Any], project: str) -> list[TableRef]:
    given = copy.get("sourceTables") or ([copy["sourceTable"]] if copy.get("sourceTable") else [])
    if not given:
        raise BigQueryError("required", "Required parameter is missing: sourceTable")
    return [TableRef.from_rest(item, project) for item in given]


def operation_of(copy: Mapping[str, Any]) -> Operation:
    value = str(copy.get("operationType") or "COPY")
    if value == "OPERATION_TYPE_UNSPECIFIED":
        return Operation.COPY
    if value not in Operation.__members__:
        raise BigQueryError("invalid", f"Invalid value for operationType: {value} is not a valid value")
    return Operation(value)


def validate(copy: Mapping[str, Any], project: str) -> None:
    """What jobs.insert refuses at once."""
    sources = sources_of(copy, project)
    check_copy_sources(len(sources))
    if copy.get("destinationEncryptionConfiguration"):
        raise not_implemented("copy.destinationEncryptionConfiguration")
    if any("@" in source.table for source in sources):
        raise not_implemented("time travel decorators in copy jobs")
    operation = operation_of(copy)
    if operation is not Operation.COPY and len(sources) > 1:
        raise BigQueryError("invalid", f"Only one source table is allowed for {operation} jobs")
    Destination.from_rest(copy, project, WriteDisposition.EMPTY)


def run(run: Run) -> None:
    copy = run.job.details
    project = run.job.key.project
    operation = operation_of(copy)
    destination = Destination.from_rest(copy, project, WriteDisposition.EMPTY)
    if expires := copy.get("destinationExpirationTime"):
        destination = replace(destination, expiration=datetime.fromisoformat(str(expires)))
    with run.writing() as catalog:
        existing = catalog.find_table(destination.ref)
        run.quotas.check_table(
            run.conn, destination.ref, partitioned=bool(existing and existing.partitioned), daily=True
        )
        tables = _read_sources(catalog, sources_of(copy, project), operation)
        if operation is Operation.SNAPSHOT:
            rows = _snapshot(catalog, tables[0][0], destination)
        else:
            rows = _copy(catalog, tables, destination).rows
        run.quotas.record(run.conn, destination.ref, daily=True)
        run.finish(Outcome({"copy": {"copiedRows": str(rows), "copiedLogicalBytes": "0"}}))


def _read_sources(
    catalog: Catalog, sources: Sequence[TableRef], operation: Operation
) -> list[tuple[Table, str | None]]:
    tables = []
    for source in sources:
        name, decorator = split_decorator(source.table)
        table = catalog.table(replace(source, table=name))
        allowed = {TableKind.SNAPSHOT} if operation is Operation.RESTORE else {TableKind.TABLE, TableKind.SNAPSHOT}
        if table.kind not in allowed:
            raise BigQueryError(
                "invalid",
                f"Using table {table.ref} is not allowed for this operation because of its type. Try using a different "
                f"table that is of type {'SNAPSHOT' if operation is Operation.RESTORE else 'TABLE'}.",
            )
        tables.append((table, decorator))
    return tables


def _copy(catalog: Catalog, tables: Sequence[tuple[Table, str | None]], destination: Destination) -> Written:
    first = tables[0][0]
    target = catalog.find_table(destination.ref)
    if target is None and destination.decorator is None and any(decorator is None for _, decorator in tables):
        # A new table takes over everything about the first source that describes its rows.
        destination = replace(
            destination,
            time_partitioning=first.time_partitioning,
            range_partitioning=first.range_partitioning,
            clustering=first.clustering,
            labels=first.labels,
            description=first.description,
            friendly_name=first.friendly_name,
        )
    for table, _ in tables[1:]:
        if [(item.name, column_type(item)) for item in table.schema] != [
            (item.name, column_type(item)) for item in first.schema
        ]:
            raise BigQueryError("invalid", f"Provided Schema does not match Table {table.ref}.")
    keep_time = all(table.by_ingestion_time for table, _ in tables)
    columns = [quote(item.name) for item in first.schema]
    if keep_time:
        columns.append(quote(PARTITION_TIME))
    parts = [f"SELECT {', '.join(columns)} FROM {source_partition(table, decorator)}" for table, decorator in tables]
    # Staged apart: a table may be copied onto itself.
    catalog.conn.execute(f"CREATE TEMP TABLE __copy_staging AS {' UNION ALL '.join(parts)}")
    staged = Staged("__copy_staging", first.schema, has_partition_time=keep_time)
    return write(catalog, destination, staged)


def _snapshot(catalog: Catalog, source: Table, destination: Destination) -> int:
    if source.kind is TableKind.SNAPSHOT:
        raise BigQueryError("invalid", f"Cannot take a snapshot of the snapshot {source.ref}")
    now = catalog.clock.now()
    definition = {
        "baseTableReference": source.ref.rest(),
        "snapshotTime": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    table = catalog.create_table(
        replace(
            source,
            ref=destination.ref,
            kind=TableKind.SNAPSHOT,
            expiration=destination.expiration,
            extra={**source.extra, "snapshotDefinition": definition},
        )
    )
    columns = [quote(item.name) for item in source.schema]
    if source.by_ingestion_time:
        columns.append(quote(PARTITION_TIME))
    names = ", ".join(columns)
    catalog.conn.execute(f"INSERT INTO {table.ref.physical} ({names}) SELECT {names} FROM {source.ref.physical}")
    return catalog.count_rows(table)
