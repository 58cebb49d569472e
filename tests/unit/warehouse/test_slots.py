"""Jobs in flight per project stay under their limit, whoever waits for them."""

import asyncio
from datetime import timedelta
from typing import cast

from ingestd.model.clock import SystemClock
from ingestd.model.errors import Transient
from ingestd.model.jobs import JobKind, JobRef, JobRequest, JobState
from ingestd.ports import Warehouse
from ingestd.settings import Settings
from ingestd.warehouse.jobs import Completions, JobRunner
from ingestd.warehouse.slots import JobSlots

QUICK = timedelta(milliseconds=5)


class Jobs:
    """A warehouse whose jobs run until told otherwise."""

    def __init__(self) -> None:
        self.states: dict[str, JobState] = {}
        self.most = 0
        self.broken = False

    async def insert_job(self, request: JobRequest) -> JobState:
        if self.broken:
            raise Transient("503")
        job = JobState(request.ref, request.kind, "RUNNING", {})
        self.states[request.ref.job_id] = job
        self.most = max(self.most, sum(not one.done for one in self.states.values()))
        return job

    async def get_job(self, ref: JobRef) -> JobState | None:
        return self.states.get(ref.job_id)

    def end(self, name: str) -> None:
        job = self.states[name]
        self.states[name] = JobState(job.ref, job.kind, "DONE", {})


def asked(name: str, kind: JobKind = JobKind.LOAD, project: str = "p") -> JobRequest:
    return JobRequest(JobRef(project, "US", name), kind, {})


def runner(jobs: Jobs, **limits: int) -> JobRunner:
    warehouse, clock = cast("Warehouse", jobs), SystemClock()
    slots = JobSlots(warehouse, clock, ask_every=QUICK, **limits)
    return JobRunner(warehouse, Completions(), clock, poll_every=QUICK, slots=slots)


async def test_no_more_jobs_than_allowed_run_at_the_same_time() -> None:
    jobs = Jobs()
    working = runner(jobs, loads=2)

    async def one(name: str) -> None:
        job = await working.submit(asked(name))
        await asyncio.sleep(0.01)
        jobs.end(name)
        await working.wait(job)

    await asyncio.gather(*(one(f"job{number}") for number in range(9)))
    assert len(jobs.states) == 9
    assert jobs.most == 2


async def test_projects_and_kinds_have_slots_of_their_own() -> None:
    jobs = Jobs()
    working = runner(jobs, loads=1, queries=1)
    async with asyncio.timeout(60):
        await working.submit(asked("a"))
        await working.submit(asked("b", project="other"))
        await working.submit(asked("c", JobKind.QUERY))
        await working.submit(asked("d", JobKind.COPY))
    assert working.slots.in_flight("p", JobKind.LOAD) == 1


async def test_a_job_that_ends_without_us_makes_room() -> None:
    """Another replica handles its completion: nobody here waits for it."""
    jobs = Jobs()
    working = runner(jobs, loads=1)
    await working.submit(asked("let_go"))
    waiting = asyncio.create_task(working.submit(asked("next")))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    jobs.end("let_go")
    async with asyncio.timeout(60):
        await waiting


async def test_a_job_that_could_not_be_submitted_takes_no_slot() -> None:
    jobs = Jobs()
    working = runner(jobs, loads=1)
    jobs.broken = True
    for _ in range(2):
        try:
            await working.submit(asked("refused"))
        except Transient:
            continue
    jobs.broken = False
    async with asyncio.timeout(60):
        await working.submit(asked("taken"))


async def test_submitting_the_same_job_again_takes_no_second_slot() -> None:
    jobs = Jobs()
    working = runner(jobs, loads=1)
    async with asyncio.timeout(60):
        await working.submit(asked("same"))
        await working.submit(asked("same"))
    assert working.slots.in_flight("p", JobKind.LOAD) == 1


def test_the_limits_go_by_every_name_they_ever_had() -> None:
    for name in ("MaxConcurrentLoad", "MaxConcurrentJobs", "max_concurrent_load"):
        assert Settings.model_validate({"project": "p", name: 3}).max_concurrent_load == 3
    assert Settings.model_validate({"project": "p", "MaxConcurrentSQL": 4}).max_concurrent_sql == 4
