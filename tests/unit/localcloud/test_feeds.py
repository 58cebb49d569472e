"""How the services reach one another behind the scenes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.feeds import StoredObjects
from ingestd.localcloud.storage.core import StorageCore
from ingestd.model.clock import SystemClock


@pytest.fixture
def core(tmp_path: Path) -> Iterator[StorageCore]:
    core = StorageCore(tmp_path, project="p", clock=SystemClock())
    core.buckets.insert({"name": "bucket"})
    yield core
    core.close()


def test_objects_by_uri(core: StorageCore) -> None:
    objects = StoredObjects(core)
    for name in ("data/2024/a.json", "data/b.json", "data/b.csv"):
        objects.write(f"gs://bucket/{name}", name.encode(), "text/plain")
    assert [found.uri for found in objects.match("gs://bucket/data/*.json")] == [
        "gs://bucket/data/2024/a.json",
        "gs://bucket/data/b.json",
    ]
    (exact,) = objects.match("gs://bucket/data/b.csv")
    assert (exact.size, exact.generation) == (10, core.stat("bucket", "data/b.csv").generation)
    assert objects.read(exact.uri) == b"data/b.csv"
    assert (
        objects.match("gs://bucket/none*") == objects.match("gs://bucket/none") == objects.match("gs://absent/x") == []
    )
    for uri in ("s3://bucket/x", "gs://bucket", "gs:///x"):
        with pytest.raises(BigQueryError):
            objects.match(uri)
