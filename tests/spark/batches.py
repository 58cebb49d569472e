"""Batches for the preparer: files in a local Storage, prepared on the shared session, loaded into a local BigQuery."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
from tests.support.bindings import CoreStore
from tests.support.memory_objects import MemoryObjects

from ingestd.formats.options import LoadOptions
from ingestd.localcloud.bigquery.files.load import load_files
from ingestd.localcloud.storage.core import StorageCore
from ingestd.model.clock import SystemClock
from ingestd.model.objects import FileVersion, ObjectRef
from ingestd.model.preparation import Prepared, PrepareRequest
from ingestd.model.schema import Schema
from ingestd.spark.files.scratch import Scratch
from ingestd.spark.preparer import SparkPreparer, Where
from ingestd.spark.session.session import Spark

NDJSON: Mapping[str, Any] = {"sourceFormat": "NEWLINE_DELIMITED_JSON"}


class Batches:
    def __init__(self, spark: Spark, folder: Path, core: StorageCore | None = None) -> None:
        self.core = core or StorageCore(folder / "storage", project="p", clock=SystemClock())
        self.core.buckets.insert({"name": "bucket"})
        self.store = CoreStore(self.core, SystemClock())
        self.scratch = Scratch(folder / "scratch", 1 << 30)
        self.preparer = SparkPreparer(spark, self.store, self.scratch, Where(cores=2))
        self._batches = 0

    async def put(self, name: str, data: bytes) -> FileVersion:
        ref = ObjectRef("bucket", name)
        await self.store.create(ref, data, content_type="application/octet-stream")
        info = await self.store.stat(ref)
        assert info is not None
        return FileVersion(ref, info.generation, info.size, info.created, info.crc32c)

    async def put_all(self, contents: Mapping[str, bytes]) -> list[FileVersion]:
        return [await self.put(name, data) for name, data in contents.items()]

    def request(
        self, files: Sequence[FileVersion], schema: Schema, load: Mapping[str, Any] = NDJSON, **more: Any
    ) -> PrepareRequest:
        self._batches += 1
        folder = ObjectRef("bucket", f"staging/batch{self._batches}/1")
        return PrepareRequest(f"batch{self._batches}", 1, folder, tuple(files), load, schema, **more)

    async def prepare(
        self, files: Sequence[FileVersion], schema: Schema, load: Mapping[str, Any] = NDJSON, **more: Any
    ) -> Prepared:
        return await self.preparer.prepare(self.request(files, schema, load, **more))

    async def loaded(self, prepared: Prepared, branch: int = -1) -> list[tuple[Any, ...]]:
        """The rows of a table after a load of what was prepared for it, the way the daemon loads it."""
        uris = [uri for output in prepared.outputs if output.branch == branch for uri in output.uris]
        if not uris:
            return []
        options = {"sourceFormat": prepared.format, **prepared.load_options}
        return await self.load(uris, prepared.schema, options)

    async def direct(
        self, files: Sequence[FileVersion], schema: Schema, load: Mapping[str, Any] = NDJSON
    ) -> list[tuple[Any, ...]]:
        """The rows of a table after a load of the files themselves."""
        return await self.load([file.ref.url for file in files], schema, load)

    async def load(self, uris: Sequence[str], schema: Schema, load: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        contents = {uri: (await self.store.read(ObjectRef.parse(uri)))[0] for uri in uris}
        conn = duckdb.connect()
        try:
            conn.execute("SET TimeZone = 'UTC'")
            load_files(conn, MemoryObjects(contents), LoadOptions.from_rest(load), uris, schema, "staged")
            return conn.execute("SELECT * FROM staged ORDER BY ALL").fetchall()
        finally:
            conn.close()

    async def names(self, prefix: str) -> list[str]:
        return [info.ref.name async for info in self.store.list(ObjectRef("bucket", prefix))]
