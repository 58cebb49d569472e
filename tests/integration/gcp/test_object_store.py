"""What `ObjectStore` promises, kept by Google's client over the wire and by the binding to the core alike."""

import gzip
from dataclasses import replace

import pytest

from ingestd.localcloud.faults import FaultKind
from ingestd.model.errors import Fatal, NotFound, PreconditionFailed, Transient
from ingestd.model.objects import ABSENT, Generation, ObjectRef
from ingestd.ports import Copy, Deletion, ObjectStore


async def test_what_was_written_is_read_back_with_its_description(ports, bucket):
    ref = ObjectRef(bucket, "a/b #1?.json")
    generation = await ports.store.create(ref, b'{"a": 1}', metadata={"k": "v"})
    data, info = await ports.store.read(ref)
    assert data == b'{"a": 1}'
    assert (info.ref, info.generation, info.size) == (ref, generation, 8)
    assert (info.metadata, info.content_type, info.metageneration) == ({"k": "v"}, "application/json", 1)
    assert info.crc32c and info.created.tzinfo
    assert await ports.store.stat(ref) == info


async def test_a_missing_object_is_none_to_stat_and_not_found_to_read(ports, bucket):
    ref = ObjectRef(bucket, "missing")
    assert await ports.store.stat(ref) is None
    with pytest.raises(NotFound):
        await ports.store.read(ref)


async def test_a_missing_bucket_is_an_error_not_a_missing_object(ports):
    ref = ObjectRef("no-such-bucket-here", "x")
    with pytest.raises(NotFound):
        await ports.store.stat(ref)
    with pytest.raises(NotFound):
        await ports.store.delete(ref)
    with pytest.raises(NotFound):
        await ports.store.create(ref, b"x")


async def test_an_old_generation_is_none_once_replaced(ports, bucket):
    ref = ObjectRef(bucket, "x")
    old = await ports.store.create(ref, b"1")
    new = await ports.store.create(ref, b"2")
    assert await ports.store.stat(ref, generation=old) is None
    assert (await ports.store.read(ref, generation=new))[0] == b"2"
    with pytest.raises(NotFound):
        await ports.store.read(ref, generation=old)


async def test_a_lost_race_is_a_failed_precondition(ports, bucket):
    ref = ObjectRef(bucket, "lock")
    first = await ports.store.create(ref, b"mine", if_generation=ABSENT)
    with pytest.raises(PreconditionFailed):
        await ports.store.create(ref, b"yours", if_generation=ABSENT)
    second = await ports.store.create(ref, b"mine again", if_generation=first)
    with pytest.raises(PreconditionFailed):
        await ports.store.create(ref, b"late", if_generation=first)
    assert (await ports.store.stat(ref)).generation == second
    assert (await ports.store.read(ref))[1].metadata == {}


async def test_a_create_whose_answer_was_lost_is_known_as_ours(ports, bucket, fault):
    ref = ObjectRef(bucket, "lock")
    fault("storage", "objects.insert", FaultKind.DROP_RESPONSE, times=1)
    generation = await ports.store.create(ref, b"same bytes", if_generation=ABSENT)
    assert (await ports.store.stat(ref)).generation == generation


async def test_the_same_bytes_by_somebody_else_are_not_ours(ports, bucket, fault):
    ref = ObjectRef(bucket, "lock")
    await ports.store.create(ref, b"same bytes", if_generation=ABSENT)
    fault("storage", "objects.insert", FaultKind.FAIL, times=1)
    with pytest.raises(PreconditionFailed):
        await ports.store.create(ref, b"same bytes", if_generation=ABSENT)


async def test_a_replacement_whose_answer_was_lost_is_known_as_ours(ports, bucket, fault):
    ref = ObjectRef(bucket, "record")
    first = await ports.store.create(ref, b"1", if_generation=ABSENT)
    fault("storage", "objects.insert", FaultKind.DROP_RESPONSE, times=1)
    second = await ports.store.create(ref, b"2", if_generation=first)
    data, info = await ports.store.read(ref)
    assert (data, info.generation) == (b"2", second)


async def test_delete_says_whether_there_was_something(ports, bucket):
    ref = ObjectRef(bucket, "x")
    generation = await ports.store.create(ref, b"1")
    assert await ports.store.delete(ref, if_generation=generation) is True
    assert await ports.store.delete(ref, if_generation=generation) is False
    assert await ports.store.delete(ref) is False


async def test_a_newer_upload_is_never_deleted_by_the_older_generation(ports, bucket):
    ref = ObjectRef(bucket, "x")
    old = await ports.store.create(ref, b"1")
    await ports.store.create(ref, b"2")
    with pytest.raises(PreconditionFailed):
        await ports.store.delete(ref, if_generation=old)
    assert (await ports.store.read(ref))[0] == b"2"


async def test_a_delete_whose_answer_was_lost_finds_it_gone(ports, bucket, fault):
    ref = ObjectRef(bucket, "x")
    generation = await ports.store.create(ref, b"1")
    fault("storage", "objects.delete", FaultKind.DROP_RESPONSE, times=1)
    assert await ports.store.delete(ref, if_generation=generation) is False
    assert await ports.store.stat(ref) is None


async def test_copy_adds_metadata_and_keeps_the_sources_own(ports, bucket):
    source, target = ObjectRef(bucket, "a"), ObjectRef(bucket, "b")
    old = await ports.store.create(source, b"x,y\n", content_type="text/csv", metadata={"own": "1"})
    generation = await ports.store.copy(source, target, source_generation=old, metadata={"added": "2"})
    data, info = await ports.store.read(target)
    assert (data, info.generation, info.content_type) == (b"x,y\n", generation, "text/csv")
    assert info.metadata == {"own": "1", "added": "2"}
    assert (await ports.store.stat(source)).generation == old


async def test_copy_without_metadata_takes_the_sources(ports, bucket):
    source, target = ObjectRef(bucket, "a"), ObjectRef(bucket, "b")
    await ports.store.create(source, b"1", content_type="text/plain", metadata={"own": "1"})
    await ports.store.copy(source, target)
    info = await ports.store.stat(target)
    assert (info.metadata, info.content_type) == ({"own": "1"}, "text/plain")


async def test_copy_of_a_replaced_generation_is_not_found(ports, bucket):
    source = ObjectRef(bucket, "a")
    old = await ports.store.create(source, b"1")
    await ports.store.create(source, b"2")
    with pytest.raises(NotFound):
        await ports.store.copy(source, ObjectRef(bucket, "b"), source_generation=old)


async def test_copy_onto_something_else_fails_its_precondition(ports, bucket):
    source, target = ObjectRef(bucket, "a"), ObjectRef(bucket, "b")
    await ports.store.create(source, b"1")
    await ports.store.create(target, b"other")
    with pytest.raises(PreconditionFailed):
        await ports.store.copy(source, target, if_generation=ABSENT)


async def test_a_copy_whose_answer_was_lost_is_done(ports, bucket, fault):
    source, target = ObjectRef(bucket, "a"), ObjectRef(bucket, "b")
    await ports.store.create(source, b"1")
    fault("storage", "objects.rewrite", FaultKind.DROP_RESPONSE, times=1)
    generation = await ports.store.copy(source, target, if_generation=ABSENT)
    assert (await ports.store.stat(target)).generation == generation


async def test_list_is_in_name_order_and_below_the_prefix(ports, bucket):
    for name in ("p/2", "p/1", "p/sub/3", "q/4"):
        await ports.store.create(ObjectRef(bucket, name), name.encode(), metadata={"n": name})
    listed = [info async for info in ports.store.list(ObjectRef(bucket, "p/"))]
    assert [info.ref.name for info in listed] == ["p/1", "p/2", "p/sub/3"]
    assert listed[0] == await ports.store.stat(ObjectRef(bucket, "p/1"))
    level = [info.ref.name async for info in ports.store.list(ObjectRef(bucket, "p/"), delimiter="/")]
    assert level == ["p/1", "p/2"]
    assert [info async for info in ports.store.list(ObjectRef(bucket, "none/"))] == []


async def test_list_keeps_to_a_range_of_names(ports, bucket):
    for name in ("r/a", "r/b", "r/c", "r/d"):
        await ports.store.create(ObjectRef(bucket, name), b"1")
    listed = [info.ref.name async for info in ports.store.list(ObjectRef(bucket, "r/"), start="r/b", end="r/d")]
    assert listed == ["r/b", "r/c"]


async def test_list_goes_over_many_pages_one_at_a_time(ports, cloud, bucket):
    for number in range(1005):
        cloud.storage.write(bucket, f"many/{number:04d}", b"")
    before = cloud.hooks["storage"].operations["objects.list"]
    names = []
    async for info in ports.store.list(ObjectRef(bucket, "many/")):
        if not names:
            assert cloud.hooks["storage"].operations["objects.list"] == before + 1
        names.append(info.ref.name)
    assert names == [f"many/{number:04d}" for number in range(1005)]
    assert cloud.hooks["storage"].operations["objects.list"] == before + 2


async def test_gzip_encoded_content_is_read_as_it_was_meant(ports, cloud, bucket):
    from ingestd.localcloud.storage.model import ObjectMetadata

    meta = ObjectMetadata(content_type="text/plain", content_encoding="gzip")
    cloud.storage.objects.insert(bucket, "rule.yaml", gzip.compress(b"hello"), meta)
    assert (await ports.store.read(ObjectRef(bucket, "rule.yaml")))[0] == b"hello"


async def test_a_stumbling_service_is_retried_and_a_dead_one_reported(ports, bucket, fault):
    ref = ObjectRef(bucket, "x")
    fault("storage", "objects.insert", status=503, times=2)
    await ports.store.create(ref, b"1")
    fault("storage", "objects.get", status=503)
    with pytest.raises(Transient):
        await ports.store.stat(ref)


async def test_no_permission_is_fatal_and_not_retried(ports, cloud, bucket, fault):
    fault("storage", "objects.get", status=403, reason="forbidden", times=1)
    with pytest.raises(Fatal) as refused:
        await ports.store.stat(ObjectRef(bucket, "x"))
    assert not isinstance(refused.value, NotFound)
    assert "permission" in str(refused.value) and f"gs://{bucket}/x" in str(refused.value)


async def test_generations_are_numbers(ports, bucket):
    generation = await ports.store.create(ObjectRef(bucket, "x"), b"")
    assert isinstance(generation, int) and generation > Generation(0)
    assert (await ports.store.read(ObjectRef(bucket, "x")))[0] == b""


async def written(store: ObjectStore, bucket: str, count: int) -> list[Deletion]:
    refs = [ObjectRef(bucket, f"many/{number:03d} #?é.json") for number in range(count)]
    return [Deletion(ref, await store.create(ref, b"{}", metadata={"own": "1"})) for ref in refs]


async def names(store: ObjectStore, bucket: str, prefix: str = "many/") -> list[str]:
    return [info.ref.name async for info in store.list(ObjectRef(bucket, prefix))]


async def test_many_are_described_as_one_by_one(ports, bucket):
    made = await written(ports.store, bucket, 3)
    missing = ObjectRef(bucket, "many/missing")
    found = await ports.store.stat_all([made[0].ref, missing, made[2].ref])
    assert found == [await ports.store.stat(made[0].ref), None, await ports.store.stat(made[2].ref)]
    (lost,) = await ports.store.stat_all([ObjectRef("no-such-bucket-here", "x")])
    assert isinstance(lost, NotFound)


async def test_nothing_at_all_is_fine(ports):
    assert [*await ports.store.stat_all([]), *await ports.store.delete_all([]), *await ports.store.copy_all([])] == []


async def test_each_of_many_deletes_has_its_own_outcome(ports, bucket):
    """More than one request holds; among them one that is gone, one that was replaced, and one nobody may touch."""
    made = await written(ports.store, bucket, 205)
    await ports.store.delete(made[3].ref)
    await ports.store.create(made[150].ref, b"newer")
    stranger = Deletion(ObjectRef("no-such-bucket-here", "x"), Generation(1))
    outcomes = await ports.store.delete_all([*made, stranger])
    assert [number for number, one in enumerate(outcomes) if one is not True] == [3, 150, 205]
    assert outcomes[3] is False
    assert isinstance(outcomes[150], PreconditionFailed)
    assert isinstance(outcomes[205], NotFound)
    assert await names(ports.store, bucket) == [made[150].ref.name]


async def test_only_what_was_refused_for_now_is_deleted_again(ports, bucket, fault, cloud):
    made = await written(ports.store, bucket, 10)
    for number, status in ((2, 503), (5, 429), (7, 503)):
        resource = f"{bucket}/{made[number].ref.name}"
        fault("storage", "objects.delete", resource=resource, status=status, times=2)
    before = cloud.storage.hooks.operations["objects.delete"]
    assert await ports.store.delete_all(made) == [True] * 10
    assert cloud.storage.hooks.operations["objects.delete"] - before == 10 + 3 * 2
    assert await names(ports.store, bucket) == []


async def test_what_stays_refused_is_one_objects_failure(ports, bucket, fault):
    made = await written(ports.store, bucket, 6)
    fault("storage", "objects.delete", resource=f"{bucket}/{made[1].ref.name}", status=503)
    fault("storage", "objects.delete", resource=f"{bucket}/{made[4].ref.name}", status=403, reason="forbidden")
    outcomes = await ports.store.delete_all(made)
    assert isinstance(outcomes[1], Transient)
    assert isinstance(outcomes[4], Fatal)
    assert [outcomes[number] for number in (0, 2, 3, 5)] == [True] * 4
    assert await names(ports.store, bucket) == [made[1].ref.name, made[4].ref.name]


async def test_many_deletes_whose_answer_was_lost_find_them_gone(ports, bucket, fault):
    made = await written(ports.store, bucket, 5)
    fault("storage", "objects.delete", FaultKind.DROP_RESPONSE, resource=f"{bucket}/{made[4].ref.name}", times=1)
    outcomes = await ports.store.delete_all(made)
    assert outcomes[4] is False
    assert all(isinstance(one, bool) for one in outcomes)
    assert await names(ports.store, bucket) == []


def copies(made: list[Deletion], bucket: str) -> list[Copy]:
    return [
        Copy(one.ref, ObjectRef(bucket, f"copied/{number}"), one.generation, ABSENT, {"added": "2"})
        for number, one in enumerate(made)
    ]


async def test_each_of_many_copies_has_its_own_outcome(ports, bucket):
    made = await written(ports.store, bucket, 4)
    await ports.store.create(made[1].ref, b"newer")
    await ports.store.create(ObjectRef(bucket, "copied/2"), b"other")
    asked = copies(made, bucket)
    outcomes = await ports.store.copy_all(asked)
    assert isinstance(outcomes[1], NotFound)
    assert isinstance(outcomes[2], PreconditionFailed)
    for number in (0, 3):
        info = await ports.store.stat(asked[number].target)
        assert (info.generation, info.metadata) == (outcomes[number], {"own": "1", "added": "2"})
        assert info.content_type == "application/json"


async def test_many_copies_whose_answer_was_lost_are_known_as_ours(ports, bucket, fault):
    asked = copies(await written(ports.store, bucket, 3), bucket)
    fault("storage", "objects.rewrite", FaultKind.DROP_RESPONSE, resource=f"{bucket}/copied/2", times=1)
    outcomes = await ports.store.copy_all(asked)
    assert outcomes == [(await ports.store.stat(one.target)).generation for one in asked]


async def test_a_copy_that_is_refused_for_now_is_made_again(ports, bucket, fault):
    asked = copies(await written(ports.store, bucket, 3), bucket)
    fault("storage", "objects.rewrite", resource=f"{bucket}/copied/1", status=503, times=1)
    outcomes = await ports.store.copy_all(asked)
    assert outcomes == [(await ports.store.stat(one.target)).generation for one in asked]


async def test_copies_of_what_was_just_looked_at_keep_everything_of_their_source(ports, bucket):
    made = await written(ports.store, bucket, 4)
    seen = await ports.store.stat_all([one.ref for one in made])
    await ports.store.delete(made[1].ref)
    await ports.store.create(made[2].ref, b"newer")
    asked = [replace(one, seen=info) for one, info in zip(copies(made, bucket), seen, strict=True)]
    outcomes = await ports.store.copy_all(asked)
    assert [type(outcomes[number]) for number in (1, 2)] == [NotFound, NotFound]
    for number in (0, 3):
        info = await ports.store.stat(asked[number].target)
        assert (info.generation, info.metadata) == (outcomes[number], {"own": "1", "added": "2"})
        assert info.content_type == "application/json"
