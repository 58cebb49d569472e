"""`delete` and `move`: only what was loaded, only once, and never a newer upload."""

import pytest
from tests.support.bindings import CoreStore

from ingestd.actions.executor import ActionFailed
from ingestd.actions.move import move_file
from ingestd.actions.objects import Fate, loop_guard
from ingestd.localcloud.faults import Fault, FaultKind
from ingestd.model.errors import BadInput, Fatal, Transient
from ingestd.model.objects import FileVersion, ObjectRef

DELETE = {"Action": "delete"}
MOVE = {"Action": "move", "Request": {"DestURL": "gs://outbox/failed"}}


async def test_delete_removes_the_loaded_files_and_nothing_else(batch):
    batch.upload("data/a.json")
    batch.upload("data/b.json")
    batch.storage.write("inbox", "data/other.json", b"")
    await batch.run(DELETE)
    assert batch.names("inbox") == ["data/other.json"]


async def test_a_newer_upload_is_never_deleted(batch):
    batch.upload("a.json", b"loaded")
    batch.storage.write("inbox", "a.json", b"newer")
    await batch.run(DELETE)
    assert batch.storage.read("inbox", "a.json") == b"newer"


async def test_deleting_again_is_harmless(batch):
    batch.upload("a.json")
    await batch.run(DELETE)
    batch.progress.crash()
    await batch.run(DELETE)
    assert batch.names("inbox") == []


async def test_delete_takes_other_objects_by_name(batch):
    batch.storage.write("outbox", "marker", b"")
    batch.storage.write("outbox", "x", b"")
    request = {"URLs": ["gs://outbox/marker", "gs://outbox/marker"], "SourceURL": "gs://outbox/x"}
    await batch.run({"Action": "delete", "Request": request})
    assert batch.names("outbox") == []


async def test_a_delete_that_is_refused_is_a_failure_and_the_others_are_done(batch):
    for name in ("a", "b", "c"):
        batch.upload(name)
    batch.faults.add(
        Fault("storage", "objects.delete", FaultKind.FAIL, resource="inbox/b", status=403, reason="forbidden")
    )
    with pytest.raises(ActionFailed) as failed:
        await batch.run(DELETE)
    assert isinstance(failed.value.cause, Fatal)
    assert batch.names("inbox") == ["b"]


@pytest.mark.parametrize("url", ["/not/a/url", "gs://bucket-alone", "s3://b/o"])
async def test_what_is_no_object_is_refused(batch, url):
    with pytest.raises(ActionFailed) as failed:
        await batch.run({"Action": "delete", "Request": {"URLs": [url]}})
    assert isinstance(failed.value.cause, BadInput)


async def test_move_keeps_the_whole_path_below_the_destination(batch):
    batch.upload("data/day=1/a.json", b"1")
    await batch.run(MOVE)
    assert batch.names("inbox") == []
    assert batch.names("outbox") == ["failed/data/day=1/a.json"]
    assert batch.storage.read("outbox", "failed/data/day=1/a.json") == b"1"


async def test_move_to_an_absolute_destination(batch):
    batch.upload("data/a.json")
    request = {"DestURL": "gs://outbox/x/renamed.json", "IsDestAbsoluteURL": True}
    await batch.run({"Action": "move", "Request": request})
    assert batch.names("outbox") == ["x/renamed.json"]
    batch.upload("data/b.json")
    batch.upload("data/c.json")
    batch.progress.steps.clear()
    with pytest.raises(ActionFailed, match="cannot all become"):
        await batch.run({"Action": "move", "Request": request})


async def test_a_moved_object_says_which_rules_moved_it_and_keeps_its_own_metadata(batch):
    ref = ObjectRef("inbox", "a.json")
    generation = await batch.store.create(ref, b"1", metadata={"own": "1", "ingestd-rules": "earlier%2Crule"})
    batch.files = (FileVersion(ref, generation),)
    await batch.run(MOVE)
    info = await batch.store.stat(ObjectRef("outbox", "failed/a.json"))
    assert loop_guard(info.metadata) == {"earlier,rule", "gs://config/rules/orders.yaml"}
    assert info.metadata["ingestd-event"] == "117" and info.metadata["own"] == "1"
    assert loop_guard({}) == set()


async def test_a_crash_between_copy_and_delete_does_not_copy_again(batch):
    batch.upload("a.json")
    batch.faults.add(Fault("storage", "objects.delete", FaultKind.FAIL))
    with pytest.raises(ActionFailed) as failed:
        await batch.run(MOVE)
    assert isinstance(failed.value.cause, Transient)
    copied = batch.storage.stat("outbox", "failed/a.json").generation
    batch.faults.clear()
    await batch.run(MOVE)
    assert batch.names("inbox") == []
    assert batch.storage.stat("outbox", "failed/a.json").generation == copied


async def test_moving_again_is_harmless(batch):
    batch.upload("a.json")
    await batch.run(MOVE)
    batch.progress.crash()
    await batch.run(MOVE)
    assert batch.names("outbox") == ["failed/a.json"]


async def test_a_newer_upload_is_never_moved(batch):
    batch.upload("a.json", b"loaded")
    batch.storage.write("inbox", "a.json", b"newer")
    await batch.run(MOVE)
    assert batch.storage.read("inbox", "a.json") == b"newer"
    assert batch.names("outbox") == []


async def test_an_upload_between_copy_and_delete_is_never_deleted(batch, monkeypatch):
    batch.upload("a.json", b"loaded")
    copy = CoreStore.copy

    async def then_uploaded(self, *args, **options):
        made = await copy(self, *args, **options)
        batch.storage.write("inbox", "a.json", b"newer")
        return made

    monkeypatch.setattr(CoreStore, "copy", then_uploaded)
    await batch.run(MOVE)
    assert batch.storage.read("inbox", "a.json") == b"newer"
    assert batch.storage.read("outbox", "failed/a.json") == b"loaded"


async def test_an_older_file_at_the_destination_makes_way(batch):
    batch.storage.write("outbox", "failed/a.json", b"yesterday")
    batch.upload("a.json", b"today")
    await batch.run(MOVE)
    assert batch.storage.read("outbox", "failed/a.json") == b"today"


async def test_moving_onto_itself_is_refused_and_loses_nothing(batch):
    batch.upload("a.json")
    request = {"DestURL": "gs://inbox/a.json", "IsDestAbsoluteURL": True}
    with pytest.raises(ActionFailed, match="onto itself"):
        await batch.run({"Action": "move", "Request": request})
    assert batch.names("inbox") == ["a.json"]


async def test_move_file_tells_what_became_of_the_file(batch):
    file = batch.upload("a.json")
    target = ObjectRef("outbox", "bad/a.json")
    assert await move_file(batch.context(), file, target) == (Fate.MOVED, target)
    assert await move_file(batch.context(), file, target) == (Fate.GONE, target)
