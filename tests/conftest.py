"""A local cloud for the whole session, Google's real clients pointed at it, and names of one's own for each test."""

import os
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from tests.support import google
from tests.support.background import Background
from tests.support.google import PROJECT
from tests.support.jvm import LITTLE
from tests.support.waiting import HOPELESS

if TYPE_CHECKING:
    from ingestd.localcloud.cloud import LocalCloud
    from ingestd.localcloud.faults import FaultPlan

# Properties are about results: how long one example takes says more about the machine's other work. A failure prints
# what repeats it, since the example database of a fresh clone is gone with the clone. The same examples every time, so
# that nobody's change is held up by what is not in it; EXPLORE=1 looks for new ones.
settings.register_profile("ingestd", deadline=None, print_blob=True, derandomize="EXPLORE" not in os.environ)
settings.load_profile("ingestd")

# A developer's own cloud must never be reached by a test, nor sourced settings change one.
for name in list(os.environ):
    if name.endswith("_EMULATOR_HOST") or name.startswith(("INGESTD_", "CLOUDSDK_", "GOOGLE_CLOUD_PROJECT")):
        del os.environ[name]


# For the JVMs of all processes that tests start; whoever debugs one may have options of their own.
os.environ.setdefault("SPARK_SUBMIT_OPTS", LITTLE)

# What takes longest starts first, so that no worker is left alone with it at the end.
LONGEST = (
    "image",
    "seeds",
    "core-install",
    "spark",
    "newcomer",
    "local-command",
    "spark-cluster",
    "cookbook",
    "deployment-page",
    "spark-faults",
    "e2e-spark",
    "spark-connect",
    "dest-spark",
    "cloud-command",
    "console",
)


def pytest_report_header() -> str:
    from tests.support.spark.connector import told

    return told()


@pytest.hookimpl(trylast=True)  # after the folders below have put their tests into groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    real_time = [Path(__file__).parent / name for name in ("e2e", "integration")]
    for item in items:
        if item.get_closest_marker("timeout") is None and any(item.path.is_relative_to(one) for one in real_time):
            item.add_marker(pytest.mark.timeout(2 * HOPELESS))  # each of its waits has limits of its own

    def rank(item: pytest.Item) -> int:
        mark = item.get_closest_marker("xdist_group")
        return LONGEST.index(mark.args[0]) if mark and mark.args[0] in LONGEST else len(LONGEST)

    items.sort(key=rank)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line for each reason why tests were skipped: nobody should think they had passed."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", ())
        if isinstance(report.longrepr, tuple)
    )
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count}: {reason}")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Commands configure logging for the whole process, on streams that end with the test."""
    import logging

    import structlog

    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator["LocalCloud"]:
    """A running local cloud in a thread of its own, so that blocking clients can call it."""
    from ingestd.localcloud.cloud import LocalCloud

    running = LocalCloud(tmp_path_factory.mktemp("cloud"), PROJECT)
    beside = Background("local-cloud")
    try:
        beside.run(running.__aenter__())
        try:
            running.provision()
            yield running
        finally:
            beside.run(running.__aexit__(None, None, None))
    finally:
        beside.close()


@pytest.fixture
def faults(cloud: "LocalCloud") -> Iterator["FaultPlan"]:
    """Rehearsed failures, gone after the test."""
    yield cloud.faults
    cloud.faults.clear()


@pytest.fixture
def emulators(cloud: "LocalCloud", monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a terminal that sourced `env.sh`."""
    for variable, value in cloud.endpoints.environ().items():
        monkeypatch.setenv(variable, value)


@pytest.fixture(scope="session")
def storage_client(cloud: "LocalCloud") -> Iterator[Any]:
    client = google.storage_client(cloud.endpoints.storage)
    yield client
    client.close()


@pytest.fixture(scope="session")
def bigquery_client(cloud: "LocalCloud") -> Iterator[Any]:
    client = google.bigquery_client(cloud.endpoints.bigquery)
    yield client
    client.close()


@pytest.fixture(scope="session")
def publisher(cloud: "LocalCloud") -> Iterator[Any]:
    import grpc
    from google.pubsub_v1 import PublisherClient
    from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

    with grpc.insecure_channel(cloud.endpoints.pubsub) as channel:
        yield PublisherClient(transport=PublisherGrpcTransport(channel=channel))


@pytest.fixture(scope="session")
def subscriber(cloud: "LocalCloud") -> Iterator[Any]:
    import grpc
    from google.pubsub_v1 import SubscriberClient
    from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

    with grpc.insecure_channel(cloud.endpoints.pubsub) as channel:
        yield SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))


@pytest.fixture
def unique() -> str:
    """A name no other test uses."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def bucket(storage_client: Any, unique: str) -> str:
    """The name of an empty bucket."""
    storage_client.create_bucket(unique)
    return unique


@pytest.fixture
def dataset(bigquery_client: Any, unique: str) -> str:
    """The name of an empty dataset."""
    bigquery_client.create_dataset(unique)
    return unique


@pytest.fixture
def topic(publisher: Any, unique: str) -> str:
    """The full name of a topic."""
    return str(publisher.create_topic(name=f"projects/{PROJECT}/topics/{unique}").name)


@pytest.fixture
def subscription(subscriber: Any, topic: str, unique: str) -> str:
    """The full name of a subscription to `topic`."""
    name = f"projects/{PROJECT}/subscriptions/{unique}"
    return str(subscriber.create_subscription(name=name, topic=topic).name)
