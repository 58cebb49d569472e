"""Files read for Spark have the rows that a direct load has; what is wrong is told with its place."""

import base64
import bz2
import codecs
import datetime as dt
import gzip
import io
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.spark.reads import EVERYTHING, direct, read
from tests.support.files import avro, orc, parquet
from tests.support.loads import schema

from ingestd.formats.options import LoadOptions
from ingestd.model.preparation import BadData, Drift
from ingestd.spark.files import read_task, readers

JSON = {"sourceFormat": "NEWLINE_DELIMITED_JSON"}
CSV = {"sourceFormat": "CSV"}

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
dates = st.dates().map(dt.date.isoformat)
times = st.times().map(dt.time.isoformat)
datetimes = st.datetimes().map(lambda value: value.isoformat(sep=" "))
timestamps = st.datetimes().map(lambda value: value.isoformat() + "Z")
numerics = st.decimals(-(10**28), 10**28, allow_nan=False, allow_infinity=False, places=9).map("{:f}".format)
bytestrings = st.binary(max_size=5).map(lambda value: base64.b64encode(value).decode())
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["NaN", "Infinity", "-inf", 1, "2.5"])


def span(bounds: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.lists(bounds, min_size=2, max_size=2, unique=True).map(
        lambda ends: {"start": min(ends), "end": max(ends)}
    ) | bounds.map(lambda start: {"start": start, "end": None})


# What the local BigQuery can hold of a BIGNUMERIC; `test_types` has the rest.
bignumerics = st.decimals(-(10**19), 10**19, allow_nan=False, allow_infinity=False, places=18).map("{:f}".format)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9).map(str),
    "f": numbers,
    "n": numerics | st.integers(-5, 5),
    "b": bignumerics,
    "o": st.booleans() | st.sampled_from(["true", "FALSE"]),
    "s": texts | st.integers(0, 99) | st.booleans(),
    "y": bytestrings,
    "d": dates,
    "t": times,
    "dt": datetimes,
    "ts": timestamps | st.integers(-(10**9), 10**10),
    "g": st.sampled_from(["POINT(1 2)", "LINESTRING(0 0, 1 1)"]),
    "j": json_values,
    "v": st.sampled_from(["1-2 3 4:5:6.789", "-0-1 0 0:0:0", "P1Y2M3DT4H5M6.5S"]),
    "rd": span(dates),
    "rt": span(timestamps),
    "l": st.lists(st.integers(-99, 99), max_size=3),
    "lt": st.lists(times, max_size=2),
    "r": st.fixed_dictionaries(
        {},
        optional={
            "x": numerics,
            "y": st.lists(timestamps, max_size=2),
            "z": st.lists(
                st.fixed_dictionaries({}, optional={"q": json_values, "w": st.lists(bytestrings, max_size=2)}),
                max_size=2,
            ),
        },
    ),
    "lr": st.lists(st.fixed_dictionaries({}, optional={"x": numbers, "y": bignumerics}), max_size=2),
}
ROWS = st.lists(
    st.fixed_dictionaries({}, optional={name: values | st.none() for name, values in VALUES.items()}),
    min_size=1,
    max_size=4,
)


def lines(rows: list[Any]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def comparable(rows: list[tuple[Any, ...]]) -> list[str]:
    """NaN equals itself, JSON is compared by value, and 0.0 differs from -0.0."""
    return sorted(repr(tuple(map(_plain, row))) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return value


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS)
def test_values_of_every_type_arrive_as_a_direct_load_has_them(tmp_path: Path, rows: list[Any]) -> None:
    contents = {"f.json": lines(rows)}
    found = read(tmp_path, contents, EVERYTHING, JSON)
    assert [report.bad for report in found.reports] == [0]
    again = direct({"again.json": found.lines()}, EVERYTHING, JSON)
    assert comparable(again) == comparable(direct(contents, EVERYTHING, JSON))


def test_values_are_what_was_written(tmp_path: Path) -> None:
    """Against Python's own understanding of each literal, so that readers cannot be wrong together."""
    columns = schema("i INT64", "n NUMERIC", "d DATE", "ts TIMESTAMP", "dt DATETIME", "y BYTES", "f FLOAT64")
    row = {
        "i": -(2**63),
        "n": "12345678901234567890123456789.123456789",
        "d": "0001-01-01",
        "ts": "1969-12-31T23:59:59.999999-01:30",
        "dt": "9999-12-31 23:59:59.999999",
        "y": "AP8=",
        "f": 0.1,
    }
    table = read(tmp_path, {"f.json": lines([row])}, columns, JSON).rows
    assert table.to_pylist()[0] == {
        "i": -(2**63),
        "n": Decimal("12345678901234567890123456789.123456789"),
        "d": dt.date(1, 1, 1),
        "ts": dt.datetime(1970, 1, 1, 1, 29, 59, 999999, tzinfo=dt.UTC),
        "dt": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
        "y": b"\0\xff",
        "f": 0.1,
        "_ingestd_file": 0,
        "_ingestd_line": 0,
        "_ingestd_report": None,
    }


def named(value: object) -> str | None:
    """Content is no name for a test: gzip writes the time into it, and workers have to agree on names."""
    return "" if isinstance(value, bytes) else None


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("i", 2**63),
        ("i", 1.5),
        ("i", True),
        ("f", "1e999"),
        ("n", "1e29"),
        ("b", "1e39"),
        ("o", "yes"),
        ("y", "=="),
        ("d", "2024-02-30"),
        ("t", "24:00:00"),
        ("dt", "2024-01-01T00:00:00Z"),
        ("ts", "10000-01-01"),
        ("rd", {"start": "2024-02-01", "end": "2024-01-01"}),
        ("l", 1),
        ("l", [None]),
        ("r", "x"),
        ("lr", [{"nothing": 1}]),
    ],
)
def test_a_value_out_of_range_is_bad_data_and_never_null(tmp_path: Path, column: str, value: Any) -> None:
    good = [{"i": 1}, {"i": 2}]
    contents = {"f.json": lines([*good, {column: value}, *good])}
    found = read(tmp_path, contents, EVERYTHING, JSON, BadData.QUARANTINE_ROWS)
    report = found.reports[0]
    assert (report.bad, report.line, report.column.split(".")[0], report.schema) == (1, 3, column, True)
    assert found.rows.num_rows == 4


SIMPLE = schema("id INT64 REQUIRED", "name STRING", "at TIMESTAMP")
GOOD = lines([{"id": n, "name": "é" * (n % 7), "at": "2024-01-01T00:00:00Z"} for n in range(300)])


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("plain.json", GOOD),
        ("crlf.json", GOOD.replace(b"\n", b"\r\n")),
        ("blank.json", b"\n  \n" + GOOD + b"\n\n"),
        ("bom.json", b"\xef\xbb\xbf" + GOOD),
        ("gzip.json.gz", gzip.compress(GOOD)),
        ("members.json.gz", gzip.compress(GOOD + b"\n") + gzip.compress(GOOD)),
        ("unnamed.json", gzip.compress(GOOD)),
        ("empty.json", b""),
        ("case.json", GOOD.replace(b'"id"', b'"ID"')),
    ],
    ids=named,
)
def test_lines_of_json_are_read_as_a_direct_load_reads_them(tmp_path: Path, name: str, data: bytes) -> None:
    found = read(tmp_path, {name: data, "other.json": GOOD}, SIMPLE, JSON)
    assert direct({"x.json": found.lines()}, SIMPLE, JSON) == direct({name: data, "other.json": GOOD}, SIMPLE, JSON)
    assert {report.index: report.rows for report in found.reports}[1] == 300


def _zstd(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    return packed


@pytest.mark.parametrize(("name", "pack"), [("a.json.bz2", bz2.compress), ("a.json.zst", _zstd)])
def test_more_compressions_than_bigquery_knows_are_read(tmp_path: Path, name: str, pack: Any) -> None:
    assert read(tmp_path, {name: pack(GOOD)}, SIMPLE, JSON).rows.num_rows == 300


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cut.json.gz", gzip.compress(GOOD)[:-9]),
        ("cut.json.bz2", bz2.compress(GOOD)[:-9]),
        ("cut.json.zst", _zstd(GOOD)[:-9]),
        ("plain.json.gz", GOOD),
    ],
    ids=named,
)
def test_not_one_row_of_a_truncated_file_gets_out(tmp_path: Path, name: str, data: bytes) -> None:
    for policy in BadData:
        found = read(tmp_path, {name: data, "ok.json": GOOD}, SIMPLE, JSON, policy)
        report = next(report for report in found.reports if report.index == 0)
        assert (report.whole, report.out, report.schema) == (True, 0, False)
        assert "decompress" in report.why
        assert found.rows.num_rows == 300


def test_a_bad_line_among_many_small_files_costs_its_own_file_only(tmp_path: Path) -> None:
    contents = {f"{n}.json": GOOD for n in range(30)} | {"bad.json": GOOD + b'\n{"id": null}\n{"name": '}
    found = read(tmp_path, contents, SIMPLE, JSON)
    bad = [report for report in found.reports if report.bad]
    assert [(report.index, report.bad, report.line, report.column, report.out) for report in bad] == [
        (30, 2, 301, "id", 0)
    ]
    assert found.rows.num_rows == 30 * 300
    assert set(found.rows.column("_ingestd_file").to_pylist()) == set(range(30))


def test_a_row_has_its_file_and_its_place_in_it(tmp_path: Path) -> None:
    contents = {f"{n}.json": lines([{"id": n * 100 + k} for k in range(50)]) for n in range(5)}
    for row in read(tmp_path, contents, SIMPLE, JSON).rows.to_pylist():
        assert row["id"] == row["_ingestd_file"] * 100 + row["_ingestd_line"]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("1,a,2024-01-01\n2,,\n", {}),
        ("h,h,h\n1,a,\n", {"skipLeadingRows": 1}),
        ("1|'a|b'|\n", {"fieldDelimiter": "|", "quote": "'"}),
        ("1\ta\t\n", {"fieldDelimiter": "\\t"}),
        ('1,"a\nb",\n2,"c""d",\n', {"allowQuotedNewlines": True}),
        ("1,NULL,NULL\n2,\\N,NULL\n", {"nullMarker": "NULL"}),
        ("1,NULL,\\N\n2,\\N,NULL\n", {"nullMarkers": ["NULL", "\\N"]}),
        ("1\n2,b\n", {"allowJaggedRows": True}),
        ("1,a,,more\n", {"ignoreUnknownValues": True}),
        ("1,a,2024-01-01 10:00:00+02\r\n2,b,\r\n", {}),
        ("name,id\na,1\nb,2\n", {"skipLeadingRows": 1, "sourceColumnMatch": "NAME", "allowJaggedRows": True}),
        ("1,\0,\n", {"preserveAsciiControlCharacters": True}),
        ("1,a,31/12/2024 10:00\n", {"timestampFormat": "DD/MM/YYYY HH24:MI", "timeZone": "Europe/Amsterdam"}),
    ],
)
def test_every_csv_option_means_what_it_means_to_bigquery(tmp_path: Path, text: str, options: dict[str, Any]) -> None:
    load = CSV | options
    by_name = {"by_name": True} if "sourceColumnMatch" in options else {}
    for data in (text.encode(), gzip.compress(text.encode())):
        found = read(tmp_path, {"f.csv": data}, SIMPLE, load, **by_name)
        assert [report.bad for report in found.reports] == [0], found.reports
        assert direct({"x.json": found.lines()}, SIMPLE, JSON) == direct({"f.csv": data}, SIMPLE, load)


@pytest.mark.parametrize("encoding", ["ISO-8859-1", "UTF-16LE", "UTF-16BE"])
def test_csv_in_other_encodings(tmp_path: Path, encoding: str) -> None:
    load = CSV | {"encoding": encoding}
    data = {"f.csv": "1,é,\nx,ü,\n".encode(encoding)}
    found = read(tmp_path, data, SIMPLE, load, BadData.QUARANTINE_ROWS)
    assert found.rows.column("name").to_pylist() == ["é"]
    assert [(report.bad, report.line, report.column) for report in found.reports] == [(1, 2, "id")]


@pytest.mark.parametrize(
    ("text", "line", "column", "is_schema"),
    [
        ("1,a,\nx,b,\n", 2, "id", True),
        ('1,"a\n2,b,\n', 1, "", False),
        ("1,a,,more\n", 1, "", True),
        ("1,a,\n,b,\n", 2, "id", True),
        ("1,a,\n2\n", 2, "", True),
        ("1,a,\n\n2,b,yesterday\n", 3, "at", True),
    ],
)
def test_a_bad_csv_record_is_told_with_line_and_column(
    tmp_path: Path, text: str, line: int, column: str, is_schema: bool
) -> None:
    report = read(tmp_path, {"f.csv": text.encode()}, SIMPLE, CSV).reports[0]
    assert (report.line, report.column, report.schema) == (line, column, is_schema)
    assert report.out == 0


@pytest.fixture
def measured() -> Iterator[list[int]]:
    """How much goes through the encoding `measured`, which is UTF-8, call by call."""
    sizes: list[int] = []

    def encode(text: str, errors: str = "strict") -> tuple[bytes, int]:
        sizes.append(len(text))
        return codecs.utf_8_encode(text, errors)

    def decode(data: Any, errors: str = "strict") -> tuple[str, int]:
        sizes.append(len(data))
        return codecs.utf_8_decode(data, errors, True)

    def find(name: str) -> codecs.CodecInfo | None:
        return codecs.CodecInfo(encode, decode, name=name) if name == "measured" else None

    codecs.register(find)
    yield sizes
    codecs.unregister(find)


@pytest.mark.parametrize("row", ["x,é,\n", 'x,"é",\n'])
def test_bad_csv_records_cost_no_look_at_all_that_stands_before_them(row: str, measured: list[int]) -> None:
    data = (row * 1000).encode()
    options = replace(LoadOptions.from_rest(CSV), encoding="measured")
    found = readers.reader(readers.ReadPlan(SIMPLE, options)).read(data, "f.csv")
    bad = [item for item in found if isinstance(item, readers.Bad)]
    assert [item.line for item in bad] == list(range(1, 1001))
    assert f"starting at location {999 * len(row.encode())} " in bad[-1].why
    assert sum(measured) < 5 * len(data)


@pytest.mark.parametrize(
    ("data", "options", "row"),
    [
        (b"\xef\xbb\xbf1,a,\nx,b,\n3,c,\n", {}, "x,b,"),
        (b"1,\xff\xff\xff,\nx,b,\n3,c,\n", {}, "x,b,"),
        (b'1,a,\nx,"b\r\nc",\r\n', {"allowQuotedNewlines": True}, 'x,"b\r\nc",'),
        (b"1,a,\rx,b,\r3,c,\r", {}, "x,b,"),
        (b"1,a,\nx,b,", {}, "x,b,"),
    ],
    ids=["mark", "no text", "quoted newline", "returns", "no newline"],
)
def test_a_bad_csv_record_is_kept_as_it_stands_in_its_file(
    tmp_path: Path, data: bytes, options: dict[str, Any], row: str
) -> None:
    found = read(tmp_path, {"f.csv": data}, SIMPLE, CSV | options, BadData.QUARANTINE_ROWS)
    (told,) = map(json.loads, found.reports[0].rejected)
    assert (told["line"], told["row"]) == (2, row)


def test_max_bad_records_tolerates_that_many(tmp_path: Path) -> None:
    load = CSV | {"maxBadRecords": 1}
    contents = {"f.csv": b"1,a,\nx,b,\n3,c,\n"}
    found = read(tmp_path, contents, SIMPLE, load)
    assert direct({"x.json": found.lines()}, SIMPLE, JSON) == direct(contents, SIMPLE, load)
    assert read(tmp_path, {"f.csv": b"1,a,\nx,b,\ny,c,\n"}, SIMPLE, load).rows.num_rows == 0


TABLE = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "name": ["a", None, "c"],
        "at": pa.array([None, dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
    }
)


def _avro() -> bytes:
    fields = [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    ]
    return avro(fields, TABLE.to_pylist(), "deflate")


BINARY = {
    "AVRO": (_avro, {"useAvroLogicalTypes": True}),
    "PARQUET": (lambda: parquet(TABLE), {}),
    "ORC": (lambda: orc(TABLE), {}),
}


@pytest.mark.parametrize("kind", BINARY)
def test_self_describing_files_are_read_or_set_aside_as_a_whole(tmp_path: Path, kind: str) -> None:
    make, options = BINARY[kind]
    data, load = make(), {"sourceFormat": kind} | options
    found = read(tmp_path, {"f": data, "cut": data[: len(data) // 2], "none": b""}, SIMPLE, load)
    assert direct({"x.json": found.lines()}, SIMPLE, JSON) == direct({"f": data}, SIMPLE, load)
    reports = {report.index: report for report in found.reports}
    assert (reports[0].rows, reports[1].whole, reports[1].out, reports[2].rows) == (3, True, 0, 0)
    narrow = schema("id INT64", "name INT64", "at TIMESTAMP")
    unfit = read(tmp_path, {"f": data}, narrow, load).reports[0]
    assert (unfit.whole, unfit.schema, unfit.column) == (True, True, "name")


@pytest.mark.parametrize("kind", BINARY)
def test_new_columns_of_self_describing_files_follow_the_drift_policy(tmp_path: Path, kind: str) -> None:
    make, options = BINARY[kind]
    load, known = {"sourceFormat": kind} | options, schema("id INT64", "at TIMESTAMP")
    outcomes = {
        drift: read(tmp_path, {"f": make()}, known, load, drift=drift)
        for drift in (Drift.FREEZE, Drift.DISCARD_VALUE, Drift.DISCARD_ROW, Drift.EVOLVE)
    }
    assert outcomes[Drift.FREEZE].reports[0].column == "name"
    assert outcomes[Drift.DISCARD_VALUE].rows.num_rows == 3
    assert outcomes[Drift.DISCARD_ROW].reports[0].left == 2, "one of them has no name"
    assert outcomes[Drift.DISCARD_ROW].rows.column("id").to_pylist() == [2]
    assert [item["name"] for item in outcomes[Drift.EVOLVE].reports[0].unknown] == ["name"]


@pytest.mark.parametrize("extra", [b"2,b,,more\n", b'2,"b",,more\n'])
def test_extra_values_of_csv_follow_the_drift_policy(tmp_path: Path, extra: bytes) -> None:
    contents = {"f.csv": b"1,a,\n" + extra}
    outcomes = {drift: read(tmp_path, contents, SIMPLE, CSV, drift=drift) for drift in Drift}
    found = {drift: (one.rows.num_rows, one.reports[0].bad, one.reports[0].left) for drift, one in outcomes.items()}
    assert found == {
        Drift.FREEZE: (0, 1, 0),
        Drift.EVOLVE: (0, 1, 0),
        Drift.DISCARD_VALUE: (2, 0, 0),
        Drift.DISCARD_ROW: (1, 0, 1),
    }
    passed_over = direct(contents, SIMPLE, CSV | {"ignoreUnknownValues": True})
    assert direct({"x.json": outcomes[Drift.DISCARD_VALUE].lines()}, SIMPLE, JSON) == passed_over


def test_rows_are_left_out_for_values_and_not_for_names(tmp_path: Path) -> None:
    contents = {"f.json": lines([{"id": 1, "new": None}, {"id": 2, "new": 5}, {"id": 3, "more": []}, {"id": 4}])}
    found = read(tmp_path, contents, SIMPLE, JSON, drift=Drift.DISCARD_ROW)
    assert found.rows.column("id").to_pylist() == [1, 3, 4]
    assert found.reports[0].left == 1


@pytest.mark.parametrize("drift", Drift)
def test_a_strange_column_in_a_header_is_not_passed_over_in_silence(tmp_path: Path, drift: Drift) -> None:
    contents = {"f.csv": b"name,new,id\na,x,1\n"}
    load = CSV | {"skipLeadingRows": 1, "sourceColumnMatch": "NAME"}
    (report,) = (found := read(tmp_path, contents, SIMPLE, load, drift=drift, by_name=True)).reports
    if drift is Drift.DISCARD_VALUE:
        assert (found.rows.column("id").to_pylist(), found.rows.column("name").to_pylist()) == ([1], ["a"])
    else:
        assert (report.whole, report.schema, report.column, report.out) == (True, True, "new", 0)


def test_new_fields_of_json_follow_the_drift_policy(tmp_path: Path) -> None:
    known = schema("id INT64", "r STRUCT(x INT64)")
    contents = {
        "f.json": lines([{"id": 1}, {"id": 2, "new": 1, "r": {"y": [0.5, 1]}}, {"id": 3, "new": 2.5, "no": None}])
    }

    def outcome(drift: Drift) -> Any:
        found = read(tmp_path, contents, known, JSON, drift=drift)
        return found.rows.num_rows, found.reports[0]

    rows, report = outcome(Drift.FREEZE)
    assert (rows, report.bad, report.line, report.column) == (0, 2, 2, "new")
    rows, report = outcome(Drift.DISCARD_VALUE)
    assert (rows, report.bad, report.left) == (3, 0, 0)
    rows, report = outcome(Drift.DISCARD_ROW)
    assert (rows, report.left) == (1, 2)
    rows, report = outcome(Drift.EVOLVE)
    found = {item["name"]: item for item in report.unknown}
    assert found["new"]["type"] == "FLOAT"
    assert [(item["name"], item["type"], item["mode"]) for item in found["r"]["fields"]] == [("y", "FLOAT", "REPEATED")]
    assert "no" not in found


@pytest.mark.parametrize("kind", BINARY)
def test_a_large_file_is_read_in_slices(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "SLICE_BYTES", 64 << 10)
    count = 40_000
    table = pa.table({"id": pa.array(range(count), pa.int64()), "name": [f"name of {n}" for n in range(count)]})
    out = pa.BufferOutputStream()
    if kind == "AVRO":
        fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
        buffer = io.BytesIO()
        fastavro.writer(buffer, {"type": "record", "name": "r", "fields": fields}, table.to_pylist())
        data = buffer.getvalue()
    else:
        if kind == "PARQUET":
            pyarrow.parquet.write_table(table, out, row_group_size=1000)
        else:
            pyarrow.orc.write_table(table, out, stripe_size=64 << 10)
        data = out.getvalue().to_pybytes()
    load = {"sourceFormat": kind}
    found = read(tmp_path, {"f": data}, schema("id INT64", "name STRING"), load)
    assert found.rows.column("id").to_pylist() == list(range(count))
    assert found.rows.column("_ingestd_line").to_pylist() == list(range(count))
    assert found.rows.column("id").num_chunks > 3
    wrong = read(tmp_path, {"f": data}, schema("id INT64", "name INT64"), load)
    assert (wrong.reports[0].whole, wrong.reports[0].out) == (True, 0)


def test_unknown_fields_that_are_passed_over_take_no_column_with_them(tmp_path: Path) -> None:
    rows = [{"ID": n, "other": {"deep": [n]}} if n % 100 == 50 else {"id": n, "more": n} for n in range(300)]
    contents = {"f.json": lines(rows)}
    load = JSON | {"ignoreUnknownValues": True}
    found = read(tmp_path, contents, SIMPLE, load)
    assert direct({"x.json": found.lines()}, SIMPLE, JSON) == direct(contents, SIMPLE, load)
    assert found.rows.column("id").null_count == 0


def test_a_file_that_breaks_a_reader_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = readers.JsonReader._rows

    def breaking(self: Any, piece: bytes, first_line: int) -> Any:
        if b"break" in piece:
            raise RecursionError("too deep")
        return plain(self, piece, first_line)

    monkeypatch.setattr(readers.JsonReader, "_rows", breaking)
    found = read(tmp_path, {"bad.json": b'{"break": 1}', "ok.json": GOOD}, SIMPLE, JSON)
    assert [(report.index, report.whole, report.rows) for report in found.reports] == [(0, True, 0), (1, False, 300)]
    assert "RecursionError: too deep" in found.reports[0].why


def test_bad_rows_that_are_too_large_to_be_told_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where workers and driver share no disk: nobody is left to think that what is shown is all."""
    monkeypatch.setattr(read_task, "_REJECTED_IN_REPORT", 400)
    data = {"a.json": b'{"i": "?"}\n' * 9 + b'{"i": 1}\n'}
    (report,) = read(tmp_path, data, schema("i INT64"), JSON, BadData.QUARANTINE_ROWS).reports
    shown = [json.loads(line) for line in report.rejected]
    assert [row["line"] for row in shown[:-1]] == list(range(1, len(shown)))
    assert shown[-1]["reason"].startswith(f"{9 - len(shown[:-1])} more bad rows are not shown")
    assert (report.bad, report.unkept, report.rows) == (9, 9 - len(shown[:-1]), 1)
