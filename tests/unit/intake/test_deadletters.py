"""Messages nobody can read are set aside once, whatever they look like."""

from datetime import timedelta

import orjson
import pytest
from tests.support.bindings import CorePublisher, CoreSubscription
from tests.support.manual_clock import ManualClock
from tests.support.memory_store import MemoryStore

from ingestd.batch.news import News
from ingestd.intake.deadletters import DeadLetters
from ingestd.intake.receipts import Desk, Receipt
from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.model.objects import ObjectRef
from ingestd.ports import PlainMessage

TOPIC = "projects/p/topics/dead"
NAME = "projects/p/subscriptions/dead"


class Cemetery:
    def __init__(self) -> None:
        clock = ManualClock()
        self.kept: list[Receipt] = []
        self.core = PubSubCore(None, clock=clock, hooks=Hooks("pubsub"))
        self.core.create_topic(wire.Topic(name=TOPIC))
        self.core.create_subscription(wire.Subscription(name=NAME, topic=TOPIC))
        self.store = MemoryStore(clock)
        self.folder = ObjectRef("ops", "errors/")
        self.subscription = CoreSubscription(self.core, NAME, clock)
        self.desk = Desk(
            self.subscription, clock, max_messages=10, max_bytes=10**9, lease=timedelta(seconds=60), keep=self._keep
        )
        publisher = CorePublisher(self.core, "p", clock)
        self.letters = DeadLetters(publisher, self.store, clock, News(), topic=TOPIC, folder=self.folder)

    def _keep(self, receipt: Receipt, _delay: timedelta) -> bool:
        self.kept.append(receipt)
        return True

    async def bury(self, attributes: dict[str, str], reason: str) -> None:
        """The message is settled for good: what is kept would be tried again for ever."""
        receipt = Receipt(self.desk, PlainMessage("a1", b"junk", attributes, message_id="1"))
        self.desk.track(receipt)
        await self.letters.bury(receipt, "s", reason)
        assert receipt.settled
        assert self.kept == []

    async def objects(self) -> list[dict[str, object]]:
        found = [info.ref async for info in self.store.list(self.folder)]
        return [orjson.loads((await self.store.read(ref))[0]) for ref in found]


async def test_a_reason_is_cut_to_the_bytes_that_an_attribute_may_have() -> None:
    place = Cemetery()
    await place.bury({"eventType": "x"}, "型" * 800)
    [letter] = await place.subscription.pull(10)
    assert letter.attributes["ingestd-reason"] == "型" * 333
    assert (letter.data, letter.attributes["eventType"]) == (b"junk", "x")
    assert await place.objects() == []


@pytest.mark.parametrize("attributes", [99, 100])
async def test_a_message_that_the_topic_does_not_take_becomes_an_object(attributes: int) -> None:
    place = Cemetery()
    await place.bury({f"a{number}": "x" for number in range(attributes)}, "no notification")
    [found] = await place.objects()
    assert (found["Reason"], found["MessageID"], found["Text"]) == ("no notification", "1", "junk")
    stats = {one.name: one for one in place.core.stats().subscriptions}
    assert stats[NAME].backlog == 0
