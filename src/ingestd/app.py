"""The composition root: settings in, a running daemon out.

One task group of named root tasks. A root task that dies takes the daemon down loudly; Kubernetes starts it again, and
everything under way is durable. SIGTERM drains: pulling stops, what is in flight is finished or handed over.
"""

import asyncio
import os
import secrets
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from ingestd import __version__
from ingestd.batch.acting import PostActions
from ingestd.batch.by_rule import expect
from ingestd.batch.journal import Journal
from ingestd.batch.keyring import Keyring
from ingestd.batch.leftovers import Leftovers
from ingestd.batch.loading import Destinations
from ingestd.batch.parts import Parts
from ingestd.batch.register import Register
from ingestd.batch.runner import BatchRunner
from ingestd.batch.tasks import DeferredTasks
from ingestd.batch.trails import Trails
from ingestd.batch.underway import UnderWay
from ingestd.console.views import ConsoleViews
from ingestd.console.wiring import console, console_token
from ingestd.dispatch.dispatcher import Dispatcher
from ingestd.dispatch.reconciler import Reconciler
from ingestd.dispatch.routes import RouteBook
from ingestd.gcp.connect import Clients, connect
from ingestd.intake.arrivals import Arrivals
from ingestd.intake.deadletters import DeadLetters
from ingestd.intake.notifications import ObjectEvent
from ingestd.intake.puller import Puller, PullLimits
from ingestd.intake.receipts import Receipt
from ingestd.intake.refusals import Refusals
from ingestd.intake.router import Router, Work
from ingestd.ledger.announcing import InProcess
from ingestd.ledger.backfill import Backfill
from ingestd.ledger.name_index import NameIndex
from ingestd.ledger.name_keeper import NameKeeper
from ingestd.ledger.parts import known_files, load_state_writer, wanted
from ingestd.ledger.sweep import LostFiles
from ingestd.ledger.writer import LoadStateWriter
from ingestd.model.clock import Clock, SystemClock
from ingestd.model.objects import ObjectRef
from ingestd.ops import collector, process, tracing
from ingestd.ops.http import OpsServer
from ingestd.ops.logging import configure
from ingestd.ops.strangers import Strangers
from ingestd.ports import Preparer, SparkSql
from ingestd.prepare.session import Spark
from ingestd.prepare.side_inputs import SideInputs
from ingestd.prepare.start import preparer_for, spark_for, wants_spark
from ingestd.rules.bucket import rule_source
from ingestd.rules.loading import RuleLoader
from ingestd.rules.rule import Rule
from ingestd.settings import Settings
from ingestd.settings_loader import load_settings, service_links
from ingestd.success.arrivals import SuccessArrivals
from ingestd.success.conventions import Conventions
from ingestd.success.interventions import Interventions
from ingestd.success.lookup import ConfigLookup
from ingestd.success.ordering import Ordering
from ingestd.success.planning import Resolver
from ingestd.success.queue import Queues
from ingestd.warehouse.governor import QuotaGovernor, QuotaLimits
from ingestd.warehouse.jobs import Completions, JobRunner
from ingestd.warehouse.slots import JobSlots
from ingestd.windows.groups import Groups
from ingestd.windows.manager import WindowLimits, Windows
from ingestd.windows.pacing import Pacing
from ingestd.windows.quota_use import QuotaUse
from ingestd.windows.replicas import Replicas
from ingestd.windows.store import WindowStore
from ingestd.windows.sweep import WindowSweep

log = structlog.get_logger(__name__)

_SHOWN_STRANGERS = 20


@dataclass(slots=True)
class App:
    """A daemon that is put together; `run` runs it until `stop`."""

    settings: Settings
    rules: RuleLoader
    pullers: tuple[Puller, ...]
    reconciler: Reconciler
    windows: Windows
    sweep: WindowSweep
    replicas: Replicas
    clock: Clock
    governor: QuotaGovernor
    pacing: Pacing
    quota_use: QuotaUse
    router: Router
    runner: BatchRunner
    strangers: Strangers
    leftovers: Leftovers | None = None
    success: SuccessArrivals | None = None
    load_state: LoadStateWriter | None = None
    lost: LostFiles | None = None
    names: NameKeeper | None = None
    console: ConsoleViews | None = None
    spark: Spark | None = None
    ops: OpsServer | None = None
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _running: bool = False

    def stop(self) -> None:
        """Drain and end: what SIGTERM asks for."""
        self._stopping.set()

    def reload_rules(self) -> None:
        """Look for edited rules now: what SIGHUP asks for."""
        self.rules.wake()

    async def run(self, instead: Callable[[], Awaitable[None]] | None = None) -> None:
        """Run until `stop`; with `instead`, run only that, beside everything but the intake and the HTTP server."""
        await self.rules.refresh()
        await self.quota_use.start()
        await self.pacing.look()
        if self.ops is not None and instead is None:
            await self.ops.start()
        try:
            async with asyncio.TaskGroup() as roots:
                collecting = [roots.create_task(self.windows.run(), name="windows")]
                if self.success is not None:
                    collecting.append(roots.create_task(self.success.run(), name="success"))
                steady = [
                    roots.create_task(self.replicas.beat_forever(), name="heartbeat"),
                    roots.create_task(self.sweep.run(), name="sweep:windows"),
                    roots.create_task(self.pacing.run(), name="pacing"),
                    roots.create_task(self.quota_use.run(), name="quota-use"),
                    roots.create_task(self.reconciler.run(), name="reconciler"),
                    roots.create_task(self.rules.watch(self.settings.rules.check_every), name="rules"),
                ]
                if self.leftovers is not None:
                    steady.append(roots.create_task(self.leftovers.run(), name="sweep:staging"))
                if self.spark is not None:
                    self._want_spark(self.spark)
                    roots.create_task(self.spark.supervise(), name="spark")
                if self.load_state is not None:
                    steady.append(roots.create_task(self.load_state.run(), name="load-state"))
                if self.lost is not None and instead is None:
                    steady.append(roots.create_task(self.lost.run(), name="sweep:lost-files"))
                if self.names is not None and instead is None:
                    steady.append(roots.create_task(self.names.run(), name="sweep:names"))
                if self.console is not None:
                    steady.append(roots.create_task(self.console.feed.run(), name="console"))
                if self.ops is not None and instead is None:
                    steady.append(roots.create_task(process.watch_loop(), name="loop-lag"))
                pulling = [
                    roots.create_task(puller.run(), name=f"intake:{puller.desk.name}")
                    for puller in (self.pullers if instead is None else ())
                ]
                self._running = True
                served = {"http": self.ops.url} if self.ops and instead is None else {}
                log.info("daemon.started", version=__version__, rules=len(self.rules.book.rules), **served)
                await (self._stopping.wait() if instead is None else instead())
                self._running = False
                await self._drain([*pulling, *collecting])
                for task in steady:
                    task.cancel()
                if self.spark is not None:
                    self.spark.close()
            if self.load_state is not None:
                await self.load_state.close()
            await self.quota_use.close()
        finally:
            if self.ops is not None:
                await self.ops.stop()
        log.info("daemon.stopped")

    def _want_spark(self, spark: Spark) -> None:
        """A JVM takes many seconds to be of use: started ahead where it will be needed, and nowhere else."""
        how, engine = self.settings.spark.start, self.settings.engine
        needed = any(wants_spark(rule.spec, engine) for rule in self.rules.book.rules)
        if how == "always" or (how == "auto" and needed):
            spark.want()
        elif how == "never" and needed:
            log.warning("spark.needed", why="rules prepare files on Spark and spark.start is never: their batches wait")

    async def _drain(self, pulling: list[asyncio.Task[None]]) -> None:
        log.info("daemon.draining", in_flight=sum(puller.desk.in_flight for puller in self.pullers))
        for puller in self.pullers:
            puller.stop()
        self.windows.stop()
        if self.success is not None:
            self.success.stop()
        _, late = await asyncio.wait(pulling, timeout=self.settings.drain.total_seconds())
        for task in late:
            # Cancelled batches give their lease back, so that another replica continues them at once.
            log.warning("daemon.handing_over", task=task.get_name())
            task.cancel()

    def missing(self) -> list[str]:
        """What keeps the daemon from taking work; empty when it is ready."""
        reasons = []
        if not self._running:
            reasons.append("starting or draining")
        if self.spark is not None and (problem := self.spark.missing()):
            reasons.append(problem)
        return reasons

    async def status(self) -> dict[str, Any]:
        book = self.rules.book
        return {
            "version": __version__,
            "project": self.settings.project,
            "ready": not self.missing(),
            "rules": [{"name": rule.name, "hash": rule.content_hash[:12]} for rule in book.rules],
            "rule_problems": [str(problem) for problem in book.problems],
            "quotas": self.governor.status(),
            "paces": self.pacing.status(),
            "spark": self.spark.status() if self.spark else {},
            "left_alone": [one.to_json() for one in self.strangers.recent()[-_SHOWN_STRANGERS:]],
            "in_flight": {puller.desk.name: puller.desk.in_flight for puller in self.pullers},
        }


@asynccontextmanager
async def build(
    settings: Settings, *, clients: Clients | None = None, clock: Clock | None = None
) -> AsyncIterator[App]:
    """Put the daemon together; Google's clients are opened here and closed at the end, unless given."""
    clock = clock or SystemClock()
    if clients is None:
        async with connect(settings.project, clock=clock) as opened:
            yield await _with_spark(settings, opened, clock)
    else:
        yield await _with_spark(settings, clients, clock)


async def _with_spark(settings: Settings, clients: Clients, clock: Clock) -> App:
    spark = spark_for(settings.spark)
    sides = None
    if clients.tables is not None:
        most, ttl = settings.spark.side_input_size, settings.spark.side_input_ttl
        sides = SideInputs(clients.warehouse, clients.tables, clock, store=clients.store, most=most, ttl=ttl)
    preparer, statements = preparer_for(settings.spark, spark, clients.store, sides)
    await preparer.start()
    return assemble(settings, clients, clock, preparer, spark, statements)


def assemble(
    settings: Settings,
    clients: Clients,
    clock: Clock,
    preparer: Preparer | None = None,
    spark: Spark | None = None,
    statements: SparkSql | None = None,
) -> App:
    owner = settings.replica or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    strangers = Strangers(clock)
    journal = Journal(clients.store, settings.journal, clock, owner=owner, lease=settings.recovery.lease)
    journal.strangers = strangers
    tasks = DeferredTasks(clients.store, settings.tasks, project=settings.project, errors=settings.errors)
    completions = Completions()
    jobs = JobRunner(
        clients.warehouse,
        completions,
        clock,
        poll_every=settings.jobs.poll_every,
        max_attempts=settings.jobs.max_attempts,
        pause=settings.jobs.retry_pause,
        throttle_pause=settings.jobs.throttle_pause,
        slots=JobSlots(
            clients.warehouse, clock, loads=settings.max_concurrent_load, queries=settings.max_concurrent_sql
        ),
    )
    governor = _governor(settings, clock)
    register = Register(clients.store, settings.register)
    pacing = Pacing(clients.store, settings.journal / "pace", governor, clock, replica=owner)
    pacing.strangers = strangers
    window_store = WindowStore(clients.store, settings.batches, strangers)
    keyring = Keyring(tasks)
    acting = PostActions(
        store=clients.store,
        warehouse=clients.warehouse,
        publisher=clients.publisher,
        http=clients.http,
        jobs=jobs,
        journal=journal,
        settings=settings,
        keyring=keyring,
        spark=statements,
    )
    conventions = Conventions(settings.success.effective())
    lookup = ConfigLookup(clients.store, clock)
    resolver = Resolver(clients.store, conventions, lookup, project=settings.project)
    runner = BatchRunner(
        Parts(
            store=clients.store,
            warehouse=clients.warehouse,
            journal=journal,
            tasks=tasks,
            jobs=jobs,
            governor=governor,
            register=register,
            underway=UnderWay(journal, clock, project=settings.project),
            trails=Trails(clients.store, journal),
            preparation=Destinations(clients.warehouse, clock),
            acting=acting,
            clock=clock,
            settings=settings,
            preparer=preparer,
            statements=statements,
            directories=resolver,
        )
    )
    dead_letters = DeadLetters(
        clients.publisher,
        clients.store,
        clock,
        topic=settings.subscriptions.dead_letter_topic,
        folder=settings.errors,
    )
    rules = RuleLoader(
        rule_source(settings.rules.url, clients.store, optional=settings.rules_optional),
        clock,
        settings.rules.unknown_keys,
    )
    rules.watchers.append(lambda book: expect(rule.name for rule in book.rules))
    settled = RouteBook.from_settings(settings.routes)
    keyring.in_force = lambda name, content: (
        settled.actions(name) if (found := rules.book.actions(name, content)) is None else found
    )
    refusals = Refusals(clients.store, settings.errors)
    arrivals = Arrivals(
        runner=runner, refusals=refusals, project=settings.project, clock=clock, remember=settings.intake.remember
    )
    windows = Windows(
        store=window_store,
        journal=journal,
        register=register,
        runner=runner,
        refusals=refusals,
        clock=clock,
        project=settings.project,
        replica=owner,
        limits=WindowLimits(
            flush_files=settings.windows.flush_files,
            flush_after=settings.windows.flush_after,
            grace=settings.windows.grace,
            late_patience=settings.windows.late_patience,
            lease=settings.recovery.lease,
        ),
        pacing=pacing,
    )
    groups = Groups(window_store, journal, runner, clock, patience=settings.windows.late_patience)
    queues = Queues(clients.store, settings.journal / "ordered")
    queues.strangers = strangers
    ordering = Ordering(
        queues=queues,
        store=clients.store,
        journal=journal,
        runner=runner,
        conventions=conventions,
        clock=clock,
        project=settings.project,
    )
    success = SuccessArrivals(
        store=clients.store,
        journal=journal,
        runner=runner,
        conventions=conventions,
        lookup=lookup,
        resolver=resolver,
        ordering=ordering,
        interventions=Interventions(queues, journal, clients.store, clients.warehouse, clock, project=settings.project),
        clock=clock,
        project=settings.project,
        at_once=2 * settings.jobs.max_running,
        remember=settings.intake.remember,
        sweep_every=settings.recovery.sweep_every,
    )
    runner.endings += [windows.tidy, groups.tidy, ordering.ended]
    replicas = Replicas(clients.store, settings.journal / "replicas", clock, name=owner, lease=settings.recovery.lease)
    sweep = WindowSweep(
        window_store,
        windows,
        groups,
        replicas,
        clock,
        every=settings.recovery.sweep_every,
        lease=settings.recovery.lease,
    )

    def deliver(event: ObjectEvent, rule: Rule, receipt: Receipt) -> Work | None:
        collected = rule.spec.batch is not None or windows.paced(event, rule)
        return (windows if collected else arrivals).deliver(event, rule, receipt)

    router = Router(
        subscription=settings.subscriptions.notifications,
        route=lambda name: rules.book.index.route(name),
        deliver=deliver,
        dead_letters=dead_letters,
        refusals=refusals,
        success=success if conventions else None,
    )
    dispatcher = Dispatcher(
        subscription=settings.subscriptions.completions,
        warehouse=clients.warehouse,
        journal=journal,
        tasks=tasks,
        runner=runner,
        completions=completions,
        routes=lambda: settled.extended(rules.book.routes),
        dead_letters=dead_letters,
        clock=clock,
    )
    limits = PullLimits(
        concurrent_pulls=settings.intake.concurrent_pulls,
        messages_per_pull=settings.intake.messages_per_pull,
        max_messages=settings.intake.max_messages,
        max_bytes=settings.intake.max_bytes,
        lease=settings.intake.ack_deadline,
        silence=settings.intake.silence,
    )
    pullers = (
        Puller(clients.subscription(settings.subscriptions.notifications), router.handle, clock, limits),
        Puller(clients.subscription(settings.subscriptions.completions), dispatcher.handle, clock, limits),
    )
    pullers[0].desk.on_full = windows.hurry
    reconciler = Reconciler(journal, tasks, runner, dispatcher, clock, settings)
    quota_use = QuotaUse(clients.store, settings.journal / "quota", governor, replicas, clock)
    quota_use.strangers = strangers
    app = App(
        settings,
        rules,
        pullers,
        reconciler,
        windows,
        sweep,
        replicas,
        clock,
        governor,
        pacing,
        quota_use,
        router,
        runner,
        strangers,
    )
    app.success = success if conventions else None
    app.load_state = load_state_writer(settings, clients.store, clients.warehouse, clock, owner)
    journal.witness = app.load_state
    if app.load_state is not None:
        app.load_state.strangers = strangers
    if preparer is not None:
        every = settings.recovery.sweep_every * 20  # whoever prepares cleans up: this is for those who died
        app.leftovers = Leftovers(clients.store, settings.staging, journal, clock, every=every)
    app.lost = _lost_files(app, clients, owner)
    app.names = NameKeeper(clients.store, journal, NameIndex(clients.store, settings.journal, strangers), clock)
    app.console = console(
        settings,
        clock,
        store=clients.store,
        warehouse=clients.warehouse,
        journal=journal,
        runner=runner,
        rules=rules,
        windows=windows,
        reconciler=reconciler,
        pullers=pullers,
        refusals=refusals,
        dead_letters=dead_letters,
        pacing=pacing,
        status=app.status,
        replica=owner,
    )
    app.spark = spark
    process.expose(settings.spark.scratch or Path(tempfile.gettempdir()))
    app.ops = OpsServer(
        settings.http.host,
        settings.http.port,
        ready=app.missing,
        status=app.status,
        views=app.console,
        token=console_token(settings),
        protect_metrics=settings.http.protect_metrics,
    )
    return app


def _lost_files(app: App, clients: Clients, owner: str) -> LostFiles | None:
    settings, clock = app.settings, app.clock
    if not settings.sweep.prefixes:
        return None
    known = known_files(settings, clients.store, clients.warehouse, clock, owner)
    return LostFiles(
        clients.store,
        Backfill(clients.store, known, wanted(settings, lambda name: app.rules.book.index.route(name))),
        InProcess(app.router.handle, clock.now),
        clock,
        notes=settings.journal / "sweep",
        replica=owner,
        prefixes=tuple(ObjectRef.parse(one) for one in settings.sweep.prefixes),
        every=settings.sweep.every,
        older_than=settings.sweep.older_than,
        max_files=settings.sweep.max_files,
    )


def _governor(settings: Settings, clock: Clock) -> QuotaGovernor:
    quotas = settings.quotas
    # The local cloud refuses nothing unless told to: pacing would only make people wait.
    emulated = bool(os.environ.get("BIGQUERY_EMULATOR_HOST"))
    limits = QuotaLimits(
        enabled=not emulated if quotas.enabled is None else quotas.enabled,
        changes=quotas.table_changes,
        changes_partitioned=quotas.partitioned_table_changes,
        table_day=quotas.table_daily,
        project_day=quotas.project_daily,
        share=quotas.share,
    )
    governor = QuotaGovernor(clock, limits)
    governor.expose()
    return governor


async def serve(config: Path | None) -> None:
    """`ingestd run`: the daemon with its signals."""
    settings = load_settings(Settings, config, os.environ)
    configure(settings.logging.format, settings.logging.level)
    if ignored := service_links(os.environ):
        log.debug("settings.service_links_ignored", variables=ignored)
    for variable, why in settings.idle_variables.items():
        if os.environ.get(variable) and settings.success.conventions:
            log.warning("settings.variable_without_effect", variable=variable, why=why)
    for variable, why in settings.bqtail_variables.items():
        if os.environ.get(variable):
            log.info("settings.variable_without_effect", variable=variable, why=why)
    if settings.tracing.endpoint:
        tracing.start(
            settings.tracing.endpoint,
            project=settings.project,
            version=__version__,
            replica=settings.replica or socket.gethostname(),
            sample=settings.tracing.sample,
        )
    async with build(settings) as app:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, app.stop)
        loop.add_signal_handler(signal.SIGHUP, app.reload_rules)
        collector.settle()
        await app.run()
    await asyncio.to_thread(tracing.stop)
