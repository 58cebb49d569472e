"""Objects: what an upload, a delete, a copy does to the versions of a name.

Every write checks its preconditions and takes effect inside one transaction under the core's lock; two writers racing
on one name see each other, and exactly one create-if-absent wins.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from ingestd.localcloud.storage.errors import (
    forbidden,
    invalid,
    no_such_object,
    precondition_failed,
)
from ingestd.localcloud.storage.listing import list_page
from ingestd.localcloud.storage.model import (
    NO_CHECKSUMS,
    NO_CONDITIONS,
    Checksums,
    ComposeSource,
    EventType,
    ListPage,
    ListQuery,
    ObjectMetadata,
    ObjectVersion,
    Preconditions,
)
from ingestd.localcloud.storage.payloads import Staged
from ingestd.localcloud.storage.state import Change, State

MAX_COMPONENTS = 32
MAX_NAME_BYTES = 1024
_PLAIN = ObjectMetadata()


@dataclass(frozen=True, slots=True)
class ObjectContent:
    """A version and its bytes, held open: a later delete or overwrite does not disturb the reader."""

    version: ObjectVersion
    inline: bytes | None = None
    handle: IO[bytes] | None = None

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        """Bytes `start` up to `stop`; closes the content."""
        if self.handle is None:
            assert self.inline is not None
            return self.inline if start == 0 and stop is None else self.inline[start:stop]
        with self.handle as handle:
            handle.seek(start)
            return handle.read(-1 if stop is None else stop - start)

    def close(self) -> None:
        if self.handle is not None:
            self.handle.close()


class Objects:
    def __init__(self, state: State) -> None:
        self._state = state

    def _operation(self, method: str, bucket: str, name: str, cost: str = "") -> AbstractContextManager[None]:
        return self._state.hooks.operation(method, f"{bucket}/{name}" if name else bucket, cost=cost)

    # Reading.

    def get(
        self, bucket: str, name: str, generation: int | None = None, conditions: Preconditions = NO_CONDITIONS
    ) -> ObjectVersion:
        with self._operation("objects.get", bucket, name, "B"), self._state.lock:
            return self._selected(bucket, name, generation, conditions)

    def open(
        self, bucket: str, name: str, generation: int | None = None, conditions: Preconditions = NO_CONDITIONS
    ) -> ObjectContent:
        with self._operation("objects.get", bucket, name, "B"), self._state.lock:
            return self._content(self._selected(bucket, name, generation, conditions))

    def list(self, bucket: str, query: ListQuery) -> ListPage:
        with self._operation("objects.list", bucket, "", "A"), self._state.lock:
            self._state.bucket(bucket)
            return list_page(self._state.database, bucket, query)

    # Writing.

    def stage(self, data: bytes) -> Staged:
        """Hash and set down the bytes of a coming `insert`: the slow part, without the lock."""
        return self._state.payloads.stage(data)

    def insert(
        self,
        bucket: str,
        name: str,
        data: bytes | Staged,
        metadata: ObjectMetadata = _PLAIN,
        conditions: Preconditions = NO_CONDITIONS,
        checksums: Checksums = NO_CHECKSUMS,
    ) -> ObjectVersion:
        staged = data if isinstance(data, Staged) else None
        try:
            with self._operation("objects.insert", bucket, name, "A"):
                if staged is None:
                    assert isinstance(data, bytes)
                    staged = self._state.payloads.stage(data)
                checksums.check(staged.crc32c, staged.md5)
                with self._state.change() as change:
                    version = self.place(change, bucket, name, staged, metadata, conditions)
                self._state.deliver()
                return version
        finally:
            if staged is not None and staged.path is not None:
                self._state.payloads.discard(staged)

    def delete(
        self, bucket: str, name: str, generation: int | None = None, conditions: Preconditions = NO_CONDITIONS
    ) -> None:
        """Without a generation a versioned bucket keeps the version as noncurrent; with one it is gone."""
        with self._operation("objects.delete", bucket, name):
            with self._state.change() as change:
                target = self._selected(bucket, name, generation, conditions)
                _refuse_if_held(target)
                self._state.throttle(bucket, name)
                self._drop(change, target, permanently=generation is not None)
            self._state.deliver()

    def patch(
        self,
        bucket: str,
        name: str,
        resource: Mapping[str, Any],
        generation: int | None = None,
        conditions: Preconditions = NO_CONDITIONS,
    ) -> ObjectVersion:
        with self._operation("objects.patch", bucket, name, "A"):
            return self._revise(bucket, name, resource, generation, conditions, replace_all=False)

    def update(
        self,
        bucket: str,
        name: str,
        resource: Mapping[str, Any],
        generation: int | None = None,
        conditions: Preconditions = NO_CONDITIONS,
    ) -> ObjectVersion:
        with self._operation("objects.update", bucket, name, "A"):
            return self._revise(bucket, name, resource, generation, conditions, replace_all=True)

    def copy(
        self,
        source: tuple[str, str],
        destination: tuple[str, str],
        *,
        metadata: ObjectMetadata | None = None,
        source_generation: int | None = None,
        conditions: Preconditions = NO_CONDITIONS,
        source_conditions: Preconditions = NO_CONDITIONS,
        method: str = "objects.copy",
    ) -> ObjectVersion:
        """Without `metadata` the source's goes along, except its holds and its storage class."""
        with self._operation(method, *destination, "A"):
            with self._state.change() as change:
                self._state.bucket(destination[0])
                origin = self._selected(*source, source_generation, source_conditions)
                if metadata is None:
                    metadata = replace(origin.metadata, temporary_hold=None, event_based_hold=None, storage_class=None)
                staged = self._duplicate(origin)
                try:
                    version = self.place(change, *destination, staged, metadata, conditions)
                finally:
                    self._state.payloads.discard(staged)
            self._state.deliver()
            return version

    def move(
        self,
        bucket: str,
        source: str,
        destination: str,
        *,
        conditions: Preconditions = NO_CONDITIONS,
        source_conditions: Preconditions = NO_CONDITIONS,
    ) -> ObjectVersion:
        """Rename inside a bucket: the new name appears and the old one goes in the same instant."""
        with self._operation("objects.move", bucket, destination, "A"):
            with self._state.change() as change:
                origin = self._selected(bucket, source, None, source_conditions)
                _refuse_if_held(origin)
                staged = self._duplicate(origin)
                try:
                    version = self.place(change, bucket, destination, staged, origin.metadata, conditions)
                finally:
                    self._state.payloads.discard(staged)
                self._drop(change, origin, permanently=False)
            self._state.deliver()
            return version

    def compose(
        self,
        bucket: str,
        name: str,
        sources: Sequence[ComposeSource],
        metadata: ObjectMetadata = _PLAIN,
        conditions: Preconditions = NO_CONDITIONS,
    ) -> ObjectVersion:
        if not sources:
            raise invalid("You must provide at least one source component.")
        if len(sources) > MAX_COMPONENTS:
            raise invalid(
                f"The number of source components provided ({len(sources)}) exceeds the maximum ({MAX_COMPONENTS})"
            )
        payloads = self._state.payloads
        with self._operation("objects.compose", bucket, name, "A"):
            parts: list[bytes | Path] = []
            components = 0
            try:
                with self._state.lock:
                    for source in sources:
                        origin = self._selected(bucket, source.name, source.generation, NO_CONDITIONS)
                        if source.if_generation is not None and source.if_generation != origin.generation:
                            raise precondition_failed()
                        components += origin.components or 1
                        duplicate = self._duplicate(origin)
                        parts.append(duplicate.inline if duplicate.path is None else duplicate.path)  # type: ignore[arg-type]
                staged = payloads.stage_joined(parts, components)
            finally:
                for part in parts:
                    if isinstance(part, Path):
                        part.unlink(missing_ok=True)
            try:
                with self._state.change() as change:
                    version = self.place(change, bucket, name, staged, metadata, conditions)
            finally:
                payloads.discard(staged)
            self._state.deliver()
            return version

    # What the operations are made of; callers hold the lock.

    def place(
        self,
        change: Change,
        bucket_name: str,
        name: str,
        staged: Staged,
        metadata: ObjectMetadata,
        conditions: Preconditions,
    ) -> ObjectVersion:
        """Make staged bytes the live version of a name, inside a running change."""
        state = self._state
        bucket = state.bucket(bucket_name)
        check_name(name)
        newest = state.database.newest(bucket_name, name)
        live = newest if newest is not None and newest.live else None
        conditions.check(live, live)
        if live is not None:
            _refuse_if_held(live)
        state.throttle(bucket_name, name)
        if metadata.storage_class is None:
            metadata = replace(metadata, storage_class=bucket.storage_class)
        if bucket.default_event_based_hold and metadata.event_based_hold is None:
            metadata = replace(metadata, event_based_hold=True)
        generation = state.next_generation(change.now)
        payload, file = change.keep(staged)
        version = ObjectVersion(
            bucket=bucket_name,
            name=name,
            generation=generation,
            metageneration=1,
            live=True,
            size=staged.size,
            crc32c=staged.crc32c,
            md5=staged.md5,
            created=change.now,
            updated=change.now,
            deleted=None,
            components=staged.components,
            payload=payload,
            file=file,
            metadata=metadata,
        )
        state.database.put_object(version)
        if live is None:
            change.emit(EventType.FINALIZE, version)
            return version
        change.emit(EventType.FINALIZE, version, overwroteGeneration=str(live.generation))
        by = str(generation)
        if bucket.versioning:
            change.emit(EventType.ARCHIVE, change.archive(live), overwrittenByGeneration=by)
        else:
            change.remove(live)
            change.emit(EventType.DELETE, live, overwrittenByGeneration=by)
        return version

    def _drop(self, change: Change, target: ObjectVersion, *, permanently: bool) -> None:
        if self._state.bucket(target.bucket).versioning and not permanently:
            change.emit(EventType.ARCHIVE, change.archive(target))
        else:
            change.remove(target)
            self._state.database.save_generation(target.generation)
            change.emit(EventType.DELETE, target)

    def _selected(self, bucket: str, name: str, generation: int | None, conditions: Preconditions) -> ObjectVersion:
        """The version a request means; a missing one is 404 whatever the conditions say."""
        self._state.bucket(bucket)
        database = self._state.database
        newest = database.newest(bucket, name)
        live = newest if newest is not None and newest.live else None
        target = live if generation is None else newest
        if generation is not None and (target is None or target.generation != generation):
            target = database.version(bucket, name, generation)
        if target is None:
            raise no_such_object(bucket, name)
        conditions.check(live, target)
        return target

    def _content(self, version: ObjectVersion) -> ObjectContent:
        if version.payload is not None:
            return ObjectContent(version, inline=self._state.database.read_payload(version.payload))
        assert version.file is not None
        return ObjectContent(version, handle=self._state.payloads.open(version.file))

    def _duplicate(self, origin: ObjectVersion) -> Staged:
        staged = Staged(origin.size, origin.crc32c, origin.md5, components=origin.components)
        if origin.payload is not None:
            return replace(staged, inline=self._state.database.read_payload(origin.payload))
        assert origin.file is not None
        return self._state.payloads.stage_link(origin.file, staged)

    def _revise(
        self,
        bucket: str,
        name: str,
        resource: Mapping[str, Any],
        generation: int | None,
        conditions: Preconditions,
        *,
        replace_all: bool,
    ) -> ObjectVersion:
        with self._state.change() as change:
            target = self._selected(bucket, name, generation, conditions)
            before = target.metadata
            after = ObjectMetadata.parse(resource) if replace_all else before.patched(resource)
            # The class of stored bytes changes only by rewriting them.
            after = replace(after, storage_class=before.storage_class)
            if before.custom_time is not None and (after.custom_time or "") < before.custom_time:
                if replace_all and after.custom_time is None:
                    after = replace(after, custom_time=before.custom_time)
                else:
                    raise invalid("Custom time cannot be removed or set to an earlier time once it is set.")
            self._state.throttle(bucket, name)
            version = replace(target, metadata=after, metageneration=target.metageneration + 1, updated=change.now)
            self._state.database.put_object(version)
            change.emit(EventType.METADATA_UPDATE, version)
        self._state.deliver()
        return version


def check_name(name: str) -> None:
    if not name:
        raise invalid("Required", parameter="name")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise invalid(f"The maximum object length is {MAX_NAME_BYTES} characters, but got a name with {len(name)}.")
    if "\n" in name or "\r" in name or name in {".", ".."} or name.startswith(".well-known/acme-challenge/"):
        raise invalid("Disallowed unicode characters present in object name or object name is reserved.")


def _refuse_if_held(version: ObjectVersion) -> None:
    meta = version.metadata
    if not (meta.temporary_hold or meta.event_based_hold):
        return
    kind = "Temporary" if meta.temporary_hold else "Event-Based"
    raise forbidden(
        f"Object '{version.bucket}/{version.name}' is under active {kind} hold and cannot be deleted, overwritten or"
        " archived until hold is removed."
    )
