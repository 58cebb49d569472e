"""Resumable uploads: bytes that arrive in pieces and become an object only when the last one is there.

Invariant: the database never claims more bytes than are in the upload's file, so after a crash a client is told an
offset it can safely go on from.
"""

import os
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

import orjson

from ingestd.localcloud.storage.errors import StorageError, gone, invalid, not_found
from ingestd.localcloud.storage.model import (
    Checksums,
    ObjectMetadata,
    ObjectVersion,
    Preconditions,
    UploadState,
    UploadStatus,
)
from ingestd.localcloud.storage.object_ops import Objects, check_name
from ingestd.localcloud.storage.payloads import CHUNK, Digest
from ingestd.localcloud.storage.state import State

GRANULARITY = 256 * 1024
LIFETIME_MICROS = 7 * 24 * 3600 * 1_000_000


def cancelled() -> StorageError:
    return StorageError(499, "clientClosedRequest", "The upload was cancelled.")


@dataclass(frozen=True, slots=True)
class Upload:
    id: str
    bucket: str
    name: str
    state: UploadState
    created: int
    received: int
    total: int | None
    generation: int | None
    metadata: ObjectMetadata
    conditions: Preconditions
    checksums: Checksums


class Uploads:
    def __init__(self, state: State, objects: Objects) -> None:
        self._state = state
        self._objects = objects
        self._folder = state.root / "uploads"
        self._folder.mkdir(exist_ok=True)
        self._digests: dict[str, Digest] = {}
        self._sessions: dict[str, Lock] = {}
        self._sweep()

    def start(
        self,
        bucket: str,
        name: str,
        metadata: ObjectMetadata,
        conditions: Preconditions,
        checksums: Checksums,
        total: int | None,
    ) -> str:
        """The id of a new session. Preconditions are checked now, to fail early, and again at the end."""
        with self._state.hooks.operation("uploads.start", f"{bucket}/{name}"), self._state.change() as change:
            self._state.bucket(bucket)
            check_name(name)
            newest = self._state.database.newest(bucket, name)
            live = newest if newest is not None and newest.live else None
            conditions.check(live, live)
            upload = Upload(
                id=secrets.token_urlsafe(48),
                bucket=bucket,
                name=name,
                state=UploadState.OPEN,
                created=change.now,
                received=0,
                total=total,
                generation=None,
                metadata=metadata,
                conditions=conditions,
                checksums=checksums,
            )
            self._path(upload.id).touch()
            self._save(upload)
            return upload.id

    def describe(self, upload_id: str) -> Upload:
        with self._state.lock:
            return self._load(upload_id)

    def status(self, upload_id: str, total: int | None = None) -> UploadStatus:
        """How far it is. Naming a total that is already complete finishes the upload, as an empty last piece would."""
        upload = self.describe(upload_id)
        with self._state.hooks.operation("uploads.status", f"{upload.bucket}/{upload.name}"):
            if upload.state is UploadState.OPEN and total is not None and total == upload.received:
                return self._write(upload_id, upload.received, b"", total, Checksums())
            with self._state.lock:
                return self._status(self._load(upload_id))

    def write(
        self, upload_id: str, offset: int, data: bytes, total: int | None, checksums: Checksums | None = None
    ) -> UploadStatus:
        """Add bytes at `offset`; with a known `total` and all of it there, the object is made."""
        upload = self.describe(upload_id)
        with self._state.hooks.operation("uploads.write", f"{upload.bucket}/{upload.name}"):
            return self._write(upload_id, offset, data, total, checksums or Checksums())

    def cancel(self, upload_id: str) -> None:
        upload = self.describe(upload_id)
        with self._state.hooks.operation("uploads.cancel", f"{upload.bucket}/{upload.name}"), self._state.change():
            upload = self._load(upload_id)
            if upload.state is UploadState.OPEN:
                self._save(replace(upload, state=UploadState.CANCELLED))
                self._path(upload_id).unlink(missing_ok=True)
                self._digests.pop(upload_id, None)

    def _write(self, upload_id: str, offset: int, data: bytes, total: int | None, checksums: Checksums) -> UploadStatus:
        with self._session(upload_id):
            upload = self.describe(upload_id)
            if upload.state is not UploadState.OPEN:
                return self._status(upload)
            if offset > upload.received:
                raise invalid(
                    f"Invalid request.  According to the Content-Range header, the upload offset is {offset} byte(s),"
                    f" which exceeds already uploaded size of {upload.received} byte(s)."
                )
            if total is not None and upload.total is not None and total != upload.total:
                raise invalid(f"The upload was declared with {upload.total} byte(s), not {total}.")
            total = upload.total if total is None else total
            end = offset + len(data)
            if total is not None and end > total:
                raise invalid(f"The upload has {end} byte(s), more than the {total} it was declared with.")
            fresh = data[upload.received - offset :] if end > upload.received else b""
            if total is not None and max(end, upload.received) == total:
                return UploadStatus(total, self._finish(upload, fresh, total, upload.checksums.merged(checksums)))
            # Like Google, keep whole multiples of 256 KiB of an unfinished upload; the client resends the rest.
            kept = (upload.received + len(fresh)) // GRANULARITY * GRANULARITY
            if kept > upload.received:
                self._append(upload, fresh[: kept - upload.received])
                with self._state.lock:
                    self._state.database.execute("UPDATE uploads SET received = ? WHERE id = ?", (kept, upload_id))
            return UploadStatus(max(kept, upload.received))

    def _append(self, upload: Upload, data: bytes) -> Digest:
        """Add to the file what the database does not claim yet."""
        digest = self._digest(upload)
        with self._path(upload.id).open("r+b") as out:
            out.seek(upload.received)
            out.write(data)
            out.truncate()
        digest.update(data)
        return digest

    def _finish(self, upload: Upload, data: bytes, total: int, checksums: Checksums) -> ObjectVersion:
        """The last piece counts only with the object it completes: a refusal leaves the session as it was."""
        try:
            with self._state.hooks.operation("objects.insert", f"{upload.bucket}/{upload.name}", cost="A"):
                digest = self._append(upload, data)
                checksums.check(digest.crc32c, digest.md5)
                path = self._path(upload.id)
                staged = self._state.payloads.stage_file(path, digest)
                with self._state.change() as change:
                    version = self._objects.place(
                        change, upload.bucket, upload.name, staged, upload.metadata, upload.conditions
                    )
                    done = replace(upload, state=UploadState.DONE, received=total, generation=version.generation)
                    self._save(done)
                    self._sessions.pop(upload.id, None)
                path.unlink(missing_ok=True)
                return version
        finally:
            self._digests.pop(upload.id, None)
            self._state.deliver()

    def _session(self, upload_id: str) -> Lock:
        """Pieces of one upload come one at a time; other uploads and objects are not held up by their bytes."""
        with self._state.lock:
            return self._sessions.setdefault(upload_id, Lock())

    def _status(self, upload: Upload) -> UploadStatus:
        if upload.state is UploadState.CANCELLED:
            raise cancelled()
        if upload.state is UploadState.OPEN:
            return UploadStatus(upload.received)
        assert upload.generation is not None
        with self._state.lock:
            version = self._state.database.version(upload.bucket, upload.name, upload.generation)
        if version is None:
            raise gone("The object this upload made no longer exists.")
        return UploadStatus(upload.received, version)

    def _digest(self, upload: Upload) -> Digest:
        """The running checksums; computed again from the file after a restart."""
        digest = self._digests.get(upload.id)
        if digest is None or digest.size != upload.received:
            digest = Digest()
            with self._path(upload.id).open("rb") as source:
                while digest.size < upload.received:
                    data = source.read(min(CHUNK, upload.received - digest.size))
                    if not data:
                        raise gone("The bytes of this upload are no longer there; start again.")
                    digest.update(data)
            self._digests[upload.id] = digest
        return digest

    def _path(self, upload_id: str) -> Path:
        return self._folder / upload_id

    def _load(self, upload_id: str) -> Upload:
        row = self._state.database.execute(
            "SELECT bucket, name, state, created, received, total, generation, spec FROM uploads WHERE id = ?",
            (upload_id,),
        ).fetchone()
        if row is None:
            raise not_found("The upload session does not exist.")
        bucket, name, state, created, received, total, generation, spec = row
        if self._state.now() - created > LIFETIME_MICROS:
            raise gone("The upload session has expired; start again.")
        fields = orjson.loads(spec)
        return Upload(
            upload_id,
            bucket,
            name,
            UploadState(state),
            created,
            received,
            total,
            generation,
            ObjectMetadata(**fields["metadata"]),
            Preconditions(**fields["conditions"]),
            Checksums(*fields["checksums"]),
        )

    def _save(self, upload: Upload) -> None:
        spec = {
            "metadata": upload.metadata.stored(),
            "conditions": upload.conditions.stored(),
            "checksums": [upload.checksums.crc32c, upload.checksums.md5],
        }
        self._state.database.execute(
            "INSERT OR REPLACE INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                upload.id,
                upload.bucket,
                upload.name,
                upload.state,
                upload.created,
                upload.received,
                upload.total,
                upload.generation,
                orjson.dumps(spec),
            ),
        )

    def _sweep(self) -> None:
        """Forget expired sessions and cut files back to what was acknowledged."""
        database = self._state.database
        database.execute("DELETE FROM uploads WHERE created < ?", (self._state.now() - LIFETIME_MICROS,))
        open_uploads = dict(
            database.execute("SELECT id, received FROM uploads WHERE state = ?", (UploadState.OPEN,)).fetchall()
        )
        for path in self._folder.iterdir():
            received = open_uploads.get(path.name)
            if received is None:
                path.unlink()
            elif path.stat().st_size > received:
                os.truncate(path, received)
