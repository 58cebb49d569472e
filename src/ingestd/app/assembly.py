"""The daemon, put together room by room."""

import tempfile
from pathlib import Path

from ingestd.app.daemon import App, Condition
from ingestd.app.rooms import House, build_batch, build_collect, build_dispatch, build_intake
from ingestd.console.wiring import console, console_token
from ingestd.gcp.connect import Clients
from ingestd.intake.deadletters import DeadLetters
from ingestd.intake.refusals import Refusals
from ingestd.intake.router import Router
from ingestd.ledger.announcing import InProcess
from ingestd.ledger.backfill import Backfill
from ingestd.ledger.name_index import NameIndex
from ingestd.ledger.name_keeper import NameKeeper
from ingestd.ledger.parts import known_files, wanted
from ingestd.ledger.sweep import LostFiles
from ingestd.model.clock import Clock
from ingestd.model.objects import ObjectRef
from ingestd.ops import process
from ingestd.ops.http import OpsServer
from ingestd.ports import Preparer, SparkSql
from ingestd.settings import Settings
from ingestd.spark.session.session import Spark


def assemble(
    settings: Settings,
    clients: Clients,
    clock: Clock,
    preparer: Preparer | None = None,
    spark: Spark | None = None,
    statements: SparkSql | None = None,
) -> App:
    house = House.of(settings, clients, clock)
    topic = settings.subscriptions.dead_letter_topic
    dead_letters = DeadLetters(clients.publisher, clients.store, clock, house.news, topic=topic, folder=settings.errors)
    refusals = Refusals(clients.store, settings.errors, house.news)
    batch = build_batch(house, preparer, statements)
    collect = build_collect(house, batch, refusals)
    dispatcher, reconciler = build_dispatch(house, batch, dead_letters)
    router, pullers = build_intake(house, collect, dispatcher, refusals, dead_letters)
    condition = Condition(settings, house.rules, pullers, batch.governor, collect.pacing, house.strangers, spark)
    views = console(
        settings,
        clock,
        house.news,
        store=clients.store,
        warehouse=clients.warehouse,
        journal=batch.journal,
        runner=batch.runner,
        rules=house.rules,
        windows=collect.windows,
        reconciler=reconciler,
        pullers=pullers,
        refusals=refusals,
        pacing=collect.pacing,
        status=condition.status,
        replica=house.owner,
    )
    names = NameIndex(clients.store, settings.journal, house.strangers)
    process.expose(settings.spark.scratch or Path(tempfile.gettempdir()))
    return App(
        settings=settings,
        clock=clock,
        news=house.news,
        rules=house.rules,
        condition=condition,
        pullers=pullers,
        router=router,
        reconciler=reconciler,
        windows=collect.windows,
        sweep=collect.sweep,
        replicas=collect.replicas,
        governor=batch.governor,
        pacing=collect.pacing,
        quota_use=collect.quota_use,
        runner=batch.runner,
        leftovers=batch.leftovers,
        success=collect.success,
        load_state=batch.load_state,
        lost=_lost_files(house, router),
        names=NameKeeper(clients.store, batch.journal, names, clock),
        spark=spark,
        console=views,
        ops=OpsServer(
            settings.http.host,
            settings.http.port,
            ready=condition.missing,
            status=condition.status,
            views=views,
            token=console_token(settings),
            protect_metrics=settings.http.protect_metrics,
        ),
    )


def _lost_files(house: House, router: Router) -> LostFiles | None:
    settings, clients, clock = house.settings, house.clients, house.clock
    if not settings.sweep.prefixes:
        return None
    known = known_files(settings, clients.store, clients.warehouse, clock, house.owner)
    return LostFiles(
        clients.store,
        Backfill(clients.store, known, wanted(settings, lambda name: house.rules.book.index.route(name))),
        InProcess(router.handle, clock.now),
        clock,
        notes=settings.journal / "sweep",
        replica=house.owner,
        prefixes=tuple(ObjectRef.parse(one) for one in settings.sweep.prefixes),
        every=settings.sweep.every,
        older_than=settings.sweep.older_than,
        max_files=settings.sweep.max_files,
    )
