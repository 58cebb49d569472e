"""`ingestd explain` and `ingestd replay`: where a file is, and another try for what is stuck."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ingestd.cli import where
from ingestd.cli.errors import CommandError
from ingestd.cli.terminal import output

if TYPE_CHECKING:
    from ingestd.gcp.connect import Clients
    from ingestd.ledger.explain import Explanation, Incident
    from ingestd.ledger.replay import Asked, Replayed, Selection
    from ingestd.ledger.unloaded import Unloaded
    from ingestd.model.objects import ObjectRef
    from ingestd.settings import Settings

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", dir_okay=False, exists=True, help="The daemon's settings."),
]
RulesOption = Annotated[str, typer.Option("--rules", help="Folder of rules, or gs://bucket/prefix.")]
Json = Annotated[bool, typer.Option("--json", help="As JSON; see docs/ledger.md.")]


def explain(
    url: Annotated[str, typer.Argument(metavar="gs://BUCKET/OBJECT", help="The file in question.")],
    config: Config = None,
    rules: RulesOption = "",
    state: where.State = None,
    as_json: Json = False,
) -> None:
    """Say which rule takes a file, what would happen, and what did happen."""
    ref = _object(url)
    explanation = asyncio.run(_explain(settings_for(config, rules, state), ref))
    if as_json:
        print_json(explanation.to_json())
    else:
        _show(explanation)


def replay(
    what: Annotated[
        list[str] | None, typer.Argument(metavar="gs://BUCKET/OBJECT|EVENT_ID…", help="Files, or event ids.")
    ] = None,
    rule: Annotated[str, typer.Option(help="Batches of this rule.")] = "",
    since: Annotated[str, typer.Option(help="Stuck since: 2024-05-01, or 7d ago.")] = "",
    until: Annotated[str, typer.Option(help="Stuck until.")] = "",
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Bad files that were put away: send them back to where they came from.")
    ] = False,
    folder: Annotated[
        str, typer.Option(help="Where they were put. [dim]Default: the settings' corrupted_file_url and invalid_…[/]")
    ] = "",
    reason: Annotated[str, typer.Option(help="Why: it is written down.")] = "",
    by: Annotated[str, typer.Option(help="Who asks for it. [dim]Default: you, on this machine.[/]")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be tried again, do nothing.")] = False,
    as_json: Json = False,
    config: Config = None,
    state: where.State = None,
) -> None:
    """Try blocked or failed batches again, now; who asked and why is kept.

    [cyan]ingestd replay --rule orders --since 1d --dry-run[/] shows what is stuck.
    """
    from ingestd.cli.backfill import moment
    from ingestd.ledger.replay import Asked, Selection

    given = what or []
    selection = Selection(
        refs=[_object(one) for one in given if one.startswith("gs://")],
        event_ids=[one for one in given if not one.startswith("gs://")],
        rule=rule,
        since=moment(since),
        until=moment(until),
    )
    if selection.empty and not quarantine:
        raise CommandError("say what to replay: files, event ids, --rule, --since, --until or --quarantine")
    asked = Asked(by or _somebody(), reason, dry_run)
    settings = settings_for(config, "", state)
    folders = _quarantines(settings, folder) if quarantine else []
    replayed = asyncio.run(_replay(settings, selection, asked, folders, quarantine=quarantine))
    if as_json:
        print_json([one.to_json() for one in replayed])
    else:
        for one in replayed:
            told = f"{one.event_id} {one.subject} {one.what}"
            output.print(told, style="yellow" if one.skipped else None, markup=False)
            if dry_run and one.error:
                output.print(f"    {one.error}", style="dim", markup=False)
    if not replayed:
        raise CommandError("nothing of that is blocked or failed; `ingestd explain gs://…` says where a file is")


def settings_for(config: Path | None, rules: str, state: Path | None) -> "Settings":
    """The daemon's settings as a command sees them: the file's, or those of the local cloud that is meant."""
    from ingestd.ops.logging import configure
    from ingestd.settings import Settings
    from ingestd.settings_loader import load_settings

    configure("console", "warning")
    environ = dict(os.environ)
    if config is None or state is not None:
        environ["INGESTD_PROJECT"] = where.enter(state)
    else:
        where.check_reachable()
    if rules:
        environ["INGESTD_RULES__URL"] = rules
    return load_settings(Settings, config, environ)


def print_json(document: Any) -> None:
    import orjson

    typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2, default=str).decode())


def _somebody() -> str:
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _quarantines(settings: "Settings", folder: str) -> "list[ObjectRef]":
    from ingestd.model.objects import ObjectRef

    urls = [folder] if folder else [settings.corrupted_file_url, settings.invalid_schema_url]
    try:
        folders = [ObjectRef.parse(url) / "" for url in dict.fromkeys(urls) if url]
    except ValueError as error:
        raise CommandError(f"--folder: {error}") from None
    if not folders:
        raise CommandError("the settings name no corrupted_file_url; say where with --folder gs://bucket/folder")
    return folders


def _object(url: str) -> "ObjectRef":
    from ingestd.model.objects import ObjectRef

    try:
        ref = ObjectRef.parse(url)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if not ref.name:
        raise CommandError(f"{url} names a bucket; write gs://bucket/object")
    return ref


async def _explain(settings: "Settings", ref: "ObjectRef") -> "Explanation":
    from ingestd.gcp.connect import connect

    async with connect(settings.project) as clients:
        try:
            return await explained(settings, clients, ref)
        except FileNotFoundError as error:
            raise CommandError(f"{error}; say where the rules are with --rules or --config") from None


async def explained(settings: "Settings", clients: "Clients", ref: "ObjectRef") -> "Explanation":
    """Where the object is and why; FileNotFoundError when the rules are not where the settings say."""
    from ingestd.ledger.parts import explainer
    from ingestd.model.clock import SystemClock
    from ingestd.rules.bucket import rule_source
    from ingestd.rules.loading import RuleLoader

    clock = SystemClock()
    book = await RuleLoader(
        rule_source(settings.rules.url, clients.store, optional=settings.rules_optional),
        clock,
        settings.rules.unknown_keys,
    ).refresh()
    found = await explainer(settings, clients.store, clients.warehouse, clock).explain(ref, book.route(ref.name))
    if not book.rules and not found.history and not settings.rules_optional:
        found.notes.append(f"there are no rules in {settings.rules.url}; say where they are with --rules or --config")
    return found


async def _replay(
    settings: "Settings", selection: "Selection", asked: "Asked", folders: "list[ObjectRef]", *, quarantine: bool
) -> "list[Replayed]":
    from ingestd.gcp.connect import connect
    from ingestd.ledger.parts import journal_of, load_state_writer
    from ingestd.ledger.replay import Replayer
    from ingestd.model.clock import SystemClock

    clock = SystemClock()
    async with connect(settings.project) as clients:
        replayer = Replayer(
            clients.store,
            journal_of(settings, clients.store, clock, asked.by),
            clock,
            notes=settings.journal / "Replays",
            load_state=load_state_writer(settings, clients.store, clients.warehouse, clock, asked.by),
        )
        if not quarantine:
            return [one async for one in replayer.batches(selection, asked)]
        return [one for folder in folders async for one in replayer.quarantined(folder, selection, asked)]


def _show(explanation: "Explanation") -> None:
    """What is shown comes from object names, rules and BigQuery: printed as it is, never read as markup."""
    found = explanation.found
    output.print(explanation.ref.url, style="bold", markup=False)
    if found is None:
        output.print("  object   [yellow]does not exist (any more)[/]")
    else:
        output.print(
            f"  object   generation {found.generation}, {found.size} bytes, {found.created:%Y-%m-%d %H:%M:%S} UTC"
        )
    output.print(f"  rule     {explanation.verdict}", markup=False)
    for number, step in enumerate(explanation.plan):
        output.print(f"  {'plan     ' if not number else _INDENT[2:]}{step}", markup=False)
    if not explanation.history:
        output.print("  history  none: no batch has taken it")
    for one in explanation.history:
        _show_incident(one)
    for note in explanation.notes:
        output.print(f"  [yellow]note[/]     {escape(note)}")


_INDENT = " " * 11


def _show_incident(one: "Incident") -> None:
    for number, line in enumerate(_told(one)):
        head = f"  history  generation {one.generation}: " if not number else _INDENT
        output.print(head, line, sep="", markup=False, style="bold" if not number else None)


def _told(one: "Incident") -> Iterator[str]:
    from ingestd.ledger.explain import files, rows

    batch = one.phase + (f", {rows(one.rows)}" if one.rows is not None else "")
    part = f" from {one.files_loaded:,} of {files(one.files)}" if one.rows is not None and one.files > 1 else ""
    if one.unloaded is not None:
        yield one.unloaded.name + (f"; its batch: {batch}{part}" if one.files > 1 or one.retry_at else "")
        yield from _told_instead(one.unloaded)
    elif one.files_set_aside and not one.fate:
        yield f"{batch}{part}, {one.files_set_aside:,} set aside"
        if one.remembered:
            yield "whether this file is one of those is not known any more"
    elif one.fate == "loaded" and one.files > 1 and one.rows is not None:
        yield f"loaded; its batch: {batch}{part}"
    else:
        yield batch + part
    for url in one.bad_rows:
        yield f"bad rows of its batch, with line and reason: {url}"
    if one.error and (one.unloaded is None or one.retry_at):
        yield one.error
    if one.retry_at:
        yield f"next try at {one.retry_at:%Y-%m-%d %H:%M:%S} UTC, or now: ingestd replay {one.event_id}"
    elif one.phase == "failed" and one.unloaded is None:
        yield f"another try: ingestd replay {one.event_id}"
    if one.owner:
        yield f"being worked on by {one.owner}"
    for note in one.replays:
        why = f": {note.why}" if note.why else ""
        yield f"replayed {note.when:%Y-%m-%d %H:%M:%S} UTC by {note.by}{why}"
    if one.remembered:
        ended = f" {one.updated:%Y-%m-%d %H:%M:%S} UTC" if one.updated else ""
        yield f"table {one.destination}, ended{ended}; known from the load state alone"
    if one.job_id:
        yield f"job {one.job_id}{f' ({one.job})' if one.job else ''}"
    if one.record_url:
        yield f"record {one.record_url}"


def _told_instead(unloaded: "Unloaded") -> Iterator[str]:
    """Why a file was not loaded, where it is, and what helps."""
    if unloaded.why:
        yield unloaded.reason
    if unloaded.kept_url:
        yield f"kept at {unloaded.kept_url}"
    elif unloaded.fate.wrong:
        yield "the file is not there any more: it was taken away since, or uploaded again"
    if unloaded.reason_url:
        yield f"reason  {unloaded.reason_url}"
    if unloaded.remedy:
        yield f"to do: {unloaded.remedy}"
