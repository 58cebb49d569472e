"""Whatever happens in whatever order: nothing unacknowledged is lost, nothing acknowledged comes back.

The model knows which messages are unacknowledged and which are leased until when; the core, on disk and restarted at
will, must agree.
"""

import tempfile
from datetime import timedelta
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.support.manual_clock import ManualClock

from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.core import PubSubCore, Received
from ingestd.localcloud.pubsub.errors import PubSubError

TOPIC = "projects/p/topics/events"
SUBSCRIPTION = "projects/p/subscriptions/worker"
DEADLINE = 10


class PubSubMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.core = self._open()
        self.keys: dict[str, str] = {}  # message id → ordering key
        self.order: list[str] = []
        self.unacked: set[str] = set()
        self.leases: dict[str, tuple[str, float]] = {}  # message id → its current ack id and deadline
        self.replayable: set[str] = set()  # acknowledged, but delivered behind a message of its key that came back
        self.replayed: set[str] = set()  # those that did come again: a courtesy that a restart forgets
        self.seen: list[Received] = []

    def _open(self) -> PubSubCore:
        return PubSubCore(Path(self._folder.name), clock=self.clock, hooks=Hooks("pubsub"), compact_bytes=2_000)

    @initialize(ordered=st.booleans(), exactly_once=st.booleans(), backoff=st.booleans())
    def create(self, ordered: bool, exactly_once: bool, backoff: bool) -> None:
        self.ordered, self.exactly_once = ordered, exactly_once
        self.core.create_topic(wire.Topic(name=TOPIC))
        subscription = wire.Subscription(
            name=SUBSCRIPTION,
            topic=TOPIC,
            ack_deadline_seconds=DEADLINE,
            enable_message_ordering=ordered,
            enable_exactly_once_delivery=exactly_once,
        )
        if backoff:
            subscription.retry_policy.minimum_backoff.seconds = 1
            subscription.retry_policy.maximum_backoff.seconds = 3
        self.core.create_subscription(subscription)

    @rule(keys=st.lists(st.sampled_from(["", "a", "b"]), min_size=1, max_size=5))
    def publish(self, keys: list[str]) -> None:
        ids = self.core.publish(TOPIC, [(f"message {key}".encode(), {}, key) for key in keys])
        for message_id, key in zip(ids, keys, strict=True):
            self.keys[message_id] = key
            self.order.append(message_id)
            self.unacked.add(message_id)

    @rule(maximum=st.integers(1, 6))
    def pull(self, maximum: int) -> None:
        received = self.core.pull(SUBSCRIPTION, maximum)
        assert len(received) <= maximum
        self._take(received)

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        """Any delivery so far, current or stale."""
        one = data.draw(st.sampled_from(self.seen[-12:]))
        current = self._is_current(one)
        try:
            self.core.acknowledge(SUBSCRIPTION, [one.ack_id])
        except PubSubError as error:
            assert self.exactly_once
            assert not current
            assert one.ack_id in error.ack_failures
        else:
            assert current or not self.exactly_once
            self._settled(one)

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), seconds=st.sampled_from([0, 5, 30]))
    def modify(self, data: st.DataObject, seconds: int) -> None:
        one = data.draw(st.sampled_from(self.seen[-12:]))
        current = self._is_current(one)
        try:
            self.core.modify_ack_deadline(SUBSCRIPTION, [one.ack_id], seconds)
        except PubSubError:
            assert self.exactly_once
            assert not current
            return
        if current and seconds:
            self.leases[one.message_id] = (one.ack_id, self.clock.monotonic() + seconds)
        elif current:
            self._came_back(one.message_id)

    @rule(seconds=st.sampled_from([1, 4, 10, 40]))
    def wait(self, seconds: int) -> None:
        """Second by second, so that the model sees expiries in the order of their time."""
        for _ in range(seconds):
            self.clock.advance(timedelta(seconds=1))
            self.core.tick()
            self._expire()

    @rule()
    def restart(self) -> None:
        self.core.close()
        self.core = self._open()
        self.leases.clear()
        self.unacked -= self.replayed
        self.replayed.clear()

    @rule()
    def compact(self) -> None:
        self.core.compact()

    def teardown(self) -> None:
        """Once everything is left alone, what is delivered is exactly what is unacknowledged."""
        try:
            if self.order:
                self._drain()
        finally:
            self.core.close()
            self._folder.cleanup()

    def _drain(self) -> None:
        for _ in range(3):
            self.clock.advance(timedelta(seconds=600))
            self.core.tick()
        self._expire()
        final: list[str] = []
        while received := self.core.pull(SUBSCRIPTION, 4):
            self._take(received)
            final += [one.message_id for one in received]
            self.core.acknowledge(SUBSCRIPTION, [one.ack_id for one in received])
            for one in received:
                self._settled(one)
        assert not self.unacked
        assert len(set(final)) == len(final)
        if self.ordered:
            for key in ("a", "b"):
                mine = [one for one in final if self.keys[one] == key]
                assert mine == sorted(mine, key=self.order.index)
        assert self.core.stats().live_bytes == 0

    def _take(self, received: list[Received]) -> None:
        for one in received:
            if one.message_id not in self.unacked:
                assert one.message_id in self.replayable
                self.unacked.add(one.message_id)
                self.replayed.add(one.message_id)
            assert one.message_id not in self.leases, "it is leased to someone else"
            self.leases[one.message_id] = (one.ack_id, self.clock.monotonic() + DEADLINE)
            self.seen.append(one)

    def _settled(self, one: Received) -> None:
        self.unacked.discard(one.message_id)
        self.replayed.discard(one.message_id)
        self.leases.pop(one.message_id, None)

    def _is_current(self, one: Received) -> bool:
        self._expire()
        return self.leases.get(one.message_id, ("", 0.0))[0] == one.ack_id

    def _is_before(self, earlier: str, later: str) -> bool:
        return self.keys[earlier] == self.keys[later] and self.order.index(earlier) < self.order.index(later)

    def _expire(self) -> None:
        now = self.clock.monotonic()
        for message_id in [one for one, (_, deadline) in self.leases.items() if deadline <= now]:
            self._came_back(message_id)

    def _came_back(self, message_id: str) -> None:
        self.leases.pop(message_id, None)
        if self.ordered and self.keys[message_id]:
            for later in [one for one in self.leases if self._is_before(message_id, one)]:
                del self.leases[later]
            if not self.exactly_once:
                self.replayable |= {one.message_id for one in self.seen if self._is_before(message_id, one.message_id)}


PubSubMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestNothingIsLostAndNothingComesBack = PubSubMachine.TestCase
