"""Ordered tables under the same trouble as everything else: success files instead of rules, and a judge of the order.

Two kinds of runs. *Gated*: the gate file comes when all batches are in the queues, and then they have to commit exactly
in the order of their paths. *Live*: batches are taken as they come, and a batch may not commit before an earlier one
that was in the queue when it was chosen.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
from tests.sim.checker import Input
from tests.sim.plain_bigquery import Job, PlainBigQuery
from tests.sim.scenario import DATASET, Ending, Features, RulePlan, Scenario, Upload, draw
from tests.sim.scheduler import Universe
from tests.sim.virtual_time import VirtualLoop

from ingestd.localcloud.faults import ResponseLost

_GATE = "_HISTORYDONE"
_SLACK = 30.0  # seconds between looking into the queue and writing down what is next, with every call being repeated


def ordered_scenario(seed: int) -> Scenario:
    """The trouble of the seed, with batches of one or two ordered tables."""
    drawn = draw(seed, Features(bad_files=False, overwrites=0.0, changes=False))
    chance = random.Random(f"ordered {seed}")
    tables = tuple(RulePlan(number, False, Ending.KEEP, split=False) for number in range(chance.choice((1, 1, 2))))
    uploads = []
    for number in range(chance.choice((3, 4, 5, 8))):
        table = chance.choice(tables)
        at = round(chance.uniform(0, 60), 3)
        place = chance.choice((f"incremental/{number:02d}", f"historical/{number:02d}", f"{number:02d}x/y"))
        uploads.append(Upload(at, f"{DATASET}/{table.tables[0]}/{place}/f.json", table, (number,)))
    settings = {**drawn.settings, "jobs": {**drawn.settings["jobs"], "max_files": 10_000}}
    repeated = tuple(range(len(uploads))) if chance.random() < 0.5 else ()
    return replace(
        drawn,
        rules=tuple(table for table in tables if any(upload.rule is table for upload in uploads)),
        uploads=tuple(sorted(uploads, key=lambda one: one.at)),
        settings=settings,
        repeated=repeated,
        healed_at=max(drawn.healed_at, 90.0),
    )


class WatchedBigQuery(PlainBigQuery):
    """Notes which batch of a table was committed when, and that no two of a table are loaded at once."""

    def __init__(self, **surroundings: Any) -> None:
        super().__init__(**surroundings)
        self.commits: dict[str, list[int]] = defaultdict(list)
        self.overlaps: list[str] = []

    def insert_job(self, project: str, resource: Any) -> Job:
        known = set(self.known)
        job = super().insert_job(project, resource)
        if job.reference["jobId"] not in known:
            table = _table(job)
            others = [one.reference["jobId"] for one in self.known.values() if one.state != "DONE" and one is not job]
            self.overlaps += [f"{job.reference['jobId']} beside {other}" for other in others if f"_{table}-" in other]
        return job

    def _end(self, job: Job) -> None:
        before = dict(self.tables[f"{DATASET}.{_table(job)}"].rows)
        super()._end(job)
        after = self.tables[f"{DATASET}.{_table(job)}"].rows
        self.commits[_table(job)] += [row for row in after if row not in before]


def _table(job: Job) -> str:
    return str(job.configuration["load"]["destinationTable"]["tableId"])


@contextmanager
def _done_though_unanswered(note: Callable[[], object]) -> Iterator[None]:
    """A call whose answer gets lost has had its effect."""
    try:
        yield
    except ResponseLost:
        note()
        raise
    note()


@dataclass(slots=True)
class Queued:
    """What the queue of one table looked like to somebody who sees every write."""

    waiting: dict[str, float] = field(default_factory=dict)
    current: str = ""


class OrderedUniverse(Universe):
    bigquery: WatchedBigQuery

    def __init__(self, scenario: Scenario, folder: Path, loop: VirtualLoop, *, gated: bool, trace: Any = None) -> None:
        self.gated = gated
        self.queues: dict[str, Queued] = defaultdict(Queued)
        self.overtaken: list[str] = []
        super().__init__(replace(scenario, rules=()), folder, loop, trace, WatchedBigQuery)
        for rule in scenario.rules:
            self._create_tables(rule.tables)
        self._tables = [rule.tables[0] for rule in scenario.rules]
        self._gates_open = not gated
        self._watch()

    def _settings(self) -> dict[str, Any]:
        convention = {"bucket": self.trigger, "order_per_table": True}
        if self.gated:
            convention["start_backfill_filename"] = _GATE
        grace = random.Random(f"grace {self.scenario.seed}").choice(("0s", "3s"))
        load = {"success": {"order_grace": grace, "conventions": [convention]}}
        return {**super()._settings(), **load}

    def _watch(self) -> None:
        """See every write and delete of the operations bucket, the moment it takes place."""
        objects = self.storage.objects
        insert, delete = objects.insert, objects.delete

        def inserting(bucket: str, name: str, data: Any, *args: Any, **kwargs: Any) -> Any:
            with _done_though_unanswered(lambda: bucket == self.ops and self._wrote(name, data)):
                return insert(bucket, name, data, *args, **kwargs)

        def deleting(bucket: str, name: str, *args: Any, **kwargs: Any) -> Any:
            with _done_though_unanswered(lambda: bucket == self.ops and self._deleted(name)):
                return delete(bucket, name, *args, **kwargs)

        objects.insert, objects.delete = inserting, deleting  # type: ignore[method-assign]

    def _deleted(self, name: str) -> None:
        key, _, order = name.removeprefix("journal/ordered/").partition("/queue/")
        self.queues[key].waiting.pop(order, None)

    def _wrote(self, name: str, data: bytes) -> None:
        if not name.startswith("journal/ordered/") or name in self._littered:
            return
        key, _, rest = name.removeprefix("journal/ordered/").partition("/")
        queue = self.queues[key]
        if rest.startswith("queue/"):
            queue.waiting.setdefault(rest.removeprefix("queue/"), self.loop.time())
            return
        current = orjson.loads(data)["Current"]
        if current and current != queue.current:
            now = self.loop.time()
            passed = [one for one, since in queue.waiting.items() if one < current and since < now - _SLACK]
            self.overtaken += [f"G6: {current} was chosen while {one} was waiting" for one in passed]
        queue.current = current

    def _upload(self, upload: Upload) -> None:
        super()._upload(upload)
        with self.undisturbed():
            self.storage.write(self.trigger, upload.name.replace("/f.json", "/_SUCCESS"), b"", "text/plain")

    def _announce(self, given: Input) -> None:
        name = given.name.replace("/f.json", "/_SUCCESS")
        with self.undisturbed():
            generation = int(self.storage.stat(self.trigger, name).generation)
        super()._announce(replace(given, name=name, generation=generation))

    def quiet(self) -> bool:
        if not self._gates_open and self.healed:
            self._open_gates()
            return False
        with self.undisturbed():
            entries = {name for name in self._listing("journal/ordered/", None) if "/queue/" in name}
            waiting = entries - self._littered
        return not waiting and super().quiet()

    def _open_gates(self) -> None:
        """All batches are in their queues: nothing may be committed before this, and everything in order after."""
        expected = {upload.name.replace("/f.json", "/_SUCCESS") for upload in self.scenario.uploads}
        waiting = {one.rpartition("@")[0] for queue in self.queues.values() for one in queue.waiting}
        if len(waiting) < len(expected):
            return
        assert not any(self.bigquery.commits.values()), "something was loaded although the gate was closed"
        self._gates_open = True
        with self.undisturbed():
            for table in self._tables:
                self.storage.write(self.trigger, f"{DATASET}/{table}/{_GATE}", b"", "text/plain")

    def check_order(self) -> None:
        problems = [*self.overtaken, *(f"G6: two loads at once: {one}" for one in self.bigquery.overlaps)]
        if self.gated:
            for table, rows in self.bigquery.commits.items():
                paths = {upload.ids[0]: upload.name for upload in self.scenario.uploads}
                in_order = sorted(rows, key=lambda row: paths[row])
                if rows != in_order:
                    problems.append(f"G6: {table} was committed as {rows}, not as {in_order}")
        assert not problems, "\n".join(problems)
