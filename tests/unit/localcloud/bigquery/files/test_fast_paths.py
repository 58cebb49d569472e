"""The fast paths answer exactly what the row-by-row converter answers, on clean and on broken files."""

import json
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.loads import Loads, schema

from ingestd.formats import bulk, columns, delimited, ndjson, rowload
from ingestd.formats.errors import BigQueryError
from ingestd.model.schema import Type

NEVER = 1 << 60
COLUMNS = schema(
    "i INT64",
    "f FLOAT64",
    "s STRING",
    "b BOOL",
    "d DATE",
    "t TIMESTAMP",
    "u DATETIME",
    "c TIME",
    "n NUMERIC",
    "y BYTES",
    "l INT64 REPEATED",
    "r STRUCT(x INT64, q STRING REPEATED, w STRUCT(z FLOAT64))",
    "m STRUCT(x STRING, e DATE) REPEATED",
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
DAYS = st.sampled_from(["2024-01-02", "0001-01-01", "9999-12-31", "2024-1-2", "0000-01-01", "2023-02-29"])
CLOCKS = st.sampled_from(["00:00:00", "23:59:59.999999", "1:2:3", "12:00:60", "12:00:00.1234567", "24:00:00"])
ZONES = st.sampled_from(["", "Z", " UTC", "+02:00", "-14:00", "+5", " Europe/Paris", "+25:00"])
STAMPS = st.builds(lambda day, sep, clock, zone: day + sep + clock + zone, DAYS, st.sampled_from("T "), CLOCKS, ZONES)
NUMBERS = st.sampled_from(
    ["1", "1.5", "-0", "1e3", "99999999999999999999999999999.999999999", "0.0000000005", "x", "1_0", "NaN"]
)
CLEAN: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-(2**63), 2**63 - 1),
    "f": st.floats(allow_nan=False, allow_infinity=False),
    "s": TEXT,
    "b": st.booleans(),
    "d": st.dates().map(str),
    "t": st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
    "u": st.datetimes().map(lambda moment: moment.isoformat()),
    "c": st.times().map(str),
    "n": st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9).map(str),
    "y": st.sampled_from(["YQ==", "YWI=", ""]),
    "l": st.lists(st.integers(-5, 5), max_size=3),
    "r": st.fixed_dictionaries(
        {}, optional={"x": st.integers(0, 5), "q": st.lists(TEXT, max_size=2), "w": st.just({"z": 1.5}) | st.none()}
    ),
    "m": st.lists(st.fixed_dictionaries({"x": TEXT}, optional={"e": st.dates().map(str)}), max_size=2),
}
ODD = st.one_of(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False),
    TEXT | STAMPS | DAYS | CLOCKS | NUMBERS,
    st.lists(st.none() | st.integers(0, 3) | TEXT, max_size=2),
    st.dictionaries(st.sampled_from(["x", "X", "z", "e"]), TEXT | st.integers(0, 3), max_size=2),
)
SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def outcome(loads: Loads, way: str, text: bytes, options: dict[str, Any]) -> Any:
    """The rows and warnings, or the error, when one way of reading is forced."""

    def refuse(*_: Any) -> Any:
        raise columns.Doubt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ndjson, "BULK_BYTES", 0 if way == "bulk" else NEVER)
        patch.setattr(delimited, "BULK_BYTES", 0 if way == "bulk" else NEVER)
        patch.setattr(rowload, "FEW_ROWS", 0)
        if way == "exact":
            patch.setattr(ndjson, "json_columns", refuse)
            patch.setattr(delimited, "text_columns", refuse)
        loads.put("gs://b/f", text)
        try:
            found = loads.load("gs://b/f", COLUMNS[:10] if options["sourceFormat"] == "CSV" else COLUMNS, **options)
        except BigQueryError as error:
            return error.message, error.details
        return found, repr(loads.conn.execute("SELECT * FROM staged").fetchall())


def json_rows() -> st.SearchStrategy[dict[str, Any]]:
    clean = st.fixed_dictionaries({}, optional=CLEAN)
    odd = st.tuples(clean, st.dictionaries(st.sampled_from([*CLEAN, "I", "zz"]), ODD, max_size=1))
    return clean | odd.map(lambda pair: pair[0] | pair[1])


def compare(loads: Loads, text: bytes, options: dict[str, Any]) -> None:
    exact = outcome(loads, "exact", text, options)
    assert outcome(loads, "columns", text, options) == exact
    assert outcome(loads, "bulk", text, options) == exact


@SETTINGS
@given(st.lists(json_rows(), min_size=1, max_size=6), st.sampled_from([0, 3]))
def test_every_way_to_read_json_agrees(shared: Loads, rows: list[dict[str, Any]], tolerated: int) -> None:
    text = "\n".join(json.dumps(row) for row in rows).encode()
    compare(shared, text, {"sourceFormat": "NEWLINE_DELIMITED_JSON", "maxBadRecords": tolerated})


@SETTINGS
@given(
    st.lists(st.fixed_dictionaries({}, optional=CLEAN), min_size=1, max_size=3),
    st.integers(0, 400),
    st.sampled_from(
        [
            b"",
            b"\n",
            b"}{",
            b"} {",
            b"\0",
            b"\xff",
            b"\\ud800",
            b"\r",
            b"NaN",
            b",",
            b'"',
            b"\n\n",
            b"{}",
            b"1",
            b"\x01",
        ]
    ),
)
def test_every_way_to_read_json_agrees_on_damaged_bytes(
    shared: Loads, rows: list[dict[str, Any]], at: int, damage: bytes
) -> None:
    text = "\n".join(json.dumps(row, ensure_ascii=at % 2 == 0) for row in rows).encode()
    at %= len(text) + 1
    compare(shared, text[:at] + damage + text[at:], {"sourceFormat": "NEWLINE_DELIMITED_JSON", "maxBadRecords": 1})


CELL = st.one_of(TEXT, STAMPS, DAYS, CLOCKS, NUMBERS, st.sampled_from(["", "true", "Yes", " 1", "+5", "YQ=="]))
ROW = st.fixed_dictionaries({name: CLEAN[name].map(str) | st.just("") for name in list(CLEAN)[:10]})


@SETTINGS
@given(
    st.lists(ROW, min_size=1, max_size=5),
    st.dictionaries(st.integers(0, 9), CELL, max_size=1),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([(), ("",), ("", "NULL"), ("x",)]),
)
def test_every_way_to_read_csv_agrees(
    shared: Loads, rows: list[dict[str, str]], odd: dict[int, str], newline: str, markers: tuple[str, ...]
) -> None:
    lines = [list(row.values()) for row in rows]
    for index, cell in odd.items():
        lines[-1][index] = cell
    text = newline.join("|".join(line) for line in lines).encode()
    options: dict[str, Any] = {"sourceFormat": "CSV", "fieldDelimiter": "|", "maxBadRecords": 2, "quote": ""}
    compare(shared, text, options | ({"nullMarkers": list(markers)} if markers else {}))


def test_the_bulk_reader_is_really_used_on_clean_files(shared: Loads) -> None:
    clean = b'{"i": 1, "l": [1], "r": {"x": 1}}\n{"s": "x", "t": "2024-01-01T00:00:00Z"}'
    assert bulk.read_json(clean, COLUMNS).num_rows == 2
    assert bulk.read_csv(b"1,x\n", schema("i INT64", "s STRING"), ",", frozenset({""})).num_rows == 1


SHAPES = [
    "2026-01-01T00:00:00",
    "2026-12-31 23:59:59.123456",
    "2026-01-01T000000.123",
    "2026-01-01T00:00+01:00",
    "2026-01-01T00:00",
    "2026-01-01T00",
]


@SETTINGS
@given(st.sampled_from(SHAPES), st.lists(st.tuples(st.integers(0, 26), st.sampled_from("09-:T .Z+")), max_size=3))
def test_of_text_as_long_as_a_timestamp_arrow_takes_what_is_one_and_nothing_else(
    shape: str, changes: list[tuple[int, str]]
) -> None:
    """Its own grammar knows more than BigQuery's; none of that has the length at which nobody looks closer."""
    for at, character in changes:
        shape = shape[:at] + character + shape[at + (at % 2) :]
    text = pa.array([f"{shape}Z"])
    try:
        taken = columns._in_zulu(text) and text.cast(pa.timestamp("us", "UTC")) is not None
    except pa.ArrowInvalid:
        return
    assert not taken or re.fullmatch(columns._PATTERNS[Type.TIMESTAMP], text[0].as_py(), re.ASCII)
