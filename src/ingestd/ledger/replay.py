"""`ingestd replay`: another try, now, with a note of who asked and why.

A batch that waits for its surroundings is tried at once instead of at its next turn. A batch that failed is opened
again: from the load, or, when the load stood and an action failed, from the actions. Nothing is loaded that the journal
shows as loaded; a batch of which nobody can tell whether its rows are there is opened only if it, or its file, is asked
for by name. A quarantined file goes back to where it came from, as a new upload of it.

The note comes first, `<journal>/Replays/<event id>/<time>.json`; the load-state table gets the same. If we die after
it, the note tells of a replay that did not happen, and repeating the command is harmless. A quarantined file goes back
in steps, since it may be loaded and deleted before we are through:

| dies after              | what is there                  | the same command again                                    |
|-------------------------|--------------------------------|-----------------------------------------------------------|
| its reason was marked   | the file, its reason           | says that it may have been put back: a person decides     |
| it was copied           | the same, and the copy         | removes the first two                                     |
| … and the copy was used | the file, its reason           | as above: a second copy would be loaded a second time     |
| it was removed          | its reason                     | says that it is gone                                      |
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import orjson
import structlog

from ingestd.actions.objects import RULES_MARK
from ingestd.batch.content import Fate
from ingestd.batch.journal import Entry, Held, Journal, LeaseLost
from ingestd.batch.phases import Phase
from ingestd.batch.record import Kind, Record
from ingestd.batch.wait import Wait
from ingestd.ledger.columns import row_of
from ingestd.ledger.writer import LoadStateWriter
from ingestd.model.clock import Clock
from ingestd.model.errors import IngestError, NotFound, PreconditionFailed, UnreadableObject
from ingestd.model.objects import ABSENT, Generation, ObjectInfo, ObjectRef
from ingestd.model.stored import LARGEST, document, instant, reading
from ingestd.ports import ObjectStore

log = structlog.get_logger(__name__)

REASON_SUFFIX = ".reason.json"
REPLAYED_BY = "ingestd-replayed-by"
_LOOK_FIRST = "is left alone: its rows may be there; compare the table with the file, then name the batch"
_LEFT_OUT = "is left alone: somebody left it out of its ordered table; name the batch to load it all the same"
_PUT_BACK = "PutBack"  # in a reason: when its file was about to go back


@dataclass(frozen=True, slots=True)
class Replayed:
    """One thing that was (or in a dry run, would be) tried again."""

    event_id: str
    what: str
    subject: str = ""  # the table, or the file
    error: str = ""  # why it needed another try
    skipped: bool = False

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Asked:
    """Who wants it, and why: the audit."""

    by: str
    why: str
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """Which blocked or failed batches are meant; what is not given does not narrow it."""

    refs: Sequence[ObjectRef] = ()
    event_ids: Sequence[str] = ()
    rule: str = ""
    since: datetime | None = None  # when it failed, or began to wait
    until: datetime | None = None

    @property
    def empty(self) -> bool:
        return not (self.refs or self.event_ids or self.rule or self.since or self.until)

    @property
    def names(self) -> bool:
        """Whether somebody asks for these very batches or files, and not for whatever there is."""
        return bool(self.refs or self.event_ids)

    def listed(self, entry: Entry) -> bool:
        """What a listing can tell already."""
        if self.event_ids and not self.refs and entry.event_id not in self.event_ids:
            return False
        if self.rule and entry.rule and entry.rule != self.rule:
            return False
        return self.covers(entry.created)

    def covers(self, moment: datetime) -> bool:
        return (self.since is None or moment >= self.since) and (self.until is None or moment <= self.until)

    def wants(self, record: Record) -> bool:
        if self.rule and record.rule.name != self.rule:
            return False
        if not self.refs and not self.event_ids:
            return True
        success = [ObjectRef.parse(record.success.url)] if record.success else []
        files = [*success, *(file.ref for file in record.known_files)]
        return record.event_id in self.event_ids or any(ref in self.refs for ref in files)


def _not_by_itself(record: Record) -> str:
    """Why it is not opened again along with everything that failed, in words."""
    if record.phase is Phase.FAILED and record.success is not None and record.success.left_out:
        return _LEFT_OUT
    return _LOOK_FIRST if _undecided(record) else ""


def _undecided(record: Record) -> bool:
    """Whether a file may have been loaded already, under a name that was overwritten meanwhile: nobody can tell."""
    asides = record.progress.aside.values()
    return record.phase is Phase.FAILED and any(one.fate is Fate.REFUSED and one.job_id for one in asides)


class Replayer:
    def __init__(
        self,
        store: ObjectStore,
        journal: Journal,
        clock: Clock,
        *,
        notes: ObjectRef,
        load_state: LoadStateWriter | None = None,
    ) -> None:
        self._store = store
        self._journal = journal
        self._clock = clock
        self._notes = notes
        self._load_state = load_state

    async def batches(self, selection: Selection, asked: Asked) -> AsyncIterator[Replayed]:
        """Every blocked or failed batch that is meant."""
        seen: set[str] = set()
        for folder in ("Running/", "Done/"):
            async for entry in self._journal.entries(folder):
                blocked = folder == "Running/" and entry.retry_at is not None
                failed = folder == "Done/" and entry.phase == Phase.FAILED
                if entry.event_id in seen or not (blocked or failed) or not selection.listed(entry):
                    continue
                # One of a newer version is read all the same: to say so by name.
                try:
                    held = await self._journal.read(entry.ref)
                except UnreadableObject as error:
                    if not selection.refs:  # which files it has cannot be told
                        yield Replayed(entry.event_id, "is left alone", entry.dest, str(error), skipped=True)
                    continue
                if held is not None and selection.wants(held.record):
                    seen.add(entry.event_id)
                    if not selection.names and (why_not := _not_by_itself(held.record)):
                        yield Replayed(entry.event_id, why_not, entry.dest, held.record.error, skipped=True)
                    else:
                        yield await self._again(held, asked)

    async def _again(self, held: Held, asked: Asked) -> Replayed:
        record = held.record
        failed = record.phase is Phase.FAILED
        what = "had failed; it is opened again" if failed else "was waiting; it is tried now"
        done = Replayed(record.event_id, what, record.dest, record.error)
        if asked.dry_run:
            return replace(done, what="failed" if failed else "waits")
        now = self._clock.now()
        if not failed and record.stamp.leased(now):
            return replace(done, what="is being worked on right now; nothing is done", skipped=True)
        await self._note(record.event_id, asked, {"What": what, "Error": record.error, "Table": record.dest})
        try:
            if failed:
                again = record.reopened(now)
                await self._journal.reopen(again)
            else:
                again = held.record = replace(record, wait=Wait(until=now))
                await self._journal.save(held, claim=False)
        except (PreconditionFailed, LeaseLost):
            return replace(done, what="is being finished or worked on right now; try again in a moment", skipped=True)
        if self._load_state is not None and record.kind is Kind.LOAD:
            told = replace(again, stamp=record.stamp.freed(now))
            row = row_of(told, replica=asked.by, recorded=now, actor=asked.by, reason=asked.why)
            await self._load_state.write([row])
        log.info("batch.replayed", event_id=record.event_id, dest=record.dest, by=asked.by, why=asked.why)
        return done

    async def quarantined(self, folder: ObjectRef, selection: Selection, asked: Asked) -> AsyncIterator[Replayed]:
        """Every file under the folder that was put away as bad goes back to where it was uploaded."""
        async for info in self._store.list(folder):
            if not info.ref.name.endswith(REASON_SUFFIX) or not selection.covers(info.created):
                continue
            try:
                data, sidecar = await self._store.read(info.ref, largest=LARGEST)
                with reading(info.ref):
                    reason = document(data)
                    source = ObjectRef.parse(reason["Source"])
                    reason["EventID"] = str(reason["EventID"])
            except NotFound:
                continue
            except UnreadableObject as error:
                self._journal.strangers.met("quarantine", info.ref, error)
                yield Replayed("", "is left alone", info.ref.url, str(error), skipped=True)
                continue
            named = source in selection.refs or reason["EventID"] in selection.event_ids
            if (selection.refs or selection.event_ids) and not named:
                continue
            if selection.rule and reason.get("Rule") != selection.rule:
                continue
            yield await self._restore(sidecar, reason, source, asked)

    async def _restore(self, sidecar: ObjectInfo, reason: dict[str, Any], source: ObjectRef, asked: Asked) -> Replayed:
        kept = ObjectRef(sidecar.ref.bucket, sidecar.ref.name.removesuffix(REASON_SUFFIX))
        done = Replayed(reason["EventID"], "goes back to where it was uploaded", source.url, reason.get("Message", ""))
        info = await self._store.stat(kept)
        if info is None:
            return replace(done, what=f"{kept} is gone", skipped=True)
        if asked.dry_run:
            return replace(done, what="quarantined")
        marked = sidecar.generation
        if when := reason.get(_PUT_BACK):
            there = await self._store.stat(source)
            if there is None or REPLAYED_BY not in there.metadata:
                what = f"was put back before ({when}), and may have been loaded: `ingestd explain {source.url}` says so"
                return replace(done, what=f"{what}. If it was not, copy {kept.url} there", skipped=True)
        else:
            await self._note(reason["EventID"], asked, {"What": done.what, "Source": source.url, "From": kept.url})
            try:
                copied = await self._copy_back(sidecar, reason, info, source, asked)
            except PreconditionFailed:
                return replace(done, what="is being put back by somebody else", skipped=True)
            if copied is None:
                return replace(done, what="was uploaded again meanwhile; nothing is done", skipped=True)
            marked = copied
        await self._store.delete(kept, if_generation=info.generation)
        await self._store.delete(sidecar.ref, if_generation=marked)
        log.info("file.replayed", source=source.url, quarantined=kept.url, by=asked.by, why=asked.why)
        return done

    async def _copy_back(
        self, sidecar: ObjectInfo, reason: dict[str, Any], kept: ObjectInfo, source: ObjectRef, asked: Asked
    ) -> Generation | None:
        """Copy the file to where it came from; the generation of its reason, which is marked. None: not wanted there.

        A mark is taken back when we see that there is no copy.
        """
        document = orjson.dumps({**reason, _PUT_BACK: self._clock.now()})
        marked = await self._store.create(sidecar.ref, document, if_generation=sidecar.generation)
        try:
            # Without the mark that keeps its rule from taking what the rule itself moved.
            marks = {RULES_MARK: "", REPLAYED_BY: asked.by.encode("ascii", "replace").decode()}
            await self._store.copy(
                kept.ref, source, source_generation=kept.generation, if_generation=ABSENT, metadata=marks
            )
        except PreconditionFailed:
            # What was in our way and is gone may have been our own copy, whose answer was lost: then the mark stays.
            if await self._store.stat(source) is not None:
                await self._store.create(sidecar.ref, orjson.dumps(reason), if_generation=marked)
            return None
        except IngestError:
            if await self._store.stat(source) is None:
                await self._store.create(sidecar.ref, orjson.dumps(reason), if_generation=marked)
            raise
        return marked

    async def _note(self, event_id: str, asked: Asked, about: dict[str, Any]) -> None:
        now = self._clock.now()
        note = {"EventID": event_id, "Who": asked.by, "When": now, "Why": asked.why, **about}
        place = self._notes / f"{event_id}/{now.strftime('%Y%m%dT%H%M%S%f')}.json"
        await self._store.create(place, orjson.dumps(note, option=orjson.OPT_INDENT_2))


@dataclass(frozen=True, slots=True)
class ReplayNote:
    """A replay that somebody asked for."""

    by: str
    when: datetime
    why: str
    what: str

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


async def replays(store: ObjectStore, notes: ObjectRef, event_id: str) -> list[ReplayNote]:
    """Who asked for another try of this batch."""
    found = []
    async for info in store.list(notes / f"{event_id}/"):
        try:
            data, _ = await store.read(info.ref, largest=LARGEST)
            with reading(info.ref):
                note = document(data)
                when = instant(note["When"]) or info.created
                found.append(ReplayNote(str(note["Who"]), when, str(note["Why"]), str(note["What"])))
        except (NotFound, UnreadableObject) as error:
            log.warning("replay.note_unreadable", object=info.ref.url, error=str(error))
    return found
