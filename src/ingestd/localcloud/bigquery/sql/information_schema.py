"""INFORMATION_SCHEMA views, built from the catalog when they are read."""
# ruff: noqa: S608 - identifiers go through `quote`, values are bound or written by `literal`

from collections.abc import Callable, Mapping
from typing import Any

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.googlesql import ast
from ingestd.googlesql.columns import from_field
from ingestd.localcloud.bigquery.catalog import Dataset, DatasetRef, Table, TableKind, partition_expression
from ingestd.localcloud.bigquery.duckdb_types import column_type, quote
from ingestd.localcloud.bigquery.resources import from_millis
from ingestd.localcloud.bigquery.sql.sources import SourceCompiler
from ingestd.model.schema import Field, Mode, Schema, Type

_S, _I, _B, _T = Type.STRING, Type.INT64, Type.BOOL, Type.TIMESTAMP


def _schema(*columns: tuple[str, Type]) -> Schema:
    return tuple(Field(name, kind) for name, kind in columns)


_SCHEMATA = _schema(
    ("catalog_name", _S), ("schema_name", _S), ("schema_owner", _S), ("creation_time", _T), ("last_modified_time", _T),
    ("location", _S), ("ddl", _S), ("default_collation_name", _S),
)  # fmt: skip
_TABLES = _schema(
    ("table_catalog", _S), ("table_schema", _S), ("table_name", _S), ("table_type", _S), ("is_insertable_into", _S),
    ("is_typed", _S), ("creation_time", _T), ("ddl", _S),
)  # fmt: skip
_COLUMNS = _schema(
    ("table_catalog", _S), ("table_schema", _S), ("table_name", _S), ("column_name", _S), ("ordinal_position", _I),
    ("is_nullable", _S), ("data_type", _S), ("is_generated", _S), ("generation_expression", _S), ("is_stored", _S),
    ("is_hidden", _S), ("is_updatable", _S), ("is_system_defined", _S), ("is_partitioning_column", _S),
    ("clustering_ordinal_position", _I), ("collation_name", _S), ("column_default", _S), ("rounding_mode", _S),
)  # fmt: skip
_FIELD_PATHS = _schema(
    ("table_catalog", _S), ("table_schema", _S), ("table_name", _S), ("column_name", _S), ("field_path", _S),
    ("data_type", _S), ("description", _S), ("collation_name", _S), ("rounding_mode", _S),
)  # fmt: skip
_PARTITIONS = _schema(
    ("table_catalog", _S), ("table_schema", _S), ("table_name", _S), ("partition_id", _S), ("total_rows", _I),
    ("total_logical_bytes", _I), ("last_modified_time", _T), ("storage_tier", _S),
)  # fmt: skip
_OPTIONS = _schema(
    ("table_catalog", _S), ("table_schema", _S), ("table_name", _S), ("option_name", _S), ("option_type", _S),
    ("option_value", _S),
)  # fmt: skip
_VIEWS = _schema(
    ("table_catalog", _S), ("table_schema", _S), ("table_name", _S), ("view_definition", _S), ("check_option", _S),
    ("use_standard_sql", _S),
)  # fmt: skip
_REFERENCE = (Field("project_id", _S), Field("dataset_id", _S), Field("table_id", _S))
_ERROR = _schema(("reason", _S), ("location", _S), ("debug_info", _S), ("message", _S))
_JOBS = (
    *_schema(
        ("creation_time", _T), ("project_id", _S), ("project_number", _I), ("user_email", _S), ("job_id", _S),
        ("job_type", _S), ("statement_type", _S), ("priority", _S), ("start_time", _T), ("end_time", _T), ("query", _S),
        ("state", _S), ("reservation_id", _S), ("total_bytes_processed", _I), ("total_slot_ms", _I),
    ),
    Field("error_result", Type.STRUCT, fields=_ERROR),
    Field("cache_hit", _B),
    Field("destination_table", Type.STRUCT, fields=_REFERENCE),
    Field("referenced_tables", Type.STRUCT, Mode.REPEATED, fields=_REFERENCE),
    Field("labels", Type.STRUCT, Mode.REPEATED, fields=(Field("key", _S), Field("value", _S))),
    Field("total_bytes_billed", _I),
    Field("parent_job_id", _S),
)  # fmt: skip

_Row = dict[str, Any]


def view(c: SourceCompiler, node: ast.TableName) -> tuple[str, Schema]:
    """DuckDB SQL with the view's rows, and its schema."""
    at = next(index for index, part in enumerate(node.parts) if part.upper() == "INFORMATION_SCHEMA")
    names = [part.upper() for part in node.parts[at + 1 :]]
    if len(names) != 1:
        raise BigQueryError("invalidQuery", "INFORMATION_SCHEMA must be followed by the name of a view", "query")
    name = names[0]
    project, dataset = _place(c, node.parts[:at])
    if name in ("JOBS", "JOBS_BY_PROJECT", "JOBS_BY_USER", "JOBS_BY_ORGANIZATION"):
        return _rows(_jobs(c, project), _JOBS)
    if name == "SCHEMATA":
        return _rows([_schemata(item) for item in c.session.catalog.datasets(project)], _SCHEMATA)
    known: dict[str, tuple[Schema, Callable[[SourceCompiler, Table], list[_Row]]]] = {
        "TABLES": (_TABLES, _tables),
        "COLUMNS": (_COLUMNS, _columns),
        "COLUMN_FIELD_PATHS": (_FIELD_PATHS, _field_paths),
        "PARTITIONS": (_PARTITIONS, _partitions),
        "TABLE_OPTIONS": (_OPTIONS, _options),
        "VIEWS": (_VIEWS, _views),
    }
    if name not in known:
        raise not_implemented(f"INFORMATION_SCHEMA.{name}")
    schema, build = known[name]
    rows = []
    for item in _datasets(c, project, dataset, name):
        for table in c.session.catalog.tables(item.project, item.dataset):
            rows.extend(build(c, table))
    return _rows(rows, schema)


def _place(c: SourceCompiler, parts: tuple[str, ...]) -> tuple[str, str]:
    """Project and dataset (empty for a whole region) that the qualifier names."""
    if not parts:
        return c.session.default_project, c.session.default_dataset
    if parts[-1].lower().startswith("region-"):
        return (parts[0] if len(parts) == 2 else c.session.project), ""
    if len(parts) == 1:
        return c.session.project, parts[0]
    return parts[0], parts[1]


def _datasets(c: SourceCompiler, project: str, dataset: str, name: str) -> list[DatasetRef]:
    if not dataset:
        return [item.ref for item in c.session.catalog.datasets(project)]
    if c.session.catalog.find_dataset(DatasetRef(project, dataset)) is None:
        location = c.session.surroundings.location
        raise BigQueryError(
            "notFound", f"Not found: Dataset {project}:{dataset} was not found in location {location}", "query"
        )
    return [DatasetRef(project, dataset)]


def _rows(rows: list[_Row], schema: Schema) -> tuple[str, Schema]:
    types = ", ".join(f"CAST(_r.{quote(item.name)} AS {column_type(item)}) AS {quote(item.name)}" for item in schema)
    if not rows:
        empty = ", ".join(f"CAST(NULL AS {column_type(item)}) AS {quote(item.name)}" for item in schema)
        return f"(SELECT {empty} WHERE FALSE)", schema
    listed = ", ".join("(" + ", ".join(_literal(row.get(item.name), item) for item in schema) + ")" for row in rows)
    names = ", ".join(quote(item.name) for item in schema)
    return f"(SELECT {types} FROM (VALUES {listed}) AS _r({names}))", schema


def _literal(value: Any, item: Field) -> str:
    from ingestd.googlesql.types import SCALARS
    from ingestd.localcloud.bigquery.sql.coercion import literal

    if item.mode is Mode.REPEATED:
        inner = Field(item.name, item.type, fields=item.fields)
        return f"CAST([{', '.join(_literal(each, inner) for each in value or ())}] AS {column_type(item)})"
    if value is None:
        return f"CAST(NULL AS {column_type(item)})"
    if item.type is Type.STRUCT:
        members = ", ".join(
            f"{quote(member.name)} := {_literal(value.get(member.name), member)}" for member in item.fields
        )
        return f"struct_pack({members})"
    return literal(value, SCALARS[item.type.value]).sql


def _schemata(dataset: Dataset) -> _Row:
    return {
        "catalog_name": dataset.ref.project,
        "schema_name": dataset.ref.dataset,
        "creation_time": dataset.created,
        "last_modified_time": dataset.modified,
        "location": dataset.location,
        "default_collation_name": "NULL",
        "ddl": f"CREATE SCHEMA `{dataset.ref.project}.{dataset.ref.dataset}`\n"
        f'OPTIONS(\n  location="{dataset.location}"\n);',
    }


def _base(table: Table) -> _Row:
    ref = table.ref
    return {"table_catalog": ref.project, "table_schema": ref.dataset, "table_name": ref.table}


_KINDS = {
    TableKind.TABLE: "BASE TABLE",
    TableKind.VIEW: "VIEW",
    TableKind.EXTERNAL: "EXTERNAL",
    TableKind.SNAPSHOT: "SNAPSHOT",
}


def _tables(c: SourceCompiler, table: Table) -> list[_Row]:
    return [
        _base(table)
        | {
            "table_type": _KINDS[table.kind],
            "is_insertable_into": "YES" if table.kind is TableKind.TABLE else "NO",
            "is_typed": "NO",
            "creation_time": table.created,
            "ddl": _ddl(table),
        }
    ]


def _ddl(table: Table) -> str:
    name = f"`{table.ref.sql_id}`"
    if table.kind is TableKind.VIEW:
        return f"CREATE VIEW {name}\nAS {table.view_query};"
    columns = ",\n  ".join(
        f"{item.name} {data_type(item)}{' NOT NULL' if item.mode is Mode.REQUIRED else ''}" for item in table.schema
    )
    return f"CREATE TABLE {name}\n(\n  {columns}\n);"


def data_type(item: Field) -> str:
    """`ARRAY<STRUCT<a INT64>>`, with the length or precision a column was declared with."""
    inner = str(from_field(Field(item.name, item.type, Mode.NULLABLE, item.fields, range_element=item.range_element)))
    if item.max_length is not None:
        inner += f"({item.max_length})"
    elif item.precision is not None:
        inner += f"({item.precision}, {item.scale})" if item.scale else f"({item.precision})"
    return f"ARRAY<{inner}>" if item.mode is Mode.REPEATED else inner


def _columns(c: SourceCompiler, table: Table) -> list[_Row]:
    clustering = [name.lower() for name in table.clustering]
    rows = []
    for position, item in enumerate(table.schema, 1):
        lowered = item.name.lower()
        partitioned = table.partition_column is not None and table.partition_column.lower() == lowered
        rows.append(
            _base(table)
            | {
                "column_name": item.name,
                "ordinal_position": position,
                "is_nullable": "NO" if item.mode is Mode.REQUIRED else "YES",
                "data_type": data_type(item),
                "is_generated": "NEVER",
                "is_hidden": "NO",
                "is_updatable": None,
                "is_system_defined": "NO",
                "is_partitioning_column": "YES" if partitioned else "NO",
                "clustering_ordinal_position": clustering.index(lowered) + 1 if lowered in clustering else None,
                "collation_name": "NULL",
                "column_default": item.default or "NULL",
            }
        )
    if table.by_ingestion_time:
        rows.append(
            _base(table)
            | {
                "column_name": "_PARTITIONTIME",
                "ordinal_position": None,
                "is_nullable": "YES",
                "data_type": "TIMESTAMP",
                "is_generated": "NEVER",
                "is_hidden": "YES",
                "is_system_defined": "YES",
                "is_partitioning_column": "YES",
                "collation_name": "NULL",
                "column_default": "NULL",
            }
        )
    return rows


def _field_paths(c: SourceCompiler, table: Table) -> list[_Row]:
    rows: list[_Row] = []

    def add(column: str, item: Field, path: str) -> None:
        rows.append(
            _base(table)
            | {
                "column_name": column,
                "field_path": path,
                "data_type": data_type(item),
                "description": item.description or None,
                "collation_name": "NULL",
            }
        )
        for member in item.fields:
            add(column, member, f"{path}.{member.name}")

    for item in table.schema:
        add(item.name, item, item.name)
    return rows


def _partitions(c: SourceCompiler, table: Table) -> list[_Row]:
    if table.kind is not TableKind.TABLE:
        return []
    expression = partition_expression(table) or "CAST(NULL AS VARCHAR)"
    found = c.session.catalog.conn.execute(
        f"SELECT {expression} AS id, count(*) FROM {table.ref.physical} GROUP BY 1 ORDER BY 1"
    ).fetchall()
    if not found and not table.partitioned:
        found = [(None, 0)]
    return [
        _base(table)
        | {
            "partition_id": identifier,
            "total_rows": number,
            "last_modified_time": table.modified,
            "storage_tier": "ACTIVE",
        }
        for identifier, number in found
    ]


def _options(c: SourceCompiler, table: Table) -> list[_Row]:
    found: list[tuple[str, str, str]] = []
    if table.description:
        found.append(("description", "STRING", _quoted(table.description)))
    if table.friendly_name:
        found.append(("friendly_name", "STRING", _quoted(table.friendly_name)))
    if table.labels:
        pairs = ", ".join(f"STRUCT({_quoted(key)}, {_quoted(value)})" for key, value in sorted(table.labels.items()))
        found.append(("labels", "ARRAY<STRUCT<STRING, STRING>>", f"[{pairs}]"))
    if table.expiration is not None:
        stamp = table.expiration.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        found.append(("expiration_timestamp", "TIMESTAMP", f'TIMESTAMP "{stamp}"'))
    if table.time_partitioning and table.time_partitioning.expiration_ms:
        days = table.time_partitioning.expiration_ms / 86_400_000
        found.append(("partition_expiration_days", "FLOAT64", str(days)))
    if table.needs_partition_filter:
        found.append(("require_partition_filter", "BOOL", "true"))
    return [
        _base(table) | {"option_name": name, "option_type": kind, "option_value": value} for name, kind, value in found
    ]


def _quoted(text: str) -> str:
    from ingestd.localcloud.bigquery.sql.runtime.jsons import dump

    return dump(text)


def _views(c: SourceCompiler, table: Table) -> list[_Row]:
    if table.kind is not TableKind.VIEW:
        return []
    return [_base(table) | {"view_definition": table.view_query, "use_standard_sql": "YES"}]


def _jobs(c: SourceCompiler, project: str) -> list[_Row]:
    source = c.session.surroundings.jobs
    if source is None:
        raise not_implemented("INFORMATION_SCHEMA.JOBS")
    rows = [_job(resource) for resource in source()]
    return [row for row in rows if row["project_id"] == project]


def _job(resource: Mapping[str, Any]) -> _Row:
    reference = resource.get("jobReference") or {}
    configuration = resource.get("configuration") or {}
    statistics = resource.get("statistics") or {}
    query = statistics.get("query") or {}
    status = resource.get("status") or {}
    kind = str(
        configuration.get("jobType")
        or next((key.upper() for key in ("query", "load", "copy", "extract") if key in configuration), "")
    )
    details = configuration.get(kind.lower()) or {}

    def moment(key: str) -> Any:
        return from_millis(statistics[key]) if statistics.get(key) else None

    return {
        "creation_time": moment("creationTime"),
        "project_id": reference.get("projectId"),
        "user_email": resource.get("user_email"),
        "job_id": reference.get("jobId"),
        "job_type": kind,
        "statement_type": query.get("statementType"),
        "priority": (configuration.get("query") or {}).get("priority"),
        "start_time": moment("startTime"),
        "end_time": moment("endTime"),
        "query": (configuration.get("query") or {}).get("query"),
        "state": status.get("state"),
        "total_bytes_processed": _int(statistics.get("totalBytesProcessed")),
        "total_slot_ms": _int(statistics.get("totalSlotMs")),
        "error_result": status.get("errorResult"),
        "cache_hit": query.get("cacheHit"),
        "destination_table": _reference(details.get("destinationTable")),
        "referenced_tables": [_reference(item) for item in query.get("referencedTables") or ()],
        "labels": [{"key": key, "value": value} for key, value in (configuration.get("labels") or {}).items()],
        "total_bytes_billed": _int(query.get("totalBytesBilled")),
        "parent_job_id": statistics.get("parentJobId"),
    }


def _int(value: Any) -> int | None:
    return int(value) if value is not None else None


def _reference(resource: Mapping[str, Any] | None) -> _Row | None:
    if not resource:
        return None
    return {
        "project_id": resource.get("projectId"),
        "dataset_id": resource.get("datasetId"),
        "table_id": resource.get("tableId"),
    }
