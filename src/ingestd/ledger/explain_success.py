"""What the convention makes of an object: which success file it belongs to, which table that means, and why.

The same functions that resolve a batch are asked, so what is shown is what happens.
"""

from dataclasses import dataclass, field

from ingestd.batch.journal import Journal
from ingestd.batch.record import Record
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput, Fatal
from ingestd.model.objects import FileVersion, ObjectInfo, ObjectRef
from ingestd.ports import ObjectStore
from ingestd.settings import Convention
from ingestd.success.configuration import ordered
from ingestd.success.conventions import Conventions, Meaning
from ingestd.success.listing import look
from ingestd.success.lookup import ConfigLookup
from ingestd.success.planning import destination_of, load_configuration, unresolved
from ingestd.success.queue import Queues

_FEW = 3


@dataclass(slots=True)
class Directory:
    """An object as part of a directory that a success file completes."""

    verdict: str
    plan: list[str] = field(default_factory=list)
    record: Record | None = None  # its batch in the journal
    place: ObjectRef | None = None  # of that record


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
    ) -> None:
        self._store = store
        self._journal = journal
        self._conventions = conventions
        self._queues = queues
        self._lookup = ConfigLookup(store, clock)
        self._clock = clock
        self._project = project

    async def explain(self, ref: ObjectRef) -> Directory | None:
        """None when no convention of the settings is about the object."""
        convention = self._conventions.of(ref)
        sign = self._conventions.sign(ref.bucket, ref.name)
        if convention is None and sign is None:
            return None
        if sign is not None and sign.meaning is not Meaning.SUCCESS:
            return Directory(f"a control file of the convention ({sign.meaning})")
        assert convention is not None
        success = await self._success_file(ref, convention, itself=sign is not None)
        if success is None:
            name = convention.success_filename
            return Directory(f"part of a directory that is not complete: there is no {name} beside it or above it")
        what = "a success file" if success.ref == ref else f"part of the directory that {success.ref} completes"
        return await self._directory(Directory(what), success, convention)

    async def _success_file(self, ref: ObjectRef, convention: Convention, *, itself: bool) -> ObjectInfo | None:
        if itself:
            return await self._store.stat(ref)
        folder = ref.name.rpartition("/")[0]
        while folder and f"{folder}/".startswith(convention.root):
            found = await self._store.stat(ObjectRef(ref.bucket, f"{folder}/{convention.success_filename}"))
            if found is not None:
                return found
            folder = folder.rpartition("/")[0]
        return None

    async def _directory(self, found: Directory, success: ObjectInfo, convention: Convention) -> Directory:
        ref = success.ref
        file = FileVersion(ref, success.generation, success.size, success.created)
        template = unresolved(file, project=self._project, clock=self._clock)
        found.record = await self._journal.known(template)
        done = await self._journal.is_finished(template)
        found.place = self._journal.done(template) if done else self._journal.running(template)
        listed = await look(self._store, ref, convention)
        found.plan.append(f"the directory has {len(listed.files)} files, {listed.size} bytes")
        for why in sorted(set(listed.left_out.values()))[:_FEW]:
            names = [name for name, reason in listed.left_out.items() if reason == why and name != ref.name]
            if names:
                found.plan.append(f"left out ({why}): {', '.join(names[:_FEW])}{' …' if len(names) > _FEW else ''}")
        levels = await self._lookup.levels(ref.name, ref.bucket, convention)
        try:
            configured = await self._lookup.read(levels)
            found.plan += [f"configured by {one}" for one in configured.files]
            destination = destination_of(ref, convention, configured.overrides, project=self._project)
            found.plan += destination.steps
            load = load_configuration(configured, destination.table, listed.files, ref) if listed.files else {}
        except (BadInput, Fatal) as error:
            found.plan.append(f"it cannot be loaded as it is: {error}")
            return found
        how = f" as {load['sourceFormat']} ({load.get('writeDisposition', 'WRITE_APPEND')})" if load else ""
        by = f" by {configured.transform.source}" if configured.transform else ""
        found.plan.append(f"load{how} into {destination.table}{by}")
        if convention.order_per_table or ordered(levels):
            found.plan.append(await self._turn(file))
        return found

    async def _turn(self, file: FileVersion) -> str:
        for table in await self._queues.waiting():
            before = 0
            async for entry in self._queues.entries(table):
                if entry.success.key == file.key:
                    return f"batches of {table.url} are ordered; {before} are before it"
                before += 1
        return "batches of its table are ordered; it is not in the queue"
