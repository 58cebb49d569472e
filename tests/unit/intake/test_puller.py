"""What the pullers tell of a subscription: once that it fails, then rarely, and that it goes on."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from prometheus_client import REGISTRY
from structlog.testing import capture_logs
from tests.support.bindings import CoreSubscription
from tests.support.virtual_time import VirtualClock, VirtualLoop, run

from ingestd.intake.puller import PULL_ERRORS, Puller, PullLimits
from ingestd.intake.receipts import Receipt
from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.model.clock import SystemClock
from ingestd.model.errors import Fatal
from ingestd.ports import Message, PlainMessage

TOPIC = "projects/p/topics/events"
NAME = "projects/p/subscriptions/not-made-yet"
HOUR = 3600.0


class Deaf:
    """A subscription that never answers well, as one that was deleted."""

    name = "deaf"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def pull(self, limit: int) -> list[Message]:
        self.asked.set()
        raise Fatal("no such subscription")

    async def ack(self, ack_ids: Sequence[str]) -> None: ...

    async def extend(self, ack_ids: Sequence[str], deadline: timedelta) -> None: ...


async def test_a_subscription_that_never_answered_since_the_start_is_silent_since_the_start() -> None:
    subscription, clock = Deaf(), SystemClock()
    before = clock.now().timestamp()
    puller = Puller(subscription, lambda message, receipt: None, clock, PullLimits())
    running = asyncio.create_task(puller.run())
    await subscription.asked.wait()
    puller.stop()
    await running
    last = REGISTRY.get_sample_value("ingestd_last_pull_timestamp_seconds", {"subscription": "deaf"})
    assert last is not None
    assert before <= last <= clock.now().timestamp(), "at 0 the alert on silence would see nothing"


def test_a_missing_subscription_is_told_of_once_then_rarely_and_pulled_from_when_it_is_there() -> None:
    loop = VirtualLoop()
    clock = VirtualClock(loop)
    core = PubSubCore(None, clock=clock, hooks=Hooks("pubsub"))
    received: list[bytes] = []

    def handle(message: Message, receipt: Receipt) -> None:
        received.append(message.data)
        receipt.ack()

    async def story() -> None:
        puller = Puller(CoreSubscription(core, NAME, clock), handle, clock, PullLimits(concurrent_pulls=4))
        pulling = asyncio.create_task(puller.run())
        await asyncio.sleep(HOUR)
        core.create_topic(wire.Topic(name=TOPIC))
        core.create_subscription(wire.Subscription(name=NAME, topic=TOPIC))
        core.publish(TOPIC, [(b"hello", {}, "")])
        await clock.sleep(timedelta(minutes=1))
        puller.stop()
        await pulling

    with capture_logs() as logged:
        run(story(), loop)
    told = [one for one in logged if one["event"] == "intake.pull_failed"]
    assert told[0]["subscription"] == NAME
    assert [one["failures"] for one in told] == [1, 2, 4, 8, 16, 32, 64]
    assert {one["again"] for one in told[4:]} == {timedelta(seconds=30)}
    [again] = [one for one in logged if one["event"] == "intake.pulling_again"]
    assert again["failures"] > 100
    assert PULL_ERRORS.labels(NAME)._value.get() >= 4 * again["failures"]
    assert received == [b"hello"]


class Stream:
    """A message every few milliseconds; a pull waits for the first and takes what has come by then."""

    name = "stream"

    def __init__(self, clock: VirtualClock, loop: VirtualLoop, *, age: int, messages: int) -> None:
        self.pulls = 0
        self._clock, self._loop, self._age, self._left = clock, loop, age, messages
        self._began = loop.time()
        self._given = 0

    async def pull(self, limit: int) -> list[Message]:
        await asyncio.sleep(0.005)
        come = min(self._left, int((self._loop.time() - self._began) * 1_000)) - self._given
        if self._given == self._left:
            await asyncio.sleep(20)
            return []
        self.pulls += 1
        self._given += come
        published = int(self._clock.now().timestamp()) - self._age
        return [PlainMessage(f"{self.pulls}-{number}", b"", {}, published=published) for number in range(come)]

    async def ack(self, ack_ids: Sequence[str]) -> None: ...

    async def extend(self, ack_ids: Sequence[str], deadline: timedelta) -> None: ...


def pulls_of_a_stream(*, age: int) -> int:
    loop = VirtualLoop()
    clock = VirtualClock(loop)
    seen = 0

    def handle(message: Message, receipt: Receipt) -> None:
        nonlocal seen
        seen += 1
        receipt.ack()

    async def story() -> int:
        subscription = Stream(clock, loop, age=age, messages=2_000)
        puller = Puller(subscription, handle, clock, PullLimits(concurrent_pulls=4))
        pulling = asyncio.create_task(puller.run())
        await asyncio.sleep(60)
        puller.stop()
        await pulling
        return subscription.pulls

    pulls = run(story(), loop)
    assert seen == 2_000
    return pulls


def test_messages_of_a_stream_are_pulled_together_unless_they_have_waited_already() -> None:
    fresh, waited = pulls_of_a_stream(age=0), pulls_of_a_stream(age=60)
    assert fresh < waited / 2, (fresh, waited)


def test_pulls_of_a_stream_take_turns() -> None:
    """Two seconds of it, a pull every 50 ms, and some until all four of them rest."""
    assert pulls_of_a_stream(age=0) <= 2_000 // 50 + 3 * 4
