"""`ingestd explain gs://bucket/object`: which rule takes it, what would happen, and what did happen.

Read-only: it asks the same code that routes files, then the journal, then BigQuery; and the load-state table for what
the journal has no more.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

from ingestd.batch.journal import Entry, Journal
from ingestd.batch.loading import new_record
from ingestd.batch.record import Record
from ingestd.intake.refusals import Refusals
from ingestd.ledger.explain_success import Directory, SuccessExplainer
from ingestd.ledger.reading import BatchState, LoadStateReader
from ingestd.ledger.replay import ReplayNote, replays
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput, IngestError
from ingestd.model.objects import EPOCH, FileVersion, Generation, ObjectInfo, ObjectRef
from ingestd.model.tables import TableName
from ingestd.ports import ObjectStore, Warehouse
from ingestd.rules.destination import DestinationError, expand_destination
from ingestd.rules.matching import Ambiguous, Disabled, Match, Routing
from ingestd.rules.rule import Rule
from ingestd.windows.model import digest, window_of
from ingestd.windows.pacing import Pacing
from ingestd.windows.store import WindowStore

_LOOKED_BACK = timedelta(days=400)  # for an object that is gone; its batch may be older, but costs grow with the days
_BEFORE = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Incident:
    """One generation of the object, and how far it got."""

    generation: Generation
    phase: str
    event_id: str
    record_url: str
    job_id: str = ""
    job: str = ""
    rows: int | None = None
    error: str = ""
    retry_at: datetime | None = None
    owner: str = ""
    updated: datetime | None = None
    destination: str = ""
    remembered: bool = False  # by the load-state table alone: the journal has no record any more
    replays: tuple[ReplayNote, ...] = ()

    def to_json(self) -> dict[str, Any]:
        document = {name: getattr(self, name) for name in self.__slots__}
        return {**document, "replays": [note.to_json() for note in self.replays]}


@dataclass(slots=True)
class Explanation:
    ref: ObjectRef
    found: ObjectInfo | None
    verdict: str
    rule: Rule | None = None
    plan: list[str] = field(default_factory=list)
    history: list[Incident] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what could not be asked, and why

    def to_json(self) -> dict[str, Any]:
        found = self.found
        return {
            "object": self.ref.url,
            "generation": found.generation if found else None,
            "size": found.size if found else None,
            "created": found.created if found else None,
            "verdict": self.verdict,
            "rule": self.rule.name if self.rule else None,
            "plan": self.plan,
            "history": [one.to_json() for one in self.history],
            "notes": self.notes,
        }


class Explainer:
    def __init__(
        self,
        store: ObjectStore,
        warehouse: Warehouse,
        journal: Journal,
        clock: Clock,
        *,
        project: str,
        refusals: Refusals,
        windows: WindowStore,
        pacing: Pacing,
        success: SuccessExplainer | None = None,
        load_state: LoadStateReader | None = None,
        replay_notes: ObjectRef | None = None,
    ) -> None:
        self._store = store
        self._warehouse = warehouse
        self._journal = journal
        self._clock = clock
        self._project = project
        self._refusals = refusals
        self._windows = windows
        self._pacing = pacing
        self._success = success
        self._load_state = load_state
        self._replay_notes = replay_notes

    async def explain(self, ref: ObjectRef, routing: Routing) -> Explanation:
        found = await self._store.stat(ref)
        explanation = Explanation(ref, found, _verdict(routing))
        if isinstance(routing, Match):
            explanation.rule = routing.rule
            await self._explain_match(explanation, routing.rule)
        elif self._success is not None and (directory := await self._success.explain(ref)) is not None:
            await self._explain_directory(explanation, directory)
        if found is not None:
            await self._add_refusal(explanation, found)
        await self._remember(explanation)
        return explanation

    async def _explain_match(self, explanation: Explanation, rule: Rule) -> None:
        ref, found = explanation.ref, explanation.found
        file = FileVersion(
            ref,
            found.generation if found else Generation(1),
            found.size if found else 0,
            found.created if found else EPOCH,
        )
        try:
            record = self._record(rule, file)
        except (DestinationError, BadInput) as error:
            explanation.verdict = f"refused: {error}"
            return
        explanation.plan = _plan(record, found)
        explanation.history = await self._history(record, ref)
        if found is not None:
            explanation.plan.append(await self._window(rule, file, record))

    async def _explain_directory(self, explanation: Explanation, directory: Directory) -> None:
        explanation.verdict, explanation.plan = directory.verdict, directory.plan
        record, place = directory.record, directory.place
        if record is None or place is None or record.success is None:
            return
        mine = [file.generation for file in record.known_files if file.ref == explanation.ref]
        if record.success.url == explanation.ref.url:
            mine = [record.success.generation]
        explanation.history = [await self._incident(place, record, generation) for generation in mine]
        if not mine and record.phase.final:
            explanation.plan.append("the directory was loaded without it: upload the success file again")

    async def _remember(self, explanation: Explanation) -> None:
        """What the load-state table knows beyond the journal: batches whose record has expired, or of other rules."""
        if self._load_state is None:
            return
        found = explanation.found
        since = (found.created if found else self._clock.now() - _LOOKED_BACK) - _BEFORE
        try:
            remembered = await self._load_state.of_file(explanation.ref, since=since)
        except IngestError as error:
            explanation.notes.append(f"the load state cannot be read: {error}")
            return
        known = {one.event_id for one in explanation.history}
        for generation, batch in remembered:
            if batch.event_id not in known:
                explanation.history.append(await self._remembered(generation, batch))
        explanation.history.sort(key=lambda incident: incident.generation)

    async def _remembered(self, generation: Generation, batch: BatchState) -> Incident:
        return Incident(
            generation=generation,
            phase=batch.state,
            event_id=batch.event_id,
            record_url="",
            job_id=batch.job_ids[-1] if batch.job_ids else "",
            job="",
            rows=batch.rows_loaded,
            error=batch.error,
            updated=batch.updated_at,
            destination=batch.destination,
            remembered=True,
            replays=await self._replays(batch.event_id),
        )

    async def _replays(self, event_id: str) -> tuple[ReplayNote, ...]:
        if self._replay_notes is None:
            return ()
        return tuple(await replays(self._store, self._replay_notes, event_id))

    def _record(self, rule: Rule, file: FileVersion) -> Record:
        values = {"EventID": file.event_id, "ProjectID": self._project}
        destination = expand_destination(rule, file, values)
        return new_record(rule, file, destination, project=self._project, clock=self._clock)

    async def _history(self, record: Record, ref: ObjectRef) -> list[Incident]:
        """What the journal of that table knows of the object, in any of its generations."""
        incidents: dict[tuple[str, Generation], Incident] = {}
        windowed = "Batch" in record.rule
        for folder in ("Running", "Done"):
            async for entry in self._journal.entries(f"{folder}/{self._journal.table_folder(record)}/"):
                # A window's entry names its first file only; its record has them all.
                if windowed or unquote(entry.source).startswith(f"{ref.bucket}/{ref.name}#"):
                    # A batch that has just ended may be in both places for a moment: `Done/` counts.
                    incidents |= {(one.event_id, one.generation): one for one in await self._incidents(entry, ref)}
        return sorted(incidents.values(), key=lambda incident: incident.generation)

    async def _incidents(self, entry: Entry, ref: ObjectRef) -> list[Incident]:
        held = await self._journal.read(entry.ref)
        if held is None:
            return []
        mine = [file.generation for file in held.record.known_files if file.ref == ref]
        return [await self._incident(entry.ref, held.record, generation) for generation in mine]

    async def _incident(self, place: ObjectRef, record: Record, generation: Generation) -> Incident:
        job = await self._warehouse.get_job(record.load_job()) if record.location else None
        return Incident(
            generation=generation,
            phase=record.phase,
            event_id=record.event_id,
            record_url=place.url,
            job_id=record.load_job().job_id,
            job=("failed" if job.failed else job.state.lower()) if job else "not submitted, or not known any more",
            rows=record.rows,
            error=record.error,
            retry_at=record.retry_at,
            owner=record.owner,
            updated=record.updated,
            destination=_target(record) if record.load else record.dest,
            replays=await self._replays(record.event_id),
        )

    async def _window(self, rule: Rule, file: FileVersion, record: Record) -> str:
        """Whether the file waits in an open window, and for how long."""
        await self._pacing.refresh()
        reference = record.load["destinationTable"]
        table = TableName(reference["projectId"], reference["datasetId"], reference["tableId"].partition("$")[0])
        seconds = self._pacing.seconds(rule, table, file.event_time.timestamp())
        if seconds is None:
            return "loads on its own"
        window = window_of(rule, file, _target(record), seconds)
        while await self._windows.is_closed(window.name):
            window = window.next()
        lock = await self._windows.read_lock(window.name)
        if lock is None:
            return f"window {window.name} (due {window.due:%Y-%m-%d %H:%M:%S} UTC) is not open"
        head, _ = lock
        waiting = any(
            arrival.digest == digest(file.key)
            for shard in await self._windows.shards(window.name)
            for arrival in shard.arrivals
        )
        state = "waits in it" if waiting else "is not in it, or not durable yet"
        return f"window {window.name} is open until {head.due:%H:%M:%S} UTC (owner {head.owner}); the file {state}"

    async def _add_refusal(self, explanation: Explanation, found: ObjectInfo) -> None:
        place = self._refusals.place(FileVersion(found.ref, found.generation))
        if await self._store.stat(place) is not None:
            explanation.plan.append(f"it was refused when it arrived: see {place.url}")


def _target(record: Record) -> str:
    """The destination as windows are keyed: the table with its partition."""
    _, dollar, partition = record.load["destinationTable"]["tableId"].partition("$")
    return f"{record.dest}{dollar}{partition}"


def _verdict(routing: Routing) -> str:
    if isinstance(routing, Match):
        return f"taken by rule {routing.rule.name}"
    if isinstance(routing, Disabled):
        return f"its rule {routing.rule.name} is disabled"
    if isinstance(routing, Ambiguous):
        return str(routing)
    return "no rule matches"


def _plan(record: Record, found: ObjectInfo | None) -> list[str]:
    load = record.load
    mode = "deferred until the job's completion is seen" if record.asynchronous else "awaited"
    steps = [
        f"load as {load['sourceFormat']} into {record.dest} ({load['writeDisposition']}), {mode}",
        f"job {record.load_job().job_id}" if found else "job id follows from the object's generation",
    ]
    for key in ("OnSuccess", "OnFailure"):
        actions = [str(action.get("Action")) for action in record.rule.get(key) or ()]
        if actions:
            steps.append(f"{key}: {', then '.join(actions)}")
    return steps
