"""`ingestd doctor`: is everything there that the daemon needs, and may it use it? A checklist with remedies."""

import asyncio
import os
import time
from collections.abc import Callable, Generator, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ingestd.cli import where
from ingestd.cli.checkup import (
    CONSUME,
    FILL,
    PUBLISH,
    READ,
    WRITE,
    Check,
    Kept,
    Mark,
    bad,
    bucket,
    deletions,
    doubtful,
    filling,
    good,
    lifecycle,
    locations,
    notification,
    publishing,
    pulling,
    sink,
    subscription,
    unread,
)
from ingestd.cli.errors import FAILED, CommandError
from ingestd.cli.ledger import Config, settings_for
from ingestd.cli.terminal import Json, output, print_json
from ingestd.model.errors import IngestError

if TYPE_CHECKING:
    from ingestd.documents import Problem
    from ingestd.gcp.inspection import Inspector
    from ingestd.model.tables import TableName
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
    spark: Annotated[
        bool, typer.Option("--spark", help="Start a Spark session and prepare a batch. [dim]Takes a JVM's memory.[/]")
    ] = False,
    state: where.State = None,
    as_json: Json = False,
) -> None:
    """Check what the daemon needs, with remedies: permissions, topics, notifications, sink, locations, Spark."""
    settings = settings_for(config, "", state)
    triggers, show = buckets or [f"{settings.project}-trigger"], None if as_json else show_check
    checks = list(examine(settings, triggers, try_spark=spark, daemon=where.daemon(state), show=show))
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
    settings: "Settings",
    triggers: list[str],
    *,
    try_spark: bool = False,
    daemon: str = "",
    show: Callable[[Check], None] | None = None,
) -> Iterator[Check]:
    """Every check, shown as soon as it is known: some take a while."""
    for check in _checks(settings, triggers, try_spark=try_spark, daemon=daemon):
        if show is not None:
            show(check)
        yield check


def _checks(settings: "Settings", triggers: list[str], *, try_spark: bool, daemon: str) -> Iterator[Check]:
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
    yield from _spark(settings, book, daemon, try_it=try_spark)


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
    seen: set[str] = set()
    for name, what, permissions in dict.fromkeys(wanted):
        try:
            facts = inspector.bucket(name, permissions)
        except IngestError as error:
            yield bad(f"{what} gs://{name}", str(error))
            continue
        if facts:
            places[name] = facts.location
        yield bucket(what, name, facts, permissions, location=settings.jobs.location)
        if facts and name not in seen and (needed := [one for place, one in kept(settings) if place == name]):
            yield lifecycle(name, facts, needed)
        seen.add(name)


def kept(settings: "Settings") -> Iterator[tuple[str, Kept]]:
    """What the daemon needs of its own folders, and for how long."""
    recovery = settings.recovery
    under_way = (recovery.give_up_after + timedelta(days=31)).days
    horizon = recovery.horizon.days
    known = "a file that is announced again later is loaded again"
    read = "what an earlier load has read of an overwritten file is loaded again"
    lost = "a batch that waits for longer is lost"
    order = "which batches of an ordered table were committed is forgotten, and late ones come out of order"
    for ref, days, what in (
        (settings.register, horizon, known),
        (settings.journal / "Trail", horizon, read),
        (settings.journal / "Running", under_way, lost),
        (settings.journal / "Files", under_way, lost),
        (settings.journal / "ordered", horizon, order),
        (settings.batches, under_way, lost),
        (settings.tasks, under_way, lost),
    ):
        yield ref.bucket, Kept(f"{ref.name}/".lstrip("/"), days, what)
    yield settings.journal.bucket, _done(settings, horizon, under_way)
    for ref, days, what in (
        (settings.journal / "LoadState", under_way, "rows that wait for the load-state table are lost"),
        (settings.journal / "Replays", under_way, "nobody knows who replayed what"),
    ):
        yield ref.bucket, Kept(f"{ref.name}/", days, what, vital=False)


def _done(settings: "Settings", horizon: int, under_way: int) -> Kept:
    """Finished records. A success file is in no register: its record knows it, and (to those who look for lost files)
    the load state.
    """
    folder = f"{(settings.journal / 'Done').name}/"
    if not settings.success.conventions:
        return Kept(folder, under_way, "`explain` and `replay` know no batch for longer", vital=False)
    again = "a success file that is announced again later loads its directory again"
    if settings.load_state.enabled:
        return Kept(folder, under_way, again)
    return Kept(folder, horizon, f"{again} (with `load_state` on, {under_way} days are enough)")


_VIEW_SUBSCRIPTION = "gcloud pubsub subscriptions add-iam-policy-binding {} --member=… --role=roles/pubsub.viewer"
_VIEW_BUCKET = (
    "gcloud storage buckets add-iam-policy-binding gs://{} --member=… --role=roles/storage.legacyBucketReader"
)
_VIEW_SINKS = "gcloud projects add-iam-policy-binding {} --member=… --role=roles/logging.viewer"


def _messages(settings: "Settings", inspector: "Inspector", triggers: list[str]) -> Iterator[Check]:
    names = settings.subscriptions
    topics: dict[str, str] = {}
    for what, name, usual in (
        ("notifications", names.notifications, "storage-notifications"),
        ("completions", names.completions, "bigquery-completions"),
    ):
        topics[what] = yield from _subscription(inspector, what, name, usual)
    for name in triggers:
        yield from _notifications(settings, inspector, name, topics["notifications"])
    topic = topics["completions"]
    yield _asked("log sink for job completions", lambda: _sink(inspector, topic), _VIEW_SINKS.format(settings.project))
    if name := names.dead_letter_topic:
        try:
            yield publishing("dead-letter topic", name, inspector.topic_permissions(name, PUBLISH))
        except IngestError as error:
            yield bad(f"dead-letter topic {name}", str(error))


def _subscription(inspector: "Inspector", what: str, name: str, usual: str) -> Generator[Check, None, str]:
    """Checks of one subscription; the answer is its topic, empty when that cannot be told."""
    title = f"{what} subscription {name}"
    try:
        permitted = pulling(what, name, inspector.subscription_permissions(name, CONSUME))
    except IngestError as error:
        yield bad(title, str(error))
        return ""
    try:
        facts = inspector.subscription(name)
    except IngestError as error:
        yield permitted
        if permitted.mark is Mark.OK:  # enough for the daemon: reading how it is set up takes more
            yield unread(title, error, _VIEW_SUBSCRIPTION.format(name.rpartition("/")[2]))
        return ""
    if facts is not None and permitted.mark is not Mark.OK:
        yield permitted
    else:
        yield from subscription(what, name, facts, topic=usual)
    return facts.topic if facts else ""


def _notifications(settings: "Settings", inspector: "Inspector", name: str, topic: str) -> Iterator[Check]:
    title = f"notifications of gs://{name}"
    try:
        found = inspector.notifications(name)
    except IngestError as error:
        yield unread(title, error, _VIEW_BUCKET.format(name))
        return
    if not topic:
        told = ", ".join(sorted({one.topic for one in found})) or "none"
        yield Check(title, Mark.SKIPPED, f"which topic they must reach is unknown ({told})")
        return
    yield notification(name, found, topic)
    if deletions_matter(settings, name) and (check := deletions(name, found, topic)):
        yield check


def deletions_matter(settings: "Settings", name: str) -> bool:
    """Whether a file deleted in the bucket may ask for something: tables may be ordered (`ORDERME` is seen only when a
    batch comes), and `_config/` may be mended.
    """
    from ingestd.model.objects import ObjectRef

    return any(
        one.bucket in (name, "*") or (one.config_url and ObjectRef.parse(one.config_url).bucket == name)
        for one in settings.success.effective()
    )


def _sink(inspector: "Inspector", topic: str) -> Check:
    sinks = inspector.sinks()
    if sinks is not None and not topic:
        return Check("log sink for job completions", Mark.SKIPPED, "which topic it must reach is unknown")
    return sink(sinks, topic)


def _asked(what: str, ask: Callable[[], Check], grant: str) -> Check:
    """A check whose question may be refused: that is a finding, too."""
    try:
        return ask()
    except IngestError as error:
        return unread(what, error, grant)


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
    elif not book.rules and settings.rules_optional:
        yield good(title, "there are none; the settings' conventions need none")
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
        source = rule_source(settings.rules.url, clients.store, optional=settings.rules_optional)
        unknown = settings.rules.unknown_keys
        return await RuleLoader(source, unknown=unknown).refresh(), await lint(source, unknown=unknown)


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
    if settings.load_state.enabled:
        yield _load_state(settings, inspector)
    for table in _tables(book):
        try:
            refused = filling(str(table), inspector.table_permissions(table, FILL))
        except IngestError as error:
            refused = bad(f"table {table}", str(error), "grant roles/bigquery.dataEditor on the dataset")
        if refused:
            yield refused


def _load_state(settings: "Settings", inspector: "Inspector") -> Check:
    """Where the load state is kept; the daemon makes the table itself."""
    from ingestd.model.tables import parse_table

    table = parse_table(settings.load_state.table).in_project(settings.project)
    title, name = f"load state in {table}", f"{table.project}:{table.dataset}"
    try:
        location = inspector.dataset_location(table.project or "", table.dataset)
    except IngestError as error:
        return bad(title, str(error), f"grant roles/bigquery.dataEditor on the dataset {name}")
    if location is None:
        told = "there is no such dataset, and making one takes more than the daemon's roles"
        return doubtful(title, told, f"bq mk --dataset --location={settings.jobs.location} {name}")
    return good(title, f"the dataset is in {location}")


def _datasets(book: "RuleBook | None") -> list[tuple[str, str]]:
    """The datasets that rules name without variables."""
    found: dict[tuple[str, str], None] = {}
    for rule in book.rules if book else ():
        text = rule.spec.dest.table
        staging = rule.spec.dest.staging
        for name in (text.partition("$")[0] if "$" in text else text, f"{staging.dataset}.x" if staging else ""):
            # The table's own part may hold variables; the dataset's may not, to be known here.
            head, dot, _ = name.rpartition(".")
            if dot and not rule.spec.disabled and (table := _table(f"{head}.x")):
                found[table.project or "", table.dataset] = None
    return list(found)


def _tables(book: "RuleBook | None") -> "list[TableName]":
    """The tables that rules name without variables."""
    names = dict.fromkeys(rule.spec.dest.table for rule in book.rules if not rule.spec.disabled) if book else {}
    return [table for name in names if "$" not in name and (table := _table(name))]


def _table(text: str) -> "TableName | None":
    from ingestd.model.tables import InvalidTableName, parse_table

    try:
        return parse_table(text)
    except InvalidTableName:
        return None


def _spark(settings: "Settings", book: "RuleBook | None", daemon: str, *, try_it: bool) -> Iterator[Check]:
    from ingestd.spark.start import wants_spark

    needed = any(wants_spark(rule.spec, settings.engine) for rule in book.rules) if book else False
    if settings.spark.start == "never":
        yield Check("Spark", Mark.SKIPPED, "spark.start is never")
        return
    checks = [*_spark_here(settings), *_spark_of_the_daemon(settings, daemon)]
    if try_it:
        checks.append(_tried(settings))
    for one in checks:
        if one.mark is Mark.FAILED and not needed and not try_it:
            yield doubtful(one.what, f"{one.found}; no rule needs Spark yet", one.fix)
        else:
            yield one


def _spark_here(settings: "Settings") -> Iterator[Check]:
    """What a session needs of this machine, without starting one: in a pod it would take the daemon's memory."""
    from ingestd.spark.session.java import find_java
    from ingestd.spark.session.packages import missing_packages

    if settings.spark.master.startswith("sc://"):
        yield Check("Java for Spark", Mark.SKIPPED, f"Spark runs elsewhere: {settings.spark.master}")
    else:
        try:
            java = find_java(os.environ)
        except IngestError as error:
            yield bad("Java for Spark", str(error), "apt-get install openjdk-17-jre-headless")
        else:
            yield good("Java for Spark", f"{java.version} in {java.home}; Spark runs on {settings.spark.master}")
    if missing := missing_packages(settings.spark.master):
        fix = "pip install 'ingestd[connect]'" if settings.spark.master.startswith("sc://") else "pip install ingestd"
        yield bad("Python packages for Spark", missing, fix)
    else:
        yield good("Python packages for Spark")


def _spark_of_the_daemon(settings: "Settings", daemon: str) -> Iterator[Check]:
    """A session that is ready has prepared a batch; nothing is said where no daemon is in reach, or it needs none."""
    from ingestd.cli.status import ask_daemon

    try:
        told = asyncio.run(ask_daemon(settings, daemon)).get("spark", {})
    except CommandError:
        return
    title, state = "Spark of the daemon", told.get("state", "")
    if state == "ready":
        yield good(title, "ready: it has prepared a batch")
    elif told.get("problem"):
        yield bad(title, f"{state}: {told['problem']}", "ingestd doctor --spark tries it without the daemon")
    elif state and state != "off":
        yield doubtful(title, str(state), "ask again in a minute")


def _tried(settings: "Settings") -> Check:
    from ingestd.spark.start import try_out

    title = "Spark prepares a batch"
    began = time.monotonic()
    try:
        try_out(settings.spark)
    except IngestError as error:
        return bad(title, str(error))
    return good(title, f"{time.monotonic() - began:.0f} s")


def show_check(check: Check) -> None:
    found = f"  [dim]{escape(check.found)}[/]" if check.found else ""
    output.print(f"{_SIGNS[check.mark]} {escape(check.what)}{found}")
    if check.fix and check.mark is not Mark.OK:
        output.print(f"    [cyan]{escape(check.fix)}[/]")
