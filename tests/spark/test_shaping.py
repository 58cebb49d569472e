"""Rows on their way through Spark: joined, computed, filtered, one per key, split, and fitted to their table."""

from typing import TYPE_CHECKING, Any

import pytest

from ingestd.model.errors import BadInput, Fatal
from ingestd.model.preparation import Branch, Shaping, SideInput, Unmatched
from ingestd.model.schema import Field, Type
from ingestd.spark.files.reserved import FILE, LINE
from ingestd.spark.shape.steps import SideFrame, check, shape
from ingestd.spark.sql.farmhash import fingerprint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[tuple[Any, ...]]

SOURCE = tuple(
    map(
        Field.from_rest,
        [
            {"name": "id", "type": "INTEGER"},
            {"name": "v", "type": "STRING"},
            {"name": "x", "type": "FLOAT"},
            {"name": "tags", "type": "STRING", "mode": "REPEATED"},
            {
                "name": "info",
                "type": "RECORD",
                "fields": [{"name": "key", "type": "STRING"}, {"name": "n", "type": "INTEGER"}],
            },
        ],
    )
)
DDL = "id BIGINT, v STRING, x DOUBLE, tags ARRAY<STRING>, info STRUCT<key: STRING, n: BIGINT>"
NAN = float("nan")
DATA: Rows = [
    (1, "a", 1.0, ["p"], ("k1", 1), 0, 1),
    (1, "b", 2.0, ["q", "r"], ("k1", 2), 1, 1),
    (2, "c", None, [], ("k2", 3), 0, 2),
    (None, "d", 4.0, [], None, 0, 3),
    (None, "e", NAN, ["s"], None, 0, 4),
    (3, "zz", 0.0, [], ("k3", None), 1, 2),
]


@pytest.fixture
def frame(session: "SparkSession") -> "DataFrame":
    return session.createDataFrame(DATA, f"{DDL}, {FILE} INT, {LINE} BIGINT")


def rows(frame: "DataFrame", shaping: Shaping, *columns: str, **more: Any) -> tuple[Rows, dict[str, int]]:
    """The chosen columns of the shaped rows in some order that repeats, and what was left out."""
    made = shape(frame, shaping, source=SOURCE, **{"destination": (), **more})
    found = made.frame.select(*columns).collect() if columns else made.frame.collect()
    return sorted((tuple(row) for row in found), key=repr), made.left_out(len(DATA), len(found))


def test_one_whole_row_per_key_is_the_newest_and_null_keys_are_one(frame: "DataFrame") -> None:
    """NULLs are one key, as in BigQuery's PARTITION BY; nested and repeated columns come along."""
    found, left = rows(frame, Shaping(unique_columns=("id",)))
    assert [tuple(row[:2]) for row in found] == [(1, "b"), (2, "c"), (3, "zz"), (None, "e")]
    assert found[0][3] == ["q", "r"]
    assert tuple(found[0][4]) == ("k1", 2)
    assert left == {"duplicate": 2}


def test_of_an_upsert_every_row_without_a_key_is_kept(frame: "DataFrame") -> None:
    found, left = rows(frame, Shaping(unique_columns=("id",), keep_keyless=True), "id", "v")
    assert found == [(1, "b"), (2, "c"), (3, "zz"), (None, "d"), (None, "e")]
    assert left == {"duplicate": 1}
    found, _ = rows(frame, Shaping(unique_columns=("v", "info.key"), keep_keyless=True), "v")
    assert found == [("a",), ("b",), ("c",), ("d",), ("e",), ("zz",)]


def test_the_newest_file_is_the_one_of_the_highest_rank(frame: "DataFrame") -> None:
    found, _ = rows(frame, Shaping(unique_columns=("t.id",)), "id", "v", file_order=(1, 0))
    assert found == [(1, "a"), (2, "c"), (3, "zz"), (None, "e")]


@pytest.mark.parametrize(
    ("order", "kept"),
    [
        (("x",), ["a", "c", "e", "zz"]),  # NaN comes before every number
        (("x DESC",), ["b", "c", "d", "zz"]),
        (("x DESC", "v ASC NULLS LAST"), ["b", "c", "d", "zz"]),
        (("v DESC", "x"), ["b", "c", "e", "zz"]),
        (("LENGTH(v)",), ["b", "c", "e", "zz"]),  # equal: the newest
        (("IF(v = 'a', NULL, 1) DESC",), ["b", "c", "e", "zz"]),
        (("IF(v = 'a', NULL, 1)",), ["a", "c", "e", "zz"]),
        (("IF(v = 'a', NULL, 1) ASC NULLS LAST",), ["b", "c", "e", "zz"]),
        (("IF(v = 'a', NULL, 1) DESC NULLS FIRST",), ["a", "c", "e", "zz"]),
    ],
)
def test_the_first_row_in_the_order_asked_for_wins(frame: "DataFrame", order: tuple[str, ...], kept: list[str]) -> None:
    found, _ = rows(frame, Shaping(unique_columns=("id",), order_by=order), "v")
    assert sorted(row[0] for row in found) == kept


def test_keys_may_be_nested_or_computed(frame: "DataFrame") -> None:
    found, _ = rows(frame, Shaping(unique_columns=("info.key",)), "v")
    assert sorted(row[0] for row in found) == ["b", "c", "e", "zz"]
    shaping = Shaping(unique_columns=("half",), transform={"half": "MOD(IFNULL(id, 0), 2)"})
    found, left = rows(frame, shaping, "v", destination=SOURCE)
    assert sorted(row[0] for row in found) == ["e", "zz"]
    assert left == {"duplicate": 4}


def test_a_split_by_fingerprint_is_bigquerys(frame: "DataFrame") -> None:
    shaping = Shaping(branches=(Branch("MOD(ABS(FARM_FINGERPRINT(v)), 2) = 0"),), criteria="FARM_FINGERPRINT(v) != 1")
    found, _ = rows(frame, shaping, "v", "_ingestd_branch")
    assert found == [
        (v, 0 if abs(fingerprint(v.encode()) or 0) % 2 == 0 else -1) for v in ("a", "b", "c", "d", "e", "zz")
    ]


def test_steps_happen_in_their_order(frame: "DataFrame", session: "SparkSession") -> None:
    """Criteria see what the files had, keys and splits what came out of the transformation."""
    side = session.createDataFrame([(1, "one"), (2, "two")], "id BIGINT, name STRING")
    columns = (Field("id", Type.INT64), Field("name", Type.STRING))
    shaping = Shaping(
        side_inputs=(SideInput("s", "s.id = t.id"),),
        transform={"v": "UPPER(IFNULL(s.name, t.v))", "id": "IFNULL(t.id, 0) + @more"},
        criteria="t.v != 'a' AND (s.name IS NULL OR s.name != 'x')",
        unique_columns=("id",),
        order_by=("v",),
        branches=(Branch("t.v = 'ONE'"), Branch("id > 12")),
        parameters={"more": 10},
    )
    found, left = rows(
        frame, shaping, "id", "v", "_ingestd_branch", sides={"S": SideFrame(side, columns)}, destination=SOURCE
    )
    assert found == [(10, "D", -1), (11, "ONE", 0), (12, "TWO", -1), (13, "ZZ", 1)]
    assert left == {"criteria": 1, "duplicate": 1}


@pytest.mark.parametrize(
    ("every", "unmatched", "expected", "left"),
    [
        (False, Unmatched.KEEP, [("a", 0), ("b", 0), ("c", -1), ("d", 1), ("e", 1), ("zz", 1)], {}),
        (True, Unmatched.KEEP, [("a", 0), ("b", 0), ("b", 1), ("c", -1), ("d", 1), ("e", 1), ("zz", 1)], {}),
        (False, Unmatched.DROP, [("a", 0), ("b", 0), ("d", 1), ("e", 1), ("zz", 1)], {"unmatched": 1}),
        (True, Unmatched.DROP, [("a", 0), ("b", 0), ("b", 1), ("d", 1), ("e", 1), ("zz", 1)], {"unmatched": 1}),
    ],
)
def test_a_split_sends_each_row_where_it_belongs(
    frame: "DataFrame", every: bool, unmatched: Unmatched, expected: Rows, left: dict[str, int]
) -> None:
    """A condition that is NULL does not hold."""
    branches = (Branch("id = 1"), Branch("v > 'a' AND v != 'c'"))
    shaping = Shaping(branches=branches, every_branch=every, unmatched=unmatched)
    assert rows(frame, shaping, "v", "_ingestd_branch") == (expected, left)


@pytest.mark.parametrize("every", [False, True])
def test_a_split_may_refuse_rows_that_fit_nowhere(frame: "DataFrame", every: bool) -> None:
    from pyspark.errors import PySparkException

    shaping = Shaping(branches=(Branch("id = 1"),), every_branch=every, unmatched=Unmatched.REFUSE)
    with pytest.raises(PySparkException, match="fits no mapping of the split"):
        rows(frame, shaping)


def test_rows_are_fitted_to_their_table(frame: "DataFrame") -> None:
    """Columns in the table's order, wider types, members by name, defaults left to BigQuery, others NULL."""
    table: list[dict[str, Any]] = [
        {"name": "X", "type": "STRING"},
        {"name": "id", "type": "NUMERIC"},
        {"name": "info", "type": "RECORD", "fields": [{"name": "n", "type": "FLOAT"}, {"name": "new", "type": "DATE"}]},
        {"name": "later", "type": "DATE"},
        {"name": "made", "type": "INTEGER", "defaultValueExpression": "1"},
    ]
    made = shape(frame.where("v = 'b'"), Shaping(), source=SOURCE, destination=tuple(map(Field.from_rest, table)))
    assert [one.name for one in made.schema] == ["X", "id", "info", "later"]
    (row,) = made.frame.collect()
    assert (row[0], str(row[1]), tuple(row[2]), row[3]) == ("2", "1.000000000", (2.0, None), None)


@pytest.mark.parametrize("repeated", [False, True])
def test_members_of_the_files_columns_go_by_their_names_and_not_by_their_places(
    session: "SparkSession", repeated: bool
) -> None:
    """As the statements of the BigQuery engine have it; only what an expression makes is coerced by its places."""

    def column(*members: str) -> Field:
        fields = [{"name": name, "type": "INTEGER"} for name in members]
        return Field.from_rest(
            {"name": "r", "type": "RECORD", "mode": "REPEATED" if repeated else "NULLABLE", "fields": fields}
        )

    kind = "STRUCT<a: BIGINT, b: BIGINT>"
    ddl = f"r {f'ARRAY<{kind}>' if repeated else kind}, {FILE} INT, {LINE} BIGINT"
    frame = session.createDataFrame([([(1, 2)] if repeated else (1, 2), 0, 1)], ddl)

    def fitted(*members: str) -> list[Any]:
        made = shape(frame, Shaping(), source=(column("a", "b"),), destination=(column(*members),))
        (found,) = made.frame.collect()
        return [tuple(one) for one in found[0]] if repeated else [tuple(found[0])]

    assert fitted("a", "b") == [(1, 2)]
    assert fitted("b", "a") == [(2, 1)]
    assert fitted("A", "c") == [(1, None)]


def test_a_table_that_evolves_gets_what_is_computed(frame: "DataFrame") -> None:
    shaping = Shaping(transform={"w": "id + 1", "key": "id"}, unique_columns=("key",))
    made = shape(frame, shaping, source=SOURCE, destination=SOURCE[:1], evolve=True)
    assert [(one.name, one.type.rest) for one in made.schema] == [("id", "INTEGER"), ("w", "INTEGER")]
    assert sorted(row[1] or 0 for row in made.frame.collect()) == [0, 2, 3, 4]


def test_before_a_dot_the_batchs_alias_is_meant_even_if_a_column_has_its_name(session: "SparkSession") -> None:
    source = (Field("id", Type.INT64), Field("t", Type.STRING))
    frame = session.createDataFrame([(1, "x", 0, 1), (1, "y", 0, 2)], f"id BIGINT, t STRING, {FILE} INT, {LINE} BIGINT")
    shaping = Shaping(transform={"id": "t.id + 1", "both": "CONCAT(t, T.t)"}, unique_columns=("t.id",))
    assert [tuple(row) for row in shape(frame, shaping, source=source, destination=()).frame.collect()] == [
        (2, "y", "yy")
    ]


def test_what_an_upserts_conditions_name_comes_along(frame: "DataFrame") -> None:
    shaping = Shaping(transform={"gone": "id = 1"}, conditions=("t.gone OR dest.x < t.x", "NOT EXISTS(SELECT t.gone)"))
    made = shape(frame, shaping, source=SOURCE, destination=SOURCE[:1])
    assert [one.name for one in made.schema] == ["id", "x", "gone"]


@pytest.mark.parametrize(
    ("shaping", "destination", "why"),
    [
        (Shaping(transform={"x": "1.5"}), (Field("x", Type.INT64),), "column x is FLOAT64 in the data"),
        (Shaping(), (Field("x", Type.INT64),), "column x is FLOAT64 in the data and INT64"),
        (Shaping(), (Field("tags", Type.STRING),), "column tags is ARRAY<STRING> in the data"),
        (Shaping(transform={"w": "1"}), SOURCE, "Transform: the destination has no column w"),
        (Shaping(transform={"w": "FOO(1)"}), (), "Transform.w: function FOO is not available on Spark"),
        (Shaping(unique_columns=("nope",)), (), "UniqueColumns: there is no column nope"),
        (Shaping(unique_columns=("id",), order_by=("x UP",)), (), "OrderBy: 'x UP' is not"),
        (Shaping(unique_columns=("id",), order_by=("tags",)), (), "OrderBy: tags does not take ARRAY"),
        (Shaping(criteria="id"), (), "Criteria must be a BOOL"),
        (Shaping(branches=(Branch("t.gone"),)), (), r"Split\[0\].When: t has no column gone"),
        (Shaping(side_inputs=(SideInput("s", "s.id = t.id"),)), (), "side input s: its rows are not there"),
    ],
)
def test_what_cannot_work_is_told_by_name(frame: "DataFrame", shaping: Shaping, destination: Any, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        rows(frame, shaping, destination=destination)


def test_a_shaping_can_be_checked_without_spark() -> None:
    check(Shaping(transform={"x": "CAST(id AS FLOAT64)"}), SOURCE, SOURCE)
    with pytest.raises(BadInput, match="column x is INT64 in the data and BOOL"):
        check(Shaping(transform={"x": "id"}), SOURCE, (Field("x", Type.BOOL),))


def test_a_session_that_hides_errors_is_refused(frame: "DataFrame") -> None:
    frame.sparkSession.conf.set("spark.sql.ansi.enabled", "false")
    with pytest.raises(Fatal, match=r"spark\.sql\.ansi\.enabled=true"):
        rows(frame, Shaping(criteria="id > 1"))


def test_one_pass_reads_every_row_once(frame: "DataFrame") -> None:
    """Joins, keys and a split into three targets cost one scan and one shuffle."""
    shaping = Shaping(unique_columns=("id",), order_by=("x",), branches=(Branch("id = 1"), Branch("id = 2")))
    made = shape(frame, shaping, source=SOURCE, destination=())
    plan = made.frame._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
    assert plan.count("Scan ExistingRDD") + plan.count("LocalTableScan") == 1
    assert plan.count("Exchange hashpartitioning") == 1
