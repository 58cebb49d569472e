"""A file that its batch did not load: why, where it lies now, and what helps.

The batch's record says why. Where a file was put follows from the rule, as it did when it was put there; whether it is
still there is asked of the store, so that nobody is sent to look for what has been taken away since. Read-only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ingestd.actions.plan import plan
from ingestd.batch.content import Fate, SetAside
from ingestd.batch.phases import Phase
from ingestd.batch.quarantine import Quarantine, reason_beside, refusal_place
from ingestd.batch.record import Record
from ingestd.batch.sources import OWN_MOVE
from ingestd.batch.stages.prove import rejected_rows
from ingestd.batch.variables import batch_variables
from ingestd.model.errors import IngestError, NotFound
from ingestd.model.objects import FileVersion, ObjectInfo, ObjectRef
from ingestd.ports import ObjectStore
from ingestd.rules.actions import MoveRequest
from ingestd.rules.expansion import Scope
from ingestd.settings import Settings

_THERE = (Fate.READ_EARLIER, Fate.LOADED)  # not loaded by this batch's last try, but the rows are in the table
_NAMES = {
    Fate.CORRUPTED: "set aside: corrupted",
    Fate.INVALID_SCHEMA: "set aside: does not fit the table",
    Fate.REFUSED: "set aside: a person has to look",
    Fate.FAILED: "not loaded",
}


@dataclass(frozen=True, slots=True)
class Unloaded:
    """What became of one file instead."""

    fate: Fate
    why: str
    row: int | None = None
    position: int | None = None  # the byte at which the row starts
    column: str = ""
    kept_url: str = ""  # where the file lies now; empty when it is nowhere to be found
    reason_url: str = ""  # the document beside it
    remedy: str = ""  # what to do

    @property
    def name(self) -> str:
        return _NAMES.get(self.fate, str(self.fate))

    @property
    def reason(self) -> str:
        """The reason, and where in the file: `row 2, column total: Could not parse …`."""
        where = [f"row {self.row}"] if self.row is not None else []
        where += [f"column {self.column}"] if self.column else []
        return f"{', '.join(where)}: {self.why}" if where else self.why

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class Whereabouts:
    def __init__(self, store: ObjectStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._quarantine = Quarantine(store, settings)

    async def of(self, record: Record, index: int) -> Unloaded | None:
        """None when the file's rows are in the table, or on their way."""
        aside = record.progress.aside.get(index)
        if aside is None or aside.fate in _THERE:
            return None
        file = record.files[index]
        kept = await self._kept(record, index)
        reason = reason_beside(kept) if kept and kept in self._put_away(record, index) else None
        if aside.fate is Fate.REFUSED:
            reason = refusal_place(self._settings.errors, file)
        return Unloaded(
            fate=aside.fate,
            why=aside.why,
            row=aside.row,
            position=aside.position,
            column=aside.column,
            kept_url=kept.url if kept else "",
            reason_url=reason.url if reason else "",
            remedy=self._remedy(record, file, aside, kept, put_away=reason is not None),
        )

    def bad_rows(self, record: Record) -> tuple[str, ...]:
        """Where the rows are that the batch left out of files it loaded."""
        return tuple(ref.url for ref in rejected_rows(self._settings.errors, record)) if record.phase.final else ()

    async def _kept(self, record: Record, index: int) -> ObjectRef | None:
        file = record.files[index]
        for target in self._targets(record, index):
            if await self._quarantine.lies_at(target, record, file):
                return target
        there = await live(self._store, file.ref)
        return file.ref if there is not None and there.generation == file.generation else None

    def _targets(self, record: Record, index: int) -> Iterator[ObjectRef]:
        """Where it may have been put: by us, then by the rule's own `OnFailure`."""
        yield from self._put_away(record, index)
        file = record.files[index]
        if file not in record.failed_files:
            return
        try:
            for action in plan(record.rule.on_success, record.rule.on_failure).on_failure:
                body = action.action.body
                if action.step in record.steps and isinstance(body, MoveRequest):
                    values = batch_variables(record, record.failed_files, self._settings)
                    yield _target(body.expanded(Scope(values)), file)
        except (IngestError, ValueError):  # what the rule says cannot be told any more: then the store is asked alone
            return

    def _put_away(self, record: Record, index: int) -> tuple[ObjectRef, ...]:
        try:
            return self._quarantine.places(record, index)
        except IngestError:  # the rule's place is no place
            return ()

    def _remedy(
        self, record: Record, file: FileVersion, aside: SetAside, kept: ObjectRef | None, *, put_away: bool
    ) -> str:
        again = f"ingestd replay {record.event_id}"
        match aside.fate:
            case Fate.CORRUPTED | Fate.INVALID_SCHEMA if record.phase.final:
                return self._remedy_for_bad(record, file, aside, kept, put_away=put_away)
            case Fate.FAILED if record.phase is Phase.FAILED:
                # What is put back there is a new generation: it has a batch of its own, and this one never sees it.
                if kept is not None and kept != file.ref:
                    return f"once the cause is gone: copy {kept} back to {file.ref}"
                lost = "" if kept else f", or upload it again to {file.ref} if it is not there any more"
                return f"once the cause is gone: {again}{lost}"
            case Fate.REFUSED:
                return "compare the table with the file; then upload the file again, or delete it"
            case Fate.MISSING:
                return "it was gone before it was loaded; upload it again if it is wanted"
            case Fate.SUPERSEDED:
                return "nothing: the newer upload of that name has a batch of its own"
            case Fate.IGNORED:
                if aside.why != OWN_MOVE:
                    return "nothing: that batch has it"
                return (
                    "nothing: its own rule has put it there; to have it loaded once more, copy it to where it was "
                    "before, or upload it again"
                )
        return ""

    def _remedy_for_bad(
        self, record: Record, file: FileVersion, aside: SetAside, kept: ObjectRef | None, *, put_away: bool
    ) -> str:
        fix = "mend the file and upload it again" + ("" if kept == file.ref else f" to {file.ref}")
        if put_away:
            folder = self._quarantine.place(record, aside.fate)
            known = (self._settings.corrupted_file_url, self._settings.invalid_schema_url)
            option = "" if folder is None or folder.url in known else f" --folder {folder.url}"
            replay = f"ingestd replay --quarantine {file.ref}{option}"
            return f"{fix}; or, once table and rule take it as it is: {replay}"
        if kept == file.ref and record.phase is Phase.FAILED:
            return f"{fix}; or, once the table takes it as it is: ingestd replay {record.event_id}"
        return fix


async def live(store: ObjectStore, ref: ObjectRef) -> ObjectInfo | None:
    """The object as it is; None where it is gone, be it with its bucket."""
    try:
        return await store.stat(ref)
    except NotFound:
        return None


def _target(request: MoveRequest, file: FileVersion) -> ObjectRef:
    base = ObjectRef.parse(request.dest_url)
    return base if request.is_dest_absolute_url else base / file.ref.name
