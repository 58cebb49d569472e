"""What the convention makes of an object: which success file it belongs to, which table that means, and why.

The same functions that resolve a batch are asked, so what is shown is what happens. A success file that does not exist
yet is a dry run: what its upload would do now.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingestd.batch.content import Progress
from ingestd.batch.journal import Journal
from ingestd.batch.record import Record
from ingestd.batch.recovery import JobLimits, begin
from ingestd.collect.success.configuration import Configured, Levels, load_options, ordered
from ingestd.collect.success.conventions import Conventions, Meaning
from ingestd.collect.success.listing import BACKLOG, Listed, look
from ingestd.collect.success.lookup import ConfigLookup
from ingestd.collect.success.planning import Findings, destination_of, resolved, unresolved
from ingestd.collect.success.queue import Queues
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput, Fatal
from ingestd.model.objects import ABSENT, FileVersion, ObjectInfo, ObjectRef
from ingestd.ports import ObjectStore
from ingestd.settings import Convention

_FEW = 3
_SHOWN = 200  # characters of an option's value
_PASSED_OVER = {
    BACKLOG: "the function that ingestd replaces kept its queue there; upload the success file of the batch itself",
}


@dataclass(slots=True)
class Directory:
    """An object as part of a directory that a success file completes."""

    verdict: str
    plan: list[str] = field(default_factory=list)
    success: ObjectRef | None = None  # the success file, which may not be there yet
    record: Record | None = None  # its batch in the journal
    place: ObjectRef | None = None  # of that record
    planned: Record | None = None  # what the daemon would make of the directory now
    origins: dict[str, str] = field(default_factory=dict)  # key of its load → the file, or why it is so
    why_not: str = ""  # why it would not load

    def to_json(self) -> dict[str, Any]:
        planned = self.planned
        mark = planned.success if planned else None
        return {
            "success_file": self.success.url if self.success else None,
            "destination": _table(planned.load) if planned else None,
            "load": {key: value for key, value in planned.load.items() if key != "sourceUris"} if planned else None,
            "origins": self.origins,
            "source_uris": planned.sources if planned else [],
            "config": list(mark.config) if mark else [],
            "sql": mark.sql if mark else "",
            "external": mark.external if mark and mark.sql else None,
            "labels": mark.labels if mark else {},
            "why_not": self.why_not,
        }


class SuccessExplainer:
    def __init__(
        self,
        store: ObjectStore,
        journal: Journal,
        conventions: Conventions,
        queues: Queues,
        clock: Clock,
        *,
        project: str,
        limits: JobLimits,
    ) -> None:
        self._store = store
        self._journal = journal
        self._conventions = conventions
        self._queues = queues
        self._lookup = ConfigLookup(store, clock)
        self._clock = clock
        self._project = project
        self._limits = limits

    def wants(self, ref: ObjectRef) -> bool:
        """Whether the object means something to a convention, so that no rule sees it."""
        return self._conventions.sign(ref.bucket, ref.name) is not None

    async def explain(self, ref: ObjectRef) -> Directory | None:
        """None when no convention of the settings is about the object."""
        convention = self._conventions.of(ref)
        sign = self._conventions.sign(ref.bucket, ref.name)
        if convention is None and sign is None:
            return None
        if sign is not None and sign.meaning is not Meaning.SUCCESS:
            return Directory(f"a control file of the convention ({sign.meaning})")
        assert convention is not None
        if (folder := self._conventions.passed_over(ref)) is not None:
            more = f": {_PASSED_OVER[folder]}" if folder in _PASSED_OVER else ""
            why = f"success files below {folder!r} mean nothing{more}"
            return Directory(f"ignored: {why}", why_not=why)
        if sign is not None:
            return await self._success(ref, convention)
        success = await self._completed_by(ref, convention)
        if success is None:
            name = convention.success_filename
            return Directory(f"part of a directory that is not complete: there is no {name} beside it or above it")
        found = await self._success(success.ref, convention, success)
        left_out = (await look(self._store, success.ref, convention)).left_out.get(ref.name)
        found.verdict = f"part of the directory that {success.ref} completes"
        if left_out is not None:
            found.verdict = f"left out of the directory that {success.ref} completes: {left_out}"
        return found

    async def _completed_by(self, ref: ObjectRef, convention: Convention) -> ObjectInfo | None:
        """The closest success file beside the object, or above it."""
        folder = ref.name.rpartition("/")[0]
        while folder and f"{folder}/".startswith(convention.root):
            place = ObjectRef(ref.bucket, f"{folder}/{convention.success_filename}")
            if self._conventions.sign(place.bucket, place.name) is not None:
                found = await self._store.stat(place)
                if found is not None:
                    return found
            folder = folder.rpartition("/")[0]
        return None

    async def _success(self, ref: ObjectRef, convention: Convention, info: ObjectInfo | None = None) -> Directory:
        info = info or await self._store.stat(ref)
        if info is None:
            found = Directory("a success file that does not exist: a dry run", success=ref)
            return await self._directory(found, FileVersion(ref, ABSENT), convention)
        found = Directory("a success file", success=ref)
        file = FileVersion(ref, info.generation, info.size, info.created)
        template = unresolved(file, project=self._project, clock=self._clock)
        found.record = await self._journal.known(template)
        done = await self._journal.is_finished(template)
        found.place = self._journal.done(template) if done else self._journal.running(template)
        return await self._directory(found, file, convention)

    async def _directory(self, found: Directory, file: FileVersion, convention: Convention) -> Directory:
        """What the daemon does with the directory as it and its configuration are now."""
        listed = await look(self._store, file.ref, convention)
        found.plan += _contents(listed, file.ref)
        levels = await self._lookup.levels(file.ref.name, file.ref.bucket, convention)
        try:
            configured = await self._lookup.read(levels)
            found.plan += [f"configured by {one}" for one in configured.files]
            destination = destination_of(file.ref, convention, configured.overrides, project=self._project)
            found.plan += destination.steps
            if listed.files:
                template = unresolved(file, project=self._project, clock=self._clock)
                found.planned = resolved(template, Findings(convention, configured, listed), project=self._project)
                load = found.planned.load
            else:
                load = {**load_options(configured), "destinationTable": destination.table.rest}
        except (BadInput, Fatal) as error:
            found.why_not = str(error)
            waits = "" if isinstance(error, BadInput) else "; it would wait until that is mended"
            found.plan.append(f"it cannot be loaded as it is: {error}{waits}")
            return found
        home = convention.storage_project or convention.job_project or self._project
        merged = {**load, **_beyond_the_load(configured)}
        found.origins = dict(_origins(merged, configured, home))
        found.plan += _merged(merged, found.origins)
        if found.planned is None:
            found.why_not = "there are no files to load beside it"
            found.plan.append(f"it would not load: {found.why_not}")
        else:
            found.plan += self._loads(found.planned, configured)
        if convention.order_per_table or ordered(levels):
            found.plan.append(await self._turn(file, levels))
        return found

    def _loads(self, record: Record, configured: Configured) -> Iterator[str]:
        """What is loaded, and how."""
        load, mark = record.load, record.success
        assert mark is not None
        yield f"sources: {_some(record.sources)}"
        by = f" by {configured.transform.source}" if configured.transform else ""
        how = f"{load['sourceFormat']} ({load.get('writeDisposition', 'WRITE_APPEND')})"
        yield f"load as {how} into {_table(load)}{by}"
        if mark.sql:
            reading = {key: value for key, value in mark.external.items() if key != "sourceUris"}
            yield f"SQL for {'Spark' if mark.spark else 'BigQuery'}, with temp_ext read as {_short(reading)}:"
            yield from (f"  {line}" for line in mark.sql.splitlines())
            return
        jobs = len(begin(Progress(), [file.size for file in record.files], self._limits).chunks)
        if jobs > 1:
            yield f"in {jobs} load jobs into a staging table, published by one copy"

    async def _turn(self, file: FileVersion, levels: Levels) -> str:
        by = [one.ref.url for level in levels for one in level if one.name == "ORDERME"]
        why = f"ordered ({by[-1] if by else 'success.order_per_table'})"
        if file.generation == ABSENT:
            return f"batches of its table are {why}: it would take its turn in their queue"
        for table in await self._queues.waiting():
            before = 0
            async for entry in self._queues.entries(table):
                if entry.success.key == file.key:
                    return f"batches of {table.url} are {why}; {before} are before it"
                before += 1
        return f"batches of its table are {why}; it is not in the queue"


def _contents(listed: Listed, success: ObjectRef) -> Iterator[str]:
    yield f"the directory has {len(listed.files)} files, {listed.size} bytes"
    for why in sorted(set(listed.left_out.values()))[:_FEW]:
        names = [name for name, reason in listed.left_out.items() if reason == why and name != success.name]
        if names:
            yield f"left out ({why}): {_some(names)}"


def _beyond_the_load(configured: Configured) -> dict[str, Any]:
    """What load.json may say that is not a part of the load itself."""
    said = {
        "labels": dict(configured.labels),
        "dataSourceName": configured.source_name,
        "destinationRegex": configured.overrides.regex,
    }
    return {key: value for key, value in said.items() if value}


def _origins(load: Mapping[str, Any], configured: Configured, home: str) -> Iterator[tuple[str, str]]:
    """Every key of the load, and where it is from."""
    said = configured.traced
    for key in load:
        own = {path: origin for path, origin in said.items() if path == key or path.startswith(f"{key}.")}
        if key == "destinationTable":
            inferred = dict.fromkeys(load[key], "the path")
            if load[key]["projectId"] == home:
                inferred["projectId"] = "settings"
            given = {part: own.get(f"{key}.{part}") or own[key] for part in configured.overrides.table}
            own = {f"{key}.{part}": origin for part, origin in (inferred | given).items()}
        elif key == "sourceUris":
            own = {key: "the files of the directory"}
        elif key == "sourceFormat" and configured.transform is not None and configured.transform.described:
            own = {key: "external.json"}
        elif not own:
            own = {key: "the files' names" if key == "sourceFormat" else "default"}
        yield from own.items()


def _merged(load: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[str]:
    yield "load.json, merged, and where each key is from:"
    for path, origin in origins.items():
        if path == "sourceUris":
            continue
        yield f"  {path}: {_short(_at(load, path))}  ({origin})"


def _at(value: Any, path: str) -> Any:
    """What is at `a.b`; a key may have dots of its own."""
    if not isinstance(value, Mapping) or path in value:
        return value[path] if isinstance(value, Mapping) else None
    return next((_at(value[key], path[len(key) + 1 :]) for key in value if path.startswith(f"{key}.")), None)


def _table(load: Mapping[str, Any]) -> str:
    target = load["destinationTable"]
    return f"{target['projectId']}.{target['datasetId']}.{target['tableId']}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _some(names: list[str]) -> str:
    return ", ".join(names[:_FEW]) + (f" … ({len(names)} in all)" if len(names) > _FEW else "")
