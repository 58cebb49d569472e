"""`spark`: Spark SQL over the batch's rows, into a table or into files.

What is there at each step, and what a death after it means when the action is run again:

    1. `<StagingURL>/<batch>/spark-<step>/<run>/…`   files that nobody names: never used
    2. `…/manifest.json`, created once               the statement is not run again; these files are the result
    3. the load job, by its deterministic id         adopted: a table gets the rows once
       or copies at `<DestURL>/<batch>/…`            made again over themselves, under the same names
    4. the staging folder removed                    the statement runs again, and its job is found done
       (files: what the manifest does not name is removed from the batch's folder first)

Rows of a table go through one load job, so they appear at once or not at all.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ingestd.actions.context import ActionContext, Outcome, Step
from ingestd.actions.jobs import location_of, run_job, write_disposition
from ingestd.actions.objects import marks
from ingestd.actions.query import statement
from ingestd.actions.values import job_response
from ingestd.model.bounded import bounded
from ingestd.model.errors import BadInput, Fatal, NotFound, raise_first
from ingestd.model.jobs import JobKind
from ingestd.model.objects import FileVersion, ObjectRef
from ingestd.model.preparation import BadData, FileLayout, Prepared, PrepareRequest
from ingestd.model.schema import Schema, schema_from_rest, schema_rest
from ingestd.ports import Deletion
from ingestd.rules.actions import SparkRequest

_EMPTY = {"sourceFormat": "NEWLINE_DELIMITED_JSON"}


async def run(ctx: ActionContext, step: Step, request: SparkRequest) -> Outcome:
    if ctx.spark is None:
        raise Fatal("spark: this daemon has no Spark")
    sql = await statement(ctx, step, request)
    folder = ctx.settings.staging / ctx.event_id / f"spark-{step.number:05d}{ctx.again}"
    rows = ctx.rows
    files = await _own_files(ctx) if rows.prepared is None else await _prepared_files(ctx, rows.prepared)
    work = PrepareRequest(
        batch=ctx.event_id,
        attempt=1,
        folder=folder,
        files=files or (await _without_rows(ctx, folder),),
        load={**rows.load, "schema": {}} if files else _EMPTY,
        schema=rows.schema if rows.prepared is not None else await _destination_schema(ctx),
        source_schema=rows.schema if rows.prepared is None else (),
        bad_data=BadData.QUARANTINE_ROWS,
        layout=_layout(request),
        table=ctx.dest,
    )
    result = await ctx.spark.query(sql, work)
    if result.bad:
        await ctx.spark.discard(folder)
        raise BadInput(
            f"spark: {len(result.bad)} of the batch's files are gone or were overwritten, e.g. "
            f"{work.files[result.bad[0].index].ref}; let `spark` come before `delete` and `move`"
        )
    outcome = await (_into_table if request.dest else _into_files)(ctx, step, request, result)
    await ctx.spark.discard(folder)
    return outcome


async def _into_table(ctx: ActionContext, step: Step, request: SparkRequest, result: Prepared) -> Outcome:
    dest = ctx.table(request.dest or "")
    uris = [uri for output in result.outputs for uri in output.uris]
    rows = sum(output.rows for output in result.outputs)
    configuration: dict[str, Any] = {
        "sourceUris": uris,
        "destinationTable": dest.rest,
        "sourceFormat": result.format,
        "writeDisposition": write_disposition(append=request.append),
        "createDisposition": "CREATE_IF_NEEDED",
        **result.load_options,
        **({"schema": schema_rest(result.schema)} if result.schema else {}),
    }
    job = await run_job(ctx, step, JobKind.LOAD, configuration, await location_of(ctx, dest, ctx.dest_table))
    loaded = int(job.statistics.get("load", {}).get("outputRows", rows))
    if loaded != rows:
        raise Fatal(f"spark: {rows} rows were computed and {loaded} reached {dest}")
    return Outcome(job_response(job) | {"Rows": rows}, job, {"rows": rows, "dest": str(dest)})


async def _into_files(ctx: ActionContext, step: Step, request: SparkRequest, result: Prepared) -> Outcome:
    """Copies under the batch's own folder, marked so that the rule that wrote them does not ingest them."""
    try:
        base = ObjectRef.parse(request.dest_url or "") / f"{ctx.event_id}{ctx.again}"
    except ValueError as error:
        raise BadInput(f"spark: DestURL: {error}") from error
    sources = [ObjectRef.parse(uri) for output in result.outputs for uri in output.uris]
    targets = {base / source.name.rpartition("/")[2]: source for source in sources}

    async def copy(target: ObjectRef) -> None:
        source = targets[target]
        info = await ctx.store.stat(source)
        if info is None:
            raise NotFound(f"{source} is gone before it was copied")
        key = f"{source.bucket}/{source.name}#{info.generation}"
        marked = marks(ctx, info, key, target)
        await ctx.store.copy(source, target, source_generation=info.generation, metadata=marked)

    await bounded(targets, copy, ctx.settings.max_concurrency)
    listed = [info async for info in ctx.store.list(ObjectRef(base.bucket, base.name + "/"))]
    raise_first(
        await ctx.store.delete_all([Deletion(one.ref, one.generation) for one in listed if one.ref not in targets])
    )
    urls = [target.url for target in targets]
    rows = sum(output.rows for output in result.outputs)
    return Outcome({"URLs": urls, "Rows": rows}, details={"rows": rows, "files": len(urls), "dest": base.url})


async def _own_files(ctx: ActionContext) -> tuple[FileVersion, ...]:
    if not ctx.files:
        raise BadInput("spark: there is no batch to read; this action belongs to a rule's OnSuccess")
    return ctx.files


async def _prepared_files(ctx: ActionContext, uris: Sequence[str]) -> tuple[FileVersion, ...]:
    async def pinned(uri: str) -> FileVersion:
        info = await ctx.store.stat(ObjectRef.parse(uri))
        if info is None:
            raise NotFound(f"{uri}, a prepared file of the batch, is gone")
        return FileVersion(info.ref, info.generation, info.size, info.created, info.crc32c)

    return tuple(await bounded(uris, pinned, ctx.settings.max_concurrency))


async def _without_rows(ctx: ActionContext, folder: ObjectRef) -> FileVersion:
    """An empty file: over a batch without rows the statement runs, too, and counts none."""
    ref = folder / "no-rows.json"
    return FileVersion(ref, await ctx.store.create(ref, b""), 0)


async def _destination_schema(ctx: ActionContext) -> Schema:
    table = ctx.dest_table
    info = await ctx.warehouse.table(table.partition(None)) if table else None
    return schema_from_rest(info.resource.get("schema")) if info else ()


def _layout(request: SparkRequest) -> FileLayout:
    if request.dest:
        return FileLayout()
    return replace(FileLayout(), format=str(request.resolved_format), compression=str(request.compression or ""))
