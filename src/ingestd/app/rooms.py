"""The daemon's rooms, each put together from those below it: what a part needs it is given when it is made."""

import os
import secrets
import socket
from dataclasses import dataclass

from ingestd.batch.destinations import Destinations
from ingestd.batch.journal import Journal
from ingestd.batch.keyring import Keyring
from ingestd.batch.leftovers import Leftovers
from ingestd.batch.news import News
from ingestd.batch.parts import Parts
from ingestd.batch.post_actions import PostActions
from ingestd.batch.register import Register
from ingestd.batch.rule_metrics import expect
from ingestd.batch.runner import BatchRunner
from ingestd.batch.tasks import DeferredTasks
from ingestd.batch.trails import Trails
from ingestd.batch.underway import UnderWay
from ingestd.collect.alone import Alone
from ingestd.collect.success.arrivals import SuccessArrivals
from ingestd.collect.success.background import Background
from ingestd.collect.success.conventions import Conventions
from ingestd.collect.success.interventions import Interventions
from ingestd.collect.success.lookup import ConfigLookup
from ingestd.collect.success.ordering import Ordering
from ingestd.collect.success.planning import Resolver
from ingestd.collect.success.queue import Queues
from ingestd.collect.ways import Ways
from ingestd.collect.windows.groups import Groups
from ingestd.collect.windows.manager import Windows
from ingestd.collect.windows.pacing import Pacing
from ingestd.collect.windows.quota_use import QuotaUse
from ingestd.collect.windows.replicas import Replicas
from ingestd.collect.windows.store import WindowStore
from ingestd.collect.windows.sweep import WindowSweep
from ingestd.collect.windows.tender import Tender, WindowLimits
from ingestd.dispatch.dispatcher import Dispatcher
from ingestd.dispatch.reconciler import Reconciler
from ingestd.dispatch.routes import RouteBook
from ingestd.gcp.connect import Clients
from ingestd.intake.deadletters import DeadLetters
from ingestd.intake.puller import Puller, PullLimits
from ingestd.intake.refusals import Refusals
from ingestd.intake.router import Router
from ingestd.ledger.parts import load_state_writer
from ingestd.ledger.writer import LoadStateWriter
from ingestd.model.clock import Clock
from ingestd.ops.strangers import Strangers
from ingestd.ports import Preparer, SparkSql
from ingestd.rules.actions import Action
from ingestd.rules.bucket import rule_source
from ingestd.rules.loading import RuleLoader
from ingestd.settings import Settings
from ingestd.warehouse.governor import QuotaGovernor, QuotaLimits
from ingestd.warehouse.jobs import Completions, JobRunner
from ingestd.warehouse.slots import JobSlots


@dataclass(frozen=True, slots=True)
class House:
    """What every room has in common."""

    settings: Settings
    clients: Clients
    clock: Clock
    owner: str  # this replica's name
    news: News
    strangers: Strangers
    rules: RuleLoader
    routes: RouteBook  # of the settings
    conventions: Conventions
    lookup: ConfigLookup
    resolver: Resolver

    @classmethod
    def of(cls, settings: Settings, clients: Clients, clock: Clock) -> "House":
        conventions = Conventions(settings.success.effective())
        lookup = ConfigLookup(clients.store, clock)
        return cls(
            settings=settings,
            clients=clients,
            clock=clock,
            owner=settings.replica or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}",
            news=News(),
            strangers=Strangers(clock),
            rules=RuleLoader(
                rule_source(settings.rules.url, clients.store, optional=settings.rules_optional),
                clock,
                settings.rules.unknown_keys,
                told=lambda book: expect(rule.name for rule in book.rules),
            ),
            routes=RouteBook.from_settings(settings.routes),
            conventions=conventions,
            lookup=lookup,
            resolver=Resolver(clients.store, conventions, lookup, project=settings.project),
        )

    def actions_in_force(self, name: str, content: str) -> tuple[Action, ...] | None:
        found = self.rules.book.actions(name, content)
        return self.routes.actions(name) if found is None else found


@dataclass(frozen=True, slots=True)
class BatchRoom:
    journal: Journal
    tasks: DeferredTasks
    completions: Completions
    governor: QuotaGovernor
    register: Register
    runner: BatchRunner
    load_state: LoadStateWriter | None
    leftovers: Leftovers | None


def build_batch(house: House, preparer: Preparer | None, statements: SparkSql | None) -> BatchRoom:
    settings, clients, clock = house.settings, house.clients, house.clock
    load_state = load_state_writer(settings, clients.store, clients.warehouse, clock, house.owner, house.strangers)
    journal = Journal(
        clients.store,
        settings.journal,
        clock,
        owner=house.owner,
        lease=settings.recovery.lease,
        witness=load_state,
        strangers=house.strangers,
    )
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
    actions = PostActions(
        store=clients.store,
        warehouse=clients.warehouse,
        publisher=clients.publisher,
        http=clients.http,
        jobs=jobs,
        journal=journal,
        settings=settings,
        keyring=Keyring(tasks, house.actions_in_force),
        spark=statements,
    )
    parts = Parts(
        store=clients.store,
        warehouse=clients.warehouse,
        journal=journal,
        tasks=tasks,
        jobs=jobs,
        governor=governor,
        register=register,
        underway=UnderWay(journal, clock, project=settings.project),
        trails=Trails(clients.store, journal),
        destinations=Destinations(clients.warehouse, clock),
        actions=actions,
        clock=clock,
        settings=settings,
        preparer=preparer,
        spark_sql=statements,
        directories=house.resolver,
    )
    leftovers = None
    if preparer is not None:
        every = settings.recovery.sweep_every * 20  # whoever prepares cleans up: this is for those who died
        leftovers = Leftovers(clients.store, settings.staging, journal, clock, every=every)
    runner = BatchRunner(parts, house.news)
    return BatchRoom(journal, tasks, completions, governor, register, runner, load_state, leftovers)


@dataclass(frozen=True, slots=True)
class CollectRoom:
    ways: Ways
    windows: Windows
    sweep: WindowSweep
    replicas: Replicas
    pacing: Pacing
    quota_use: QuotaUse
    success: SuccessArrivals | None


def build_collect(house: House, batch: BatchRoom, refusals: Refusals) -> CollectRoom:
    settings, clock, store, runner = house.settings, house.clock, house.clients.store, batch.runner
    pacing = Pacing(
        store, settings.journal / "pace", batch.governor, clock, replica=house.owner, strangers=house.strangers
    )
    window_store = WindowStore(store, settings.batches, house.strangers)
    tender = Tender(
        store=window_store,
        journal=batch.journal,
        register=batch.register,
        runner=runner,
        clock=clock,
        project=settings.project,
        replica=house.owner,
        limits=WindowLimits(
            flush_files=settings.windows.flush_files,
            flush_after=settings.windows.flush_after,
            grace=settings.windows.grace,
            late_patience=settings.windows.late_patience,
            lease=settings.recovery.lease,
        ),
    )
    windows = Windows(tender, refusals, pacing, house.news)
    patience, lease = settings.windows.late_patience, settings.recovery.lease
    groups = Groups(window_store, batch.journal, runner, clock, house.news, patience=patience)
    replicas = Replicas(store, settings.journal / "replicas", clock, name=house.owner, lease=lease)
    every = settings.recovery.sweep_every
    alone = Alone(
        runner=runner, refusals=refusals, project=settings.project, clock=clock, remember=settings.intake.remember
    )
    success = _success(house, batch) if house.conventions else None
    return CollectRoom(
        ways=Ways(alone, windows, success),
        windows=windows,
        sweep=WindowSweep(window_store, windows, groups, replicas, clock, every=every, lease=lease),
        replicas=replicas,
        pacing=pacing,
        quota_use=QuotaUse(store, settings.journal / "quota", batch.governor, replicas, clock, house.strangers),
        success=success,
    )


def _success(house: House, batch: BatchRoom) -> SuccessArrivals:
    settings, clients, clock = house.settings, house.clients, house.clock
    queues = Queues(clients.store, settings.journal / "ordered", house.strangers)
    background = Background()
    ordering = Ordering(
        queues=queues,
        store=clients.store,
        journal=batch.journal,
        runner=batch.runner,
        background=background,
        news=house.news,
        conventions=house.conventions,
        clock=clock,
        project=settings.project,
    )
    project = settings.project
    return SuccessArrivals(
        store=clients.store,
        journal=batch.journal,
        runner=batch.runner,
        conventions=house.conventions,
        lookup=house.lookup,
        resolver=house.resolver,
        ordering=ordering,
        interventions=Interventions(
            queues, batch.journal, clients.store, clients.warehouse, clock, project=project, staging=settings.staging
        ),
        background=background,
        clock=clock,
        project=project,
        at_once=2 * settings.jobs.max_running,
        remember=settings.intake.remember,
        sweep_every=settings.recovery.sweep_every,
    )


def build_dispatch(house: House, batch: BatchRoom, dead_letters: DeadLetters) -> tuple[Dispatcher, Reconciler]:
    settings, clock = house.settings, house.clock
    dispatcher = Dispatcher(
        subscription=settings.subscriptions.completions,
        warehouse=house.clients.warehouse,
        journal=batch.journal,
        tasks=batch.tasks,
        runner=batch.runner,
        completions=batch.completions,
        routes=lambda: house.routes.extended(house.rules.book.routes),
        dead_letters=dead_letters,
        clock=clock,
    )
    return dispatcher, Reconciler(batch.journal, batch.tasks, batch.runner, dispatcher, clock, settings)


def build_intake(
    house: House, collect: CollectRoom, dispatcher: Dispatcher, refusals: Refusals, dead_letters: DeadLetters
) -> tuple[Router, tuple[Puller, ...]]:
    settings, clients, clock = house.settings, house.clients, house.clock
    router = Router(
        subscription=settings.subscriptions.notifications,
        route=lambda name: house.rules.book.index.route(name),
        collect=collect.ways,
        by_convention=collect.success.wants if collect.success else None,
        dead_letters=dead_letters,
        refusals=refusals,
    )
    limits = PullLimits(
        concurrent_pulls=settings.intake.concurrent_pulls,
        messages_per_pull=settings.intake.messages_per_pull,
        max_messages=settings.intake.max_messages,
        max_bytes=settings.intake.max_bytes,
        lease=settings.intake.ack_deadline,
        silence=settings.intake.silence,
    )
    notifications = clients.subscription(settings.subscriptions.notifications)
    completions = clients.subscription(settings.subscriptions.completions)
    return router, (
        Puller(notifications, router.handle, clock, limits, on_full=collect.windows.hurry),
        Puller(completions, dispatcher.handle, clock, limits),
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
