"""What writes, deletes and copies do to the versions of a name."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.stored_files import stored_file

from ingestd.localcloud.faults import Fault, FaultInjected, FaultKind, ResponseLost
from ingestd.localcloud.storage import StorageCore, StorageError
from ingestd.localcloud.storage.model import (
    Checksums,
    ComposeSource,
    ListQuery,
    ObjectMetadata,
    Preconditions,
)

LARGE = 200_000


def refused(error: pytest.ExceptionInfo[StorageError]) -> tuple[int, str]:
    return error.value.status, error.value.reason


def versions(core: StorageCore, bucket: str) -> list[tuple[str, int, bool]]:
    page = core.objects.list(bucket, ListQuery(versions=True))
    return [(item.name, item.generation, item.live) for item in page.items]


@pytest.mark.parametrize("size", [0, 3, LARGE])
def test_bytes_come_back_as_written(core: StorageCore, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    written = core.write("bucket", "a/b", data, "text/plain")
    assert written.size == size
    assert core.read("bucket", "a/b") == data
    assert core.stat("bucket", "a/b") == written
    path = stored_file(core, "bucket", "a/b")
    assert (path is not None) == (size == LARGE)
    assert path is None or path.read_bytes() == data


def test_checksums_are_those_of_the_bytes(core: StorageCore) -> None:
    written = core.write("bucket", "n", b"hello world")
    assert (written.crc32c, written.md5) == ("yZRlqg==", "XrY7u+Ae7tCTyyK7j1rNww==")


@pytest.mark.parametrize("claim", [Checksums(crc32c="AAAAAA=="), Checksums(md5="XrY7u+Ae7tCTyyK7j1rNwx==")])
def test_a_wrong_checksum_is_refused_and_leaves_nothing(core: StorageCore, claim: Checksums) -> None:
    with pytest.raises(StorageError) as error:
        core.objects.insert("bucket", "n", b"hello world", checksums=claim)
    assert refused(error) == (400, "invalid")
    assert versions(core, "bucket") == []


def test_generations_are_microseconds_and_rise_even_when_time_stands_still(
    core: StorageCore, clock: ManualClock
) -> None:
    first = core.write("bucket", "a", b"1").generation
    second = core.write("bucket", "b", b"2").generation
    assert first == int(clock.now().timestamp() * 1_000_000)
    assert second == first + 1
    clock.advance(timedelta(seconds=1))
    assert core.write("bucket", "a", b"3").generation == first + 1_000_000


def test_an_overwrite_replaces_the_bytes_and_frees_the_old_ones(core: StorageCore) -> None:
    old = core.write("bucket", "n", b"o" * LARGE)
    path = stored_file(core, "bucket", "n")
    new = core.write("bucket", "n", b"new")
    assert core.read("bucket", "n") == b"new"
    assert versions(core, "bucket") == [("n", new.generation, True)]
    assert path is not None
    assert not path.exists()
    with pytest.raises(StorageError) as error:
        core.read("bucket", "n", old.generation)
    assert refused(error) == (404, "notFound")


def test_a_reader_keeps_its_bytes_through_an_overwrite(core: StorageCore) -> None:
    core.write("bucket", "n", b"o" * LARGE)
    content = core.objects.open("bucket", "n")
    core.write("bucket", "n", b"new")
    assert content.read() == b"o" * LARGE


def test_create_only_succeeds_once(core: StorageCore) -> None:
    core.write("bucket", "lock", b"1", if_generation=0)
    with pytest.raises(StorageError) as error:
        core.write("bucket", "lock", b"2", if_generation=0)
    assert refused(error) == (412, "conditionNotMet")
    assert core.read("bucket", "lock") == b"1"


def test_a_write_against_a_stale_generation_is_refused(core: StorageCore) -> None:
    first = core.write("bucket", "lock", b"1")
    second = core.write("bucket", "lock", b"2", if_generation=first.generation)
    with pytest.raises(StorageError) as error:
        core.write("bucket", "lock", b"3", if_generation=first.generation)
    assert refused(error) == (412, "conditionNotMet")
    assert core.stat("bucket", "lock").generation == second.generation


def test_every_precondition_of_a_read(core: StorageCore) -> None:
    generation = core.write("bucket", "n", b"1").generation
    core.objects.patch("bucket", "n", {"contentType": "a/b"})
    other = generation + 1

    def status(conditions: Preconditions) -> int:
        try:
            core.objects.get("bucket", "n", conditions=conditions)
        except StorageError as error:
            return error.status
        return 200

    assert status(Preconditions(generation=generation)) == 200
    assert status(Preconditions(generation=other)) == 412
    assert status(Preconditions(generation=0)) == 412
    assert status(Preconditions(not_generation=other)) == 200
    assert status(Preconditions(not_generation=0)) == 200
    assert status(Preconditions(not_generation=generation)) == 304
    assert status(Preconditions(metageneration=2)) == 200
    assert status(Preconditions(metageneration=1)) == 412
    assert status(Preconditions(not_metageneration=1)) == 200
    assert status(Preconditions(not_metageneration=2)) == 304


def test_conditions_that_need_an_object_fail_without_one(core: StorageCore) -> None:
    for conditions in (
        Preconditions(generation=7),
        Preconditions(not_generation=7),
        Preconditions(not_generation=0),
        Preconditions(metageneration=1),
        Preconditions(not_metageneration=1),
    ):
        with pytest.raises(StorageError) as error:
            core.objects.insert("bucket", "absent", b"", conditions=conditions)
        assert refused(error) == (412, "conditionNotMet")
    assert versions(core, "bucket") == []


def test_a_missing_object_is_404_whatever_the_conditions(core: StorageCore) -> None:
    for conditions in (Preconditions(), Preconditions(generation=0), Preconditions(generation=5)):
        for operation in (core.objects.get, core.objects.delete):
            with pytest.raises(StorageError) as error:
                operation("bucket", "absent", None, conditions)
            assert refused(error) == (404, "notFound")


def test_a_delete_with_a_generation_spares_a_newer_upload(core: StorageCore) -> None:
    old = core.write("bucket", "n", b"1").generation
    new = core.write("bucket", "n", b"2").generation
    with pytest.raises(StorageError) as by_generation:
        core.objects.delete("bucket", "n", old)
    assert refused(by_generation) == (404, "notFound")
    with pytest.raises(StorageError) as by_condition:
        core.objects.delete("bucket", "n", conditions=Preconditions(generation=old))
    assert refused(by_condition) == (412, "conditionNotMet")
    assert core.stat("bucket", "n").generation == new
    core.objects.delete("bucket", "n", conditions=Preconditions(generation=new))
    assert versions(core, "bucket") == []


def test_versioning_keeps_what_is_overwritten_and_deleted(core: StorageCore, clock: ManualClock) -> None:
    first = core.write("versioned", "n", b"1")
    clock.advance(timedelta(seconds=5))
    second = core.write("versioned", "n", b"2")
    clock.advance(timedelta(seconds=5))
    core.objects.delete("versioned", "n")
    assert versions(core, "versioned") == [("n", first.generation, False), ("n", second.generation, False)]
    assert core.objects.list("versioned", ListQuery()).items == []
    assert core.read("versioned", "n", first.generation) == b"1"
    assert core.stat("versioned", "n", first.generation).deleted == second.created
    with pytest.raises(StorageError) as error:
        core.read("versioned", "n")
    assert refused(error) == (404, "notFound")


def test_a_noncurrent_version_is_restored_by_copying_it(core: StorageCore) -> None:
    first = core.write("versioned", "n", b"1" * LARGE)
    core.write("versioned", "n", b"2")
    restored = core.objects.copy(("versioned", "n"), ("versioned", "n"), source_generation=first.generation)
    assert core.read("versioned", "n") == b"1" * LARGE
    assert restored.generation > first.generation
    assert len(versions(core, "versioned")) == 3


def test_deleting_a_generation_removes_it_for_good(core: StorageCore) -> None:
    first = core.write("versioned", "n", b"1")
    second = core.write("versioned", "n", b"2")
    core.objects.delete("versioned", "n", first.generation)
    assert versions(core, "versioned") == [("n", second.generation, True)]
    core.objects.delete("versioned", "n", second.generation)
    assert versions(core, "versioned") == []


def test_patching_merges_and_counts_a_metageneration(core: StorageCore, clock: ManualClock) -> None:
    metadata = ObjectMetadata(content_type="text/csv", custom={"a": "1", "b": "2"})
    written = core.objects.insert("bucket", "n", b"x", metadata)
    clock.advance(timedelta(seconds=1))
    patched = core.objects.patch("bucket", "n", {"metadata": {"b": None, "c": "3"}, "cacheControl": "no-store"})
    assert patched.metadata.custom == {"a": "1", "c": "3"}
    assert patched.metadata.content_type == "text/csv"
    assert patched.metadata.cache_control == "no-store"
    assert (patched.generation, patched.metageneration) == (written.generation, 2)
    assert patched.updated == written.updated + 1_000_000
    assert core.stat("bucket", "n") == patched


def test_updating_replaces_what_is_not_named(core: StorageCore) -> None:
    core.objects.insert("bucket", "n", b"x", ObjectMetadata(content_type="text/csv", custom={"a": "1"}))
    updated = core.objects.update("bucket", "n", {"cacheControl": "no-store"})
    assert updated.metadata == ObjectMetadata(cache_control="no-store", storage_class="STANDARD")


def test_custom_time_only_moves_forward(core: StorageCore) -> None:
    core.objects.insert("bucket", "n", b"x", ObjectMetadata.parse({"customTime": "2024-05-01T10:00:00Z"}))
    core.objects.patch("bucket", "n", {"customTime": "2024-05-02T10:00:00+00:00"})
    assert core.stat("bucket", "n").metadata.custom_time == "2024-05-02T10:00:00.000Z"
    for value in (None, "2024-04-01T10:00:00Z", "yesterday"):
        with pytest.raises(StorageError) as error:
            core.objects.patch("bucket", "n", {"customTime": value})
        assert refused(error) == (400, "invalid")


@pytest.mark.parametrize("hold", ["temporaryHold", "eventBasedHold"])
def test_a_held_object_is_neither_deleted_nor_overwritten(core: StorageCore, hold: str) -> None:
    core.write("versioned", "n", b"1")
    core.objects.patch("versioned", "n", {hold: True})
    for attempt in (
        lambda: core.objects.delete("versioned", "n"),
        lambda: core.write("versioned", "n", b"2"),
        lambda: core.objects.move("versioned", "n", "m"),
    ):
        with pytest.raises(StorageError) as error:
            attempt()
        assert refused(error) == (403, "forbidden")
    core.objects.patch("versioned", "n", {hold: False})
    core.objects.delete("versioned", "n")


def test_a_default_hold_applies_to_new_objects(core: StorageCore) -> None:
    core.buckets.patch("bucket", {"defaultEventBasedHold": True})
    assert core.write("bucket", "n", b"").metadata.event_based_hold is True
    free = core.objects.insert("bucket", "m", b"", ObjectMetadata(event_based_hold=False))
    assert free.metadata.event_based_hold is False


def test_a_copy_has_the_bytes_and_metadata_but_not_the_holds(core: StorageCore) -> None:
    metadata = ObjectMetadata(content_type="text/csv", temporary_hold=True, custom={"k": "v"})
    source = core.objects.insert("bucket", "n", b"x" * LARGE, metadata)
    copied = core.objects.copy(("bucket", "n"), ("versioned", "m"))
    assert (copied.md5, copied.size, copied.metageneration) == (source.md5, source.size, 1)
    assert copied.metadata == replace(metadata, temporary_hold=None, storage_class="STANDARD")
    core.objects.patch("bucket", "n", {"temporaryHold": False})
    core.objects.delete("bucket", "n")
    assert core.read("versioned", "m") == b"x" * LARGE


def test_a_copy_checks_conditions_on_both_sides(core: StorageCore) -> None:
    source = core.write("bucket", "n", b"1")
    target = core.write("bucket", "m", b"2")
    with pytest.raises(StorageError) as error:
        core.objects.copy(("bucket", "n"), ("bucket", "m"), conditions=Preconditions(generation=0))
    assert refused(error) == (412, "conditionNotMet")
    with pytest.raises(StorageError) as error:
        core.objects.copy(
            ("bucket", "n"), ("bucket", "m"), source_conditions=Preconditions(generation=target.generation)
        )
    assert refused(error) == (412, "conditionNotMet")
    assert core.read("bucket", "m") == b"2"
    core.objects.copy(
        ("bucket", "n"),
        ("bucket", "m"),
        conditions=Preconditions(generation=target.generation),
        source_conditions=Preconditions(generation=source.generation),
    )
    assert core.read("bucket", "m") == b"1"


def test_a_move_leaves_only_the_new_name(core: StorageCore) -> None:
    core.objects.insert("bucket", "n", b"x" * LARGE, ObjectMetadata(content_type="text/csv"))
    moved = core.objects.move("bucket", "n", "m", conditions=Preconditions(generation=0))
    assert moved.metadata.content_type == "text/csv"
    assert [name for name, _, _ in versions(core, "bucket")] == ["m"]
    assert core.read("bucket", "m") == b"x" * LARGE


def test_compose_joins_in_order_and_counts_components(core: StorageCore) -> None:
    for name, data in (("a", b"1" * LARGE), ("b", b"2"), ("c", b"")):
        core.write("bucket", name, data)
    sources = [ComposeSource(name) for name in ("b", "a", "c", "b")]
    made = core.objects.compose("bucket", "all", sources, ObjectMetadata(content_type="t/p"))
    joined = b"2" + b"1" * LARGE + b"2"
    assert core.read("bucket", "all") == joined
    assert (made.md5, made.components, made.metadata.content_type) == (None, 4, "t/p")
    assert made.crc32c == core.write("bucket", "reference", joined).crc32c
    again = core.objects.compose("bucket", "all", [ComposeSource("all"), ComposeSource("c")])
    assert again.components == 5


def test_compose_refuses_stale_missing_and_too_many_sources(core: StorageCore) -> None:
    generation = core.write("bucket", "a", b"1").generation
    for sources, expected in (
        ([ComposeSource("a", if_generation=generation + 1)], 412),
        ([ComposeSource("missing")], 404),
        ([ComposeSource("a", generation + 1)], 404),
        ([ComposeSource("a")] * 33, 400),
        ([], 400),
    ):
        with pytest.raises(StorageError) as error:
            core.objects.compose("bucket", "all", sources)
        assert error.value.status == expected
    core.objects.compose("bucket", "all", [ComposeSource("a", generation, generation)] * 32)
    assert core.read("bucket", "all") == b"1" * 32


def test_no_bucket_is_404_for_every_operation(core: StorageCore) -> None:
    for attempt in (
        lambda: core.write("absent", "n", b""),
        lambda: core.read("absent", "n"),
        lambda: core.objects.delete("absent", "n"),
        lambda: core.objects.list("absent", ListQuery()),
        lambda: core.objects.copy(("bucket", "n"), ("absent", "n")),
        lambda: core.buckets.get("absent"),
    ):
        with pytest.raises(StorageError) as error:
            attempt()
        assert refused(error) == (404, "notFound")
        assert "bucket" in error.value.message


@pytest.mark.parametrize("name", ["", "a\nb", "a\rb", ".", "..", "x" * 1025, "é" * 513])
def test_forbidden_names_are_refused(core: StorageCore, name: str) -> None:
    with pytest.raises(StorageError) as error:
        core.write("bucket", name, b"")
    assert refused(error) == (400, "invalid")


@pytest.mark.parametrize("name", ["a b", "a#b?c", "ünï/côdé/日本", "trailing/", "//", "x" * 1024, "%2F", "a+b&c=d"])
def test_odd_names_are_kept_exactly(core: StorageCore, name: str) -> None:
    core.write("bucket", name, b"x")
    assert [item.name for item in core.objects.list("bucket", ListQuery()).items] == [name]


def test_writes_to_one_name_are_limited_to_one_a_second_when_asked(make_core, clock: ManualClock) -> None:
    core = make_core(writes_per_second=1.0)
    core.buckets.insert({"name": "bucket"})
    core.write("bucket", "n", b"1")
    core.write("bucket", "other", b"1")
    for attempt in (
        lambda: core.write("bucket", "n", b"2"),
        lambda: core.objects.patch("bucket", "n", {"contentType": "a/b"}),
        lambda: core.objects.delete("bucket", "n"),
    ):
        with pytest.raises(StorageError) as error:
            attempt()
        assert refused(error) == (429, "rateLimitExceeded")
    with pytest.raises(StorageError) as error:
        core.write("bucket", "n", b"2", if_generation=0)
    assert refused(error) == (412, "conditionNotMet")
    clock.advance(timedelta(seconds=1))
    core.write("bucket", "n", b"3")
    assert core.read("bucket", "n") == b"3"


def test_operations_are_counted_by_name_and_billing_class(core: StorageCore) -> None:
    core.hooks.operations.clear()
    core.hooks.classes.clear()
    core.write("bucket", "n", b"1")
    core.read("bucket", "n")
    core.objects.list("bucket", ListQuery())
    core.objects.delete("bucket", "n")
    assert dict(core.hooks.operations) == {
        "objects.insert": 1,
        "objects.get": 1,
        "objects.list": 1,
        "objects.delete": 1,
    }
    assert dict(core.hooks.classes) == {"A": 2, "B": 1}


def test_a_planned_failure_does_nothing_and_a_lost_answer_does_everything(core: StorageCore) -> None:
    core.hooks.plan.add(Fault("storage", "objects.insert", FaultKind.FAIL, resource="bucket/n", times=1))
    with pytest.raises(FaultInjected):
        core.write("bucket", "n", b"1" * LARGE)
    assert versions(core, "bucket") == []
    core.hooks.plan.add(Fault("storage", "objects.*", FaultKind.DROP_RESPONSE, resource="bucket/*", times=1))
    with pytest.raises(ResponseLost):
        core.write("bucket", "n", b"2")
    assert core.read("bucket", "n") == b"2"
