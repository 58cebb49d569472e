"""Every case of one engine on one daemon, side by side: set up, files let in at once, each case watched by its test."""

import json
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from google.api_core.exceptions import NotFound
from google.cloud import bigquery
from tests.e2e.dest.cases import Case, Table, load_cases
from tests.support.e2e.world import World
from tests.support.tables import columns
from tests.support.waiting import early_in_a_window, eventually

TEMP = "temp"
PATIENCE = 40.0  # since the daemon last said anything: it has nothing left to do
_AT_ONCE = 8
_WINDOW = 1  # seconds, of the cases that have one
_SETTINGS: dict[str, Any] = {
    "windows": {"grace": "500ms", "late_patience": "2s"},
    # Nobody dies here, and a hundred batches at once take their time.
    "recovery": {"lease": "20s", "sweep_every": "1s"},
}


class Stage:
    def __init__(self, world: World, engine: str, chosen: Collection[str], **settings: Any) -> None:
        self.world = world
        every = load_cases(engine, world.project, world.trigger, world.ops)
        self.cases = [case for case in every if case.name in chosen]
        self.by_name = {case.name: case for case in self.cases}
        self._client = world.bigquery
        self._client.create_dataset(TEMP)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self._set_up, self.cases))
        self.daemon = world.start(
            engine=engine, **_SETTINGS | {"corrupted_file_url": f"gs://{world.ops}/bad"} | settings
        )
        if engine == "spark":
            self.daemon.heard("spark.ready")
        for case in self.cases:
            if len(case.files) > 1:
                early_in_a_window(_WINDOW, room=0.7)  # its files load together: what one replaces is the other's, too
                self._upload_all(case)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self._upload_all, [case for case in self.cases if len(case.files) == 1]))

    def _set_up(self, case: Case) -> None:
        self._client.create_dataset(case.dataset)
        for name, table in case.tables.items():
            self._make(f"{self.world.project}.{case.dataset}.{name}", table)
        for name, text in case.objects.items():
            self.world.storage.bucket(self.world.ops).blob(name).upload_from_string(text)
        self.world.rule(list(case.rules), f"{case.dataset}.json")

    def _make(self, name: str, table: Table) -> None:
        schema = [bigquery.SchemaField.from_api_repr(column.rest()) for column in columns(table.schema)]
        wanted = bigquery.Table(name, schema=schema)
        if table.partition is not None:
            wanted.time_partitioning = bigquery.TimePartitioning(field=table.partition or None)
        if table.cluster:
            wanted.clustering_fields = list(table.cluster)
        self._client.create_table(wanted)
        if table.rows:
            config = bigquery.LoadJobConfig(source_format="NEWLINE_DELIMITED_JSON", schema=schema)
            self._client.load_table_from_json(table.rows, name, job_config=config).result()

    def _upload_all(self, case: Case) -> None:
        for name, content in case.files.items():
            self.world.storage.bucket(self.world.trigger).blob(name).upload_from_string(content)

    def watch(self, case: Case) -> None:
        """Wait until the case is as expected, or fail with what is there instead."""
        eventually(
            lambda: not self.difference(case),
            lambda: (self.difference(case), self._said_about(case)),
            signs=lambda: self.daemon.log.stat().st_size,
            still=PATIENCE,
        )

    def _said_about(self, case: Case) -> list[dict[str, Any]]:
        """The daemon's warnings about the case."""
        loud = [
            one
            for one in self.daemon.said()
            if one.get("severity", one.get("level", "")).lower() not in ("info", "debug")
        ]
        return [one for one in loud if case.dataset in json.dumps(one)]

    def difference(self, case: Case) -> dict[str, Any]:
        """What is not as expected, by table or file; empty when all is."""
        found: dict[str, Any] = {}
        for name, expected in case.expect.items():
            actual = self.rows(f"{case.dataset}.{name}")
            if not _equal(expected, actual, loose=case.loose):
                found[name] = {"expected": expected, "actual": actual}
        there = [name for name in case.files if self.world.exists(name)]
        if sorted(there) != sorted(case.kept):
            found["files"] = {"expected": sorted(case.kept), "actual": sorted(there)}
        return found or self._descriptions(case)

    def _descriptions(self, case: Case) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, model in case.like.items():
            one, two = self._described(case, name), self._described(case, model)
            keys = ("schema", "timePartitioning", "clustering")
            if any(one.get(key) != two.get(key) for key in keys):
                found[name] = {
                    "expected": {key: two.get(key) for key in keys},
                    "actual": {key: one.get(key) for key in keys},
                }
        found |= {
            name: "does not expire" for name in case.expires if not self._described(case, name).get("expirationTime")
        }
        found |= {name: "still there" for name in case.missing if self.rows(f"{case.dataset}.{name}") is not None}
        return found

    def _described(self, case: Case, name: str) -> dict[str, Any]:
        return dict(self._client.get_table(f"{self.world.project}.{case.dataset}.{name}").to_api_repr())

    def rows(self, table: str) -> list[dict[str, Any]] | None:
        """The table's rows as plain values; None when there is no such table."""
        try:
            return [_plain(dict(row.items())) for row in self._client.list_rows(f"{self.world.project}.{table}")]
        except NotFound:
            return None

    def own_tables(self) -> Iterator[str]:
        """Tables that batches made for themselves and have not dropped."""
        for dataset in self._client.list_datasets():
            for table in self._client.list_tables(dataset.reference):
                if dataset.dataset_id.endswith(TEMP) or "__ingestd_" in table.table_id:
                    yield f"{table.dataset_id}.{table.table_id}"


def _equal(expected: list[dict[str, Any]], actual: list[dict[str, Any]] | None, *, loose: bool) -> bool:
    if actual is None:
        return False
    anything = {key for row in expected for key, value in row.items() if value == "ANY"}
    seen = [
        {key: "ANY" if key in anything and value is not None else value for key, value in row.items()} for row in actual
    ]
    if loose:
        return all(row in seen for row in expected)
    return sorted(map(_text, expected)) == sorted(map(_text, seen))


def _text(row: Mapping[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value
