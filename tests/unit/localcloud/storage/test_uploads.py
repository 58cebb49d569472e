"""Resumable uploads in pieces, through refusals, restarts and repeats."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.manual_clock import ManualClock

from ingestd.localcloud.faults import Fault, FaultInjected, FaultKind
from ingestd.localcloud.storage import StorageCore, StorageError
from ingestd.localcloud.storage.model import NO_CHECKSUMS, NO_CONDITIONS, Checksums, ObjectMetadata, Preconditions
from ingestd.localcloud.storage.upload_ops import GRANULARITY

DATA = bytes(range(256)) * 3000  # 768,000 bytes: two whole granules and a rest


def start(core: StorageCore, total: int | None = None, conditions: Preconditions = NO_CONDITIONS) -> str:
    return core.uploads.start("bucket", "n", ObjectMetadata(content_type="t/p"), conditions, NO_CHECKSUMS, total)


def test_pieces_become_an_object_with_the_last_one(core: StorageCore) -> None:
    upload = start(core)
    assert core.uploads.status(upload).received == 0
    assert core.uploads.write(upload, 0, DATA[:GRANULARITY], None).received == GRANULARITY
    with pytest.raises(StorageError):
        core.stat("bucket", "n")
    done = core.uploads.write(upload, GRANULARITY, DATA[GRANULARITY:], len(DATA))
    assert done.result == core.stat("bucket", "n")
    assert core.read("bucket", "n") == DATA
    assert done.result.md5 == core.write("bucket", "m", DATA).md5
    assert done.result.metadata.content_type == "t/p"


def test_an_unfinished_piece_keeps_whole_granules_only(core: StorageCore) -> None:
    upload = start(core)
    assert core.uploads.write(upload, 0, DATA[: GRANULARITY + 5], None).received == GRANULARITY
    assert core.uploads.write(upload, GRANULARITY, DATA[GRANULARITY : GRANULARITY + 9], None).received == GRANULARITY
    assert core.uploads.write(upload, GRANULARITY, DATA[GRANULARITY:], len(DATA)).result is not None
    assert core.read("bucket", "n") == DATA


def test_overlapping_bytes_are_ignored_and_gaps_refused(core: StorageCore) -> None:
    upload = start(core)
    core.uploads.write(upload, 0, DATA[: 2 * GRANULARITY], None)
    core.uploads.write(upload, 0, DATA[:GRANULARITY], None)
    assert core.uploads.status(upload).received == 2 * GRANULARITY
    with pytest.raises(StorageError) as error:
        core.uploads.write(upload, 3 * GRANULARITY, b"x" * GRANULARITY, None)
    assert error.value.status == 400
    core.uploads.write(upload, GRANULARITY, DATA[GRANULARITY:], len(DATA))
    assert core.read("bucket", "n") == DATA


def test_a_repeated_last_piece_answers_the_same_object(core: StorageCore) -> None:
    upload = start(core, total=3)
    first = core.uploads.write(upload, 0, b"abc", 3)
    assert core.uploads.write(upload, 0, b"abc", 3) == first
    assert core.uploads.status(upload) == first
    core.objects.delete("bucket", "n")
    with pytest.raises(StorageError) as error:
        core.uploads.status(upload)
    assert error.value.status == 410


def test_an_empty_upload_makes_an_empty_object(core: StorageCore) -> None:
    assert core.uploads.write(start(core), 0, b"", 0).result is not None
    assert core.read("bucket", "n") == b""


def test_a_status_query_that_names_the_total_finishes_a_complete_upload(core: StorageCore) -> None:
    upload = start(core)
    core.uploads.write(upload, 0, DATA[:GRANULARITY], None)
    assert core.uploads.status(upload, len(DATA)).result is None
    assert core.uploads.status(upload, GRANULARITY).result is not None
    assert core.read("bucket", "n") == DATA[:GRANULARITY]


def test_more_or_other_than_declared_is_refused(core: StorageCore) -> None:
    upload = start(core, total=3)
    for data, total in ((b"abcd", None), (b"abcd", 4), (b"ab", 2)):
        with pytest.raises(StorageError) as error:
            core.uploads.write(upload, 0, data, total)
        assert error.value.status == 400
    assert core.uploads.write(upload, 0, b"abc", None).result is not None


def test_conditions_hold_at_the_start_and_again_at_the_end(core: StorageCore) -> None:
    upload = start(core, conditions=Preconditions(generation=0))
    core.write("bucket", "n", b"someone else")
    with pytest.raises(StorageError) as late:
        core.uploads.write(upload, 0, b"abc", 3)
    assert late.value.status == 412
    with pytest.raises(StorageError) as early:
        start(core, conditions=Preconditions(generation=0))
    assert early.value.status == 412
    assert core.read("bucket", "n") == b"someone else"


def test_a_wrong_checksum_refuses_the_last_piece_only(core: StorageCore) -> None:
    upload = start(core)
    core.uploads.write(upload, 0, DATA[:GRANULARITY], None)
    rest = DATA[GRANULARITY:]
    with pytest.raises(StorageError) as error:
        core.uploads.write(upload, GRANULARITY, rest, len(DATA), Checksums(crc32c="AAAAAA=="))
    assert error.value.status == 400
    assert core.uploads.status(upload).received == GRANULARITY
    crc32c = core.write("bucket", "m", DATA).crc32c
    assert core.uploads.write(upload, GRANULARITY, rest, len(DATA), Checksums(crc32c=crc32c)).result is not None


def test_a_cancelled_upload_answers_499_for_good(core: StorageCore) -> None:
    upload = start(core)
    core.uploads.write(upload, 0, DATA[:GRANULARITY], None)
    core.uploads.cancel(upload)
    for attempt in (
        lambda: core.uploads.status(upload),
        lambda: core.uploads.write(upload, GRANULARITY, b"", GRANULARITY),
    ):
        with pytest.raises(StorageError) as error:
            attempt()
        assert error.value.status == 499


def test_unknown_and_expired_sessions_are_told_apart(core: StorageCore, clock: ManualClock) -> None:
    upload = start(core)
    with pytest.raises(StorageError) as unknown:
        core.uploads.status("nonsense")
    assert unknown.value.status == 404
    clock.advance(timedelta(days=7, seconds=1))
    with pytest.raises(StorageError) as expired:
        core.uploads.status(upload)
    assert expired.value.status == 410


def test_a_planned_failure_of_the_insert_leaves_the_session_resumable(core: StorageCore) -> None:
    upload = start(core)
    core.uploads.write(upload, 0, DATA[:GRANULARITY], None)
    core.hooks.plan.add(Fault("storage", "objects.insert", FaultKind.FAIL, times=1))
    with pytest.raises(FaultInjected):
        core.uploads.write(upload, GRANULARITY, DATA[GRANULARITY:], len(DATA))
    assert core.uploads.status(upload).received == GRANULARITY
    assert core.uploads.write(upload, GRANULARITY, DATA[GRANULARITY:], len(DATA)).result is not None
    assert core.read("bucket", "n") == DATA


def test_an_upload_goes_on_after_the_process_died(core: StorageCore, make_core, tmp_path: Path) -> None:
    upload = start(core)
    core.uploads.write(upload, 0, DATA[:GRANULARITY], None)
    shutil.copytree(tmp_path / "state", tmp_path / "after")
    # Bytes that reached the file but were never acknowledged.
    with (tmp_path / "after" / "uploads" / upload).open("ab") as file:
        file.write(b"half a piece")
    again = make_core(tmp_path / "after")
    assert again.uploads.status(upload).received == GRANULARITY
    again.uploads.write(upload, GRANULARITY, DATA[GRANULARITY:], len(DATA))
    assert again.read("bucket", "n") == DATA
    assert not list((tmp_path / "after" / "uploads").iterdir())
