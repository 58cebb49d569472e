"""A real local BigQuery on loopback over objects in memory."""

from pathlib import Path
from typing import Any

from google.cloud import bigquery
from tests.support.background import Background
from tests.support.google import PROJECT, bigquery_client
from tests.support.memory_objects import MemoryObjects

from ingestd.localcloud.bigquery.core import BigQueryCore
from ingestd.localcloud.bigquery.server import make_handler
from ingestd.localcloud.bigquery.settings import BigQuerySettings
from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.http import HttpServer


class LocalBigQuery:
    """The service in a thread of its own, so that blocking clients can call it."""

    def __init__(self, root: Path, settings: BigQuerySettings | None = None) -> None:
        self.objects = MemoryObjects()
        self.hooks = Hooks("bigquery")
        self.audit: list[dict[str, Any]] = []
        self.core = BigQueryCore(
            root,
            project=PROJECT,
            objects=self.objects,
            hooks=self.hooks,
            on_job_done=self.audit.append,
            settings=settings or BigQuerySettings(legacy_audit=True),
        )
        self._beside = Background("local-bigquery")
        self._server = HttpServer(make_handler(self.core))
        self._beside.run(self._server.start())
        self.endpoint = f"http://127.0.0.1:{self._server.port}"

    def stop(self) -> None:
        self._beside.run(self._server.stop())
        self._beside.close()
        self.core.close()

    def put(self, uri: str, data: bytes | str) -> str:
        self.objects.write(uri, data.encode() if isinstance(data, str) else data, "application/octet-stream")
        return uri

    def client(self) -> bigquery.Client:
        return bigquery_client(self.endpoint)
