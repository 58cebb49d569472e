"""`cp`, `query`, `publish`: enough of gcloud and bq to try the daemon with nothing else installed."""

import asyncio
import mimetypes
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ingestd.cli import where
from ingestd.cli.errors import CommandError
from ingestd.cli.ledger import Config, RulesOption, explained, settings_for
from ingestd.cli.terminal import Json, errors, output, print_json

if TYPE_CHECKING:
    from ingestd.gcp.connect import Clients
    from ingestd.ledger.explain import Incident
    from ingestd.model.objects import ObjectRef
    from ingestd.ports import ObjectStore, Warehouse
    from ingestd.settings import Settings

_MAX_SHOWN_ROWS = 100


def cp(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE…", help="Files, or gs:// objects.", show_default=False)
    ],
    target: Annotated[str, typer.Argument(help="gs://bucket/object, gs://bucket/folder/, or a file or folder.")],
    state: where.State = None,
    as_json: Json = False,
) -> None:
    """Copy files into a bucket, out of it, or inside it.

    A target that ends in a slash keeps the files' names: [cyan]ingestd cp *.json gs://local-dev-trigger/orders/[/]
    """
    if not target.startswith("gs://") and Path(target).is_dir():
        target = target.rstrip("/") + "/"
    if len(sources) > 1 and not target.endswith("/"):
        raise CommandError(f"several files need a folder as target: end it with a slash ({target}/)")
    for local in (Path(source) for source in sources if not source.startswith("gs://")):
        if not local.is_file():
            raise CommandError(
                f"{local} is a folder; name its files" if local.is_dir() else f"there is no file {local}"
            )
    copied = asyncio.run(_copy_all(where.enter(state), sources, target, tell=not as_json))
    if as_json:
        print_json([{"source": source, "target": to} for source, to in copied])


async def _copy_all(project: str, sources: list[str], target: str, *, tell: bool) -> list[tuple[str, str]]:
    from ingestd.gcp.connect import connect

    copied = []
    async with connect(project) as clients:
        for source in sources:
            copied.append((source, await _copy(clients.store, source, target)))
            if tell:
                output.print(" → ".join(copied[-1]), markup=False)
    return copied


async def _copy(store: "ObjectStore", source: str, target: str) -> str:
    from ingestd.model.errors import NotFound

    name = source.rpartition("/")[2]
    if not source.startswith("gs://"):
        if not target.startswith("gs://"):
            raise CommandError("one side has to be a gs:// URL")
        ref = _object(target, name)
        content_type = mimetypes.guess_type(source)[0] or "application/octet-stream"
        await store.create(ref, await asyncio.to_thread(Path(source).read_bytes), content_type=content_type)
        return ref.url
    origin = _object(source, "")
    if target.startswith("gs://"):
        ref = _object(target, name)
        try:
            await store.copy(origin, ref)
        except NotFound:
            raise CommandError(f"there is no object {origin}, or no such bucket") from None
        return ref.url
    try:
        data, _ = await store.read(origin)
    except NotFound:
        raise CommandError(f"there is no object {origin}, or no such bucket") from None
    file = Path(target + name if target.endswith("/") else target)
    await asyncio.to_thread(file.write_bytes, data)
    return str(file)


def _object(url: str, name: str) -> "ObjectRef":
    """The object a URL names; one that ends in a slash is a folder for `name`."""
    from ingestd.model.objects import ObjectRef

    try:
        ref = ObjectRef.parse(url)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if ref.name and not ref.name.endswith("/"):
        return ref
    if not name:
        raise CommandError(f"{url} names no object: write gs://bucket/object")
    return ObjectRef(ref.bucket, ref.name + name)


def query(
    sql: Annotated[str, typer.Argument(help="GoogleSQL; several statements run as a script.")],
    state: where.State = None,
    location: Annotated[str, typer.Option(help="Where the job runs. [dim]Default: where its tables are.[/]")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per row.")] = False,
) -> None:
    """Run a query and print its rows."""
    if not sql.strip():
        raise CommandError("there is no SQL to run: ingestd query 'SELECT …'")
    rows = asyncio.run(_query(where.enter(state), sql, location))
    if as_json:
        import orjson

        for row in rows:
            typer.echo(orjson.dumps(row, default=str).decode())
        return
    show_rows(rows)


async def _query(project: str, sql: str, location: str) -> list[dict[str, Any]]:
    from ingestd.gcp.connect import connect

    async with connect(project) as clients:
        return await run_sql(clients.warehouse, sql, location)


async def run_sql(warehouse: "Warehouse", sql: str, location: str = "") -> list[dict[str, Any]]:
    """The rows of a query, or nothing for statements that return none."""
    from ingestd.model.jobs import JobKind, JobRef, JobRequest

    ref = JobRef(warehouse.project, location, f"ingestd_cli_{uuid.uuid4().hex}")
    job = await warehouse.insert_job(JobRequest(ref, JobKind.QUERY, {"query": sql, "useLegacySql": False}))
    pause = 0.02
    while not job.done:
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 1.0)
        found = await warehouse.get_job(job.ref)
        if found is None:
            raise CommandError(f"the job {job.ref} is gone")
        job = found
    if job.error is not None:
        raise CommandError(job.error.message)
    return await warehouse.rows(job.ref)


def show_rows(rows: list[dict[str, Any]], title: str | None = None) -> None:
    if not rows:
        output.print("no rows")
        return
    # What comes out of a table is shown as it is: `[red]` is text there, not a colour.
    table = Table(*map(escape, rows[0]), title=title, title_justify="left", title_style="bold")
    for row in rows[:_MAX_SHOWN_ROWS]:
        table.add_row(*("NULL" if value is None else escape(str(value)) for value in row.values()))
    output.print(table)
    if len(rows) > _MAX_SHOWN_ROWS:
        output.print(f"[dim]{len(rows) - _MAX_SHOWN_ROWS} more rows; --json prints all[/]")


def publish(
    objects: Annotated[list[str], typer.Argument(metavar="gs://BUCKET/OBJECT…", help="What arrived.")],
    topic: Annotated[
        str, typer.Option(help="Topic to publish to. [dim]Default: the bucket's own notification topics.[/]")
    ] = "",
    config: Config = None,
    rules: RulesOption = "",
    state: where.State = None,
    as_json: Json = False,
) -> None:
    """Publish test notifications, shaped exactly like Cloud Storage's.

    Of a file that was loaded before it says so: the daemon drops what it has loaded. Upload it again to load it again.
    """
    refs = [_object(url, "") for url in objects]
    sent = asyncio.run(_publish(settings_for(config, rules, state), refs, topic, tell=not as_json))
    if as_json:
        print_json(sent)


async def _publish(settings: "Settings", refs: "list[ObjectRef]", topic: str, *, tell: bool) -> list[dict[str, Any]]:
    from ingestd.gcp.connect import connect
    from ingestd.gcp.notifications import announcements

    sent: list[dict[str, Any]] = []
    async with connect(settings.project) as clients:
        for ref in refs:
            messages = await asyncio.to_thread(announcements, settings.project, ref, topic)
            if not messages:
                raise CommandError(f"bucket {ref.bucket} notifies no topic of finalized objects: give one with --topic")
            earlier = None if messages[0].invented else await _earlier(settings, clients, ref)
            for message in messages:
                number = await clients.publisher.publish(message.topic, message.data, message.attributes)
                found = {"exists": not message.invented, "known": _fate(earlier) if earlier else None}
                sent.append({"object": ref.url, "topic": message.topic, "message": number, **found})
                if tell:
                    note = "no such object: its description is made up" if message.invented else _remark(earlier)
                    marked = f" [yellow]({escape(note)})[/]" if note else ""
                    output.print(f"{escape(ref.url)} → {message.topic} message {number}{marked}")
    return sent


async def _earlier(settings: "Settings", clients: "Clients", ref: "ObjectRef") -> "Incident | None":
    """The batch that has this very generation already, if that can be told from here."""
    from ingestd.model.errors import IngestError

    try:
        found = await explained(settings, clients, ref)
    except (IngestError, FileNotFoundError) as error:
        errors.print(f"[dim]whether it was loaded before cannot be told: {escape(str(error))} (--config, --rules)[/]")
        return None
    current = found.found.generation if found.found else None
    return next((one for one in reversed(found.history) if one.generation == current), None)


def _fate(one: "Incident") -> str:
    """The file's own, or of its whole batch where no more is known."""
    return one.fate or ("loaded" if one.phase == "done" else one.phase)


def _remark(earlier: "Incident | None") -> str:
    if earlier is None:
        return ""
    batch = f"batch {earlier.event_id} for {earlier.destination}"
    if _fate(earlier) == "loaded":
        return f"loaded before, in {batch}: the daemon drops it; upload it again to load it again"
    return f"{_fate(earlier)} in {batch}; `ingestd explain` says more"
