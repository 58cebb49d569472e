"""`delete` and `move`: only what was loaded, only once, and never a newer upload."""

from dataclasses import replace

import pytest
from tests.support.bindings import CoreStore

from ingestd.actions.executor import ActionFailed
from ingestd.actions.move import move_file
from ingestd.actions.objects import RULES_MARK, SOURCE_MARK, TARGET_MARK, Fate, loop_guard, marks, movers
from ingestd.localcloud.faults import Fault, FaultKind
from ingestd.model.errors import BadInput, Fatal, Transient
from ingestd.model.objects import FileVersion, ObjectInfo, ObjectRef

RULE = "gs://config/rules/orders.yaml"
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


async def moved(batch) -> ObjectInfo:
    """A file that the rule has moved from `inbox/a.json`."""
    batch.upload("a.json")
    await batch.run(MOVE)
    return await batch.store.stat(ObjectRef("outbox", "failed/a.json"))


def copied(info: ObjectInfo, bucket: str, name: str) -> ObjectInfo:
    """What somebody has copied with its metadata, as `gsutil cp` does."""
    return replace(info, ref=ObjectRef(bucket, name))


def moved_on(batch, info: ObjectInfo, rule: str, bucket: str, name: str, event: str = "118") -> ObjectInfo:
    """What another rule has moved from there."""
    ctx = replace(batch.context(), event_id=event, rule_key=rule)
    target = ObjectRef(bucket, name)
    found = marks(ctx, info, f"{info.ref.bucket}/{info.ref.name}#{info.generation}", target)
    return replace(info, ref=target, metadata={**info.metadata, **found})


def by_the_version_before(info: ObjectInfo, earlier: ObjectInfo | None = None) -> ObjectInfo:
    """As a version without the mark of the target moves: it carries on what is there of an earlier move."""
    kept = {key: value for key, value in info.metadata.items() if key != TARGET_MARK}
    stale = {TARGET_MARK: earlier.metadata[TARGET_MARK]} if earlier and TARGET_MARK in earlier.metadata else {}
    return replace(info, metadata={**kept, **stale})


async def test_a_move_counts_only_where_it_has_put_the_object(batch):
    info = await moved(batch)
    assert movers(info) == {RULE}
    for bucket, name in (("inbox", "a.json"), ("inbox", "failed/a.json"), ("outbox", "failed/b.json")):
        assert movers(copied(info, bucket, name)) == set()


async def test_every_rule_of_a_chain_of_moves_counts(batch):
    first = await moved(batch)
    second = moved_on(batch, first, "b", "inbox", "b/a.json")
    assert movers(second) == {RULE, "b"}
    back = moved_on(batch, second, "c", "inbox", "a.json")
    assert movers(back) == {RULE, "b", "c"}, "back where it began, though by moves alone"
    assert movers(copied(back, "outbox", "failed/a.json")) == set(), "where an earlier move of the chain had put it"


async def test_moves_before_somebody_made_a_copy_count_no_more(batch):
    put_back = copied(await moved(batch), "inbox", "b/a.json")
    second = moved_on(batch, put_back, "b", "inbox", "a.json")
    assert movers(second) == {"b"}
    nobody = moved_on(batch, put_back, "", "inbox", "a.json")
    assert nobody.metadata[RULES_MARK] == "", "what is not written is carried on"
    assert movers(nobody) == set()


async def test_what_an_earlier_version_moved_is_new_only_where_it_came_from(batch):
    info = by_the_version_before(await moved(batch))
    assert info.metadata[SOURCE_MARK].startswith("inbox/a.json#")
    assert movers(info) == movers(copied(info, "inbox", "elsewhere.json")) == {RULE}
    assert movers(copied(info, "inbox", "a.json")) == set()
    assert movers(replace(info, metadata={RULES_MARK: "r"})) == {"r"}, "marks that somebody else has written"


async def test_the_source_of_what_an_earlier_version_moved_is_read_as_it_is_written(batch):
    ref = ObjectRef("inbox", "a b/c#1%2F✓.json")
    batch.files = (FileVersion(ref, await batch.store.create(ref, b"1")),)
    await batch.run(MOVE)
    info = by_the_version_before(await batch.store.stat(ObjectRef("outbox", f"failed/{ref.name}")))
    assert movers(info) == {RULE}
    assert movers(replace(info, ref=ref)) == set()


async def test_versions_that_move_one_after_the_other_stop_loops_as_well(batch):
    first = await moved(batch)
    old_after_new = by_the_version_before(moved_on(batch, first, "b", "inbox", "a.json"), first)
    assert old_after_new.metadata[TARGET_MARK] == first.metadata[TARGET_MARK]
    assert movers(old_after_new) == {RULE, "b"}
    same_batch = by_the_version_before(moved_on(batch, first, "b", "inbox", "a.json", event="117"), first)
    assert movers(same_batch) == {RULE, "b"}, "a batch that changed hands between two moves"
    new_after_old = moved_on(batch, by_the_version_before(first), "b", "inbox", "a.json")
    assert movers(new_after_old) == {RULE, "b"}


async def test_a_move_that_goes_elsewhere_says_so(batch):
    file = batch.upload("a.json")
    batch.storage.write("outbox", "bad/a.json", b"of somebody else")
    spare = ObjectRef("outbox", "bad/a~1.json")
    assert await move_file(batch.context(), file, ObjectRef("outbox", "bad/a.json"), spare) == (Fate.MOVED, spare)
    assert movers(await batch.store.stat(spare)) == {RULE}


async def test_a_copy_that_an_earlier_version_made_before_it_died_is_not_made_again(batch):
    batch.upload("a.json")
    batch.faults.add(Fault("storage", "objects.delete", FaultKind.FAIL))
    with pytest.raises(ActionFailed):
        await batch.run(MOVE)
    batch.faults.clear()
    target = ObjectRef("outbox", "failed/a.json")
    as_before = by_the_version_before(await batch.store.stat(target))
    generation = await batch.store.create(target, b"1", metadata=as_before.metadata)
    await batch.run(MOVE)
    assert batch.names("inbox") == []
    assert (await batch.store.stat(target)).generation == generation


async def test_marks_of_the_longest_names_fit_into_what_metadata_may_have(batch):
    name = "✓" * 341  # 1,023 bytes, 3,069 when quoted
    source, target = ObjectRef("inbox", name), ObjectRef("outbox", name)
    found = marks(batch.context(), None, f"{source.bucket}/{source.name}#1", target)
    assert sum(len(key) + len(value) for key, value in found.items()) < 4_096, "of 8 KiB, which its owner uses, too"
