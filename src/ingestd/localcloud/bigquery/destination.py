"""Writing rows to a destination table: dispositions, decorators, schema updates, partition rules.

Load, copy and query jobs stage their rows first and end here, inside the transaction that also marks the job DONE: a
refused write leaves the table as it was.
"""
# ruff: noqa: S608 - identifiers go through `quote`, values are bound

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

import duckdb

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery.catalog import (
    NULL_PARTITION,
    UNPARTITIONED,
    Catalog,
    partition_expression,
    partition_time,
)
from ingestd.localcloud.bigquery.duckdb_types import column_type, quote
from ingestd.localcloud.bigquery.evolution import check_change, merge
from ingestd.localcloud.bigquery.resources import (
    PARTITION_TIME,
    Granularity,
    RangePartitioning,
    Table,
    TableKind,
    TableRef,
    TimePartitioning,
    split_decorator,
)
from ingestd.model.schema import Field, Mode, Schema, by_name

MAX_PARTITIONS = 4_000


class WriteDisposition(StrEnum):
    EMPTY = "WRITE_EMPTY"
    APPEND = "WRITE_APPEND"
    TRUNCATE = "WRITE_TRUNCATE"
    TRUNCATE_DATA = "WRITE_TRUNCATE_DATA"  # the rows are replaced, the schema stays

    @property
    def truncates(self) -> bool:
        return self in (WriteDisposition.TRUNCATE, WriteDisposition.TRUNCATE_DATA)


class CreateDisposition(StrEnum):
    IF_NEEDED = "CREATE_IF_NEEDED"
    NEVER = "CREATE_NEVER"


class SchemaUpdate(StrEnum):
    ADDITION = "ALLOW_FIELD_ADDITION"
    RELAXATION = "ALLOW_FIELD_RELAXATION"


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a job writes and under which conditions."""

    ref: TableRef
    decorator: str | None = None
    write: WriteDisposition = WriteDisposition.APPEND
    create: CreateDisposition = CreateDisposition.IF_NEEDED
    updates: frozenset[SchemaUpdate] = frozenset()
    time_partitioning: TimePartitioning | None = None
    range_partitioning: RangePartitioning | None = None
    clustering: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    friendly_name: str = ""
    expiration: datetime | None = None

    @classmethod
    def from_rest(
        cls, config: Mapping[str, Any], project: str, default_write: WriteDisposition, *, key: str = "destinationTable"
    ) -> "Destination":
        """Read the destination of a load, copy or query configuration; contradictions are refused."""
        target = config.get(key)
        if not isinstance(target, Mapping):
            raise BigQueryError("required", "Required parameter is missing: destinationTable")
        ref = TableRef.from_rest(target, project)
        name, decorator = split_decorator(ref.table)
        write = _member(WriteDisposition, config.get("writeDisposition"), default_write, "writeDisposition")
        updates = frozenset(
            _member(SchemaUpdate, item, SchemaUpdate.ADDITION, "schemaUpdateOptions")
            for item in config.get("schemaUpdateOptions") or ()
        )
        truncates_partition = write is WriteDisposition.TRUNCATE and decorator is not None
        if updates and write is not WriteDisposition.APPEND and not truncates_partition:
            raise BigQueryError(
                "invalid",
                "Schema update options should only be specified with WRITE_APPEND disposition, or with WRITE_TRUNCATE "
                "disposition on a table partition.",
            )
        time, ranges = config.get("timePartitioning"), config.get("rangePartitioning")
        properties = config.get("destinationTableProperties") or {}
        return cls(
            ref=replace(ref, table=name),
            decorator=decorator,
            write=write,
            create=_member(
                CreateDisposition, config.get("createDisposition"), CreateDisposition.IF_NEEDED, "createDisposition"
            ),
            updates=updates,
            time_partitioning=TimePartitioning.from_rest(time) if time else None,
            range_partitioning=RangePartitioning.from_rest(ranges) if ranges else None,
            clustering=tuple((config.get("clustering") or {}).get("fields") or ()),
            labels=dict(properties.get("labels") or {}),
            description=str(properties.get("description") or ""),
            friendly_name=str(properties.get("friendlyName") or ""),
        )

    def __str__(self) -> str:
        return f"{self.ref}${self.decorator}" if self.decorator is not None else str(self.ref)


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows ready to be written: `relation` goes after FROM and has `schema`'s columns by name.

    `declared` says that a user named this schema, which is then held against the table's in both directions; a schema
    read off a file may be stricter than the table. `computed` says that a query made the rows: its columns have no mode
    of their own, so that they fit REQUIRED ones for as long as no value is NULL. `has_partition_time` adds
    `_PARTITIONTIME` to the columns. `values` are bound where `relation` stands.
    """

    relation: str
    schema: Schema
    declared: bool = True
    computed: bool = False
    has_partition_time: bool = False
    values: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Written:
    table: Table
    rows: int
    created: bool


def write(catalog: Catalog, destination: Destination, staged: Staged) -> Written:
    """Apply staged rows to the destination in the catalog's transaction."""
    return write_to(catalog, destination, staged, catalog.find_table(destination.ref))


def write_to(catalog: Catalog, destination: Destination, staged: Staged, existing: Table | None) -> Written:
    """`write` for a caller that has read the table in this transaction already."""
    table = (
        _create(catalog, destination, staged) if existing is None else _prepare(catalog, destination, staged, existing)
    )
    _check_partitions(catalog, destination, staged, table)
    rows = _insert(catalog, destination, staged, table)
    return Written(catalog.update_table(table), rows, existing is None)


def _create(catalog: Catalog, destination: Destination, staged: Staged) -> Table:
    catalog.dataset(destination.ref.project, destination.ref.dataset)
    if destination.create is CreateDisposition.NEVER:
        raise BigQueryError("notFound", f"Not found: Table {destination.ref}")
    if not staged.schema:
        raise BigQueryError("invalid", "No schema specified on job or table.")
    time = destination.time_partitioning
    if destination.decorator is not None and time is None and destination.range_partitioning is None:
        time = TimePartitioning(_granularity(destination))
    now = catalog.clock.now()
    return catalog.create_table(
        Table(
            ref=destination.ref,
            schema=staged.schema,
            created=now,
            modified=now,
            time_partitioning=time,
            range_partitioning=destination.range_partitioning,
            clustering=destination.clustering,
            labels=destination.labels,
            description=destination.description,
            friendly_name=destination.friendly_name,
            expiration=destination.expiration,
        )
    )


def _granularity(destination: Destination) -> Granularity:
    by_length = {4: Granularity.YEAR, 6: Granularity.MONTH, 8: Granularity.DAY, 10: Granularity.HOUR}
    found = by_length.get(len(destination.decorator or ""))
    if found is None:
        raise BigQueryError("invalid", f"Invalid partition decorator in {destination}")
    return found


def _prepare(catalog: Catalog, destination: Destination, staged: Staged, table: Table) -> Table:
    """Make room in an existing table and bring its schema up to date."""
    refuse_unless_writable(table)
    _check_specification(destination, table)
    if destination.decorator is not None and not table.partitioned:
        raise BigQueryError(
            "invalid", f"Table {table.ref} is not partitioned: the decorator ${destination.decorator} cannot be used"
        )
    if destination.write is WriteDisposition.EMPTY and _has_rows(catalog, destination, table):
        raise BigQueryError("duplicate", f"Already Exists: Table {destination}")
    if destination.write is WriteDisposition.TRUNCATE and destination.decorator is None:
        return _replace(catalog, destination, staged, table)
    if destination.write.truncates:
        condition = f" WHERE {_in_partition(table, destination.decorator)}" if destination.decorator is not None else ""
        catalog.conn.execute(f"DELETE FROM {table.ref.physical}{condition}")
    return _evolve(catalog, destination, staged, table)


def refuse_unless_writable(table: Table) -> None:
    if table.kind is not TableKind.TABLE:
        raise BigQueryError(
            "invalid",
            f"{table.ref} is not allowed for this operation because it is currently a {table.kind}.",
        )


def _check_specification(destination: Destination, table: Table) -> None:
    """A job may repeat the table's partitioning and clustering; it may not change them."""
    time, ranges = destination.time_partitioning, destination.range_partitioning
    if time is None and ranges is None:
        given_clustering_alone = destination.clustering
        if given_clustering_alone and given_clustering_alone != table.clustering and not destination.write.truncates:
            raise BigQueryError(
                "invalid",
                f"Incompatible table clustering specification. Expects clustering on ({','.join(table.clustering)}), "
                f"but input clustering is ({','.join(destination.clustering)})",
            )
        return
    expected, given = _specification(table.time_partitioning, table.range_partitioning), _specification(time, ranges)
    if expected != given:
        raise BigQueryError(
            "invalid",
            "Incompatible table partitioning specification. Expects partitioning specification "
            f"{expected}, but input partitioning specification is {given}",
        )


def _specification(time: TimePartitioning | None, ranges: RangePartitioning | None) -> str:
    if time:
        by_field = f",field:{time.field}" if time.field else ""
        return f"interval(type:{time.type.value.lower()}{by_field})"
    if ranges:
        return f"range(field:{ranges.field},start:{ranges.start},end:{ranges.end},interval:{ranges.interval})"
    return "none"


def _has_rows(catalog: Catalog, destination: Destination, table: Table) -> bool:
    condition = f" WHERE {_in_partition(table, destination.decorator)}" if destination.decorator is not None else ""
    return catalog.conn.execute(f"SELECT 1 FROM {table.ref.physical}{condition} LIMIT 1").fetchone() is not None


def _replace(catalog: Catalog, destination: Destination, staged: Staged, table: Table) -> Table:
    """WRITE_TRUNCATE of a whole table: rows and schema are replaced, labels and partitioning stay."""
    if not staged.schema or _same_columns(staged.schema, table.schema):
        catalog.conn.execute(f"TRUNCATE {table.ref.physical}")
        return table
    catalog.drop_table(table.ref)
    changed = replace(table, schema=staged.schema, clustering=destination.clustering or table.clustering)
    return catalog.update_table(replace(catalog.create_table(changed), created=table.created))


def _same_columns(left: Schema, right: Schema) -> bool:
    return [(item.name, column_type(item), item.mode) for item in left] == [
        (item.name, column_type(item), item.mode) for item in right
    ]


def _evolve(catalog: Catalog, destination: Destination, staged: Staged, table: Table) -> Table:
    """Hold the staged schema against the table's; apply the updates the job allows."""
    if not staged.schema:
        return table
    if not table.schema:
        return catalog.alter_schema(table.ref, staged.schema)
    given = by_name(staged.schema)
    # A column the job does not bring is NULL in its rows, so only a REQUIRED one is missed.
    expected = tuple(item for item in table.schema if item.key in given or item.required)
    offered = staged.schema if staged.declared else _loosened(staged.schema, table.schema)
    if staged.computed and SchemaUpdate.RELAXATION not in destination.updates:
        offered = _held_to(table.schema, offered)
    check_change(
        table.ref,
        _with_nested(expected, given),
        offered,
        add=SchemaUpdate.ADDITION in destination.updates,
        relax=SchemaUpdate.RELAXATION in destination.updates,
    )
    merged = merge(table.schema, offered)
    if _same_columns(merged, table.schema):
        return table
    return catalog.alter_schema(table.ref, merged)


def _with_nested(expected: Schema, given: Mapping[str, Field]) -> Schema:
    """Nested members the job does not bring are NULL too."""
    kept = []
    for item in expected:
        other = given.get(item.key)
        if item.fields and other is not None and other.fields:
            inner = by_name(other.fields)
            members = tuple(member for member in item.fields if member.key in inner or member.required)
            kept.append(replace(item, fields=_with_nested(members, inner)))
        else:
            kept.append(item)
    return tuple(kept)


def _loosened(schema: Schema, table: Schema) -> Schema:
    """A file's REQUIRED columns fit NULLABLE ones of the table."""
    known = by_name(table)
    loosened = []
    for item in schema:
        other = known.get(item.key)
        mode = item.mode
        if mode is Mode.REQUIRED and (other is None or other.mode is Mode.NULLABLE):
            mode = Mode.NULLABLE
        members = _loosened(item.fields, other.fields if other else ())
        loosened.append(replace(item, mode=mode, fields=members))
    return tuple(loosened)


def _held_to(table: Schema, schema: Schema) -> Schema:
    """The columns with the table's REQUIRED: whether their values keep to it shows when they are written."""
    known = by_name(table)
    held = []
    for item in schema:
        other = known.get(item.key)
        if other is not None:
            required = (item.mode, other.mode) == (Mode.NULLABLE, Mode.REQUIRED)
            item = replace(item, mode=other.mode if required else item.mode, fields=_held_to(other.fields, item.fields))
        held.append(item)
    return tuple(held)


def _check_partitions(catalog: Catalog, destination: Destination, staged: Staged, table: Table) -> None:
    expression = partition_expression(table)
    if expression is None:
        return
    if destination.decorator is not None:
        _check_decorator(table, destination.decorator)
    if table.by_ingestion_time:
        if not staged.has_partition_time:
            return
    elif not any(item.key == (table.partition_column or "").lower() for item in staged.schema):
        return
    if destination.decorator is not None and not table.by_ingestion_time:
        stray = catalog.conn.execute(
            f"SELECT 1 FROM {staged.relation} WHERE {expression} <> ? LIMIT 1",
            [*staged.values, destination.decorator],
        ).fetchone()
        if stray is not None:
            raise BigQueryError(
                "invalid",
                f"Some rows belong to different partitions rather than destination partition {destination.decorator}",
            )
        return
    row = catalog.conn.execute(
        f"SELECT count(DISTINCT {expression}) FROM {staged.relation}", list(staged.values)
    ).fetchone()
    assert row is not None
    if row[0] > MAX_PARTITIONS:
        raise BigQueryError(
            "invalid",
            f"Too many partitions produced by query, allowed {MAX_PARTITIONS}, query produces at least {row[0]} "
            "partitions",
        )


def _check_decorator(table: Table, decorator: str) -> None:
    if table.time_partitioning:
        partition_time(table, decorator)
        return
    spec = table.range_partitioning
    assert spec is not None
    if decorator in (NULL_PARTITION, UNPARTITIONED):
        return
    fits = decorator.lstrip("-").isdigit() and spec.start <= int(decorator) < spec.end
    if not fits or (int(decorator) - spec.start) % spec.interval:
        raise BigQueryError("invalid", f"Invalid partition decorator ${decorator} for table {table.ref}")


def _in_partition(table: Table, decorator: str | None) -> str:
    assert decorator is not None
    _check_decorator(table, decorator)
    return partition_filter(table, decorator)


def partition_filter(table: Table, decorator: str) -> str:
    """DuckDB predicate for the rows of one partition; the decorator has been checked against the table."""
    escaped = decorator.replace("'", "''")
    return f"{partition_expression(table)} = '{escaped}'"


def source_partition(table: Table, decorator: str | None) -> str:
    """What a job reads from `t$decorator`: the physical table or a filtered subquery, usable after FROM."""
    if decorator is None:
        return table.ref.physical
    if not table.partitioned:
        raise BigQueryError(
            "invalid", f"Table {table.ref} is not partitioned: the decorator ${decorator} cannot be used"
        )
    return f"(SELECT * FROM {table.ref.physical} WHERE {_in_partition(table, decorator)})"


def _insert(catalog: Catalog, destination: Destination, staged: Staged, table: Table) -> int:
    if not staged.schema:
        return 0
    targets, sources = [], []
    for item in staged.schema:
        column = table.field(item.name)
        assert column is not None
        name = quote(item.name)
        # BigQuery stores no NULL array.
        value = f"coalesce({name}, [])" if column.mode is Mode.REPEATED else name
        targets.append(quote(column.name))
        sources.append(value if column_type(item) == column_type(column) else f"CAST({value} AS {column_type(column)})")
    values: list[Any] = []
    if table.by_ingestion_time:
        targets.append(quote(PARTITION_TIME))
        if staged.has_partition_time and destination.decorator is None:
            sources.append(quote(PARTITION_TIME))
        else:
            sources.append("CAST(? AS TIMESTAMPTZ)")
            values.append(_arrival(catalog, destination, table))
    selected = f"SELECT {', '.join(sources)} FROM {staged.relation}"
    try:
        row = catalog.conn.execute(
            f"INSERT INTO {table.ref.physical} ({', '.join(targets)}) {selected}", [*values, *staged.values]
        ).fetchone()
    except duckdb.ConstraintException as error:
        raise BigQueryError("invalid", f"Required field {_null_column(error, table)} cannot be null") from error
    return int(row[0]) if row else 0


def _arrival(catalog: Catalog, destination: Destination, table: Table) -> datetime | None:
    assert table.time_partitioning is not None
    if destination.decorator is not None:
        return partition_time(table, destination.decorator)
    return table.time_partitioning.type.start(catalog.clock.now())


def _null_column(error: duckdb.ConstraintException, table: Table) -> str:
    text = str(error)
    return next((item.name for item in table.schema if text.rstrip().endswith(f".{item.name}")), "of the table")


def _member(kind: type[StrEnum], value: Any, default: Any, name: str) -> Any:
    if value in (None, ""):
        return default
    try:
        return kind(str(value).upper())
    except ValueError as error:
        raise BigQueryError("invalid", f"Invalid value for {name}: {value} is not a valid value") from error
