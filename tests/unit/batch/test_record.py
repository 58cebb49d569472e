"""Records say the same when they are read back, whoever wrote them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.records import START, batch_of, files

from ingestd.batch.content import Chunk, Fate, Load, Progress, SetAside
from ingestd.batch.file_list import from_manifest, to_manifest
from ingestd.batch.marks import SuccessMark
from ingestd.batch.phases import Phase
from ingestd.batch.record import Record
from ingestd.batch.recovery import JobLimits, begin, repeated
from ingestd.model.errors import NewerVersion
from ingestd.model.objects import Generation

PROGRESS = Progress(
    chunks=(Chunk(3, (2,), rest=(3,), blame=SetAside(Fate.CORRUPTED, "broken", "j")),),
    loads=(Load(2, (0,), 10, 100),),
    aside={1: SetAside(Fate.INVALID_SCHEMA, "no such field", "j", row=4, position=17, column="x")},
    jobs=3,
    reloads=2,
)


@pytest.mark.parametrize("count", [1, 4])
def test_a_record_says_the_same_when_read_back(count: int) -> None:
    before = batch_of(count, progress=replace(PROGRESS, staged=True) if count > 1 else Progress())
    after = Record.from_json(before.to_json())
    assert replace(after, load=before.load) == before


IN_FULL = (Path(__file__).parent / "stored_in_full.jsonl").read_bytes().splitlines()


@pytest.mark.parametrize("stored", IN_FULL, ids=["window", "directory", "route"])
def test_a_record_that_says_all_it_can_is_stored_as_ever(stored: bytes) -> None:
    """A window's batch, a directory's and a job's route, with everything set that mostly is not."""
    assert orjson.dumps(orjson.loads(Record.from_json(stored).to_json())) == stored


def test_a_single_file_keeps_the_version_that_older_daemons_read() -> None:
    assert orjson.loads(batch_of(1).to_json())["schema_version"] == 1
    assert orjson.loads(batch_of(2).to_json())["schema_version"] == 2


def split(count: int = 3) -> Progress:
    return begin(Progress(), [1] * count, JobLimits(files=1))


def test_jobs_of_a_split_load_are_named_as_parts_and_their_repetitions_as_tries() -> None:
    progress = repeated(split(), split().chunks[1], failures=1)
    names = [batch_of(3, progress=progress).load_job(number).job_id for number in range(1, 5)]
    assert names == [f"ds_t--17_00001_load_part{part}--tail" for part in ("1of3", "2of3", "3of3", "2of3_try2")]
    again = begin(replace(progress, chunks=()), [1, 1, 1], JobLimits(files=1))  # the directory was pinned once more
    names += [batch_of(3, progress=again).load_job(chunk.job).job_id for chunk in again.chunks]
    assert len(set(names)) == len(names), "no id is used twice"
    assert Record.from_json(batch_of(3, progress=again).to_json()).progress == again


def test_the_repetitions_of_one_load_for_all_files_are_tries() -> None:
    progress = begin(Progress(), [1] * 3, JobLimits())
    progress = repeated(progress, progress.chunks[0], failures=1)
    one = batch_of(3, progress=progress)
    names = [one.load_job(number).job_id for number in (1, 2)]
    assert names == ["ds_t--17_00001_load--tail", "ds_t--17_00001_load_try2--tail"]
    assert orjson.loads(one.to_json())["schema_version"] == 2, "older replicas go on with it"


def test_an_older_daemon_leaves_a_split_load_alone_and_what_it_split_itself_keeps_its_names() -> None:
    """It would look for the parts by other names, and load their files once more."""
    document = orjson.loads(batch_of(3, progress=split()).to_json())
    assert document["schema_version"] == 5
    del document["Progress"]["Parts"]  # as the version before wrote it
    older = Record.from_json(orjson.dumps(document | {"schema_version": 2}))
    names = [older.load_job(chunk.job).job_id for chunk in older.progress.chunks]
    assert names == [f"ds_t--17_00001_load{which}--tail" for which in ("", "_try2", "_try3")]
    more = repeated(older.progress, older.progress.chunks[1], failures=1)
    assert replace(older, progress=more).load_job().job_id.endswith("_load_try4--tail")
    assert replace(older, progress=more).version == 2


def test_job_numbers_that_bigquery_never_heard_of_are_given_again() -> None:
    back = split().take_back(1)
    assert back == Progress()
    used = repeated(split(), split().chunks[2], failures=0)
    assert used.take_back(4) == replace(split(), chunks=())


def test_a_directory_is_unresolved_until_its_table_is_known_whatever_older_daemons_called_it() -> None:
    mark = SuccessMark("gs://b/ds/t/_SUCCESS", Generation(7))
    document = orjson.loads(batch_of(0, trigger=mark).to_json())
    assert Record.from_json(orjson.dumps({**document, "DestTable": "ds.t.made_up"})).dest == "unresolved"
    known = batch_of(1, trigger=replace(mark, resolved=True))
    assert Record.from_json(known.to_json()).dest == "ds.t"


def test_the_files_of_a_large_batch_are_not_written_twice() -> None:
    many = batch_of(3)
    stored = orjson.loads(replace(many, load={**many.load, "sourceUris": many.sources}).to_json())
    assert stored["Load"]["sourceUris"] == []
    assert len(stored["Files"]) == 3


def test_a_record_from_the_future_is_refused() -> None:
    document = orjson.loads(batch_of(1).to_json()) | {"schema_version": 6}
    with pytest.raises(NewerVersion, match="schema_version 6"):
        Record.from_json(orjson.dumps(document))


def old(**changes: Any) -> Record:
    """A record as it was written before files had a progress each."""
    document = orjson.loads(batch_of(1).to_json())
    for key in ("Progress", "Staged", "FilesURL", "FileCount"):
        del document[key]
    return Record.from_json(orjson.dumps({**document, **changes}))


def test_an_older_record_under_way_goes_on_where_it_was() -> None:
    found = old(Attempt=3, Failures=2, Overwrote="1234")
    assert found.progress.chunks == (Chunk(3, (0,), failures=2),)
    assert found.load_job().job_id.endswith("_load_try3--tail")
    assert found.files[0].overwrote == 1234


@pytest.mark.parametrize(
    ("status", "rows", "loaded", "fate"),
    [
        ("loaded", 5, (0,), None),
        ("done", 5, (0,), None),
        ("failed", 5, (0,), None),
        ("failed", None, (), Fate.CORRUPTED),
        ("failing", None, (), Fate.CORRUPTED),
        ("superseded", None, (), Fate.SUPERSEDED),
        ("missing", None, (), Fate.MISSING),
    ],
)
def test_an_older_record_tells_what_became_of_its_file(
    status: str, rows: int | None, loaded: tuple[int, ...], fate: Fate | None
) -> None:
    progress = old(Status=status, Rows=rows, Attempt=2).progress
    assert progress.loaded == loaded
    assert [one.fate for one in progress.aside.values()] == ([fate] if fate else [])
    assert progress.jobs == 2


def test_a_list_of_files_says_the_same_when_read_back() -> None:
    data, name = to_manifest(files(20))
    assert from_manifest(data) == files(20)
    assert to_manifest(files(20))[1] == name
    assert to_manifest(files(19))[1] != name


def test_a_failed_batch_is_opened_again_for_what_did_not_load() -> None:
    failed = batch_of(4, progress=replace(PROGRESS, chunks=(), aside={
        1: PROGRESS.aside[1], 2: SetAside(Fate.FAILED, "undecided"), 3: SetAside(Fate.MISSING, "gone"),
    }))  # fmt: skip
    again = replace(failed, phase=Phase.FAILED, rows=10, error="x").reopened(START)
    assert again.phase is Phase.ACCEPTED
    assert not again.progress.begun
    assert {index: one.fate for index, one in again.progress.aside.items()} == {0: Fate.LOADED, 3: Fate.MISSING}
    assert again.progress.jobs == 3, "used numbers are not used again"
    assert again.rows is None


def test_a_batch_whose_actions_failed_is_opened_again_for_them() -> None:
    failed = batch_of(1, progress=Progress(loads=(Load(1, (0,), 5, 9),), jobs=1))
    assert replace(failed, phase=Phase.FAILED, rows=5).reopened(START).phase is Phase.LOADED
