"""Operations per second of the local Cloud Storage, in a process of its own, seen by two clients.

The raw client is a bare asyncio HTTP client on keep-alive connections, so it measures the server; Google's client
measures what a user of the real library gets. Both run the same mix: insert, metadata, download, list, delete.
"""

import argparse
import asyncio
import json
import statistics
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.servers import cpu_seconds, http_server

TARGET = 2_500
CONNECTIONS = 16
CLIENT_THREADS = 4
PAYLOAD = b"x" * 512
BUCKET = "bench"
OPERATIONS = ("insert", "get", "download", "list", "delete")


def serve(root: Path) -> None:
    """The server process: prints its port, then serves until it is terminated."""
    import uvloop

    from ingestd.localcloud.http import HttpServer
    from ingestd.localcloud.storage import StorageCore
    from ingestd.localcloud.storage.server import make_handler
    from ingestd.model.clock import SystemClock

    async def main() -> None:
        core = StorageCore(root, project="bench", clock=SystemClock(), publish=lambda *_: None)
        core.buckets.insert({"name": BUCKET})
        core.buckets.insert_notification(BUCKET, {"topic": "//pubsub.googleapis.com/projects/bench/topics/t"})
        server = HttpServer(make_handler(core))
        await server.start()
        print(server.port, flush=True)
        await asyncio.Event().wait()

    uvloop.run(main())


class RawConnection:
    """Just enough HTTP/1.1 to keep one connection busy."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    def close(self) -> None:
        self._writer.close()

    async def call(self, method: str, path: str, body: bytes = b"") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost:{self._port}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        at = answer.find(b"content-length: ") + 16
        length = int(answer[at : answer.index(b"\r", at)])
        content = await self._reader.readexactly(length) if length else b""
        if not answer.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"{method} {path}: {answer[:40]!r} {content[:200]!r}")
        return content


async def _raw(port: int, seconds: float) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    waits: dict[str, list[float]] = {name: [] for name in OPERATIONS}
    start = time.perf_counter()
    deadline = start + seconds

    async def worker(number: int) -> None:
        connection = RawConnection(port)
        await connection.open()
        folder = f"w{number}"
        sequence = 0
        while time.perf_counter() < deadline:
            sequence += 1
            name = f"{folder}%2F{sequence}"
            for operation, method, path, body in (
                ("insert", "POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={name}", PAYLOAD),
                ("get", "GET", f"/storage/v1/b/{BUCKET}/o/{name}", b""),
                ("download", "GET", f"/download/storage/v1/b/{BUCKET}/o/{name}?alt=media", b""),
                ("list", "GET", f"/storage/v1/b/{BUCKET}/o?prefix={folder}%2F&maxResults=10", b""),
                ("delete", "DELETE", f"/storage/v1/b/{BUCKET}/o/{name}", b""),
            ):
                before = time.perf_counter()
                content = await connection.call(method, path, body)
                waits[operation].append(time.perf_counter() - before)
                counts[operation] += 1
                if operation == "download" and content != PAYLOAD:
                    raise RuntimeError("the downloaded bytes are not the uploaded ones")
        connection.close()

    await asyncio.gather(*(worker(number) for number in range(CONNECTIONS)))
    elapsed = time.perf_counter() - start
    return {
        "ops": sum(counts.values()),
        "ops_per_second": round(sum(counts.values()) / elapsed),
        "connections": CONNECTIONS,
        "median_ms": {name: round(statistics.median(values) * 1000, 2) for name, values in waits.items()},
        "p99_ms": {name: round(sorted(values)[int(len(values) * 0.99)] * 1000, 2) for name, values in waits.items()},
    }


def _client(port: int, seconds: float) -> dict[str, Any]:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    counts: Counter[int] = Counter()
    start = time.perf_counter()
    deadline = start + seconds

    def worker(number: int) -> None:
        client = storage.Client(
            project="bench",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": f"http://127.0.0.1:{port}"},
        )
        bucket = client.bucket(BUCKET)
        sequence = 0
        while time.perf_counter() < deadline:
            sequence += 1
            blob = bucket.blob(f"c{number}/{sequence}")
            blob.upload_from_string(PAYLOAD)
            blob.reload()
            blob.download_as_bytes()
            list(client.list_blobs(BUCKET, prefix=f"c{number}/", max_results=10))
            blob.delete()
            counts[number] += len(OPERATIONS)
        client.close()

    threads = [threading.Thread(target=worker, args=(number,)) for number in range(CLIENT_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - start
    return {"ops_per_second": round(sum(counts.values()) / elapsed), "threads": CLIENT_THREADS}


def run(seconds: float = 5.0) -> dict[str, Any]:
    """Measure both clients, `seconds` each, against one fresh server process."""
    import uvloop

    with http_server("bench.localcloud_storage") as (port, pid):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_raw(port, min(seconds, 0.5)))
            before = cpu_seconds(pid)
            raw = runner.run(_raw(port, seconds))
            raw["server_cpu_us_per_op"] = round((cpu_seconds(pid) - before) / raw["ops"] * 1e6)
        client = _client(port, seconds)
    return {
        "service": "storage",
        "raw": raw,
        "client": client,
        "target_raw_ops_per_second": TARGET,
        "raw_over_target": round(raw["ops_per_second"] / TARGET, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    result = run(options.seconds)
    raw, client = result["raw"], result["client"]
    print(f"local Cloud Storage, {len(PAYLOAD)} B objects, notifications on")
    print(f"{'raw asyncio HTTP':<24}{raw['ops_per_second']:>8,} ops/s   {raw['connections']} connections")
    print(f"{'google-cloud-storage':<24}{client['ops_per_second']:>8,} ops/s   {client['threads']} threads")
    print(f"{'target (raw)':<24}{TARGET:>8,} ops/s   reached {result['raw_over_target']:.2f}x")
    print(f"{'server CPU':<24}{raw['server_cpu_us_per_op']:>8,} us/op")
    print(f"{'operation':<12}{'median ms':>12}{'p99 ms':>10}")
    for name in OPERATIONS:
        print(f"{name:<12}{raw['median_ms'][name]:>12.2f}{raw['p99_ms'][name]:>10.2f}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
