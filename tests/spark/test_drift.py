"""Columns that the data has and the table has not: types from every value of the batch, and what each policy does."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.batches import Batches
from tests.support.files import avro, lines, orc, parquet

from ingestd.formats.detect import detect_json
from ingestd.formats.errors import BigQueryError
from ingestd.model.errors import BadInput
from ingestd.model.preparation import BadData, Drift, FileLayout, Prepared, Shaping
from ingestd.model.schema import Field, Mode, Schema, Type
from ingestd.spark.files.unknown import agree, unknown_fields
from ingestd.spark.session.session import Spark

ID = Field("id", Type.INT64, Mode.REQUIRED)
NAME = Field("name", Type.STRING)
NOON = datetime(2024, 1, 2, 12, 0, 0, 123456)  # noqa: DTZ001 - as Parquet has it that is not adjusted to UTC
RECORD = Field("r", Type.STRUCT, fields=(Field("a", Type.INT64),))


@pytest.mark.parametrize(
    ("values", "kind", "mode"),
    [
        ([1, 2], "INT64", "NULLABLE"),
        ([1, 0.5], "FLOAT64", "NULLABLE"),
        ([0.5], "FLOAT64", "NULLABLE"),
        ([2**63], "FLOAT64", "NULLABLE"),
        ([True, False], "BOOL", "NULLABLE"),
        ([True, 1], "STRING", "NULLABLE"),
        (["2024-01-01", "2024-12-31"], "DATE", "NULLABLE"),
        (["2024-01-01", "2024-01-01T10:00:00Z"], "TIMESTAMP", "NULLABLE"),
        (["2024-01-01", "soon"], "STRING", "NULLABLE"),
        (["10:11:12"], "TIME", "NULLABLE"),
        (["x", None], "STRING", "NULLABLE"),
        ([[1], [0.5, 2]], "FLOAT64", "REPEATED"),
        ([1, [2]], "INT64", "REPEATED"),
    ],
)
def test_a_type_comes_from_every_value(values: list[Any], kind: str, mode: str) -> None:
    """One file at a time, in either order: what they agree on is the same."""
    files = [unknown_fields([{"id": 1, "new": value}], (ID,)) for value in values]
    for order in (files, files[::-1]):
        merged: Schema = ()
        for found in order:
            merged = agree(merged, found)
        assert [(one.name, one.type.value, one.mode.value) for one in merged] == [("new", kind, mode)]


def test_nested_columns_are_found_where_they_are() -> None:
    rows = [
        {"id": 1, "r": {"a": 1, "b": 2}, "n": {"x": [{"y": 1}]}},
        {"id": 2, "r": {"b": 0.5, "c": {"d": "2024-01-01"}}, "n": {"x": [{"y": 2, "z": True}]}},
    ]
    found = {one.name: one for one in unknown_fields(rows, (ID, RECORD))}
    assert set(found) == {"r", "n"}
    assert [(one.name, one.type) for one in found["r"].fields] == [("b", Type.FLOAT64), ("c", Type.STRUCT)]
    (x,) = found["n"].fields
    assert (x.mode, [one.name for one in x.fields]) == (Mode.REPEATED, ["y", "z"])


def test_what_is_always_null_or_empty_adds_nothing() -> None:
    assert unknown_fields([{"new": None}, {"new": []}, {"new": {}}, {"new": {"a": None}}], (ID,)) == ()


def test_a_record_here_and_a_number_there_cannot_agree() -> None:
    with pytest.raises(BigQueryError, match="new has changed type"):
        agree(unknown_fields([{"new": 1}], ()), unknown_fields([{"new": {"a": 1}}], ()))


scalars = st.sampled_from([1, -3, 0.5, True, "x", "2024-01-01", "2024-01-01 00:00:00", "10:00:00", ""])
documents = st.dictionaries(
    st.sampled_from("abc"),
    scalars | st.lists(scalars, min_size=1, max_size=2) | st.dictionaries(st.sampled_from("xy"), scalars, min_size=1),
    min_size=1,
)


@given(st.lists(documents, min_size=1, max_size=6))
def test_types_are_those_of_bigquerys_own_detection(rows: list[dict[str, Any]]) -> None:
    try:
        expected = detect_json(rows)
    except BigQueryError:
        with pytest.raises(BigQueryError):
            _over_files(rows)
        return
    assert sorted(_over_files(rows), key=repr) == sorted(expected, key=repr)


def _over_files(rows: list[dict[str, Any]]) -> Schema:
    merged: Schema = ()
    for row in rows:
        merged = agree(merged, unknown_fields([row], ()))
    return merged


FILES = {
    "1.json": lines([{"id": 1, "name": "a", "new": 1, "r": {"a": 1}}, {"id": 2, "name": "b"}]),
    "2.json": lines([{"id": 3, "new": 0.5, "day": "2024-01-01", "r": {"a": 2, "b": ["x"]}}]),
    "3.json": lines([{"id": 4, "name": "d"}]),
}


async def _prepared(spark: Spark, folder: Path, drift: Drift, **more: Any) -> tuple[Prepared, list[tuple[Any, ...]]]:
    batches = Batches(spark, folder)
    files = await batches.put_all(more.pop("files", FILES))
    prepared = await batches.prepare(files, (ID, NAME, RECORD), drift=drift, **more)
    return prepared, await batches.loaded(prepared)


async def test_a_table_evolves_with_its_data(spark: Spark, tmp_path: Path) -> None:
    files = {**FILES, "4.json": lines([{"name": "no id", "new": 2}])}
    prepared, loaded = await _prepared(spark, tmp_path, Drift.EVOLVE, files=files)
    added = {one.name: (one.type.rest, one.mode, [m.name for m in one.fields]) for one in prepared.added}
    assert {name: found[0] for name, found in added.items()} == {"new": "FLOAT", "day": "DATE", "r": "RECORD"}
    assert added["r"][2] == ["b"]
    assert prepared.relaxed == ("id",)
    assert prepared.bad == ()
    names = [one.name for one in prepared.schema]
    rows = [dict(zip(names, row, strict=True)) for row in loaded]
    assert sorted((str(row["id"]), str(row["new"]), str(row["day"])) for row in rows) == [
        ("1", "1.0", "None"),
        ("2", "None", "None"),
        ("3", "0.5", "2024-01-01"),
        ("4", "None", "None"),
        ("None", "2.0", "None"),
    ]
    (third,) = [row for row in rows if row["id"] == 3]
    assert third["r"] == {"a": 2, "b": ["x"]}


@pytest.mark.parametrize("name", ["", " ", "_ingestd_line", "_INGESTD_Report", "a.b"])
async def test_a_file_with_a_column_no_table_can_have_holds_up_no_other(
    spark: Spark, tmp_path: Path, name: str
) -> None:
    files = {"1.json": lines([{"id": 1, "new": 1}]), "2.json": lines([{"id": 2, name: 1}])}
    prepared, loaded = await _prepared(spark, tmp_path, Drift.EVOLVE, files=files)
    assert [(bad.index, bad.schema, bad.loaded) for bad in prepared.bad] == [(1, True, False)]
    assert [row[0] for row in loaded] == [1]
    assert [one.name for one in prepared.added] == ["new"]


async def test_of_files_that_cannot_agree_on_a_new_column_the_first_decides(spark: Spark, tmp_path: Path) -> None:
    files = {
        "1.json": lines([{"id": 1, "new": 1}]),
        "2.json": lines([{"id": 2, "new": {"a": 1}, "other": 1}]),
        "3.json": lines([{"id": 3, "new": 0.5}]),
    }
    prepared, loaded = await _prepared(spark, tmp_path, Drift.EVOLVE, files=files)
    assert [(bad.index, bad.schema, bad.line, bad.column) for bad in prepared.bad] == [(1, True, 1, "new")]
    assert [(one.name, one.type.rest) for one in prepared.added] == [("new", "FLOAT")]
    assert sorted((row[0], row[3]) for row in loaded) == [(1, 1.0), (3, 0.5)]


async def test_a_batch_that_may_not_have_bad_files_names_those_that_cannot_agree(spark: Spark, tmp_path: Path) -> None:
    files = {"1.json": lines([{"id": 1, "new": 1}]), "2.json": lines([{"id": 2, "new": {"a": 1}}])}
    with pytest.raises(BadInput, match=r"2\.json line 1"):
        await _prepared(spark, tmp_path, Drift.EVOLVE, files=files, bad_data=BadData.FAIL)


async def test_a_frozen_table_sets_such_files_aside(spark: Spark, tmp_path: Path) -> None:
    prepared, loaded = await _prepared(spark, tmp_path, Drift.FREEZE)
    assert [(bad.index, bad.schema) for bad in prepared.bad] == [(0, True), (1, True)]
    assert [row[0] for row in loaded] == [4]
    assert prepared.added == ()


async def test_values_or_rows_that_do_not_fit_are_left_out(spark: Spark, tmp_path: Path) -> None:
    prepared, loaded = await _prepared(spark, tmp_path / "values", Drift.DISCARD_VALUE)
    assert sorted(row[0] for row in loaded) == [1, 2, 3, 4]
    assert prepared.rows_left_out == {}
    prepared, loaded = await _prepared(spark, tmp_path / "rows", Drift.DISCARD_ROW)
    assert sorted(row[0] for row in loaded) == [2, 4]
    assert prepared.rows_left_out == {"drift": 2}


async def test_a_table_evolves_with_what_a_rule_computes(spark: Spark, tmp_path: Path) -> None:
    shaping = Shaping(transform={"twice": "new * 2", "label": "UPPER(t.name)"}, criteria="new IS NOT NULL")
    prepared, loaded = await _prepared(spark, tmp_path, Drift.EVOLVE, shaping=shaping)
    assert {one.name: one.type.rest for one in prepared.added}.items() >= {"twice": "FLOAT", "label": "STRING"}.items()
    names = [one.name for one in prepared.schema]
    rows = sorted((dict(zip(names, row, strict=True)) for row in loaded), key=lambda row: row["id"])
    assert [(row["id"], row["new"], row["twice"], row["label"]) for row in rows] == [
        (1, 1.0, 2.0, "A"),
        (3, 0.5, 1.0, None),
    ]
    assert json.dumps(prepared.rows_left_out) == '{"criteria": 2}'


async def test_a_column_that_no_expression_looks_at_has_the_tables_type_in_files_that_describe_themselves(
    spark: Spark, tmp_path: Path
) -> None:
    """One file with another type is a bad file; the others, and an expression's own conversion, go on."""
    batches = Batches(spark, tmp_path)
    tables = [
        pa.table({"id": [1], "extra": ["e"], "at": ["01.02.2024"]}),
        pa.table({"id": ["zzz"], "extra": ["e"], "at": ["01.02.2024"]}),
    ]
    files = [await batches.put(f"in/{n}.parquet", parquet(table)) for n, table in enumerate(tables)]
    transform = {"name": "UPPER(t.extra)", "at": "PARSE_DATE('%d.%m.%Y', t.at)"}
    columns = (ID, NAME, Field("at", Type.DATE))
    prepared = await batches.prepare(files, columns, {"sourceFormat": "PARQUET"}, shaping=Shaping(transform=transform))
    assert [(bad.index, bad.column) for bad in prepared.bad] == [(1, "id")]
    assert await batches.loaded(prepared) == [(1, "E", date(2024, 2, 1))]


async def test_members_of_records_in_files_that_describe_themselves_follow_the_policy(
    spark: Spark, tmp_path: Path
) -> None:
    batches = Batches(spark, tmp_path)
    rows = pa.table({"id": [1, 2], "r": [{"a": 1, "b": {"c": "x"}}, {"a": 2, "b": None}]})
    files = [await batches.put("in/a.parquet", parquet(rows))]
    load = {"sourceFormat": "PARQUET"}
    grown = await batches.prepare(files, (ID, RECORD), load, drift=Drift.EVOLVE)
    (added,) = grown.added
    assert (added.name, [member.name for member in added.fields]) == ("r", ["b"])
    assert await batches.loaded(grown) == [(1, {"a": 1, "b": {"c": "x"}}), (2, {"a": 2, "b": None})]
    value = await batches.prepare(files, (ID, RECORD), load, drift=Drift.DISCARD_VALUE)
    assert await batches.loaded(value) == [(1, {"a": 1}), (2, {"a": 2})]
    row = await batches.prepare(files, (ID, RECORD), load, drift=Drift.DISCARD_ROW)
    assert await batches.loaded(row) == [(2, {"a": 2})]
    assert row.rows_left_out == {"drift": 1}
    frozen = await batches.prepare(files, (ID, RECORD), load)
    assert [bad.index for bad in frozen.bad] == [0]


async def test_a_column_that_a_rule_declares_and_the_table_has_not_is_added_or_refused_but_never_lost(
    spark: Spark, tmp_path: Path
) -> None:
    batches = Batches(spark, tmp_path)
    wide = replace(RECORD, fields=(*RECORD.fields, Field("b", Type.INT64)))
    files = [await batches.put("in/a.json", lines([{"id": 1, "extra": "kept", "r": {"a": 1, "b": 2}}]))]
    declared = (ID, Field("extra", Type.STRING), wide)

    async def prepared(drift: Drift, **more: Any) -> Prepared:
        request = batches.request(files, (ID, RECORD), drift=drift, absent=drift, **more)
        return await batches.preparer.prepare(replace(request, source_schema=declared))

    grown = await prepared(Drift.EVOLVE)
    assert [column.name for column in grown.added] == ["extra", "r"]
    assert await batches.loaded(grown) == [(1, {"a": 1, "b": 2}, "kept")]
    with pytest.raises(BadInput, match=r"no column extra, r\.b, and the rule's Drift is freeze"):
        await prepared(Drift.FREEZE)
    used = Shaping(transform={"r": "STRUCT(LENGTH(t.extra) + t.r.b AS a)"})
    assert await batches.loaded(await prepared(Drift.FREEZE, shaping=used)) == [(1, {"a": 6})]
    assert await batches.loaded(await prepared(Drift.DISCARD_VALUE)) == [(1, {"a": 1})]


@pytest.mark.parametrize("name", ["PARQUET", "NEWLINE_DELIMITED_JSON"])
async def test_null_elements_that_a_rule_makes_are_refused_by_name(spark: Spark, tmp_path: Path, name: str) -> None:
    batches = Batches(spark, tmp_path)
    files = [await batches.put("in/a.json", lines([{"id": 1, "name": "a"}]))]
    columns = (ID, NAME, Field("tags", Type.STRING, Mode.REPEATED))
    shaping = Shaping(transform={"tags": "[t.name, NULLIF(t.name, 'a')]"})
    with pytest.raises(BadInput, match="column tags: an array of a table has no NULL elements"):
        await batches.prepare(files, columns, shaping=shaping, layout=FileLayout(format=name))


@pytest.mark.parametrize(
    ("arrays", "kind", "values"),
    [
        ((pa.array([7]), pa.array(["x"])), "STRING", ["7", "x"]),
        ((pa.array([7]), pa.array([None], pa.null())), "INTEGER", [7, None]),
        ((pa.array([1.5]), pa.array([Decimal("2.50")])), "STRING", ["1.5", "2.5"]),
        ((pa.array([True]), pa.array([3])), "STRING", ["true", "3"]),
        ((pa.array([3]), pa.array([1.5])), "FLOAT", [3.0, 1.5]),
        ((pa.array([NOON]), pa.array([NOON], pa.timestamp("us", "UTC"))), "TIMESTAMP", [NOON.replace(tzinfo=UTC)] * 2),
    ],
)
async def test_what_files_agree_on_holds_the_values_of_all_of_them(
    spark: Spark, tmp_path: Path, arrays: tuple[pa.Array, ...], kind: str, values: list[Any]
) -> None:
    batches = Batches(spark, tmp_path)
    tables = [pa.table({"id": [number], "new": array}) for number, array in enumerate(arrays)]
    files = [await batches.put(f"in/{n}.parquet", parquet(table)) for n, table in enumerate(tables)]
    prepared = await batches.prepare(files, (ID,), {"sourceFormat": "PARQUET"}, drift=Drift.EVOLVE)
    assert prepared.bad == ()
    assert [(column.name, column.type.rest) for column in prepared.added] == [("new", kind)]
    assert await batches.loaded(prepared) == list(enumerate(values))


@pytest.mark.parametrize(
    "option",
    [
        {"fileSetSpecType": "FILE_SET_SPEC_TYPE_NEW_LINE_DELIMITED_MANIFEST"},
        {"referenceFileSchemaUri": "gs://bucket/columns.parquet"},
    ],
)
async def test_options_that_say_where_else_files_or_columns_are_told_are_refused_by_name(
    spark: Spark, tmp_path: Path, option: dict[str, str]
) -> None:
    batches = Batches(spark, tmp_path)
    files = [await batches.put("in/a.json", b'{"id": 1}')]
    with pytest.raises(BadInput, match=next(iter(option))):
        await batches.prepare(files, (ID,), {"sourceFormat": "NEWLINE_DELIMITED_JSON", **option})


FORMATS = {"PARQUET": parquet, "ORC": orc, "AVRO": lambda table: avro(AVRO_FIELDS, table.to_pylist())}
AVRO_FIELDS = [
    {"name": "id", "type": ["null", "long"]},
    *({"name": name, "type": ["null", "string"]} for name in ("note", "raw")),
]
TEXTS = pa.schema([("id", pa.int64()), ("note", pa.string()), ("raw", pa.string())])
RENAMED = (Field("id", Type.INT64), Field("note", Type.STRING), Field("user", Type.STRING))


def _texts(*rows: tuple[int, str | None, str | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(TEXTS.names, row, strict=True)) for row in rows], TEXTS)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "rows",
    [[(1, None, "a"), (2, None, "b")], [(1, "x", None)], [(1, None, None)], []],
    ids=["a column without a value", "the one that is renamed", "both", "no rows"],
)
async def test_columns_without_a_value_are_columns_of_their_files(
    spark: Spark, tmp_path: Path, kind: str, rows: list[tuple[int, str | None, str | None]]
) -> None:
    """Also where all columns are read from the files, as one is renamed."""
    batches = Batches(spark, tmp_path)
    files = [await batches.put(f"in/{n}", FORMATS[kind](_texts(*part))) for n, part in enumerate((rows, rows[:1]))]
    prepared = await batches.prepare(
        files, RENAMED, {"sourceFormat": kind}, shaping=Shaping(transform={"user": "t.raw"})
    )
    assert prepared.bad == ()
    assert await batches.loaded(prepared) == sorted((*rows, *rows[:1]))
    created = await batches.prepare(files, (), {"sourceFormat": kind}, shaping=Shaping(transform={"user": "t.raw"}))
    assert {item.name: item.type.rest for item in created.schema}.items() >= {
        "note": "STRING",
        "user": "STRING",
    }.items()


@pytest.mark.parametrize(
    ("kind", "make"), [("PARQUET", parquet), ("NEWLINE_DELIMITED_JSON", lambda t: lines(t.to_pylist()))]
)
async def test_columns_are_detected_also_where_unknown_values_are_to_be_ignored(
    spark: Spark, tmp_path: Path, kind: str, make: Any
) -> None:
    batches = Batches(spark, tmp_path)
    files = [await batches.put("in/a", make(_texts((1, "n", "r"))))]
    load = {"sourceFormat": kind, "autodetect": True, "ignoreUnknownValues": True}
    prepared = await batches.prepare(files, (), load, shaping=Shaping(transform={"user": "t.raw"}))
    assert (prepared.bad, await batches.loaded(prepared)) == ((), [(1, "n", "r", "r")])


async def test_texts_alone_without_rows_are_columns(spark: Spark, tmp_path: Path) -> None:
    batches = Batches(spark, tmp_path)
    files = [await batches.put("in/a", parquet(pa.table({"raw": pa.array([], pa.string())})))]
    shaping = Shaping(transform={"user": "t.raw"})
    prepared = await batches.prepare(files, (Field("user", Type.STRING),), {"sourceFormat": "PARQUET"}, shaping=shaping)
    assert (prepared.bad, prepared.rows_read, await batches.loaded(prepared)) == ((), 0, [])


NOTHING = pa.array([None], pa.string())
TYPELESS = pa.nulls(1)


@pytest.mark.parametrize(
    ("at", "amount", "transform", "loaded"),
    [
        (NOTHING, NOTHING, {}, (1, None, None)),  # neither is converted: as the table has them
        (TYPELESS, TYPELESS, {}, (1, None, None)),
        (NOTHING, TYPELESS, {"at": "PARSE_DATE('%d.%m.%Y', t.at)", "amount": "t.amount * 2"}, (1, None, None)),
        (NOTHING, NOTHING, {"amount": "IFNULL(SAFE_CAST(t.amount AS INT64), 7)"}, (1, None, 7)),
    ],
)
async def test_a_column_without_a_value_has_the_type_that_expression_and_table_ask_for(
    spark: Spark, tmp_path: Path, at: pa.Array, amount: pa.Array, transform: dict[str, str], loaded: tuple[Any, ...]
) -> None:
    """Text that a file declares is what an expression converts; of a column without a type, the table tells one."""
    batches = Batches(spark, tmp_path)
    table = pa.table({"id": [1], "at": at, "amount": amount, "raw": ["r"]})
    files = [await batches.put("in/a", parquet(table))]
    columns = (ID, Field("at", Type.DATE), Field("amount", Type.INT64))
    shaping = Shaping(transform=transform, criteria="t.raw = 'r' AND t.amount IS NULL")
    prepared = await batches.prepare(files, columns, {"sourceFormat": "PARQUET"}, shaping=shaping)
    assert (prepared.bad, await batches.loaded(prepared)) == ((), [loaded])


async def test_a_value_in_any_file_tells_the_type_of_a_column_that_is_text_without_one_elsewhere(
    spark: Spark, tmp_path: Path
) -> None:
    batches = Batches(spark, tmp_path)
    arrays = [NOTHING, TYPELESS, pa.array([3]), NOTHING]
    tables = [pa.table({"id": [n], "amount": array}) for n, array in enumerate(arrays)]
    files = [await batches.put(f"in/{n}", parquet(table)) for n, table in enumerate(tables)]
    columns = (Field("id", Type.INT64), Field("twice", Type.INT64))
    shaping = Shaping(transform={"twice": "t.amount * 2"})
    prepared = await batches.prepare(files, columns, {"sourceFormat": "PARQUET"}, shaping=shaping)
    assert prepared.bad == ()
    assert await batches.loaded(prepared) == [(0, None), (1, None), (2, 6), (3, None)]


async def test_a_table_evolves_with_values_and_not_with_names(spark: Spark, tmp_path: Path) -> None:
    """But for a column that an expression asks for; and what the batch leaves out is relaxed."""
    batches = Batches(spark, tmp_path)
    files = [await batches.put("in/a", parquet(_texts((1, None, None))))]
    strict = (ID, replace(NAME, name="note", mode=Mode.REQUIRED))
    load = {"sourceFormat": "PARQUET"}
    shaping = Shaping(transform={"user": "t.raw"})
    prepared = await batches.prepare(files, (ID,), load, drift=Drift.EVOLVE, shaping=shaping)
    assert (prepared.bad, [item.name for item in prepared.added]) == ((), ["raw", "user"])
    relaxed = await batches.prepare(files, strict, load, drift=Drift.EVOLVE, shaping=shaping)
    assert (relaxed.bad, relaxed.relaxed) == ((), ("note",))
    frozen = await batches.prepare(files, (*strict, replace(NAME, name="user")), load, shaping=shaping)
    assert [(bad.index, bad.column) for bad in frozen.bad] == [(0, "note")]
