"""Deferred tasks: `<DeferTaskURL>/<JobID>.json`, what to do once that job is done.

Ours are written before their job is inserted, and point at the batch's record (`ProcessURL`), which has everything.
A task written by hand for somebody's own job (its id ends in `dispatch`) has no record and carries its actions itself.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from ingestd.batch.record import Record
from ingestd.model.errors import BadInput, NotFound, PreconditionFailed, UnreadableObject
from ingestd.model.jobs import JobRef, Mode
from ingestd.model.objects import ABSENT, ObjectRef
from ingestd.model.stored import LARGEST
from ingestd.ports import ObjectStore


@dataclass(frozen=True, slots=True)
class Task:
    ref: ObjectRef
    job: JobRef
    process: ObjectRef | None
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TaskEntry:
    job_id: str
    created: datetime


def deferrable(job_id: str) -> bool:
    return job_id.endswith(Mode.DISPATCH)


class DeferredTasks:
    def __init__(self, store: ObjectStore, root: ObjectRef, *, project: str, errors: ObjectRef) -> None:
        self._store = store
        self._root = root
        self._errors = errors
        self._project = project

    def ref(self, job_id: str) -> ObjectRef:
        return self._root / f"{job_id}.json"

    async def put(self, record: Record, process: ObjectRef, job: JobRef) -> None:
        """Make the continuation of one of the record's jobs durable; once is enough."""
        document = {
            "DeferTaskURL": self._root.url,
            "Async": True,
            "JobID": job.job_id,
            "ProjectID": job.project,
            "Region": job.location,
            "EventID": record.event_id,
            "ProcessURL": process.url,
            "SourceURL": record.files[0].ref.url if record.files else "",
            "OnSuccess": record.rule.on_success,
            "OnFailure": record.rule.on_failure,
        }
        data = orjson.dumps(document, option=orjson.OPT_INDENT_2)
        try:
            await self._store.create(self.ref(job.job_id), data, if_generation=ABSENT)
        except PreconditionFailed:
            return

    async def find(self, job_id: str) -> Task | None:
        ref = self.ref(job_id)
        try:
            data, _ = await self._store.read(ref, largest=LARGEST)
        except NotFound:
            return None
        except UnreadableObject as error:
            raise BadInput(f"deferred task {error}", (ref.url,)) from error
        try:
            document = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise BadInput(f"deferred task {ref} is not JSON: {error}", (ref.url,)) from error
        if not isinstance(document, dict):
            raise BadInput(f"deferred task {ref} is not a JSON object", (ref.url,))
        process = document.get("ProcessURL")
        try:
            record = ObjectRef.parse(process) if process else None
        except (ValueError, AttributeError) as error:
            raise BadInput(f"deferred task {ref}: ProcessURL: {error}", (ref.url,)) from error
        job = JobRef(str(document.get("ProjectID") or self._project), str(document.get("Region") or ""), job_id)
        return Task(ref, job, record, document)

    async def set_aside(self, job_id: str) -> ObjectRef:
        """Move a task that cannot be read to `ErrorURL/tasks/`, where a person can mend it and put it back."""
        kept = self._errors / f"tasks/{job_id}.json"
        try:
            await self._store.copy(self.ref(job_id), kept)
        except NotFound:
            return kept  # another replica was first
        await self.drop(job_id)
        return kept

    async def drop(self, job_id: str) -> None:
        await self._store.delete(self.ref(job_id))

    async def all(self) -> AsyncIterator[TaskEntry]:
        async for info in self._store.list(self._root / ""):
            name = info.ref.name.removeprefix((self._root / "").name)
            if name.endswith(".json") and "/" not in name:
                yield TaskEntry(name.removesuffix(".json"), info.created)
