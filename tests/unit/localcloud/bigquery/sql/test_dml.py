"""Statements that change rows: what they change, how much they say they changed, and what they refuse."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from ingestd.formats.errors import BigQueryError


@pytest.fixture
def table(dataset: Any) -> Any:
    dataset.run(
        "CREATE TABLE d.t (id INT64 NOT NULL, name STRING DEFAULT 'anon', tags ARRAY<STRING>, "
        "s STRUCT<f INT64, g STRUCT<h STRING>>)"
    )
    dataset.run("INSERT INTO d.t (id, name) VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    return dataset


def test_insert_counts_rows_and_fills_defaults_and_empty_arrays(table: Any) -> None:
    result = table.run("INSERT d.t (id, tags) VALUES (4, NULL), (5, ['x', 'y'])").statements[0]
    assert (result.kind, result.dml.inserted, result.dml.affected) == ("INSERT", 2, 2)
    assert table.rows("SELECT name, tags FROM d.t WHERE id > 3 ORDER BY id") == [("anon", []), ("anon", ["x", "y"])]


def test_insert_takes_the_keyword_default(table: Any) -> None:
    table.run("INSERT INTO d.t (id, name) VALUES (9, DEFAULT)")
    assert table.rows("SELECT name FROM d.t WHERE id = 9") == [("anon",)]


def test_insert_from_a_query_converts_to_the_columns_types(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.n (f FLOAT64, d DATE, n NUMERIC)")
    dataset.run("INSERT INTO d.n SELECT 1, '2024-01-02', 3")
    assert dataset.rows("SELECT * FROM d.n") == [(1.0, date(2024, 1, 2), Decimal(3))]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("INSERT INTO d.t (id) VALUES (NULL)", "Required field id cannot be null"),
        ("INSERT INTO d.t (name) VALUES ('x')", "Required field id cannot be null"),
        ("INSERT INTO d.t (id, nope) VALUES (1, 2)", "Column nope is not present in table p.d.t"),
        ("INSERT INTO d.t (id, id) VALUES (1, 2)", "duplicate name: id"),
        ("INSERT INTO d.t (id) VALUES (1, 2)", "Inserted row has wrong column count; Has 2, expected 1"),
        ("INSERT INTO d.t (id) SELECT 1, 2", "Inserted row has wrong column count; Has 2, expected 1"),
        ("INSERT INTO d.t (id) VALUES ('x')", "Value has type STRING which cannot be inserted into column id"),
        ("UPDATE d.t SET id = 'x' WHERE TRUE", "Value has type STRING which cannot be inserted into column id"),
        ("UPDATE d.t SET id = 1, id = 2 WHERE TRUE", "assigned more than once"),
        ("UPDATE d.t SET nope = 1 WHERE TRUE", "Unrecognized name: nope"),
        ("UPDATE d.t SET name = 'x'", "UPDATE must have a WHERE clause"),
        ("DELETE FROM d.t", "DELETE must have a WHERE clause"),
        ("DELETE d.missing WHERE TRUE", "Not found: Table p:d.missing was not found in location US"),
    ],
)
def test_a_bad_change_is_refused_and_changes_nothing(table: Any, sql: str, message: str) -> None:
    before = table.rows("SELECT * FROM d.t ORDER BY id")
    with pytest.raises(BigQueryError) as caught:
        table.run(sql)
    assert message in caught.value.message
    assert table.rows("SELECT * FROM d.t ORDER BY id") == before


def test_lengths_and_precisions_hold(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.limits (s STRING(3), n NUMERIC(5, 2), b BYTES(2))")
    dataset.run("INSERT INTO d.limits VALUES ('abc', 123.456, b'xy')")
    assert dataset.rows("SELECT * FROM d.limits") == [("abc", Decimal("123.46"), b"xy")]
    for values in ("('abcd', 1, b'x')", "('a', 1000, b'x')", "('a', 1, b'xyz')"):
        with pytest.raises(BigQueryError, match="Field"):
            dataset.run(f"INSERT INTO d.limits VALUES {values}")


def test_update_changes_members_of_structs_and_counts(table: Any) -> None:
    assert table.affected("UPDATE d.t SET s.f = 7, s.g.h = 'deep', name = CONCAT(name, '!') WHERE id < 3") == 2
    assert table.rows("SELECT name, s FROM d.t ORDER BY id") == [
        ("one!", {"f": 7, "g": {"h": "deep"}}),
        ("two!", {"f": 7, "g": {"h": "deep"}}),
        ("three", None),
    ]


def test_update_from_a_join_uses_the_source_row(table: Any) -> None:
    changed = table.affected(
        "UPDATE d.t AS x SET name = u.v FROM UNNEST([STRUCT(1 AS k, 'new' AS v)]) u WHERE x.id = u.k"
    )
    assert changed == 1
    assert table.rows("SELECT name FROM d.t WHERE id = 1") == [("new",)]


def test_update_refuses_two_source_rows_for_one_target_row(table: Any) -> None:
    with pytest.raises(BigQueryError, match="must match at most one source row for each target row"):
        table.run("UPDATE d.t SET name = u.v FROM (SELECT 1 AS k, 'a' AS v UNION ALL SELECT 1, 'b') u WHERE id = u.k")


def test_delete_counts_and_sees_subqueries(table: Any) -> None:
    assert table.affected("DELETE FROM d.t x WHERE x.id IN (SELECT 2 UNION ALL SELECT 3)") == 2
    assert table.affected("DELETE d.t WHERE TRUE") == 1


def test_truncate_empties_the_table(table: Any) -> None:
    result = table.run("TRUNCATE TABLE d.t").statements[0]
    assert (result.kind, result.dml.deleted) == ("TRUNCATE_TABLE", 3)


def test_merge_runs_the_first_clause_that_applies_to_each_row(table: Any) -> None:
    stats = (
        table.run(
            """
            MERGE INTO d.t T
            USING (SELECT 1 AS id, 'merged' AS name UNION ALL SELECT 2, 'gone' UNION ALL SELECT 7, 'new') S
            ON T.id = S.id
            WHEN MATCHED AND S.name = 'gone' THEN DELETE
            WHEN MATCHED THEN UPDATE SET name = S.name, s.f = T.id * 10
            WHEN NOT MATCHED BY TARGET AND S.id > 5 THEN INSERT (id, name) VALUES (id, UPPER(name))
            WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = 'orphan'
            """
        )
        .statements[0]
        .dml
    )
    assert (stats.inserted, stats.updated, stats.deleted) == (1, 2, 1)
    assert table.rows("SELECT id, name, s.f FROM d.t ORDER BY id") == [
        (1, "merged", 10),
        (3, "orphan", None),
        (7, "NEW", None),
    ]


def test_merge_insert_row_takes_all_source_columns(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.m (a INT64, b STRING); INSERT INTO d.m VALUES (1, 'old')")
    dataset.run(
        "MERGE d.m USING (SELECT 1 AS a, 'x' AS b UNION ALL SELECT 2, 'y') S ON m.a = S.a "
        "WHEN MATCHED THEN UPDATE SET b = S.b WHEN NOT MATCHED THEN INSERT ROW"
    )
    assert dataset.rows("SELECT * FROM d.m ORDER BY a") == [(1, "x"), (2, "y")]


def test_merge_on_false_replaces_everything(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.m (a INT64); INSERT INTO d.m VALUES (1), (2)")
    stats = dataset.run(
        "MERGE d.m USING (SELECT 5 AS a) ON FALSE "
        "WHEN NOT MATCHED THEN INSERT ROW WHEN NOT MATCHED BY SOURCE THEN DELETE"
    ).statements[0]
    assert (stats.dml.inserted, stats.dml.deleted) == (1, 2)
    assert dataset.rows("SELECT a FROM d.m") == [(5,)]


def test_merge_refuses_two_source_rows_for_one_target_row(table: Any) -> None:
    with pytest.raises(BigQueryError, match="must match at most one source row for each target row"):
        table.run(
            "MERGE d.t USING (SELECT 1 AS k UNION ALL SELECT 1) S ON t.id = S.k WHEN MATCHED THEN UPDATE SET name = 'x'"
        )
    assert table.rows("SELECT name FROM d.t WHERE id = 1") == [("one",)]


def test_two_source_rows_are_fine_when_no_clause_applies_to_them(table: Any) -> None:
    sql = (
        "MERGE d.t USING (SELECT 1 AS k, TRUE AS go UNION ALL SELECT 1, FALSE) S ON t.id = S.k "
        "WHEN MATCHED AND S.go THEN UPDATE SET name = 'x'"
    )
    assert table.affected(sql) == 1


def test_rows_of_an_ingestion_time_table_get_the_current_partition(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.ing (x INT64) PARTITION BY _PARTITIONDATE")
    dataset.run("INSERT INTO d.ing (x) VALUES (1)")
    dataset.run("INSERT INTO d.ing (_PARTITIONTIME, x) VALUES (TIMESTAMP '2024-01-02', 2)")
    assert dataset.rows("SELECT * FROM d.ing ORDER BY x") == [(1,), (2,)]
    assert dataset.rows("SELECT x, _PARTITIONTIME AS p FROM d.ing WHERE _PARTITIONDATE > '2024-02-01'") == [
        (1, datetime(2024, 5, 6, tzinfo=UTC))
    ]
    assert dataset.affected("DELETE FROM d.ing WHERE _PARTITIONTIME = TIMESTAMP '2024-01-02'") == 1
    assert dataset.affected("UPDATE d.ing SET x = 5 WHERE _PARTITIONDATE = DATE '2024-05-06'") == 1


def test_a_change_moves_the_modification_time_and_an_empty_one_does_not(table: Any) -> None:
    from ingestd.localcloud.bigquery.catalog import TableRef

    ref = TableRef("p", "d", "t")
    before = table.catalog.table(ref).etag
    table.run("DELETE FROM d.t WHERE id = 99")
    assert table.catalog.table(ref).etag == before
    table.run("DELETE FROM d.t WHERE id = 1")
    assert table.catalog.table(ref).etag != before


def test_statements_name_the_tables_they_read(table: Any) -> None:
    result = table.run("INSERT INTO d.t (id) SELECT id + 100 FROM d.t").statements[0]
    assert [(item.dataset, item.table) for item in result.referenced_tables] == [("d", "t")]
    assert result.ddl_target is None or result.ddl_target.table == "t"


def test_changing_a_view_is_refused(table: Any) -> None:
    table.run("CREATE VIEW d.v AS SELECT * FROM d.t")
    with pytest.raises(BigQueryError, match="is currently a VIEW"):
        table.run("DELETE FROM d.v WHERE TRUE")
