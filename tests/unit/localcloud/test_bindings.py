"""The bindings in virtual time: nothing waits for real, everything happens in order."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.bindings import CorePublisher, CoreStore, CoreSubscription, CoreWarehouse
from tests.support.manual_clock import ManualClock

from ingestd.localcloud.bigquery.core import BigQueryCore
from ingestd.localcloud.bigquery.settings import BigQuerySettings
from ingestd.localcloud.faults import Fault, FaultKind, FaultPlan, Hooks
from ingestd.localcloud.feeds import StoredObjects
from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.storage import StorageCore
from ingestd.model.errors import Transient
from ingestd.model.jobs import JobKind, JobRef, JobRequest
from ingestd.model.objects import ABSENT, ObjectRef
from ingestd.model.tables import TableName
from ingestd.retry import Retrier, RetryPolicy

SUBSCRIPTION = "projects/proj/subscriptions/reader"
SCHEMA = {"fields": [{"name": "id", "type": "INTEGER"}]}


class Cores:
    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.faults = FaultPlan()
        self.storage = StorageCore(folder, project="proj", clock=self.clock, hooks=Hooks("storage", self.faults))
        self.storage.buckets.insert({"name": "inbox"})
        self.pubsub = PubSubCore(None, clock=self.clock, hooks=Hooks("pubsub", self.faults))
        self.pubsub.create_topic(wire.Topic(name="projects/proj/topics/news"))
        self.pubsub.create_subscription(
            wire.Subscription(name=SUBSCRIPTION, topic="projects/proj/topics/news", ack_deadline_seconds=60)
        )
        self.bigquery = BigQueryCore(
            None,
            project="proj",
            objects=StoredObjects(self.storage),
            clock=self.clock,
            hooks=Hooks("bigquery", self.faults),
            settings=BigQuerySettings(workers=0, job_latency=timedelta(seconds=30)),
        )
        self.bigquery.metadata.insert_dataset("proj", {"datasetReference": {"datasetId": "ds"}})

    def close(self) -> None:
        self.bigquery.close()
        self.pubsub.close()
        self.storage.close()

    async def passes(self, seconds: float) -> None:
        """Let virtual time go by, a little at a time, so that whoever wakes can act and sleep again."""
        for _ in range(round(seconds / 0.5)):
            for _ in range(10):
                await asyncio.sleep(0)
            self.clock.advance(timedelta(seconds=0.5))
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.fixture
def cores(tmp_path: Path) -> Iterator[Cores]:
    made = Cores(tmp_path)
    yield made
    made.close()


async def test_an_empty_pull_ends_when_its_patience_does(cores):
    reader = CoreSubscription(cores.pubsub, SUBSCRIPTION, cores.clock, patience=timedelta(seconds=10))
    pull = asyncio.create_task(reader.pull(10))
    await cores.passes(9)
    assert not pull.done()
    await cores.passes(2)
    assert await pull == []


async def test_a_message_wakes_a_waiting_pull_at_once(cores):
    reader = CoreSubscription(cores.pubsub, SUBSCRIPTION, cores.clock)
    pull = asyncio.create_task(reader.pull(10))
    await cores.passes(1)
    await CorePublisher(cores.pubsub, "proj", cores.clock).publish("news", b"x", {"a": "1"})
    (message,) = await asyncio.wait_for(pull, 60)
    assert (message.data, message.attributes) == (b"x", {"a": "1"})
    assert cores.clock.monotonic() == 1


async def test_an_expired_lease_brings_the_message_back_to_a_waiting_pull(cores):
    reader = CoreSubscription(cores.pubsub, SUBSCRIPTION, cores.clock, patience=timedelta(seconds=300))
    await CorePublisher(cores.pubsub, "proj", cores.clock).publish("news", b"x", {})
    (first,) = await reader.pull(1)
    again = asyncio.create_task(reader.pull(1))
    await cores.passes(58)
    assert not again.done()
    await cores.passes(5)
    assert [message.message_id for message in await again] == [first.message_id]


async def test_an_extended_lease_keeps_it_away(cores):
    reader = CoreSubscription(cores.pubsub, SUBSCRIPTION, cores.clock, patience=timedelta(seconds=70))
    await CorePublisher(cores.pubsub, "proj", cores.clock).publish("news", b"x", {})
    (first,) = await reader.pull(1)
    await reader.extend([first.ack_id], timedelta(seconds=120))
    again = asyncio.create_task(reader.pull(1))
    await cores.passes(71)
    assert await again == []
    await reader.ack([first.ack_id])


async def test_a_planned_delay_takes_virtual_time(cores):
    store = CoreStore(cores.storage, cores.clock)
    cores.faults.add(Fault("storage", "objects.insert", FaultKind.DELAY, seconds=20, times=1))
    write = asyncio.create_task(store.create(ObjectRef("inbox", "x"), b"1"))
    await cores.passes(19)
    assert not write.done()
    await cores.passes(2)
    assert await write


async def test_retries_wait_on_the_clock_and_end(cores):
    store = CoreStore(cores.storage, cores.clock)
    cores.faults.add(Fault("storage", "objects.get", FaultKind.FAIL))
    read = asyncio.create_task(store.stat(ObjectRef("inbox", "x")))
    await cores.passes(120)
    with pytest.raises(Transient):
        await read
    assert cores.storage.hooks.operations["objects.get"] == 6


async def test_without_retries_a_lost_answer_is_a_failure_though_the_work_is_done(cores):
    store = CoreStore(cores.storage, cores.clock, Retrier(RetryPolicy(attempts=1), cores.clock))
    cores.faults.add(Fault("storage", "objects.insert", FaultKind.DROP_RESPONSE, times=1))
    with pytest.raises(Transient):
        await store.create(ObjectRef("inbox", "x"), b"1", if_generation=ABSENT)
    assert (await store.read(ObjectRef("inbox", "x")))[0] == b"1"


async def test_jobs_move_on_as_virtual_time_passes(cores):
    warehouse = CoreWarehouse(cores.bigquery, cores.clock)
    store = CoreStore(cores.storage, cores.clock)
    table = TableName("proj", "ds", "t")
    await warehouse.create_table(table, {"schema": SCHEMA})
    await store.create(ObjectRef("inbox", "a.json"), b'{"id": 1}\n')
    configuration = {
        "sourceUris": ["gs://inbox/a.json"],
        "destinationTable": table.rest,
        "sourceFormat": "NEWLINE_DELIMITED_JSON",
    }
    request = JobRequest(JobRef("proj", "US", "job"), JobKind.LOAD, configuration)
    states = [(await warehouse.insert_job(request)).state]
    for _ in range(3):
        cores.clock.advance(timedelta(seconds=16))
        states.append((await warehouse.get_job(request.ref)).state)
    assert states[0] == "PENDING" and states[-1] == "DONE" and "RUNNING" in states
    assert (await warehouse.table(table)).resource["numRows"] == "1"
