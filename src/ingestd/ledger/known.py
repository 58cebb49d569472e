"""Which files the ledger knows: by the register, the journal, and the load-state table where those have forgotten.

The register has every file whose load has begun. Before that, a batch's place in the journal follows from its file,
window or success file, so nothing is searched for. Files come in chunks, in name order; of each chunk those that share
a table and a day are looked up by one listing when they are many, and the content of a window is read once for all of
its files. So memory and calls grow with a chunk, not with what was ever loaded. A wrong answer costs little: a file
that is announced again is dropped as a duplicate.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from itertools import count

from ingestd.batch.content import Fate
from ingestd.batch.journal import Journal
from ingestd.batch.landing import destination
from ingestd.batch.load_config import new_record
from ingestd.batch.marks import WindowMark
from ingestd.batch.phases import Phase
from ingestd.batch.record import Record
from ingestd.batch.register import Register
from ingestd.collect.success.planning import unresolved
from ingestd.collect.success.queue import Queues
from ingestd.collect.windows.model import WindowId, window_of
from ingestd.collect.windows.pacing import Pacing
from ingestd.collect.windows.store import WindowStore
from ingestd.intake.refusals import Refusals
from ingestd.ledger.columns import uri_of
from ingestd.ledger.reading import LoadStateReader
from ingestd.model.bounded import bounded
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput, UnreadableObject
from ingestd.model.objects import FileVersion, ObjectInfo, digest, generation_time
from ingestd.model.tables import TableName
from ingestd.ports import ObjectStore
from ingestd.rules.destination import DestinationError, expand_destination
from ingestd.rules.rule import Rule

_MANY = 12  # records of one table and day: a listing costs as much as so many looks
_AT_ONCE = 16
_SLACK = timedelta(days=2)  # a batch is written down after its files were


class Standing(StrEnum):
    """Where a file is, as far as the ledger knows."""

    LOADED = "loaded"
    PENDING = "pending"  # in an open window, or in a batch under way
    FAILED = "failed"  # `ingestd replay` is for those
    SET_ASIDE = "set_aside"  # its batch loaded without it, since it is bad: `ingestd explain` says why
    REFUSED = "refused"  # no rule can take it as it is
    PASSED_OVER = "passed_over"  # not its batch's to load: replaced or deleted before, or put there by our own move
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An object that ought to be in the ledger: a file with its rule, or (without one) a success file."""

    info: ObjectInfo
    rule: Rule | None = None

    @property
    def file(self) -> FileVersion:
        info = self.info
        return FileVersion(info.ref, info.generation, info.size, info.created, info.crc32c)


class KnownFiles:
    def __init__(
        self,
        store: ObjectStore,
        journal: Journal,
        register: Register,
        windows: WindowStore,
        queues: Queues,
        pacing: Pacing,
        refusals: Refusals,
        clock: Clock,
        *,
        project: str,
        load_state: LoadStateReader | None,
    ) -> None:
        self._store = store
        self._journal = journal
        self._register = register
        self._windows = windows
        self._queues = queues
        self._pacing = pacing
        self._refusals = refusals
        self._clock = clock
        self._project = project
        self._load_state = load_state

    async def look_up(self, candidates: Sequence[Candidate]) -> list[Standing]:
        """Where each of them is, in their order."""
        if not self._pacing.fresh:
            await self._pacing.refresh()
        standings = [Standing.UNKNOWN] * len(candidates)
        alone: dict[int, Record] = {}
        for index, candidate in enumerate(candidates):
            record = self._record(candidate)
            if record is None:
                standings[index] = Standing.REFUSED
            else:
                alone[index] = record
        for index, standing in (await self._in_register(candidates, alone)).items():
            standings[index] = standing
        unregistered = {index: one for index, one in alone.items() if standings[index] is Standing.UNKNOWN}
        for index, standing in (await self._in_windows(candidates, unregistered)).items():
            standings[index] = standing
        left = {index: record for index, record in alone.items() if standings[index] is Standing.UNKNOWN}
        for index, standing in (await self._in_journal(left)).items():
            standings[index] = standing
        await self._in_queues(candidates, standings)
        await self._ask_load_state(candidates, standings)
        await self._ask_refusals(candidates, standings)
        return standings

    def _record(self, candidate: Candidate) -> Record | None:
        """The batch of this object alone; None when there can be none."""
        if candidate.rule is None:
            return unresolved(candidate.file, project=self._project, clock=self._clock)
        file = candidate.file
        try:
            values = {"EventID": file.event_id, "ProjectID": self._project}
            expanded = expand_destination(candidate.rule, file, values)
            return new_record(candidate.rule, file, expanded, project=self._project, clock=self._clock)
        except (DestinationError, BadInput):
            return None

    async def _in_register(self, candidates: Sequence[Candidate], alone: dict[int, Record]) -> dict[int, Standing]:
        """What any batch has begun to load; each of those batches is read once."""
        tables: defaultdict[TableName, dict[str, int]] = defaultdict(dict)
        for index, record in alone.items():
            if candidates[index].rule is not None:
                tables[destination(record).partition(None)][candidates[index].file.key] = index
        batches: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for table, wanted in tables.items():
            holders = await self._register.holders(table, [candidates[index].file for index in wanted.values()])
            for key, place in holders.items():
                batches[place][key] = wanted[key]
        found: dict[int, Standing] = {}

        async def look(item: tuple[str, dict[str, int]]) -> None:
            place, members = item
            try:
                record = await self._journal.at(place)
            except UnreadableObject:
                found.update(dict.fromkeys(members.values(), Standing.PENDING))  # for whoever can read it
                return
            # A record whose time is over ended long ago, and whoever had to look after it has.
            standings = dict(_standings(record)) if record else {}
            found.update({index: standings.get(key, Standing.LOADED) for key, index in members.items()})

        await bounded(batches.items(), look, _AT_ONCE)
        return found

    async def _in_windows(self, candidates: Sequence[Candidate], alone: dict[int, Record]) -> dict[int, Standing]:
        """Each window that any of them may be in is read once."""
        wanted: dict[bytes, int] = {}
        windows: dict[str, tuple[WindowId, Record]] = {}
        members: dict[str, list[int]] = defaultdict(list)
        for index, record in alone.items():
            candidate = candidates[index]
            if candidate.rule is None:
                continue
            for window in self._windows_of(candidate.rule, candidate.file, record):
                wanted[digest(candidate.file.key)] = index
                windows.setdefault(window.name, (window, record))
                members[window.name].append(index)
        found: dict[int, Standing] = {}

        async def look(place: tuple[WindowId, Record]) -> None:
            try:
                async for known, standing in self._content(*place):
                    if (index := wanted.get(known)) is not None:
                        found[index] = standing
            except UnreadableObject:
                # Its files are for whoever can read it: announced again, they would only wait for that.
                for index in members[place[0].name]:
                    found.setdefault(index, Standing.PENDING)

        await bounded(windows.values(), look, _AT_ONCE)
        return found

    def _windows_of(self, rule: Rule, file: FileVersion, record: Record) -> Iterator[WindowId]:
        reference = record.load["destinationTable"]
        name, dollar, partition = reference["tableId"].partition("$")
        table = TableName(reference["projectId"], reference["datasetId"], name)
        # An event without payload has the generation's time instead of the creation time: mostly the same window.
        for moment in sorted({file.event_time, generation_time(file.generation)}):
            seconds = self._pacing.seconds(rule, table, moment.timestamp())
            if seconds is not None:
                timed = replace(file, event_time=moment)
                yield window_of(rule, timed, f"{record.dest}{dollar}{partition}", seconds)

    async def _content(self, window: WindowId, alone: Record) -> AsyncIterator[tuple[bytes, Standing]]:
        """Every file that any sequence of the window holds."""
        slot = window.slot
        for sequence in count():
            mark = WindowMark(slot.name(sequence), slot.start)
            template = replace(alone, event_id=slot.event_id(sequence), trigger=mark, files=())
            record = await self._journal.known(template)
            if record is None:
                for shard in await self._windows.shards(mark.name):
                    for arrival in shard.arrivals:
                        yield arrival.digest, Standing.PENDING
                return
            for key, standing in _standings(record):
                yield digest(key), standing

    async def _in_journal(self, records: dict[int, Record]) -> dict[int, Standing]:
        folders: dict[str, list[int]] = defaultdict(list)
        for index, record in records.items():
            folders[f"{self._journal.table_folder(record)}/{record.day}/"].append(index)
        found: dict[int, Standing] = {}
        few: list[int] = []
        for folder, members in folders.items():
            if len(members) < _MANY:
                few += members
            else:
                found |= await self._listed(folder, {records[index].event_id: index for index in members})

        async def look(index: int) -> None:
            record = records[index]
            done = await self._store.stat(self._journal.done(record))
            if done is not None:
                found[index] = _standing(done.metadata.get("ingestd-phase", ""))
            elif await self._store.stat(self._journal.running(record)) is not None:
                found[index] = Standing.PENDING

        await bounded(few, look, _AT_ONCE)
        return found

    async def _listed(self, folder: str, wanted: dict[str, int]) -> dict[int, Standing]:
        found: dict[int, Standing] = {}
        for place in ("Running/", "Done/"):  # what is in both is done
            async for entry in self._journal.entries(f"{place}{folder}"):
                index = wanted.get(entry.event_id)
                if index is not None:
                    found[index] = Standing.PENDING if place == "Running/" else _standing(entry.phase)
        return found

    async def _in_queues(self, candidates: Sequence[Candidate], standings: list[Standing]) -> None:
        """Success files of ordered tables wait in a queue, and have no record before it is their turn."""
        wanted = {
            candidate.file.key: index
            for index, candidate in enumerate(candidates)
            if candidate.rule is None and standings[index] is Standing.UNKNOWN
        }
        if not wanted:
            return
        for table in await self._queues.waiting():
            async for entry in self._queues.entries(table):
                if (index := wanted.get(entry.success.key)) is not None:
                    standings[index] = Standing.PENDING

    async def _ask_load_state(self, candidates: Sequence[Candidate], standings: list[Standing]) -> None:
        unknown = [index for index, standing in enumerate(standings) if standing is Standing.UNKNOWN]
        if self._load_state is None or not unknown:
            return
        uris = {uri_of(candidates[index].file): index for index in unknown}
        since = min(candidates[index].info.created for index in unknown) - _SLACK
        for uri, well in (await self._load_state.loaded(list(uris), since=since)).items():
            standings[uris[uri]] = Standing.LOADED if well else Standing.FAILED

    async def _ask_refusals(self, candidates: Sequence[Candidate], standings: list[Standing]) -> None:
        """A file that cannot be taken is settled only if the reason was written down."""

        async def look(index: int) -> None:
            if await self._store.stat(self._refusals.place(candidates[index].file)) is None:
                standings[index] = Standing.UNKNOWN

        await bounded([i for i, standing in enumerate(standings) if standing is Standing.REFUSED], look, _AT_ONCE)


def _standings(record: Record) -> Iterator[tuple[str, Standing]]:
    """Where each of the batch's files is, by its key."""
    for index, file in enumerate(record.known_files):
        yield file.key, _standing_in(record, index)


def _standing_in(record: Record, index: int) -> Standing:
    """A file's own standing. Rows that are there are there, even if an action failed after them."""
    if not record.phase.final:
        return Standing.PENDING
    if index in record.progress.loaded:
        return Standing.LOADED
    aside = record.progress.aside.get(index)
    if aside is None:
        return _standing(record.phase)
    if aside.fate in (Fate.LOADED, Fate.READ_EARLIER):
        return Standing.LOADED
    if not aside.fate.wrong:
        return Standing.PASSED_OVER
    return Standing.FAILED if record.phase is Phase.FAILED else Standing.SET_ASIDE


def _standing(phase: str) -> Standing:
    match phase:
        case Phase.FAILED:
            return Standing.FAILED
        case Phase.SUPERSEDED | Phase.MISSING | Phase.IGNORED:
            return Standing.PASSED_OVER
        case _:
            return Standing.LOADED
