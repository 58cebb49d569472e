"""`ingestd load`: a folder or file into a table, once, with nothing deployed. The flags are those of bqtail's CLI."""

import asyncio
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ingestd.cli import where
from ingestd.cli.bqtail_flags import window as window_of_time
from ingestd.cli.errors import FAILED, CommandError
from ingestd.cli.ledger import Config
from ingestd.cli.load_rule import UPLOADS, RuleFlags, written_rule
from ingestd.cli.terminal import Json, duration, errors, output, print_json

if TYPE_CHECKING:
    from ingestd.cli.oneshot import Account, Loader, LocalFile
    from ingestd.gcp.connect import Clients
    from ingestd.model.objects import ObjectInfo, ObjectRef
    from ingestd.rules.rule import Rule
    from ingestd.settings import Settings

_RULE = "load.yaml"
_SHOWN = 20
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done: the rule, where the files are, and where local ones are copied to."""

    source: str
    document: dict[str, Any]
    bucket: str
    delete: bool

    @property
    def remote(self) -> bool:
        return self.source.startswith("gs://")


def load(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A local file or folder, or gs://bucket/folder.")] = "",
    dest: Annotated[str, typer.Option("--dest", "-d", metavar="TABLE", help="dataset.table, or with a project.")] = "",
    src: Annotated[str, typer.Option("--src", "-s", hidden=True, help="The same as SRC.")] = "",
    rule: Annotated[str, typer.Option("--rule", "-r", metavar="FILE", help="Use this rule instead of flags.")] = "",
    validate: Annotated[
        bool, typer.Option("--validate", "-V", help="Print the rule, say whether it is valid.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the rule and what it takes; load nothing.")] = False,
    project: Annotated[
        str, typer.Option("--project", "-p", metavar="ID", help="Runs the jobs. [dim]Default: --dest's, else yours.[/]")
    ] = "",
    bucket: Annotated[
        str, typer.Option("--bucket", "-b", help="Local files are copied here. [dim]Default: PROJECT-ops.[/]")
    ] = "",
    partition: Annotated[
        bool, typer.Option("--dest-partition", "-n", help="Load into the files' day ($Date).")
    ] = False,
    override: Annotated[bool, typer.Option("--dest-override", "-o", help="Replace what the table holds.")] = False,
    template: Annotated[str, typer.Option("--template", "-t", metavar="TABLE", help="Schema.Template")] = "",
    transient_template: Annotated[
        str, typer.Option("--transient-template", "-T", metavar="TABLE", help="Transient.Template")
    ] = "",
    unique: Annotated[
        list[str] | None,
        typer.Option("--dedupe-columns", "-D", metavar="COLUMN", help="UniqueColumns; repeatable."),
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", "-P", help="When.Prefix")] = "",
    suffix: Annotated[str, typer.Option("--suffix", "-S", help="When.Suffix, e.g. .json")] = "",
    pattern: Annotated[str, typer.Option("--pattern", "-R", help="Regular expression: When.Filter, Dest.Pattern")] = "",
    source_format: Annotated[
        str, typer.Option("--source-format", "-f", help="CSV, NEWLINE_DELIMITED_JSON, AVRO, PARQUET. [dim]By name.[/]")
    ] = "",
    autodetect: Annotated[bool, typer.Option("--autodetect", "-a", help="Let BigQuery find the schema.")] = False,
    window: Annotated[
        timedelta | None,
        typer.Option(
            "--window",
            "-w",
            parser=window_of_time,
            metavar="DURATION",
            show_default=False,
            help="Load files of the same stretch of time together. [dim]Default: all of a table together.[/]",
        ),
    ] = None,
    individually: Annotated[bool, typer.Option("--individually", help="One load per file.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete gs:// sources once loaded.")] = False,
    stream: Annotated[bool, typer.Option("--stream", "-X", help="Go on: look for new files until Ctrl-C.")] = False,
    ops: Annotated[
        str,
        typer.Option("--ops", "-i", metavar="gs://…", help="Journal, errors. [dim]Default: PROJECT-ops/load.[/]"),
    ] = "",
    patience: Annotated[
        timedelta,
        typer.Option(parser=duration, metavar="DURATION", show_default="60s", help="How long to wait for what blocks."),
    ] = timedelta(seconds=60),
    logging: Annotated[str, typer.Option("--logging", "-l", help="info, debug, or off.")] = "off",
    history: Annotated[str, typer.Option("--history", "-H", hidden=True, help="The journal remembers.")] = "",
    client: Annotated[str, typer.Option("--client", "-c", hidden=True, help="Your own credentials are used.")] = "",
    config: Config = None,
    state: where.State = None,
    as_json: Json = False,
) -> None:
    """Load a folder or file into a table, once, through the daemon's own engine.

    Nothing has to be deployed: [cyan]ingestd load data/ --dest shop.orders --autodetect[/]. Run again after an
    interruption it goes on where it was; files in a bucket are never loaded twice into the same table.
    """
    del history
    from ingestd.cli.oneshot import one_shot_settings

    if client:
        errors.print(
            f"[yellow]-c {escape(client)} is passed over[/]: Google's application default credentials are used"
        )
    if rule.endswith(" -V"):  # as bqtail's documentation quotes it
        rule, validate = rule.removesuffix(" -V").rstrip(), True
    source = _here(source or src)
    if not source and not validate:
        raise CommandError("what shall be loaded? `ingestd load SRC --dest dataset.table`")
    if source and not source.startswith("gs://") and not Path(source).expanduser().exists():
        raise CommandError(f"there is no file or folder {source}")
    flags = RuleFlags(
        dest=dest,
        partition=partition,
        override=override,
        template=template,
        transient_template=transient_template,
        unique=tuple(unique or ()),
        prefix=prefix,
        suffix=suffix,
        pattern=pattern,
        source_format=source_format,
        autodetect=autodetect,
        window=window,
        individually=individually,
        delete=delete,
    )
    document = {} if rule else flags.rule(source)
    settings = _settings(config, state, project or _project_of(dest), logging)
    if rule:
        document = asyncio.run(_written(settings, rule))
    with tempfile.TemporaryDirectory(prefix="ingestd-load-") as folder:
        parsed = _parse(document, Path(folder))
        if validate or dry_run or not as_json:
            _print_rule(document)
        if validate:
            output.print("[green]Rule is VALID[/]")
            return
        plan = _Plan(source, document, bucket or settings.ops.bucket, delete)
        chosen = one_shot_settings(settings, Path(folder), ops)
        account = asyncio.run(_load(chosen, plan, parsed, patience, dry_run=dry_run, stream=stream, quiet=as_json))
    if as_json:
        print_json(account.to_json())
    elif not dry_run:
        _report(account)
    if account.bad or account.unfinished:
        raise typer.Exit(FAILED)


def _settings(config: Path | None, state: Path | None, project: str, level: str) -> "Settings":
    from ingestd.ops.logging import configure
    from ingestd.settings import Settings
    from ingestd.settings_loader import load_settings

    configure("console", level if level in ("info", "debug", "warning") else "critical")
    environ = dict(os.environ)
    if config is None or state is not None:
        if project and state is None and "STORAGE_EMULATOR_HOST" not in environ:
            os.environ.setdefault("GOOGLE_CLOUD_PROJECT", project)
        environ["INGESTD_PROJECT"] = where.enter(state)
    if project:
        environ["INGESTD_PROJECT"] = project
    return load_settings(Settings, config, environ)


def _here(source: str) -> str:
    """The source as a path or a folder of Cloud Storage; of other places it is said how their files come here."""
    source = source.removeprefix("file://")
    if "://" in source and not source.startswith("gs://"):
        raise CommandError(
            f"{source} is neither here nor in Cloud Storage: bring it to a bucket first (Storage Transfer Service, or "
            "`gcloud storage cp -r`), and load gs://bucket/folder"
        )
    return source.rstrip("/") if source != "/" else source


async def _written(settings: "Settings", rule: str) -> dict[str, Any]:
    from ingestd.gcp.connect import connect
    from ingestd.rules.bucket import BucketSource
    from ingestd.rules.source import FolderSource

    rule = rule.removeprefix("file://")
    if not rule.startswith("gs://"):
        return await written_rule(rule, FolderSource(Path(rule)))
    async with connect(settings.project) as clients:
        return await written_rule(rule, BucketSource(clients.store, rule))


def _project_of(dest: str) -> str:
    from ingestd.model.tables import InvalidTableName, parse_table

    try:
        return parse_table(dest).project or "" if dest and "$" not in dest else ""
    except InvalidTableName as error:
        raise CommandError(f"--dest: {error}") from None


def _parse(document: dict[str, Any], folder: Path) -> "Rule":
    """The rule as the engine reads it; a mistake names the key."""
    import yaml

    from ingestd.documents import DocumentError
    from ingestd.rules.loading import RuleLoader
    from ingestd.rules.source import FolderSource

    (folder / _RULE).write_text(yaml.safe_dump(document, sort_keys=False))
    book = asyncio.run(RuleLoader(FolderSource(folder)).refresh())
    if book.problems:
        raise DocumentError(book.problems)
    return book.rules[0]


def _print_rule(document: dict[str, Any]) -> None:
    import yaml

    errors.print("[bold]rule[/]")
    for line in yaml.safe_dump(document, sort_keys=False).splitlines():
        errors.print(f"  {escape(line)}")


async def _load(
    settings: "Settings", plan: _Plan, rule: "Rule", patience: timedelta, *, dry_run: bool, stream: bool, quiet: bool
) -> "Account":
    from ingestd.app import build
    from ingestd.cli.oneshot import Account, Loader
    from ingestd.gcp.connect import connect

    account, start = Account(), time.monotonic()
    async with connect(settings.project) as clients:
        if dry_run:
            await _show_plan(clients, plan, rule, account)
            return account
        async with build(settings, clients=clients) as app:
            with _progress(quiet=quiet) as progress:
                loader = Loader(app, clients, rule, account, progress)
                stop = _stopping() if stream else None
                await app.run(lambda: _work(loader, clients, plan, rule, account, patience, stop))
    account.seconds = time.monotonic() - start
    return account


async def _work(
    loader: "Loader",
    clients: "Clients",
    plan: _Plan,
    rule: "Rule",
    account: "Account",
    patience: timedelta,
    stop: asyncio.Event | None,
) -> None:
    """Load what is there; with `stop`, also what comes, until that is set and what is under way has ended."""
    seen: set[Any] = set()
    while True:
        objects = await _new_objects(loader, clients, plan, rule, account, seen, stream=stop is not None)
        if objects:
            await loader.load(objects, patience)
        if stop is None:
            if not account.found:
                raise CommandError(f"{plan.source} holds no file that the rule takes")
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 1)
        if stop.is_set():
            return


def _stopping() -> asyncio.Event:
    """Set by the first Ctrl-C: what is under way ends, and is told. The second one ends at once."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def told() -> None:
        stop.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told)
    return stop


async def _new_objects(
    loader: "Loader",
    clients: "Clients",
    plan: _Plan,
    rule: "Rule",
    account: "Account",
    seen: set[Any],
    *,
    stream: bool,
) -> "list[ObjectInfo]":
    """What is to be loaded and was not seen before, in the bucket."""
    from ingestd.cli.oneshot import bucket_files, settled
    from ingestd.model.objects import ObjectRef

    if plan.remote:
        listed = [info async for info in bucket_files(clients.store, ObjectRef.parse(plan.source), rule)]
        found = [info for info in listed if (info.ref, info.generation) not in seen]
        seen.update((info.ref, info.generation) for info in found)
        account.found += len(found)
        account.size += sum(info.size for info in found)
        return found
    files = [one for one in await asyncio.to_thread(_local, plan, rule) if (one.relative, one.changed) not in seen]
    if stream:
        files = [one for one in files if settled(one)]
    seen.update((one.relative, one.changed) for one in files)
    account.found += len(files)
    account.size += sum(one.size for one in files)
    return await loader.upload(files, lambda file: _target(plan, rule, file.relative))


def _local(plan: _Plan, rule: "Rule") -> "list[LocalFile]":
    from ingestd.cli.oneshot import local_files, takes

    source = Path(plan.source).expanduser()
    if not source.exists():
        raise CommandError(f"there is no file or folder {source}")
    return local_files(source, lambda name: takes(rule, _target(plan, rule, name).name))


def _target(plan: _Plan, rule: "Rule", relative: str) -> "ObjectRef":
    """Where a local file is copied: below the rule's prefix, named after its table and itself."""
    from ingestd.model.objects import ObjectRef

    folder = rule.matcher.prefix.strip("/")
    table = _NAME.sub("_", rule.spec.dest.table)
    parts = [folder, table, relative] if rule.matcher.prefix == UPLOADS else [folder, relative]
    return ObjectRef(plan.bucket, "/".join(part for part in parts if part))


async def _show_plan(clients: "Clients", plan: _Plan, rule: "Rule", account: "Account") -> None:
    """What would be loaded, and into which tables."""
    from ingestd.cli.oneshot import bucket_files
    from ingestd.model.objects import FileVersion, Generation, ObjectRef
    from ingestd.rules.destination import expand_destination

    if plan.remote:
        source = ObjectRef.parse(plan.source)
        found = [
            (one.ref.url, one.ref, one.size, one.created) async for one in bucket_files(clients.store, source, rule)
        ]
    else:
        from datetime import UTC, datetime

        local = await asyncio.to_thread(_local, plan, rule)
        now = datetime.now(UTC)
        found = [(str(one.path), _target(plan, rule, one.relative), one.size, now) for one in local]
    account.found, account.size = len(found), sum(size for _, _, size, _ in found)
    for shown, ref, size, created in found[:_SHOWN]:
        file = FileVersion(ref, Generation(1), size, created)
        target = expand_destination(rule, file, {"EventID": "0", "ProjectID": clients.warehouse.project}).target
        account.tables.add(str(target))
        output.print(f"{escape(shown)} [dim]{size:,} bytes[/] → [cyan]{escape(str(target))}[/]")
    if len(found) > _SHOWN:
        output.print(f"[dim]and {len(found) - _SHOWN:,} more[/]")
    output.print(f"{account.found:,} files, {account.size:,} bytes; nothing was loaded [dim](--dry-run)[/]")


@contextmanager
def _progress(*, quiet: bool) -> "Iterator[Callable[[Account], None]]":
    """A bar on a terminal: files loaded of those found, and what is being waited for."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    if quiet or not errors.is_terminal:
        told: set[str] = set()

        def tell(account: "Account") -> None:
            if account.waiting and account.waiting not in told and not quiet:
                told.add(account.waiting)
                errors.print(f"waiting: {account.waiting}", markup=False)

        yield tell
        return
    bar = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=errors, transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task("looking", total=None)

        def show(account: "Account") -> None:
            ended = account.loaded + account.known + len(account.bad)
            doing = "loading" if ended or account.uploaded >= account.found else f"copying ({account.uploaded:,})"
            words = f"[yellow]waiting: {escape(account.waiting[:90])}[/]" if account.waiting else doing
            bar.update(task, description=words, total=account.found or None, completed=ended)

        yield show


def _report(account: "Account") -> None:
    if account.loaded:
        tables = ", ".join(sorted(account.tables))
        output.print(
            f"[green]loaded[/]  {account.rows:,} rows of {account.loaded:,} files into {escape(tables)}"
            f" [dim]({account.batches} loads, {account.seconds:.1f} s)[/]"
        )
    if account.known:
        output.print(f"[green]known[/]   {account.known:,} files were loaded by an earlier run")
    for table, why in account.unfinished[:_SHOWN]:
        output.print(f"[bold red]unfinished[/] {escape(table)}: the rows are there, what was to follow failed")
        output.print(f"           {escape(why)}")
    for url, why in account.bad[:_SHOWN]:
        output.print(f"[bold red]not loaded[/] {escape(url)}\n           {escape(why)}")
    if len(account.bad) > _SHOWN:
        output.print(f"[dim]and {len(account.bad) - _SHOWN:,} more; --json lists all[/]")
