"""Many small things to do, a few at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sized
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def bounded(items: Iterable[T], work: Callable[[T], Awaitable[R]], limit: int) -> list[R]:
    """`work` for every item, at most `limit` at once; answers in the items' order.

    All get their turn, whatever becomes of the others; the first failure is raised then.
    """
    waiting = enumerate(items)
    answers: dict[int, R] = {}
    failures: dict[int, Exception] = {}

    async def worker() -> None:
        for number, item in waiting:
            try:
                answers[number] = await work(item)
            except Exception as error:  # noqa: BLE001 - raised below, after the others had their turn
                failures[number] = error

    # Most callers have one item or two: tasks that find nothing left to do are not free.
    workers = min(limit, len(items)) if isinstance(items, Sized) else limit
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(worker())
    if failures:
        raise failures[min(failures)]
    return [answers[number] for number in sorted(answers)]
