import gzip

import pytest
from tests.support.loads import Loads, schema

from ingestd.formats.errors import BigQueryError, ErrorProto
from ingestd.formats.problems import MAX_FILES

ONE = schema("v INT64")
JSON = {"sourceFormat": "NEWLINE_DELIMITED_JSON"}


def test_a_bad_record_fails_the_job_with_bigquerys_three_messages(loads: Loads) -> None:
    loads.put("gs://b/f.json", '{"foo": 1}')
    with pytest.raises(BigQueryError) as failed:
        loads.load("gs://b/f.json", ONE, **JSON)
    error = failed.value
    assert error.proto == ErrorProto(
        "invalid",
        "Error while reading data, error message: JSON table encountered too many errors, giving up. Rows: 1; "
        "errors: 1. Please look into the errors[] collection for more details.",
        "gs://b/f.json",
    )
    assert error.details == (
        ErrorProto(
            "invalid",
            "Error while reading data, error message: JSON processing encountered too many errors, giving up. "
            "Rows: 1; errors: 1; max bad: 0; error percent: 0",
        ),
        ErrorProto(
            "invalid",
            "Error while reading data, error message: JSON parsing error in row starting at position 0: "
            "No such field: foo. File: gs://b/f.json",
            "gs://b/f.json",
        ),
    )


@pytest.mark.parametrize("uri", ["gs://b/missing.json", "gs://b/missing*"])
def test_missing_files_are_not_found(loads: Loads, uri: str) -> None:
    loads.put("gs://b/f.json", '{"v": 1}')
    with pytest.raises(BigQueryError) as failed:
        loads.load(["gs://b/f.json", uri, "gs://b/also"], ONE, **JSON)
    assert failed.value.proto == ErrorProto("notFound", f"Not found: URI {uri}", uri)
    assert failed.value.details == (ErrorProto("notFound", "Not found: URI gs://b/also", "gs://b/also"),)


def test_every_bad_file_is_named_in_one_failure(loads: Loads) -> None:
    for number in range(30):
        loads.put(f"gs://b/{number:02d}.json", [{"v": number}, {"v": "x" if number % 10 == 3 else 1}])
    with pytest.raises(BigQueryError) as failed:
        loads.load("gs://b/*.json", ONE, **JSON)
    named = [detail.location for detail in failed.value.details if detail.location]
    assert named == ["gs://b/03.json", "gs://b/13.json", "gs://b/23.json"]
    assert failed.value.location == "gs://b/03.json"


def test_the_list_of_bad_files_is_capped(loads: Loads) -> None:
    for number in range(MAX_FILES + 20):
        loads.put(f"gs://b/{number:03d}.json", [{"x": number}])
    with pytest.raises(BigQueryError) as failed:
        loads.load("gs://b/*.json", ONE, **JSON)
    assert len({detail.location for detail in failed.value.details} - {""}) == MAX_FILES


@pytest.mark.parametrize("copies", [1, 50])
def test_as_many_bad_records_as_allowed_are_skipped_and_reported(loads: Loads, copies: int) -> None:
    loads.put("gs://b/f.json", '{"v": 1}\n{"v": "x"}\nnonsense\n' + '{"v": 2}\n' * copies)
    outcome = loads.load("gs://b/f.json", ONE, **JSON, maxBadRecords=2)
    assert (outcome.rows, outcome.bad_records) == (1 + copies, 2)
    assert [error.location for error in outcome.errors] == ["gs://b/f.json"] * 2
    assert "position 9" in outcome.errors[0].message
    assert loads.conn.execute("SELECT count(*), sum(v) FROM staged").fetchone() == (1 + copies, 1 + 2 * copies)


def test_one_bad_record_too_many_fails(loads: Loads) -> None:
    loads.put("gs://b/1.json", '{"v": "x"}\n{"v": 1}')
    loads.put("gs://b/2.json", '{"v": 1}\n{"v": "y"}\n{"v": "z"}')
    with pytest.raises(BigQueryError) as failed:
        loads.load("gs://b/*.json", ONE, **JSON, maxBadRecords=2)
    assert failed.value.location == "gs://b/2.json"
    assert "Rows: 3; errors: 2." in failed.value.message
    assert "max bad: 2" in failed.value.details[0].message


@pytest.mark.parametrize("damage", ["cut", "crc", "header"])
def test_a_corrupt_gzip_file_is_named_and_never_half_loaded(loads: Loads, damage: str) -> None:
    packed = gzip.compress(b'{"v": 1}\n' * 5000)
    broken = {"cut": packed[:-20], "crc": packed[:-8] + b"\0" * 8, "header": b"plain"}[damage]
    loads.put("gs://b/ok.json", '{"v": 1}')
    loads.put("gs://b/x.json.gz", broken)
    with pytest.raises(BigQueryError) as failed:
        loads.load(["gs://b/ok.json", "gs://b/x.json.gz"], ONE, **JSON, maxBadRecords=100)
    assert failed.value.location == "gs://b/x.json.gz"
    assert "Failed to decompress gzip data" in failed.value.message


def test_corrupt_and_bad_files_are_reported_together(loads: Loads) -> None:
    loads.put("gs://b/1.json", '{"x": 1}')
    loads.put("gs://b/2.json.gz", b"plain")
    with pytest.raises(BigQueryError) as failed:
        loads.load("gs://b/*", ONE, **JSON)
    located = {failed.value.location, *(detail.location for detail in failed.value.details)}
    assert {"gs://b/1.json", "gs://b/2.json.gz"} <= located


def test_empty_objects_and_folder_markers_hold_no_rows(loads: Loads) -> None:
    loads.put("gs://b/d/", b"")
    loads.put("gs://b/d/empty.json", b"")
    loads.put("gs://b/d/one.json", '{"v": 1}')
    outcome = loads.load("gs://b/d*", ONE, **JSON)
    assert (outcome.rows, outcome.input_files) == (1, 2)


def test_a_manifest_lists_the_files(loads: Loads) -> None:
    loads.put("gs://b/1.json", '{"v": 1}')
    loads.put("gs://b/2.json", '{"v": 2}')
    loads.put("gs://b/manifest", "gs://b/1.json\ngs://b/2.json\n")
    outcome = loads.load(
        "gs://b/manifest", ONE, **JSON, fileSetSpecType="FILE_SET_SPEC_TYPE_NEW_LINE_DELIMITED_MANIFEST"
    )
    assert outcome.rows == 2
