"""The daemon is killed after every single effect, and started again: rows once, the source deleted once, after proof.

A first run without a death counts the effects. Then one daemon per boundary dies right after it, by its own SIGKILL,
each in a project of its own; a second daemon finds what the first left. Several run side by side.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from tests.support.e2e.world import LOADED, World, at_once
from tests.support.rule_documents import FILE, alone

KINDS = {
    "record written": "store.create gs://{ops}/journal/Running/",
    "record finished": "store.create gs://{ops}/journal/Done/",
    "running record removed": "store.delete gs://{ops}/journal/Running/",
    "job noted": "store.create gs://{ops}/journal/bqtail.dummy/",
    "files registered": "store.create gs://{ops}/journal/register/",
    "task written": "store.create gs://{ops}/tasks/",
    "task removed": "store.delete gs://{ops}/tasks/",
    "source deleted": "store.delete gs://{trigger}/",
    "job submitted": "warehouse.insert_job",
    "message pushed": "publisher.publish",
    "message acknowledged": "messages.ack",
    "replica announced": "store.create gs://{ops}/journal/replicas/",
    "quota noted": "store.create gs://{ops}/journal/quota/",
}
BY_THE_WAY = {"replica announced", "quota noted"}
TASKS = {"task written", "task removed"}
SIDE_BY_SIDE = 6
# Many daemons at once: they look around less often than a lone one in a test does.
CALM: dict[str, Any] = {"recovery": {"lease": "2s", "sweep_every": "1s"}, "jobs": {"poll_every": "1s"}}


def rule(asynchronous: bool, topic: str) -> dict[str, Any]:
    count = {"SQL": "SELECT COUNT(*) AS n FROM $DestTable", "Dest": "bqtail.counted"}
    push = {"Action": "push", "Request": {"Topic": topic, "Message": "$EventID"}}
    return alone(asynchronous, OnSuccess=[{"Action": "query", "Request": count}, push, {"Action": "delete"}])


def prepared(world: World, asynchronous: bool) -> World:
    world.table()
    world.listening()
    world.subscriber.create_subscription(name=f"projects/{world.project}/subscriptions/witness", topic=world.topic)
    world.rule(rule(asynchronous, "listened"))
    return world


def pattern(world: World, kind: str) -> str:
    return KINDS[kind].format(ops=world.ops, trigger=world.trigger)


def boundaries(world: World, effects: list[str]) -> list[tuple[str, int]]:
    """The effects in a form that holds in every project: the kind, and which of that kind."""
    found = [next((kind for kind in KINDS if effect.startswith(pattern(world, kind))), effect) for effect in effects]
    assert set(found) <= set(KINDS), "an effect of a kind that is not known here"
    return [(kind, found[:index].count(kind) + 1) for index, kind in enumerate(found)]


def check(world: World) -> None:
    assert world.rows() == LOADED
    assert world.rows("bqtail.counted") == [(2,)]
    assert world.statuses() == ["done"]
    assert not world.exists()
    (load,) = world.jobs("load")
    assert load.error_result is None
    # What happened to the source, as Storage announced it to us: deleted once, after the load was done.
    events = [one.attributes for one in world.pulled(f"projects/{world.project}/subscriptions/witness", 2)]
    deletions = [datetime.fromisoformat(one["eventTime"]) for one in events if one["eventType"] == "OBJECT_DELETE"]
    assert len(deletions) == 1
    assert deletions[0] >= load.ended
    pushed = world.pulled(f"projects/{world.project}/subscriptions/listened")
    # A push may be repeated, since Pub/Sub has no precondition; its key tells the repetition.
    assert len({message.attributes["ingestd-idempotency-key"] for message in pushed}) == 1
    assert len(pushed) <= 2


def story(world: World, boundary: tuple[str, int]) -> bool:
    """Kill right after that boundary, look, restart, look again. Whether the death came as planned."""
    kind, number = boundary
    generation = world.upload()
    first = world.start(wait=False, dies_after=(pattern(world, kind) if number else "", number), **CALM)
    world.until(lambda: not first.alive or world.quiet())
    struck = first.struck
    first.kill()
    proven = world.rows() == LOADED and all(job.state == "DONE" for job in world.jobs("load"))
    assert world.exists() or proven, "the source was deleted before its load was proven"
    if number:  # the very first story waits for the lease to run out by itself
        world.end_leases(first)
    world.start(**CALM)
    world.announce(FILE, generation, times=2)
    world.settled()
    check(world)
    return struck


@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "sync"])
def test_a_daemon_killed_after_any_effect_neither_loses_nor_doubles_nor_deletes_early(
    new_world: Callable[[], World], asynchronous: bool
) -> None:
    calm = prepared(new_world(), asynchronous)
    daemon = calm.start(mortal=True)
    calm.upload()
    calm.until(lambda: calm.objects("journal/Done/"))
    calm.settled()
    check(calm)
    passed = boundaries(calm, daemon.effects())
    wanted = KINDS.keys() - BY_THE_WAY - (set() if asynchronous else TASKS)
    assert wanted <= {kind for kind, _ in passed}, passed
    first = {kind: passed.index((kind, 1)) for kind in wanted}
    assert first["record written"] < first["job submitted"] < first["source deleted"] < first["record finished"]
    assert first["record finished"] < first["running record removed"]
    assert not asynchronous or first["task written"] < first["job submitted"] < first["task removed"]
    daemon.kill()

    passed.insert(0, ("record written", 0))
    worlds = [prepared(new_world(), asynchronous) for _ in passed]
    with at_once(SIDE_BY_SIDE) as pool:
        struck = dict(zip(passed, pool.map(story, worlds, passed), strict=True))
    # How often a record is written or acknowledgements leave depends on timing; the first of each kind always comes.
    assert all(struck[kind, 1] for kind in wanted), struck
