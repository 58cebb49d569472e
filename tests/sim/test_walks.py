"""The ways that docs/walks.md tells are the ways that files take: all of the functions, in that order."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tests.support.rule_documents import FILE, ROWS, alone
from tests.support.sim.directories import batch, convention, idle
from tests.support.sim.stories import Simulate, upload_all
from tests.support.sim.ways import prepare
from tests.support.sim.world import World
from tests.support.walks import walks

SOURCE = "/src/ingestd/"
# Other messages are acknowledged, and other states of the batch written down, before those that end the walk.
BEFORE = {"intake.receipts.Desk.settle", "intake.receipts.Desk.flush", "ledger.writer.LoadStateWriter.flush"}
TOLD = {"load_state": {"enabled": True}}


def told(heading: str) -> list[str]:
    """The walk's functions, but for those of Spark, which simulations do without."""
    [walk] = [hops for walk, hops in walks().items() if walk.startswith(heading)]
    return [hop.name for hop in walk if hop.room != "spark"]


@contextmanager
def watched(names: Sequence[str]) -> Iterator[list[str]]:
    """Those of the functions that are called, in the order of their first calls."""
    found: dict[str, None] = {}
    wanted = frozenset(names)

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and SOURCE in frame.f_code.co_filename:
            module = frame.f_code.co_filename.rpartition(SOURCE)[2].removesuffix(".py").replace("/", ".")
            if (name := f"{module}.{frame.f_code.co_qualname}") in wanted:
                found.setdefault(name)

    order: list[str] = []
    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield order
    finally:
        sys.setprofile(before)
        order += found


def check(names: list[str], order: list[str]) -> None:
    assert set(order) == set(names)
    assert [one for one in order if one not in BEFORE] == [one for one in names if one not in BEFORE]


def test_a_file_that_loads_alone(simulate: Simulate) -> None:
    names = told("A file that loads alone")

    async def story(world: World) -> None:
        world.prepared(alone(False))
        with world.daemon(**TOLD):
            await asyncio.sleep(5)
            with watched(names) as order:
                world.upload(FILE, *ROWS)
                await world.settled()
                await asyncio.sleep(30)
        check(names, order)

    simulate(story)


def test_a_file_in_a_window(simulate: Simulate) -> None:
    names = told("A file in a window")

    async def story(world: World) -> None:
        prepare(world, "prepared, transient", asynchronous=False)
        with world.daemon(**TOLD):
            await asyncio.sleep(5)
            with watched(names) as order:
                upload_all(world, 3)
                await world.settled()
                await asyncio.sleep(30)
        check(names, order)

    simulate(story, plain=True)


def test_a_success_folder(simulate: Simulate) -> None:
    names = told("A `_SUCCESS` folder")

    async def story(world: World) -> None:
        world.create_table("dummy")
        with world.daemon(**{**convention(), **TOLD}):
            await asyncio.sleep(5)
            with watched(names) as order:
                batch(world, "dummy/b", 1, 2, 3)
                await world.until(lambda: idle(world), 900)
                await asyncio.sleep(30)
        check(names, order)

    simulate(story)


def test_what_async_adds(simulate: Simulate) -> None:
    names = told("What `Async: true` adds")

    async def story(world: World) -> None:
        world.prepared(alone(True))
        with world.daemon(**TOLD):
            await asyncio.sleep(5)
            with watched(names) as order:
                world.upload(FILE, *ROWS)
                await world.settled()
        assert set(order) == set(names)

    simulate(story)
