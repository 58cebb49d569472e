"""Load jobs through Google's client: dispositions, decorators, schemas, errors, uploads."""

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import bigquery
from tests.integration.bigquery.local import LocalBigQuery
from tests.support.google import PROJECT

SCHEMA = [bigquery.SchemaField("id", "INTEGER"), bigquery.SchemaField("name", "STRING")]
JSON = bigquery.SourceFormat.NEWLINE_DELIMITED_JSON


def load(client: bigquery.Client, uri: str | list[str], table: str, **options: Any) -> bigquery.LoadJob:
    options.setdefault("source_format", JSON)
    job = client.load_table_from_uri(uri, f"{PROJECT}.{table}", job_config=bigquery.LoadJobConfig(**options))
    job.result()
    return job


def rows(client: bigquery.Client, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in client.list_rows(f"{PROJECT}.{table}"))


def test_a_load_appends_rows_and_reports_them(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    local.put(f"gs://{dataset}/a.json", '{"id": 1, "name": "a"}\n{"id": 2}\n')
    local.put(f"gs://{dataset}/b.json", '{"id": 3, "name": "c"}\n')
    job = load(client, f"gs://{dataset}/*.json", f"{dataset}.t", schema=SCHEMA)
    assert (job.state, job.output_rows, job.input_files) == ("DONE", 3, 2)
    assert job.input_file_bytes == 23 + 10 + 23
    assert rows(client, f"{dataset}.t") == [(1, "a"), (2, None), (3, "c")]
    load(client, f"gs://{dataset}/b.json", f"{dataset}.t")
    assert client.get_table(f"{dataset}.t").num_rows == 4


def test_a_job_id_is_used_once(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    uri = local.put(f"gs://{dataset}/a.json", '{"id": 1}\n')
    config = bigquery.LoadJobConfig(source_format=JSON, schema=SCHEMA)
    target = f"{PROJECT}.{dataset}.t"
    first = client.load_table_from_uri(uri, target, job_id=f"once-{dataset}", job_config=config)
    first.result()
    with pytest.raises(exceptions.Conflict, match=f"Already Exists: Job {PROJECT}:US.once-{dataset}"):
        client.load_table_from_uri(uri, target, job_id=f"once-{dataset}", job_config=config)
    assert client.get_job(f"once-{dataset}").output_rows == 1
    assert client.get_table(target).num_rows == 1


def test_write_dispositions(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    uri = local.put(f"gs://{dataset}/a.json", '{"id": 1}\n')
    load(client, uri, f"{dataset}.t", schema=SCHEMA, write_disposition="WRITE_EMPTY")
    with pytest.raises(exceptions.Conflict, match=f"Already Exists: Table {PROJECT}:{dataset}.t"):
        load(client, uri, f"{dataset}.t", write_disposition="WRITE_EMPTY")
    load(client, uri, f"{dataset}.t", write_disposition="WRITE_APPEND")
    assert client.get_table(f"{dataset}.t").num_rows == 2
    load(client, uri, f"{dataset}.t", write_disposition="WRITE_TRUNCATE")
    assert client.get_table(f"{dataset}.t").num_rows == 1


def test_truncating_replaces_the_schema_and_keeps_the_labels(
    client: bigquery.Client, dataset: str, local: LocalBigQuery
) -> None:
    table = bigquery.Table(f"{PROJECT}.{dataset}.t", SCHEMA)
    table.labels = {"keep": "me"}
    client.create_table(table)
    uri = local.put(f"gs://{dataset}/a.json", '{"other": "x"}\n')
    schema = [bigquery.SchemaField("other", "STRING")]
    load(client, uri, f"{dataset}.t", schema=schema, write_disposition="WRITE_TRUNCATE")
    found = client.get_table(f"{dataset}.t")
    assert ([item.name for item in found.schema], found.labels) == (["other"], {"keep": "me"})


def test_create_never_needs_the_table(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    uri = local.put(f"gs://{dataset}/a.json", '{"id": 1}\n')
    with pytest.raises(exceptions.NotFound, match=f"Not found: Table {PROJECT}:{dataset}.t"):
        load(client, uri, f"{dataset}.t", schema=SCHEMA, create_disposition="CREATE_NEVER")


def test_a_bad_row_fails_the_load_names_its_file_and_leaves_no_row(
    client: bigquery.Client, dataset: str, local: LocalBigQuery
) -> None:
    local.put(f"gs://{dataset}/a.json", '{"id": 1}\n')
    bad = local.put(f"gs://{dataset}/b.json", '{"id": "x"}\n')
    client.create_table(bigquery.Table(f"{PROJECT}.{dataset}.t", SCHEMA))
    config = bigquery.LoadJobConfig(source_format=JSON)
    job = client.load_table_from_uri(f"gs://{dataset}/*", f"{PROJECT}.{dataset}.t", job_config=config)
    with pytest.raises(exceptions.BadRequest):
        job.result()
    assert job.error_result["reason"] == "invalid"
    assert bad in {error.get("location") for error in job.errors}
    assert client.get_table(f"{dataset}.t").num_rows == 0


def test_a_missing_file_fails_the_load(client: bigquery.Client, dataset: str) -> None:
    with pytest.raises(exceptions.NotFound, match=f"Not found: URI gs://{dataset}/none.json"):
        load(client, f"gs://{dataset}/none.json", f"{dataset}.t", schema=SCHEMA)


def test_a_new_column_needs_allow_field_addition(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    client.create_table(bigquery.Table(f"{PROJECT}.{dataset}.t", SCHEMA))
    uri = local.put(f"gs://{dataset}/a.json", '{"id": 1, "extra": true}\n')
    schema = [*SCHEMA, bigquery.SchemaField("extra", "BOOLEAN")]
    with pytest.raises(exceptions.BadRequest, match=r"Cannot add fields \(field: extra\)"):
        load(client, uri, f"{dataset}.t", schema=schema)
    load(client, uri, f"{dataset}.t", schema=schema, schema_update_options=["ALLOW_FIELD_ADDITION"])
    assert rows(client, f"{dataset}.t") == [(1, None, True)]


def test_a_required_column_is_relaxed_only_when_allowed(
    client: bigquery.Client, dataset: str, local: LocalBigQuery
) -> None:
    required = [bigquery.SchemaField("id", "INTEGER", mode="REQUIRED")]
    client.create_table(bigquery.Table(f"{PROJECT}.{dataset}.t", required))
    uri = local.put(f"gs://{dataset}/a.json", '{"id": null}\n')
    with pytest.raises(exceptions.BadRequest):
        load(client, uri, f"{dataset}.t")
    with pytest.raises(exceptions.BadRequest, match="has changed mode from REQUIRED to NULLABLE"):
        load(client, uri, f"{dataset}.t", schema=SCHEMA[:1])
    load(client, uri, f"{dataset}.t", schema=SCHEMA[:1], schema_update_options=["ALLOW_FIELD_RELAXATION"])
    assert client.get_table(f"{dataset}.t").schema[0].mode == "NULLABLE"


def test_schema_updates_are_refused_with_a_whole_table_truncate(client: bigquery.Client, dataset: str) -> None:
    with pytest.raises(exceptions.BadRequest, match="Schema update options"):
        load(
            client,
            "gs://b/x",
            f"{dataset}.t",
            write_disposition="WRITE_TRUNCATE",
            schema_update_options=["ALLOW_FIELD_ADDITION"],
        )


def test_a_decorator_truncates_its_partition_alone(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    table = bigquery.Table(f"{PROJECT}.{dataset}.t", SCHEMA)
    table.time_partitioning = bigquery.TimePartitioning(type_="DAY")
    client.create_table(table)
    one = local.put(f"gs://{dataset}/1.json", '{"id": 1}\n')
    two = local.put(f"gs://{dataset}/2.json", '{"id": 2}\n')
    load(client, one, f"{dataset}.t$20240101")
    load(client, two, f"{dataset}.t$20240102")
    load(client, two, f"{dataset}.t$20240101", write_disposition="WRITE_TRUNCATE")
    assert rows(client, f"{dataset}.t$20240101") == [(2, None)]
    assert client.get_table(f"{dataset}.t").num_rows == 2
    with pytest.raises(exceptions.Conflict):
        load(client, one, f"{dataset}.t$20240102", write_disposition="WRITE_EMPTY")
    load(client, one, f"{dataset}.t$20240103", write_disposition="WRITE_EMPTY")
    with pytest.raises(exceptions.BadRequest, match="Invalid partition decorator"):
        load(client, one, f"{dataset}.t$2024010112")


@pytest.mark.parametrize(
    ("kind", "decorator"), [("HOUR", "2024010112"), ("DAY", "20240101"), ("MONTH", "202401"), ("YEAR", "2024")]
)
def test_decorators_of_column_partitions_refuse_strangers(
    client: bigquery.Client, dataset: str, local: LocalBigQuery, kind: str, decorator: str
) -> None:
    schema = [bigquery.SchemaField("at", "TIMESTAMP")]
    table = bigquery.Table(f"{PROJECT}.{dataset}.t", schema)
    table.time_partitioning = bigquery.TimePartitioning(type_=kind, field="at")
    client.create_table(table)
    inside = local.put(f"gs://{dataset}/in.json", '{"at": "2024-01-01 12:30:00 UTC"}\n')
    outside = local.put(f"gs://{dataset}/out.json", '{"at": "2025-02-02 00:00:00 UTC"}\n')
    load(client, inside, f"{dataset}.t${decorator}")
    with pytest.raises(
        exceptions.BadRequest, match=f"different partitions rather than destination partition {decorator}"
    ):
        load(client, outside, f"{dataset}.t${decorator}")
    assert rows(client, f"{dataset}.t${decorator}") == [(datetime(2024, 1, 1, 12, 30, tzinfo=UTC),)]


def test_range_partitions_are_addressed_by_their_start(
    client: bigquery.Client, dataset: str, local: LocalBigQuery
) -> None:
    table = bigquery.Table(f"{PROJECT}.{dataset}.t", SCHEMA)
    table.range_partitioning = bigquery.RangePartitioning(
        range_=bigquery.PartitionRange(start=0, end=100, interval=10), field="id"
    )
    client.create_table(table)
    uri = local.put(f"gs://{dataset}/a.json", '{"id": 15}\n')
    load(client, uri, f"{dataset}.t$10", write_disposition="WRITE_TRUNCATE")
    with pytest.raises(exceptions.BadRequest, match="different partitions"):
        load(client, uri, f"{dataset}.t$20")
    with pytest.raises(exceptions.BadRequest, match="Invalid partition decorator"):
        load(client, uri, f"{dataset}.t$15")
    assert rows(client, f"{dataset}.t$10") == [(15, None)]


def test_a_load_creates_a_partitioned_clustered_labelled_table(
    client: bigquery.Client, dataset: str, local: LocalBigQuery
) -> None:
    uri = local.put(f"gs://{dataset}/a.json", '{"id": 1, "day": "2024-03-05"}\n')
    job = load(
        client,
        uri,
        f"{dataset}.t",
        schema=[*SCHEMA, bigquery.SchemaField("day", "DATE")],
        time_partitioning=bigquery.TimePartitioning(type_="MONTH", field="day"),
        clustering_fields=["name"],
        destination_table_description="made by a load",
    )
    found = client.get_table(job.destination)
    assert (found.time_partitioning.type_, found.clustering_fields) == ("MONTH", ["name"])
    assert found.description == "made by a load"
    with pytest.raises(exceptions.BadRequest, match="Incompatible table partitioning specification"):
        load(client, uri, f"{dataset}.t", time_partitioning=bigquery.TimePartitioning(type_="DAY", field="day"))


def test_more_than_4000_partitions_in_one_job_are_refused(
    client: bigquery.Client, dataset: str, local: LocalBigQuery
) -> None:
    uri = local.put(f"gs://{dataset}/a.json", "".join(f'{{"id": {number}}}\n' for number in range(4001)))
    partitioning = bigquery.RangePartitioning(range_=bigquery.PartitionRange(start=0, end=9000, interval=1), field="id")
    with pytest.raises(exceptions.BadRequest, match="Too many partitions"):
        load(client, uri, f"{dataset}.t", schema=SCHEMA, range_partitioning=partitioning)


def test_rows_posted_with_the_request_are_loaded(client: bigquery.Client, dataset: str) -> None:
    config = bigquery.LoadJobConfig(source_format="CSV", schema=SCHEMA)
    target = f"{PROJECT}.{dataset}.t"
    client.load_table_from_file(io.BytesIO(b"1,a\n2,b\n"), target, job_config=config).result()
    client.load_table_from_file(io.BytesIO(b"3,c\n"), target, size=4, job_config=config).result()
    client.load_table_from_json([{"id": 4, "name": "d"}], target).result()
    assert rows(client, f"{dataset}.t") == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


@pytest.mark.filterwarnings("ignore:Loading:PendingDeprecationWarning", "ignore:Loading:FutureWarning")
def test_a_dataframe_is_loaded_as_parquet(client: bigquery.Client, dataset: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [1, 2], "name": ["a", "b"]})
    client.load_table_from_dataframe(frame, f"{PROJECT}.{dataset}.t").result()
    assert rows(client, f"{dataset}.t") == [(1, "a"), (2, "b")]


def test_a_posted_bad_row_fails_the_job(client: bigquery.Client, dataset: str) -> None:
    config = bigquery.LoadJobConfig(source_format="CSV", schema=SCHEMA)
    job = client.load_table_from_file(io.BytesIO(b"x,a\n"), f"{PROJECT}.{dataset}.t", job_config=config)
    with pytest.raises(exceptions.BadRequest):
        job.result()
