"""Tables of a local BigQuery in memory: made from rows, changed by real jobs, read back as plain values."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.memory_objects import MemoryObjects

from ingestd.localcloud.bigquery.core import BigQueryCore
from ingestd.localcloud.bigquery.settings import BigQuerySettings
from ingestd.model.preparation import Unmatched
from ingestd.model.schema import Field, Schema, schema_rest
from ingestd.model.tables import parse_table
from ingestd.warehouse.statements import (
    HOME,
    Publication,
    Statement,
    TableShape,
    publish_statement,
    unmatched_statement,
)

PROJECT = "p"


def columns(text: str) -> Schema:
    """`id INTEGER, tags STRING*, info {key STRING}, must STRING!`: columns."""
    found, rest = _columns(text)
    assert not rest, rest
    return tuple(Field.from_rest(one) for one in found)


def _columns(text: str) -> tuple[tuple[dict[str, Any], ...], str]:
    found: list[dict[str, Any]] = []
    while text := text.lstrip(" ,"):
        if text[0] == "}":
            break
        name, text = text.split(" ", 1)
        if text.startswith("{"):
            inner, text = _columns(text[1:])
            column, text = {"name": name, "type": "RECORD", "fields": list(inner)}, text[1:]
        else:
            length = next((at for at, char in enumerate(text) if not char.isalnum()), len(text))
            column, text = {"name": name, "type": text[:length]}, text[length:]
        if text[:1] in ("*", "!"):
            column["mode"], text = ("REPEATED" if text[0] == "*" else "REQUIRED"), text[1:]
        found.append(column)
    return tuple(found), text


def publish_statements(plan: Publication) -> tuple[Statement, ...]:
    """The jobs that publish the batch, one per target, in no particular order. Raises `BadInput` for what cannot work.

    With a split, the destination itself is written only when unmatched rows are kept. `Unmatched.REFUSE` and
    `Unmatched.DROP` need the answer of `unmatched_statement` first and besides.
    """
    numbers = list(range(len(plan.shaping.branches)))
    if not numbers or plan.shaping.unmatched is Unmatched.KEEP:
        numbers.append(HOME)
    return tuple(publish_statement(plan, number) for number in numbers)


class JobFailed(Exception):  # noqa: N818 - reads as the state of the job
    """The job's error, and its SQL."""


class Tables:
    def __init__(self) -> None:
        self.objects = MemoryObjects()
        self.core = BigQueryCore(None, project=PROJECT, objects=self.objects, settings=BigQuerySettings(workers=0))
        for dataset in ("d", "temp"):
            self.core.metadata.insert_dataset(PROJECT, {"datasetReference": {"datasetId": dataset}})

    def make(self, name: str, schema: str, rows: Sequence[Mapping[str, Any]] = (), **resource: Any) -> TableShape:
        table = parse_table(name)
        described = {
            "tableReference": {"tableId": table.table},
            "schema": schema_rest(columns(schema)),
            **resource,
        }
        self.core.metadata.insert_table(PROJECT, table.dataset, described)
        if rows:
            uri = f"gs://b/{table.dataset}/{table.table}.json"
            self.objects.write(uri, "\n".join(json.dumps(row) for row in rows).encode(), "application/json")
            load = {
                "sourceUris": [uri],
                "sourceFormat": "NEWLINE_DELIMITED_JSON",
                "destinationTable": {"datasetId": table.dataset, "tableId": table.table},
            }
            self._run({"load": load})
        return self.shape(name)

    def shape(self, name: str) -> TableShape:
        table = parse_table(name).in_project(PROJECT)
        resource = self.core.metadata.get_table(PROJECT, table.dataset, table.table)
        return TableShape.of(table, resource)

    def run(self, statement: Statement) -> list[dict[str, Any]]:
        return self._run({str(statement.kind): dict(statement.configuration)})

    def publish(self, plan: Publication) -> int:
        """Run the publication; how many rows fit no branch."""
        count = unmatched_statement(plan)
        unmatched = int(self.run(count)[0]["unmatched"]) if count else 0
        for statement in publish_statements(plan):
            self.run(statement)
        return unmatched

    def rows(self, name: str, order: str = "1") -> list[dict[str, Any]]:
        """The rows as JSON values, in the order of their text."""
        table = parse_table(name)
        found = self.query(f"SELECT TO_JSON_STRING(t) AS row FROM {table.sql} AS t ORDER BY {order}")
        return [json.loads(row["row"]) for row in found]

    def query(self, sql: str) -> list[dict[str, Any]]:
        return self._run({"query": {"query": sql}})

    def _run(self, configuration: dict[str, Any]) -> list[dict[str, Any]]:
        kind, block = next(iter(configuration.items()))
        if kind == "query":
            block = {**block, "useLegacySql": False}
        job = self.core.wait(self.core.insert_job(PROJECT, {"configuration": {kind: block}}))
        if job.error is not None:
            raise JobFailed(f"{job.error.message}\n{block.get('query', '')}")
        if kind != "query" or "destinationTable" in block:
            return []
        answer = self.core.jobs.query_results(PROJECT, job.key.job_id, {})
        names = [column["name"] for column in (answer.get("schema") or {}).get("fields", [])]
        return [dict(zip(names, (cell["v"] for cell in row["f"]), strict=True)) for row in answer.get("rows", [])]
