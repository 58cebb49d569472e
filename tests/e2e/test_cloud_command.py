"""`ingestd cloud` as a user meets it: a process, a folder, Google's clients."""

import json
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc
import httpx
import pytest
from google.api_core.exceptions import DeadlineExceeded, GoogleAPIError
from google.cloud import bigquery
from google.pubsub_v1 import PublisherClient, SubscriberClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport
from tests.support.children import alive
from tests.support.e2e.cloud_process import Command, cloud_command
from tests.support.google import bigquery_client, storage_client
from tests.support.waiting import HOPELESS, ended, eventually

pytestmark = pytest.mark.xdist_group("cloud-command")


@dataclass
class Clients:
    """Google's own clients, pointed at one cloud."""

    endpoints: dict[str, str]
    stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        project = self.endpoints["project"]
        self.storage = storage_client(self.endpoints["storage"], project)
        self.stack.callback(self.storage.close)
        self.bigquery = bigquery_client(self.endpoints["bigquery"], project)
        self.stack.callback(self.bigquery.close)
        channel = self.stack.enter_context(grpc.insecure_channel(self.endpoints["pubsub"]))
        self.publisher = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        self.subscriber = SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def pull(self, subscription: str, wanted: Callable[[Any], bool]) -> Any:
        """The first message that fits; the others are acknowledged and forgotten."""
        path = f"projects/{self.endpoints['project']}/subscriptions/{subscription}"
        others = 0

        def fitting() -> Any:
            nonlocal others
            pulled = self.subscriber.pull(subscription=path, max_messages=10, timeout=60).received_messages
            if pulled:
                self.subscriber.acknowledge(subscription=path, ack_ids=[one.ack_id for one in pulled])
            others += len(pulled)
            return next((one.message for one in pulled if wanted(one.message)), None)

        return eventually(fitting, lambda: f"no fitting message on {subscription} among {others}")


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with cloud_command(tmp_path_factory.mktemp("cloud"), "--provision") as running:
        yield running


@pytest.fixture
def clients(command: Command) -> Iterator[Clients]:
    with Clients(command.endpoints) as connected:
        yield connected


def test_it_is_ready_with_two_seconds_of_work(tmp_path: Path) -> None:
    """Of the processor's time: how long that takes depends on what else the machine does."""
    command = [sys.executable, "-m", "ingestd", "cloud", "--state", str(tmp_path)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        running = Command(process, tmp_path, time.monotonic())
        running.wait_until_ready()
        assert httpx.get(f"{running.endpoints['storage']}/_ingestd/health", trust_env=False).json()["status"] == "ok"
        process.terminate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5  # under 2 s if nobody disturbs it


def test_endpoints_json_and_env_sh_say_the_same(command: Command) -> None:
    endpoints = command.endpoints
    assert endpoints["project"] == "play"
    assert endpoints["storage"].startswith("http://127.0.0.1:")
    assert endpoints["bigquery"].startswith("http://127.0.0.1:")
    assert endpoints["pubsub"].startswith("127.0.0.1:")
    names = "$STORAGE_EMULATOR_HOST $PUBSUB_EMULATOR_HOST $BIGQUERY_EMULATOR_HOST $GOOGLE_CLOUD_PROJECT"
    script = f". {command.state}/env.sh && echo {names}"
    shown = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert shown == [endpoints[name] for name in ("storage", "pubsub", "bigquery", "project")]


def test_it_listens_on_loopback_only(command: Command) -> None:
    """Every listening socket of the process, as the kernel tells it."""
    own = set()
    for descriptor in Path(f"/proc/{command.process.pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            own.add(target[8:-1])
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{command.process.pid}/net/{table}").read_text().splitlines()[1:]:
            local, state, inode = line.split()[1], line.split()[3], line.split()[9]
            if state == "0A" and inode in own:
                listening.append(local.partition(":")[0])
    assert len(listening) >= 3
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1, and the same in IPv6 clothes
    assert set(listening) <= loopback


def test_a_second_cloud_on_the_same_folder_is_refused(command: Command) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "ingestd", "cloud", "--state", str(command.state)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert second.returncode == 1
    assert f"another local cloud (process {command.process.pid}) uses {command.state}" in second.stderr
    assert len(second.stderr.splitlines()) == 1


def test_a_busy_port_is_one_readable_line(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = str(busy.getsockname()[1])
        for option in ("--storage-port", "--pubsub-port", "--bigquery-port"):
            ended = subprocess.run(
                [sys.executable, "-m", "ingestd", "cloud", "--state", str(tmp_path), option, port],
                capture_output=True,
                text=True,
                timeout=500,
                check=False,
            )
            assert ended.returncode == 1, option
            assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
            assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly_and_at_once(tmp_path: Path, number: signal.Signals) -> None:
    with cloud_command(tmp_path, "--provision") as running, Clients(running.endpoints) as clients:
        clients.storage.bucket("play-trigger").blob("kept").upload_from_string("x")  # a connection stays open
        running.process.send_signal(number)
        assert ended(running.process) == 0


def test_a_waiting_pull_does_not_delay_the_stop(tmp_path: Path) -> None:
    with cloud_command(tmp_path, "--provision") as running, Clients(running.endpoints) as clients:
        subscription = "projects/play/subscriptions/ingestd-notifications"
        answers: list[str] = []

        def wait_for_nothing() -> None:
            try:
                clients.subscriber.pull(subscription=subscription, max_messages=1, timeout=HOPELESS, retry=None)
            except DeadlineExceeded:
                answers.append("nothing came")
            except GoogleAPIError:
                answers.append("refused")
            else:
                answers.append("empty")

        waiting = threading.Thread(target=wait_for_nothing)
        waiting.start()
        time.sleep(0.5)
        running.process.terminate()
        assert ended(running.process) == 0
        waiting.join(HOPELESS)
        assert answers == ["refused"], "the stop came first"


def test_an_upload_is_announced_and_its_load_job_reported(command: Command, clients: Clients) -> None:
    blob = clients.storage.bucket("play-trigger").blob("data/people.json")
    blob.upload_from_string('{"name": "Ada", "born": 1815}\n{"name": "Grace", "born": 1906}\n')
    announced = clients.pull("ingestd-notifications", lambda m: m.attributes.get("objectId") == "data/people.json")
    assert announced.attributes["eventType"] == "OBJECT_FINALIZE"
    assert announced.attributes["bucketId"] == "play-trigger"
    assert announced.attributes["objectGeneration"] == str(blob.generation)
    assert json.loads(announced.data)["size"] == str(blob.size)

    clients.bigquery.create_dataset("people", exists_ok=True)
    job = clients.bigquery.load_table_from_uri(
        "gs://play-trigger/data/people.json",
        "people.all",
        job_id="load-people",
        job_config=bigquery.LoadJobConfig(source_format="NEWLINE_DELIMITED_JSON", autodetect=True),
    )
    assert job.result().output_rows == 2
    entry = json.loads(clients.pull("ingestd-completions", lambda m: b"load-people" in m.data).data)
    change = entry["protoPayload"]["metadata"]["jobChange"]
    assert change["after"] == "DONE"
    assert change["job"]["jobName"] == "projects/play/jobs/load-people"
    assert sorted(row["name"] for row in clients.bigquery.query("SELECT name FROM people.all").result()) == [
        "Ada",
        "Grace",
    ]


def test_a_completion_carries_the_attribute_a_log_sink_sets(command: Command, clients: Clients) -> None:
    clients.bigquery.query("SELECT 1", job_id="one", job_retry=None).result()
    message = clients.pull("ingestd-completions", lambda m: b"projects/play/jobs/one" in m.data)
    assert message.attributes["logging.googleapis.com/timestamp"] == json.loads(message.data)["timestamp"]


def test_ports_and_everything_else_survive_a_restart(tmp_path: Path) -> None:
    with cloud_command(tmp_path) as running:
        before = running.endpoints
        with Clients(before) as clients:
            clients.storage.create_bucket("kept").blob("a").upload_from_string("1")
            clients.publisher.create_topic(name="projects/play/topics/kept")
            clients.bigquery.create_dataset("kept")
        running.process.terminate()
        assert ended(running.process) == 0
    with cloud_command(tmp_path) as again, Clients(again.endpoints) as clients:
        assert again.endpoints == before
        assert clients.storage.bucket("kept").blob("a").download_as_text() == "1"
        assert clients.publisher.get_topic(topic="projects/play/topics/kept").name
        assert clients.bigquery.get_dataset("kept").dataset_id == "kept"


class Writer(threading.Thread):
    """Writes as fast as it can and remembers what was acknowledged, until the cloud is gone."""

    def __init__(self, write: Callable[[int], None]) -> None:
        super().__init__()
        self._write = write
        self.acknowledged: list[int] = []
        self.error: Exception | None = None

    def run(self) -> None:
        number = 0
        while True:
            try:
                self._write(number)
            except Exception as error:  # noqa: BLE001 - the cloud was killed: whatever the client makes of it
                self.error = error
                return
            self.acknowledged.append(number)
            number += 1


def test_a_kill_in_the_middle_of_writes_loses_none_that_was_acknowledged(tmp_path: Path) -> None:
    with cloud_command(tmp_path) as running, Clients(running.endpoints) as clients:
        bucket = clients.storage.create_bucket("writes")
        topic = clients.publisher.create_topic(name="projects/play/topics/writes").name
        subscription = clients.subscriber.create_subscription(
            name="projects/play/subscriptions/writes", topic=topic, ack_deadline_seconds=10
        ).name
        clients.bigquery.create_dataset("writes")
        clients.bigquery.create_table(bigquery.Table("play.writes.rows", [bigquery.SchemaField("n", "INTEGER")]))

        def upload(number: int) -> None:
            bucket.blob(f"o{number:06}").upload_from_string(b"x" * (number % 7) * 20_000, timeout=5, retry=None)

        def publish(number: int) -> None:
            messages = [{"data": str(number).encode()}]
            clients.publisher.publish(topic=topic, messages=messages, retry=None, timeout=5)

        def insert(number: int) -> None:
            rows = [json.dumps({"n": number}).encode()]
            config = bigquery.LoadJobConfig(source_format="NEWLINE_DELIMITED_JSON")
            with ExitStack() as stack:
                file = stack.enter_context((tmp_path / "row.json").open("w+b"))
                file.writelines(rows)
                file.seek(0)
                job = clients.bigquery.load_table_from_file(
                    file, "writes.rows", job_config=config, timeout=5, num_retries=0
                )
            job.result(timeout=5, retry=None)

        writers = [Writer(upload), Writer(publish), Writer(insert)]
        for writer in writers:
            writer.start()

        def written() -> list[int]:
            return [len(writer.acknowledged) for writer in writers]

        eventually(lambda: min(written()) >= 15 or any(writer.error for writer in writers), written)
        running.process.kill()
        for writer in writers:
            writer.join(HOPELESS)
            assert not writer.is_alive()
    uploads, messages, rows = (writer.acknowledged for writer in writers)
    assert min(len(uploads), len(messages), len(rows)) >= 15, [writer.error for writer in writers]

    with cloud_command(tmp_path) as again, Clients(again.endpoints) as clients:
        stored = {blob.name: blob for blob in clients.storage.list_blobs("writes")}
        assert {f"o{number:06}" for number in uploads} <= set(stored)
        for number in uploads:
            assert stored[f"o{number:06}"].download_as_bytes() == b"x" * (number % 7) * 20_000
        received: set[int] = set()

        def all_there() -> bool:
            nonlocal received
            pulled = clients.subscriber.pull(subscription=subscription, max_messages=1000, timeout=60).received_messages
            received |= {int(one.message.data) for one in pulled}
            return set(messages) <= received

        eventually(all_there, lambda: f"only {sorted(received)} of {messages}")
        counts = {
            row["n"]: row["c"] for row in clients.bigquery.query("SELECT n, COUNT(*) AS c FROM writes.rows GROUP BY n")
        }
        assert set(rows) <= set(counts)
        assert set(counts.values()) == {1}


def test_it_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    """As the child of `ingestd local`: an orphan would keep the folder and the ports."""
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'ingestd', 'cloud', '--state', sys.argv[1], '--parent',"
        " str(os.getpid())], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(3600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    eventually(lambda: not alive(child), "the cloud outlived its parent")
