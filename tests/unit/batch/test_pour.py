"""Prepared rows are counted again when they have been loaded: nothing is deleted before both numbers agree."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.records import record

from ingestd.batch.pinned import Pinned, Pour
from ingestd.batch.record import Record
from ingestd.batch.stages.pour import pinned_of, poured
from ingestd.model.errors import Fatal
from ingestd.model.jobs import JobKind, JobRef, JobState
from ingestd.model.preparation import Output, Prepared

URIS = ("gs://ops/staging/1.parquet", "gs://ops/staging/2.parquet")


def loading(rows: int) -> Record:
    prepared = Prepared(1, "PARQUET", (), (Output(-1, URIS, rows, 100),), rows_read=rows)
    pinned = Pinned(prepared, (Pour(0, 0, 1, 1), Pour(0, 1, 2, 2)))
    one = record()
    return replace(one, progress=replace(one.progress, pinned=pinned, staged=True))


def job(rows: int, *uris: str) -> JobState:
    statistics: dict[str, Any] = {"load": {"outputRows": str(rows), "inputFileBytes": "50"}}
    return JobState(JobRef("p", "US", "j"), JobKind.LOAD, "DONE", {"sourceUris": list(uris)}, statistics=statistics)


def pour(made: Record, number: int, rows: int) -> Record:
    return poured(made, pinned_of(made).pours[number], job(rows, URIS[number]))


def test_every_prepared_row_has_to_be_loaded() -> None:
    made = pour(pour(loading(10), 0, 6), 1, 4)
    assert pinned_of(made).landed(-1) == 10
    for second in (3, 5, 0):
        short = pour(loading(10), 0, 6)
        with pytest.raises(Fatal, match=f"{6 + second} rows were loaded, but 10 were prepared"):
            pour(short, 1, second)


def test_a_job_over_other_files_than_this_attempts_proves_nothing() -> None:
    made = loading(10)
    with pytest.raises(Fatal, match="other files"):
        poured(made, pinned_of(made).pours[0], job(6, URIS[1]))
