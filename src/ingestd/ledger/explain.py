"""`ingestd explain gs://bucket/object`: which rule takes it, what would happen, and what did happen.

Read-only: it asks the same code that routes files, then the journal, then BigQuery; and the load-state table for what
the journal has no more.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ingestd.batch.destinations import Destinations, missing_dataset
from ingestd.batch.journal import Journal
from ingestd.batch.landing import destination
from ingestd.batch.load_config import new_record
from ingestd.batch.record import Record
from ingestd.collect.windows.model import window_of
from ingestd.collect.windows.pacing import Pacing
from ingestd.collect.windows.store import WindowStore
from ingestd.intake.refusals import Refusals
from ingestd.ledger.explain_success import Directory, SuccessExplainer
from ingestd.ledger.history import FileRecords, Remembered
from ingestd.ledger.reading import BatchState, LoadStateReader
from ingestd.ledger.replay import ReplayNote, replays
from ingestd.ledger.unloaded import Unloaded, Whereabouts, live
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput, IngestError, NotFound, Transient, UnreadableObject
from ingestd.model.objects import EPOCH, FileVersion, Generation, ObjectInfo, ObjectRef, digest
from ingestd.model.tables import TableName
from ingestd.ports import FileStore, Warehouse
from ingestd.rules.destination import DestinationError, expand_destination
from ingestd.rules.matching import Ambiguous, Disabled, Match, Routing
from ingestd.rules.rule import Rule

_LOOKED_BACK = timedelta(days=400)  # for an object that is gone; its batch may be older, but costs grow with the days
_KEPT = timedelta(days=31)  # for one that is there: about as long as the journal knows of those before it
_BEFORE = timedelta(days=1)
_FEW = 5


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
    fate: str = ""  # the file's own: loaded, pending, or why not; empty when only its batch is known
    unloaded: Unloaded | None = None  # what became of it, if its batch did not load it
    files: int = 0  # of its batch: `phase` and `rows` are about all of them
    files_loaded: int = 0
    files_set_aside: int = 0
    bad_rows: tuple[str, ...] = ()  # where rows are that the batch left out of files it loaded

    def to_json(self) -> dict[str, Any]:
        document = {name: getattr(self, name) for name in self.__slots__}
        unloaded = self.unloaded.to_json() if self.unloaded else None
        return {**document, "replays": [note.to_json() for note in self.replays], "unloaded": unloaded}


@dataclass(slots=True)
class Explanation:
    ref: ObjectRef
    found: ObjectInfo | None
    verdict: str
    rule: Rule | None = None
    plan: list[str] = field(default_factory=list)
    history: list[Incident] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what could not be asked, and why
    directory: Directory | None = None  # of a success file

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
            **({"directory": self.directory.to_json()} if self.directory else {}),
        }


class Explainer:
    def __init__(
        self,
        store: FileStore,
        warehouse: Warehouse,
        journal: Journal,
        clock: Clock,
        *,
        project: str,
        refusals: Refusals,
        windows: WindowStore,
        pacing: Pacing,
        whereabouts: Whereabouts,
        success: SuccessExplainer | None = None,
        load_state: LoadStateReader | None = None,
        replay_notes: ObjectRef | None = None,
    ) -> None:
        self._store = store
        self._warehouse = warehouse
        self._journal = journal
        self._records = FileRecords(journal, store, clock)
        self._clock = clock
        self._project = project
        self._refusals = refusals
        self._windows = windows
        self._pacing = pacing
        self._whereabouts = whereabouts
        self._success = success
        self._load_state = load_state
        self._replay_notes = replay_notes
        self._destinations = Destinations(warehouse, clock)

    async def explain(self, ref: ObjectRef, routing: Routing) -> Explanation:
        found = await live(self._store, ref)
        explanation = Explanation(ref, found, _verdict(routing))
        remembered = await self._remembers(explanation)
        meant = self._success is not None and self._success.wants(ref)
        if isinstance(routing, Match) and not meant:
            explanation.rule = routing.rule
            await self._explain_match(explanation, routing.rule, remembered)
        elif self._success is not None:
            try:
                directory = await self._success.explain(ref)
            except UnreadableObject as error:
                directory = None
                explanation.verdict = f"part of a directory whose batch cannot be read: {error}"
            if directory is not None:
                await self._explain_directory(explanation, directory)
        if found is not None:
            await self._add_refusal(explanation, found)
        await self._add_remembered(explanation, remembered or ())
        return explanation

    async def _explain_match(self, explanation: Explanation, rule: Rule, remembered: Remembered | None) -> None:
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
        explanation.history = await self._history(record, ref, remembered)
        place = f"/{self._journal.table_folder(record)}/"
        met = [one for one in self._journal.strangers.recent() if place in one.url]
        explanation.notes += [f"left alone, and may be about it: {one.reason}" for one in met[-_FEW:]]
        if found is not None and all(one.generation != found.generation for one in explanation.history):
            try:
                explanation.plan.append(await self._window(rule, file, record))
            except (UnreadableObject, Transient) as error:
                explanation.notes.append(f"whether it waits in a window cannot be told: {error}")

    async def _explain_directory(self, explanation: Explanation, directory: Directory) -> None:
        explanation.verdict, explanation.plan = directory.verdict, directory.plan
        explanation.directory = directory if directory.success else None
        if directory.planned is not None and directory.record is None:
            await self._look_at_table(directory, directory.planned)
        record, place = directory.record, directory.place
        if record is None or place is None or record.success is None:
            return
        explanation.history = await self._incidents_of(place, record, explanation.ref)
        if record.success.url == explanation.ref.url:
            explanation.history = [await self._incident(place, record, record.success.generation)]
        elif record.unresolved and explanation.found is not None:
            # Nobody has looked at the directory yet, or ever will: the story of its batch is that of its files.
            explanation.history = [await self._incident(place, record, explanation.found.generation)]
        if not explanation.history and record.phase.final:
            explanation.plan.append("the directory was loaded without it: upload the success file again")

    async def _look_at_table(self, directory: Directory, planned: Record) -> None:
        """Whether the batch would have to wait for its table: the last thing that is looked at before a job."""
        try:
            missing = await self._missing(planned)
        except NotFound as error:
            missing = str(error)
        except IngestError as error:
            directory.plan.append(f"whether its table is there cannot be told: {error}")
            return
        if missing:
            directory.why_not = missing
            directory.plan.append(f"it would wait: {missing}")

    async def _missing(self, planned: Record) -> str:
        """What has to be made first; also raised."""
        table, mark = destination(planned), planned.success
        if mark is None or not mark.sql or mark.spark:
            await self._destinations.prepare(planned)
            return ""
        found = await self._warehouse.dataset_location(table.project or "", table.dataset)
        return "" if found else missing_dataset(planned, table)  # the table is the query's to make

    async def _remembers(self, explanation: Explanation) -> Remembered | None:
        """What the load-state table knows of the object; None when it is not kept, or cannot be read."""
        if self._load_state is None:
            return None
        now, found = self._clock.now(), explanation.found
        since = min(found.created, now - _KEPT) if found else now - _LOOKED_BACK
        try:
            return await self._load_state.of_file(explanation.ref, since=since - _BEFORE)
        except IngestError as error:
            explanation.notes.append(f"the load state cannot be read: {error}")
            return None

    async def _add_remembered(self, explanation: Explanation, remembered: Remembered) -> None:
        """Batches that the journal does not have: their record has expired, or they are of other rules."""
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
            files=batch.files,
            files_loaded=batch.files_loaded,
            files_set_aside=batch.files_set_aside,
        )

    async def _replays(self, event_id: str) -> tuple[ReplayNote, ...]:
        if self._replay_notes is None:
            return ()
        return tuple(await replays(self._store, self._replay_notes, event_id))

    def _record(self, rule: Rule, file: FileVersion) -> Record:
        values = {"EventID": file.event_id, "ProjectID": self._project}
        destination = expand_destination(rule, file, values)
        return new_record(rule, file, destination, project=self._project, clock=self._clock)

    async def _history(self, record: Record, ref: ObjectRef, remembered: Remembered | None) -> list[Incident]:
        """What the journal of that table knows of the object, in any of its generations."""
        # A batch that has just ended may be in both places for a moment: `Done/` comes last, and counts.
        found = {one.event_id: (place, one) for place, one in await self._records.about(ref, record, remembered)}
        incidents = [one for place, known in found.values() for one in await self._incidents_of(place, known, ref)]
        return sorted(incidents, key=lambda incident: incident.generation)

    async def _incidents_of(self, place: ObjectRef, record: Record, ref: ObjectRef) -> list[Incident]:
        mine = [(index, file) for index, file in enumerate(record.known_files) if file.ref == ref]
        return [await self._incident(place, record, file.generation, index) for index, file in mine]

    async def _incident(
        self, place: ObjectRef, record: Record, generation: Generation, index: int | None = None
    ) -> Incident:
        """The story of one file of the batch; of its success file, without an index."""
        job = await self._warehouse.get_job(record.load_job()) if record.placement.location else None
        return Incident(
            generation=generation,
            phase=record.phase,
            event_id=record.event_id,
            record_url=place.url,
            job_id="" if record.unresolved else record.load_job().job_id,
            job=("failed" if job.failed else job.state.lower()) if job else "not submitted, or not known any more",
            rows=record.rows,
            error=record.error,
            retry_at=record.wait.until,
            owner=record.stamp.owner,
            updated=record.stamp.updated,
            destination=_target(record) if record.load else record.dest,
            replays=await self._replays(record.event_id),
            fate=record.progress.fate_of(index) if index is not None else "",
            unloaded=await self._whereabouts.of(record, index) if index is not None else None,
            files=len(record.files),
            files_loaded=len(record.progress.loaded),
            files_set_aside=len(record.progress.aside),
            bad_rows=self._whereabouts.bad_rows(record),
        )

    async def unloaded(self, record: Record, ref: ObjectRef) -> dict[Generation, Unloaded]:
        """What became of the object's generations that this batch did not load."""
        found = {}
        for index, file in enumerate(record.known_files):
            if file.ref == ref and (one := await self._whereabouts.of(record, index)):
                found[file.generation] = one
        return found

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
    job = f"job {record.load_job().job_id}" if found else "job id follows from the object's generation"
    steps = [
        f"load as {load['sourceFormat']} into {record.dest} ({load['writeDisposition']}), {mode}",
        "together with the other files of its window" if "Batch" in record.rule.document else job,
    ]
    for key, actions in (("OnSuccess", record.rule.on_success), ("OnFailure", record.rule.on_failure)):
        if names := [str(action.get("Action")) for action in actions]:
            steps.append(f"{key}: {', then '.join(names)}")
    return steps


def rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def files(count: int) -> str:
    return f"{count:,} file{'s' * (count != 1)}"
