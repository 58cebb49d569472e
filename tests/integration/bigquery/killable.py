"""A local BigQuery in a process of its own that a test may kill: `python -m tests.integration.bigquery.killable DIR`.

Objects are the files of `DIR/objects`; audit entries are appended to `DIR/audit.jsonl`; the port goes to stdout.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import orjson

from ingestd.localcloud.bigquery.core import BigQueryCore
from ingestd.localcloud.bigquery.files.objects import Objects, SourceObject
from ingestd.localcloud.bigquery.server import make_handler
from ingestd.localcloud.http import HttpServer


class FolderObjects(Objects):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def match(self, uri: str) -> list[SourceObject]:
        file = self._folder / uri.rpartition("/")[2]
        return [SourceObject(uri, file.stat().st_size, 1)] if file.exists() else []

    def read(self, uri: str) -> bytes:
        return (self._folder / uri.rpartition("/")[2]).read_bytes()

    def write(self, uri: str, data: bytes, content_type: str) -> None:
        (self._folder / uri.rpartition("/")[2]).write_bytes(data)


async def serve(root: Path) -> None:
    audit = os.open(root / "audit.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def deliver(entry: dict[str, Any]) -> None:
        os.write(audit, orjson.dumps(entry) + b"\n")

    core = BigQueryCore(
        root / "state", project="test-project", objects=FolderObjects(root / "objects"), on_job_done=deliver
    )
    server = HttpServer(make_handler(core))
    await server.start()
    print(server.port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
