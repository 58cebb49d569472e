"""Preparing a batch's rows: its files are read once, shaped, and few well-sized files are written to be loaded.

Rules have them prepared as they say. A directory may bring a Spark SQL query over the view `temp_ext`, for data that
BigQuery cannot read as it is, or should not: what it selects is loaded.

| dies after             | what is there                       | who goes on, and how                              |
|------------------------|-------------------------------------|---------------------------------------------------|
| attempt number saved   | record, perhaps some prepared files | prepares again under the next number, elsewhere   |
| manifest written       | the same, a manifest nobody pinned  | the same: only a pinned manifest counts           |
| manifest pinned        | record says which files are loaded  | submits or adopts one job per output (`pour`)     |
| the batch ended        | `Done/`, perhaps prepared files     | the sweep removes what lies under no running batch|

A replica that was paused while preparing and comes back later fails to pin its manifest (every write of the record
names the generation it replaces), so two attempts are never both loaded.
"""

from dataclasses import replace

from ingestd.batch.content import Fate, SetAside
from ingestd.batch.drive import Drive
from ingestd.batch.landing import destination, truncates
from ingestd.batch.pinned import HOME, Pinned, Pour
from ingestd.batch.record import Record
from ingestd.batch.stages.look import Look, left, one_format
from ingestd.batch.stages.query import TEMP_EXT
from ingestd.batch.variables import batch_variables
from ingestd.model.errors import BadInput, Fatal, Transient
from ingestd.model.objects import ObjectRef
from ingestd.model.preparation import BadData, BadFile, Output, Prepared, PrepareRequest, Unmatched
from ingestd.model.schema import Schema, schema_from_rest
from ingestd.model.tables import TableName, parse_table
from ingestd.ops import tracing
from ingestd.rules.shaping import absent_policy, shaping_of


class Prepare:
    def __init__(self, look: Look) -> None:
        self._look = look

    async def __call__(self, drive: Drive) -> bool:
        """Prepare until a manifest is pinned, or no file is left. A directory was looked at when it was pinned."""
        parts, by_rule = drive.parts, drive.record.success is None
        _able(drive)
        await one_format(drive.record)
        if by_rule:
            await self._look.enter(drive)
        failures = 0
        while True:
            if by_rule:  # those that are there, of the announced generation, and not set aside
                await self._look.at(drive, left(drive.record), drive.set_aside)
            wanted = left(drive.record)
            if not wanted:
                return True
            number = drive.progress.preparing + 1
            drive.advance(preparing=number)
            await drive.save()
            try:
                request = await _asked(drive, number, wanted)
                if by_rule:
                    assert parts.preparer is not None
                    with tracing.span("prepare"):
                        made = await parts.preparer.prepare(request)
                else:
                    made = await _queried(drive, request)
                await self._pin_manifest(drive, made, wanted)
            except Transient as problem:
                failures += 1
                if failures >= parts.settings.jobs.max_attempts:
                    raise
                await drive.rest("batch.prepared_again", problem, parts.pause(problem, failures))
            else:
                return True

    async def _pin_manifest(self, drive: Drive, made: Prepared, wanted: list[int]) -> None:
        """Make this attempt the one that counts: its bad files set aside, and every load job decided."""
        gone = [wanted[bad.index] for bad in made.bad if bad.missing]
        if gone:
            found = (await self._look.seen(drive, gone)).aside
            if set(found) != set(gone):
                raise Transient(f"{len(gone) - len(found)} files could not be read, yet they are there")
            drive.set_aside(found)
        drive.set_aside({wanted[bad.index]: _verdict(bad) for bad in made.bad if not (bad.missing or bad.loaded)})
        record = drive.record
        outputs = _outputs(record, made)
        pours: list[Pour] = []
        limit = drive.parts.settings.jobs.max_files
        for place, output in enumerate(outputs):
            if record.progress.has(output.branch):
                continue
            for first in range(0, len(output.uris), limit):
                last = min(first + limit, len(output.uris))
                pours.append(Pour(place, first, last, record.progress.jobs + len(pours) + 1))
        pinned = Pinned(replace(made, outputs=outputs), tuple(pours))
        given = record.progress.give_out((part, len(pours)) for part in range(1, len(pours) + 1))
        staged = record.transient is None and _needs_staging(record, pinned)
        drive.change(progress=replace(given, pinned=pinned, staged=staged))
        await drive.save()


def _able(drive: Drive) -> None:
    record, parts = drive.record, drive.parts
    if record.success is not None and parts.spark_sql is None:
        raise Fatal("spark_transform.sql needs Spark, which this daemon runs without (settings: spark)")
    if record.success is None and parts.preparer is None:
        raise Fatal(f"rule {record.rule.name} needs its rows prepared by Spark, which this daemon runs without")


async def _queried(drive: Drive, request: PrepareRequest) -> Prepared:
    """What a directory's own statement selects."""
    statements, mark = drive.parts.spark_sql, drive.record.success
    assert statements is not None
    assert mark is not None
    made = await statements.query(over_temp_ext(mark.sql), request)
    if gone := [request.files[bad.index].ref.url for bad in made.bad if bad.missing]:
        raise BadInput(f"{len(gone)} file(s) of the directory are gone or were overwritten, e.g. {gone[0]}")
    return made


async def _asked(drive: Drive, attempt: int, wanted: list[int]) -> PrepareRequest:
    record, settings = drive.record, drive.parts.settings
    files = tuple(record.files[index] for index in wanted)
    folder = batch_folder(settings.staging, record) / f"{attempt}/"
    if record.success is not None:
        reading = dict(record.success.external)
        fields = schema_from_rest(reading.pop("schema", None))
        load = reading if fields else {**reading, "autodetect": True}
        return PrepareRequest(
            record.event_id, attempt, folder, files, load, fields, bad_data=BadData.FAIL, table=record.dest
        )
    spec = record.rule.spec
    schema, source = await _schemas(drive)
    return PrepareRequest(
        batch=record.event_id,
        attempt=attempt,
        folder=folder,
        files=files,
        load=record.load,
        schema=schema,
        source_schema=source,
        shaping=shaping_of(spec.dest, batch_variables(record, files, settings)),
        bad_data=spec.on_bad_data,
        drift=spec.dest.drift,
        absent=absent_policy(spec.dest),
        layout=spec.layout,
        table=record.dest,
    )


async def _schemas(drive: Drive) -> tuple[Schema, Schema]:
    """The destination's columns, and the files' own where the rule says they differ."""
    record, spec, project = drive.record, drive.record.rule.spec, drive.parts.settings.project
    given = schema_from_rest(record.load.get("schema"))
    table = await _columns(drive, destination(record))
    template = spec.dest.schema_options.template
    if not table and template:
        table = await _columns(drive, parse_table(template).in_project(project))
    if given and truncates(record) and destination(record).decorator is None:
        table = given  # the whole table is replaced, its columns included
    transient = record.transient
    if transient is not None and transient.template:
        return table or given, await _columns(drive, parse_table(transient.template).in_project(project))
    return table or given, given if table and given != table else ()


async def _columns(drive: Drive, name: TableName) -> Schema:
    found = await drive.parts.warehouse.table(name.partition(None))
    return schema_from_rest(found.resource.get("schema")) if found else ()


def _outputs(record: Record, made: Prepared) -> tuple[Output, ...]:
    """What each target gets. One that is replaced, or read by actions, is there even if it gets no row at all."""
    outputs = [output for output in made.outputs if output.uris]
    # A batch without a good file replaces nothing.
    good = len(record.progress.aside) < len(record.files)
    if good and (truncates(record) or record.transient is not None):
        there = {output.branch for output in outputs}
        outputs += [Output(branch, (), 0, 0) for branch in _targets(record) if branch not in there]
    return tuple(outputs)


def _targets(record: Record) -> list[int]:
    split = record.rule.spec.dest.schema_options.split
    branches = list(range(len(split.mapping))) if split else []
    return [*branches, HOME] if split is None or split.unmatched is Unmatched.KEEP else branches


def _needs_staging(record: Record, pinned: Pinned) -> bool:
    """Whether rows cannot go straight into their tables: an upsert, several jobs per table, or none."""
    if record.rule.spec.dest.merge is not None:
        return True
    each = [sum(pour.output == place for pour in pinned.pours) for place in range(len(pinned.prepared.outputs))]
    counted = zip(each, pinned.prepared.outputs, strict=True)
    missing = [number for number, output in counted if not record.progress.has(output.branch)]
    return any(number > 1 for number in missing) or (truncates(record) and 0 in missing)


def batch_folder(staging: ObjectRef, record: Record) -> ObjectRef:
    """Everything that attempts at preparing the batch have written."""
    return staging / record.event_id


def over_temp_ext(sql: str) -> str:
    """The statement, for which the batch's view is called `temp_ext`; a WITH of its own stays its own."""
    statement = sql.rstrip().rstrip(";")
    return f"WITH {TEMP_EXT} AS (SELECT * FROM batch)\nSELECT * FROM (\n{statement}\n)"  # noqa: S608 - the operator's own SQL


def _verdict(bad: BadFile) -> SetAside:
    fate = Fate.INVALID_SCHEMA if bad.schema else Fate.CORRUPTED
    return SetAside(fate, bad.why, row=bad.line, column=bad.column)
