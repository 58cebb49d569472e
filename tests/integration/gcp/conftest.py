"""One local cloud, reached in two ways: by Google's clients over the wire, and by the bindings to its cores."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest
from tests.support.bindings import CorePublisher, CoreStore, CoreSubscription, CoreWarehouse
from tests.support.google import PROJECT

from ingestd.gcp.connect import ClientOptions, connect
from ingestd.localcloud.cloud import LocalCloud
from ingestd.localcloud.faults import Fault, FaultKind, FaultPlan
from ingestd.localcloud.pubsub import wire
from ingestd.model.clock import SystemClock
from ingestd.ports import ObjectStore, Publisher, Subscription, Warehouse
from ingestd.retry import Retrier, RetryPolicy

PATIENCE = timedelta(milliseconds=300)
QUICK = RetryPolicy(
    attempts=4,
    total=timedelta(seconds=10),
    first_wait=timedelta(milliseconds=10),
    longest_wait=timedelta(milliseconds=50),
)


@dataclass(frozen=True, slots=True)
class Ports:
    store: ObjectStore
    warehouse: Warehouse
    publisher: Publisher
    subscription: Callable[[str], Subscription]


@pytest.fixture(params=["wire", "bindings"])
async def ports(request: pytest.FixtureRequest, cloud: LocalCloud) -> AsyncIterator[Ports]:
    if request.param == "wire":
        options = ClientOptions(retry=QUICK, pull_timeout=PATIENCE)
        async with connect(PROJECT, options=options, environment=cloud.endpoints.environ()) as clients:
            yield Ports(clients.store, clients.warehouse, clients.publisher, clients.subscription)
        return
    clock = SystemClock()
    retrier = Retrier(QUICK, clock)
    yield Ports(
        CoreStore(cloud.storage, clock, retrier),
        CoreWarehouse(cloud.bigquery, clock, retrier),
        CorePublisher(cloud.pubsub, PROJECT, clock, retrier),
        lambda name: CoreSubscription(
            cloud.pubsub, f"projects/{PROJECT}/subscriptions/{name}", clock, retrier, patience=PATIENCE
        ),
    )


@pytest.fixture
def topic(cloud: LocalCloud, unique: str) -> str:
    """The short name of a topic that has a subscription of the same name."""
    name = unique
    cloud.pubsub.create_topic(wire.Topic(name=f"projects/{PROJECT}/topics/{name}"))
    cloud.pubsub.create_subscription(
        wire.Subscription(
            name=f"projects/{PROJECT}/subscriptions/{name}",
            topic=f"projects/{PROJECT}/topics/{name}",
            ack_deadline_seconds=10,
        )
    )
    return name


@pytest.fixture
def fault(faults: FaultPlan) -> Callable[..., None]:
    def add(service: str, method: str, kind: FaultKind = FaultKind.FAIL, **fields: object) -> None:
        faults.add(Fault(service, method, kind, **fields))  # type: ignore[arg-type]

    return add
