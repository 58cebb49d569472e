"""What the parts of the storage core share: one lock, one database, one generation counter, one kind of change.

A `Change` is a transaction plus what must follow its commit: files to unlink, notifications to send. Nothing that
cannot be undone happens before the commit. Changes that are made `together` are parts of one transaction: each is made
or refused by itself, and what follows waits for the commit of all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from types import TracebackType

from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.storage.database import Database
from ingestd.localcloud.storage.errors import no_such_bucket, rate_limited
from ingestd.localcloud.storage.model import Bucket, EventType, ObjectVersion
from ingestd.localcloud.storage.notifications import Notifier, Pending, Publish, PublishMany
from ingestd.localcloud.storage.payloads import Payloads, Staged
from ingestd.model.clock import Clock


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """`writes_per_second` limits the mutations of one object name, as Google does at 1; None switches that off.

    `inline_limit` is the largest payload kept inside the database.
    """

    writes_per_second: float | None = None
    inline_limit: int = 64 * 1024


@dataclass(slots=True)
class Change:
    """The writes of one operation, and their consequences once they are committed."""

    state: "State"
    now: int
    messages: list[Pending] = field(default_factory=list)
    dropped_files: list[str] = field(default_factory=list)
    kept_files: list[str] = field(default_factory=list)

    def emit(self, event: EventType, version: ObjectVersion, **extra: str) -> None:
        self.messages += self.state.notifier.record(event, version, self.now, extra)

    def keep(self, staged: Staged) -> tuple[int | None, str | None]:
        """Make staged bytes part of the state: the row or the file they are in."""
        if staged.inline is not None:
            return self.state.database.put_payload(staged.inline), None
        name = self.state.payloads.keep(staged)
        self.kept_files.append(name)
        return None, name

    def remove(self, version: ObjectVersion) -> None:
        self.state.database.delete_object(version)
        if version.file is not None:
            self.dropped_files.append(version.file)

    def archive(self, version: ObjectVersion) -> ObjectVersion:
        noncurrent = replace(version, live=False, deleted=self.now)
        self.state.database.put_object(noncurrent)
        return noncurrent


class State:
    def __init__(
        self,
        root: Path,
        *,
        clock: Clock,
        hooks: Hooks,
        publish: Publish | None,
        publish_many: PublishMany | None,
        settings: StorageSettings,
        database: type[Database] = Database,
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.clock = clock
        self.hooks = hooks
        self.settings = settings
        self.lock = RLock()
        self.database = database(root / "metadata.sqlite")
        self.payloads = Payloads(root, inline_limit=settings.inline_limit)
        self.payloads.sweep(self.database.referenced_files())
        self.buckets: dict[str, Bucket] = self.database.load_buckets()
        self.notifier = Notifier(self.database, self.lock, hooks, publish, publish_many)
        self.joint: Change | None = None  # what changes that are made together have come to so far
        self._last_generation = self.database.last_generation()
        self._last_write: dict[tuple[str, str], float] = {}

    def now(self) -> int:
        moment = self.clock.now()
        return int(moment.timestamp()) * 1_000_000 + moment.microsecond

    def next_generation(self, now: int) -> int:
        """Microseconds since the epoch, and always more than any number given before."""
        self._last_generation = max(now, self._last_generation + 1)
        return self._last_generation

    def bucket(self, name: str) -> Bucket:
        bucket = self.buckets.get(name)
        if bucket is None:
            raise no_such_bucket()
        return bucket

    def throttle(self, bucket: str, name: str) -> None:
        """Refuse a write that follows the last one to the same name too closely."""
        rate = self.settings.writes_per_second
        if rate is None:
            return
        now = self.clock.monotonic()
        if len(self._last_write) > 10_000:
            self._last_write = {key: at for key, at in self._last_write.items() if now - at < 1 / rate}
        last = self._last_write.get((bucket, name))
        if last is not None and now - last < 1 / rate:
            raise rate_limited(bucket, name)
        self._last_write[bucket, name] = now

    def change(self) -> "Changing":
        """One atomic write. Notifications go out after the lock is released, by `deliver`."""
        return Changing(self)

    def deliver(self) -> None:
        """Send what notifications there are; those of changes made together go out when all are committed."""
        if self.joint is None:
            self.notifier.deliver()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Changes of this thread, committed as one; an error that leaves the block undoes all of them.

        Nobody else gets at the state meanwhile, so nothing in it may wait.
        """
        with self.lock:
            self.joint = joint = Change(self, self.now())
            try:
                with self.database.transaction():
                    yield
            except BaseException:
                self.payloads.remove(joint.kept_files)
                self.buckets = self.database.load_buckets()
                self.notifier.reload()
                raise
            finally:
                self.joint = None
            self._follow(joint)
        self.notifier.deliver()

    def _follow(self, change: Change) -> None:
        """What a committed change brings with it."""
        self.notifier.committed(change.messages)
        self.payloads.remove(change.dropped_files)

    def made(self, change: Change) -> None:
        if self.joint is None:
            self._follow(change)
            return
        self.joint.messages += change.messages
        self.joint.dropped_files += change.dropped_files
        self.joint.kept_files += change.kept_files


class Changing:
    """A change as `with` sees it."""

    __slots__ = ("_change", "_state", "_transaction")

    def __init__(self, state: State) -> None:
        self._state = state

    def __enter__(self) -> Change:
        state = self._state
        state.lock.acquire()
        try:
            self._change = Change(state, state.now())
            self._transaction = state.database.transaction() if state.joint is None else state.database.part()
            self._transaction.__enter__()
        except BaseException:
            state.lock.release()
            raise
        return self._change

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state, change = self._state, self._change
        try:
            try:
                self._transaction.__exit__(kind, error, trace)
            except BaseException:
                state.payloads.remove(change.kept_files)
                raise
            if kind is not None:
                state.payloads.remove(change.kept_files)
                return
            state.made(change)
        finally:
            state.lock.release()
