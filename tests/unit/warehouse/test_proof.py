"""What has to be true of a job before anything is deleted on the strength of it."""

from typing import Any

import pytest

from ingestd.batch.content import Chunk
from ingestd.batch.stages.land import _as_submitted
from ingestd.model.errors import Fatal
from ingestd.model.jobs import JobKind, JobRef, JobState
from ingestd.model.objects import FileVersion, Generation, ObjectRef
from ingestd.warehouse.proof import prove, prove_published

FILES = [FileVersion(ObjectRef("b", name), Generation(1), 10) for name in ("a.json", "b.json", "c.json")]
URLS = [file.ref.url for file in FILES]


def job(read: int | None, sources: list[str] | None = None) -> JobState:
    load = {} if read is None else {"inputFiles": str(read), "outputRows": "7"}
    configuration: dict[str, Any] = {} if sources is None else {"sourceUris": sources}
    return JobState(JobRef("p", "US", "job"), JobKind.LOAD, "DONE", configuration, statistics={"load": load})


def test_a_job_must_have_read_as_many_files_as_it_was_given() -> None:
    prove(job(3), FILES)
    prove(job(None), FILES)
    for read in (0, 2, 4):
        with pytest.raises(Fatal, match=f"read {read} files, but was given 3"):
            prove(job(read), FILES)


def test_a_job_must_have_been_given_these_files() -> None:
    prove(job(3, URLS[::-1]), FILES)
    for others in (URLS[:2], [*URLS[:2], "gs://b/x.json"], [*URLS, URLS[0]]):
        with pytest.raises(Fatal, match="other files"):
            prove(job(3, others), FILES)


def test_files_that_a_paused_replicas_job_read_count_as_read() -> None:
    """It was submitted with files that another replica, meanwhile, had found to be gone: their rows are there."""
    record = type("Record", (), {"files": FILES, "event_id": "1"})
    chunk = Chunk(1, (0, 2))
    assert _as_submitted(record, chunk, job(3, URLS)).files == (0, 1, 2)  # type: ignore[arg-type]
    assert _as_submitted(record, chunk, job(2, [URLS[0], URLS[2]])) == chunk  # type: ignore[arg-type]


def test_as_many_rows_are_published_as_were_landed() -> None:
    copied = JobState(JobRef("p", "US", "j"), JobKind.COPY, "DONE", {}, statistics={"copy": {"copiedRows": "7"}})
    assert prove_published(copied, 7) == prove_published(copied, None) == 7
    with pytest.raises(Fatal, match="published 7 rows, but the loads had landed 8"):
        prove_published(copied, 8)
