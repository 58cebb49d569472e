"""What a restart finds: everything acknowledged, nothing else."""

import shutil
import sqlite3
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.stored_files import stored_file

from ingestd.localcloud.storage import StorageCore, StorageError
from ingestd.localcloud.storage.model import ListQuery, ObjectMetadata

LARGE = 200_000


def test_everything_is_there_after_the_process_died(core: StorageCore, make_core, tmp_path: Path) -> None:
    metadata = ObjectMetadata(content_type="text/csv", custom={"k": "v"}, temporary_hold=False)
    written = [
        core.objects.insert("versioned", "small", b"s", metadata),
        core.objects.insert("versioned", "large", b"l" * LARGE, metadata),
        core.objects.insert("versioned", "small", b"t", metadata),
    ]
    core.buckets.patch("bucket", {"labels": {"a": "b"}})
    shutil.copytree(tmp_path / "state", tmp_path / "after")
    again = make_core(tmp_path / "after")
    assert again.buckets.get("bucket") == core.buckets.get("bucket")
    assert again.objects.list("versioned", ListQuery(versions=True)) == core.objects.list(
        "versioned", ListQuery(versions=True)
    )
    assert again.read("versioned", "small", written[0].generation) == b"s"
    assert again.read("versioned", "small") == b"t"
    assert again.read("versioned", "large") == b"l" * LARGE


def test_generations_rise_across_restarts_even_if_the_clock_stepped_back(make_core, tmp_path: Path) -> None:
    core = make_core()
    core.buckets.insert({"name": "bucket"})
    for _ in range(5):
        last = core.write("bucket", "n", b"").generation
    core.objects.delete("bucket", "n")
    core.close()
    again = make_core()
    assert again.write("bucket", "n", b"").generation > last


def test_files_nobody_refers_to_are_swept_at_start(core: StorageCore, make_core, tmp_path: Path) -> None:
    core.write("bucket", "keep", b"k" * LARGE)
    kept = stored_file(core, "bucket", "keep")
    core.close()
    state = tmp_path / "state"
    orphans = [kept.with_name("0" * 32), state / "staging" / "half", state / "uploads" / "gone"]
    for orphan in orphans:
        orphan.write_bytes(b"left behind")
    again = make_core()
    assert [orphan.exists() for orphan in orphans] == [False, False, False]
    assert again.read("bucket", "keep") == b"k" * LARGE


def test_a_refused_large_write_leaves_no_file(core: StorageCore, tmp_path: Path) -> None:
    core.write("bucket", "n", b"1")
    for _ in range(3):
        with pytest.raises(StorageError):
            core.write("bucket", "n", b"x" * LARGE, if_generation=0)
    assert not list((tmp_path / "state" / "objects").glob("*/*"))
    assert not list((tmp_path / "state" / "staging").iterdir())


def test_a_failed_commit_undoes_the_file_and_the_row(
    core: StorageCore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(version: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(core._state.database, "put_object", full)
        with pytest.raises(sqlite3.OperationalError):
            core.write("bucket", "n", b"x" * LARGE)
    assert core.objects.list("bucket", ListQuery()).items == []
    assert not list((tmp_path / "state" / "objects").glob("*/*"))
    core.write("bucket", "n", b"x" * LARGE)
    assert core.read("bucket", "n") == b"x" * LARGE


def test_a_second_process_on_the_same_folder_is_refused(core: StorageCore, make_core) -> None:
    with pytest.raises(RuntimeError, match="in use"):
        make_core()


def test_state_of_another_schema_is_refused(make_core, tmp_path: Path) -> None:
    make_core().close()
    database = sqlite3.connect(tmp_path / "state" / "metadata.sqlite")
    database.execute("PRAGMA user_version=99")
    database.close()
    with pytest.raises(RuntimeError, match="schema 99"):
        make_core()


def test_sixteen_threads_racing_to_create_a_hundred_names_have_one_winner_each(core: StorageCore) -> None:
    names = [f"lock/{number}" for number in range(100)]
    wins: list[tuple[str, int]] = []
    losses: list[int] = []
    barrier = threading.Barrier(16)

    def race(worker: int) -> None:
        barrier.wait()
        for name in names:
            try:
                core.write("bucket", name, str(worker).encode(), if_generation=0)
            except StorageError as error:
                losses.append(error.status)
            else:
                wins.append((name, worker))

    threads = [threading.Thread(target=race, args=(worker,)) for worker in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(name for name, _ in wins) == Counter(names)
    assert Counter(losses) == {412: 1500}
    assert {name: core.read("bucket", name) for name in names} == {name: str(worker).encode() for name, worker in wins}


def test_concurrent_writers_of_one_name_never_share_a_generation(core: StorageCore, clock: ManualClock) -> None:
    generations: list[int] = []

    def write() -> None:
        for _ in range(50):
            generations.append(core.write("versioned", "n", b"x").generation)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clock.advance(timedelta(seconds=1))
    assert len(set(generations)) == 200
    live = [item for item in core.objects.list("versioned", ListQuery(versions=True)).items if item.live]
    assert [item.generation for item in live] == [max(generations)]
