"""The local cloud's own BigQuery in a simulation, in place of the plain one: slower, and the measure of it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.support.sim.names import DATASET

from ingestd.localcloud.bigquery.core import BigQueryCore
from ingestd.localcloud.bigquery.jobs import Job
from ingestd.localcloud.bigquery.settings import BigQuerySettings
from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.feeds import StoredObjects
from ingestd.model.clock import Clock


class RealBigQuery(BigQueryCore):
    def __init__(
        self,
        *,
        project: str,
        clock: Clock,
        hooks: Hooks,
        objects: StoredObjects,
        on_job_done: Callable[[dict[str, Any]], None],
        latency: Callable[[], float],
    ) -> None:
        settings = BigQuerySettings(workers=0, job_latency=timedelta(seconds=latency()))
        super().__init__(
            None,
            project=project,
            clock=clock,
            hooks=hooks,
            objects=objects,
            on_job_done=on_job_done,
            settings=settings,
        )
        self.metadata.insert_dataset(project, {"datasetReference": {"datasetId": DATASET}})

    def insert_job(self, project: str, resource: Any) -> Job:
        job = super().insert_job(project, resource)
        latency = self.settings.job_latency.total_seconds()
        for moment in (latency / 2, latency, latency + 1):
            asyncio.get_running_loop().call_later(moment + 0.01, self.run_pending)
        return job

    def rows(self) -> dict[str, Counter[int]]:
        found: dict[str, Counter[int]] = {}
        for dataset, name in self._tables():
            page = self.tabledata.list_rows(self.project, dataset, name, {"maxResults": 10_000})
            found[f"{dataset}.{name}"] = Counter(int(row["f"][0]["v"]) for row in page.get("rows", ()))
        return found

    def expiring(self) -> dict[str, bool]:
        """Every table, and whether it goes by itself."""
        resources = {one: self.metadata.get_table(self.project, *one) for one in self._tables()}
        return {".".join(one): "expirationTime" in resource for one, resource in resources.items()}

    def _tables(self) -> list[tuple[str, str]]:
        listed = self.metadata.list_datasets(self.project, {}).get("datasets", ())
        datasets = [one["datasetReference"]["datasetId"] for one in listed]
        return [
            (dataset, table["tableReference"]["tableId"])
            for dataset in datasets
            for table in self.metadata.list_tables(self.project, dataset, {}).get("tables", ())
        ]
