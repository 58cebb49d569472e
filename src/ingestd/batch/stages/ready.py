"""What is chosen for a batch before its first job, once: which project runs its jobs, and who prepares its rows.

Most batches have no choice. Where the rule leaves one (a balancer, or no `Engine` where it matters), the choice is in
the saved record before the first job is submitted: job ids live in a project, and two engines would load twice.

| dies after       | what is there               | who goes on, and how                                              |
|------------------|-----------------------------|-------------------------------------------------------------------|
| a table was made | record, the table           | finds the table                                                   |
| chosen           | record without the choice   | chooses again: no job was submitted yet                           |
"""

import random
from dataclasses import replace

from ingestd.batch.destinations import missing_dataset
from ingestd.batch.drive import Drive
from ingestd.batch.landing import destination
from ingestd.batch.placement import Placement
from ingestd.batch.record import Kind, Record
from ingestd.batch.steps import Way, engine_matters, engine_of, way_of
from ingestd.model.errors import NotFound
from ingestd.model.jobs import JobKind
from ingestd.rules.schema import Balancer, BalancerStrategy
from ingestd.warehouse.slots import JobSlots


async def ready(drive: Drive) -> bool:
    """Know where jobs run, in which project, and who prepares rows; what was chosen stays chosen."""
    parts, slots = drive.parts, drive.parts.jobs.slots
    if drive.way is Way.QUERY:
        await _locate(drive)
    else:
        if not drive.record.load or not drive.record.placement.location:
            drive.become(await parts.destinations.prepare(drive.record))
        await recount(drive.record, slots)
        drive.become(settle(drive.record, parts.settings.engine, slots))
    drive.ready = True
    return True


async def _locate(drive: Drive) -> None:
    """Know where the job runs; the table itself may be the query's to make."""
    if drive.record.placement.location:
        return
    table = destination(drive.record)
    location = await drive.parts.warehouse.dataset_location(table.project or "", table.dataset)
    if location is None:
        raise NotFound(missing_dataset(drive.record, table))
    drive.become(drive.record.located(location))


def settle(record: Record, engine: str, slots: JobSlots) -> Record:
    """The record with its project and engine; what was chosen before stays."""
    if record.kind is not Kind.LOAD:
        return record
    if not record.placement.settled:
        record = replace(record, placement=_chosen(record, engine, slots))
    if way_of(record, engine) is Way.STATEMENTS and record.transient is None:
        return replace(record, progress=replace(record.progress, staged=True))  # statements need a table to read from
    return record


def _chosen(record: Record, engine: str, slots: JobSlots) -> Placement:
    spec, transient, placement = record.rule.spec, record.transient, record.placement
    chosen = False
    if transient is not None:
        balancer = transient.balancer
        if balancer is not None and len(balancer.project_ids) > 1:
            placement, chosen = replace(placement, project=choose(balancer, slots, record.event_id)), True
        else:
            given = transient.project_id or (balancer.project_ids[0] if balancer and balancer.project_ids else "")
            placement = replace(placement, project=given or placement.project)
    if spec.engine is None and engine_matters(spec, record.load):
        placement, chosen = replace(placement, engine=engine_of(record, engine)), True
    return replace(placement, settled=chosen)


async def recount(record: Record, slots: JobSlots) -> None:
    """Before a balancer chooses: look whether projects that seem full still are. Jobs may have ended without us."""
    transient = record.transient
    balancer = transient.balancer if transient else None
    if record.placement.settled or balancer is None or not balancer.max_load_jobs:
        return
    for project in balancer.project_ids:
        if slots.in_flight(project, JobKind.LOAD) >= balancer.max_load_jobs:
            await slots.ask(project, JobKind.LOAD)


def choose(balancer: Balancer, slots: JobSlots, seed: str) -> str:
    """The project whose turn it is, by the load jobs that run there as far as this process knows.

    `rand` draws one, and keeps it unless it is full and another is not; `fallback` takes the first that is not full.
    """
    projects, most = balancer.project_ids, balancer.max_load_jobs
    free = [one for one in projects if not most or slots.in_flight(one, JobKind.LOAD) < most]
    drawn = random.Random(seed).choice(projects)  # noqa: S311 - any spread will do, and the same batch draws the same
    if balancer.strategy is BalancerStrategy.FALLBACK:
        return free[0] if free else drawn
    return drawn if drawn in free or not free else free[0]
