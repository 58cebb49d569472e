"""Extract, then load: the rows must come back identical, whatever the schema."""

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.loads import Loads

from ingestd.formats.options import LoadOptions
from ingestd.formats.temporal import Interval
from ingestd.localcloud.bigquery.files.extract import extract
from ingestd.localcloud.bigquery.files.load import load_files
from ingestd.localcloud.bigquery.files.staging import Staging
from ingestd.model.schema import Field, Mode, Schema, Type

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NAIVE = st.datetimes(dt.datetime.fromisoformat("0001-01-02"), dt.datetime.fromisoformat("9999-12-30"))
DECIMALS = {"allow_nan": False, "allow_infinity": False}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
).filter(lambda value: value is not None)
VALUES: dict[Type, st.SearchStrategy[Any]] = {
    Type.STRING: TEXT,
    Type.BYTES: st.binary(max_size=8),
    Type.INT64: st.integers(-(2**63), 2**63 - 1),
    Type.FLOAT64: st.floats(allow_nan=False),
    Type.NUMERIC: st.decimals(**DECIMALS, places=9, min_value=-(10**20), max_value=10**20),
    Type.BIGNUMERIC: st.decimals(
        allow_nan=False, allow_infinity=False, places=18, min_value=-(10**15), max_value=10**15
    ),
    Type.BOOL: st.booleans(),
    Type.TIMESTAMP: NAIVE.map(lambda moment: moment.replace(tzinfo=dt.UTC)),
    Type.DATE: st.dates(),
    Type.TIME: st.times(),
    Type.DATETIME: NAIVE,
    Type.GEOGRAPHY: st.just("POINT(1 2)"),
    Type.JSON: JSON.map(lambda value: orjson.dumps(value).decode()),
    Type.INTERVAL: st.builds(
        Interval, st.integers(-120, 120), st.integers(-1000, 1000), st.integers(-(10**11), 10**11)
    ),
}
SCALARS = sorted(VALUES)


def fields(depth: int) -> st.SearchStrategy[tuple[Field, ...]]:
    def named(kinds: list[tuple[Type, Mode, tuple[Field, ...]]]) -> tuple[Field, ...]:
        return tuple(Field(f"c{index}", kind, mode, members) for index, (kind, mode, members) in enumerate(kinds))

    modes = st.sampled_from(list(Mode) if depth else [Mode.NULLABLE, Mode.REQUIRED])
    scalar = st.tuples(st.sampled_from(SCALARS), modes, st.just(()))
    one = scalar
    if depth:
        one = scalar | st.tuples(st.just(Type.STRUCT), modes, fields(depth - 1))
    return st.lists(one, min_size=2, max_size=4).map(named)


def values(field: Field) -> st.SearchStrategy[Any]:
    if field.type is Type.STRUCT:
        single: st.SearchStrategy[Any] = rows(field.fields)
    else:
        single = VALUES[field.type]
    if field.mode is Mode.REPEATED:
        return st.lists(single, max_size=3)
    return single if field.mode is Mode.REQUIRED else st.none() | single


def rows(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({item.name: values(item) for item in schema})


TABLES = fields(2).flatmap(lambda schema: st.tuples(st.just(schema), st.lists(rows(schema), max_size=25)))
FLAT = fields(0).flatmap(lambda schema: st.tuples(st.just(schema), st.lists(rows(schema), max_size=25)))
Table = tuple[Schema, list[dict[str, Any]]]
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
RELAXED = settings(max_examples=60, deadline=None, suppress_health_check=SLOW)


def there_and_back(loads: Loads, table: Table, extract_as: dict[str, Any], load_as: dict[str, Any]) -> None:
    schema, content = table
    with Staging(loads.conn, "origin", schema).open() as staging:
        staging.append_rows(content)
    before = loads.conn.execute("SELECT * FROM origin").fetchall()
    extract(loads.conn, loads.objects, "origin", schema, extract_as, ["gs://b/x"])
    load_files(loads.conn, loads.objects, LoadOptions.from_rest(load_as), ["gs://b/x"], schema, "back")
    after = loads.conn.execute("SELECT * FROM back").fetchall()
    assert after == before


@RELAXED
@given(TABLES, st.sampled_from(["NONE", "GZIP"]))
def test_json_brings_every_row_back(shared: Loads, table: Table, compression: str) -> None:
    json = "NEWLINE_DELIMITED_JSON"
    there_and_back(shared, table, {"destinationFormat": json, "compression": compression}, {"sourceFormat": json})


@RELAXED
@given(FLAT, st.sampled_from([",", "|", "\\t"]))
def test_csv_brings_every_row_back(shared: Loads, table: Table, delimiter: str) -> None:
    there_and_back(
        shared,
        table,
        {"destinationFormat": "CSV", "fieldDelimiter": delimiter},
        {"sourceFormat": "CSV", "fieldDelimiter": delimiter, "skipLeadingRows": 1, "allowQuotedNewlines": True},
    )


@RELAXED
@given(TABLES, st.sampled_from(["NONE", "DEFLATE", "SNAPPY"]))
def test_avro_brings_every_row_back(shared: Loads, table: Table, compression: str) -> None:
    there_and_back(
        shared,
        table,
        {"destinationFormat": "AVRO", "compression": compression, "useAvroLogicalTypes": True},
        {"sourceFormat": "AVRO", "useAvroLogicalTypes": True, "decimalTargetTypes": ["NUMERIC", "BIGNUMERIC"]},
    )


@RELAXED
@given(TABLES, st.sampled_from(["NONE", "SNAPPY", "GZIP", "ZSTD"]))
def test_parquet_brings_every_row_back(shared: Loads, table: Table, compression: str) -> None:
    there_and_back(
        shared,
        table,
        {"destinationFormat": "PARQUET", "compression": compression},
        {
            "sourceFormat": "PARQUET",
            "parquetOptions": {"enableListInference": True},
            "decimalTargetTypes": ["NUMERIC", "BIGNUMERIC"],
        },
    )


@pytest.mark.parametrize("kind", ["NEWLINE_DELIMITED_JSON", "CSV", "AVRO", "PARQUET"])
def test_intervals_and_ranges_come_back(shared: Loads, kind: str) -> None:
    schema = (Field("i", Type.INTERVAL), Field("r", Type.RANGE, range_element=Type.DATE), Field("f", Type.FLOAT64))
    content = [
        {"i": Interval(14, -3, 14_706_500_000), "r": {"start": dt.date(2024, 1, 1), "end": None}, "f": math.inf},
        {"i": Interval(-14, 3, -1), "r": {"start": None, "end": dt.date(2024, 1, 1)}, "f": -0.0},
        {"i": None, "r": None, "f": None},
    ]
    options = {"useAvroLogicalTypes": True} if kind == "AVRO" else {}
    skip = {"skipLeadingRows": 1} if kind == "CSV" else {}
    there_and_back(
        shared, (schema, content), {"destinationFormat": kind} | options, {"sourceFormat": kind} | options | skip
    )


def test_decimals_at_the_edge_of_numeric_come_back(shared: Loads) -> None:
    schema = (Field("n", Type.NUMERIC), Field("m", Type.NUMERIC))
    edge = Decimal("99999999999999999999999999999.999999999")
    table = (schema, [{"n": edge, "m": edge.copy_negate()}])
    json = "NEWLINE_DELIMITED_JSON"
    there_and_back(shared, table, {"destinationFormat": json}, {"sourceFormat": json})
