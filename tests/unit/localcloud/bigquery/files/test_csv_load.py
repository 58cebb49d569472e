import datetime as dt
import gzip
from decimal import Decimal
from typing import Any

import pytest
from tests.support.loads import Loads, schema

from ingestd.formats.errors import BigQueryError

TWO = schema("a STRING", "b STRING")


@pytest.mark.parametrize(
    ("text", "options", "rows"),
    [
        ("x,y\n", {}, [("x", "y")]),
        ("x,y", {}, [("x", "y")]),
        ("x,y\r\nz,w\r\n", {}, [("x", "y"), ("z", "w")]),
        ("x,y\rz,w", {}, [("x", "y"), ("z", "w")]),
        ("x,y\n\nz,w\n", {}, [("x", "y"), ("z", "w")]),
        ("x,\n", {}, [("x", None)]),
        ('x,""\n', {}, [("x", "")]),
        ('"a,b","say ""hi"""\n', {}, [("a,b", 'say "hi"')]),
        ('5" pipe,y\n', {}, [('5" pipe', "y")]),
        ('"a\nb",y\nx,"c\r\nd"\n', {"allowQuotedNewlines": True}, [("a\nb", "y"), ("x", "c\r\nd")]),
        ("x|y\n", {"fieldDelimiter": "|"}, [("x", "y")]),
        ("x\ty\n", {"fieldDelimiter": "\\t"}, [("x", "y")]),
        ("x\ty\n", {"fieldDelimiter": "tab"}, [("x", "y")]),
        ("x||y\n", {"fieldDelimiter": "||", "ignoreUnknownValues": True}, [("x", None)]),
        ('"x",y\n', {"quote": ""}, [('"x"', "y")]),
        ("'a,b',y\n", {"quote": "'"}, [("a,b", "y")]),
        ("h1,h2\nx,y\n", {"skipLeadingRows": 1}, [("x", "y")]),
        ("h1,h2\nh,h\nx,y\n", {"skipLeadingRows": "2"}, [("x", "y")]),
        ('"h\n1",h2\nx,y\n', {"skipLeadingRows": 1, "allowQuotedNewlines": True}, [("x", "y")]),
        ("x\n", {"allowJaggedRows": True}, [("x", None)]),
        ("x,y,z\n", {"ignoreUnknownValues": True}, [("x", "y")]),
        ("\\N,\n", {"nullMarker": "\\N"}, [(None, "")]),
        ("NULL,-\n", {"nullMarkers": ["NULL", "-"]}, [(None, None)]),
        ("a\0b,y\n", {"preserveAsciiControlCharacters": True}, [("a\0b", "y")]),
        ("\ufeffx,y\n", {}, [("x", "y")]),
    ],
)
def test_csv_is_cut_into_cells_as_bigquery_cuts_it(
    loads: Loads, text: str, options: dict[str, Any], rows: list[tuple[str | None, ...]]
) -> None:
    assert loads.csv(text, TWO, **options) == rows


@pytest.mark.parametrize("encoding", ["ISO-8859-1", "UTF-16BE", "UTF-32LE"])
def test_encodings_are_decoded(loads: Loads, encoding: str) -> None:
    assert loads.csv("é,y\n".encode(encoding), TWO, encoding=encoding) == [("é", "y")]


def test_gzip_files_load(loads: Loads) -> None:
    assert loads.csv(gzip.compress(b"x,y\n"), TWO) == [("x", "y")]


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("INT64", "12", 12),
        ("INT64", "+12", 12),
        ("INT64", " 007 ", 7),
        ("FLOAT64", "1e3", 1000.0),
        ("FLOAT64", "0.1", 0.1),
        ("NUMERIC", "1.5", Decimal("1.5")),
        ("BOOL", "Yes", True),
        ("BOOL", "f", False),
        ("BOOL", "1", True),
        ("DATE", "2024-01-02", dt.date(2024, 1, 2)),
        ("TIMESTAMP", "2024-01-02 03:04:05.5", dt.datetime(2024, 1, 2, 3, 4, 5, 500000, tzinfo=dt.UTC)),
        ("TIMESTAMP", "2024-01-02", dt.datetime(2024, 1, 2, tzinfo=dt.UTC)),
        ("BYTES", "YWI=", b"ab"),
        ("JSON", '"{""a"": 1}"', '{"a":1}'),
        ("INT64", '""', None),
        ("INT64", "", None),
    ],
)
@pytest.mark.parametrize("copies", [1, 40])
def test_csv_text_becomes_typed(loads: Loads, column: str, text: str, value: object, copies: int) -> None:
    assert loads.csv(f"{text},1\n" * copies, schema(f"v {column}", "w INT64")) == [(value, 1)] * copies


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "ok,1\nx,abc\n",
            "Could not parse 'abc' as INT64 for field id (position 1) starting at location 5 with message 'Unable to",
        ),
        (
            "é,1\nx,1.5\n",
            "Could not parse '1.5' as INT64 for field id (position 1) starting at location 5 with message 'Unable to",
        ),
        ("x,1,z\n", "Too many values in row starting at position: 0. Found 3 column(s) while expected 2."),
        ("x\n", "CSV table references column position 1, but line starting at position:0 contains only 1 columns."),
        (
            '"x,1\n',
            'Error detected while parsing row starting at position: 0. Error: Missing close quote character (").',
        ),
        ('ok,1\n"x"y,1\n', 'position: 5. Error: Data between close quote character (") and field separator (,).'),
        ("a\0b,1\n", "Bad character (ASCII 0) encountered."),
    ],
)
def test_csv_errors_have_bigquerys_words(loads: Loads, text: str, message: str) -> None:
    with pytest.raises(BigQueryError) as failed:
        loads.csv(text, schema("name STRING", "id INT64"))
    assert failed.value.message == (
        "Error while reading data, error message: CSV table encountered too many errors, giving up. "
        f"Rows: {len(text.splitlines())}; errors: 1. Please look into the errors[] collection for more details."
    )
    assert message in failed.value.details[1].message
    assert failed.value.location == failed.value.details[1].location == "gs://b/f.csv"


def test_a_null_in_a_required_column_is_refused(loads: Loads) -> None:
    with pytest.raises(BigQueryError) as failed:
        loads.csv("a,1\n,2\n", schema("a STRING REQUIRED", "b INT64"))
    assert (
        "Required column value for column index: 0 is missing in row starting at position: 4"
        in failed.value.details[1].message
    )


@pytest.mark.parametrize("column", ["r STRUCT(x INT64)", "r INT64 REPEATED"])
def test_csv_cannot_be_nested(loads: Loads, column: str) -> None:
    with pytest.raises(BigQueryError, match="Cannot load CSV data with a"):
        loads.csv("1\n", schema(column))


def test_an_empty_cell_beside_a_custom_null_marker_is_no_number(loads: Loads) -> None:
    with pytest.raises(BigQueryError) as failed:
        loads.csv("x,\n", schema("a STRING", "b INT64"), nullMarker="NULL")
    assert "Could not parse '' as INT64" in failed.value.details[1].message


def test_columns_are_matched_by_the_names_in_the_header_when_asked(loads: Loads) -> None:
    rows = loads.csv(
        "B,A\n1,x\n", schema("a STRING", "b INT64", "c STRING"), sourceColumnMatch="NAME", skipLeadingRows=1
    )
    assert rows == [("x", 1, None)]


def test_each_file_has_its_own_leading_rows(loads: Loads) -> None:
    loads.put("gs://b/1.csv", "h,h\na,b\n")
    loads.put("gs://b/2.csv", "h,h\nc,d\n")
    outcome = loads.load("gs://b/*.csv", TWO, skipLeadingRows=1)
    assert loads.rows() == [("a", "b"), ("c", "d")]
    assert (outcome.rows, outcome.input_files, outcome.input_bytes) == (2, 2, 16)
