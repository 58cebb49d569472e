"""Windows in Cloud Storage: lock, shards, `closed`.

    <BatchURL>/<window>.win              the lock: who owns the window, and everything needed to finish it
    <BatchURL>/<window>/<replica>-<n>    a shard: some of its files
    <BatchURL>/<group>.grp               a group of windows, until its OnDone actions have begun
    <BatchURL>/<window>/closed           from now on, nothing that is not in a shard yet belongs to this window

Invariants:
- A file is acknowledged only when it is in a shard (or in the batch's record).
- A shard is deleted only when each of its files is in a record, or in another shard.
- Whoever closes a window writes `closed`, then lists the shards. Whoever adds to it writes a shard, then looks for
  `closed`. Listing is strongly consistent, so one of the two sees the other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self, TypeVar
from urllib.parse import quote

import orjson

from ingestd.batch.rule import PinnedRule
from ingestd.collect.windows.model import Arrival, WindowGroup, WindowId
from ingestd.model.errors import NewerVersion, NotFound, PreconditionFailed, UnreadableObject, raise_first
from ingestd.model.objects import ABSENT, Generation, ObjectInfo, ObjectRef
from ingestd.model.segments import segment
from ingestd.model.stored import LARGEST, check_version, document, instant, number, placeholder, reading
from ingestd.ops.strangers import Strangers
from ingestd.ports import Deletion, ObjectStore

SCHEMA_VERSION = 2  # 2: the rule's secrets were left out, and an older daemon would send the stars

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WindowHead:
    """What a window's lock and every one of its shards carry: enough for any replica to finish it."""

    window: WindowId
    owner: str
    due: datetime
    rule: PinnedRule
    dest: str
    load: dict[str, Any]  # the load configuration, still without its files
    values: dict[str, Any]
    asynchronous: bool
    group: WindowGroup | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION if self.rule.sealed else 1,
            "EventID": self.window.event_id,
            "Owner": self.owner,
            "Window": self.window.to_json(),
            "Due": self.due,
            "DestTable": self.dest,
            **self.rule.to_json(),
            "Load": self.load,
            "Params": self.values,
            "Async": self.asynchronous,
            "Group": self.group.to_json() if self.group else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        check_version(data, SCHEMA_VERSION)
        return cls(
            window=WindowId.from_json(data["Window"]),
            owner=data["Owner"],
            due=datetime.fromisoformat(data["Due"]),
            rule=PinnedRule.from_json(data),
            dest=data["DestTable"],
            load=data["Load"],
            values=data["Params"],
            asynchronous=data["Async"],
            group=WindowGroup.from_json(data["Group"]) if data["Group"] else None,
        )


@dataclass(frozen=True, slots=True)
class Shard:
    name: str
    head: WindowHead
    arrivals: tuple[Arrival, ...]


@dataclass(slots=True)
class Found:
    """What a listing shows of one window."""

    name: str
    lock: ObjectInfo | None = None
    closed: bool = False
    shards: tuple[str, ...] = ()
    files: int = 0  # in its shards
    size: int = 0
    newest_shard: datetime | None = None


@dataclass(frozen=True, slots=True)
class Everything:
    windows: list[Found]
    groups: dict[str, datetime]  # by name: when the last of its windows has begun


class WindowStore:
    def __init__(self, store: ObjectStore, root: ObjectRef, strangers: Strangers | None = None) -> None:
        self._store = store
        self._root = root
        self._strangers = strangers or Strangers()

    def lock_ref(self, name: str) -> ObjectRef:
        return self._root / f"{name}.win"

    async def acquire(self, head: WindowHead) -> bool:
        """Create the lock: True for the one who does, False for everybody else."""
        try:
            await self._write_lock(head, ABSENT)
        except PreconditionFailed:
            return False
        return True

    async def open_group(self, head: WindowHead) -> None:
        """Note that a group has a window, so that its end is looked for."""
        assert head.group is not None
        data = orjson.dumps(head.to_json(), option=orjson.OPT_INDENT_2)
        metadata = {"ingestd-due": head.group.due.isoformat()}
        try:
            await self._store.create(self._group_ref(head.group.name), data, if_generation=ABSENT, metadata=metadata)
        except PreconditionFailed:
            return

    async def read_group(self, name: str) -> WindowHead | None:
        found = await self._document(self._group_ref(name), WindowHead.from_json)
        return found[0] if found else None

    async def _document(self, ref: ObjectRef, read: Callable[[dict[str, Any]], T]) -> tuple[T, Generation] | None:
        """What an object says, and its generation; None when it is gone, `UnreadableObject` when it is none of ours."""
        try:
            data, info = await self._store.read(ref, largest=LARGEST)
            with reading(ref):
                return read(document(data)), info.generation
        except NotFound:
            return None
        except UnreadableObject as error:
            self._strangers.met("windows", ref, error)
            raise

    async def remove_group(self, name: str) -> None:
        await self._store.delete(self._group_ref(name))

    def _group_ref(self, name: str) -> ObjectRef:
        return self._root / f"{name}.grp"

    async def read_lock(self, name: str) -> tuple[WindowHead, Generation] | None:
        return await self._document(self.lock_ref(name), WindowHead.from_json)

    async def replace_stranger(self, head: WindowHead) -> bool:
        """Put our lock where something lies that is nobody's; False when it is gone, or another was faster."""
        info = await self._store.stat(self.lock_ref(head.window.name))
        return info is not None and await self.take_over(head, info.generation)

    async def take_over(self, head: WindowHead, generation: Generation) -> bool:
        """Put our name on a lock whose owner is gone; False when another replica was faster."""
        try:
            await self._write_lock(head, generation)
        except (PreconditionFailed, NotFound):
            return False
        return True

    async def add_shard(self, head: WindowHead, shard: str, arrivals: Sequence[Arrival]) -> None:
        content = {**head.to_json(), "Files": [arrival.to_json() for arrival in arrivals]}
        ref = self._root / f"{head.window.name}/{shard}"
        # A listing then tells how much waits without reading any shard.
        metadata = {"ingestd-files": str(len(arrivals)), "ingestd-bytes": str(sum(one.size for one in arrivals))}
        await self._store.create(ref, orjson.dumps(content), if_generation=ABSENT, metadata=metadata)

    async def is_closed(self, name: str) -> bool:
        return await self._store.stat(self._root / f"{name}/closed") is not None

    async def close(self, name: str) -> None:
        """From now on the window takes no more files. Once is enough, whoever does it."""
        try:
            await self._store.create(self._root / f"{name}/closed", b"{}", if_generation=ABSENT)
        except PreconditionFailed:
            return

    async def shards(self, name: str) -> list[Shard]:
        """All shards of the window; what else lies between them is passed over.

        But a shard of a newer version has files in it: `NewerVersion`, and the window waits for somebody who reads it.
        """
        folder = self._root / f"{name}/"
        names = [info.ref.name[len(folder.name) :] async for info in self._store.list(folder) if not placeholder(info)]
        found = []
        for shard in names:
            if shard == "closed":
                continue
            try:
                one = await self.read_shard(name, shard)
            except NewerVersion:
                raise
            except UnreadableObject:
                continue  # counted and told
            if one is not None:
                found.append(one)
        return found

    async def read_shard(self, name: str, shard: str) -> Shard | None:
        """None: merged and removed by whoever finished the window."""

        def read(found: dict[str, Any]) -> Shard:
            head = WindowHead.from_json(found)
            arrivals = tuple(Arrival(*item) for item in found["Files"])
            for one in arrivals:
                one.file()  # what cannot become a file of the record must not come as far as there
            return Shard(shard, head, arrivals)

        found = await self._document(self._root / f"{name}/{shard}", read)
        return found[0] if found else None

    async def remove_shards(self, name: str, shards: Iterable[str]) -> None:
        removed = [Deletion(self._root / f"{name}/{shard}", None) for shard in shards]  # written once, never again
        raise_first(await self._store.delete_all(removed))

    async def remove(self, name: str, shards: Iterable[str]) -> None:
        """Clean up after a finished batch: the merged shards, then the lock, last `closed`."""
        await self.remove_shards(name, shards)
        await self._store.delete(self.lock_ref(name))
        await self._store.delete(self._root / f"{name}/closed")

    async def everything(self) -> Everything:
        """All windows that left anything behind, and all open groups."""
        found: dict[str, Found] = {}
        groups: dict[str, datetime] = {}
        async for info in self._store.list(self._root / ""):
            path = info.ref.name.removeprefix(self._root.name.rstrip("/") + "/" if self._root.name else "")
            head, _, tail = path.partition("/")
            if placeholder(info):
                continue
            if head.endswith(".grp") and not tail:
                due = instant(info.metadata.get("ingestd-due"))
                if due is None:
                    self._strangers.met("windows", info.ref, UnreadableObject(f"{info.ref}: no group of ours"))
                else:
                    groups[head.removesuffix(".grp")] = due
                continue
            if not tail and not head.endswith(".win"):
                self._strangers.met("windows", info.ref, UnreadableObject(f"{info.ref}: no part of a window"))
                continue
            name = head.removesuffix(".win")
            window = found.setdefault(name, Found(name))
            if not tail:
                if head.endswith(".win"):
                    window.lock = info
            elif tail == "closed":
                window.closed = True
            else:
                window.shards = (*window.shards, tail)
                window.files += number(info.metadata.get("ingestd-files"))
                window.size += number(info.metadata.get("ingestd-bytes"))
                window.newest_shard = max(window.newest_shard or info.created, info.created)
        return Everything(list(found.values()), groups)

    async def _write_lock(self, head: WindowHead, generation: Generation) -> None:
        metadata = {
            "ingestd-owner": head.owner,
            "ingestd-due": head.due.isoformat(),
            "ingestd-rule": quote(head.rule.name, safe="/.:-_ "),  # header-safe
            "ingestd-dest": segment(head.window.key.dest),
        }
        if head.group:
            metadata["ingestd-group"] = head.group.name
        data = orjson.dumps(head.to_json(), option=orjson.OPT_INDENT_2)
        await self._store.create(self.lock_ref(head.window.name), data, if_generation=generation, metadata=metadata)
