"""Flow control: what is in flight, and what pulls under way may add to it, stays under the cap."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from tests.support.manual_clock import ManualClock

from ingestd.intake.receipts import Desk, Receipt
from ingestd.ports import Message, PlainMessage


class Silent:
    name = "s"

    async def pull(self, limit: int) -> list[Message]:
        return []

    async def ack(self, ack_ids: Sequence[str]) -> None: ...

    async def extend(self, ack_ids: Sequence[str], deadline: timedelta) -> None: ...


def desk(**caps: int) -> Desk:
    limits = {"max_messages": 10, "max_bytes": 1000} | caps
    return Desk(Silent(), ManualClock(), lease=timedelta(seconds=60), **limits)


def tracked(at: Desk, number: int, size: int = 1) -> Receipt:
    receipt = Receipt(at, PlainMessage(f"a{number}", b"x" * size, {}))
    at.track(receipt)
    return receipt


async def test_pulls_under_way_share_the_room_that_is_left() -> None:
    at = desk()
    assert await at.reserve(7) == 7
    assert await at.reserve(7) == 3
    third = asyncio.ensure_future(at.reserve(7))
    await asyncio.sleep(0)
    assert not third.done()
    at.release(3)
    assert await third == 3


async def test_messages_in_flight_leave_less_room_until_they_are_settled() -> None:
    at = desk()
    receipts = [tracked(at, number) for number in range(10)]
    waiting = asyncio.ensure_future(at.reserve(5))
    await asyncio.sleep(0)
    assert not waiting.done()
    receipts[0].ack()
    assert await waiting == 1


async def test_large_payloads_stop_pulling_too() -> None:
    at = desk(max_bytes=50)
    receipt = tracked(at, 1, size=60)
    waiting = asyncio.ensure_future(at.reserve(5))
    await asyncio.sleep(0)
    assert not waiting.done()
    receipt.ack()
    assert await waiting == 5


async def test_messages_in_flight_keep_their_lease_until_they_are_settled() -> None:
    """Whatever takes longer than a lease would be delivered to somebody else meanwhile."""
    clock = ManualClock()
    extended: list[tuple[list[str], timedelta]] = []

    class Leasing(Silent):
        async def extend(self, ack_ids: Sequence[str], deadline: timedelta) -> None:
            extended.append((list(ack_ids), deadline))

    at = Desk(Leasing(), clock, max_messages=10, max_bytes=1000, lease=timedelta(seconds=60))
    first = tracked(at, 1)
    tracked(at, 2)
    keeping = asyncio.create_task(at.keep_leases_forever())
    for settled in (None, first):
        if settled is not None:
            settled.ack()
        for _ in range(5):
            await asyncio.sleep(0)
        clock.advance(timedelta(seconds=30))
        for _ in range(5):
            await asyncio.sleep(0)
    keeping.cancel()
    assert extended == [(["a1", "a2"], timedelta(seconds=60)), (["a2"], timedelta(seconds=60))]
