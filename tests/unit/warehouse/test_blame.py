"""BigQuery's error texts, as it really writes them, lead to the right files, rows and columns."""

import pytest

from ingestd.model.jobs import JobError, JobKind, JobRef, JobState
from ingestd.warehouse.blame import about_content, blames, unnamed

A, B, ODD = "gs://b/data/a.json", "gs://b/data/b.json", "gs://b/data/odd name. v2.json"
READING = "Error while reading data, error message: "


def failed(*errors: JobError) -> JobState:
    return JobState(JobRef("p", "US", "j"), JobKind.LOAD, "DONE", {}, error=errors[0], errors=errors)


def test_a_location_names_the_file_and_the_text_the_place() -> None:
    found = blames(
        failed(
            JobError(
                "invalid",
                f"{READING}JSON table encountered too many errors, giving up. Rows: 7; errors: 1. Please look into the "
                "errors[] collection for more details.",
                A,
            ),
            JobError("invalid", f"{READING}JSON processing encountered too many errors, giving up. Rows: 7; errors: 1"),
            JobError(
                "invalid",
                f"{READING}JSON parsing error in row starting at position 118: No such field: extra. File: {A}",
            ),
        ),
        [A, B],
    )
    assert set(found) == {A}
    blame = found[A]
    assert (blame.row, blame.position, blame.column, blame.schema) == (7, 118, "extra", True)


@pytest.mark.parametrize(
    ("text", "row", "position", "column"),
    [
        (
            "Could not parse 'abc' as INT64 for field id (position 0) starting at location 8 with message 'Unable'",
            None,
            8,
            "id",
        ),
        ("Could not convert value to integer. Field: order.id; Value: x", None, None, "order.id"),
        ("Missing required field: name.", None, None, "name"),
        ("Error detected while parsing row starting at position: 4711. Error: Bad character", None, 4711, ""),
        ("Parquet column 'amount' has type INT64 which does not match", None, None, "amount"),
        ("CSV processing encountered too many errors, giving up. Rows: 12; errors: 1", 12, None, ""),
    ],
)
def test_rows_positions_and_columns_are_found(text: str, row: int | None, position: int | None, column: str) -> None:
    found = blames(failed(JobError("invalid", f"{READING}{text}", A)), [A])[A]
    assert (found.row, found.position, found.column) == (row, position, column)


@pytest.mark.parametrize(
    "message",
    [
        f"{READING}broken. File: {ODD}",
        f"{READING}broken. File: {ODD}.",
        f"{READING}broken. File: /bigstore/b/data/odd name. v2.json",
        f"Not found: URI {ODD}",
        f"Not found: Files {ODD} (and others)",
    ],
)
def test_names_with_blanks_and_dots_are_told_by_the_files_of_the_load(message: str) -> None:
    assert set(blames(failed(JobError("invalid", message)), [A, ODD])) == {ODD}


def test_a_file_that_is_not_in_the_load_is_not_blamed() -> None:
    assert blames(failed(JobError("invalid", f"{READING}broken. File: {B}", B)), [A]) == {}


def test_a_missing_file_is_told_from_a_broken_one() -> None:
    found = blames(failed(JobError("notFound", f"Not found: URI {A}", A), JobError("invalid", "broken", B)), [A, B])
    assert found[A].missing
    assert not found[B].missing


def test_what_was_asked_is_told_from_what_was_read() -> None:
    assert about_content(failed(JobError("invalid", f"{READING}Input CSV files are not splittable and at least one")))
    assert not about_content(failed(JobError("invalid", "No schema specified on job or table.")))
    assert not about_content(failed(JobError("invalid", "Table t is not partitioned: the decorator cannot be used")))


def test_an_error_without_file_still_tells_what_it_knows() -> None:
    blame = unnamed(failed(JobError("invalid", f"{READING}too many errors"), JobError("invalid", "No such field: x.")))
    assert (blame.column, blame.schema) == ("x", True)
