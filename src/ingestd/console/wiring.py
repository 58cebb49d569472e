"""Puts the console together from the daemon's parts."""

from datetime import datetime

from ingestd.batch.journal import Journal
from ingestd.batch.news import News
from ingestd.batch.runner import BatchRunner
from ingestd.collect.windows.manager import Windows
from ingestd.collect.windows.pacing import Pacing
from ingestd.collect.windows.store import WindowStore
from ingestd.console.feed import Feed
from ingestd.console.views import ConsoleViews, Status
from ingestd.dispatch.reconciler import Reconciler
from ingestd.intake.puller import Puller
from ingestd.intake.refusals import Refusals
from ingestd.ledger.explain import Explainer
from ingestd.ledger.parts import load_state_reader, success_explainer
from ingestd.ledger.unloaded import Whereabouts
from ingestd.model.clock import Clock
from ingestd.ops.access import Token, TokenFile
from ingestd.ops.history import History
from ingestd.ports import FileStore, Warehouse
from ingestd.rules.loading import RuleLoader
from ingestd.settings import Settings


def console(
    settings: Settings,
    clock: Clock,
    news: News,
    *,
    store: FileStore,
    warehouse: Warehouse,
    journal: Journal,
    runner: BatchRunner,
    rules: RuleLoader,
    windows: Windows,
    reconciler: Reconciler,
    pullers: tuple[Puller, ...],
    refusals: Refusals,
    pacing: Pacing,
    status: Status,
    replica: str,
) -> ConsoleViews:
    """The views of the console; their feed is the root task that keeps its memory."""
    feed = Feed(
        History(settings.http.remember),
        clock,
        news=news,
        journal=journal,
        runner=runner,
        windows=windows,
        reconciler=reconciler,
        pullers=pullers,
    )
    explainer = Explainer(
        store,
        warehouse,
        journal,
        clock,
        project=settings.project,
        refusals=refusals,
        windows=WindowStore(store, settings.batches),
        pacing=pacing,
        whereabouts=Whereabouts(store, settings),
        success=success_explainer(settings, store, journal, clock),
        load_state=load_state_reader(settings, warehouse, clock),
        replay_notes=settings.journal / "Replays",
    )
    started: datetime = clock.now()
    return ConsoleViews(
        settings, clock, feed, rules, windows, lambda: runner.active, journal, explainer, status, replica, started
    )


def console_token(settings: Settings) -> Token | None:
    """What the console asks for, if it asks for anything; a file is read again when it changes."""
    http = settings.http
    if http.token_file is not None:
        return TokenFile(http.token_file)
    secret = http.token
    return (lambda: secret.get_secret_value()) if secret is not None else None
