"""Datasets and tables as values: what BigQuery's `Dataset` and `Table` resources say, typed.

What is not modelled is kept in `extra` and given back unchanged, so a client reads what it wrote.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.formats.schemas import schema_from_rest
from ingestd.localcloud.bigquery.duckdb_types import quote
from ingestd.model.schema import Field, Mode, Schema, Type, schema_rest

PARTITION_TIME = "_PARTITIONTIME"
MAX_CLUSTERING = 4

_DATASET_ID = re.compile(r"^[A-Za-z0-9_\-]{1,1024}$")
# https://cloud.google.com/bigquery/docs/tables#table_naming: letters, marks, numbers, connectors, dashes, spaces.
_TABLE_ID = re.compile(r"^[\w\- ]{1,1024}$")


def millis(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def from_millis(value: Any) -> datetime:
    return datetime.fromtimestamp(int(value) / 1000, UTC)


@dataclass(frozen=True, slots=True)
class DatasetRef:
    project: str
    dataset: str

    @classmethod
    def parse(cls, text: str, default_project: str) -> "DatasetRef":
        project, dataset = _split_project(text.strip().strip("`"), names=1)
        return cls(project or default_project, dataset)

    @classmethod
    def from_rest(cls, resource: Mapping[str, Any], default_project: str) -> "DatasetRef":
        return cls(resource.get("projectId") or default_project, str(resource.get("datasetId") or ""))

    def __str__(self) -> str:
        return f"{self.project}:{self.dataset}"

    @property
    def physical(self) -> str:
        """The quoted DuckDB schema."""
        return quote(f"{self.project}.{self.dataset}")

    def table(self, name: str) -> "TableRef":
        return TableRef(self.project, self.dataset, name)

    def rest(self) -> dict[str, str]:
        return {"projectId": self.project, "datasetId": self.dataset}


@dataclass(frozen=True, slots=True)
class TableRef:
    project: str
    dataset: str
    table: str

    @classmethod
    def parse(cls, text: str, default_project: str, default_dataset: DatasetRef | str | None = None) -> "TableRef":
        """Read `p:d.t`, `p.d.t`, `d.t` or, with a default dataset, `t`; backticks are allowed."""
        project, rest = _split_project(text.strip().replace("`", ""), names=2)
        dataset, dot, table = rest.partition(".")
        if not dot:
            if default_dataset is None:
                raise BigQueryError(
                    "invalid",
                    f'Table "{text}" must be qualified with a dataset (e.g. dataset.table).',
                )
            if isinstance(default_dataset, DatasetRef):
                return cls(default_dataset.project, default_dataset.dataset, rest)
            return cls(project or default_project, default_dataset, rest)
        return cls(project or default_project, dataset, table)

    @classmethod
    def from_rest(cls, resource: Mapping[str, Any], default_project: str) -> "TableRef":
        ref = cls(
            resource.get("projectId") or default_project,
            str(resource.get("datasetId") or ""),
            str(resource.get("tableId") or ""),
        )
        if not ref.dataset or not ref.table:
            raise BigQueryError("required", "Required parameter is missing: tableReference")
        return ref

    def __str__(self) -> str:
        """As BigQuery's error messages name a table."""
        return f"{self.project}:{self.dataset}.{self.table}"

    @property
    def sql_id(self) -> str:
        """As GoogleSQL and INFORMATION_SCHEMA name a table."""
        return f"{self.project}.{self.dataset}.{self.table}"

    @property
    def physical(self) -> str:
        """The quoted DuckDB table."""
        return f"{self.dataset_ref.physical}.{quote(self.table)}"

    @property
    def dataset_ref(self) -> DatasetRef:
        return DatasetRef(self.project, self.dataset)

    def rest(self) -> dict[str, str]:
        return {"projectId": self.project, "datasetId": self.dataset, "tableId": self.table}


def _split_project(text: str, names: int) -> tuple[str, str]:
    """Cut off the project; domain-scoped projects (`example.com:p`) hold a colon themselves."""
    domain, colon, rest = text.rpartition(":")
    parts = rest.split(".", names) if not colon or rest.count(".") >= names else [rest]
    if len(parts) > names:
        return (f"{domain}:{parts[0]}" if colon else parts[0]), ".".join(parts[1:])
    return domain, rest


def split_decorator(table: str) -> tuple[str, str | None]:
    """`t$20240101` is table `t`, partition `20240101`."""
    name, dollar, decorator = table.partition("$")
    return name, decorator if dollar else None


class TableKind(StrEnum):
    TABLE = "TABLE"
    VIEW = "VIEW"
    EXTERNAL = "EXTERNAL"
    SNAPSHOT = "SNAPSHOT"


class Granularity(StrEnum):
    DAY = "DAY"
    HOUR = "HOUR"
    MONTH = "MONTH"
    YEAR = "YEAR"

    @property
    def pattern(self) -> str:
        """strftime format of a partition id, the same in Python and DuckDB."""
        return {"DAY": "%Y%m%d", "HOUR": "%Y%m%d%H", "MONTH": "%Y%m", "YEAR": "%Y"}[self.value]

    def start(self, at: datetime) -> datetime:
        """The start of the partition that holds an instant."""
        at = at.replace(minute=0, second=0, microsecond=0)
        if self is Granularity.HOUR:
            return at
        at = at.replace(hour=0)
        if self is Granularity.DAY:
            return at
        return at.replace(day=1) if self is Granularity.MONTH else at.replace(month=1, day=1)


@dataclass(frozen=True, slots=True)
class TimePartitioning:
    type: Granularity = Granularity.DAY
    field: str | None = None  # None: by ingestion time
    expiration_ms: int | None = None
    require_filter: bool = False

    @classmethod
    def from_rest(cls, resource: Mapping[str, Any]) -> "TimePartitioning":
        kind = str(resource.get("type") or "DAY").upper()
        if kind not in Granularity.__members__:
            raise BigQueryError("invalid", f"Invalid value for timePartitioning.type: {kind} is not a valid value")
        expiration = resource.get("expirationMs")
        return cls(
            Granularity(kind),
            resource.get("field") or None,
            int(expiration) if expiration not in (None, "", "0", 0) else None,
            bool(resource.get("requirePartitionFilter", False)),
        )

    def rest(self) -> dict[str, Any]:
        resource: dict[str, Any] = {"type": self.type.value}
        if self.field:
            resource["field"] = self.field
        if self.expiration_ms is not None:
            resource["expirationMs"] = str(self.expiration_ms)
        if self.require_filter:
            resource["requirePartitionFilter"] = True
        return resource


@dataclass(frozen=True, slots=True)
class RangePartitioning:
    field: str
    start: int
    end: int
    interval: int

    @classmethod
    def from_rest(cls, resource: Mapping[str, Any]) -> "RangePartitioning":
        bounds = resource.get("range") or {}
        try:
            value = cls(
                str(resource["field"]), int(bounds.get("start") or 0), int(bounds["end"]), int(bounds["interval"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BigQueryError(
                "invalid", "Range partitioning requires field, range.start, end and interval"
            ) from error
        if value.interval <= 0 or value.end <= value.start:
            raise BigQueryError(
                "invalid", "Invalid range partitioning: end must exceed start, interval must be positive"
            )
        return value

    def rest(self) -> dict[str, Any]:
        bounds = {"start": str(self.start), "end": str(self.end), "interval": str(self.interval)}
        return {"field": self.field, "range": bounds}


@dataclass(frozen=True, slots=True)
class Dataset:
    ref: DatasetRef
    location: str
    created: datetime
    modified: datetime
    labels: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    friendly_name: str = ""
    default_table_expiration_ms: int | None = None
    default_partition_expiration_ms: int | None = None
    etag: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_rest(cls, resource: Mapping[str, Any], default_project: str, now: datetime) -> "Dataset":
        ref = DatasetRef.from_rest(resource.get("datasetReference") or {}, default_project)
        if not _DATASET_ID.match(ref.dataset):
            raise BigQueryError(
                "invalid",
                f'Invalid dataset ID "{ref.dataset}". Dataset IDs must be alphanumeric (plus underscores and dashes) '
                "and must be at most 1024 characters long.",
            )
        return cls(
            ref=ref,
            location=str(resource.get("location") or ""),
            created=from_millis(resource["creationTime"]) if "creationTime" in resource else now,
            modified=from_millis(resource["lastModifiedTime"]) if "lastModifiedTime" in resource else now,
            labels=dict(resource.get("labels") or {}),
            description=str(resource.get("description") or ""),
            friendly_name=str(resource.get("friendlyName") or ""),
            default_table_expiration_ms=_optional_int(resource.get("defaultTableExpirationMs")),
            default_partition_expiration_ms=_optional_int(resource.get("defaultPartitionExpirationMs")),
            etag=str(resource.get("etag") or ""),
            extra={key: value for key, value in resource.items() if key not in _DATASET_KEYS and value is not None},
        )

    def rest(self) -> dict[str, Any]:
        resource: dict[str, Any] = {
            "kind": "bigquery#dataset",
            "etag": self.etag,
            "id": str(self.ref),
            "datasetReference": self.ref.rest(),
            "location": self.location,
            "creationTime": str(millis(self.created)),
            "lastModifiedTime": str(millis(self.modified)),
            **self.extra,
        }
        _put(resource, "labels", dict(self.labels))
        _put(resource, "description", self.description)
        _put(resource, "friendlyName", self.friendly_name)
        _put(resource, "defaultTableExpirationMs", self.default_table_expiration_ms)
        _put(resource, "defaultPartitionExpirationMs", self.default_partition_expiration_ms)
        return resource


@dataclass(frozen=True, slots=True)
class Table:
    ref: TableRef
    schema: Schema
    created: datetime
    modified: datetime
    kind: TableKind = TableKind.TABLE
    time_partitioning: TimePartitioning | None = None
    range_partitioning: RangePartitioning | None = None
    require_filter: bool = False
    clustering: tuple[str, ...] = ()
    view_query: str = ""
    external: Mapping[str, Any] | None = None
    expiration: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    friendly_name: str = ""
    etag: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_rest(cls, resource: Mapping[str, Any], default_project: str, now: datetime) -> "Table":
        for unsupported in ("materializedView", "cloneDefinition", "biglakeConfiguration", "tableReplicationInfo"):
            if resource.get(unsupported):
                raise not_implemented(unsupported)
        ref = TableRef.from_rest(resource.get("tableReference") or {}, default_project)
        view = resource.get("view")
        external = resource.get("externalDataConfiguration")
        stored_kind = str(resource.get("type") or "")
        kind = TableKind(stored_kind) if stored_kind in TableKind.__members__ else TableKind.TABLE
        if view:
            kind = TableKind.VIEW
            if view.get("useLegacySql"):
                raise not_implemented("views in legacy SQL")
        elif external:
            kind = TableKind.EXTERNAL
        time, ranges = resource.get("timePartitioning"), resource.get("rangePartitioning")
        schema = schema_from_rest(resource.get("schema") or (external or {}).get("schema"))
        expiration = resource.get("expirationTime")
        return cls(
            ref=ref,
            schema=schema,
            created=from_millis(resource["creationTime"]) if "creationTime" in resource else now,
            modified=from_millis(resource["lastModifiedTime"]) if "lastModifiedTime" in resource else now,
            kind=kind,
            time_partitioning=TimePartitioning.from_rest(time) if time else None,
            range_partitioning=RangePartitioning.from_rest(ranges) if ranges else None,
            require_filter=bool(resource.get("requirePartitionFilter", False)),
            clustering=tuple((resource.get("clustering") or {}).get("fields") or ()),
            view_query=str(view.get("query") or "") if view else "",
            external=dict(external) if external else None,
            expiration=from_millis(expiration) if expiration not in (None, "", "0", 0) else None,
            labels=dict(resource.get("labels") or {}),
            description=str(resource.get("description") or ""),
            friendly_name=str(resource.get("friendlyName") or ""),
            etag=str(resource.get("etag") or ""),
            extra={key: value for key, value in resource.items() if key not in _TABLE_KEYS and value is not None},
        )

    def rest(self) -> dict[str, Any]:
        """The resource without what is computed from the rows (`numRows`, `numBytes`)."""
        resource: dict[str, Any] = {
            "kind": "bigquery#table",
            "etag": self.etag,
            "id": str(self.ref),
            "tableReference": self.ref.rest(),
            "type": self.kind.value,
            "creationTime": str(millis(self.created)),
            "lastModifiedTime": str(millis(self.modified)),
            **self.extra,
        }
        if self.schema:
            resource["schema"] = schema_rest(self.schema)
        if self.time_partitioning:
            resource["timePartitioning"] = self.time_partitioning.rest()
        if self.range_partitioning:
            resource["rangePartitioning"] = self.range_partitioning.rest()
        if self.require_filter:
            resource["requirePartitionFilter"] = True
        if self.clustering:
            resource["clustering"] = {"fields": list(self.clustering)}
        if self.kind is TableKind.VIEW:
            resource["view"] = {"query": self.view_query, "useLegacySql": False}
        if self.external is not None:
            resource["externalDataConfiguration"] = dict(self.external)
        if self.expiration:
            resource["expirationTime"] = str(millis(self.expiration))
        _put(resource, "labels", dict(self.labels))
        _put(resource, "description", self.description)
        _put(resource, "friendlyName", self.friendly_name)
        return resource

    @property
    def partitioned(self) -> bool:
        return self.time_partitioning is not None or self.range_partitioning is not None

    @property
    def partition_column(self) -> str | None:
        """The column that decides the partition: `_PARTITIONTIME` for ingestion time, None when not partitioned."""
        if self.time_partitioning:
            return self.time_partitioning.field or PARTITION_TIME
        return self.range_partitioning.field if self.range_partitioning else None

    @property
    def by_ingestion_time(self) -> bool:
        return self.time_partitioning is not None and self.time_partitioning.field is None

    @property
    def needs_partition_filter(self) -> bool:
        return self.require_filter or (self.time_partitioning is not None and self.time_partitioning.require_filter)

    def field(self, name: str) -> Field | None:
        lowered = name.lower()
        return next((item for item in self.schema if item.name.lower() == lowered), None)

    def validate(self) -> None:
        """Refuse what BigQuery refuses at creation."""
        if not _TABLE_ID.match(self.ref.table):
            raise BigQueryError(
                "invalid",
                f'Invalid table ID "{self.ref.table}". Table IDs must be alphanumeric (plus underscores) and must be '
                "at most 1024 characters long. Also, Table decorators cannot be used.",
            )
        if self.time_partitioning and self.range_partitioning:
            raise BigQueryError("invalid", "Only one of timePartitioning and rangePartitioning should be specified")
        if self.time_partitioning and self.time_partitioning.field:
            self._check_time_column(self.time_partitioning)
        if self.range_partitioning:
            column = self._partition_field(self.range_partitioning.field)
            if column.type is not Type.INT64:
                raise BigQueryError(
                    "invalid", f"The field specified for range partitioning is not INTEGER: {column.name}"
                )
        if len(self.clustering) > MAX_CLUSTERING:
            raise BigQueryError(
                "invalid", f"Too many fields specified for clustering. At most {MAX_CLUSTERING} allowed"
            )
        for name in self.clustering:
            column_or_none = self.field(name)
            if column_or_none is None:
                raise BigQueryError(
                    "invalid",
                    f"The field specified for clustering cannot be found in the schema. Invalid field: {name}.",
                )
            if column_or_none.mode is Mode.REPEATED or column_or_none.type in _NOT_CLUSTERABLE:
                raise BigQueryError("invalid", f"The field {name} cannot be used for clustering")

    def _check_time_column(self, partitioning: TimePartitioning) -> None:
        column = self._partition_field(partitioning.field or "")
        if column.type not in (Type.DATE, Type.TIMESTAMP, Type.DATETIME):
            raise BigQueryError(
                "invalid",
                f"The field specified for partitioning has type {column.type}; only DATE, TIMESTAMP and DATETIME "
                "can be used",
            )
        if column.type is Type.DATE and partitioning.type is Granularity.HOUR:
            raise BigQueryError("invalid", "A DATE column cannot be partitioned by HOUR")

    def _partition_field(self, name: str) -> Field:
        column = self.field(name)
        if column is None:
            raise BigQueryError("invalid", "The field specified for partitioning cannot be found in the schema")
        if column.mode is Mode.REPEATED:
            raise BigQueryError("invalid", f"The field specified for partitioning is REPEATED: {name}")
        return column


def default_expiration(dataset: Dataset, now: datetime) -> datetime | None:
    """When a table created now in this dataset expires."""
    if dataset.default_table_expiration_ms is None:
        return None
    return now + timedelta(milliseconds=dataset.default_table_expiration_ms)


_NOT_CLUSTERABLE = (Type.STRUCT, Type.BYTES, Type.FLOAT64, Type.JSON, Type.TIME, Type.INTERVAL)

_COMPUTED_KEYS = {
    "kind", "etag", "id", "selfLink", "creationTime", "lastModifiedTime", "numBytes", "numRows", "numLongTermBytes",
    "numTimeTravelPhysicalBytes", "numTotalLogicalBytes", "numActiveLogicalBytes", "numLongTermLogicalBytes",
    "numTotalPhysicalBytes", "numActivePhysicalBytes", "numLongTermPhysicalBytes", "numPartitions", "streamingBuffer",
}  # fmt: skip
_TABLE_KEYS = _COMPUTED_KEYS | {
    "tableReference", "type", "schema", "timePartitioning", "rangePartitioning", "requirePartitionFilter", "clustering",
    "view", "externalDataConfiguration", "expirationTime", "labels", "description", "friendlyName", "location",
}  # fmt: skip
_DATASET_KEYS = _COMPUTED_KEYS | {
    "datasetReference", "location", "labels", "description", "friendlyName", "defaultTableExpirationMs",
    "defaultPartitionExpirationMs",
}  # fmt: skip


def _optional_int(value: Any) -> int | None:
    return int(value) if value not in (None, "", "0", 0) else None


def _put(resource: dict[str, Any], key: str, value: Any) -> None:
    if value not in (None, "", {}):
        resource[key] = str(value) if isinstance(value, int) else value
