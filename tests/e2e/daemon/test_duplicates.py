"""The same file announced again and again, to one daemon and to several: its rows are there once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.e2e.world import LOADED, World
from tests.support.rule_documents import FILE, alone, modes

from ingestd.localcloud.faults import Fault, FaultKind, FaultPlan


@modes
def test_fifty_notifications_of_one_file_load_it_once(world: World, asynchronous: bool) -> None:
    """Google's own message republished (same payload, new message id), before, while and after the file is loaded."""
    world.prepared(alone(asynchronous, OnSuccess=[]))
    witness = f"projects/{world.project}/subscriptions/witness"
    world.subscriber.create_subscription(name=witness, topic=world.topic)
    generation = world.upload()
    (original,) = world.pulled(witness)
    again = {"data": original.data, "attributes": dict(original.attributes)}
    world.publisher.publish(topic=world.topic, messages=[again] * 16)
    daemon = world.start()
    world.publisher.publish(topic=world.topic, messages=[again] * 17)
    world.until(lambda: world.statuses() == ["done"])
    world.announce(FILE, generation, times=17)
    world.settled()
    assert world.rows() == LOADED
    assert len(world.jobs("load")) == 1
    assert daemon.metric("ingestd_events_total", outcome="matched") == 1
    assert daemon.metric("ingestd_events_total", outcome="duplicate") == 50


def test_a_restarted_daemon_knows_what_was_finished_before(world: World) -> None:
    world.prepared(alone(OnSuccess=[]))
    first = world.start()
    generation = world.upload()
    world.ended("done")
    first.kill()
    world.announce(FILE, generation, times=10)
    second = world.start()
    world.settled()
    assert second.metric("ingestd_events_total", outcome="duplicate") == 10
    assert world.rows() == LOADED
    assert len(world.jobs("load")) == 1


def test_the_publish_command_announces_like_storage_does_and_doubles_nothing(world: World) -> None:
    world.prepared(alone(OnSuccess=[]))
    daemon = world.start()
    world.upload()
    world.until(lambda: world.statuses() == ["done"])
    command = [Path(sys.executable).parent / "ingestd", "publish", f"gs://{world.trigger}/{FILE}"]
    environ = {**os.environ, **world.cloud.endpoints.environ(), "GOOGLE_CLOUD_PROJECT": world.project}
    said = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=500).stdout
    assert world.topic in said.replace("\n", "")
    world.until(lambda: daemon.metric("ingestd_events_total", outcome="duplicate") == 1)
    world.settled()
    assert world.rows() == LOADED


@modes
def test_two_daemons_on_one_subscription_load_each_file_once(
    world: World, faults: FaultPlan, asynchronous: bool
) -> None:
    """Every message is delivered to both, as Pub/Sub may do."""
    world.prepared(alone(asynchronous))
    for subscription in (world.notifications, world.completions):
        faults.add(Fault("pubsub", "deliver", FaultKind.DUPLICATE, resource=subscription))
    daemons = [world.start(intake={"max_messages": 4, "messages_per_pull": 1}) for _ in range(2)]
    names = [f"data/case002/dummy{number}.json" for number in range(12)]
    for number, name in enumerate(names):
        world.upload(name, {"id": number, "name": "x"})
    world.until(lambda: len(world.records()) == 12)
    faults.clear()
    world.settled()
    assert world.rows() == [(number, "x") for number in range(12)]
    assert world.statuses() == ["done"] * 12
    assert not any(world.exists(name) for name in names)
    assert len(world.jobs("load")) == 12
    shares = [daemon.metric("ingestd_events_total", outcome="matched") for daemon in daemons]
    assert sum(shares) == 12


def test_a_daemon_that_stops_answering_is_replaced_and_cannot_interfere_when_it_wakes(
    world: World, faults: FaultPlan
) -> None:
    """Paused in the middle of a load (SIGSTOP), taken over after its lease, then woken: its next write is refused."""
    topic, heard = world.listening()
    world.table()
    push = {"Action": "push", "Request": {"Topic": topic, "Message": "$EventID"}}
    world.rule(alone(asynchronous=False, OnSuccess=[push, {"Action": "delete"}]))
    faults.add(Fault("bigquery", "job.load", FaultKind.DELAY, seconds=1.0, resource=f"{world.project}/*"))
    first = world.start()
    world.upload()
    world.until(lambda: world.jobs("load"))
    first.send(signal.SIGSTOP)
    second = world.start()
    world.until(lambda: world.statuses() == ["done"])
    first.send(signal.SIGCONT)
    world.until(lambda: first.said("batch.lease_lost") or first.said("batch.done"))
    world.settled()
    assert second.heard("batch.resumed")
    assert world.rows() == LOADED
    assert not world.exists()
    keys = {message.attributes["ingestd-idempotency-key"] for message in world.pulled(heard)}
    assert len(keys) == 1
