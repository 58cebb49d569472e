"""Only what nobody can read ends on the dead-letter topic, whatever fails for how long; and good messages come back."""

import asyncio
from typing import Any

import pytest
from tests.support.bindings import CorePublisher, CoreSubscription
from tests.support.sim.names import OPS, PROJECT
from tests.support.sim.stories import Simulate
from tests.support.sim.world import World

from ingestd.intake.drain import Drained, Feed, drain
from ingestd.localcloud.faults import Fault, FaultKind
from ingestd.localcloud.pubsub import wire

FILES = 5


def prepared(world: World, *, windowed: bool = False) -> None:
    world.create_table("dummy")
    rule: dict[str, Any] = {"When": {"Prefix": "/data/"}, "Dest": {"Table": "bqtail.dummy"}}
    world.rule("rule.json", rule | ({"Batch": {"Window": {"DurationInSec": 10}}} if windowed else {}))


def give_up_after(world: World, attempts: int) -> None:
    """A subscription as people make them: Pub/Sub moves messages away after so many deliveries."""
    subscription = wire.Subscription(
        name=world.names.subscription(world.names.notifications_subscription),
        topic=world.names.topic(world.names.notifications_topic),
    )
    subscription.dead_letter_policy.dead_letter_topic = world.names.topic(world.names.dead_letter_topic)
    subscription.dead_letter_policy.max_delivery_attempts = attempts
    world.pubsub.update_subscription(subscription, ["dead_letter_policy"])


def dead(world: World) -> int:
    name = world.names.subscription(world.names.dead_letter_subscription)
    return sum(one.backlog for one in world.pubsub.stats().subscriptions if one.name == name)


async def drained(world: World, *, dry_run: bool = False) -> Drained:
    subscription = CoreSubscription(
        world.pubsub, world.names.subscription(world.names.dead_letter_subscription), world.clock
    )
    topics = {
        Feed.NOTIFICATIONS: world.names.topic(world.names.notifications_topic),
        Feed.COMPLETIONS: world.names.topic(world.names.completions_topic),
    }
    return await drain(subscription, CorePublisher(world.pubsub, PROJECT, world.clock), topics, dry_run=dry_run)


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("status", [503, 403])
def test_an_outage_of_our_own_storage_spends_no_deliveries(simulate: Simulate, windowed: bool, status: int) -> None:
    async def story(world: World) -> None:
        prepared(world, windowed=windowed)
        give_up_after(world, 5)
        with world.daemon() as daemon:
            await asyncio.sleep(5)
            world.faults.add(Fault("storage", "*", FaultKind.FAIL, resource=f"*{OPS}*", status=status))
            for number in range(FILES):
                world.upload(f"data/{number}.json", {"id": number, "name": "x"})
            for _ in range(20 * 6):
                await asyncio.sleep(10)
                world.pubsub.tick()
            world.faults.clear()
            await world.until(lambda: len(world.rows()) == FILES, limit=1200)
            await world.settled()
            assert dead(world) == 0
            await daemon.stopped()

    simulate(story)


def test_messages_kept_are_given_back_when_the_daemon_stops(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        prepared(world)
        with world.daemon() as daemon:
            await asyncio.sleep(5)
            world.faults.add(Fault("storage", "*", FaultKind.FAIL, resource=f"*{OPS}*", status=403))
            world.upload("data/1.json", {"id": 1, "name": "x"})
            await asyncio.sleep(120)
            await daemon.stopped()
            world.faults.clear()
        with world.daemon() as daemon:
            await world.until(lambda: world.rows() == [("1", "x")], limit=30)
            await world.settled()
            await daemon.stopped()

    simulate(story)


def test_good_dead_letters_are_brought_back_and_loaded_once(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        prepared(world)
        topic = world.names.topic(world.names.dead_letter_topic)
        with world.daemon() as daemon:
            generations = {n: world.upload(f"data/{n}.json", {"id": n, "name": "x"}) for n in range(FILES)}
            await world.settled()
            await daemon.stopped()
        generations[9] = world.upload("data/9.json", {"id": 9, "name": "x"})  # one that is not loaded yet
        for number, generation in generations.items():
            attributes = {
                "eventType": "OBJECT_FINALIZE",
                "payloadFormat": "NONE",
                "bucketId": f"{PROJECT}-trigger",
                "objectId": f"data/{number}.json",
                "objectGeneration": str(generation),
                "CloudPubSubDeadLetterSourceSubscription": "ingestd-notifications",
            }
            world.pubsub.publish(topic, [(b"", attributes, "")])
        world.pubsub.publish(topic, [(b"nothing that anybody sent", {"ingestd-reason": "not JSON"}, "")])
        told = await drained(world, dry_run=True)
        assert (told.back[Feed.NOTIFICATIONS], told.unreadable) == (FILES + 1, 1)
        world.pubsub.tick()
        assert dead(world) == FILES + 2, "a dry run moves nothing"
        assert (await drained(world)).back[Feed.NOTIFICATIONS] == FILES + 1
        assert dead(world) == 1, "what cannot be read stays"
        assert (await drained(world)).total == 0
        with world.daemon() as daemon:
            await world.settled()
            await daemon.stopped()
        assert world.rows() == [(str(number), "x") for number in generations]

    simulate(story)
