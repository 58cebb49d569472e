from typing import Any

import pytest
from tests.unit.localcloud.bigquery.files.support import Loads, schema

from ingestd.formats.errors import BigQueryError
from ingestd.model.schema import Schema


def shape(found: Schema) -> list[str]:
    out = []
    for item in found:
        kind = f"STRUCT({', '.join(shape(item.fields))})" if item.fields else item.type.value
        out.append(f"{item.name} {kind}{' REPEATED' if item.mode == 'REPEATED' else ''}")
    return out


@pytest.mark.parametrize(
    ("text", "options", "columns", "rows"),
    [
        ("id,name\n1,a\n2,b\n", {}, ["id INT64", "name STRING"], 2),
        ("a,b\nc,d\n", {}, ["string_field_0 STRING", "string_field_1 STRING"], 2),
        ("1,2.5\n3,4\n", {}, ["int64_field_0 INT64", "double_field_1 FLOAT64"], 2),
        ("id|when\n1|2024-01-01\n", {}, ["id INT64", "when DATE"], 1),
        ("id\twhen\n1\t2024-01-01 00:00:00\n", {}, ["id INT64", "when TIMESTAMP"], 1),
        ("id,t,b\n1,10:11:12,true\n", {}, ["id INT64", "t TIME", "b BOOL"], 1),
        ("id,x\n1,\n2,\n", {}, ["id INT64", "x STRING"], 2),
        ("id,x\n1,5\n2,y\n", {}, ["id INT64", "x STRING"], 2),
        ("my id,1st\n1,5\n", {}, ["my_id INT64", "_1st INT64"], 1),
        ("a,a\n1,5\n", {}, ["a INT64", "a_1 INT64"], 1),
        ("id,name\n1,a\n", {"skipLeadingRows": 0}, ["string_field_0 STRING", "string_field_1 STRING"], 2),
        ("junk,x\nid,name\n1,a\n", {"skipLeadingRows": 2}, ["id INT64", "name STRING"], 1),
        ("a,b\nc,d\n", {"skipLeadingRows": 1}, ["string_field_0 STRING", "string_field_1 STRING"], 1),
        ("id;x\n1;2\n", {"fieldDelimiter": ";"}, ["id INT64", "x INT64"], 1),
        ("12345678901234567890\n1\n", {}, ["double_field_0 FLOAT64"], 2),
    ],
)
def test_csv_detection_follows_the_documented_rules(
    loads: Loads, text: str, options: dict[str, Any], columns: list[str], rows: int
) -> None:
    loads.put("gs://b/f.csv", text)
    outcome = loads.load("gs://b/f.csv", autodetect=True, **options)
    assert shape(outcome.schema) == columns
    assert outcome.rows == rows


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"a": 1, "b": 1.5, "c": "x", "d": True}, ["a INT64", "b FLOAT64", "c STRING", "d BOOL"]),
        ({"a": "1", "b": "2024-01-01", "c": "2024-01-01T00:00:00Z"}, ["a INT64", "b DATE", "c TIMESTAMP"]),
        ({"r": {"x": 1, "y": {"z": "q"}}}, ["r STRUCT(x INT64, y STRUCT(z STRING))"]),
        ({"l": [1, 2.5], "m": [{"x": 1}, {"y": 2}]}, ["l FLOAT64 REPEATED", "m STRUCT(x INT64, y INT64) REPEATED"]),
        ({"n": None, "e": []}, ["n STRING", "e STRING REPEATED"]),
    ],
)
def test_json_detection_finds_types_and_nesting(loads: Loads, row: dict[str, Any], columns: list[str]) -> None:
    loads.put("gs://b/f.json", [row])
    outcome = loads.load("gs://b/f.json", sourceFormat="NEWLINE_DELIMITED_JSON", autodetect=True)
    assert shape(outcome.schema) == columns
    assert outcome.rows == 1


def test_a_field_beyond_the_sample_is_unknown(loads: Loads) -> None:
    loads.put("gs://b/f.json", [{"a": 1}] * 500 + [{"a": 1, "late": 2}])
    with pytest.raises(BigQueryError) as failed:
        loads.load("gs://b/f.json", sourceFormat="NEWLINE_DELIMITED_JSON", autodetect=True)
    assert "No such field: late." in failed.value.details[1].message


def test_a_header_is_skipped_when_the_schema_is_given_and_detection_is_on(loads: Loads) -> None:
    assert loads.csv("id,name\n1,a\n", schema("id INT64", "name STRING"), autodetect=True) == [(1, "a")]


def test_nothing_to_detect_is_an_error(loads: Loads) -> None:
    with pytest.raises(BigQueryError, match="Schema has no fields"):
        loads.json("", None, autodetect=True)
