"""Jobs through Google's client: states, ids, locations, lists, cancellation, copies, extracts, faults, audit feed."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from datetime import time as dt_time
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import bigquery
from tests.integration.bigquery.local import LocalBigQuery
from tests.support.google import PROJECT
from tests.support.waiting import eventually

from ingestd.localcloud.bigquery.settings import BigQuerySettings
from ingestd.localcloud.faults import Fault, FaultKind

SCHEMA = [bigquery.SchemaField("id", "INTEGER"), bigquery.SchemaField("name", "STRING")]
JSON = bigquery.SourceFormat.NEWLINE_DELIMITED_JSON


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBigQuery]:
    """A service whose jobs take their time."""
    settings = BigQuerySettings(job_latency=timedelta(seconds=1.2))
    running = LocalBigQuery(tmp_path_factory.mktemp("slow"), settings)
    yield running
    running.stop()


def start(
    client: bigquery.Client, local: LocalBigQuery, table: str, content: str = '{"id": 1}\n', **arguments: Any
) -> Any:
    uri = local.put(f"gs://jobs/{table}-{time.monotonic_ns()}.json", content)
    config = bigquery.LoadJobConfig(source_format=JSON, schema=SCHEMA, labels=arguments.pop("labels", {}))
    return client.load_table_from_uri(uri, f"{PROJECT}.{table}", job_config=config, **arguments)


def filled(client: bigquery.Client, local: LocalBigQuery, table: str, *ids: int) -> None:
    start(client, local, table, "".join(f'{{"id": {number}, "name": "n{number}"}}\n' for number in ids)).result()


def ids(client: bigquery.Client, table: str) -> list[int]:
    return sorted(row["id"] for row in client.list_rows(f"{PROJECT}.{table}"))


def test_a_job_is_pending_then_running_then_done(slow: LocalBigQuery) -> None:
    client = slow.client()
    client.create_dataset("d")
    job = start(client, slow, "d.t")
    seen = [job.state]
    while job.state != "DONE":
        time.sleep(0.05)
        job.reload()
        if job.state != seen[-1]:
            seen.append(job.state)
    assert seen == ["PENDING", "RUNNING", "DONE"]
    assert job.created <= job.started <= job.ended
    assert ids(client, "d.t") == [1]


def test_cancelling_stops_a_waiting_job_before_it_writes(slow: LocalBigQuery) -> None:
    client = slow.client()
    client.create_dataset("cancelled")
    job = start(client, slow, "cancelled.t")
    assert client.cancel_job(job.job_id).state == "DONE"
    job.reload()
    assert job.error_result["reason"] == "stopped"
    with pytest.raises(exceptions.NotFound):
        client.get_table("cancelled.t")


def test_cancelling_a_finished_job_changes_nothing(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    job = start(client, local, f"{dataset}.t")
    job.result()
    assert client.cancel_job(job.job_id).error_result is None


def test_a_regional_job_is_found_only_with_its_location(
    client: bigquery.Client, dataset: str, local: LocalBigQuery
) -> None:
    regional = bigquery.Dataset(f"{PROJECT}.{dataset}_regional")
    regional.location = "europe-west3"
    client.create_dataset(regional)
    job = start(client, local, f"{dataset}_regional.t")
    assert job.location == "europe-west3"
    job.result()
    assert client.get_job(job.job_id, location="europe-west3").state == "DONE"
    for location in (None, "US", "europe-west1"):
        with pytest.raises(exceptions.NotFound, match="Not found: Job"):
            client.get_job(job.job_id, location=location)
        with pytest.raises(exceptions.NotFound, match="Not found: Job"):
            client.cancel_job(job.job_id, location=location)


def test_a_job_in_the_eu_multi_region_is_found_without_a_location(
    client: bigquery.Client, dataset: str, local: LocalBigQuery
) -> None:
    european = bigquery.Dataset(f"{PROJECT}.{dataset}_eu")
    european.location = "EU"
    client.create_dataset(european)
    job = start(client, local, f"{dataset}_eu.t")
    job.result()
    assert client.get_job(job.job_id).location == "EU"


def test_a_job_in_the_wrong_location_does_not_find_the_dataset(
    client: bigquery.Client, dataset: str, local: LocalBigQuery
) -> None:
    with pytest.raises(exceptions.NotFound, match="was not found in location EU"):
        start(client, local, f"{dataset}.t", location="EU")


def test_jobs_are_listed_newest_first_filtered_and_in_pages(
    client: bigquery.Client, dataset: str, local: LocalBigQuery
) -> None:
    before = datetime.now(UTC)
    names = [f"list-{dataset}-{index}" for index in range(3)]
    for name in names:
        start(client, local, f"{dataset}.t", job_id=name, labels={"kind": "listed"}).result()
        time.sleep(0.002)
    found = client.list_jobs(min_creation_time=before, page_size=2)
    listed = [job for job in found if job.job_id in names]
    assert [job.job_id for job in listed] == names[::-1]
    assert {job.state for job in listed} == {"DONE"}
    assert listed[0].labels == {"kind": "listed"}
    assert [job for job in client.list_jobs(state_filter="running") if job.job_id in names] == []
    assert [job for job in client.list_jobs(max_creation_time=before) if job.job_id in names] == []


def test_a_deleted_job_is_gone_and_its_id_is_free(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    name = f"deleted-{dataset}"
    start(client, local, f"{dataset}.t", job_id=name).result()
    client.delete_job_metadata(name, location="US")
    with pytest.raises(exceptions.NotFound):
        client.get_job(name)
    start(client, local, f"{dataset}.t", job_id=name).result()
    assert ids(client, f"{dataset}.t") == [1, 1]


def test_a_bad_job_id_is_refused(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    with pytest.raises(exceptions.BadRequest, match="Invalid job ID"):
        start(client, local, f"{dataset}.t", job_id="not/an id")


def test_several_tables_are_copied_into_one(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    filled(client, local, f"{dataset}.a", 1, 2)
    filled(client, local, f"{dataset}.b", 3)
    sources = [f"{PROJECT}.{dataset}.a", f"{PROJECT}.{dataset}.b"]
    job = client.copy_table(sources, f"{PROJECT}.{dataset}.c")
    job.result()
    assert ids(client, f"{dataset}.c") == [1, 2, 3]
    assert job._properties["statistics"]["copy"]["copiedRows"] == "3"
    with pytest.raises(exceptions.Conflict, match=f"Already Exists: Table {PROJECT}:{dataset}.c"):
        client.copy_table(sources, f"{PROJECT}.{dataset}.c").result()
    append = bigquery.CopyJobConfig(write_disposition="WRITE_APPEND")
    client.copy_table(sources[0], f"{PROJECT}.{dataset}.c", job_config=append).result()
    assert ids(client, f"{dataset}.c") == [1, 1, 2, 2, 3]
    truncate = bigquery.CopyJobConfig(write_disposition="WRITE_TRUNCATE")
    client.copy_table(sources[1], f"{PROJECT}.{dataset}.c", job_config=truncate).result()
    assert ids(client, f"{dataset}.c") == [3]


def test_a_copy_takes_the_layout_along(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    table = bigquery.Table(f"{PROJECT}.{dataset}.a", SCHEMA)
    table.time_partitioning = bigquery.TimePartitioning(type_="DAY")
    table.clustering_fields = ["name"]
    client.create_table(table)
    filled(client, local, f"{dataset}.a$20240101", 1)
    filled(client, local, f"{dataset}.a$20240102", 2)
    client.copy_table(f"{PROJECT}.{dataset}.a", f"{PROJECT}.{dataset}.b").result()
    found = client.get_table(f"{dataset}.b")
    assert (found.time_partitioning.type_, found.clustering_fields) == ("DAY", ["name"])
    assert ids(client, f"{dataset}.b$20240102") == [2]
    config = bigquery.CopyJobConfig(write_disposition="WRITE_TRUNCATE")
    source, target = f"{PROJECT}.{dataset}.a$20240101", f"{PROJECT}.{dataset}.b$20240102"
    client.copy_table(source, target, job_config=config).result()
    assert ids(client, f"{dataset}.b$20240102") == [1]
    assert ids(client, f"{dataset}.b") == [1, 1]


def test_a_copy_of_tables_that_differ_is_refused(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    filled(client, local, f"{dataset}.a", 1)
    client.create_table(bigquery.Table(f"{PROJECT}.{dataset}.b", [bigquery.SchemaField("other", "STRING")]))
    with pytest.raises(exceptions.BadRequest, match="Provided Schema does not match Table"):
        client.copy_table([f"{PROJECT}.{dataset}.a", f"{PROJECT}.{dataset}.b"], f"{PROJECT}.{dataset}.c").result()


def test_a_snapshot_is_read_only_and_can_be_restored(
    client: bigquery.Client, dataset: str, local: LocalBigQuery
) -> None:
    filled(client, local, f"{dataset}.a", 1)
    config = bigquery.CopyJobConfig(operation_type="SNAPSHOT")
    client.copy_table(f"{PROJECT}.{dataset}.a", f"{PROJECT}.{dataset}.s", job_config=config).result()
    found = client.get_table(f"{dataset}.s")
    assert found.table_type == "SNAPSHOT"
    assert found.snapshot_definition.base_table_reference.table_id == "a"
    with pytest.raises(exceptions.BadRequest, match="not allowed for this operation"):
        filled(client, local, f"{dataset}.s", 2)
    restore = bigquery.CopyJobConfig(operation_type="RESTORE")
    client.copy_table(f"{PROJECT}.{dataset}.s", f"{PROJECT}.{dataset}.r", job_config=restore).result()
    assert ids(client, f"{dataset}.r") == [1]


def test_more_than_1200_copy_sources_are_refused(client: bigquery.Client, dataset: str) -> None:
    sources = [f"{PROJECT}.{dataset}.t{index}" for index in range(1201)]
    with pytest.raises(exceptions.BadRequest, match="1201 source tables"):
        client.copy_table(sources, f"{PROJECT}.{dataset}.c")


def test_more_than_10000_uris_are_refused(client: bigquery.Client, dataset: str) -> None:
    with pytest.raises(exceptions.BadRequest, match="10001 source URIs"):
        client.load_table_from_uri([f"gs://b/{index}" for index in range(10_001)], f"{PROJECT}.{dataset}.t")


def test_a_table_is_extracted_to_files(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    filled(client, local, f"{dataset}.t", 2, 1)
    config = bigquery.ExtractJobConfig(destination_format=JSON)
    job = client.extract_table(f"{PROJECT}.{dataset}.t", f"gs://{dataset}/out-*.json", job_config=config)
    job.result()
    assert job.destination_uri_file_counts == [1]
    (written,) = local.objects.match(f"gs://{dataset}/out-*.json")
    assert sorted(local.objects.read(written.uri).splitlines()) == [
        b'{"id":"1","name":"n1"}',
        b'{"id":"2","name":"n2"}',
    ]


def test_parquet_that_bigquery_exports_is_loaded_back_except_datetimes_without_a_schema(
    client: bigquery.Client, dataset: str
) -> None:
    """As documented: a file says TIMESTAMP for both, so a DATETIME column wants the load to name its schema."""
    table, uri = f"{PROJECT}.{dataset}.t", f"gs://{dataset}/out.parquet"
    values = "TIMESTAMP '2024-01-02 03:04:05.123456Z' AS moment, TIME '03:04:05' AS clock"
    client.query(f"CREATE TABLE `{table}` AS SELECT 1 AS id, {values}").result()
    exported = bigquery.ExtractJobConfig(destination_format="PARQUET")
    client.extract_table(table, uri, job_config=exported).result()
    back = bigquery.LoadJobConfig(source_format="PARQUET")
    client.load_table_from_uri(uri, table, job_config=back).result()
    client.load_table_from_uri(uri, f"{table}_new", job_config=back).result()
    both = [tuple(row.values()) for row in client.list_rows(table)]
    assert both == [(1, datetime(2024, 1, 2, 3, 4, 5, 123456, tzinfo=UTC), dt_time(3, 4, 5))] * 2
    assert [item.field_type for item in client.get_table(f"{table}_new").schema] == ["INTEGER", "TIMESTAMP", "TIME"]

    civil = f"{table}_civil"
    client.query(f"CREATE TABLE `{civil}` AS SELECT DATETIME '2024-01-02 03:04:05' AS moment").result()
    client.extract_table(civil, uri, job_config=exported).result()
    with pytest.raises(exceptions.BadRequest, match="Field moment has changed type from DATETIME to TIMESTAMP"):
        client.load_table_from_uri(uri, civil, job_config=back).result()
    back.schema = [bigquery.SchemaField("moment", "DATETIME")]
    client.load_table_from_uri(uri, civil, job_config=back).result()
    assert [row["moment"] for row in client.list_rows(civil)] == [datetime(2024, 1, 2, 3, 4, 5)] * 2  # noqa: DTZ001


def test_labels_inside_of_a_load_are_labels_of_its_job(
    client: bigquery.Client, dataset: str, local: LocalBigQuery
) -> None:
    """gcs_ocn_bq_ingest leaves a copy of its labels there; the job's own win."""
    name = f"labelled-{dataset}"
    config = bigquery.LoadJobConfig(source_format=JSON, schema=SCHEMA, labels={"component": "own"})
    resource = config.to_api_repr()
    resource["load"]["labels"] = {"component": "inner", "team": "data"}
    uri = local.put(f"gs://{dataset}/a.json", '{"id": 1}\n')
    config = bigquery.LoadJobConfig.from_api_repr(resource)
    client.load_table_from_uri(uri, f"{PROJECT}.{dataset}.t", job_config=config, job_id=name).result()
    found = client.get_job(name)
    assert found.labels == {"component": "own", "team": "data"}
    assert "labels" not in found._properties["configuration"]["load"]
    assert ids(client, f"{dataset}.t") == [1]


def test_a_rehearsed_job_failure_ends_done_with_that_reason(
    client: bigquery.Client, dataset: str, local: LocalBigQuery
) -> None:
    fault = Fault("bigquery", "job.load", FaultKind.FAIL, reason="backendError", message="storm", times=1)
    local.hooks.plan.add(fault)
    job = start(client, local, f"{dataset}.t")
    with pytest.raises(exceptions.GoogleAPICallError, match="storm"):
        job.result(retry=None)
    assert job.error_result == {"reason": "backendError", "message": "storm"}
    start(client, local, f"{dataset}.t").result()
    assert ids(client, f"{dataset}.t") == [1]


def test_a_rehearsed_delay_keeps_the_job_running(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    local.hooks.plan.add(Fault("bigquery", "job.load", FaultKind.DELAY, seconds=0.5, times=1))
    job = start(client, local, f"{dataset}.t")
    job.reload()
    assert job.state in ("PENDING", "RUNNING")
    job.result()
    assert job.ended - job.created >= timedelta(seconds=0.5)


def test_a_lost_answer_leaves_the_job_behind(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    local.hooks.plan.add(Fault("bigquery", "jobs.insert", FaultKind.DROP_RESPONSE, times=1))
    name = f"lost-{dataset}"
    uri = local.put(f"gs://{dataset}/a.json", '{"id": 1}\n')
    config = bigquery.LoadJobConfig(source_format=JSON, schema=SCHEMA)
    with pytest.raises(exceptions.Conflict):  # the client retries a lost answer and learns that the job is there
        client.load_table_from_uri(uri, f"{PROJECT}.{dataset}.t", job_id=name, job_config=config)
    assert client.get_job(name).state == "DONE"
    assert ids(client, f"{dataset}.t") == [1]


def test_a_completion_reaches_the_audit_feed_in_both_shapes(
    client: bigquery.Client, dataset: str, local: LocalBigQuery
) -> None:
    name = f"audited-{dataset}"
    start(client, local, f"{dataset}.t", job_id=name, labels={"rule": "r1"}).result()
    resource = f"projects/{PROJECT}/jobs/{name}"

    def entries() -> list[Any]:
        return [entry for entry in local.audit if entry["protoPayload"]["resourceName"] == resource]

    eventually(lambda: len(entries()) == 2, entries)
    v2, v1 = entries()
    assert v2["logName"] == f"projects/{PROJECT}/logs/cloudaudit.googleapis.com%2Fdata_access"
    assert v2["protoPayload"]["methodName"] == "google.cloud.bigquery.v2.JobService.InsertJob"
    change = v2["protoPayload"]["metadata"]["jobChange"]
    assert (change["before"], change["after"], change["job"]["jobName"]) == ("RUNNING", "DONE", resource)
    config = change["job"]["jobConfig"]
    assert (config["type"], config["labels"]) == ("IMPORT", {"rule": "r1"})
    assert config["loadConfig"]["destinationTable"] == f"projects/{PROJECT}/datasets/{dataset}/tables/t"
    assert config["loadConfig"]["writeDisposition"] == "WRITE_APPEND"
    assert change["job"]["jobStatus"] == {"jobState": "DONE"}
    event = v1["protoPayload"]["serviceData"]["jobCompletedEvent"]
    assert v1["protoPayload"]["methodName"] == "jobservice.jobcompleted"
    assert (event["eventName"], event["job"]["jobName"]["jobId"]) == ("load_job_completed", name)
    assert event["job"]["jobConfiguration"]["load"]["destinationTable"]["tableId"] == "t"
