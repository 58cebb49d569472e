"""A look that several share: never older than the question, and one for all who ask together."""

import asyncio

import pytest

from ingestd.model.errors import Transient
from ingestd.model.shared import SharedLook


class Bell:
    """Something to look at, which changes."""

    def __init__(self) -> None:
        self.looks = 0
        self.state = 0
        self.fails = 0

    async def look(self, _: str) -> int:
        self.looks += 1
        seen = self.state
        await asyncio.sleep(0.001)
        if self.fails:
            self.fails -= 1
            raise Transient("not now")
        return seen


async def test_all_who_ask_together_share_one_look() -> None:
    bell = Bell()
    shared = SharedLook(bell.look)
    assert await asyncio.gather(*(shared.now("a") for _ in range(20))) == [0] * 20
    assert bell.looks == 1
    await shared.now("b")
    assert bell.looks == 2, "another place is another look"


async def test_an_answer_is_never_older_than_its_question() -> None:
    bell = Bell()
    shared = SharedLook(bell.look)
    first = asyncio.create_task(shared.now("a"))
    while not bell.looks:
        await asyncio.sleep(0)
    bell.state = 1  # after the first look has begun
    later = [asyncio.create_task(shared.now("a")) for _ in range(3)]
    assert await first == 0
    assert [await one for one in later] == [1, 1, 1]
    assert bell.looks == 2


async def test_a_look_that_fails_is_made_again_by_the_others() -> None:
    bell = Bell()
    bell.fails = 1
    shared = SharedLook(bell.look)
    found = await asyncio.gather(*(shared.now("a") for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in found] == [Transient, int, int]
    with pytest.raises(Transient):
        bell.fails = 1
        await shared.now("a")
    assert await shared.now("a") == 0
