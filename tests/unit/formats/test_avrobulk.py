"""Avro decoded as columns: the same rows, and the same refusals, as value by value."""

import datetime as dt
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingestd.formats import avrobulk
from ingestd.formats.avro import read_avro
from ingestd.formats.avrobulk import bulk_columns
from ingestd.formats.avrofile import Block, Container
from ingestd.formats.binary import UnreadableFileError
from ingestd.formats.columns import Doubt
from ingestd.formats.options import LoadOptions

OPTIONS = LoadOptions.from_rest({"sourceFormat": "AVRO", "useAvroLogicalTypes": True})
LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=140)
TYPES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "boolean": ("boolean", st.booleans()),
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", LONGS),
    "float": ("float", st.floats(width=32, allow_nan=False)),
    "double": ("double", st.floats(allow_nan=False)),
    "bytes": ("bytes", st.binary(max_size=70)),
    "string": ("string", TEXT),
    "date": ({"type": "int", "logicalType": "date"}, st.dates()),
    "millis": (
        {"type": "long", "logicalType": "timestamp-millis"},
        st.datetimes(timezones=st.just(dt.UTC)),
    ),
    "time": ({"type": "long", "logicalType": "time-micros"}, st.times()),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
        st.decimals(-(10**16), 10**16, places=3, allow_nan=False),
    ),
    "odd": ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    "array": ({"type": "array", "items": "long"}, st.lists(LONGS, max_size=3)),
    "enum": ({"type": "enum", "name": "colour", "symbols": ["RED", "BLUE"]}, st.sampled_from(["RED", "BLUE"])),
    "record": (
        {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "long"}]},
        st.fixed_dictionaries({"x": LONGS}),
    ),
}


@st.composite
def files(draw: st.DrawFn, kinds: list[str] | None = None) -> tuple[bytes, list[str]]:
    drawn = draw(st.lists(st.sampled_from(kinds or list(TYPES)), min_size=1, max_size=5))
    used = [kind for place, kind in enumerate(drawn) if kind not in ("enum", "record") or kind not in drawn[:place]]
    fields, rows = [], {}
    for number, kind in enumerate(used):
        schema, values = TYPES[kind]
        way = draw(st.sampled_from(["required", "null first", "null last"]))
        if way != "required":
            schema, values = (["null", schema] if way == "null first" else [schema, "null"]), st.none() | values
        fields.append({"name": f"f{number}", "type": schema})
        rows[f"f{number}"] = values
    found = draw(st.lists(st.fixed_dictionaries(rows), min_size=1, max_size=12))
    out = io.BytesIO()
    codec = draw(st.sampled_from(["null", "deflate"]))
    record = {"type": "record", "name": "rows", "fields": fields}
    fastavro.writer(out, record, found, codec=codec, sync_interval=draw(st.sampled_from([1, 50, 16_000])))
    return out.getvalue(), used


@contextmanager
def exactly() -> Iterator[None]:
    with mock.patch.object(avrobulk, "available", lambda: False):
        yield


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avrobulk, "BULK_BYTES", 1)


def outcome(data: bytes) -> Any:
    try:
        found = read_avro(data, OPTIONS)
    except UnreadableFileError as error:
        return re.sub(r" at 0x\w+", "", str(error))  # fastavro tells an address
    return found.schema, [array.type for array in found.arrays], [repr(a.to_pylist()) for a in found.arrays], found.rows


def bulk(data: bytes) -> Any:
    container = Container.parse(data)
    return bulk_columns(container, fastavro.reader(io.BytesIO(data)).writer_schema)


@settings(deadline=None, max_examples=200)
@given(files())
def test_columns_are_what_the_values_are(made: tuple[bytes, list[str]]) -> None:
    data, kinds = made
    found = outcome(data)
    with exactly():
        assert outcome(data) == found
    if not {"array", "enum", "record"} & set(kinds):
        assert bulk(data)  # it is not in doubt about what is plain and well


@settings(deadline=None, max_examples=400)
@given(files(["boolean", "int", "long", "float", "bytes", "string", "date", "millis", "time"]), st.data())
def test_a_broken_file_is_read_or_refused_alike(made: tuple[bytes, list[str]], data: st.DataObject) -> None:
    """Bytes turned, added and taken away, in blocks that say of themselves that they are whole."""
    container = Container.parse(made[0])
    block = data.draw(st.integers(0, len(container.blocks) - 1))
    body = bytearray(container.blocks[block].data)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        match data.draw(st.sampled_from(["turn", "add", "take"])):
            case "turn":
                body[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
            case "add":
                body[at:at] = data.draw(st.binary(min_size=1, max_size=3))
            case _:
                del body[at : at + data.draw(st.integers(1, 3))]
    rows = max(0, container.blocks[block].rows + data.draw(st.sampled_from([0, 0, 0, -1, 1])))
    blocks = list(container.blocks)
    blocks[block] = Block(rows, bytes(body))
    broken = Container(container.metadata, container.sync, tuple(blocks)).build()
    found = outcome(broken)
    with exactly():
        assert outcome(broken) == found


def plain(body: bytes, kind: Any, rows: int = 1) -> bytes:
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]})
    return Container({"avro.schema": schema.encode()}, b"s" * 16, (Block(rows, body),)).build()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"\x04\x06", ["null", "long"]),  # a branch that the union has not
        (b"\x82\x00\x06", ["null", "long"]),  # longer than it has to be
        (b"\x86\x00", "long"),
        (b"\x06\x00", "long"),  # something is left
        (b"\x02", "boolean"),
        (b"\x04\xff\xfe", "string"),  # not UTF-8
        (b"\x06\xed\xa0\x80", "string"),  # half a character
        (b"\x7f\x06", "bytes"),  # less than nothing
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "long"),  # more than 64 bits
        (b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00", "bytes"),  # more than there is
    ],
)
def test_whatever_polars_might_let_pass_is_in_doubt(body: bytes, kind: Any) -> None:
    with pytest.raises(Doubt):
        bulk(plain(body, kind))
    assert bulk(plain(b"\x06", "long"))["a"].to_pylist() == [3]


def test_small_files_and_those_without_polars_are_read_value_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    data = plain(b"\x06", "long")
    with exactly(), pytest.raises(Doubt):
        bulk(data)
    monkeypatch.setattr(avrobulk, "BULK_BYTES", 2)
    with pytest.raises(Doubt):
        bulk(data)
