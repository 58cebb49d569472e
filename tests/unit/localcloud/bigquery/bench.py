"""A BigQuery core driven by hand: its clock stands still, its jobs run when told."""

from typing import Any

from tests.support.manual_clock import ManualClock
from tests.support.memory_objects import MemoryObjects

from ingestd.localcloud.bigquery.core import BigQueryCore
from ingestd.localcloud.bigquery.jobs import Job
from ingestd.localcloud.bigquery.settings import BigQuerySettings

FIELDS = [{"name": "id", "type": "INTEGER"}, {"name": "name", "type": "STRING"}]


class Bench:
    """A core in memory with one dataset `d`, and shorthands."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.objects = MemoryObjects()
        self.audit: list[dict[str, Any]] = []
        self.core = BigQueryCore(
            None,
            project="p",
            objects=self.objects,
            clock=self.clock,
            on_job_done=self.audit.append,
            settings=BigQuerySettings(workers=0, **settings),
        )
        self.core.metadata.insert_dataset("p", {"datasetReference": {"datasetId": "d"}})

    def create(self, name: str = "t", **resource: Any) -> dict[str, Any]:
        described = {"tableReference": {"tableId": name}, "schema": {"fields": FIELDS}, **resource}
        return self.core.metadata.insert_table("p", "d", described)

    def start(self, table: str = "t", content: str = '{"id": 1}\n', job_id: str = "", **load: Any) -> Job:
        uri = f"gs://b/{len(self.objects.match('gs://b/*'))}.json"
        self.objects.write(uri, content.encode(), "application/json")
        configuration = {
            "sourceUris": [uri],
            "sourceFormat": "NEWLINE_DELIMITED_JSON",
            "destinationTable": {"datasetId": "d", "tableId": table},
            **load,
        }
        reference = {"jobId": job_id} if job_id else {}
        return self.core.insert_job("p", {"jobReference": reference, "configuration": {"load": configuration}})

    def load(self, table: str = "t", content: str = '{"id": 1}\n', **load: Any) -> Job:
        return self.core.wait(self.start(table, content, **load))

    def rows(self, table: str = "t") -> list[list[Any]]:
        answer = self.core.tabledata.list_rows("p", "d", table, {})
        return [[cell["v"] for cell in row["f"]] for row in answer.get("rows", [])]
