"""Loading a folder once, here: the daemon's own engine without its intake, on a journal of its own.

Files in a bucket are announced as they are. Local files are copied there first, each under a name that says where it
came from, so that a command that was cut off finds its copies again. All files of a table collect in one window, which
is closed as soon as the last of them is in it: they load together.

If the process dies anywhere, the journal under the operations URL has what was done. The same command run again
continues there, and loads no generation of a file twice.
"""

import asyncio
import mimetypes
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingestd.cli.errors import CommandError
from ingestd.model.bounded import bounded
from ingestd.model.errors import PreconditionFailed
from ingestd.model.objects import ABSENT, FileVersion, ObjectInfo, ObjectRef
from ingestd.rules.matching import path_of
from ingestd.rules.rule import Rule

if TYPE_CHECKING:
    from ingestd.app import App
    from ingestd.batch.record import Record
    from ingestd.gcp.connect import Clients
    from ingestd.ports import ObjectStore
    from ingestd.settings import Settings

_UPLOADS = 8  # at a time; each holds its file in memory
_ANNOUNCED = 5_000  # at a time
_LOOK_EVERY = 0.1
_SETTLING = timedelta(seconds=5)  # a local file that was changed more recently may still be written


@dataclass(frozen=True, slots=True)
class LocalFile:
    path: Path
    relative: str
    size: int
    changed: float


@dataclass(slots=True)
class Account:
    """How far the load is, and how it ended."""

    found: int = 0
    size: int = 0
    uploaded: int = 0
    loaded: int = 0
    rows: int = 0
    known: int = 0  # loaded by an earlier run
    batches: int = 0
    tables: set[str] = field(default_factory=set)
    bad: list[tuple[str, str]] = field(default_factory=list)  # files that did not load, and why
    unfinished: list[tuple[str, str]] = field(default_factory=list)  # tables whose rows are there, and what failed then
    waiting: str = ""  # what a batch waits for right now
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "found": self.found,
            "bytes": self.size,
            "uploaded": self.uploaded,
            "loaded": self.loaded,
            "rows": self.rows,
            "loaded_before": self.known,
            "batches": self.batches,
            "tables": sorted(self.tables),
            "not_loaded": [{"file": file, "why": why} for file, why in self.bad],
            "unfinished": [{"table": table, "why": why} for table, why in self.unfinished],
            "seconds": round(self.seconds, 3),
        }


def local_files(source: Path, wanted: Callable[[str], bool]) -> list[LocalFile]:
    """The file, or every file below the folder that the rule takes; hidden ones are passed over."""
    if source.is_file():
        found = [(source, source.name)]
    else:
        inside = sorted(path for path in source.rglob("*") if path.is_file())
        found = [(path, path.relative_to(source).as_posix()) for path in inside]
        found = [(path, name) for path, name in found if not any(part.startswith(".") for part in name.split("/"))]
    files = []
    for path, name in found:
        if wanted(name):
            status = path.stat()
            files.append(LocalFile(path, name, status.st_size, status.st_mtime))
    return files


def settled(file: LocalFile) -> bool:
    return datetime.now(UTC).timestamp() - file.changed >= _SETTLING.total_seconds()


async def bucket_files(store: "ObjectStore", source: ObjectRef, rule: Rule) -> AsyncIterator[ObjectInfo]:
    """The object, or every object below the folder, that the rule takes."""
    one = await store.stat(source) if source.name and not source.name.endswith("/") else None
    if one is not None:
        if takes(rule, one.ref.name):
            yield one
        return
    folder = ObjectRef(source.bucket, source.name.rstrip("/") + "/" if source.name else "")
    async for info in store.list(folder):
        if not info.ref.name.endswith("/") and takes(rule, info.ref.name):
            yield info


def takes(rule: Rule, name: str) -> bool:
    return rule.matcher.accepts(path_of(name))


async def upload(store: "ObjectStore", file: LocalFile, target: ObjectRef) -> ObjectInfo:
    """Copy a local file; a copy with the same content that is there already is the answer."""
    import google_crc32c

    data = await asyncio.to_thread(file.path.read_bytes)
    checksum = int(google_crc32c.value(data)).to_bytes(4, "big")
    there = await store.stat(target)
    if there is None or there.size != len(data) or there.crc32c != _base64(checksum):
        kind = mimetypes.guess_type(file.path.name)[0] or "application/octet-stream"
        before = there.generation if there else ABSENT
        try:
            await store.create(target, data, if_generation=before, content_type=kind)
        except PreconditionFailed:
            raise CommandError(f"somebody else writes {target} at the same time") from None
        there = await store.stat(target)
    if there is None:
        raise CommandError(f"{target} was deleted while it was being loaded")
    return there


def _base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()


class Loader:
    """Feeds files to an engine and watches them to their end."""

    def __init__(
        self, app: "App", clients: "Clients", rule: Rule, account: Account, progress: Callable[[Account], None]
    ) -> None:
        from ingestd.cli.earlier_runs import EarlierRuns

        self._app = app
        self._store = clients.store
        self._earlier = EarlierRuns(app, clients, rule)
        self._account = account
        self._progress = progress
        self._open: set[str] = set()  # keys of files that have not ended
        self._groups: set[str] = set()  # whose batches have ended here, and whose `OnDone` has not
        app.news.ended.append(self._ended)
        app.news.refused.append(self._refused)

    async def upload(self, files: Sequence[LocalFile], target: Callable[[LocalFile], ObjectRef]) -> list[ObjectInfo]:
        found: list[ObjectInfo] = []

        async def one(file: LocalFile) -> None:
            found.append(await upload(self._store, file, target(file)))
            self._account.uploaded += 1
            self._progress(self._account)

        await bounded(files, one, _UPLOADS)
        return sorted(found, key=lambda info: info.ref)

    async def load(self, objects: Sequence[ObjectInfo], patience: timedelta) -> None:
        """Announce the files, close their windows, and wait until every file has ended or patience has."""
        from ingestd.ledger.announcing import InProcess

        self._open |= {_key(info) for info in objects}
        announcer = InProcess(self._app.router.handle, self._app.clock.now, at_once=min(len(objects), _ANNOUNCED))
        announcing = asyncio.create_task(announcer.announce(objects), name="announce")
        try:
            blocked_since: float | None = None
            announced: datetime | None = None
            while announced is None or not self._done(announced):
                if announcing.done():
                    announced = announced or self._app.clock.now()
                    self._close_windows()
                blocked_since = self._look(blocked_since)
                if blocked_since is not None and self._now() - blocked_since > patience.total_seconds():
                    raise CommandError(f"{self._account.waiting}; run the same command again to go on")
                await asyncio.sleep(_LOOK_EVERY)
            told = await announcing
        finally:
            announcing.cancel()
        if told.returned:
            raise CommandError(f"{told.returned} files could not be handed over ({told.why}); run it again")
        await self._finish_groups()
        # Taken as duplicates: no batch of this run ended with them, and how those of earlier runs did is in the ledger.
        left = [info for info in objects if _key(info) in self._open]
        bad = await self._earlier.not_loaded(left)
        self._account.bad += bad
        self._account.known += len(left) - len(bad)
        self._open.clear()

    async def _finish_groups(self) -> None:
        """Nothing more comes, so `OnDone` need not wait for its group's time to pass."""
        for name in sorted(self._groups):
            await self._app.sweep.groups.finish(name)
        for name in sorted(self._groups):
            self._account.unfinished.append((name, "what follows its group is still under way: run it again"))
        self._groups.clear()

    def _done(self, announced: datetime) -> bool:
        """Whether nothing is under way; files taken as known may be in a batch that an earlier run left behind."""
        assert self._app.console is not None
        if self._app.windows.open_windows or self._app.runner.active or self._awaited():
            return False
        swept = self._app.reconciler.swept_at
        return not self._open or (swept is not None and swept > announced and not self._app.reconciler.running)

    def _close_windows(self) -> None:
        """Everything has arrived: nobody waits for later files."""
        now = self._app.clock.now()
        for window in self._app.windows.open_windows:
            window.due = min(window.due, now)
            window.wake.set()

    def _look(self, since: float | None) -> float | None:
        """Since when nothing moves because a batch waits for its surroundings."""
        blocked = [record for record in self._awaited() if record.wait.until is not None]
        waiting = blocked[0].error if blocked and not self._app.runner.active else ""
        if waiting != self._account.waiting:
            self._account.waiting = waiting
            self._progress(self._account)
        if not blocked:
            return None
        return since if since is not None else self._now()

    def _awaited(self) -> "list[Record]":
        """The batches that wait for something; what another command has left behind is not ours to wait for."""
        assert self._app.console is not None
        return [record for record in self._app.console.feed.awaiting() if self._ours(record)]

    def _ours(self, record: "Record") -> bool:
        return any(file.key in self._open for file in record.known_files)

    def _now(self) -> float:
        return self._app.clock.monotonic()

    async def _ended(self, record: "Record") -> None:
        from ingestd.batch.phases import Phase
        from ingestd.batch.record import Kind
        from ingestd.collect.windows.groups import GROUP_PREFIX

        if record.kind is Kind.ROUTE and record.window is not None:
            self._group_ended(record, record.window.name.removeprefix(GROUP_PREFIX))
        if not self._ours(record):
            return
        if record.window is not None and record.window.group:
            self._groups.add(record.window.group)
        account, loaded = self._account, set(record.progress.loaded)
        if loaded:
            account.batches += 1
            account.tables.add(record.dest)
            account.rows += record.rows or 0
            if record.phase is Phase.FAILED and not record.progress.wrong:
                account.unfinished.append((record.dest, record.error))
        for index, file in enumerate(record.files):
            if file.key not in self._open:
                continue
            aside = record.progress.aside.get(index)
            if index in loaded:
                account.loaded += 1
            elif aside is not None and aside.fate.wrong:
                account.bad.append((file.ref.url, aside.why or record.error))
            elif aside is None:
                account.bad.append((file.ref.url, record.error or str(record.phase)))
            else:
                continue  # not this batch's to load: whoever had it before knows whether its rows are there
            self._open.discard(file.key)
        self._progress(account)

    def _group_ended(self, record: "Record", name: str) -> None:
        if name in self._groups:
            self._groups.discard(name)
            if record.error:
                self._account.unfinished.append((record.dest, record.error))

    def _refused(self, file: FileVersion, reason: str, rules: list[str]) -> None:
        del rules
        if file.key in self._open:
            self._open.discard(file.key)
            self._account.bad.append((file.ref.url, reason))
            self._progress(self._account)


def _key(info: ObjectInfo) -> str:
    return f"{info.ref.bucket}/{info.ref.name}#{info.generation}"


def one_shot_settings(settings: "Settings", rules: Path, ops: str) -> "Settings":
    """The settings of an engine that works once: its own journal, quick to look again, and nobody to tell."""
    base = ObjectRef.parse(ops) if ops else settings.ops / "load"
    quick = {"sweep_every": timedelta(seconds=1), "retry_first": timedelta(seconds=2), "lease": timedelta(seconds=10)}
    return settings.model_copy(
        update={
            "rules": settings.rules.model_copy(update={"url": str(rules)}),
            "journal_url": (base / "journal").url,
            "error_url": (base / "errors").url,
            "defer_task_url": (base / "tasks").url,
            "batch_url": (base / "batch").url,
            "recovery": settings.recovery.model_copy(update=quick),
            "windows": settings.windows.model_copy(
                update={"flush_after": timedelta(milliseconds=300), "late_patience": timedelta(seconds=1)}
            ),
            "jobs": settings.jobs.model_copy(update={"poll_every": timedelta(seconds=1)}),
            "load_state": settings.load_state.model_copy(update={"enabled": False}),
            "spark": settings.spark.model_copy(update={"warm_up": False}),  # the one batch is warm-up enough
        }
    )
