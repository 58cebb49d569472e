"""The words that stories of simulations are told with: numbered files, the rows they become, and deaths everywhere."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.rule_documents import FOLDER
from tests.support.sim.names import DATASET, OPS, PROJECT, SCHEMA, TRIGGER
from tests.support.sim.world import Fate, World

Simulate = Callable[..., None]
LOADED = [("1", "a"), ("2", "b")]  # what becomes of `ROWS`
OLD_ROW = ("99", "old")
PLACES = {"CorruptedFileURL": f"gs://{OPS}/corrupted", "InvalidSchemaURL": f"gs://{OPS}/invalid"}
SMALL = {"jobs": {"poll_every": "30s", "max_files": 2}}


def name(number: int, folder: str = FOLDER) -> str:
    return f"{folder}/f{number}.json"


def upload(world: World, number: int, folder: str = FOLDER) -> tuple[str, int]:
    """A file of one row, of that number; its name and generation."""
    return name(number, folder), world.upload(name(number, folder), {"id": number, "name": "x"})


def upload_all(world: World, good: int, corrupted: tuple[int, ...] = (), invalid: tuple[int, ...] = ()) -> None:
    """Files of one row each, some of them bad."""
    for number in range(good + len(corrupted) + len(invalid)):
        if number in corrupted:
            world.storage.write(TRIGGER, name(number), b'{"id": 1, "na', "application/json")
        elif number in invalid:
            world.upload(name(number), {"id": number, "name": "x"}, {"id": "surprise", "name": "x"})
        else:
            upload(world, number)


def expected(*numbers: int) -> list[tuple[str, str]]:
    """The rows of the files of these numbers."""
    return sorted((str(number), "x") for number in numbers)


def fill(world: World, row: str = '{"id": 99, "name": "old"}', table: str = "dummy", job: str = "before") -> None:
    """Let the table have a row from before, by a job of somebody else."""
    world.storage.write(OPS, f"{job}.json", row.encode(), "application/json")
    load = {
        "sourceUris": [f"gs://{OPS}/{job}.json"],
        "sourceFormat": "NEWLINE_DELIMITED_JSON",
        "destinationTable": {"projectId": PROJECT, "datasetId": DATASET, "tableId": table},
    }
    world.bigquery.insert_job(PROJECT, {"jobReference": {"jobId": job}, "configuration": {"load": load}})


def partitioned(world: World) -> None:
    """A table with a partition per day."""
    resource = {
        "tableReference": {"datasetId": DATASET, "tableId": "dummy"},
        "schema": SCHEMA,
        "timePartitioning": {"type": "DAY"},
    }
    world.bigquery.metadata.insert_table(PROJECT, DATASET, resource)


def fill_partition(world: World, partition: str, number: int) -> None:
    fill(world, f'{{"id": {number}, "name": "x"}}', f"dummy${partition}", partition)


@contextmanager
def standing_still(world: World, **settings: Any) -> Iterator[asyncio.Event]:
    """A daemon that stands still at its next call once a batch has its record, until the event is set."""
    ordinary, goes_on = world.pause, asyncio.Event()

    async def pause() -> None:
        await ordinary()
        if world.objects("journal/Running/"):
            await goes_on.wait()

    world.pause = pause  # type: ignore[method-assign]
    with world.daemon(**settings):
        world.pause = ordinary  # type: ignore[method-assign]
        yield goes_on


def die_everywhere(
    simulate: Simulate,
    story: Callable[[World, Fate], Coroutine[Any, Any, None]],
    *,
    first: int = 0,
    **options: Any,
) -> int:
    """Tell the story with a daemon that dies after its first effect, its second, …, and one that lives; how many."""
    effects = first
    while True:
        fate = Fate(dies_after=effects)

        async def told(world: World, fate: Fate = fate) -> None:
            try:
                await story(world, fate)
            except AssertionError as error:
                error.add_note(f"after {fate.effects} effects: {fate.log[-3:]}")
                raise

        simulate(told, **options)
        if not fate.struck:
            return effects - first
        effects += 1


def crash_everywhere(
    simulate: Simulate,
    prepare: Callable[[World], None],
    check: Callable[[World], None],
    *,
    names_bad_files: bool = True,
    **settings: Any,
) -> int:
    """A batch whose daemon dies after its first effect, its second, …, is finished by another one.

    What comes before the batch has a record belongs to its window.
    """
    options = {"plain": True, "names_bad_files": names_bad_files}

    async def story(world: World, fate: Fate) -> None:
        prepare(world)
        with world.daemon(fate, **settings) as first:
            await world.until(lambda: not first.alive or world.quiet())
        with world.daemon(**settings):
            await world.settled(limit=3600)
        check(world)

    unharmed = Fate()

    async def undisturbed(world: World) -> None:
        prepare(world)
        with world.daemon(unharmed, **settings):
            await world.settled()

    simulate(undisturbed, **options)
    first = next(number for number, one in enumerate(unharmed.log) if "journal/Running/" in one)
    return die_everywhere(simulate, story, first=first, **options)


def load_jobs(world: World) -> int:
    return sum(1 for record in world.record() if record["Kind"] == "load")
