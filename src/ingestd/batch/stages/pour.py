"""The loads of prepared files: one job per output (or several, where it has many files), each read whole or not at all.

| dies after             | what is there                       | who goes on, and how                              |
|------------------------|-------------------------------------|---------------------------------------------------|
| manifest pinned        | record says which files are loaded  | submits or adopts one job per output              |
| some outputs loaded    | the same, jobs                      | finds the jobs by their ids, goes on              |
| everything loaded      | the same                            | publishes what landed apart (see `publish`)       |

Rows reconcile: what the jobs have loaded is what the manifest says was prepared, or nothing is deleted on the strength
of it.
"""

from dataclasses import replace
from typing import Any, NoReturn

from ingestd.batch.drive import Drive, stopped
from ingestd.batch.landing import APPEND, destination, landing_table, truncates
from ingestd.batch.pinned import HOME, Pinned, Pour, Published
from ingestd.batch.record import Record
from ingestd.batch.steps import branch_tables
from ingestd.batch.targets import Targets
from ingestd.model.errors import BadInput, Fatal, IngestError, Throttled, Transient
from ingestd.model.jobs import JobKind, JobState
from ingestd.model.schema import schema_rest
from ingestd.model.tables import TableName
from ingestd.warehouse.errors import job_failure
from ingestd.warehouse.proof import loaded_bytes, loaded_rows, missing_source

_OF_THE_TABLE = (
    "timePartitioning",
    "rangePartitioning",
    "clustering",
    "destinationEncryptionConfiguration",
    "destinationTableProperties",
)
_UPDATES = ["ALLOW_FIELD_ADDITION", "ALLOW_FIELD_RELAXATION"]


async def pour_all(drive: Drive) -> bool:
    """Submit, await and judge the jobs of all outputs; False when they run on without us.

    What cannot go on is told after every job has ended and is judged: rows that a job has loaded, and the record
    does not know of, would be loaded again.
    """
    jobs: dict[int, JobState] = {}
    over: IngestError | None = None
    pours = {pour.job: pour for pour in pinned_of(drive.record).pours if not pour.done}
    for number, pour in pours.items():
        job = await drive.job_of(drive.record.load_job(number))
        try:
            jobs[number] = job or await _submit(drive, pour)
        except BadInput as error:
            over = error
    done = await drive.ends(jobs)
    if done is None:
        return False
    problems = []
    gone = ""
    for number, job in done.items():
        if missing_source(job):
            gone = f"prepared files are gone: {job_failure(job)}"
            continue
        pour, problem = pours[number], job_failure(job)
        try:
            if problem is None:
                drive.become(poured(drive.record, pour, job))
            else:
                _failed(drive, pour, job, problem)
                problems.append((drive.parts.pause(problem, pour.failures + 1), problem))
        except IngestError as error:
            over = error
    if (over or gone) and len(done) < len(jobs):
        await drive.let_go()
        return False
    if over is not None:
        raise over
    if gone:
        await _prepare_again(drive, gone)
    if problems:
        pause, longest = max(problems, key=lambda one: one[0])
        await drive.rest("batch.load_retried", longest, pause)
    return True


async def _submit(drive: Drive, pour: Pour) -> JobState:
    parts, record = drive.parts, drive.record
    pinned = pinned_of(record)
    branch = pinned.branch(pour)
    target = _target(record, branch)
    ref = record.load_job(pour.job)
    partitioned = target.decorator is not None or parts.destinations.partitioned(record)
    await parts.governor.admit(target, partitioned=partitioned, key=ref.job_id)
    if record.lands_apart:
        await drive.parts.landing.ensure_prepared(record, branch, pinned.prepared.schema)
    elif branch != HOME:
        await Targets(parts).ensure(record, target)
    return await drive.submit(ref, JobKind.LOAD, _load(record, pour, target), target, "load")


def _target(record: Record, branch: int) -> TableName:
    """Where the rows of an output arrive."""
    if record.lands_apart:
        return landing_table(record, branch)
    return destination(record) if branch == HOME else branch_tables(record)[branch]


def _load(record: Record, pour: Pour, target: TableName) -> dict[str, Any]:
    pinned = pinned_of(record)
    made = pinned.prepared
    load = {
        **{key: record.load[key] for key in _OF_THE_TABLE if record.load.get(key)},
        "createDisposition": record.load.get("createDisposition", "CREATE_IF_NEEDED"),
        "writeDisposition": record.load.get("writeDisposition", APPEND),
        "sourceFormat": made.format,
        **dict(made.load_options),
        "sourceUris": pinned.uris(pour),
        "destinationTable": target.rest,
    }
    if made.schema:
        load["schema"] = schema_rest(made.schema)
    if record.lands_apart:
        return load | {"writeDisposition": APPEND, "createDisposition": "CREATE_IF_NEEDED"}
    options = list(record.load.get("schemaUpdateOptions") or ())
    if (made.added or made.relaxed) and (not truncates(record) or target.decorator):
        options = _UPDATES
    return load | ({"schemaUpdateOptions": options} if options else {})


def _failed(drive: Drive, pour: Pour, job: JobState, problem: IngestError) -> None:
    """Take a job's failure into the record, for another attempt at the same files; raises when that is pointless."""
    record, parts = drive.record, drive.parts
    failures = pour.failures + (1 if isinstance(problem, Transient) else 0)
    if isinstance(problem, BadInput) or stopped(job):
        raise BadInput(f"loading prepared rows into {record.dest}: {problem}")
    if failures >= parts.settings.jobs.max_attempts or parts.given_up(record):
        raise BadInput(f"loading prepared rows into {record.dest} failed {failures} times: {problem}")
    pinned = pinned_of(record)
    if isinstance(problem, Throttled):
        drive.feed_back(problem, _target(record, pinned.branch(pour)))
    given = record.progress.give_out_again(pour.job)
    again = replace(pour, job=given.jobs, failures=failures)
    drive.change(progress=replace(given, pinned=pinned.with_pour(again)), error=str(problem))


def pinned_of(record: Record) -> Pinned:
    assert record.progress.pinned is not None
    return record.progress.pinned


def poured(record: Record, pour: Pour, job: JobState) -> Record:
    """The job is proven: it read what it was given, and every prepared row is there."""
    pinned, rows = pinned_of(record), loaded_rows(job)
    sources = job.configuration.get("sourceUris")
    if sources is not None and sorted(sources) != sorted(pinned.uris(pour)):
        raise Fatal(f"job {job.ref} loaded other files than this attempt's: {sources[:3]}")
    pinned = pinned.with_pour(replace(pour, rows=rows, size=loaded_bytes(job)))
    output, branch = pinned.output(pour), pinned.branch(pour)
    whole = all(one.done for one in pinned.pours if one.output == pour.output)
    if whole and (landed := pinned.landed(branch)) != output.rows:
        raise Fatal(f"job {job.ref}: {landed} rows were loaded, but {output.rows} were prepared")
    progress = replace(record.progress, pinned=pinned)
    if not record.lands_apart:
        done = Published(branch, str(_target(record, branch)), rows, job.ref.job_id)
        progress = replace(progress, published=(*progress.published, done))
    return replace(record, progress=progress, error="")


async def _prepare_again(drive: Drive, why: str) -> NoReturn:
    """Somebody removed prepared files. Targets that have their rows keep them; the others are prepared again."""
    if drive.record.lands_apart:
        await drive.land_again(why)
    drive.begin_again(why, "they are prepared again")
