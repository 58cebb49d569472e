"""Query jobs through Google's client: results, destinations, parameters, scripts, DML, dry runs, external files."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest
from google.api_core import exceptions
from google.cloud import bigquery
from tests.integration.bigquery.local import LocalBigQuery
from tests.support.google import PROJECT

SCHEMA = [bigquery.SchemaField("id", "INTEGER"), bigquery.SchemaField("name", "STRING")]


@pytest.fixture
def table(client: bigquery.Client, dataset: str) -> str:
    """A table of three rows."""
    name = f"{PROJECT}.{dataset}.t"
    client.create_table(bigquery.Table(name, SCHEMA))
    client.insert_rows_json(name, [{"id": number, "name": f"n{number}"} for number in (1, 2, 3)])
    return name


def values(rows: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows]


def test_a_select_gives_its_rows_in_order(client: bigquery.Client, table: str) -> None:
    job = client.query(f"SELECT id, name FROM `{table}` ORDER BY id DESC")
    assert values(job.result()) == [(3, "n3"), (2, "n2"), (1, "n1")]
    assert (job.statement_type, job.state, job.cache_hit) == ("SELECT", "DONE", False)
    assert job.total_bytes_processed == 3 * (8 + 4)
    assert [found.table_id for found in job.referenced_tables] == ["t"]
    assert job.destination.dataset_id.startswith("_")
    assert [item.name for item in job.schema] == ["id", "name"]


def test_query_and_wait_answers_in_one_call(client: bigquery.Client, table: str) -> None:
    rows = client.query_and_wait(f"SELECT COUNT(*) AS n FROM `{table}`")
    assert values(rows) == [(3,)]


def test_results_come_in_pages(client: bigquery.Client) -> None:
    job = client.query("SELECT x FROM UNNEST(GENERATE_ARRAY(1, 10)) AS x ORDER BY x")
    pages = [[row["x"] for row in page] for page in job.result(page_size=4).pages]
    assert pages == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    assert [row["x"] for row in client.get_job(job.job_id).result(start_index=7)] == [8, 9, 10]


def test_the_destination_and_its_dispositions(client: bigquery.Client, dataset: str, table: str) -> None:
    target = f"{PROJECT}.{dataset}.out"

    def query(sql: str, **options: Any) -> None:
        client.query(sql, job_config=bigquery.QueryJobConfig(destination=target, **options)).result()

    query(f"SELECT id FROM `{table}`")
    with pytest.raises(exceptions.Conflict, match="Already Exists: Table"):
        query(f"SELECT id FROM `{table}`")
    query(f"SELECT id FROM `{table}` WHERE id = 1", write_disposition="WRITE_APPEND")
    assert client.get_table(target).num_rows == 4
    with pytest.raises(exceptions.BadRequest, match=r"Cannot add fields \(field: extra\)"):
        query("SELECT 1 AS id, 2 AS extra", write_disposition="WRITE_APPEND")
    query(
        "SELECT 1 AS id, 2 AS extra", write_disposition="WRITE_APPEND", schema_update_options=["ALLOW_FIELD_ADDITION"]
    )
    assert [item.name for item in client.get_table(target).schema] == ["id", "extra"]
    query("SELECT 'x' AS other", write_disposition="WRITE_TRUNCATE")
    assert values(client.list_rows(target)) == [("x",)]


@pytest.mark.parametrize("partition", ["", "$20240501"])
def test_query_results_fit_required_columns_unless_a_value_is_missing(
    client: bigquery.Client, dataset: str, partition: str
) -> None:
    """A query's columns have no mode of their own: its values are held against the table's.

    Only ALLOW_FIELD_RELAXATION gives the columns up (Google's sample "Relax a column in a query append job"); replacing
    a whole table takes the query's schema, which requires nothing.
    """
    name = f"{PROJECT}.{dataset}.r"
    required = [bigquery.SchemaField("id", "INTEGER", mode="REQUIRED"), SCHEMA[1]]
    table = bigquery.Table(name, required)
    table.time_partitioning = bigquery.TimePartitioning(type_="DAY") if partition else None
    client.create_table(table)

    def query(sql: str, write: str, **options: Any) -> list[str]:
        config = bigquery.QueryJobConfig(destination=f"{name}{partition}", write_disposition=write, **options)
        client.query(sql, job_config=config).result()
        return [item.mode for item in client.get_table(name).schema]

    for write in ("WRITE_EMPTY", "WRITE_APPEND", *(["WRITE_TRUNCATE"] if partition else [])):
        assert query("SELECT 1 AS id, 'a' AS name", write) == ["REQUIRED", "NULLABLE"]
        with pytest.raises(exceptions.BadRequest, match="Required field id cannot be null"):
            query("SELECT NULL AS id, 'b' AS name", "WRITE_APPEND")
    assert client.get_table(name).num_rows == (1 if partition else 2)
    relaxed = query("SELECT 2 AS id", "WRITE_APPEND", schema_update_options=["ALLOW_FIELD_RELAXATION"])
    assert relaxed == ["NULLABLE", "NULLABLE"]


def test_a_destination_partition(client: bigquery.Client, dataset: str) -> None:
    target = bigquery.Table(f"{PROJECT}.{dataset}.p", SCHEMA[:1])
    target.time_partitioning = bigquery.TimePartitioning(type_="DAY")
    client.create_table(target)
    for day, number in (("20240101", 1), ("20240102", 2), ("20240101", 3)):
        config = bigquery.QueryJobConfig(destination=f"{PROJECT}.{dataset}.p${day}", write_disposition="WRITE_TRUNCATE")
        client.query(f"SELECT {number} AS id", job_config=config).result()
    found = client.query_and_wait(f"SELECT id, _PARTITIONTIME AS day FROM `{dataset}.p` ORDER BY id")
    assert values(found) == [(2, datetime(2024, 1, 2, tzinfo=UTC)), (3, datetime(2024, 1, 1, tzinfo=UTC))]


def test_a_destination_is_created_partitioned_and_clustered(client: bigquery.Client, dataset: str) -> None:
    config = bigquery.QueryJobConfig(
        destination=f"{PROJECT}.{dataset}.made",
        time_partitioning=bigquery.TimePartitioning(type_="MONTH", field="day"),
        clustering_fields=["id"],
    )
    client.query("SELECT 1 AS id, DATE '2024-05-06' AS day", job_config=config).result()
    found = client.get_table(f"{dataset}.made")
    assert (found.time_partitioning.type_, found.clustering_fields) == ("MONTH", ["id"])


def test_parameters_named_positional_arrays_and_structs(client: bigquery.Client) -> None:
    named = bigquery.QueryJobConfig(
        query_parameters=[
            bigquery.ScalarQueryParameter("s", "STRING", "it's"),
            bigquery.ScalarQueryParameter("at", "TIMESTAMP", datetime(2024, 1, 1, tzinfo=UTC)),
            bigquery.ScalarQueryParameter("n", "NUMERIC", Decimal("1.5")),
            bigquery.ArrayQueryParameter("ids", "INT64", [1, 2]),
            bigquery.StructQueryParameter("r", bigquery.ScalarQueryParameter("x", "INT64", 7)),
        ]
    )
    rows = client.query_and_wait("SELECT @s, @at, @n, ARRAY_LENGTH(@ids), @r.x", job_config=named)
    assert values(rows) == [("it's", datetime(2024, 1, 1, tzinfo=UTC), Decimal("1.5"), 2, 7)]
    positional = bigquery.QueryJobConfig(
        query_parameters=[
            bigquery.ScalarQueryParameter(None, "INT64", 2),
            bigquery.ScalarQueryParameter(None, "INT64", 3),
        ]
    )
    assert values(client.query_and_wait("SELECT ? * ?", job_config=positional)) == [(6,)]


def test_the_default_dataset_completes_table_names(client: bigquery.Client, dataset: str, table: str) -> None:
    config = bigquery.QueryJobConfig(default_dataset=f"{PROJECT}.{dataset}")
    assert values(client.query_and_wait("SELECT COUNT(*) FROM t", job_config=config)) == [(3,)]


def test_dml_reports_what_it_changed(client: bigquery.Client, table: str) -> None:
    insert = client.query(f"INSERT INTO `{table}` (id, name) VALUES (4, 'n4'), (5, 'n5')")
    insert.result()
    assert (insert.statement_type, insert.num_dml_affected_rows) == ("INSERT", 2)
    update = client.query(f"UPDATE `{table}` SET name = 'x' WHERE id > 3")
    update.result()
    assert (update.dml_stats.updated_row_count, update.dml_stats.inserted_row_count) == (2, 0)
    delete = client.query(f"DELETE FROM `{table}` WHERE name = 'x'")
    delete.result()
    assert delete.num_dml_affected_rows == 2
    merge = client.query(
        f"MERGE `{table}` AS t USING (SELECT 3 AS id, 'm' AS name UNION ALL SELECT 9, 'new') AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"
    )
    merge.result()
    assert (merge.dml_stats.inserted_row_count, merge.dml_stats.updated_row_count) == (1, 1)
    assert values(client.query_and_wait(f"SELECT * FROM `{table}` ORDER BY id")) == [
        (1, "n1"),
        (2, "n2"),
        (3, "m"),
        (9, "new"),
    ]


def test_ddl_reports_its_target(client: bigquery.Client, dataset: str, table: str) -> None:
    job = client.query(f"CREATE TABLE `{dataset}.copy` AS SELECT * FROM `{table}`")
    job.result()
    assert (job.statement_type, job.ddl_operation_performed) == ("CREATE_TABLE_AS_SELECT", "CREATE")
    assert job.ddl_target_table.table_id == "copy"
    assert client.get_table(f"{dataset}.copy").num_rows == 3
    client.query(f"DROP TABLE `{dataset}.copy`").result()
    with pytest.raises(exceptions.NotFound):
        client.get_table(f"{dataset}.copy")


def test_a_view_shows_its_query_and_schema(client: bigquery.Client, dataset: str, table: str) -> None:
    view = bigquery.Table(f"{PROJECT}.{dataset}.v")
    view.view_query = f"SELECT id, UPPER(name) AS shout FROM `{table}`"
    made = client.create_table(view)
    assert (made.table_type, [item.name for item in made.schema]) == ("VIEW", ["id", "shout"])
    assert values(client.query_and_wait(f"SELECT shout FROM `{dataset}.v` WHERE id = 2")) == [("N2",)]


def test_a_dry_run_describes_and_does_nothing(client: bigquery.Client, table: str) -> None:
    config = bigquery.QueryJobConfig(dry_run=True)
    job = client.query(f"SELECT name FROM `{table}`", job_config=config)
    assert (job.state, job.total_bytes_processed, job.schema[0].name) == ("DONE", 36, "name")
    client.query(f"DELETE FROM `{table}` WHERE TRUE", job_config=config)
    assert client.get_table(table).num_rows == 3
    with pytest.raises(exceptions.BadRequest):
        client.query("SELEC 1", job_config=config)


def test_a_query_error_says_where(client: bigquery.Client) -> None:
    job = client.query("SELECT\n  nothing_here")
    with pytest.raises(exceptions.BadRequest, match=r"nothing_here.*\[2:3\]"):
        job.result()
    job.reload()  # the failure came with the results; a slow machine had not shown it to jobs.get before
    assert job.error_result["reason"] == "invalidQuery"
    with pytest.raises(exceptions.NotFound, match="Not found: Dataset"):
        client.query_and_wait("SELECT 1 FROM nowhere.t")


def test_a_script_has_child_jobs_and_the_rows_of_its_last_select(client: bigquery.Client, dataset: str) -> None:
    job = client.query(
        f"DECLARE n INT64 DEFAULT 2; CREATE TABLE `{dataset}.s` (id INT64); "
        f"INSERT INTO `{dataset}.s` SELECT x FROM UNNEST(GENERATE_ARRAY(1, n)) AS x; "
        f"SELECT SUM(id) AS total FROM `{dataset}.s`;"
    )
    assert values(job.result()) == [(3,)]
    assert (job.statement_type, job.num_child_jobs >= 3) == ("SCRIPT", True)
    children = list(client.list_jobs(parent_job=job))
    assert {child.parent_job_id for child in children} == {job.job_id}
    kinds = {child.statement_type for child in children}
    assert {"CREATE_TABLE", "INSERT", "SELECT"} <= kinds
    assert all(child.job_id != job.job_id for child in children)
    assert all(found.parent_job_id is None for found in client.list_jobs(max_results=20))


def test_a_failing_script_keeps_what_it_committed(client: bigquery.Client, dataset: str) -> None:
    job = client.query(f"CREATE TABLE `{dataset}.kept` (id INT64); SELECT 1 / 0;")
    with pytest.raises(exceptions.BadRequest, match="division by zero"):
        job.result()
    assert client.get_table(f"{dataset}.kept").num_rows == 0


def test_files_are_queried_in_place(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    local.put(f"gs://{dataset}/ext.csv", "id,name\n1,a\n2,b\n")
    external = bigquery.ExternalConfig("CSV")
    external.source_uris = [f"gs://{dataset}/ext.csv"]
    external.schema = SCHEMA
    external.options.skip_leading_rows = 1
    config = bigquery.QueryJobConfig(table_definitions={"ext": external})
    rows = client.query_and_wait("SELECT id, name, _FILE_NAME FROM ext ORDER BY id", job_config=config)
    assert values(rows) == [(1, "a", f"gs://{dataset}/ext.csv"), (2, "b", f"gs://{dataset}/ext.csv")]
    table = bigquery.Table(f"{PROJECT}.{dataset}.external")
    table.external_data_configuration = external
    assert client.create_table(table).table_type == "EXTERNAL"
    assert values(client.query_and_wait(f"SELECT COUNT(*) FROM `{dataset}.external`")) == [(2,)]


def test_export_and_load_statements_reach_the_files(
    client: bigquery.Client, dataset: str, table: str, local: LocalBigQuery
) -> None:
    client.query_and_wait(
        f"EXPORT DATA OPTIONS (uri = 'gs://{dataset}/exp-*.json', format = 'JSON') AS "
        f"SELECT id FROM `{table}` ORDER BY id"
    )
    (written,) = local.objects.match(f"gs://{dataset}/exp-*.json")
    assert local.objects.read(written.uri).splitlines()[0] == b'{"id":"1"}'
    client.query_and_wait(
        f"LOAD DATA INTO `{dataset}.loaded` (id INT64) FROM FILES (format = 'JSON', uris = ['{written.uri}'])"
    )
    assert client.get_table(f"{dataset}.loaded").num_rows == 3


def test_a_repeated_request_id_is_one_job(local: LocalBigQuery, client: bigquery.Client, table: str) -> None:
    url = f"{local.endpoint}/bigquery/v2/projects/{PROJECT}/queries"
    request = {"query": f"INSERT INTO `{table}` VALUES (9, 'r')", "useLegacySql": False, "requestId": table}
    first, second = (httpx.post(url, json=request).json() for _ in range(2))
    assert first["jobReference"] == second["jobReference"]
    assert client.get_table(table).num_rows == 4


def test_an_unfinished_query_says_so(local: LocalBigQuery) -> None:
    from ingestd.localcloud.faults import Fault, FaultKind

    local.hooks.plan.add(Fault("bigquery", "job.query", FaultKind.DELAY, seconds=0.4, times=1))
    base = f"{local.endpoint}/bigquery/v2/projects/{PROJECT}/queries"
    answer = httpx.post(base, json={"query": "SELECT 1 AS x", "useLegacySql": False, "timeoutMs": 50}).json()
    assert answer["jobComplete"] is False
    assert "rows" not in answer
    done = httpx.get(f"{base}/{answer['jobReference']['jobId']}", params={"timeoutMs": 5000}).json()
    assert (done["jobComplete"], done["rows"]) == (True, [{"f": [{"v": "1"}]}])


def test_a_limit_on_billed_bytes_is_honoured(client: bigquery.Client, table: str) -> None:
    config = bigquery.QueryJobConfig(maximum_bytes_billed=10)
    with pytest.raises(exceptions.BadRequest, match="Query exceeded limit for bytes billed: 10"):
        client.query_and_wait(f"SELECT * FROM `{table}`", job_config=config)


def test_legacy_table_names_work_and_other_legacy_sql_is_refused(
    client: bigquery.Client, dataset: str, table: str
) -> None:
    config = bigquery.QueryJobConfig(use_legacy_sql=True)
    rows = client.query_and_wait(f"SELECT id FROM [{PROJECT}:{dataset}.t] WHERE id = 1", job_config=config)
    assert values(rows) == [(1,)]
    with pytest.raises(exceptions.MethodNotImplemented, match="legacy SQL"):
        client.query(f"SELECT id FROM [{dataset}.t], [{dataset}.u]", job_config=config)


def test_jobs_and_partitions_are_seen_through_the_information_schema(client: bigquery.Client, dataset: str) -> None:
    target = bigquery.Table(f"{PROJECT}.{dataset}.p", [bigquery.SchemaField("day", "DATE")])
    target.time_partitioning = bigquery.TimePartitioning(field="day")
    client.create_table(target)
    client.query_and_wait(f"INSERT INTO `{dataset}.p` VALUES (DATE '2024-01-01'), (DATE '2024-01-02'), (NULL)")
    partitions = f"`{dataset}`.INFORMATION_SCHEMA.PARTITIONS"
    sql = f"SELECT partition_id, total_rows FROM {partitions} WHERE table_name = 'p' ORDER BY 1"
    assert values(client.query_and_wait(sql)) == [("20240101", 1), ("20240102", 1), ("__NULL__", 1)]
    job = client.query("SELECT 41 + 1")
    job.result()
    sql = f"SELECT state, statement_type FROM `region-us`.INFORMATION_SCHEMA.JOBS WHERE job_id = '{job.job_id}'"
    assert values(client.query_and_wait(sql)) == [("DONE", "SELECT")]


def test_a_cancelled_query_is_stopped(local: LocalBigQuery, client: bigquery.Client) -> None:
    from ingestd.localcloud.faults import Fault, FaultKind

    local.hooks.plan.add(Fault("bigquery", "job.query", FaultKind.DELAY, seconds=30, times=1))
    job = client.query("SELECT 1")
    assert job.cancel()
    job.reload()
    assert (job.state, job.error_result["reason"]) == ("DONE", "stopped")
    assert job.ended - job.created < timedelta(seconds=10)
