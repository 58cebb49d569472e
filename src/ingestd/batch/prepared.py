"""Batches whose rows are prepared before the load: read once, shaped, and loaded from few well-sized files.

| dies after             | what is there                       | who goes on, and how                              |
|------------------------|-------------------------------------|---------------------------------------------------|
| attempt number saved   | record, perhaps some prepared files | prepares again under the next number, elsewhere   |
| manifest written       | the same, a manifest nobody pinned  | the same: only a pinned manifest counts           |
| manifest pinned        | record says which files are loaded  | submits or adopts one job per output              |
| some outputs loaded    | the same, jobs                      | finds the jobs by their ids, goes on              |
| everything loaded      | the same                            | publishes what landed apart (see `publishing`)    |
| the batch ended        | `Done/`, perhaps prepared files     | the sweep removes what lies under no running batch|

A replica that was paused while preparing and comes back later fails to pin its manifest (every write of the record
names the generation it replaces), so two attempts are never both loaded. Rows reconcile: what the jobs have loaded is
what the manifest says was prepared, or nothing is deleted on the strength of it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

import structlog

from ingestd.batch.content import Fate, Load, SetAside
from ingestd.batch.driving import IN_PLACE, concluded_phase, one_format, request, stopped
from ingestd.batch.landing import APPEND, destination, landing_table, lands_apart, transient_of, truncates
from ingestd.batch.pinned import HOME, Pinned, Pour, Published
from ingestd.batch.publishing import Publishing
from ingestd.batch.record import Record
from ingestd.batch.rule import rule_of
from ingestd.batch.steps import branch_tables
from ingestd.batch.targets import Targets
from ingestd.batch.variables import batch_variables
from ingestd.model.errors import BadInput, Fatal, IngestError, NotFound, Throttled, Transient
from ingestd.model.jobs import JobKind, JobState
from ingestd.model.objects import ObjectRef
from ingestd.model.preparation import BadFile, Output, Prepared, PrepareRequest, Unmatched
from ingestd.model.tables import TableName, parse_table
from ingestd.ops import tracing
from ingestd.rules.shaping import absent_policy, shaping_of
from ingestd.warehouse.errors import job_failure
from ingestd.warehouse.proof import loaded_bytes, loaded_rows, missing_source

log = structlog.get_logger(__name__)

_OF_THE_TABLE = (
    "timePartitioning",
    "rangePartitioning",
    "clustering",
    "destinationEncryptionConfiguration",
    "destinationTableProperties",
)
_UPDATES = ["ALLOW_FIELD_ADDITION", "ALLOW_FIELD_RELAXATION"]


class PreparedLoading(Publishing):
    """One drive of one batch through its preparation and the loads of what was prepared."""

    async def run(self, *, fresh: bool) -> bool:
        await self._ready()
        if not self._record.progress.begun:
            await self._prepare()
        while (pinned := self._record.progress.pinned) and not all(pour.done for pour in pinned.pours):
            if not await self._pour_all(pinned):
                return False
        return await self._conclude()

    async def _prepare(self) -> None:
        """Prepare until a manifest is pinned, or no file is left."""
        self._able()
        one_format(self._record)
        aside = self._record.progress.aside
        self._set_aside(await self._entered([index for index in range(len(self._record.files)) if index not in aside]))
        failures = 0
        while True:
            wanted = await self._wanted()
            if not wanted:
                return
            number = self._record.progress.preparing + 1
            self._held.record = replace(self._record, progress=replace(self._record.progress, preparing=number))
            await self._save()
            try:
                made = await self._made(await self._asked(number, wanted))
                await self._pin_manifest(made, wanted)
            except Transient as problem:
                failures += 1
                pause = self._parts.pause(problem, failures)
                if failures >= self._parts.settings.jobs.max_attempts or pause > IN_PLACE:
                    raise
                log.warning("batch.prepared_again", event_id=self._record.event_id, error=str(problem), pause=pause)
                await self._parts.clock.sleep(pause)
            else:
                return

    def _able(self) -> None:
        if self._parts.preparer is None:
            rule = self._record.rule_name
            raise Fatal(f"rule {rule} needs its rows prepared by Spark, which this daemon runs without")

    async def _made(self, request: PrepareRequest) -> Prepared:
        assert self._parts.preparer is not None
        with tracing.span("prepare"):
            return await self._parts.preparer.prepare(request)

    async def _wanted(self) -> list[int]:
        """The files to prepare: there, of the announced generation, and not set aside."""
        progress = self._record.progress
        indexes = [index for index in range(len(self._record.files)) if index not in progress.aside]
        await self._look(indexes, self._set_aside)
        return [index for index in indexes if index not in self._record.progress.aside]

    async def _asked(self, attempt: int, wanted: list[int]) -> PrepareRequest:
        record, spec = self._record, rule_of(self._record)
        files = tuple(record.files[index] for index in wanted)
        schema, source = await self._schemas()
        return PrepareRequest(
            batch=record.event_id,
            attempt=attempt,
            folder=batch_folder(self._parts.settings.staging, record) / f"{attempt}/",
            files=files,
            load=record.load,
            schema=schema,
            source_schema=source,
            shaping=shaping_of(spec.dest, batch_variables(record, files, self._parts.settings)),
            bad_data=spec.on_bad_data,
            drift=spec.dest.drift,
            absent=absent_policy(spec.dest),
            layout=spec.layout,
        )

    async def _schemas(self) -> tuple[tuple[Mapping[str, Any], ...], tuple[Mapping[str, Any], ...]]:
        """The destination's columns, and the files' own where the rule says they differ."""
        record, spec = self._record, rule_of(self._record)
        given = _fields(record.load)
        table = await self._columns(destination(record))
        template = spec.dest.schema_options.template
        if not table and template:
            table = await self._columns(parse_table(template).in_project(self._parts.settings.project))
        if given and truncates(record) and destination(record).decorator is None:
            table = given  # the whole table is replaced, its columns included
        transient = transient_of(record)
        if transient is not None and transient.template:
            name = parse_table(transient.template).in_project(self._parts.settings.project)
            return table or given, await self._columns(name)
        return table or given, given if table and given != table else ()

    async def _columns(self, name: TableName) -> tuple[Mapping[str, Any], ...]:
        found = await self._parts.warehouse.table(name.partition(None))
        return _fields(found.resource) if found else ()

    async def _pin_manifest(self, made: Prepared, wanted: list[int]) -> None:
        """Make this attempt the one that counts: its bad files set aside, and every load job decided."""
        gone = [wanted[bad.index] for bad in made.bad if bad.missing]
        if gone:
            found = (await self._seen(gone)).aside
            if set(found) != set(gone):
                raise Transient(f"{len(gone) - len(found)} files could not be read, yet they are there")
            self._set_aside(found)
        self._set_aside({wanted[bad.index]: _verdict(bad) for bad in made.bad if not (bad.missing or bad.loaded)})
        record = self._record
        outputs = self._outputs(made)
        pours: list[Pour] = []
        limit = self._parts.settings.jobs.max_files
        for place, output in enumerate(outputs):
            if record.progress.has(output.branch):
                continue
            for first in range(0, len(output.uris), limit):
                last = min(first + limit, len(output.uris))
                pours.append(Pour(place, first, last, record.progress.jobs + len(pours) + 1))
        pinned = Pinned(replace(made, outputs=outputs), tuple(pours))
        given = record.progress.give_out((part, len(pours)) for part in range(1, len(pours) + 1))
        progress = replace(given, pinned=pinned)
        staged = transient_of(record) is None and self._needs_staging(pinned)
        self._held.record = replace(record, progress=progress, staged=staged)
        await self._save()

    def _outputs(self, made: Prepared) -> tuple[Output, ...]:
        """What each target gets. One that is replaced, or read by actions, is there even if it gets no row at all."""
        outputs = [output for output in made.outputs if output.uris]
        # A batch without a good file replaces nothing.
        good = len(self._record.progress.aside) < len(self._record.files)
        if good and (truncates(self._record) or transient_of(self._record) is not None):
            there = {output.branch for output in outputs}
            outputs += [Output(branch, (), 0, 0) for branch in self._targets() if branch not in there]
        return tuple(outputs)

    def _targets(self) -> list[int]:
        split = rule_of(self._record).dest.schema_options.split
        branches = list(range(len(split.mapping))) if split else []
        return [*branches, HOME] if split is None or split.unmatched is Unmatched.KEEP else branches

    def _needs_staging(self, pinned: Pinned) -> bool:
        """Whether rows cannot go straight into their tables: an upsert, several jobs per table, or none."""
        if rule_of(self._record).dest.merge is not None:
            return True
        each = [sum(pour.output == place for pour in pinned.pours) for place in range(len(pinned.prepared.outputs))]
        left = [
            number
            for number, output in zip(each, pinned.prepared.outputs, strict=True)
            if not self._record.progress.has(output.branch)
        ]
        return any(number > 1 for number in left) or (truncates(self._record) and 0 in left)

    async def _pour_all(self, pinned: Pinned) -> bool:
        """Submit, await and judge the jobs of all outputs; False when they run on without us.

        What cannot go on is told after every job has ended and is judged: rows that a job has loaded, and the record
        does not know of, would be loaded again.
        """
        jobs: dict[tuple[int, int], JobState] = {}
        over: IngestError | None = None
        for pour in pinned.pours:
            if not pour.done:
                job = await self._parts.warehouse.get_job(self._record.load_job(pour.job))
                try:
                    jobs[pour.output, pour.first] = job or await self._submit(pour)
                except BadInput as error:
                    over = error
        done = await self._ends(jobs)
        if done is None:
            return False
        problems = []
        gone = ""
        for (output, first), job in done.items():
            pour = next(one for one in pinned.pours if (one.output, one.first) == (output, first))
            if missing_source(job):
                gone = f"prepared files are gone: {job_failure(job)}"
                continue
            try:
                problem = self._judge(pour, job)
            except IngestError as error:
                over = error
                continue
            if problem is not None:
                problems.append((self._parts.pause(problem, pour.failures + 1), problem))
        if (over or gone) and len(done) < len(jobs):
            await self._let_go()
            return False
        if over is not None:
            raise over
        if gone:
            await self._prepare_again(gone)
        if problems:
            pause, problem = max(problems, key=lambda one: one[0])
            if isinstance(problem, Fatal) or pause > IN_PLACE:
                raise problem
            log.warning("batch.load_retried", event_id=self._record.event_id, error=str(problem), pause=pause)
            await self._parts.clock.sleep(pause)
        return True

    async def _submit(self, pour: Pour) -> JobState:
        parts, record = self._parts, self._record
        assert record.progress.pinned is not None
        branch = record.progress.pinned.branch(pour)
        target = self._target(branch)
        ref = record.load_job(pour.job)
        partitioned = target.decorator is not None or parts.preparation.partitioned(record)
        await parts.governor.admit(target, partitioned=partitioned, key=ref.job_id)
        if lands_apart(record):
            columns = [dict(column) for column in record.progress.pinned.prepared.schema]
            await self._landing.ensure_prepared(record, branch, columns)
        elif branch != HOME:
            await Targets(parts).ensure(record, target)
        load = self._load(record.progress.pinned, pour, target)
        return await self._insert(request(record, ref, JobKind.LOAD, load, "load"), target)

    def _target(self, branch: int) -> TableName:
        """Where the rows of an output arrive."""
        record = self._record
        if lands_apart(record):
            return landing_table(record, branch)
        return destination(record) if branch == HOME else branch_tables(record)[branch]

    def _load(self, pinned: Pinned, pour: Pour, target: TableName) -> dict[str, Any]:
        record, made = self._record, pinned.prepared
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
            load["schema"] = {"fields": [dict(column) for column in made.schema]}
        if lands_apart(record):
            return load | {"writeDisposition": APPEND, "createDisposition": "CREATE_IF_NEEDED"}
        options = list(record.load.get("schemaUpdateOptions") or ())
        if (made.added or made.relaxed) and (not truncates(record) or target.decorator):
            options = _UPDATES
        return load | ({"schemaUpdateOptions": options} if options else {})

    def _judge(self, pour: Pour, job: JobState) -> Throttled | Transient | Fatal | None:
        """Take a finished job's outcome into the record; the problem, when the same files need another attempt.

        Raises when another attempt is pointless, or the job did not do what it was asked for.
        """
        problem = job_failure(job)
        if problem is None:
            self._poured(pour, job)
            return None
        failures = pour.failures + (1 if isinstance(problem, Transient) else 0)
        if isinstance(problem, BadInput) or stopped(job):
            raise BadInput(f"loading prepared rows into {self._record.dest}: {problem}")
        if failures >= self._parts.settings.jobs.max_attempts or self._parts.given_up(self._record):
            raise BadInput(f"loading prepared rows into {self._record.dest} failed {failures} times: {problem}")
        assert isinstance(problem, Throttled | Transient | Fatal)
        if isinstance(problem, Throttled):
            self._feed_back(problem, self._target(self._pinned.branch(pour)))
        given = self._record.progress.give_out_again(pour.job)
        again = replace(pour, job=given.jobs, failures=failures)
        progress = replace(given, pinned=self._pinned.with_pour(again))
        self._held.record = replace(self._record, progress=progress, error=str(problem))
        return problem

    @property
    def _pinned(self) -> Pinned:
        pinned = self._record.progress.pinned
        assert pinned is not None
        return pinned

    def _poured(self, pour: Pour, job: JobState) -> None:
        """The job is proven: it read what it was given, and every prepared row is there."""
        pinned, rows = self._pinned, loaded_rows(job)
        sources = job.configuration.get("sourceUris")
        if sources is not None and sorted(sources) != sorted(pinned.uris(pour)):
            raise Fatal(f"job {job.ref} loaded other files than this attempt's: {sources[:3]}")
        pinned = pinned.with_pour(replace(pour, rows=rows, size=loaded_bytes(job)))
        output, branch = pinned.output(pour), pinned.branch(pour)
        whole = all(one.done for one in pinned.pours if one.output == pour.output)
        if whole and (landed := pinned.landed(branch)) != output.rows:
            raise Fatal(f"job {job.ref}: {landed} rows were loaded, but {output.rows} were prepared")
        progress = replace(self._record.progress, pinned=pinned)
        if not lands_apart(self._record):
            done = Published(branch, str(self._target(branch)), rows, job.ref.job_id)
            progress = replace(progress, published=(*progress.published, done))
        self._held.record = replace(self._record, progress=progress, error="")

    async def _prepare_again(self, why: str) -> NoReturn:
        """Somebody removed prepared files. Targets that have their rows keep them; the others are prepared again."""
        if lands_apart(self._record):
            await self._land_again(why)
        progress = self._record.progress
        if progress.reloads >= self._max_reload:
            raise BadInput(f"{why}, {self._max_reload} times")
        again = replace(progress, pinned=None, reloads=progress.reloads + 1)
        self._held.record = replace(self._record, progress=again)
        raise Transient(f"{why}; they are prepared again")

    async def _conclude(self) -> bool:
        record = self._record
        pinned = record.progress.pinned
        if pinned is not None:
            if lands_apart(record) and not await self._publish_prepared(pinned):
                return False
            await self._keep_rejected(pinned)
            loaded = tuple(index for index in range(len(record.files)) if index not in record.progress.aside)
            if loaded:
                last = max((pour.job for pour in pinned.pours), default=0)
                size = sum(record.files[index].size for index in loaded)
                done = Load(last, loaded, sum(output.rows for output in pinned.prepared.outputs), size)
                self._held.record = replace(self._record, progress=replace(self._record.progress, loads=(done,)))
        self._held.record = concluded_phase(self._record)
        return True

    async def _publish_prepared(self, pinned: Pinned) -> bool:
        """Publish what was landed; a target that is replaced by no rows needs its empty table first."""
        columns = [dict(column) for column in pinned.prepared.schema]
        for output in pinned.prepared.outputs:
            if not output.uris and not self._record.progress.has(output.branch):
                await self._landing.ensure_prepared(self._record, output.branch, columns)
        return await self._publish()

    async def _keep_rejected(self, pinned: Pinned) -> None:
        """Rows that were left out of loaded files lie in the attempt's folder, which goes; they are kept as errors."""
        record = self._record
        for url, kept in zip(pinned.prepared.rejected, rejected_rows(self._parts.settings.errors, record), strict=True):
            source = ObjectRef.parse(url)
            try:
                await self._parts.store.copy(source, kept)
            except NotFound:
                if await self._parts.store.stat(kept) is None:
                    log.error("batch.bad_rows_lost", event_id=record.event_id, lost=url, kept=kept.url)  # noqa: TRY400
                else:  # whoever was here before kept it, and died after the folder was emptied
                    log.info("batch.rejected_kept_before", event_id=record.event_id, kept=kept.url)
        if pinned.prepared.rows_left_out:
            left = dict(pinned.prepared.rows_left_out)
            log.info("batch.rows_left_out", event_id=record.event_id, dest=record.dest, **left)


def batch_folder(staging: ObjectRef, record: Record) -> ObjectRef:
    """Everything that attempts at preparing the batch have written."""
    return staging / record.event_id


def rejected_rows(errors: ObjectRef, record: Record) -> list[ObjectRef]:
    """Where the rows are kept that were left out of loaded files."""
    pinned = record.progress.pinned
    names = [url.rpartition("/")[2] for url in pinned.prepared.rejected] if pinned else []
    return [errors / f"{record.dest}/{record.event_id}.rejected/{name}" for name in names]


def _verdict(bad: BadFile) -> SetAside:
    fate = Fate.INVALID_SCHEMA if bad.schema else Fate.CORRUPTED
    return SetAside(fate, bad.why, row=bad.line, column=bad.column)


def _fields(resource: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return tuple((resource.get("schema") or {}).get("fields") or ())
