"""Statements that change what exists."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery.catalog import DatasetRef, Granularity, TableKind, TableRef
from ingestd.model.schema import Mode, Type


def stored(warehouse: Any, name: str) -> Any:
    return warehouse.catalog.table(TableRef("p", "d", name))


def test_create_table_keeps_columns_layout_and_options(dataset: Any) -> None:
    result = dataset.run(
        """
        CREATE TABLE d.t (
          id INT64 NOT NULL OPTIONS(description = 'the key'),
          ts TIMESTAMP,
          price NUMERIC(10, 2) DEFAULT 1.5,
          tags ARRAY<STRING>,
          nested STRUCT<a INT64, b ARRAY<STRUCT<c STRING>>>
        )
        PARTITION BY TIMESTAMP_TRUNC(ts, HOUR)
        CLUSTER BY id, price
        OPTIONS (
          description = 'all of it', friendly_name = 'T', labels = [('team', 'x'), ('env', 'y')],
          expiration_timestamp = TIMESTAMP '2030-01-01', partition_expiration_days = 2.5,
          require_partition_filter = TRUE
        )
        """
    ).statements[0]
    assert (result.kind, result.ddl_operation) == ("CREATE_TABLE", "CREATE")
    table = stored(dataset, "t")
    assert [(item.name, item.type, item.mode) for item in table.schema] == [
        ("id", Type.INT64, Mode.REQUIRED),
        ("ts", Type.TIMESTAMP, Mode.NULLABLE),
        ("price", Type.NUMERIC, Mode.NULLABLE),
        ("tags", Type.STRING, Mode.REPEATED),
        ("nested", Type.STRUCT, Mode.NULLABLE),
    ]
    assert table.schema[0].description == "the key"
    assert (table.schema[2].precision, table.schema[2].scale, table.schema[2].default) == (10, 2, "1.5")
    assert (table.time_partitioning.type, table.time_partitioning.field) == (Granularity.HOUR, "ts")
    assert table.time_partitioning.expiration_ms == 216_000_000
    assert table.clustering == ("id", "price")
    assert dict(table.labels) == {"team": "x", "env": "y"}
    assert (table.description, table.friendly_name, table.needs_partition_filter) == ("all of it", "T", True)
    assert table.expiration == datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("clause", "granularity", "field"),
    [
        ("day", "DAY", "day"),
        ("DATE(ts)", "DAY", "ts"),
        ("DATE_TRUNC(day, MONTH)", "MONTH", "day"),
        ("TIMESTAMP_TRUNC(ts, YEAR)", "YEAR", "ts"),
        ("_PARTITIONDATE", "DAY", None),
        ("DATE(_PARTITIONTIME)", "DAY", None),
        ("TIMESTAMP_TRUNC(_PARTITIONTIME, HOUR)", "HOUR", None),
    ],
)
def test_every_form_of_time_partitioning_is_read(
    dataset: Any, clause: str, granularity: str, field: str | None
) -> None:
    dataset.run(f"CREATE TABLE d.t (day DATE, ts TIMESTAMP) PARTITION BY {clause}")
    partitioning = stored(dataset, "t").time_partitioning
    assert (partitioning.type.value, partitioning.field) == (granularity, field)


def test_range_partitioning_is_read(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.t (k INT64) PARTITION BY RANGE_BUCKET(k, GENERATE_ARRAY(0, 100, 10))")
    ranges = stored(dataset, "t").range_partitioning
    assert (ranges.field, ranges.start, ranges.end, ranges.interval) == ("k", 0, 100, 10)


def test_a_partition_by_bigquery_does_not_know_is_refused(dataset: Any) -> None:
    with pytest.raises(BigQueryError, match="PARTITION BY expression must be"):
        dataset.run("CREATE TABLE d.t (k INT64) PARTITION BY k + 1")


def test_a_required_partition_filter_is_required(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.t (day DATE) PARTITION BY day OPTIONS (require_partition_filter = TRUE)")
    with pytest.raises(BigQueryError, match="without a filter over column"):
        dataset.rows("SELECT * FROM d.t")
    assert dataset.rows("SELECT * FROM d.t WHERE day = '2024-01-01'") == []


def test_create_table_as_select_takes_the_types_of_the_query(dataset: Any) -> None:
    result = dataset.run(
        "CREATE TABLE d.t PARTITION BY day AS SELECT DATE '2024-01-01' AS day, [1, 2] AS a, STRUCT('x' AS s) AS st, "
        "TIMESTAMP '2024-01-01' AS ts, DATETIME '2024-01-01 00:00:00' AS dt, NUMERIC '1.5' AS n, JSON '{}' AS j"
    ).statements[0]
    assert result.kind == "CREATE_TABLE_AS_SELECT"
    types = [(item.type, item.mode) for item in stored(dataset, "t").schema]
    assert types == [
        (Type.DATE, Mode.NULLABLE),
        (Type.INT64, Mode.REPEATED),
        (Type.STRUCT, Mode.NULLABLE),
        (Type.TIMESTAMP, Mode.NULLABLE),
        (Type.DATETIME, Mode.NULLABLE),
        (Type.NUMERIC, Mode.NULLABLE),
        (Type.JSON, Mode.NULLABLE),
    ]
    assert dataset.rows("SELECT day, a, st.s FROM d.t") == [(date(2024, 1, 1), [1, 2], "x")]


def test_create_or_replace_may_read_the_table_it_replaces(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.t AS SELECT 1 AS x")
    result = dataset.run("CREATE OR REPLACE TABLE d.t AS SELECT x + 1 AS y FROM d.t").statements[0]
    assert result.ddl_operation == "REPLACE"
    assert dataset.rows("SELECT y FROM d.t") == [(2,)]


def test_a_failed_create_or_replace_leaves_the_old_table(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.t AS SELECT 1 AS x")
    with pytest.raises(BigQueryError, match="division by zero"):
        dataset.run("CREATE OR REPLACE TABLE d.t AS SELECT 1 / (x - 1) AS y FROM d.t")
    assert dataset.rows("SELECT x FROM d.t") == [(1,)]


def test_existing_tables_are_a_conflict_or_skipped(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.t (a INT64)")
    with pytest.raises(BigQueryError) as caught:
        dataset.run("CREATE TABLE d.t (a INT64)")
    assert (caught.value.reason, caught.value.message) == ("duplicate", "Already Exists: Table p:d.t")
    assert dataset.run("CREATE TABLE IF NOT EXISTS d.t (b INT64)").statements[0].ddl_operation == "SKIP"
    assert [item.name for item in stored(dataset, "t").schema] == ["a"]


def test_like_copies_the_shape_and_copy_the_rows(dataset: Any) -> None:
    dataset.run(
        "CREATE TABLE d.t (a INT64 NOT NULL, day DATE) PARTITION BY day CLUSTER BY a; INSERT d.t VALUES (1, NULL)"
    )
    dataset.run("CREATE TABLE d.like_t LIKE d.t; CREATE TABLE d.copy_t COPY d.t; CREATE TABLE d.clone_t CLONE d.t")
    assert dataset.rows("SELECT COUNT(*) FROM d.like_t") == [(0,)]
    assert dataset.rows("SELECT a FROM d.copy_t UNION ALL SELECT a FROM d.clone_t") == [(1,), (1,)]
    copied = stored(dataset, "like_t")
    assert (copied.schema[0].mode, copied.time_partitioning.field, copied.clustering) == (Mode.REQUIRED, "day", ("a",))


def test_copying_keeps_ingestion_time(dataset: Any) -> None:
    dataset.run(
        "CREATE TABLE d.t (a INT64) PARTITION BY _PARTITIONDATE; "
        "INSERT INTO d.t (_PARTITIONTIME, a) VALUES (TIMESTAMP '2020-01-01', 1); CREATE TABLE d.u COPY d.t"
    )
    assert dataset.rows("SELECT _PARTITIONDATE AS p FROM d.u") == [(date(2020, 1, 1),)]


def test_a_view_runs_its_query_each_time(dataset: Any) -> None:
    dataset.run(
        "CREATE TABLE d.t (a INT64); CREATE VIEW d.v OPTIONS(description='v') AS SELECT a * 2 AS b FROM d.t WHERE a > 1"
    )
    dataset.run("INSERT d.t VALUES (1), (2)")
    assert dataset.rows("SELECT x.b FROM d.v AS x") == [(4,)]
    view = stored(dataset, "v")
    assert (view.kind, view.view_query, view.description) == (
        TableKind.VIEW,
        "SELECT a * 2 AS b FROM d.t WHERE a > 1",
        "v",
    )
    assert dataset.run("DROP VIEW d.v").statements[0].kind == "DROP_VIEW"


def test_a_view_of_something_missing_is_refused(dataset: Any) -> None:
    with pytest.raises(BigQueryError, match=r"Not found: Table p:d\.nope"):
        dataset.run("CREATE VIEW d.v AS SELECT * FROM d.nope")


def test_drop_refuses_the_wrong_kind_and_honours_if_exists(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.t (a INT64)")
    with pytest.raises(BigQueryError, match="it is a TABLE, not a VIEW"):
        dataset.run("DROP VIEW d.t")
    with pytest.raises(BigQueryError, match=r"Not found: Table p:d\.u"):
        dataset.run("DROP TABLE d.u")
    assert dataset.run("DROP TABLE IF EXISTS d.u").statements[0].ddl_operation == "SKIP"
    assert dataset.run("DROP TABLE d.t").statements[0].ddl_operation == "DROP"


def test_alter_table_changes_columns_and_keeps_rows(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.t (a INT64 NOT NULL, b STRING); INSERT d.t VALUES (1, 'x')")
    dataset.run("ALTER TABLE d.t ADD COLUMN c ARRAY<DATE>, ADD COLUMN IF NOT EXISTS b INT64")
    dataset.run("ALTER TABLE d.t ALTER COLUMN a DROP NOT NULL")
    dataset.run("ALTER TABLE d.t ALTER COLUMN a SET DATA TYPE NUMERIC")
    dataset.run("ALTER TABLE d.t RENAME COLUMN b TO bb")
    dataset.run("ALTER TABLE d.t ALTER COLUMN bb SET DEFAULT 'dflt', ALTER COLUMN bb SET OPTIONS (description = 'B')")
    dataset.run("INSERT INTO d.t (a) VALUES (NULL)")
    assert [(str(a), bb, c) for a, bb, c in dataset.rows("SELECT a, bb, c FROM d.t ORDER BY a DESC")] == [
        ("1.000000000", "x", []),
        ("None", "dflt", []),
    ]
    assert stored(dataset, "t").field("bb").description == "B"
    dataset.run("ALTER TABLE d.t DROP COLUMN c, DROP COLUMN IF EXISTS zz")
    assert [item.name for item in stored(dataset, "t").schema] == ["a", "bb"]
    dataset.run("ALTER TABLE d.t RENAME TO renamed")
    assert dataset.rows("SELECT COUNT(*) FROM d.renamed") == [(2,)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("ALTER TABLE d.t ADD COLUMN a INT64", "Column already exists: a"),
        ("ALTER TABLE d.t ADD COLUMN z INT64 NOT NULL", "Cannot add required column"),
        ("ALTER TABLE d.t DROP COLUMN zz", "Column not found: zz"),
        ("ALTER TABLE d.t ALTER COLUMN a SET DATA TYPE STRING", "has changed type"),
        ("ALTER TABLE d.t SET OPTIONS (nonsense = 1)", "Unknown option: nonsense"),
        ("CREATE TABLE d.x (a NOTATYPE)", "Type not found: NOTATYPE"),
        ("CREATE TABLE d.x (a INT64, A STRING)", "Duplicate column name"),
        ("CREATE TABLE d.x AS SELECT 1", "CREATE TABLE columns must be named, but column 1 has no name"),
        ("CREATE TABLE d.x (a ARRAY<ARRAY<INT64>>)", "Arrays of arrays are not supported"),
        ("CREATE TABLE d.x (a INT64 DEFAULT 'x')", "Expected type INT64"),
    ],
)
def test_a_change_bigquery_refuses_is_refused(dataset: Any, sql: str, message: str) -> None:
    dataset.run("CREATE TABLE d.t (a INT64, b STRING)")
    with pytest.raises(BigQueryError) as caught:
        dataset.run(sql)
    assert message in caught.value.message


def test_set_options_changes_and_clears(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.t (a INT64) OPTIONS (description = 'x')")
    dataset.run("ALTER TABLE d.t SET OPTIONS (description = NULL, labels = [('k', 'v')])")
    assert (stored(dataset, "t").description, dict(stored(dataset, "t").labels)) == ("", {"k": "v"})


def test_datasets_are_created_altered_and_dropped(warehouse: Any) -> None:
    warehouse.run("CREATE SCHEMA d OPTIONS (description = 'D', location = 'EU', default_table_expiration_days = 1)")
    dataset = warehouse.catalog.dataset("p", "d")
    assert (dataset.description, dataset.location, dataset.default_table_expiration_ms) == ("D", "EU", 86_400_000)
    assert warehouse.run("CREATE SCHEMA IF NOT EXISTS d").statements[0].ddl_operation == "SKIP"
    warehouse.run("ALTER SCHEMA d SET OPTIONS (description = 'E')")
    assert warehouse.catalog.dataset("p", "d").description == "E"
    warehouse.run("CREATE TABLE d.t (a INT64)")
    with pytest.raises(BigQueryError, match="still in use"):
        warehouse.run("DROP SCHEMA d")
    warehouse.run("DROP SCHEMA d CASCADE")
    assert warehouse.catalog.find_dataset(DatasetRef("p", "d")) is None


def test_what_is_not_done_here_says_so(dataset: Any) -> None:
    for sql in (
        "CREATE MATERIALIZED VIEW d.v AS SELECT 1 AS a",
        "CREATE EXTERNAL TABLE d.e OPTIONS (format = 'CSV', uris = ['gs://b/o'])",
        "EXPORT DATA OPTIONS (uri = 'gs://b/*', format = 'CSV') AS SELECT 1 AS a",
        "LOAD DATA INTO d.t FROM FILES (format = 'CSV', uris = ['gs://b/o'])",
        "CREATE FUNCTION d.f(x INT64) AS (x)",
        "CREATE TEMP FUNCTION f(x INT64) RETURNS INT64 LANGUAGE js AS 'return x'",
        "CREATE PROCEDURE d.p() BEGIN SELECT 1; END",
        "CALL d.p()",
        "GRANT `roles/viewer` ON SCHEMA d TO 'user:x@y.z'",
        "SELECT * FROM d.t FOR SYSTEM_TIME AS OF TIMESTAMP '2020-01-01'",
        "FROM d.t |> LIMIT 1",
        "SELECT HLL_COUNT.INIT(1)",
    ):
        with pytest.raises(BigQueryError) as caught:
            dataset.run(sql)
        assert caught.value.reason == "notImplemented", sql
