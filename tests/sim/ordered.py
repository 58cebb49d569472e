"""Ordered tables under the same trouble as everything else: success files instead of rules, and a judge of the order.

Two kinds of runs. *Gated*: the gate file comes when all batches are in the queues, and then they have to commit exactly
in the order of their paths. *Live*: batches are taken as they come, and a batch may not commit before an earlier one
that was in the queue when it was chosen.
"""

import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.sim.scenario import Ending, Features, RulePlan, Scenario, Upload, draw
from tests.sim.scheduler import Universe
from tests.support.sim.names import DATASET
from tests.support.sim.plain_bigquery import Job, PlainBigQuery
from tests.support.virtual_time import VirtualLoop

_GATE = "_HISTORYDONE"


def ordered_scenario(seed: int) -> Scenario:
    """The trouble of the seed, with batches of one or two ordered tables."""
    drawn = draw(seed, Features(bad_files=False, overwrites=0.0, changes=False, groups=False, ordered=False))
    chance = random.Random(f"ordered {seed}")
    tables = tuple(
        RulePlan(number, False, Ending.KEEP, split=False, success=True) for number in range(chance.choice((1, 1, 2)))
    )
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
        rules=(),
        ordered=tuple(table for table in tables if any(upload.rule is table for upload in uploads)),
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


class OrderedUniverse(Universe):
    bigquery: WatchedBigQuery

    def __init__(self, scenario: Scenario, folder: Path, loop: VirtualLoop, *, gated: bool, trace: Any = None) -> None:
        self.gated = gated
        super().__init__(scenario, folder, loop, trace, WatchedBigQuery)
        self._tables = [rule.tables[0] for rule in scenario.ordered]
        self._gates_open = not gated

    def _convention(self) -> dict[str, Any]:
        return super()._convention() | ({"start_backfill_filename": _GATE} if self.gated else {})

    def quiet(self) -> bool:
        if not self._gates_open and self.healed:
            self._open_gates()
            return False
        return super().quiet()

    def _open_gates(self) -> None:
        """All batches are in their queues: nothing may be committed before this, and everything in order after."""
        expected = {upload.name.replace("/f.json", "/_SUCCESS") for upload in self.scenario.uploads}
        waiting = {one.rpartition("@")[0] for queue in self.order.queues.values() for one in queue.waiting}
        if len(waiting) < len(expected):
            return
        assert not any(self.bigquery.commits.values()), "something was loaded although the gate was closed"
        self._gates_open = True
        with self.undisturbed():
            for table in self._tables:
                self.storage.write(self.trigger, f"{DATASET}/{table}/{_GATE}", b"", "text/plain")

    def check_order(self) -> None:
        problems = [*self.order.overtaken, *(f"G6: two loads at once: {one}" for one in self.bigquery.overlaps)]
        if self.gated:
            for table, rows in self.bigquery.commits.items():
                paths = {upload.ids[0]: upload.name for upload in self.scenario.uploads}
                in_order = sorted(rows, key=lambda row: paths[row])
                if rows != in_order:
                    problems.append(f"G6: {table} was committed as {rows}, not as {in_order}")
        assert not problems, "\n".join(problems)
