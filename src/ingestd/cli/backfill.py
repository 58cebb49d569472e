"""`ingestd backfill`: load what lies in a bucket already, without loading anything twice."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ingestd.cli import where
from ingestd.cli.errors import FAILED, CommandError
from ingestd.cli.ledger import Config, RulesOption, settings_for
from ingestd.cli.terminal import errors, output

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingestd.app import App
    from ingestd.gcp.connect import Clients
    from ingestd.ledger.announcing import Announcer
    from ingestd.ledger.backfill import Account, Backfill, Period
    from ingestd.ledger.outcome import Outcome
    from ingestd.model.objects import ObjectRef
    from ingestd.settings import Settings

_LOOK_EVERY = 1.0
_POLL_EVERY = timedelta(seconds=2)
_BEFORE = timedelta(seconds=1)  # by which a batch's time may lie before our own


class Mode(StrEnum):
    LOCAL = "local"
    NOTIFICATIONS = "notifications"


def backfill(
    url: Annotated[str, typer.Argument(metavar="gs://BUCKET/PREFIX", help="Where to look.")] = "",
    mode: Annotated[
        Mode,
        typer.Option(
            "--mode", "-m", help="Load in this process, or publish notifications for the daemon.", case_sensitive=False
        ),
    ] = Mode.NOTIFICATIONS,
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            "--pubsub-topic",
            "-t",
            help="Topic for notifications. [dim]Default: the bucket's own notification topics.[/]",
        ),
    ] = "",
    success_filename: Annotated[
        str, typer.Option("--success-filename", "-f", help="Only directories with a success file of this name.")
    ] = "",
    since: Annotated[str, typer.Option(help="Only objects created after this: 2024-05-01, or 7d ago.")] = "",
    until: Annotated[str, typer.Option(help="Only objects created before this.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is missing, do nothing.")] = False,
    wait: Annotated[
        bool, typer.Option(help="In local mode: wait for windows and batches to end, instead of leaving them.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="The account as one JSON object.")] = False,
    gcs_path: Annotated[
        str, typer.Option("--gcs-path", "-p", hidden=True, help="Where to look, as gcs_ocn_bq_ingest writes it.")
    ] = "",
    config: Config = None,
    rules: RulesOption = "",
    state: where.State = None,
) -> None:
    """Load what lies in a bucket already: list it, subtract what was loaded, ingest or announce the rest.

    Repeating it is harmless. [cyan]--dry-run[/] first shows how much is missing.
    """
    from ingestd.ledger.backfill import Period

    if bool(url) == bool(gcs_path):
        raise CommandError("say once where to look: ingestd backfill gs://bucket/prefix")
    settings = settings_for(config, rules, state)
    prefix = _prefix(url or gcs_path)
    period = Period(moment(since), moment(until))
    account = asyncio.run(_run(settings, prefix, period, mode, topic, success_filename, dry_run=dry_run, wait=wait))
    if as_json:
        import orjson

        typer.echo(orjson.dumps({"prefix": prefix.url, "dry_run": dry_run, **account.to_json()}).decode())
    else:
        _show(account, prefix, dry_run=dry_run)
    if account.outcome is not None and account.outcome.trouble:
        raise typer.Exit(FAILED)
    if account.told.returned:
        raise CommandError(f"{account.told.returned} could not be handed over ({account.told.why}); run it again")


async def _run(
    settings: "Settings",
    prefix: "ObjectRef",
    period: "Period",
    mode: Mode,
    topic: str,
    success_filename: str,
    *,
    dry_run: bool,
    wait: bool,
) -> "Account":
    from ingestd.gcp.connect import connect
    from ingestd.ledger.announcing import Publishing

    async with connect(settings.project) as clients:
        if dry_run or mode is Mode.NOTIFICATIONS:
            announcer: Announcer | None = None
            if not dry_run:
                topic = topic or await asyncio.to_thread(_topic, settings, prefix)
                announcer = Publishing(clients.publisher, topic, lambda: datetime.now(UTC))
            search = await _search(settings, clients, success_filename)
            with _progress() as progress:
                return await search.run(prefix, announcer, period=period, progress=progress)
        return await _locally(settings, clients, prefix, period, success_filename, wait=wait)


def _topic(settings: "Settings", prefix: "ObjectRef") -> str:
    """The bucket's own topic; of several, the daemon's: to others, what lies there already would be news."""
    from ingestd.gcp.inspection import Inspector
    from ingestd.gcp.notifications import finalize_topics
    from ingestd.model.errors import IngestError

    topics = sorted(set(finalize_topics(settings.project, prefix)))
    if not topics:
        raise CommandError(
            f"bucket {prefix.bucket} notifies no topic of finalized objects: give one with --topic, or use --mode local"
        )
    if len(topics) == 1:
        return topics[0]
    name = settings.subscriptions.notifications
    try:
        with Inspector(settings.project) as inspector:
            facts = inspector.subscription(name)
    except IngestError as error:
        why = str(error)
    else:
        if facts is not None and facts.topic in topics:
            return facts.topic
        why = f"{name} is on none of them" if facts else f"there is no subscription {name}"
    raise CommandError(
        f"bucket {prefix.bucket} notifies {', '.join(topics)}: say with --topic which of them the daemon hears ({why})"
    )


async def _search(settings: "Settings", clients: "Clients", success_filename: str) -> "Backfill":
    from ingestd.ledger.backfill import Backfill, by_name
    from ingestd.ledger.parts import known_files, wanted
    from ingestd.model.clock import SystemClock
    from ingestd.rules.bucket import rule_source
    from ingestd.rules.loading import RuleLoader

    clock = SystemClock()
    known = known_files(settings, clients.store, clients.warehouse, clock, "backfill")
    if success_filename:
        return Backfill(clients.store, known, by_name(success_filename))
    loader = RuleLoader(
        rule_source(settings.rules.url, clients.store, optional=settings.rules_optional),
        clock,
        settings.rules.unknown_keys,
    )
    try:
        book = await loader.refresh()
    except FileNotFoundError as error:
        raise CommandError(f"{error}; say where the rules are with --rules or --config") from None
    return Backfill(clients.store, known, wanted(settings, book.index.route))


async def _locally(
    settings: "Settings",
    clients: "Clients",
    prefix: "ObjectRef",
    period: "Period",
    success_filename: str,
    *,
    wait: bool,
) -> "Account":
    """The daemon's own engine, without its intake: files go through the same router, windows, journal and loads."""
    from ingestd.app import build
    from ingestd.ledger.announcing import InProcess
    from ingestd.ledger.backfill import Account
    from ingestd.ledger.outcome import Outcome

    # Nobody brings completions here: jobs of asynchronous rules are asked for.
    jobs = settings.jobs.model_copy(update={"poll_every": min(settings.jobs.poll_every, _POLL_EVERY)})
    settings = settings.model_copy(update={"jobs": jobs})
    if success_filename:
        settings = _with_convention(settings, prefix, success_filename)
    found = Account()
    async with build(settings, clients=clients) as app:

        async def work() -> None:
            nonlocal found
            begun = datetime.now(UTC)
            outcome = Outcome(prefix, begun - _BEFORE)
            app.news.ended.append(outcome.ended)
            app.news.refused.append(outcome.refused)
            search = await _search(settings, clients, success_filename)
            announcer = InProcess(app.router.handle, app.clock.now)
            with _progress() as progress:
                found = await search.run(prefix, announcer, period=period, progress=progress)
            found.outcome = outcome
            if wait and found.told.taken:
                await _settled(app, clients, begun)

        await app.run(work)
    return found


def _with_convention(settings: "Settings", prefix: "ObjectRef", success_filename: str) -> "Settings":
    """The convention as the settings have it for that place, with this success file; on there, if it was not."""
    from ingestd.collect.success.conventions import Conventions
    from ingestd.settings import Convention

    found = Conventions(settings.success.effective()).of(prefix) or Convention(bucket=prefix.bucket)
    mine = found.model_copy(update={"success_filename": success_filename})
    success = settings.success.model_copy(update={"conventions": (mine, *settings.success.conventions)})
    return settings.model_copy(update={"success": success})


async def _settled(app: "App", clients: "Clients", begun: datetime) -> None:
    """Wait until no window is open here and no batch that began here is under way."""
    from ingestd.ledger.parts import journal_of

    journal = journal_of(app.settings, clients.store, app.clock, "backfill")
    with errors.status("waiting for batches to end") as status:
        while True:
            windows = app.windows.open_windows
            entries = [one async for one in journal.entries() if one.created >= begun - _BEFORE]
            stuck = [one for one in entries if one.retry_at is not None]
            if not windows and len(stuck) == len(entries) and not app.runner.active:
                break
            due = max((window.due for window in windows), default=None)
            left = f", the last window closes at {due:%H:%M:%S} UTC" if due else ""
            status.update(f"{len(windows)} windows open, {len(entries)} batches under way{left}")
            await asyncio.sleep(_LOOK_EVERY)
    if stuck:
        errors.print(
            f"[yellow]{len(stuck)} batches wait for their surroundings[/]: the daemon goes on with them; "
            "`ingestd status` shows them"
        )


@contextmanager
def _progress() -> "Iterator[Callable[[Account], None]]":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bars:
        task = bars.add_task("looking", total=None)

        def show(account: "Account") -> None:
            described = f"{account.objects:,} objects, {account.missing:,} missing"
            bars.update(task, description=described, total=account.missing or None, completed=account.told.taken)

        yield show


def _show(account: "Account", prefix: "ObjectRef", *, dry_run: bool) -> None:
    from rich.filesize import decimal

    from ingestd.ledger.known import Standing

    counts = account.standings
    output.print(f"[bold]{escape(prefix.url)}[/]: {account.objects:,} objects")
    for number, text in (
        (account.others, "that no rule or convention is about"),
        (account.young, "outside the time asked for"),
        (counts[Standing.LOADED], "loaded before"),
        (counts[Standing.PENDING], "under way"),
        (counts[Standing.FAILED], "failed; `ingestd replay` tries them again"),
        (counts[Standing.SET_ASIDE], "set aside as bad; `ingestd explain` says why"),
        (counts[Standing.REFUSED], "refused; `ingestd explain` says why"),
        (counts[Standing.PASSED_OVER], "passed over: replaced, deleted, or moved there by a rule"),
    ):
        if number:
            output.print(f"  {number:>10,}  {text}")
    output.print(f"  {account.missing:>10,}  [bold]missing[/] ({decimal(account.size)})")
    if dry_run:
        for url in account.examples:
            output.print(f"              {url}", markup=False)
        if account.missing > len(account.examples):
            output.print("              …")
        return
    if account.outcome is None:
        output.print(f"  {account.told.taken:>10,}  announced")
    else:
        _show_outcome(account.outcome, account.told.taken)


def _show_outcome(outcome: "Outcome", taken: int) -> None:
    for number, text in (
        (outcome.loaded, "[green]loaded[/]"),
        (outcome.not_loaded, "[bold red]not loaded[/]"),
        (outcome.refused_files, "[bold red]refused[/]"),
        (outcome.left(taken), "still under way, or known to another batch"),
    ):
        if number:
            output.print(f"  {number:>10,}  {text}")
    for what, why in outcome.examples:
        output.print(f"              {what}\n                {why}", markup=False)


def moment(text: str) -> datetime | None:
    """`2024-05-01`, `2024-05-01T12:00:00Z`, or `7d` ago."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return datetime.now(UTC) - _ago(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _ago(text: str) -> timedelta:
    from ingestd.model.quantities import parse_duration

    try:
        return parse_duration(text)
    except ValueError:
        raise CommandError(
            f"{text!r} is no time: write 2024-05-01, 2024-05-01T12:00:00Z, or 7d for so long ago"
        ) from None


def _prefix(url: str) -> "ObjectRef":
    from ingestd.model.objects import ObjectRef

    try:
        return ObjectRef.parse(url)
    except ValueError as error:
        raise CommandError(str(error)) from None
