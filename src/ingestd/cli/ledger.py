"""`ingestd explain` and `ingestd replay`: where a file is, and another try for what is stuck."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingestd.cli import where
from ingestd.cli.errors import CommandError
from ingestd.cli.terminal import output

if TYPE_CHECKING:
    from ingestd.ledger.explain import Explanation
    from ingestd.ledger.replay import Replayed
    from ingestd.model.objects import ObjectRef
    from ingestd.settings import Settings

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", dir_okay=False, exists=True, help="The daemon's settings."),
]


def explain(
    url: Annotated[str, typer.Argument(metavar="gs://BUCKET/OBJECT", help="The file in question.")],
    config: Config = None,
    rules: Annotated[str, typer.Option("--rules", help="Folder of rules, or gs://bucket/prefix.")] = "",
    state: where.State = None,
) -> None:
    """Say which rule takes a file, what would happen, and what did happen."""
    explanation = asyncio.run(_explain(_settings(config, rules, state), _object(url)))
    _show(explanation)


def replay(
    what: Annotated[list[str], typer.Argument(metavar="gs://BUCKET/OBJECT|EVENT_ID…", help="Files, or event ids.")],
    config: Config = None,
    state: where.State = None,
) -> None:
    """Try blocked or failed batches again, now."""
    replayed = asyncio.run(_replay(_settings(config, "", state), what))
    for one in replayed:
        output.print(f"{one.event_id} {one.what}")
    if not replayed:
        raise CommandError("nothing of that is blocked or failed; `ingestd explain gs://…` says where a file is")


def _settings(config: Path | None, rules: str, state: Path | None) -> "Settings":
    from ingestd.ops.logging import configure
    from ingestd.settings import Settings
    from ingestd.settings_loader import load_settings

    configure("console", "warning")
    environ = dict(os.environ)
    if config is None or state is not None:
        environ["INGESTD_PROJECT"] = where.enter(state)
    if rules:
        environ["INGESTD_RULES__URL"] = rules
    return load_settings(Settings, config, environ)


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
    from ingestd.batch.journal import Journal
    from ingestd.gcp.connect import connect
    from ingestd.intake.refusals import Refusals
    from ingestd.ledger.explain import Explainer
    from ingestd.model.clock import SystemClock
    from ingestd.rules.bucket import rule_source
    from ingestd.rules.loading import RuleLoader
    from ingestd.windows.pacing import Pacing
    from ingestd.windows.store import WindowStore

    clock = SystemClock()
    async with connect(settings.project) as clients:
        loader = RuleLoader(rule_source(settings.rules.url, clients.store), clock)
        try:
            book = await loader.refresh()
        except FileNotFoundError as error:
            raise CommandError(f"{error}; say where the rules are with --rules or --config") from None
        explainer = Explainer(
            clients.store,
            clients.warehouse,
            Journal(clients.store, settings.journal, clock, owner="explain", lease=settings.recovery.lease),
            clock,
            project=settings.project,
            refusals=Refusals(clients.store, settings.errors),
            windows=WindowStore(clients.store, settings.batches),
            pacing=Pacing(clients.store, settings.journal / "pace", None, clock),
        )
        return await explainer.explain(ref, book.route(ref.name))


async def _replay(settings: "Settings", what: list[str]) -> "list[Replayed]":
    from ingestd.batch.journal import Journal
    from ingestd.gcp.connect import connect
    from ingestd.ledger.replay import Replayer
    from ingestd.model.clock import SystemClock

    clock = SystemClock()
    refs = [_object(one) for one in what if one.startswith("gs://")]
    events = [one for one in what if not one.startswith("gs://")]
    async with connect(settings.project) as clients:
        journal = Journal(clients.store, settings.journal, clock, owner="replay", lease=settings.recovery.lease)
        return await Replayer(journal, clock).replay(refs, events)


def _show(explanation: "Explanation") -> None:
    found = explanation.found
    output.print(f"[bold]{explanation.ref}[/]")
    if found is None:
        output.print("  object   [yellow]does not exist (any more)[/]")
    else:
        output.print(
            f"  object   generation {found.generation}, {found.size} bytes, {found.created:%Y-%m-%d %H:%M:%S} UTC"
        )
    output.print(f"  rule     {explanation.verdict}")
    for number, step in enumerate(explanation.plan):
        output.print(f"  {'plan     ' if not number else '         '}{step}")
    if not explanation.history:
        output.print("  history  none: no batch has taken it")
        return
    for one in explanation.history:
        rows = "" if one.rows is None else f", {one.rows} rows"
        output.print(f"  history  generation {one.generation}: [bold]{one.phase}[/]{rows}")
        if one.error:
            output.print(f"           {one.error}")
        if one.retry_at:
            output.print(
                f"           next try at {one.retry_at:%Y-%m-%d %H:%M:%S} UTC, or now: ingestd replay {one.event_id}"
            )
        if one.owner:
            output.print(f"           being worked on by {one.owner}")
        output.print(f"           job {one.job_id} ({one.job})")
        output.print(f"           record {one.record_url}")
