"""Puts the console together from the daemon's parts."""

from datetime import datetime

from ingestd.batch.journal import Journal
from ingestd.batch.runner import BatchRunner
from ingestd.console.feed import Feed
from ingestd.console.views import ConsoleViews, Status
from ingestd.dispatch.reconciler import Reconciler
from ingestd.intake.deadletters import DeadLetters
from ingestd.intake.puller import Puller
from ingestd.intake.refusals import Refusals
from ingestd.ledger.explain import Explainer
from ingestd.ledger.parts import success_explainer
from ingestd.ledger.reading import LoadStateReader
from ingestd.ledger.unloaded import Whereabouts
from ingestd.model.clock import Clock
from ingestd.model.tables import parse_table
from ingestd.ops.access import Token, TokenFile
from ingestd.ops.history import History
from ingestd.ports import FileStore, Warehouse
from ingestd.rules.loading import RuleLoader
from ingestd.settings import Settings
from ingestd.windows.manager import Windows
from ingestd.windows.pacing import Pacing
from ingestd.windows.store import WindowStore


def console(
    settings: Settings,
    clock: Clock,
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
    dead_letters: DeadLetters,
    pacing: Pacing,
    status: Status,
    replica: str,
) -> ConsoleViews:
    """The views of the console; their feed is the root task that keeps its memory."""
    feed = Feed(
        History(settings.http.remember),
        clock,
        journal=journal,
        runner=runner,
        windows=windows,
        reconciler=reconciler,
        pullers=pullers,
    )
    refusals.watchers.append(feed.refused)
    dead_letters.watchers.append(feed.dead_letter)
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
        load_state=_load_state(settings, warehouse, clock),
        replay_notes=settings.journal / "Replays",
    )
    started: datetime = clock.now()
    return ConsoleViews(
        settings, clock, feed, rules, windows, lambda: runner.active, journal, explainer, status, replica, started
    )


def _load_state(settings: Settings, warehouse: Warehouse, clock: Clock) -> LoadStateReader | None:
    """What was loaded longer ago than the journal keeps its records: asked only when somebody asks for a file."""
    if not settings.load_state.enabled:
        return None
    return LoadStateReader(warehouse, parse_table(settings.load_state.table), clock)


def console_token(settings: Settings) -> Token | None:
    """What the console asks for, if it asks for anything; a file is read again when it changes."""
    http = settings.http
    if http.token_file is not None:
        return TokenFile(http.token_file)
    secret = http.token
    return (lambda: secret.get_secret_value()) if secret is not None else None
