import datetime as dt
import gzip
import math
from decimal import Decimal
from typing import Any

import pytest
from tests.support.loads import Loads, schema

from ingestd.formats.errors import BigQueryError

UTC = dt.UTC


@pytest.mark.parametrize(
    ("column", "raw", "value"),
    [
        ("INT64", "12", 12),
        ("INT64", '"12"', 12),
        ("INT64", "9223372036854775807", 2**63 - 1),
        ("INT64", '"-9223372036854775808"', -(2**63)),
        ("FLOAT64", "1", 1.0),
        ("FLOAT64", '"1.5e3"', 1500.0),
        ("FLOAT64", '"-inf"', -math.inf),
        ("NUMERIC", "12345678901234567890.123456789", Decimal("12345678901234567890.123456789")),
        ("NUMERIC", '"0.1"', Decimal("0.1")),
        ("NUMERIC", "1.00000000049999999999999999", Decimal(1)),
        ("NUMERIC", '"0.0000000005"', Decimal("0.000000001")),
        ("NUMERIC", '"-0.0000000005"', Decimal("-0.000000001")),
        ("NUMERIC(5/2)", '"123.455"', Decimal("123.46")),
        ("BIGNUMERIC", "12345678901234567890.123456789012345678", Decimal("12345678901234567890.123456789012345678")),
        ("BOOL", "true", True),
        ("BOOL", '"FALSE"', False),
        ("STRING", '"x"', "x"),
        ("STRING", "1.50", "1.50"),
        ("STRING", "true", "true"),
        ("STRING(3)", '"añb"', "añb"),
        ("BYTES", '"YWI="', b"ab"),
        ("DATE", '"2024-2-29"', dt.date(2024, 2, 29)),
        ("TIME", '"1:2:3.5"', dt.time(1, 2, 3, 500000)),
        ("DATETIME", '"2024-01-02T03:04:05.000006"', dt.datetime.fromisoformat("2024-01-02T03:04:05.000006")),
        ("DATETIME", '"2024-01-02"', dt.datetime.fromisoformat("2024-01-02")),
        ("TIMESTAMP", '"2024-01-02 03:04:05 UTC"', dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("TIMESTAMP", '"2024-01-02T03:04:05.123456+02:00"', dt.datetime(2024, 1, 2, 1, 4, 5, 123456, tzinfo=UTC)),
        ("TIMESTAMP", '"2024-07-02 03:04:05 America/New_York"', dt.datetime(2024, 7, 2, 7, 4, 5, tzinfo=UTC)),
        ("TIMESTAMP", '"2024/01/02 03:04"', dt.datetime(2024, 1, 2, 3, 4, tzinfo=UTC)),
        ("TIMESTAMP", "1512131696", dt.datetime(2017, 12, 1, 12, 34, 56, tzinfo=UTC)),
        ("TIMESTAMP", "1512131696.789012", dt.datetime(2017, 12, 1, 12, 34, 56, 789012, tzinfo=UTC)),
        ("TIMESTAMP", '"1512131696.789012"', dt.datetime(2017, 12, 1, 12, 34, 56, 789012, tzinfo=UTC)),
        ("JSON", '{"a": [1, 2.5, "x"]}', '{"a":[1,2.5,"x"]}'),
        ("JSON", '"text"', '"text"'),
        ("GEOGRAPHY", '"POINT(1 2)"', "POINT(1 2)"),
        ("RANGE<DATE>", '"[2024-01-01, UNBOUNDED)"', {"start": dt.date(2024, 1, 1), "end": None}),
        ("RANGE<DATE>", '{"start": "2024-01-01"}', {"start": dt.date(2024, 1, 1), "end": None}),
        ("INT64 REPEATED", "[1, 2]", [1, 2]),
        ("INT64 REPEATED", "null", []),
        ("STRUCT(x INT64, y STRING REPEATED)", '{"X": "1"}', {"x": 1, "y": []}),
        ("STRUCT(x INT64) REPEATED", '[{"x": 1}, {}]', [{"x": 1}, {"x": None}]),
        ("STRUCT(x INT64)", "null", None),
    ],
)
@pytest.mark.parametrize("copies", [1, 40])
def test_json_values_become_what_bigquery_reads(loads: Loads, column: str, raw: str, value: Any, copies: int) -> None:
    rows = loads.json("\n".join([f'{{"v": {raw}}}'] * copies), schema(f"v {column}"))
    assert rows == [(value,)] * copies


def test_an_interval_keeps_its_three_parts(loads: Loads) -> None:
    loads.json('{"v": "1-2 3 4:5:6.5"}\n{"v": "P1Y2M3DT4H5M6.5S"}', schema("v INTERVAL"))
    parts = "date_part('year', v), date_part('month', v), date_part('day', v), date_part('hour', v), epoch_us(v)"
    found = loads.conn.execute(f"SELECT {parts} FROM staged").fetchall()
    assert found[0] == found[1]
    assert found[0][:4] == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("column", "raw", "message"),
    [
        ("INT64", "1.0", "Could not convert value to integer. Field: v; Value: 1.0"),
        ("INT64", "true", "Could not convert value to integer. Field: v; Value: true"),
        ("INT64", '"x"', "Could not convert value to integer. Field: v; Value: x"),
        ("INT64", "9223372036854775808", "Could not convert value to integer. Field: v; Value: 9223372036854775808"),
        (
            "INT64",
            "123456789012345678901",
            "Could not convert value to integer. Field: v; Value: 123456789012345678901",
        ),
        ("FLOAT64", '"x"', "Could not convert value to float. Field: v; Value: x"),
        ("BOOL", "1", "Could not convert value to boolean. Field: v; Value: 1"),
        ("NUMERIC", '"1e30"', "Could not convert value to numeric. Field: v; Value: 1e30"),
        ("NUMERIC(3/1)", '"100"', "Could not convert value to numeric. Field: v; Value: 100"),
        ("BIGNUMERIC", '"0.0000000000000000001"', "Could not convert value to bignumeric."),
        ("STRING(2)", '"abc"', "Could not convert value to string. Field: v; Value: abc"),
        ("BYTES", '"*"', "Could not convert value to bytes. Field: v; Value: *"),
        ("DATE", '"2023-02-29"', "Could not convert value to date. Field: v; Value: 2023-02-29"),
        ("DATETIME", '"2024-01-01T00:00:00Z"', "Could not convert value to datetime."),
        (
            "TIMESTAMP",
            '"2024-01-01T00:00:00.1234567Z"',
            "Couldn't convert value to timestamp: Could not parse '2024-01-01T00:00:00.1234567Z' as a timestamp. Req",
        ),
        ("TIMESTAMP", "253402300800", "Couldn't convert value to timestamp"),
        ("STRING", '{"a": 1}', "JSON object specified for non-record field: v"),
        ("STRING", "[1]", "Array specified for non-repeated field: v."),
        ("STRING REPEATED", '"x"', "Repeated field must be imported as a JSON array. Field: v."),
        ("STRING REPEATED", "[null]", "Only optional fields can be set to NULL. Field: v; Value: NULL"),
        ("STRING REQUIRED", "null", "Only optional fields can be set to NULL. Field: v; Value: NULL"),
        ("STRUCT(x INT64)", "1", "Scalar value specified for record field: v"),
        ("STRUCT(x STRUCT(y INT64))", '{"x": {"z": 1}}', "No such field: v.x.z."),
    ],
)
@pytest.mark.parametrize("copies", [1, 40])
def test_values_bigquery_refuses_are_refused_with_its_words(
    loads: Loads, column: str, raw: str, message: str, copies: int
) -> None:
    good = '{"v": [], "w": 1}\n' if "REPEATED" in column else '{"w": 1}\n'
    content = good * (copies - 1) + f'{{"w": 1, "v": {raw}}}'
    if "REQUIRED" in column:
        content = f'{{"w": 1, "v": {raw}}}'
    with pytest.raises(BigQueryError) as failed:
        loads.json(content, schema(f"v {column}", "w INT64"))
    at = content.rindex("\n") + 1 if "\n" in content else 0
    prefix = f"Error while reading data, error message: JSON parsing error in row starting at position {at}: "
    detail = failed.value.details[1]
    assert detail.message.startswith(prefix + message)
    assert detail.message.endswith(" File: gs://b/f.json")
    assert detail.location == "gs://b/f.json"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"v": 1', "Parser terminated before end of string"),
        ("[1]", "Start of array encountered without start of object."),
        ("1", "Value encountered without start of object."),
        ('{"v": 1}{"v": 2}', "Syntax error"),
        ("{'v': 1}", "Syntax error"),
    ],
)
def test_a_line_that_is_no_object_is_a_bad_record(loads: Loads, line: str, message: str) -> None:
    with pytest.raises(BigQueryError) as failed:
        loads.json(line, schema("v INT64"))
    assert message in failed.value.details[1].message


def test_a_missing_required_field_is_named(loads: Loads) -> None:
    with pytest.raises(BigQueryError) as failed:
        loads.json('{"w": 1}', schema("v INT64 REQUIRED", "w INT64"))
    assert "Missing required field: v." in failed.value.details[1].message


def test_unknown_fields_are_skipped_when_asked(loads: Loads) -> None:
    rows = loads.json(
        '{"v": 1, "x": 2, "r": {"a": 1, "b": 2}}', schema("v INT64", "r STRUCT(a INT64)"), ignoreUnknownValues=True
    )
    assert rows == [(1, {"a": 1})]


def test_column_names_match_whatever_their_case(loads: Loads) -> None:
    assert loads.json('{"ID": 1}', schema("Id INT64")) == [(1,)]


def test_blank_lines_carriage_returns_and_a_byte_order_mark_are_no_rows(loads: Loads) -> None:
    assert loads.json('\ufeff{"v": 1}\r\n\r\n \n{"v": 2}\r\n', schema("v INT64")) == [(1,), (2,)]


def test_gzip_is_recognised_by_its_content(loads: Loads) -> None:
    packed = gzip.compress(b'{"v": 1}\n') + gzip.compress(b'{"v": 2}\n')
    assert loads.json(packed, schema("v INT64")) == [(1,), (2,)]


def test_other_encodings_are_decoded(loads: Loads) -> None:
    rows = loads.json('{"v": "é"}'.encode("utf-16-le"), schema("v STRING"), encoding="UTF-16LE")
    assert rows == [("é",)]


def test_bytes_that_are_not_utf8_become_replacement_characters(loads: Loads) -> None:
    assert loads.json(b'{"v": "a\xffb"}', schema("v STRING")) == [("a�b",)]


def test_a_load_without_any_schema_is_refused(loads: Loads) -> None:
    with pytest.raises(BigQueryError, match="No schema specified on job or table"):
        loads.json('{"v": 1}', None)


def test_a_failed_load_leaves_no_table(loads: Loads) -> None:
    with pytest.raises(BigQueryError):
        loads.json('{"x": 1}', schema("v INT64"))
    assert loads.conn.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'staged'").fetchone() == (0,)


def test_custom_formats_decide_how_dates_are_read(loads: Loads) -> None:
    rows = loads.json(
        '{"d": "31/12/2024", "t": "12-31-24 01:02 PM"}',
        schema("d DATE", "t TIMESTAMP"),
        dateFormat="DD/MM/YYYY",
        timestampFormat="MM-DD-RR HH:MI AM",
        timeZone="Europe/Amsterdam",
    )
    assert rows == [(dt.date(2024, 12, 31), dt.datetime(2024, 12, 31, 12, 2, tzinfo=UTC))]
