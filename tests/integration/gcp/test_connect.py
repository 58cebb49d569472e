"""Building and closing the clients."""

import asyncio
import gc
import threading

import pytest

from ingestd.gcp.connect import ClientOptions, connect
from ingestd.model.errors import Fatal, Transient
from ingestd.model.objects import ObjectRef
from ingestd.model.tables import TableName
from ingestd.retry import RetryPolicy


async def test_everything_is_closed_at_the_end(cloud, bucket):
    """Unclosed sockets would be warnings, and warnings are errors here."""
    async with connect("test-project", environment=cloud.endpoints.environ()) as clients:
        assert await clients.store.stat(ObjectRef(bucket, "none")) is None
        assert await clients.warehouse.dataset_location("", "none") is None
        assert clients.warehouse.project == "test-project"
    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ingestd-")]


async def test_without_emulators_or_credentials_the_message_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(Fatal, match="credentials"):
        async with connect("test-project", environment={}):
            pass


async def test_an_unreachable_service_is_transient():
    nowhere = {
        "STORAGE_EMULATOR_HOST": "http://127.0.0.1:1",
        "BIGQUERY_EMULATOR_HOST": "127.0.0.1:1",
        "PUBSUB_EMULATOR_HOST": "127.0.0.1:1",
    }
    async with connect("p", options=ClientOptions(retry=RetryPolicy(attempts=1)), environment=nowhere) as clients:
        with pytest.raises(Transient):
            await clients.store.stat(ObjectRef("bucket", "x"))
        with pytest.raises(Transient):
            await clients.warehouse.table(TableName("p", "d", "t"))
        with pytest.raises(Transient):
            await clients.subscription("s").pull(1)
        with pytest.raises(Transient):
            await clients.publisher.publish("topic", b"", {})


async def test_a_slow_service_does_not_stop_the_event_loop(cloud, bucket, fault):
    from ingestd.localcloud.faults import FaultKind

    fault("storage", "objects.get", FaultKind.DELAY, seconds=0.4, times=8)
    ticks = 0
    async with connect("test-project", environment=cloud.endpoints.environ()) as clients:
        calls = asyncio.gather(*(clients.store.stat(ObjectRef(bucket, "x")) for _ in range(8)))
        while not calls.done():
            await asyncio.sleep(0.01)
            ticks += 1
        await calls
    assert ticks > 15


async def test_a_small_write_does_not_wait_behind_large_files(cloud, bucket):
    """A record's lease is renewed while batches are fetched, however many there are."""
    options = ClientOptions(transfer_threads=1)
    async with connect("test-project", options=options, environment=cloud.endpoints.environ()) as clients:
        store = clients.store
        ref = ObjectRef(bucket, "x")
        generation = await store.create(ref, b"data")
        busy = threading.Event()
        moving = asyncio.create_task(store._transfers.run(busy.wait, 30))
        fetching = asyncio.create_task(store.fetch(ref, generation=generation))
        try:
            async with asyncio.timeout(60):
                assert await store.create(ref, b"more", if_generation=generation)
            assert not fetching.done()
        finally:
            busy.set()
            await moving
        assert await fetching is None, "that generation was replaced"
