"""Where bad files go: corrupted ones to `CorruptedFileURL`, those of a wrong schema to `InvalidSchemaURL`.

Either may hold variables of the batch, as in `gs://${ProjectID}-ops/corrupted`. Beside each file lies
`<file>.reason.json`, which says what BigQuery had against it and where in the file. Without a place to go, bad files
stay where they are. Either way they are in the batch's record, and those of a batch of several
files are listed under `ErrorURL`. Everything here may be repeated.

Invariant: what lies there is all that is left of a file, so it never makes way: the next bad file of that name lies
beside it.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import orjson
import structlog
from prometheus_client import Counter

from ingestd.actions.context import ActionContext
from ingestd.actions.move import move_file
from ingestd.actions.objects import EVENT_MARK, SOURCE_MARK, marks
from ingestd.actions.objects import Fate as Moved
from ingestd.batch.content import Fate, SetAside
from ingestd.batch.record import Record
from ingestd.batch.variables import batch_variables
from ingestd.model.bounded import bounded
from ingestd.model.errors import Fatal
from ingestd.model.objects import FileVersion, ObjectRef
from ingestd.model.segments import MOST, cut
from ingestd.ports import ObjectStore
from ingestd.rules.expansion import Scope, render
from ingestd.settings import Settings

log = structlog.get_logger(__name__)

QUARANTINED = Counter("ingestd_files_quarantined", "Bad files put away, by what is wrong with them.", ["fate"])
for _fate in (Fate.CORRUPTED, Fate.INVALID_SCHEMA):
    QUARANTINED.labels(_fate)


class Quarantine:
    def __init__(self, store: ObjectStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings

    def place(self, record: Record, fate: Fate) -> ObjectRef | None:
        """The folder for such files: the rule's, else the settings'; wrong schemas go to the corrupted ones at need."""
        if not fate.bad:
            return None
        corrupted = record.rule.document.get("CorruptedFileURL") or self._settings.corrupted_file_url
        schema = record.rule.document.get("InvalidSchemaURL") or self._settings.invalid_schema_url
        url = (schema if fate is Fate.INVALID_SCHEMA else "") or corrupted
        return _folder(url, record, self._settings) if url else None

    def places(self, record: Record, index: int) -> tuple[ObjectRef, ...]:
        """Where this bad file of the batch is put: the first of these that no other file is at. None: it stays."""
        folder, file = self.place(record, record.progress.aside[index].fate), record.files[index]
        if folder is None:
            return ()
        name = file.ref.name
        names = (name, *(_told_apart(name, mark) for mark in (str(file.generation), file.event_id)))
        return tuple(_below(folder, one) for one in names)

    async def put_away(self, ctx: ActionContext, record: Record) -> None:
        async def one(index: int) -> ObjectRef:
            return await self._put_away(ctx, record, index) or record.files[index].ref

        kept = await bounded(record.progress.wrong, one, ctx.settings.max_concurrency)
        if len(record.files) > 1:
            listing = self._settings.errors / f"{cut(record.dest)}/{record.event_id}.files.json"
            await self._store.create(listing, orjson.dumps(_listing(record, kept), option=orjson.OPT_INDENT_2))

    async def _put_away(self, ctx: ActionContext, record: Record, index: int) -> ObjectRef | None:
        """Where it lies then; None when it stays, or was taken away."""
        file, aside = record.files[index], record.progress.aside[index]
        if aside.fate is Fate.REFUSED:
            await self._store.create(refusal_place(self._settings.errors, file), refusal(file, aside.why, record))
        places = self.places(record, index)
        if not places:
            return None
        moved, target = await move_file(ctx, file, *places)
        if moved is Moved.MOVED:
            QUARANTINED.labels(aside.fate).inc()
            log.warning("file.quarantined", source=file.ref.url, target=target.url, why=aside.why)
        else:
            before = [place for place in places if await self.lies_at(place, record, file)]
            if not before:
                return None  # somebody else took the file away: there is nothing to lay a reason beside
            target = before[0]
        sidecar = reason_beside(target)
        document = orjson.dumps(_reason(record, file, aside), option=orjson.OPT_INDENT_2)
        # Marked as the file itself is, so that a rule that watches the place does not take the reason for data.
        await self._store.create(sidecar, document, metadata=marks(ctx, None, file.key, sidecar))
        return target

    async def lies_at(self, place: ObjectRef, record: Record, file: FileVersion) -> bool:
        """Whether this batch has moved the file there."""
        info = await self._store.stat(place)
        if info is None or info.metadata.get(EVENT_MARK) != record.event_id:
            return False
        return unquote(info.metadata.get(SOURCE_MARK, "")) == file.key


def _listing(record: Record, kept: Sequence[ObjectRef]) -> dict[str, Any]:
    files = [
        {**_reason(record, record.files[index], record.progress.aside[index]), "Kept": where.url}
        for index, where in zip(record.progress.wrong, kept, strict=True)
    ]
    return {"EventID": record.event_id, "Table": record.dest, "Files": files}


def _below(folder: ObjectRef, name: str) -> ObjectRef:
    """Where a file of that name lies in the folder; one that would be too long there, with its reason, is cut."""
    place = folder / name
    return place if len(reason_beside(place).name.encode()) <= MOST else folder / cut(name)


def _told_apart(name: str, mark: str) -> str:
    """`a/b~mark.json.gz` for `a/b.json.gz`."""
    folder, slash, last = name.rpartition("/")
    stem, dot, ending = last.partition(".")
    return f"{folder}{slash}{stem}~{mark}{dot}{ending}"


def reason_beside(kept: ObjectRef) -> ObjectRef:
    """What says why a file was put there."""
    return ObjectRef(kept.bucket, f"{kept.name}.reason.json")


def _folder(url: str, record: Record, settings: Settings) -> ObjectRef:
    expanded = render(Scope(batch_variables(record, record.files, settings)).expand_text(url))
    try:
        return ObjectRef.parse(expanded)
    except ValueError as error:
        raise Fatal(f"bad files of rule {record.rule.name} have no place to go: {error}") from None


def refusal_place(errors: ObjectRef, file: FileVersion) -> ObjectRef:
    return errors / f"unrouted/{file.event_id}.json"


def refusal(file: FileVersion, reason: str, record: Record) -> bytes:
    """The document of a file that a person has to look at, as files that cannot be routed have one."""
    document = {
        "Source": file.ref.url,
        "Generation": str(file.generation),
        "Time": file.event_time,
        "Reason": reason,
        "Rules": [record.rule.name],
        "EventID": record.event_id,
        "Fix": "compare the table with the file, then replay the file or delete it",
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def _reason(record: Record, file: FileVersion, aside: SetAside) -> dict[str, Any]:
    document = {
        "Source": file.ref.url,
        "Generation": str(file.generation),
        "Reason": aside.fate,
        "Message": aside.why,
        "Row": aside.row,
        "Position": aside.position,
        "Column": aside.column or None,
        "NamedByBigQuery": aside.named and bool(aside.job_id),  # otherwise found while its rows were prepared
        "JobID": aside.job_id,
        "EventID": record.event_id,
        "Rule": record.rule.name,
        "RuleURL": record.rule.url,
        "Table": record.dest,
    }
    return {key: value for key, value in document.items() if value is not None}
