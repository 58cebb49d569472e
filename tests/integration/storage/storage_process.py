"""A storage server to be killed: serves `sys.argv[1]`, prints its port, logs each notification as a line of JSON."""

import asyncio
import json
import os
import sys
from pathlib import Path

from ingestd.localcloud.http import HttpServer
from ingestd.localcloud.storage import StorageCore
from ingestd.localcloud.storage.server import make_handler
from ingestd.model.clock import SystemClock


async def main(root: Path, log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def publish(topic: str, data: bytes, attributes: dict[str, str]) -> None:
        os.write(descriptor, json.dumps({"topic": topic, "data": data.decode(), **attributes}).encode() + b"\n")

    core = StorageCore(root, project="p", clock=SystemClock(), publish=publish)
    server = HttpServer(make_handler(core))
    await server.start()
    print(server.port, flush=True)
    await asyncio.Event().wait()


asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
