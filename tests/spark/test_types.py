"""Every BigQuery type has a carrier through Spark that loses nothing."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.loads import schema

from ingestd.model.errors import BadInput
from ingestd.model.preparation import FileLayout
from ingestd.model.schema import Field, Mode, Type, schema_from_rest, schema_rest
from ingestd.spark.files.carriers import (
    UnfitError,
    bignumeric_text,
    carrier_schema,
    carry,
    spark_ddl,
    textual,
)
from ingestd.spark.files.output import NDJSON, PARQUET, choose
from ingestd.spark.sql.types import TEXT

SCALARS = schema(*(f"c{kind} {kind}" for kind in Type if kind not in (Type.STRUCT, Type.RANGE)), "r RANGE<DATE>")


def test_every_type_has_a_carrier_alone_repeated_and_nested() -> None:
    for item in SCALARS:
        repeated = (replace(item, mode=Mode.REPEATED),)
        nested = (Field("s", Type.STRUCT, Mode.REPEATED, (item,)),)
        for columns in ((item,), repeated, nested):
            assert spark_ddl(columns)
            assert len(carrier_schema(columns)) == 1
    assert {item.type for item in SCALARS} | {Type.STRUCT} == set(Type)


def test_columns_come_back_from_their_rest_form_as_they_were() -> None:
    columns = (*SCALARS, *schema("s STRUCT(a INT64 REQUIRED, b NUMERIC(10/2) REPEATED) REPEATED"))
    assert schema_from_rest(schema_rest(columns)) == columns


def test_a_schema_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="BLOB"):
        schema_from_rest({"fields": [{"name": "x", "type": "BLOB"}]})


def test_prepared_files_are_parquet_unless_a_column_needs_text() -> None:
    assert choose(FileLayout(), schema("a INT64", "s STRUCT(x NUMERIC, y DATETIME REPEATED)")).name == PARQUET
    for kind in TEXT:
        columns = schema(f"s STRUCT(x {'RANGE<DATE>' if kind is Type.RANGE else kind}) REPEATED")
        assert textual(columns) == ["s.x"]
        assert choose(FileLayout(), columns).name == NDJSON
        with pytest.raises(BadInput, match=r"cannot carry s\.x exactly"):
            choose(FileLayout(format="PARQUET"), columns)


def test_an_unknown_compression_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match="zstd, snappy, gzip, none"):
        choose(FileLayout(compression="lzma"), schema("a INT64"))


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**38), max_value=10**38, places=38))
def test_a_bignumeric_keeps_every_digit(number: Decimal) -> None:
    field = schema("x BIGNUMERIC")[0]
    text = bignumeric_text(f"{number:f}", field, "x")
    assert Decimal(text) == number
    assert "E" not in text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1e3", "1000"),
        (" 12.50 ", "12.5"),
        (".5", "0.5"),
        ("-0", "0"),
        ("0.000000000000000000000000000000000000005", "0.00000000000000000000000000000000000001"),
        ("578960446186580977117854925043439539266.34992332820282019728792003956564819967", ""),
        ("-578960446186580977117854925043439539267", ""),
        ("1_000", ""),
        ("nan", ""),
        ("", ""),
    ],
)
def test_bignumeric_text_is_rounded_to_its_scale_and_refused_out_of_range(text: str, told: str) -> None:
    field = schema("x BIGNUMERIC")[0]
    if told:
        assert bignumeric_text(text, field, "x") == told
        return
    if text.endswith("819967"):
        assert bignumeric_text(text, field, "x") == text
        return
    with pytest.raises(UnfitError, match="x"):
        bignumeric_text(text, field, "x")


def test_a_bignumeric_of_given_precision_is_held_to_it() -> None:
    field = schema("x BIGNUMERIC(5/2)")[0]
    assert bignumeric_text("999.994", field, "x") == "999.99"
    with pytest.raises(UnfitError):
        bignumeric_text("999.995", field, "x")


def test_nulls_stay_nulls_and_empty_arrays_stay_empty_while_text_is_retold() -> None:
    columns = schema("t TIME", "l TIME REPEATED", "s STRUCT(t TIME, n INT64)")
    import datetime

    noon = datetime.time(12, 0, 0, 5)
    rows: list[dict[str, Any]] = [
        {"t": noon, "l": [noon, noon], "s": {"t": None, "n": 1}},
        {"t": None, "l": [], "s": None},
        {"t": noon, "l": [noon], "s": {"t": noon, "n": None}},
    ]
    from ingestd.formats.columns import arrow_schema

    table = pa.Table.from_pylist(rows, schema=arrow_schema(columns))
    told = "12:00:00.000005"
    assert carry(table, columns).slice(0).to_pylist() == [
        {"t": told, "l": [told, told], "s": {"t": None, "n": 1}},
        {"t": None, "l": [], "s": None},
        {"t": told, "l": [told], "s": {"t": told, "n": None}},
    ]
