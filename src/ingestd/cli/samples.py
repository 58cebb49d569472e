"""Sample files: dropped into the trigger bucket, and waited for until their rows are in the tables.

A sample is dropped once: a note of its checksum in the operations bucket says so, since a rule may have deleted the
file itself after loading it. A sample that was edited since is dropped again.
"""

import asyncio
import hashlib
import mimetypes
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import Field

from ingestd.cli.errors import CommandError
from ingestd.cli.files import run_sql
from ingestd.documents.models import Document, validate
from ingestd.documents.reading import read_documents
from ingestd.model.errors import NotFound
from ingestd.model.objects import ObjectRef
from ingestd.ports import ObjectStore, Warehouse

MANIFEST = "samples.yaml"
PATIENCE = timedelta(seconds=180)  # a cold JVM on a busy machine takes its time


class Samples(Document):
    """What a sample folder holds, and what becomes of it."""

    setup: str = ""
    files: tuple[str, ...] = ()
    rows: dict[str, int] = Field(default_factory=dict)
    show: str = ""


def read_samples(folder: Path) -> Samples:
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise CommandError(f"{folder} holds no {MANIFEST}: it is not a sample folder")
    documents = read_documents(manifest.read_bytes(), str(manifest))
    samples = validate(Samples, documents[0] if documents else {}, str(manifest))
    for name in samples.files:
        if not (folder / name).is_file():
            raise CommandError(f"{manifest} names {name}, which is not there")
    return samples


@dataclass(frozen=True, slots=True)
class Outcome:
    dropped: tuple[ObjectRef, ...]
    tables: dict[str, int]
    shown: list[dict[str, Any]]
    seconds: float


class Dropper:
    def __init__(self, store: ObjectStore, warehouse: Warehouse, project: str) -> None:
        self._store = store
        self._warehouse = warehouse
        self._trigger = ObjectRef(f"{project}-trigger", "")
        self._notes = ObjectRef(f"{project}-ops", "samples")

    async def drop(self, folder: Path, patience: timedelta = PATIENCE) -> Outcome:
        """Drop what is new and wait until every table has its rows."""
        samples = await asyncio.to_thread(read_samples, folder)
        if samples.setup:
            await run_sql(self._warehouse, samples.setup)
        started = time.monotonic()
        dropped = tuple([ref for name in samples.files if (ref := await self._drop_once(folder, name))])
        tables = await self._wait(samples.rows, started + patience.total_seconds())
        seconds = time.monotonic() - started
        shown = await run_sql(self._warehouse, samples.show) if samples.show else []
        return Outcome(dropped, tables, shown, seconds)

    async def _drop_once(self, folder: Path, name: str) -> ObjectRef | None:
        data = await asyncio.to_thread((folder / name).read_bytes)
        digest = hashlib.sha256(data).hexdigest().encode()
        note = self._notes / name
        try:
            if (await self._store.read(note))[0] == digest:
                return None
        except NotFound:
            pass
        ref = self._trigger / name
        await self._store.create(ref, data, content_type=mimetypes.guess_type(name)[0] or "application/octet-stream")
        await self._store.create(note, digest, content_type="text/plain")
        return ref

    async def _wait(self, rows: dict[str, int], deadline: float) -> dict[str, int]:
        while True:
            counts = {table: await self._count(table) for table in rows}
            if all(counts[table] >= wanted for table, wanted in rows.items()):
                return counts
            if time.monotonic() > deadline:
                found = ", ".join(f"{table} has {counts[table]} of {wanted} rows" for table, wanted in rows.items())
                raise CommandError(f"the samples did not arrive in time: {found}; the log above says why")
            await asyncio.sleep(0.2)

    async def _count(self, table: str) -> int:
        quoted = ".".join(f"`{part}`" for part in table.split("."))
        rows = await run_sql(self._warehouse, f"SELECT COUNT(*) AS n FROM {quoted}")  # noqa: S608 - from the manifest
        return int(rows[0]["n"])
