"""`ingestd dead-letters`: bring messages back that ended on the dead-letter topic although they are good."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ingestd.cli import where
from ingestd.cli.errors import CommandError
from ingestd.cli.ledger import Config, settings_for
from ingestd.cli.terminal import Json, output, print_json

if TYPE_CHECKING:
    from ingestd.intake.drain import Drained, Feed
    from ingestd.settings import Settings

app = typer.Typer(help="Messages that ended on the dead-letter topic.", no_args_is_help=True)


@app.callback()
def root() -> None:
    """Messages that ended on the dead-letter topic."""


@app.command()
def drain(
    subscription: Annotated[
        str, typer.Option(help="The dead-letter topic's subscription.", metavar="SUBSCRIPTION")
    ] = "ingestd-dead-letter",
    topic: Annotated[
        str, typer.Option(help="Where notifications go. [dim]Default: the topic of the daemon's subscription.[/]")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is there, move nothing.")] = False,
    config: Config = None,
    state: where.State = None,
    as_json: Json = False,
) -> None:
    """Publish every message that can be read to the topic it is meant for again; the others stay.

    Repeating it is harmless: the daemon drops what it has loaded.
    """
    settings = settings_for(config, "", state)
    told = asyncio.run(_drain(settings, subscription, topic, dry_run=dry_run))
    if as_json:
        print_json({"dry_run": dry_run, **told.to_json()})
        return
    verb = "would go back" if dry_run else "went back"
    for feed, number in told.back.items():
        if number:
            output.print(f"  {number:>10,}  {feed} {verb}")
    if told.unreadable:
        output.print(f"  {told.unreadable:>10,}  cannot be read, and stay")
        for one in told.examples:
            output.print(f"              {escape(one['message_id'])}: {escape(one['reason'])}")
    if not told.total and not told.unreadable:
        output.print("there are no dead letters")


async def _drain(settings: "Settings", subscription: str, topic: str, *, dry_run: bool) -> "Drained":
    from ingestd.gcp.connect import connect
    from ingestd.intake.drain import drain as draining

    name = subscription if subscription.startswith("projects/") else _path(settings, subscription)
    topics = await asyncio.to_thread(_topics, settings, topic)
    async with connect(settings.project) as clients:
        return await draining(clients.subscription(name), clients.publisher, topics, dry_run=dry_run)


def _topics(settings: "Settings", topic: str) -> "dict[Feed, str]":
    """Where each kind of message goes: where the daemon's own subscriptions get them from."""
    from ingestd.gcp.inspection import Inspector
    from ingestd.intake.drain import Feed

    own = settings.subscriptions
    names = {Feed.NOTIFICATIONS: own.notifications, Feed.COMPLETIONS: own.completions}
    found = {Feed.NOTIFICATIONS: topic} if topic else {}
    with Inspector(settings.project) as inspector:
        for feed, name in names.items():
            if feed in found:
                continue
            facts = inspector.subscription(name)
            if facts is not None:
                found[feed] = facts.topic
            elif feed is Feed.NOTIFICATIONS:
                raise CommandError(f"there is no subscription {name}: say where {feed} go with --topic")
    return found


def _path(settings: "Settings", name: str) -> str:
    return f"projects/{settings.project}/subscriptions/{name}"
