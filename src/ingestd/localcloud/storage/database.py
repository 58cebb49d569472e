"""The metadata of the local Cloud Storage in one SQLite file: what is committed here is what exists.

Write-ahead logging hands each commit to the operating system, so an acknowledged write survives the death of the
process. One connection, exclusive: a second process on the same folder is refused instead of corrupting it.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import orjson

from ingestd.localcloud.storage.model import (
    Bucket,
    EventType,
    NotificationConfig,
    ObjectMetadata,
    ObjectVersion,
    PayloadFormat,
)

SCHEMA_VERSION = 1

SCHEMA = """
CREATE TABLE buckets (name TEXT PRIMARY KEY, created INTEGER NOT NULL, updated INTEGER NOT NULL,
    metageneration INTEGER NOT NULL, settings BLOB NOT NULL, iam BLOB NOT NULL,
    next_notification INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE objects (bucket TEXT NOT NULL, name TEXT NOT NULL, generation INTEGER NOT NULL,
    metageneration INTEGER NOT NULL, live INTEGER NOT NULL, size INTEGER NOT NULL, crc32c TEXT NOT NULL, md5 TEXT,
    created INTEGER NOT NULL, updated INTEGER NOT NULL, deleted INTEGER, components INTEGER, payload INTEGER,
    file TEXT, metadata BLOB NOT NULL, PRIMARY KEY (bucket, name, generation)) WITHOUT ROWID;
CREATE TABLE payloads (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE notification_configs (bucket TEXT NOT NULL, id INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (bucket, id)) WITHOUT ROWID;
CREATE TABLE outbox (id INTEGER PRIMARY KEY, resource TEXT NOT NULL, topic TEXT NOT NULL,
    data BLOB NOT NULL, attributes BLOB NOT NULL);
CREATE TABLE uploads (id TEXT PRIMARY KEY, bucket TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL,
    created INTEGER NOT NULL, received INTEGER NOT NULL, total INTEGER, generation INTEGER,
    spec BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('generation', 0);
"""

_NO_METADATA = ObjectMetadata()


# `objects` has its columns in the order of ObjectVersion's fields.
def object_from_row(row: Any) -> ObjectVersion:
    metadata = row[14]
    plain: list[Any] = list(row)
    plain[4] = bool(plain[4])
    plain[14] = ObjectMetadata(**orjson.loads(metadata)) if metadata != b"{}" else _NO_METADATA
    return ObjectVersion(*plain)


class Database:
    """SQL in one place. Callers hold the core's lock."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(
            path, timeout=1.0, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        self.execute = self._connection.execute
        try:
            self._open()
        except sqlite3.OperationalError as error:
            self._connection.close()
            if "locked" in str(error):
                raise RuntimeError(f"{path.parent} is in use by another local cloud") from error
            raise

    def _open(self) -> None:
        for pragma in (
            "locking_mode=EXCLUSIVE",
            "journal_mode=WAL",
            "synchronous=NORMAL",
            "wal_autocheckpoint=4000",
            "cache_size=-65536",
            "temp_store=MEMORY",
        ):
            self.execute(f"PRAGMA {pragma}")
        (version,) = self.execute("PRAGMA user_version").fetchone()
        if version == 0:
            self._connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version={SCHEMA_VERSION}; COMMIT;")
        elif version != SCHEMA_VERSION:
            raise RuntimeError(f"storage state has schema {version}; this version reads schema {SCHEMA_VERSION}")
        self.execute("BEGIN IMMEDIATE")
        self.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()

    def transaction(self) -> AbstractContextManager[None]:
        return self._transaction()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # a full disk ends some by itself
                self.execute("ROLLBACK")
            raise

    def part(self) -> AbstractContextManager[None]:
        """A part of a running transaction, which is undone without the others."""
        return self._part()

    @contextmanager
    def _part(self) -> Iterator[None]:
        self.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:
                self.execute("ROLLBACK TO part")
                self.execute("RELEASE part")
            raise
        self.execute("RELEASE part")

    # Buckets and notification configs: few, so the core keeps them in memory and writes through.

    def load_buckets(self) -> dict[str, Bucket]:
        rows = self.execute(
            "SELECT name, created, updated, metageneration, settings, iam, next_notification FROM buckets"
        )
        return {
            name: Bucket(name, created, updated, metageneration, orjson.loads(settings), orjson.loads(iam), following)
            for name, created, updated, metageneration, settings, iam, following in rows
        }

    def put_bucket(self, bucket: Bucket) -> None:
        self.execute(
            "INSERT OR REPLACE INTO buckets VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                bucket.name,
                bucket.created,
                bucket.updated,
                bucket.metageneration,
                orjson.dumps(bucket.settings),
                orjson.dumps(bucket.iam),
                bucket.next_notification,
            ),
        )

    def delete_bucket(self, name: str) -> None:
        self.execute("DELETE FROM buckets WHERE name = ?", (name,))
        self.execute("DELETE FROM notification_configs WHERE bucket = ?", (name,))

    def is_empty(self, bucket: str) -> bool:
        return self.execute("SELECT 1 FROM objects WHERE bucket = ? LIMIT 1", (bucket,)).fetchone() is None

    def load_notification_configs(self) -> dict[str, list[NotificationConfig]]:
        found: dict[str, list[NotificationConfig]] = {}
        for bucket, number, body in self.execute("SELECT bucket, id, body FROM notification_configs ORDER BY id"):
            fields = orjson.loads(body)
            config = NotificationConfig(
                id=str(number),
                bucket=bucket,
                topic=fields["topic"],
                event_types=tuple(EventType(event) for event in fields["event_types"]),
                object_name_prefix=fields["object_name_prefix"],
                custom_attributes=fields["custom_attributes"],
                payload_format=PayloadFormat(fields["payload_format"]),
            )
            found.setdefault(bucket, []).append(config)
        return found

    def put_notification_config(self, config: NotificationConfig) -> None:
        body = {
            "topic": config.topic,
            "event_types": config.event_types,
            "object_name_prefix": config.object_name_prefix,
            "custom_attributes": config.custom_attributes,
            "payload_format": config.payload_format,
        }
        self.execute(
            "INSERT INTO notification_configs VALUES (?, ?, ?)", (config.bucket, int(config.id), orjson.dumps(body))
        )

    def delete_notification_config(self, bucket: str, config_id: str) -> None:
        self.execute("DELETE FROM notification_configs WHERE bucket = ? AND id = ?", (bucket, int(config_id)))

    # Objects.

    def newest(self, bucket: str, name: str) -> ObjectVersion | None:
        """The version with the highest generation: the live one, if the name has a live version at all."""
        row = self.execute(
            "SELECT * FROM objects WHERE bucket = ? AND name = ? ORDER BY generation DESC LIMIT 1",
            (bucket, name),
        ).fetchone()
        return object_from_row(row) if row else None

    def version(self, bucket: str, name: str, generation: int) -> ObjectVersion | None:
        row = self.execute(
            "SELECT * FROM objects WHERE bucket = ? AND name = ? AND generation = ?",
            (bucket, name, generation),
        ).fetchone()
        return object_from_row(row) if row else None

    def live(self, bucket: str, names: Sequence[str]) -> list[tuple[str, int, int]]:
        """Name, size and generation of the live versions among these names."""
        return self.execute(
            "SELECT name, size, generation FROM json_each(?) AS asked CROSS JOIN objects"
            " WHERE bucket = ? AND name = asked.value AND live",
            (orjson.dumps(names).decode(), bucket),
        ).fetchall()

    def small(self, bucket: str, names: Sequence[str]) -> list[tuple[str, bytes]]:
        """Name and content of the live versions among these names whose bytes are in here."""
        return self.execute(
            "SELECT name, data FROM json_each(?) AS asked CROSS JOIN objects CROSS JOIN payloads"
            " WHERE bucket = ? AND name = asked.value AND live AND payloads.id = objects.payload",
            (orjson.dumps(names).decode(), bucket),
        ).fetchall()

    def put_object(self, version: ObjectVersion) -> None:
        self.execute(
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                version.bucket,
                version.name,
                version.generation,
                version.metageneration,
                int(version.live),
                version.size,
                version.crc32c,
                version.md5,
                version.created,
                version.updated,
                version.deleted,
                version.components,
                version.payload,
                version.file,
                orjson.dumps(version.metadata.stored()),
            ),
        )

    def delete_object(self, version: ObjectVersion) -> None:
        self.execute(
            "DELETE FROM objects WHERE bucket = ? AND name = ? AND generation = ?",
            (version.bucket, version.name, version.generation),
        )
        if version.payload is not None:
            self.execute("DELETE FROM payloads WHERE id = ?", (version.payload,))

    def put_payload(self, data: bytes) -> int:
        return int(self.execute("INSERT INTO payloads (data) VALUES (?)", (data,)).lastrowid or 0)

    def read_payload(self, payload: int) -> bytes:
        return bytes(self.execute("SELECT data FROM payloads WHERE id = ?", (payload,)).fetchone()[0])

    def scan(self, bucket: str, start: str, after_generation: int, stop: str | None) -> Iterator[ObjectVersion]:
        """Versions in (name, generation) order from `start` on; of `start` itself only those above the generation.

        Rows are read as they are asked for, so a caller that stops early pays for what it took.
        """
        if stop is None:
            rows = self.execute(
                "SELECT * FROM objects WHERE bucket = ? AND (name, generation) > (?, ?) ORDER BY name, generation",
                (bucket, start, after_generation),
            )
        else:
            rows = self.execute(
                "SELECT * FROM objects WHERE bucket = ? AND (name, generation) > (?, ?) AND name < ?"
                " ORDER BY name, generation",
                (bucket, start, after_generation, stop),
            )
        return map(object_from_row, rows)

    def forget_messages(self, ids: Sequence[int]) -> None:
        self.execute("DELETE FROM outbox WHERE id IN (SELECT value FROM json_each(?))", (orjson.dumps(ids).decode(),))

    def referenced_files(self) -> set[str]:
        return {name for (name,) in self.execute("SELECT file FROM objects WHERE file IS NOT NULL")}

    # Generations keep rising even if the wall clock steps back: the highest is in its object's row, or was saved when
    # that row went.

    def last_generation(self) -> int:
        (saved,) = self.execute("SELECT value FROM counters WHERE name = 'generation'").fetchone()
        (highest,) = self.execute("SELECT MAX(generation) FROM objects").fetchone()
        return max(int(saved), int(highest or 0))

    def save_generation(self, generation: int) -> None:
        self.execute("UPDATE counters SET value = MAX(value, ?) WHERE name = 'generation'", (generation,))
