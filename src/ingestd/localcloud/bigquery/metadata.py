"""Datasets and tables over REST semantics: insert, get, patch, update, delete, list, with etags.

Invariant: a request with `If-Match` changes nothing unless the resource still has that etag.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.localcloud.bigquery.catalog import Catalog, partition_expression
from ingestd.localcloud.bigquery.destination import source_partition
from ingestd.localcloud.bigquery.paging import count, page
from ingestd.localcloud.bigquery.quota import Quotas
from ingestd.localcloud.bigquery.resources import Dataset, DatasetRef, Table, TableKind, TableRef, split_decorator
from ingestd.localcloud.bigquery.settings import BigQuerySettings
from ingestd.localcloud.bigquery.sizes import measure
from ingestd.localcloud.faults import Hooks
from ingestd.model.schema import Schema

Transaction = Callable[[], AbstractContextManager[Catalog]]
Describe = Callable[[Catalog, Table], Schema]

_ACCESS = (
    {"role": "WRITER", "specialGroup": "projectWriters"},
    {"role": "OWNER", "specialGroup": "projectOwners"},
    {"role": "READER", "specialGroup": "projectReaders"},
)


class Metadata:
    def __init__(
        self,
        *,
        reading: Transaction,
        writing: Transaction,
        describe: Describe,
        hooks: Hooks,
        quotas: Quotas,
        settings: BigQuerySettings,
    ) -> None:
        self._reading = reading
        self._writing = writing
        self._describe = describe
        self._hooks = hooks
        self._quotas = quotas
        self._settings = settings

    def insert_dataset(self, project: str, resource: Mapping[str, Any]) -> dict[str, Any]:
        with self._hooks.operation("datasets.insert", project), self._writing() as catalog:
            dataset = Dataset.from_rest(resource, project, catalog.clock.now())
            if dataset.extra.get("externalDatasetReference"):
                raise not_implemented("external datasets")
            location = _canonical(dataset.location) or self._settings.default_location
            access = dataset.extra.get("access") or [
                *_ACCESS,
                {"role": "OWNER", "userByEmail": self._settings.user_email},
            ]
            dataset = replace(dataset, location=location, extra={**dataset.extra, "access": access})
            return self._dataset_rest(catalog.create_dataset(dataset))

    def get_dataset(self, project: str, dataset: str) -> dict[str, Any]:
        with self._hooks.operation("datasets.get", f"{project}/{dataset}"), self._reading() as catalog:
            return self._dataset_rest(catalog.dataset(project, dataset))

    def list_datasets(self, project: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        with self._hooks.operation("datasets.list", project), self._reading() as catalog:
            found = catalog.datasets(project)
        if parameters.get("all", "").lower() != "true":
            found = [item for item in found if not item.ref.dataset.startswith("_")]
        for condition in parameters.get("filter", "").split():
            found = [item for item in found if _label_matches(item.labels, condition)]
        entries = [_dataset_entry(item) for item in found]
        return _listing("bigquery#datasetList", "datasets", entries, parameters)

    def update_dataset(
        self, project: str, dataset: str, resource: Mapping[str, Any], *, patch: bool, etag: str | None
    ) -> dict[str, Any]:
        method = "datasets.patch" if patch else "datasets.update"
        with self._hooks.operation(method, f"{project}/{dataset}"), self._writing() as catalog:
            current = catalog.dataset(project, dataset)
            _check_etag(current.etag, etag)
            before = current.rest()
            after = merge_patch(before, resource) if patch else dict(resource)
            location = _canonical(str(after.get("location") or current.location))
            if location != current.location:
                raise BigQueryError("invalid", "Cannot change the location of a dataset.")
            after.update({"datasetReference": current.ref.rest(), "location": location})
            for key in ("creationTime", "lastModifiedTime"):
                after[key] = before[key]
            changed = Dataset.from_rest(after, project, catalog.clock.now())
            extra = {"access": current.extra.get("access"), **changed.extra}
            return self._dataset_rest(catalog.update_dataset(replace(changed, extra=extra)))

    def delete_dataset(self, project: str, dataset: str, *, delete_contents: bool) -> None:
        with self._hooks.operation("datasets.delete", f"{project}/{dataset}"), self._writing() as catalog:
            catalog.delete_dataset(DatasetRef(project, dataset), delete_contents=delete_contents)

    def insert_table(self, project: str, dataset: str, resource: Mapping[str, Any]) -> dict[str, Any]:
        reference = {"projectId": project, "datasetId": dataset, **(resource.get("tableReference") or {})}
        name = str(reference.get("tableId") or "")
        with self._hooks.operation("tables.insert", f"{project}/{dataset}/{name}"), self._writing() as catalog:
            table = Table.from_rest({**resource, "tableReference": reference}, project, catalog.clock.now())
            if table.kind is TableKind.SNAPSHOT:
                raise BigQueryError("invalid", "Snapshots are created by copy jobs")
            catalog.dataset(table.ref.project, table.ref.dataset)
            if table.kind is TableKind.VIEW and table.schema:
                raise BigQueryError("invalid", "Schema field shouldn't be used as input with a view")
            if table.kind in (TableKind.VIEW, TableKind.EXTERNAL):
                table = replace(table, schema=self._describe(catalog, table))
            return self._table_rest(catalog, catalog.create_table(table))

    def get_table(self, project: str, dataset: str, table: str) -> dict[str, Any]:
        with self._hooks.operation("tables.get", f"{project}/{dataset}/{table}"), self._reading() as catalog:
            name, decorator = split_decorator(table)
            return self._table_rest(catalog, catalog.table(TableRef(project, dataset, name)), decorator)

    def list_tables(self, project: str, dataset: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        with self._hooks.operation("tables.list", f"{project}/{dataset}"), self._reading() as catalog:
            entries = [_table_entry(item) for item in catalog.tables(project, dataset)]
        return _listing("bigquery#tableList", "tables", entries, parameters) | {"totalItems": len(entries)}

    def update_table(
        self, project: str, dataset: str, table: str, resource: Mapping[str, Any], *, patch: bool, etag: str | None
    ) -> dict[str, Any]:
        method = "tables.patch" if patch else "tables.update"
        with self._hooks.operation(method, f"{project}/{dataset}/{table}"), self._writing() as catalog:
            current = catalog.table(TableRef(project, dataset, table))
            _check_etag(current.etag, etag)
            self._quotas.check_table(catalog.conn, current.ref, partitioned=current.partitioned, daily=False)
            before = current.rest()
            after = merge_patch(before, resource) if patch else dict(resource)
            after.update({key: before[key] for key in ("tableReference", "type", "creationTime", "lastModifiedTime")})
            after.setdefault("schema", before.get("schema"))
            changed = Table.from_rest(after, project, catalog.clock.now())
            _refuse_respecification(current, changed)
            if changed.kind is TableKind.VIEW:
                changed = replace(changed, schema=self._describe(catalog, replace(changed, schema=())))
            elif changed.schema != current.schema:
                stored = catalog.alter_schema(current.ref, changed.schema)
                changed = replace(changed, modified=stored.modified)
            changed.validate()
            self._quotas.record(catalog.conn, current.ref, daily=False)
            return self._table_rest(catalog, catalog.update_table(changed))

    def delete_table(self, project: str, dataset: str, table: str) -> None:
        with self._hooks.operation("tables.delete", f"{project}/{dataset}/{table}"), self._writing() as catalog:
            name, decorator = split_decorator(table)
            ref = TableRef(project, dataset, name)
            if decorator is None:
                catalog.drop_table(ref)
                return
            found = catalog.table(ref)
            expression = partition_expression(found)
            if expression is None:
                raise BigQueryError("invalid", f"Table {ref} is not partitioned: ${decorator} cannot be deleted")
            catalog.conn.execute(f"DELETE FROM {ref.physical} WHERE {expression} = ?", [decorator])  # noqa: S608
            catalog.touch(ref)

    def _dataset_rest(self, dataset: Dataset) -> dict[str, Any]:
        path = f"projects/{dataset.ref.project}/datasets/{dataset.ref.dataset}"
        return {"type": "DEFAULT", **dataset.rest(), "selfLink": f"https://bigquery.googleapis.com/bigquery/v2/{path}"}

    def _table_rest(self, catalog: Catalog, table: Table, decorator: str | None = None) -> dict[str, Any]:
        """The resource with its sizes; with a decorator it is the partition that is counted and named."""
        ref = table.ref
        path = f"projects/{ref.project}/datasets/{ref.dataset}/tables/{ref.table}"
        resource = table.rest() | {
            "selfLink": f"https://bigquery.googleapis.com/bigquery/v2/{path}",
            "location": catalog.dataset(ref.project, ref.dataset).location,
        }
        rows, size = 0, 0
        if table.kind in (TableKind.TABLE, TableKind.SNAPSHOT):
            if decorator is None:
                rows, size = catalog.measure(table)
            else:
                rows, size = measure(catalog.conn, source_partition(table, decorator), table.schema)
        if decorator is not None:
            resource["id"] = f"{ref}${decorator}"
            resource["tableReference"] = {**ref.rest(), "tableId": f"{ref.table}${decorator}"}
        return resource | {
            "numRows": str(rows),
            "numBytes": str(size),
            "numLongTermBytes": "0",
            "numTotalLogicalBytes": str(size),
            "numActiveLogicalBytes": str(size),
            "numLongTermLogicalBytes": "0",
        }


def merge_patch(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """JSON merge patch: null removes, objects merge, all else replaces."""
    merged = dict(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = merge_patch(merged[key], value)
        elif isinstance(value, Mapping):
            merged[key] = merge_patch({}, value)
        else:
            merged[key] = value
    return merged


def _check_etag(current: str, given: str | None) -> None:
    if given and given.strip('"') not in ("*", current):
        raise BigQueryError("conditionNotMet", "Precondition Failed")


def _refuse_respecification(before: Table, after: Table) -> None:
    """Partition expiration and filter requirement may change, the partitioning itself may not."""
    old, new = before.time_partitioning, after.time_partitioning
    same_time = (old is None) == (new is None) and (
        old is None or new is None or (old.type, old.field) == (new.type, new.field)
    )
    if not same_time or before.range_partitioning != after.range_partitioning:
        raise BigQueryError("invalid", f"Cannot change partitioning spec for table {before.ref}")


def _label_matches(labels: Mapping[str, str], condition: str) -> bool:
    key, colon, value = condition.removeprefix("labels.").partition(":")
    return key in labels and (not colon or labels[key] == value)


def _canonical(location: str) -> str:
    """Multi-regions are written in capitals, regions in small letters."""
    return location.upper() if location.upper() in ("US", "EU") else location.lower()


def _dataset_entry(dataset: Dataset) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "kind": "bigquery#dataset",
        "id": str(dataset.ref),
        "datasetReference": dataset.ref.rest(),
        "location": dataset.location,
        "type": "DEFAULT",
    }
    if dataset.labels:
        entry["labels"] = dict(dataset.labels)
    if dataset.friendly_name:
        entry["friendlyName"] = dataset.friendly_name
    return entry


def _table_entry(table: Table) -> dict[str, Any]:
    resource = table.rest()
    keys = ("kind", "id", "tableReference", "type", "creationTime", "labels", "friendlyName", "timePartitioning",
            "rangePartitioning", "clustering", "expirationTime", "requirePartitionFilter")  # fmt: skip
    entry = {key: resource[key] for key in keys if key in resource}
    if table.kind is TableKind.VIEW:
        entry["view"] = {"useLegacySql": False}
    return entry


def _listing(kind: str, name: str, entries: list[dict[str, Any]], parameters: Mapping[str, str]) -> dict[str, Any]:
    size = count(parameters.get("maxResults"), 1000, 10_000)
    shown, token = page(entries, size, parameters.get("pageToken"))
    answer: dict[str, Any] = {"kind": kind, "etag": f"{len(entries)}", name: shown}
    if not shown:
        del answer[name]
    return answer | {"nextPageToken": token} if token else answer
