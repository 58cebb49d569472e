"""How the services reach one another behind the scenes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sim.plain_database import PlainDatabase

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.faults import Fault, FaultKind
from ingestd.localcloud.feeds import StoredObjects
from ingestd.localcloud.storage.core import StorageCore
from ingestd.localcloud.storage.database import Database
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


def test_several_slashes_in_a_row_are_read_as_one(core: StorageCore) -> None:
    objects = StoredObjects(core)
    for name in ("data/a.json", "data//a.json", "/data/b.json"):
        objects.write(f"gs://bucket/{name}", name.encode(), "text/plain")
    uris = ["gs://bucket/data//a.json", "gs://bucket//data/a.json", "gs://bucket/data///a*n"]
    for found in (*map(objects.match, uris), *objects.match_all(uris)):
        assert [one.uri for one in found] == ["gs://bucket/data/a.json"]
    assert list(objects.read_all(uris[:2])) == [objects.read(uris[0])] * 2 == [b"data/a.json"] * 2
    assert objects.match("gs://bucket//data/b.json") == []


@pytest.mark.parametrize("database", [Database, PlainDatabase])
def test_many_objects_at_once_are_what_each_is_alone(tmp_path: Path, database: type[Database]) -> None:
    core = StorageCore(tmp_path, project="p", clock=SystemClock(), database=database)
    core.buckets.insert({"name": "bucket"})
    core.buckets.insert({"name": "kept", "versioning": {"enabled": True}})
    objects = StoredObjects(core)
    contents = {f"gs://bucket/data/{n}.json": f"{n}".encode() for n in range(600)}
    contents |= {"gs://kept/it's ünusual.json": b"small", "gs://bucket/large": b"x" * 100_000, "gs://kept/none": b""}
    for uri, data in contents.items():
        objects.write(uri, b"before", "text/plain")
        objects.write(uri, data, "text/plain")
    objects.write("gs://kept/gone", b"was here", "text/plain")
    core.objects.delete("kept", "gone")

    uris = [*contents, "gs://bucket/data/7.json"]
    counted = core.hooks.operations["objects.get"]
    assert list(objects.read_all(uris)) == [objects.read(uri) for uri in uris] == [contents[uri] for uri in uris]
    assert core.hooks.operations["objects.get"] - counted == 2 * len(uris)
    asked = [*uris, "gs://bucket/data/59*", "gs://kept/gone", "gs://bucket/none", "gs://absent/x"]
    assert list(objects.match_all(asked)) == [objects.match(uri) for uri in asked]
    core.close()


def test_a_planned_fault_strikes_the_object_it_is_planned_for(core: StorageCore) -> None:
    objects = StoredObjects(core)
    uris = [f"gs://bucket/{n}" for n in range(5)]
    for uri in uris:
        objects.write(uri, uri.encode(), "text/plain")
    core.hooks.plan.add(Fault("storage", "objects.get", FaultKind.FAIL, resource="bucket/3"))
    for ask in (objects.read_all, objects.match_all):
        with pytest.raises(BigQueryError, match="bucket/3"):
            list(ask(uris))
