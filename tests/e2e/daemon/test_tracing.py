"""One trace per batch, from its notification to its last action, whichever replica works on it."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.daemon.otlp import Receiver, Span, receiving
from tests.support.e2e.world import World
from tests.support.rule_documents import FILE, alone
from tests.support.waiting import eventually


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


def traced(receiver: Receiver, replica: str = "a") -> dict[str, Any]:
    return {"tracing": {"endpoint": receiver.url}, "replica": replica}


def ancestors(receiver: Receiver, span: Span) -> list[str]:
    """The names from the trace's first span down to this one."""
    by_id = {one.id: one for one in receiver.spans}
    names = [span.name]
    while span.parent:
        span = by_id[span.parent]
        names.insert(0, span.name)
    return names


def test_a_file_is_one_trace_from_its_notification_to_its_actions_and_its_log_lines_name_it(
    world: World, receiver: Receiver
) -> None:
    world.prepared(alone(asynchronous=False))
    daemon = world.start(**traced(receiver))
    world.upload()
    world.loaded()
    world.settled()
    daemon.send(signal.SIGTERM)
    daemon.wait()
    assert {one.trace for one in receiver.spans} == {receiver.named("notification")[0].trace}
    paths = [ancestors(receiver, one) for one in receiver.spans]
    assert ["notification"] in paths
    assert ["notification", "batch", "load", "submit"] in paths
    assert ["notification", "batch", "actions", "action delete"] in paths
    [first] = receiver.named("notification")
    assert first.attributes["source"].endswith(FILE)
    assert not any(one.failed for one in receiver.spans)
    [submitted] = daemon.said("batch.submitted")
    assert submitted["logging.googleapis.com/trace"] == f"projects/{world.project}/traces/{first.trace}"
    assert submitted["logging.googleapis.com/spanId"] in {one.id for one in receiver.spans}
    assert submitted["logging.googleapis.com/trace_sampled"] is True
    [record] = world.records()
    assert record["Trace"] == f"00-{first.trace}-{first.id}-01"


def test_another_replica_continues_the_trace_of_a_batch(world: World, receiver: Receiver) -> None:
    world.rule(alone(asynchronous=False))  # its table is missing: the batch waits
    first = world.start(**traced(receiver, "first"))
    world.upload()
    eventually(lambda: first.said("batch.blocked"), "nothing is blocked")
    eventually(lambda: [one for one in receiver.named("batch") if one.failed], "no span tells that it is blocked")
    first.kill()
    world.table()
    second = world.start(**traced(receiver, "second"))
    world.settled()
    second.send(signal.SIGTERM)
    second.wait()
    assert len({one.trace for one in receiver.spans}) == 1
    assert {one.replica for one in receiver.named("batch")} == {"first", "second"}
    assert {one.replica for one in receiver.named("actions")} == {"second"}


def test_a_window_links_to_the_notifications_it_has_gathered(world: World, receiver: Receiver) -> None:
    world.prepared(alone(asynchronous=False, Batch={"Window": {"DurationInSec": 2}}))
    daemon = world.start(**traced(receiver))
    for number in range(3):
        world.upload(f"data/case002/file{number}.json")
    world.until(lambda: len(world.rows()) == 6)
    world.settled()
    daemon.send(signal.SIGTERM)
    daemon.wait()
    gathered = {one.id for one in receiver.named("notification")}
    assert len(gathered) == 3
    windows = receiver.named("window")
    assert {link for one in windows for link in one.links} == gathered
    for window in windows:
        [batch] = [one for one in receiver.named("batch") if one.trace == window.trace]
        assert batch.parent == window.id


def test_without_an_endpoint_nothing_is_traced_and_nothing_is_kept(world: World) -> None:
    world.prepared(alone(asynchronous=False))
    daemon = world.start()
    world.upload()
    world.loaded()
    world.settled()
    assert "Trace" not in world.records()[0]
    assert not any("logging.googleapis.com/trace" in line for line in daemon.said())
