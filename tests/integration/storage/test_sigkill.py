"""Killed without warning while many write: what was acknowledged is there, whole, and its notification was sent."""

import base64
import hashlib
import json
import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
import requests
from tests.support.killable import killable
from tests.support.waiting import HOPELESS, eventually

SCRIPT = Path(__file__).with_name("storage_process.py")
BUCKET = "durable"
SIZES = [0, 10, 5_000, 70_000, 300_000]


@contextmanager
def server(root: Path, log: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with killable(str(SCRIPT), str(root), str(log)) as (process, port):
        yield process, f"http://127.0.0.1:{port}"


class Writer(threading.Thread):
    """Writes, overwrites and deletes its own names until the server is gone, noting what was acknowledged."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__()
        self.url = url
        self.number = number
        self.acknowledged: dict[str, str | None] = {}  # the MD5 each name must have, None when deleted
        self.unsure: dict[str, str | None] = {}  # the one change that was under way when the server died
        self.generations: list[str] = []

    def run(self) -> None:
        chance = random.Random(self.number)
        with requests.Session() as session:
            for step in range(100_000):
                name = f"w{self.number}/{step if chance.random() < 0.7 else chance.randrange(step + 1)}"
                deleting = self.acknowledged.get(name) is not None and chance.random() < 0.4
                data = chance.randbytes(chance.choice(SIZES))
                md5 = None if deleting else base64.b64encode(hashlib.md5(data).digest()).decode()
                self.unsure = {name: md5}
                try:
                    if deleting:
                        path = f"{self.url}/storage/v1/b/{BUCKET}/o/{quote(name, safe='')}"
                        answer = session.delete(path, timeout=60)
                    else:
                        path = f"{self.url}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(name, safe='')}"
                        answer = session.post(path, data=data, timeout=60)
                        self.generations.append(answer.json()["generation"])
                except (requests.RequestException, ValueError):
                    return
                assert answer.ok
                self.acknowledged[name] = md5
                self.unsure = {}


@pytest.mark.parametrize("writes", [60, 300])
def test_every_acknowledged_write_and_its_notification_survive_sigkill(tmp_path: Path, writes: int) -> None:
    root, log = tmp_path / "state", tmp_path / "notifications"
    with server(root, log) as (process, url):
        requests.post(f"{url}/storage/v1/b?project=p", json={"name": BUCKET}, timeout=60).raise_for_status()
        config = {"topic": "//pubsub.googleapis.com/projects/p/topics/t", "payload_format": "JSON_API_V1"}
        notify = f"{url}/storage/v1/b/{BUCKET}/notificationConfigs"
        requests.post(notify, json=config, timeout=60).raise_for_status()
        writers = [Writer(url, number) for number in range(6)]
        for writer in writers:
            writer.start()

        def written() -> int:
            return sum(len(writer.generations) for writer in writers)

        eventually(lambda: written() >= writes, written)
        process.kill()
        for writer in writers:
            writer.join(HOPELESS)

    with server(root, log) as (_, url):
        listed: dict[str, dict[str, str]] = {}
        token = ""
        while True:
            page = requests.get(f"{url}/storage/v1/b/{BUCKET}/o?pageToken={token}", timeout=60).json()
            listed.update((item["name"], item) for item in page.get("items", ()))
            token = page.get("nextPageToken", "")
            if not token:
                break
        expected = {name: md5 for writer in writers for name, md5 in writer.acknowledged.items()}
        unsure = {name: md5 for writer in writers for name, md5 in writer.unsure.items()}
        for name, md5 in expected.items():
            found = listed.get(name, {}).get("md5Hash")
            assert found == md5 or (name in unsure and found == unsure[name]), name
        for name, item in listed.items():
            assert name in expected or name in unsure
            media = requests.get(f"{url}/storage/v1/b/{BUCKET}/o/{quote(name, safe='')}?alt=media", timeout=60)
            assert base64.b64encode(hashlib.md5(media.content).digest()).decode() == item["md5Hash"], "half-written"

    events = [json.loads(line) for line in log.read_text().splitlines()]
    finalized = {event["objectGeneration"] for event in events if event["eventType"] == "OBJECT_FINALIZE"}
    acknowledged = {generation for writer in writers for generation in writer.generations}
    assert acknowledged - finalized == set()
    assert {item["generation"] for item in listed.values()} - finalized == set()
    assert all(json.loads(event["data"])["generation"] == event["objectGeneration"] for event in events)
    files = list((root / "objects").glob("*/*"))
    assert len(files) == sum(1 for item in listed.values() if int(item["size"]) > 64 * 1024)
