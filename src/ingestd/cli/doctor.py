"""`ingestd doctor`: is everything there that the daemon needs, and may it use it? A checklist with remedies."""

import asyncio
import os
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ingestd.cli import where
from ingestd.cli.checkup import (
    CONSUME,
    READ,
    WRITE,
    Check,
    Mark,
    bad,
    bucket,
    good,
    locations,
    notification,
    sink,
    subscription,
)
from ingestd.cli.errors import FAILED
from ingestd.cli.ledger import Config, settings_for
from ingestd.cli.terminal import Json, output, print_json
from ingestd.model.errors import IngestError

if TYPE_CHECKING:
    from ingestd.documents import Problem
    from ingestd.gcp.inspection import Inspector
    from ingestd.rules.loading import RuleBook
    from ingestd.settings import Settings

_SIGNS = {
    Mark.OK: "[green]✓[/]",
    Mark.WARNING: "[yellow]![/]",
    Mark.FAILED: "[bold red]✗[/]",
    Mark.SKIPPED: "[dim]-[/]",
}


def doctor(
    config: Config = None,
    buckets: Annotated[
        list[str] | None,
        typer.Option(
            "--bucket", metavar="NAME", help="A bucket that files arrive in. [dim]Default: PROJECT-trigger.[/]"
        ),
    ] = None,
    state: where.State = None,
    as_json: Json = False,
) -> None:
    """Check what the daemon needs, with remedies: permissions, topics, notifications, sink, locations, Java."""
    settings = settings_for(config, "", state)
    checks = list(examine(settings, buckets or [f"{settings.project}-trigger"], show=None if as_json else _print))
    failed = sum(one.mark is Mark.FAILED for one in checks)
    warned = sum(one.mark is Mark.WARNING for one in checks)
    if as_json:
        print_json([one.to_json() for one in checks])
    elif failed or warned:
        output.print(f"\n{failed} to mend, {warned} to think about")
    else:
        output.print("\n[green]everything is in place[/]")
    if failed:
        raise typer.Exit(FAILED)


def examine(
    settings: "Settings", triggers: list[str], *, show: Callable[[Check], None] | None = None
) -> Iterator[Check]:
    """Every check, shown as soon as it is known: some take a while."""
    for check in _checks(settings, triggers):
        if show is not None:
            show(check)
        yield check


def _checks(settings: "Settings", triggers: list[str]) -> Iterator[Check]:
    from ingestd.gcp.inspection import Inspector

    cloud = "the local cloud" if os.environ.get("STORAGE_EMULATOR_HOST") else "Google Cloud"
    try:
        inspector = Inspector(settings.project)
    except IngestError as error:
        yield bad(f"credentials for {cloud}", str(error), "gcloud auth application-default login")
        return
    with inspector:
        yield Check(f"project {settings.project}", Mark.OK, f"on {cloud}")
        places: dict[str, str] = {}
        yield from _buckets(settings, inspector, triggers, places)
        yield from _messages(settings, inspector, triggers)
        book = yield from _rules(settings)
        yield from _warehouse(settings, inspector, book, {name: places.get(name, "") for name in triggers})
    yield from _java(settings, book)


def _buckets(
    settings: "Settings", inspector: "Inspector", triggers: list[str], places: dict[str, str]
) -> Iterator[Check]:
    own = [settings.journal, settings.errors, settings.tasks, settings.batches]
    wanted: list[tuple[str, str, tuple[str, ...]]] = [(name, "files arrive in", WRITE) for name in triggers]
    wanted += [(name, "the daemon's books are in", WRITE) for name in dict.fromkeys(ref.bucket for ref in own)]
    if settings.rules.url.startswith("gs://"):
        wanted.append((settings.rules.url.removeprefix("gs://").partition("/")[0], "rules are in", READ))
    for url in (settings.corrupted_file_url, settings.invalid_schema_url):
        if url:
            wanted.append((url.removeprefix("gs://").partition("/")[0], "bad files go to", WRITE))
    for name, what, permissions in dict.fromkeys(wanted):
        try:
            facts = inspector.bucket(name, permissions)
        except IngestError as error:
            yield bad(f"{what} gs://{name}", str(error))
            continue
        if facts:
            places[name] = facts.location
        yield bucket(what, name, facts, permissions, location=settings.jobs.location)


def _messages(settings: "Settings", inspector: "Inspector", triggers: list[str]) -> Iterator[Check]:
    names = settings.subscriptions
    topics: dict[str, str] = {}
    for what, name, usual in (
        ("notifications", names.notifications, "storage-notifications"),
        ("completions", names.completions, "bigquery-completions"),
    ):
        try:
            facts = inspector.subscription(name, CONSUME)
        except IngestError as error:
            yield bad(f"{what} subscription {name}", str(error))
            continue
        topics[what] = facts.topic if facts else ""
        yield from subscription(what, name, facts, topic=usual)
    for name in triggers:
        told = partial(_notifications, inspector, name, topics.get("notifications", ""))
        yield _asked(f"notifications of gs://{name}", told)
    yield _asked("log sink for job completions", lambda: sink(inspector.sinks(), topics.get("completions", "")))
    if names.dead_letter_topic:
        name = names.dead_letter_topic
        yield _asked(f"dead-letter topic {name}", lambda: _topic(name, there=inspector.topic(name)))


def _notifications(inspector: "Inspector", name: str, topic: str) -> Check:
    if not topic:
        return Check(f"notifications of gs://{name}", Mark.SKIPPED, "there is no subscription they could reach")
    return notification(name, inspector.notifications(name), topic)


def _topic(name: str, *, there: bool) -> Check:
    title = f"dead-letter topic {name}"
    if there:
        return good(title)
    return bad(title, "there is no such topic", f"gcloud pubsub topics create {name.rpartition('/')[2]}")


def _asked(what: str, ask: Callable[[], Check]) -> Check:
    """A check whose question may be refused: that is a finding, too."""
    try:
        return ask()
    except IngestError as error:
        return Check(
            what, Mark.WARNING, f"cannot be asked: {error}", "grant the viewer's role to whoever runs the doctor"
        )


def _rules(settings: "Settings") -> "Generator[Check, None, RuleBook | None]":
    from ingestd.documents import Severity

    title = f"rules in {settings.rules.url}"
    try:
        book, problems = asyncio.run(_read_rules(settings))
    except (IngestError, OSError) as error:
        yield bad(title, str(error), "set rules.url, or put rules there")
        return None
    errors = [one for one in problems if one.severity is Severity.ERROR]
    if errors:
        more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
        yield bad(title, f"{errors[0]}{more}", f"ingestd rules lint {settings.rules.url}")
    elif not book.rules:
        yield Check(
            title,
            Mark.WARNING,
            "there are none, so nothing will be loaded",
            f"put rule files into {settings.rules.url}",
        )
    elif problems:
        yield Check(
            title,
            Mark.WARNING,
            f"{len(book.rules)} rules, {len(problems)} warnings",
            f"ingestd rules lint {settings.rules.url}",
        )
    else:
        yield good(title, f"{len(book.rules)} rules")
    return book


async def _read_rules(settings: "Settings") -> "tuple[RuleBook, list[Problem]]":
    from ingestd.gcp.connect import connect
    from ingestd.ops.logging import configure
    from ingestd.rules.bucket import rule_source
    from ingestd.rules.lint import lint
    from ingestd.rules.loading import RuleLoader

    configure("console", "critical")  # what is wrong with a rule is a line of the checklist
    async with connect(settings.project) as clients:
        source = rule_source(settings.rules.url, clients.store)
        return await RuleLoader(source).refresh(), await lint(source)


def _warehouse(
    settings: "Settings", inspector: "Inspector", book: "RuleBook | None", places: dict[str, str]
) -> Iterator[Check]:
    title = f"BigQuery jobs in {settings.project}"
    try:
        inspector.can_query(settings.jobs.location)
    except IngestError as error:
        grant = f"gcloud projects add-iam-policy-binding {settings.project} --member=serviceAccount:…"
        yield bad(title, str(error), f"{grant} --role=roles/bigquery.jobUser")
    else:
        yield good(title, f"may be created in {settings.jobs.location}")
    found: dict[str, str | None] = {}
    for project, dataset in _datasets(book):
        name = f"{project}.{dataset}" if project else dataset
        try:
            found[name] = inspector.dataset_location(project, dataset)
        except IngestError as error:
            yield bad(f"dataset {name}", str(error), "grant roles/bigquery.dataEditor on the dataset")
    yield from locations(found, places, settings.project)


def _datasets(book: "RuleBook | None") -> list[tuple[str, str]]:
    """The datasets that rules name without variables."""
    from ingestd.model.tables import InvalidTableName, parse_table

    found: dict[tuple[str, str], None] = {}
    for rule in book.rules if book else ():
        text = rule.spec.dest.table
        staging = rule.spec.dest.staging
        for name in (text.partition("$")[0] if "$" in text else text, f"{staging.dataset}.x" if staging else ""):
            # The table's own part may hold variables; the dataset's may not, to be known here.
            head, dot, _ = name.rpartition(".")
            if not dot or rule.spec.disabled:
                continue
            try:
                table = parse_table(f"{head}.x")
            except InvalidTableName:
                continue
            found[table.project or "", table.dataset] = None
    return list(found)


def _java(settings: "Settings", book: "RuleBook | None") -> Iterator[Check]:
    from ingestd.prepare.java import find_java

    needed = any(rule.spec.dest.transforms for rule in book.rules) if book else False
    title = "Java for Spark"
    if settings.spark.start == "never":
        yield Check(title, Mark.SKIPPED, "spark.start is never")
        return
    if settings.spark.master.startswith("sc://"):
        yield Check(title, Mark.SKIPPED, f"Spark runs elsewhere: {settings.spark.master}")
        return
    try:
        java = find_java(os.environ)
    except IngestError as error:
        why = "" if needed else "; no rule needs Spark yet"
        yield Check(
            title, Mark.FAILED if needed else Mark.WARNING, f"{error}{why}", "apt-get install openjdk-17-jre-headless"
        )
        return
    yield good(title, f"{java.version} in {java.home}; Spark runs on {settings.spark.master}")


def _print(check: Check) -> None:
    found = f"  [dim]{escape(check.found)}[/]" if check.found else ""
    output.print(f"{_SIGNS[check.mark]} {escape(check.what)}{found}")
    if check.fix and check.mark is not Mark.OK:
        output.print(f"    [cyan]{escape(check.fix)}[/]")
