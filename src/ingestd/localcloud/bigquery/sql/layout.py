"""What a CREATE TABLE says about a table besides its columns: PARTITION BY, CLUSTER BY and OPTIONS."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.googlesql import ast
from ingestd.googlesql.lexer import Source
from ingestd.localcloud.bigquery.catalog import (
    Dataset,
    Granularity,
    RangePartitioning,
    Table,
    TimePartitioning,
)
from ingestd.localcloud.bigquery.sql.reading import mistake
from ingestd.localcloud.bigquery.sql.runner import Runner

_DAY_MS = 86_400_000
_TRUNCATED = {"DATE_TRUNC", "DATETIME_TRUNC", "TIMESTAMP_TRUNC"}


def evaluate(runner: Runner, options: ast.Options, source: Source) -> dict[str, Any]:
    """OPTIONS with their values computed. Lists of pairs, as in labels, come out as lists of tuples."""
    found: dict[str, Any] = {}
    for name, node in options:
        if name in found:
            raise BigQueryError("invalidQuery", f"Duplicate option specified for '{name}'", "query")
        value, _ = runner.value(node, source)
        found[name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(_plain(item) for item in value.values())
    return [_plain(item) for item in value] if isinstance(value, list) else value


def partitioning(
    node: ast.Expression | None, source: Source, runner: Runner
) -> tuple[TimePartitioning | None, RangePartitioning | None]:
    if node is None:
        return None, None
    if isinstance(node, ast.Path):
        name = node.parts[-1]
        ingestion = name.upper() in ("_PARTITIONDATE", "_PARTITIONTIME")
        return TimePartitioning(Granularity.DAY, None if ingestion else name), None
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Path):
        name = node.args[0].parts[-1]
        column = None if name.upper() in ("_PARTITIONTIME", "_PARTITIONDATE") else name
        if node.name == "DATE" and len(node.args) == 1:
            return TimePartitioning(Granularity.DAY, column), None
        if node.name in _TRUNCATED and len(node.args) == 2 and isinstance(node.args[1], ast.Path):
            part = node.args[1].parts[0].upper()
            if part in Granularity.__members__:
                return TimePartitioning(Granularity(part), column), None
        if node.name == "RANGE_BUCKET" and len(node.args) == 2 and isinstance(node.args[1], ast.Call):
            bounds = node.args[1]
            if bounds.name == "GENERATE_ARRAY" and 2 <= len(bounds.args) <= 3:
                numbers = [runner.value(item, source)[0] for item in bounds.args]
                step = numbers[2] if len(numbers) == 3 else 1
                return None, RangePartitioning(name, int(numbers[0]), int(numbers[1]), int(step))
    raise mistake(
        source,
        "PARTITION BY expression must be DATE(<timestamp_column>), DATE(<datetime_column>), "
        "DATE_TRUNC, DATETIME_TRUNC, TIMESTAMP_TRUNC, a DATE column, DATE(_PARTITIONTIME), or "
        "RANGE_BUCKET(<int64_column>, GENERATE_ARRAY(<int64_value>, <int64_value>[, <int64_value>]))",
        node.pos,
    )


_KEPT_AS_IS = {
    "kms_key_name": None,
    "max_staleness": None,
    "enable_change_history": None,
    "enable_fine_grained_mutations": None,
    "storage_uri": None,
    "tags": None,
    "default_rounding_mode": "defaultRoundingMode",
}


def with_options(table: Table, options: Mapping[str, Any]) -> Table:
    """The table with OPTIONS applied; NULL takes an option away."""
    for name, value in options.items():
        match name:
            case "description":
                table = replace(table, description=value or "")
            case "friendly_name":
                table = replace(table, friendly_name=value or "")
            case "labels":
                table = replace(table, labels=_labels(value))
            case "expiration_timestamp":
                table = replace(table, expiration=value if isinstance(value, datetime) else None)
            case "require_partition_filter":
                table = replace(table, require_filter=bool(value))
                if value and not table.partitioned:
                    raise BigQueryError(
                        "invalidQuery", "Cannot require partition filter on a table that is not partitioned.", "query"
                    )
            case "partition_expiration_days":
                table = _partition_expiration(table, value)
            case _ if name in _KEPT_AS_IS:
                key = _KEPT_AS_IS[name]
                if key is None:
                    raise not_implemented(f"the table option {name}")
                table = replace(table, extra={**table.extra, key: value})
            case _:
                raise BigQueryError("invalidQuery", f"Unknown option: {name}", "query")
    return table


def _labels(value: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in value or ()}


def _partition_expiration(table: Table, days: Any) -> Table:
    if table.time_partitioning is None:
        raise BigQueryError(
            "invalidQuery", "partition_expiration_days is only allowed on a table partitioned by time", "query"
        )
    expiration = round(float(days) * _DAY_MS) if days is not None else None
    return replace(table, time_partitioning=replace(table.time_partitioning, expiration_ms=expiration))


def with_dataset_options(dataset: Dataset, options: Mapping[str, Any]) -> Dataset:
    for name, value in options.items():
        match name:
            case "description":
                dataset = replace(dataset, description=value or "")
            case "friendly_name":
                dataset = replace(dataset, friendly_name=value or "")
            case "labels":
                dataset = replace(dataset, labels=_labels(value))
            case "location":
                dataset = replace(dataset, location=str(value))
            case "default_table_expiration_days":
                dataset = replace(dataset, default_table_expiration_ms=_days(value))
            case "default_partition_expiration_days":
                dataset = replace(dataset, default_partition_expiration_ms=_days(value))
            case "default_kms_key_name" | "is_case_insensitive" | "max_time_travel_hours" | "storage_billing_model":
                raise not_implemented(f"the dataset option {name}")
            case _:
                raise BigQueryError("invalidQuery", f"Unknown option: {name}", "query")
    return dataset


def _days(value: Any) -> int | None:
    return round(float(value) * _DAY_MS) if value is not None else None
