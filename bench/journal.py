"""A journal of one year: what its age costs those who ask it.

A year is 500,000 finished batches with 20,000,000 files in 50 tables, one batch a minute; `--share` makes that part of
it, its last days, `--tables` only so many of its tables, each with all of its batches. Records and register pages are
as the daemon leaves them, names of days that are over written down as it does once a day, in a local cloud that is
asked over HTTP by the daemon's own parts. Asked twice, when the journal is a tenth as old and when it is full-grown:

- `explain` of a file that is gone, loaded the day the journal began;
- the duplicate check: a notification that is late by as much as the journal is old, until it is acknowledged;
- a round of both sweeps;
- the start of a daemon, until it pulls.

The target is 200 ms each, and that ten times the age costs no more. `python -m bench.journal [--share 1 --tables 2]`
prints a table and, last, one line of JSON.
"""

import argparse
import asyncio
import json
import logging
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import cast

import structlog
from prometheus_client import REGISTRY
from tests.support.bindings import CoreStore

from bench.success import PROJECT, local_cloud
from ingestd.app import App, assemble
from ingestd.batch.content import Load, Progress
from ingestd.batch.landing import destination
from ingestd.batch.load_config import new_record
from ingestd.batch.marks import WindowMark
from ingestd.batch.phases import Phase
from ingestd.batch.record import Record
from ingestd.batch.register import Register, batch_name
from ingestd.collect.windows.model import window_of
from ingestd.gcp.connect import Clients, connect
from ingestd.intake.notifications import FINALIZE, ObjectEvent
from ingestd.intake.receipts import Receipt
from ingestd.ledger.name_index import NameIndex
from ingestd.ledger.name_keeper import NameKeeper
from ingestd.ledger.parts import explainer, journal_of
from ingestd.localcloud.cloud import LocalCloud
from ingestd.model.clock import SystemClock
from ingestd.model.objects import FileVersion, Generation, ObjectRef
from ingestd.rules.destination import expand_destination
from ingestd.rules.matching import Match
from ingestd.rules.rule import Rule
from ingestd.settings import Settings

YEAR = 500_000  # batches
TABLES, FILES = 50, 40
EVERY = timedelta(days=365) / YEAR * TABLES  # between batches of one table
WINDOW = 60
BUCKET, DATASET = f"{PROJECT}-trigger", "year"
ROUNDS = 5
TARGET = 0.2  # seconds
GROWTH = 1.2  # by which ten times the age may cost more
RULE = {
    "When": {"Prefix": "/year/", "Suffix": ".json"},
    "Dest": {"Pattern": "/year/(\\w+)/", "Table": f"{DATASET}.$1"},
    "Batch": {"Window": {"DurationInSec": WINDOW}},
    "OnSuccess": [{"Action": "delete"}],
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What one question took: the middle of some rounds."""

    seconds: float
    calls: float  # of Cloud Storage


@dataclass(slots=True)
class Year:
    """The journal, as it grows backwards: batch 0 is the newest."""

    cloud: LocalCloud
    settings: Settings
    rule: Rule
    now: datetime
    tables: int = TABLES
    batches: int = 0

    def files_of(self, batch: int) -> tuple[FileVersion, ...]:
        """Those of a batch, all of them in the folder of its table: an hour old at least."""
        began = int((self.now - timedelta(hours=1) - EVERY * batch / self.tables).timestamp()) // WINDOW * WINDOW
        first = began * 1_000_000
        return tuple(
            FileVersion(
                ObjectRef(BUCKET, f"year/t{batch % self.tables:02d}/part-{batch:07d}-{number:03d}.json"),
                Generation(first + number),
                1000,
                datetime.fromtimestamp(began, UTC),
                "AAAAAA==",
            )
            for number in range(FILES)
        )

    async def grow(self, batches: int) -> None:
        """Finished batches, as the daemon leaves them: a record, and a page of the register."""
        store = CoreStore(self.cloud.storage, SystemClock())
        journal = journal_of(self.settings, store, SystemClock(), "bench")
        register = Register(store, self.settings.register)
        for batch in range(self.batches, batches):
            record = self._record(self.files_of(batch))
            # Through the journal's own door, without the running record that it would leave behind.
            await journal._conclude(record)
            name = batch_name(journal.place(record), record.stamp.born)
            await register.enter(destination(record), name, record.files)
        self.batches = batches
        keeper = NameKeeper(store, journal, NameIndex(store, self.settings.journal, journal.strangers), SystemClock())
        while await keeper.round():
            """A round reads some thousand records, and there is one every few minutes."""

    def _record(self, files: tuple[FileVersion, ...]) -> Record:
        expanded = expand_destination(self.rule, files[0], {"EventID": "1", "ProjectID": PROJECT})
        alone = new_record(self.rule, files[0], expanded, project=PROJECT, clock=SystemClock())
        window = window_of(self.rule, files[0], str(expanded.target), WINDOW)
        size = sum(file.size for file in files)
        return replace(
            alone,
            event_id=window.event_id,
            phase=Phase.DONE,
            files=files,
            stamp=replace(alone.stamp, born=f"{files[0].generation:x}"),
            trigger=WindowMark(window.name, window.start, ("shard",), ""),
            progress=Progress(loads=(Load(1, tuple(range(len(files))), len(files), size),), jobs=1),
            rows=len(files),
        )


class Told:
    """Stands for the message: all that is asked is when it may go."""

    def __init__(self) -> None:
        self.acked = asyncio.Event()

    def ack(self) -> None:
        self.acked.set()

    def forget_payload(self) -> None: ...


def calls() -> float:
    return sum(
        sample.value
        for metric in REGISTRY.collect()
        if metric.name == "ingestd_api_seconds"
        for sample in metric.samples
        if sample.name.endswith("_count") and sample.labels["service"] == "storage"
    )


async def timed(ask: Callable[[int], Awaitable[object]]) -> Answer:
    seconds, asked = [], []
    for number in range(ROUNDS):
        before, began = calls(), time.perf_counter()
        await ask(number)
        seconds.append(time.perf_counter() - began)
        asked.append(calls() - before)
    return Answer(round(statistics.median(seconds), 4), statistics.median(asked))


async def ask(year: Year, clients: Clients) -> dict[str, Answer]:
    oldest = year.batches - 20  # each question has a batch of its own

    async def explained(number: int) -> None:
        file = year.files_of(oldest + number)[7]
        asked = explainer(year.settings, clients.store, clients.warehouse, SystemClock())
        found = await asked.explain(file.ref, Match(year.rule))
        assert [one.generation for one in found.history] == [file.generation], found

    answers = {"explain": await timed(explained)}
    apps: list[tuple[App, asyncio.Task[None]]] = []

    async def start(_: int) -> None:
        app = assemble(year.settings, clients, SystemClock())
        app.ops = None
        task = asyncio.create_task(app.run())
        apps.append((app, task))
        while not app.condition.running or app.windows._group is None:
            assert not task.done(), task.result()
            await asyncio.sleep(0.001)

    async def stop() -> None:
        app, task = apps.pop()
        app.stop()
        await task

    await start(0)
    answers["start"] = await started(start, stop)
    app = apps[-1][0]

    async def late(number: int) -> None:
        file, told = year.files_of(oldest + 10 + number)[3], Told()
        work = app.windows.deliver(ObjectEvent(FINALIZE, file), year.rule, cast("Receipt", told))
        assert work is None
        await asyncio.wait_for(told.acked.wait(), 60)

    async def swept(_: int) -> None:
        await app.sweep.sweep()
        async with asyncio.TaskGroup() as group:
            await app.reconciler._sweep(group)

    answers["duplicate check"] = await timed(late)
    answers["sweep"] = await timed(swept)
    while apps:
        await stop()
    return answers


async def started(start: Callable[[int], Awaitable[None]], stop: Callable[[], Awaitable[None]]) -> Answer:
    """A daemon that is started anew, each time; one runs in the end."""
    found = []
    for number in range(ROUNDS):
        await stop()
        before, began = calls(), time.perf_counter()
        await start(number)
        found.append((time.perf_counter() - began, calls() - before))
    seconds, asked = zip(*found, strict=True)
    return Answer(round(statistics.median(seconds), 4), statistics.median(asked))


async def measure(cloud: LocalCloud, batches: int, tables: int) -> dict[str, dict[int, Answer]]:
    rule_place = f"gs://{PROJECT}-config/rules"
    cloud.storage.write(f"{PROJECT}-config", "rules/year.json", json.dumps([RULE]).encode())
    settings = Settings.model_validate(
        {"project": PROJECT, "rules": {"url": rule_place}, "load_state": {"enabled": False}, "drain": "5s"}
    )
    async with connect(PROJECT, environment=cloud.endpoints.environ()) as clients:
        app = assemble(settings, clients, SystemClock())
        await app.rules.refresh()
        year = Year(cloud, settings, app.rules.book.rules[0], datetime.now(UTC), tables)
        found: dict[str, dict[int, Answer]] = {}
        for size in (batches // 10, batches):
            began = time.perf_counter()
            await year.grow(size)
            print(f"{size:,} batches made in {time.perf_counter() - began:.0f} s", file=sys.stderr)
            for question, answer in (await ask(year, clients)).items():
                found.setdefault(question, {})[size] = answer
    return found


def report(found: dict[str, dict[int, Answer]], batches: int, tables: int) -> None:
    young, old = batches // 10, batches
    print(f"finished batches of {FILES} files in {tables} tables; a year has {YEAR // TABLES:,} per table.")
    print("Calls are Cloud Storage's.\n")
    print(f"{'':18}{f'{young:,} batches':>22}{f'{old:,} batches':>22}{'target':>10}")
    met = {}
    for question, answers in found.items():
        cells = [f"{one.seconds * 1000:.0f} ms, {one.calls:.0f} calls" for one in (answers[young], answers[old])]
        met[question] = answers[old].seconds <= TARGET and answers[old].calls <= GROWTH * answers[young].calls
        told = "met" if met[question] else "MISSED"
        print(f"{question:18}{cells[0]:>22}{cells[1]:>22}{TARGET * 1000:>7.0f} ms  {told}")
    document = {
        "benchmark": "journal",
        "batches": batches,
        "tables": tables,
        "files": batches * FILES,
        "answers": {
            question: {str(size): asdict(one) for size, one in answers.items()} for question, answers in found.items()
        },
        "targets_met": met,
    }
    print(json.dumps(document))


def main(arguments: list[str] | None = None) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    parser = argparse.ArgumentParser(prog="python -m bench.journal")
    parser.add_argument("--share", type=float, default=0.02, help="of a year's batches")
    parser.add_argument(
        "--tables", type=int, default=TABLES, help="of the year's fifty: one knows nothing of the others"
    )
    asked = parser.parse_args(arguments)
    batches = max(200, int(YEAR * asked.share * asked.tables / TABLES))
    with local_cloud() as cloud:
        found = asyncio.run(measure(cloud, batches, asked.tables))
    report(found, batches, asked.tables)


if __name__ == "__main__":
    main()
