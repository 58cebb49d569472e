"""The ledger's readers, put together from settings: for the daemon and for commands alike."""

from collections.abc import Callable

from ingestd.batch.journal import Journal
from ingestd.batch.recovery import JobLimits
from ingestd.batch.register import Register
from ingestd.collect.success.conventions import Conventions, Meaning
from ingestd.collect.success.queue import Queues
from ingestd.collect.windows.pacing import Pacing
from ingestd.collect.windows.store import WindowStore
from ingestd.intake.refusals import Refusals
from ingestd.ledger.backfill import Select, by_rules
from ingestd.ledger.explain import Explainer
from ingestd.ledger.explain_success import SuccessExplainer
from ingestd.ledger.known import KnownFiles
from ingestd.ledger.overview import Overseer
from ingestd.ledger.reading import LoadStateReader
from ingestd.ledger.table import LoadStateTable
from ingestd.ledger.unloaded import Whereabouts
from ingestd.ledger.writer import LoadStateWriter
from ingestd.model.clock import Clock
from ingestd.model.objects import ObjectRef
from ingestd.model.tables import parse_table
from ingestd.ops.strangers import Strangers
from ingestd.ports import FileStore, ObjectStore, Warehouse
from ingestd.rules.matching import Routing
from ingestd.settings import Settings


def load_state_reader(settings: Settings, warehouse: Warehouse, clock: Clock) -> LoadStateReader | None:
    """None when the load state is not kept."""
    if not settings.load_state.enabled:
        return None
    return LoadStateReader(warehouse, parse_table(settings.load_state.table), clock)


def load_state_writer(
    settings: Settings,
    store: ObjectStore,
    warehouse: Warehouse,
    clock: Clock,
    owner: str,
    strangers: Strangers | None = None,
) -> LoadStateWriter | None:
    """None when the load state is not kept."""
    if not settings.load_state.enabled:
        return None
    name = parse_table(settings.load_state.table)
    return LoadStateWriter(
        LoadStateTable(warehouse, name, location=settings.jobs.location),
        store,
        clock,
        put_away=settings.journal / "LoadState",
        replica=owner,
        flush_every=settings.load_state.flush_every,
        strangers=strangers,
    )


def journal_of(settings: Settings, store: ObjectStore, clock: Clock, owner: str) -> Journal:
    return Journal(store, settings.journal, clock, owner=owner, lease=settings.recovery.lease)


def known_files(settings: Settings, store: ObjectStore, warehouse: Warehouse, clock: Clock, owner: str) -> KnownFiles:
    return KnownFiles(
        store,
        journal_of(settings, store, clock, owner),
        Register(store, settings.register),
        WindowStore(store, settings.batches),
        Queues(store, settings.journal / "ordered"),
        Pacing(store, settings.journal / "pace", None, clock),
        Refusals(store, settings.errors),
        clock,
        project=settings.project,
        load_state=load_state_reader(settings, warehouse, clock),
    )


def wanted(settings: Settings, route: Callable[[str], Routing]) -> Select:
    """What the daemon would take: files that a rule wants, and success files where the convention is on."""
    conventions = Conventions(settings.success.effective())

    def succeeded(ref: ObjectRef) -> bool:
        sign = conventions.sign(ref.bucket, ref.name)
        return sign is not None and sign.meaning is Meaning.SUCCESS

    return by_rules(route, succeeded)


def success_explainer(settings: Settings, store: ObjectStore, journal: Journal, clock: Clock) -> SuccessExplainer:
    conventions, queues = Conventions(settings.success.effective()), Queues(store, settings.journal / "ordered")
    limits = JobLimits(settings.jobs.max_files, settings.jobs.max_bytes)
    return SuccessExplainer(store, journal, conventions, queues, clock, project=settings.project, limits=limits)


def explainer(
    settings: Settings, store: FileStore, warehouse: Warehouse, clock: Clock, *, load_state: bool = True
) -> Explainer:
    """Asks everything that may know of a file; the load state costs a query."""
    journal = journal_of(settings, store, clock, "explain")
    return Explainer(
        store,
        warehouse,
        journal,
        clock,
        project=settings.project,
        refusals=Refusals(store, settings.errors),
        windows=WindowStore(store, settings.batches),
        pacing=Pacing(store, settings.journal / "pace", None, clock),
        whereabouts=Whereabouts(store, settings),
        success=success_explainer(settings, store, journal, clock),
        load_state=load_state_reader(settings, warehouse, clock) if load_state else None,
        replay_notes=settings.journal / "Replays",
    )


def overseer(settings: Settings, store: ObjectStore, warehouse: Warehouse, clock: Clock) -> Overseer:
    return Overseer(
        journal_of(settings, store, clock, "status"),
        WindowStore(store, settings.batches),
        load_state_reader(settings, warehouse, clock),
        clock,
    )
