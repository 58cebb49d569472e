"""The engine's face: parameters, dry runs, external and wildcard tables, INFORMATION_SCHEMA, delegated statements."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery.sql.engine import ExternalTable, Surroundings
from ingestd.localcloud.bigquery.sql.parameters import parameters_from_rest
from ingestd.model.schema import Field, Type


def scalar(name: str, kind: str, value: str | None) -> dict[str, Any]:
    return {"name": name, "parameterType": {"type": kind}, "parameterValue": {"value": value}}


def test_named_parameters_of_every_type_are_bound(warehouse: Any) -> None:
    given = [
        scalar("i", "INT64", "5"),
        scalar("f", "FLOAT64", "1.5"),
        scalar("s", "STRING", "it's; DROP TABLE x --"),
        scalar("b", "BOOL", "true"),
        scalar("y", "BYTES", "YWJj"),
        scalar("d", "DATE", "2024-01-02"),
        scalar("ts", "TIMESTAMP", "2024-01-02 03:04:05.678+00:00"),
        scalar("dt", "DATETIME", "2024-01-02T03:04:05"),
        scalar("n", "NUMERIC", "12.5"),
        scalar("nothing", "STRING", None),
    ]
    rows = warehouse.rows(
        "SELECT @i + 1, @f, @s, @b, @y, @d, @ts, @dt, @n, @nothing", parameters=parameters_from_rest(given)
    )
    assert rows == [
        (
            6,
            1.5,
            "it's; DROP TABLE x --",
            True,
            b"abc",
            date(2024, 1, 2),
            datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
            datetime(2024, 1, 2, 3, 4, 5),  # noqa: DTZ001 - a DATETIME has no zone
            Decimal("12.5"),
            None,
        )
    ]


def test_array_and_struct_parameters_are_bound(warehouse: Any) -> None:
    given = [
        {
            "name": "a",
            "parameterType": {"type": "ARRAY", "arrayType": {"type": "INT64"}},
            "parameterValue": {"arrayValues": [{"value": "1"}, {"value": "2"}]},
        },
        {
            "name": "s",
            "parameterType": {
                "type": "STRUCT",
                "structTypes": [{"name": "x", "type": {"type": "STRING"}}, {"name": "y", "type": {"type": "INT64"}}],
            },
            "parameterValue": {"structValues": {"x": {"value": "v"}, "y": {"value": "7"}}},
        },
    ]
    rows = warehouse.rows(
        "SELECT 2 IN UNNEST(@a), @s.x, @s.y, ARRAY_LENGTH(@a)", parameters=parameters_from_rest(given)
    )
    assert rows == [(True, "v", 7, 2)]


def test_positional_parameters_go_in_order(warehouse: Any) -> None:
    given = [scalar("", "STRING", "a"), scalar("", "INT64", "2")]
    assert warehouse.rows("SELECT ?, ? * 2", parameters=parameters_from_rest(given)) == [("a", 4)]


def test_parameters_work_in_dml_and_scripts(dataset: Any) -> None:
    given = parameters_from_rest([scalar("k", "INT64", "3")])
    dataset.run("CREATE TABLE d.t AS SELECT @k AS a", parameters=given)
    assert dataset.affected("UPDATE d.t SET a = a + @k WHERE a = @k", parameters=given) == 1
    assert dataset.rows("DECLARE x INT64 DEFAULT @k; SELECT x, a FROM d.t WHERE a = x * 2", parameters=given) == [
        (3, 6)
    ]


@pytest.mark.parametrize("sql", ["SELECT @missing", "SELECT ?"])
def test_a_missing_parameter_is_an_error(warehouse: Any, sql: str) -> None:
    with pytest.raises(BigQueryError, match="Query parameter"):
        warehouse.run(sql)


def test_a_dry_run_knows_the_schema_and_touches_nothing(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.t (a INT64, ts TIMESTAMP)")
    plan = dataset.engine().dry_run("SELECT a, ts, 'x' FROM d.t")
    assert plan.kind == "SELECT"
    assert [(item.name, item.type) for item in plan.schema] == [
        ("a", Type.INT64),
        ("ts", Type.TIMESTAMP),
        ("f0_", Type.STRING),
    ]
    assert [item.table for item in plan.referenced_tables] == ["t"]
    for sql, kind in (
        ("INSERT INTO d.t (a) VALUES (1)", "INSERT"),
        ("DROP TABLE d.t", "DROP_TABLE"),
        ("CREATE OR REPLACE TABLE d.t AS SELECT 1 AS x", "CREATE_TABLE_AS_SELECT"),
        ("MERGE d.t USING (SELECT 1 AS a) s ON t.a = s.a WHEN MATCHED THEN DELETE", "MERGE"),
    ):
        assert dataset.engine().dry_run(sql).kind == kind
    with pytest.raises(BigQueryError, match="Unrecognized name: zz"):
        dataset.engine().dry_run("SELECT zz FROM d.t")
    assert dataset.rows("SELECT COUNT(*) FROM d.t") == [(0,)]


def test_names_resolve_against_the_default_dataset(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.t AS SELECT 1 AS a")
    for default in ("d", "p.d"):
        assert dataset.rows("SELECT a FROM t", default_dataset=default) == [(1,)]
    for name in ("d.t", "p.d.t", "`p.d.t`", "`p`.`d`.`t`", "`p.d`.t", "p.`d.t`"):
        assert dataset.rows(f"SELECT a FROM {name}") == [(1,)]
    with pytest.raises(BigQueryError, match='Table "t" must be qualified with a dataset'):
        dataset.rows("SELECT a FROM t")
    with pytest.raises(BigQueryError, match=r"Not found: Dataset my-proj:ds was not found in location US"):
        dataset.rows("SELECT a FROM my-proj.ds.t")


def test_a_partition_decorator_is_refused_in_sql(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.t (a INT64) PARTITION BY _PARTITIONDATE")
    with pytest.raises(BigQueryError, match="decorators are not allowed"):
        dataset.rows("SELECT * FROM `d.t$20240101`")


def test_wildcard_tables_are_read_together_with_their_suffix(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.ev_2023 AS SELECT 1 AS a; CREATE TABLE d.ev_2024 AS SELECT 2 AS a, 'x' AS extra")
    rows = dataset.rows("SELECT a, extra, _TABLE_SUFFIX AS s FROM `d.ev_*` ORDER BY a")
    assert rows == [(1, None, "2023"), (2, "x", "2024")]
    assert dataset.rows("SELECT a FROM `p.d.ev_*` WHERE _TABLE_SUFFIX = '2024'") == [(2,)]
    with pytest.raises(BigQueryError, match="does not match any table"):
        dataset.rows("SELECT * FROM `d.nothing_*`")


def test_external_tables_of_a_query_are_readable_by_name(warehouse: Any) -> None:
    warehouse.cursor.execute("CREATE OR REPLACE TEMP TABLE files AS SELECT 5::BIGINT AS a, 'gs://b/o' AS _FILE_NAME")
    external = {"Ext": ExternalTable("temp.files", (Field("a", Type.INT64),), has_file_name=True)}
    assert warehouse.rows("SELECT *, _FILE_NAME AS f FROM ext", external=external) == [(5, "gs://b/o")]
    assert warehouse.rows("SELECT * FROM Ext", external=external) == [(5,)]


def test_information_schema_describes_the_catalog(dataset: Any) -> None:
    dataset.run(
        "CREATE TABLE d.t (k INT64 NOT NULL, day DATE, s STRUCT<a INT64, b ARRAY<STRING>>) "
        "PARTITION BY day CLUSTER BY k OPTIONS (description = 'hi'); CREATE VIEW d.v AS SELECT k FROM d.t; "
        "INSERT INTO d.t (k, day) VALUES (1, '2024-01-01'), (2, '2024-01-01'), (3, NULL)"
    )
    assert dataset.rows("SELECT table_name, table_type FROM d.INFORMATION_SCHEMA.TABLES ORDER BY 1") == [
        ("t", "BASE TABLE"),
        ("v", "VIEW"),
    ]
    columns = dataset.rows(
        "SELECT column_name, ordinal_position, is_nullable, data_type, is_partitioning_column, "
        "clustering_ordinal_position FROM `p.d`.INFORMATION_SCHEMA.COLUMNS "
        "WHERE table_name = 't' ORDER BY ordinal_position"
    )
    assert columns == [
        ("k", 1, "NO", "INT64", "NO", 1),
        ("day", 2, "YES", "DATE", "YES", None),
        ("s", 3, "YES", "STRUCT<a INT64, b ARRAY<STRING>>", "NO", None),
    ]
    assert dataset.rows(
        "SELECT field_path FROM d.INFORMATION_SCHEMA.COLUMN_FIELD_PATHS WHERE table_name = 't' ORDER BY field_path"
    ) == [("day",), ("k",), ("s",), ("s.a",), ("s.b",)]
    assert dataset.rows(
        "SELECT partition_id, total_rows FROM d.INFORMATION_SCHEMA.PARTITIONS WHERE table_name = 't' ORDER BY 1"
    ) == [("20240101", 2), ("__NULL__", 1)]
    assert dataset.rows("SELECT option_name, option_value FROM d.INFORMATION_SCHEMA.TABLE_OPTIONS") == [
        ("description", '"hi"')
    ]
    assert dataset.rows("SELECT view_definition FROM d.INFORMATION_SCHEMA.VIEWS") == [("SELECT k FROM d.t",)]
    assert ("d",) in dataset.rows("SELECT schema_name FROM INFORMATION_SCHEMA.SCHEMATA")
    assert ("d",) in dataset.rows("SELECT schema_name FROM `region-us`.INFORMATION_SCHEMA.SCHEMATA")


def test_information_schema_lists_jobs(warehouse: Any) -> None:
    job = {
        "jobReference": {"projectId": "p", "jobId": "j1"},
        "configuration": {"jobType": "QUERY", "query": {"query": "SELECT 1"}, "labels": {"a": "b"}},
        "statistics": {"creationTime": "1704067200000", "query": {"statementType": "SELECT"}},
        "status": {"state": "DONE"},
        "user_email": "me@x.y",
    }
    rows = warehouse.rows(
        "SELECT job_id, job_type, statement_type, state, creation_time, labels[OFFSET(0)].value, error_result IS NULL "
        "FROM `region-us`.INFORMATION_SCHEMA.JOBS_BY_PROJECT",
        surroundings=Surroundings(jobs=lambda: [job]),
    )
    assert rows == [("j1", "QUERY", "SELECT", "DONE", datetime(2024, 1, 1, tzinfo=UTC), "b", True)]


def test_an_information_schema_view_that_is_not_there_says_so(dataset: Any) -> None:
    with pytest.raises(BigQueryError) as caught:
        dataset.rows("SELECT * FROM d.INFORMATION_SCHEMA.ROUTINES")
    assert caught.value.reason == "notImplemented"


def test_export_load_and_external_tables_are_delegated(dataset: Any) -> None:
    seen: list[Any] = []

    def export(request: Any) -> int:
        seen.append((dict(request.options), dataset.read(request.relation), [item.name for item in request.schema]))
        return 1

    surroundings = Surroundings(
        export_data=export,
        load_data=lambda request: seen.append(request) or 0,  # type: ignore[func-returns-value]
        create_external=seen.append,
    )
    dataset.run(
        "EXPORT DATA OPTIONS (uri = 'gs://b/x-*.csv', format = 'CSV', overwrite = TRUE, header = FALSE) "
        "AS SELECT 1 AS a, 'x' AS b",
        surroundings=surroundings,
    )
    assert seen.pop() == (
        {"uri": "gs://b/x-*.csv", "format": "CSV", "overwrite": True, "header": False},
        [(1, "x")],
        ["a", "b"],
    )
    dataset.run(
        "LOAD DATA OVERWRITE d.t (a INT64, day DATE) PARTITION BY day CLUSTER BY a "
        "FROM FILES (format = 'CSV', uris = ['gs://b/1', 'gs://b/2'], skip_leading_rows = 1)",
        surroundings=surroundings,
    )
    request = seen.pop()
    assert (request.target.table, request.overwrite) == ("t", True)
    assert request.files == {"format": "CSV", "uris": ["gs://b/1", "gs://b/2"], "skip_leading_rows": 1}
    assert (request.time_partitioning, request.clustering) == ({"type": "DAY", "field": "day"}, ("a",))
    dataset.run(
        "CREATE EXTERNAL TABLE d.e (a INT64) OPTIONS (format = 'JSON', uris = ['gs://b/*'])", surroundings=surroundings
    )
    assert (seen[0].target.table, [item.name for item in seen[0].schema]) == ("e", ["a"])


def test_result_columns_without_a_name_are_numbered(warehouse: Any) -> None:
    result = warehouse.run("SELECT 1, 2 AS a, 3").last_rows
    assert [item.name for item in result.schema] == ["f0_", "a", "f1_"]


def test_duplicate_result_columns_are_refused(warehouse: Any) -> None:
    with pytest.raises(BigQueryError, match="Duplicate column names in the result"):
        warehouse.run("SELECT 1 AS a, 2 AS A")
    assert warehouse.rows("SELECT COUNT(*) FROM (SELECT 1 AS a, 2 AS a)") == [(1,)]


def test_pseudo_columns_need_an_alias_in_a_result(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.t (a INT64) PARTITION BY _PARTITIONDATE")
    with pytest.raises(BigQueryError, match='Invalid field name "_PARTITIONTIME"'):
        dataset.rows("SELECT _PARTITIONTIME FROM d.t")
    assert dataset.rows("SELECT _PARTITIONTIME AS p FROM d.t") == []


def test_the_clock_is_the_engines_and_stands_still_in_a_statement(warehouse: Any) -> None:
    rows = warehouse.rows("SELECT CURRENT_TIMESTAMP() = CURRENT_TIMESTAMP(), CURRENT_DATE() FROM UNNEST([1, 2])")
    assert rows == [(True, date(2024, 5, 6))] * 2


def test_long_chains_of_operators_compile(warehouse: Any) -> None:
    chain = " OR ".join(f"x = {n}" for n in range(800))
    assert warehouse.rows(f"SELECT COUNT(*) FROM UNNEST([5, 9999]) AS x WHERE {chain}") == [(1,)]
    union = " UNION ALL ".join(f"SELECT {n} AS n" for n in range(200))
    assert warehouse.rows(f"SELECT SUM(n) FROM ({union})") == [(19900,)]


def test_absurd_nesting_is_an_error_not_a_crash(warehouse: Any) -> None:
    for sql in ("SELECT " + "(" * 3000 + "1" + ")" * 3000, "SELECT " + "ABS(" * 400 + "1" + ")" * 400):
        with pytest.raises(BigQueryError) as caught:
            warehouse.run(sql)
        assert caught.value.reason == "resourcesExceeded"


def test_concurrent_writers_on_two_cursors_all_succeed(database: Any, dataset: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from ingestd.localcloud.bigquery.catalog import Catalog
    from ingestd.localcloud.bigquery.sql.engine import SqlEngine

    dataset.run("CREATE TABLE d.t (a INT64)")

    def insert(value: int) -> None:
        cursor = database.cursor()
        catalog = Catalog(cursor, project="p", clock=dataset.clock)
        SqlEngine(cursor, catalog, project="p", clock=dataset.clock).run(f"INSERT INTO d.t VALUES ({value})")
        cursor.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(insert, range(20)))
    assert dataset.rows("SELECT COUNT(*), SUM(a) FROM d.t") == [(20, 190)]
