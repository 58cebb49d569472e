"""Slots are shared: one that is slow keeps its own waiting, never the others."""

import asyncio

from ingestd.model.fair import FairSlots


async def _soon() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_key_never_holds_all_slots() -> None:
    for capacity in (2, 3, 4, 10, 100):
        slots = FairSlots(capacity)
        waiting = [asyncio.create_task(slots.acquire("slow")) for _ in range(2 * capacity)]
        await _soon()
        held = sum(task.done() for task in waiting)
        assert capacity / 2 <= held < capacity, f"{held} of {capacity}"
        assert not slots.busy("fast")
        async with asyncio.timeout(60), slots.slot("fast"):
            pass
        for task in waiting:
            task.cancel()


async def test_several_slow_keys_leave_room_for_one_that_has_none() -> None:
    slots = FairSlots(100)
    waiting = [asyncio.create_task(slots.acquire(f"slow{number % 20}")) for number in range(400)]
    await _soon()
    assert 80 <= sum(task.done() for task in waiting) < 100
    async with asyncio.timeout(60), slots.slot("fast"):
        pass
    for task in waiting:
        task.cancel()


async def test_a_single_slot_serves_everybody_in_turn() -> None:
    slots, order = FairSlots(1), list[str]()

    async def work(key: str) -> None:
        async with slots.slot(key):
            order.append(key)
            await asyncio.sleep(0)

    await asyncio.gather(*(work(key) for key in ("a", "a", "a", "b", "b", "b")))
    assert order == ["a", "a", "b", "a", "b", "b"] or order == ["a", "b", "a", "b", "a", "b"], order


async def test_freed_slots_go_to_whoever_holds_the_fewest() -> None:
    slots = FairSlots(4)
    for _ in range(3):
        await slots.acquire("many")
    await slots.acquire("few")
    more = asyncio.create_task(slots.acquire("many"))
    other = asyncio.create_task(slots.acquire("other"))
    await _soon()
    slots.release("many")
    await _soon()
    assert (more.done(), other.done()) == (False, True)
    more.cancel()


async def test_whoever_gives_up_waiting_takes_no_slot_with_it() -> None:
    slots = FairSlots(1)
    await slots.acquire("a")
    waiting = [asyncio.create_task(slots.acquire("b")) for _ in range(3)]
    await _soon()
    waiting[0].cancel()
    slots.release("a")  # granted to the first that still waits
    waiting[1].cancel()  # at the very moment it gets its turn, or before
    await _soon()
    await asyncio.wait_for(waiting[2], 60)
    slots.release("b")
    async with asyncio.timeout(60), slots.slot("c"):
        pass
