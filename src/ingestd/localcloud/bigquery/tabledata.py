"""Rows of a table over REST: read pages, stream rows in."""
# ruff: noqa: S608 - identifiers go through `quote`

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from threading import Lock
from typing import Any

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery.catalog import Catalog
from ingestd.localcloud.bigquery.cells import encode_rows, projection
from ingestd.localcloud.bigquery.destination import Destination, Staged, source_partition, write
from ingestd.localcloud.bigquery.files.rows import insert_rows
from ingestd.localcloud.bigquery.metadata import Transaction
from ingestd.localcloud.bigquery.paging import count, decode_token, encode_token
from ingestd.localcloud.bigquery.resources import Table, TableKind, TableRef, split_decorator
from ingestd.localcloud.bigquery.settings import BigQuerySettings
from ingestd.localcloud.faults import Hooks
from ingestd.model.schema import Field, Schema

MAX_PAGE = 50_000
_STAGING = "__insert_staging"


class TableData:
    def __init__(self, *, reading: Transaction, writing: Transaction, hooks: Hooks, settings: BigQuerySettings) -> None:
        self._reading = reading
        self._writing = writing
        self._hooks = hooks
        self._settings = settings
        self._seen: OrderedDict[tuple[TableRef, str], datetime] = OrderedDict()
        self._seen_lock = Lock()

    def list_rows(self, project: str, dataset: str, table: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        with self._hooks.operation("tabledata.list", f"{project}/{dataset}/{table}"), self._reading() as catalog:
            name, decorator = split_decorator(table)
            found = catalog.table(TableRef(project, dataset, name))
            if found.kind not in (TableKind.TABLE, TableKind.SNAPSHOT):
                raise BigQueryError("invalid", f"Cannot list a table of type {found.kind}.")
            schema = select_fields(found.schema, parameters.get("selectedFields"))
            rows = read_page(catalog, source_partition(found, decorator), schema, parameters)
            return {"kind": "bigquery#tableDataList", "etag": found.etag, **rows}

    def insert_all(self, project: str, dataset: str, table: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Stream rows in. A row whose insertId was seen within the memory is taken for the same row."""
        method = "tabledata.insertAll"
        with self._hooks.operation(method, f"{project}/{dataset}/{table}"), self._writing() as catalog:
            name, decorator = split_decorator(table)
            target = self._target(catalog, TableRef(project, dataset, name), str(request.get("templateSuffix") or ""))
            rows = [item for item in request.get("rows") or () if isinstance(item, Mapping)]
            if not rows:
                raise BigQueryError("invalid", "Empty rows")
            fresh = self._fresh(target.ref, rows, catalog.clock.now())
            outcome = insert_rows(
                catalog.conn,
                target.schema,
                [rows[index].get("json") or {} for index in fresh],
                _STAGING,
                skip_invalid_rows=_flag(request.get("skipInvalidRows")),
                ignore_unknown_values=_flag(request.get("ignoreUnknownValues")),
            )
            write(catalog, Destination(target.ref, decorator), Staged(_STAGING, target.schema))
            refused = {fresh[position] for position in outcome.errors}
            accepted = [rows[index] for index in fresh if index not in refused]
        self._remember(target.ref, accepted, catalog.clock.now())
        answer: dict[str, Any] = {"kind": "bigquery#tableDataInsertAllResponse"}
        if outcome.errors:
            answer["insertErrors"] = [
                {"index": fresh[position], "errors": [error.rest() for error in errors]}
                for position, errors in sorted(outcome.errors.items())
            ]
        return answer

    def _target(self, catalog: Catalog, ref: TableRef, suffix: str) -> Table:
        table = catalog.table(ref)
        if table.kind is not TableKind.TABLE:
            raise BigQueryError("invalid", f"Cannot add rows to a table of type {table.kind}.")
        if not table.schema:
            raise BigQueryError("invalid", "The destination table has no schema.")
        if not suffix:
            return table
        instance = replace(ref, table=ref.table + suffix)
        found = catalog.find_table(instance)
        return found or catalog.create_table(replace(table, ref=instance, expiration=None))

    def _fresh(self, ref: TableRef, rows: Sequence[Mapping[str, Any]], now: datetime) -> list[int]:
        """Indexes of the rows not streamed before, here or earlier in this request."""
        with self._seen_lock:
            while self._seen and next(iter(self._seen.values())) < now - self._settings.insert_id_memory:
                self._seen.popitem(last=False)
            fresh, ids = [], set()
            for index, row in enumerate(rows):
                insert_id = row.get("insertId")
                if insert_id and ((ref, insert_id) in self._seen or insert_id in ids):
                    continue
                if insert_id:
                    ids.add(insert_id)
                fresh.append(index)
            return fresh

    def _remember(self, ref: TableRef, rows: Sequence[Mapping[str, Any]], now: datetime) -> None:
        """Only rows that were committed count as seen."""
        with self._seen_lock:
            for row in rows:
                if insert_id := row.get("insertId"):
                    self._seen[ref, insert_id] = now


def read_page(
    catalog: Catalog, relation: str, schema: Schema, parameters: Mapping[str, Any], *, total: int | None = None
) -> dict[str, Any]:
    """`totalRows`, `rows` and `pageToken` of one page. `pageToken` goes before `startIndex`."""
    start = decode_token(parameters.get("pageToken")) if parameters.get("pageToken") else 0
    if not start:
        start = count(parameters.get("startIndex"), 0, 2**62, "startIndex")
    size = count(parameters.get("maxResults"), MAX_PAGE, MAX_PAGE)
    if total is None:
        row = catalog.conn.execute(f"SELECT count(*) FROM {relation}").fetchone()
        total = int(row[0]) if row else 0
    answer: dict[str, Any] = {"totalRows": str(total)}
    if size and start < total:
        rows = catalog.conn.execute(f"{projection(schema, relation)} LIMIT {size} OFFSET {start}").fetchall()
        int64 = _flag(parameters.get("formatOptions.useInt64Timestamp"))
        answer["rows"] = encode_rows(schema, rows, int64_timestamp=int64)
        start += len(rows)
    if start < total:
        answer["pageToken"] = encode_token(start)
    return answer


def select_fields(schema: Schema, selected: str | None) -> Schema:
    """The columns (and members, as `a.b`) that `selectedFields` names, in schema order."""
    if not selected:
        return schema
    wanted = [path.strip().lower() for path in selected.split(",") if path.strip()]
    chosen = _select(schema, wanted)
    for path in wanted:
        if not any(item.name.lower() == path.split(".")[0] for item in schema):
            raise BigQueryError("invalid", f"Selected field {path} is not found in the table's schema")
    return chosen


def _select(schema: Schema, wanted: list[str]) -> Schema:
    chosen: list[Field] = []
    for item in schema:
        name = item.name.lower()
        inner = [path[len(name) + 1 :] for path in wanted if path.startswith(name + ".")]
        if name in wanted:
            chosen.append(item)
        elif inner:
            chosen.append(replace(item, fields=_select(item.fields, inner)))
    return tuple(chosen)


def _flag(value: Any) -> bool:
    return value is True or str(value).lower() == "true"
