"""Tables become wider, never narrower, and only where the rule lets them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.rules import spec
from tests.support.tables import Tables, columns

from ingestd.model.errors import BadInput
from ingestd.model.schema import schema_rest
from ingestd.warehouse.columns import converted, type_sql
from ingestd.warehouse.schemas import (
    LandedLike,
    drift_options,
    evolve,
    expiration_time,
    landed_like,
    lost_columns,
    patched,
    with_new_columns,
)


def test_new_columns_are_added_at_the_end_and_none_of_them_is_required() -> None:
    found = evolve(columns("id INTEGER, info {a STRING}"), columns("ID INT64, info {b {c STRING!}!}, more STRING!"))
    assert found.fields == columns("id INTEGER, info {a STRING, b {c STRING}}, more STRING")
    assert found.added == ("info.b", "more")
    assert found.relaxed == ()
    assert found.changes


def test_what_the_data_leaves_out_is_relaxed() -> None:
    found = evolve(columns("id INTEGER!, name STRING!, kept STRING!"), columns("name STRING, kept STRING!"))
    assert found.fields[0].mode == found.fields[1].mode == "NULLABLE"
    assert found.fields[2].mode == "REQUIRED"
    assert found.relaxed == ("id", "name")


@pytest.mark.parametrize(
    "data",
    ["id STRING", "id INTEGER*", "info {a INTEGER}", "info {a STRING}*"],
    ids=["type", "mode", "nested", "array"],
)
def test_another_type_is_no_evolution(data: str) -> None:
    with pytest.raises(BadInput, match=r"in the data and .* in the table"):
        evolve(columns("id INTEGER, info {a STRING}"), columns(data))


def test_columns_that_only_the_data_has_are_added_whatever_the_others_are() -> None:
    found = with_new_columns(columns("id NUMERIC!, info {a STRING}"), columns("id INTEGER, info {b STRING}, more DATE"))
    assert found.fields == columns("id NUMERIC!, info {a STRING, b STRING}, more DATE")
    assert (found.added, found.relaxed) == (("info.b", "more"), ())


def test_a_template_adds_what_it_has_besides_or_changes_nothing() -> None:
    table = columns("id INTEGER!, info {a STRING}")
    wide = patched(table, columns("id INTEGER, info {a STRING, b STRING}, more STRING*"))
    assert wide is not None
    assert (wide.added, wide.relaxed) == (("info.b", "more"), ("id",))
    same = patched(table, table)
    assert same is not None
    assert not same.changes
    assert patched(table, columns("id INTEGER, more STRING")) is None
    assert patched(table, columns("id STRING, info {a STRING}")) is None


def test_the_wider_table_is_one_that_bigquery_accepts(tables: Tables) -> None:
    table = tables.make("d.t", "id INTEGER!, info {a STRING}*", [{"id": 1, "info": [{"a": "x"}]}])
    wide = evolve(table.fields, columns("id INTEGER, info {a STRING, b INTEGER}*, more {x STRING!}"))
    tables.core.metadata.update_table("p", "d", "t", {"schema": schema_rest(wide.fields)}, patch=True, etag=None)
    assert tables.rows("d.t") == [{"id": 1, "info": [{"a": "x", "b": None}], "more": None}]


@pytest.mark.parametrize(
    ("dest", "load", "like"),
    [
        ("Transient: {Dataset: x, Template: d.wide}", {"sourceFormat": "PARQUET"}, LandedLike.TEMPLATE),
        ("", {"sourceFormat": "CSV", "schema": {"fields": [{}]}}, LandedLike.LOAD),
        ("", {"sourceFormat": "CSV", "autodetect": True}, LandedLike.LOAD),
        ("Transform: {a: b}", {"sourceFormat": "AVRO"}, LandedLike.LOAD),
        ("Transform: {a: b}", {"sourceFormat": "CSV"}, LandedLike.DESTINATION),
        ("Transient: {Dataset: x}", {"sourceFormat": "PARQUET"}, LandedLike.DESTINATION),
        ("AllowFieldAddition: true", {"sourceFormat": "PARQUET"}, LandedLike.LOAD),
    ],
)
def test_a_transient_table_is_made_like_what_knows_the_rows_best(
    dest: str, load: dict[str, Any], like: LandedLike
) -> None:
    assert landed_like(spec(f"Dest: {{Table: d.t{',' if dest else ''} {dest}}}").dest, load) is like


@pytest.mark.parametrize(
    ("more", "lost"),
    [
        ("", ["info.b", "extra", "Note"]),
        ("Transform: {name: UPPER(t.extra)}", ["info.b", "Note"]),
        ("Transform: {note: \"'x'\", name: t.info.b}", ["extra"]),
        ("Schema: {Template: d.narrow}", []),
        ("Schema: {Drift: evolve}", []),
        ("Schema: {Drift: discard_value}", []),
        ("IgnoreUnknownValues: true", []),
    ],
)
def test_columns_of_a_landing_template_get_lost_only_where_the_rule_says_so(more: str, lost: list[str]) -> None:
    """There bqtail's copy fails; columns that an expression uses are input."""
    dest = spec(f"Dest: {{Table: d.t, Transient: {{Dataset: x, Template: d.wide}}{',' if more else ''} {more}}}").dest
    declared = columns("id INTEGER, info {a STRING, b STRING}, extra STRING, Note STRING, name STRING")
    assert lost_columns(dest, declared, columns("ID INTEGER, name STRING, info {a STRING}")) == lost


UPDATES = ["ALLOW_FIELD_ADDITION", "ALLOW_FIELD_RELAXATION"]


@pytest.mark.parametrize(
    ("dest", "load", "options"),
    [
        ("Schema: {Drift: freeze}", {"sourceFormat": "CSV"}, {}),
        ("Schema: {Drift: discard_value}", {"sourceFormat": "CSV"}, {"ignoreUnknownValues": True}),
        ("AllowFieldAddition: true", {"sourceFormat": "PARQUET"}, {"schemaUpdateOptions": UPDATES}),
        (
            "AllowFieldAddition: true",
            {"sourceFormat": "NEWLINE_DELIMITED_JSON"},
            {"autodetect": True, "schemaUpdateOptions": UPDATES},
        ),
        ("AllowFieldAddition: true", {"sourceFormat": "AVRO", "schemaUpdateOptions": ["ALLOW_FIELD_ADDITION"]}, {}),
        (
            "AllowFieldAddition: true",
            {"sourceFormat": "CSV", "writeDisposition": "WRITE_TRUNCATE"},
            {"autodetect": True},
        ),
    ],
)
def test_a_load_is_told_what_to_do_about_new_columns(dest: str, load: dict[str, Any], options: dict[str, Any]) -> None:
    assert drift_options(spec(f"Dest: {{Table: d.t, {dest}}}").dest, load) == options


def test_replacing_a_partition_may_add_columns_too() -> None:
    dest = spec("Dest: {Table: d.t, AllowFieldAddition: true}").dest
    load = {"sourceFormat": "AVRO", "writeDisposition": "WRITE_TRUNCATE"}
    assert drift_options(dest, load, whole_table=False) == {"schemaUpdateOptions": UPDATES}


def test_expiry_counts_from_the_beginning_of_the_batch() -> None:
    assert expiration_time(timedelta(hours=2), datetime(2024, 1, 1, tzinfo=UTC)) == "1704074400000"


@pytest.mark.parametrize(
    ("have", "want", "sql"),
    [
        ("a INTEGER", "a NUMERIC", "CAST(x AS NUMERIC)"),
        ("a DATE", "a TIMESTAMP", "CAST(x AS TIMESTAMP)"),
        ("a STRING", "a BOOL", "CAST(x AS BOOL)"),
        (
            "a STRING*",
            "a INTEGER*",
            "ARRAY(SELECT CAST(_e0 AS INT64) FROM UNNEST(x) AS _e0 WITH OFFSET AS _o0 ORDER BY _o0)",
        ),
        ("a {b STRING}", "a {b STRING}", "x"),
        ("a FLOAT", "a INTEGER", None),
        ("a TIMESTAMP", "a DATE", None),
        ("a NUMERIC", "a FLOAT", None),
        ("a BYTES", "a STRING", None),
        ("a {b STRING}", "a STRING", None),
    ],
)
def test_values_change_only_to_types_that_hold_them(have: str, want: str, sql: str | None) -> None:
    one, two = columns(have)[0], columns(want)[0]
    if sql is None:
        with pytest.raises(BadInput):
            converted("x", one, two, strict=True)
    else:
        assert converted("x", one, two, strict=True) == sql


def test_types_are_spelt_as_in_sql() -> None:
    assert (
        type_sql(columns("a {b INTEGER*, c {d FLOAT}}*")[0])
        == "ARRAY<STRUCT<`b` ARRAY<INT64>, `c` STRUCT<`d` FLOAT64>>>"
    )
