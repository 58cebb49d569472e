"""What `Warehouse` promises, kept by Google's client over the wire and by the binding to the core alike."""

import asyncio
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pytest
from tests.support.google import PROJECT

from ingestd.ledger.table import LoadStateTable
from ingestd.localcloud.faults import FaultKind
from ingestd.model.errors import BadInput, Fatal, NotFound, Throttled, Transient
from ingestd.model.jobs import JobKind, JobRef, JobRequest
from ingestd.model.objects import ObjectRef
from ingestd.model.tables import TableName
from ingestd.warehouse.errors import job_failure

SCHEMA = {"fields": [{"name": "id", "type": "INTEGER"}, {"name": "name", "type": "STRING"}]}


def query(name: str, sql: str, **configuration) -> JobRequest:
    ref = JobRef(PROJECT, "US", name)
    return JobRequest(ref, JobKind.QUERY, {"query": sql, "useLegacySql": False, **configuration}, {"who": "test"})


def load(name: str, uri: str, table: TableName) -> JobRequest:
    configuration = {
        "sourceUris": [uri],
        "destinationTable": table.rest,
        "sourceFormat": "NEWLINE_DELIMITED_JSON",
        "writeDisposition": "WRITE_APPEND",
    }
    return JobRequest(JobRef(PROJECT, "US", name), JobKind.LOAD, configuration, {"ingestd": "load"})


async def finished(warehouse, request: JobRequest):
    job = await warehouse.insert_job(request)
    async with asyncio.timeout(60):
        while not job.done:
            await asyncio.sleep(0.02)
            job = await warehouse.get_job(job.ref)
    return job


@pytest.fixture
def table(dataset) -> TableName:
    return TableName(PROJECT, dataset, "t")


@pytest.fixture
async def one_row(ports, bucket, table) -> str:
    """The URI of a file with one row that fits `table`, which exists."""
    await ports.warehouse.create_table(table, {"schema": SCHEMA})
    await ports.store.create(ObjectRef(bucket, "one.json"), b'{"id": 1}\n')
    return f"gs://{bucket}/one.json"


async def test_a_load_job_runs_and_tells_what_it_did(ports, table, one_row, unique):
    request = load(f"load-{unique}", one_row, table)
    job = await finished(ports.warehouse, request)
    assert job.error is None and job.kind is JobKind.LOAD and job.ref == request.ref
    assert job.statistics["load"]["outputRows"] == "1"
    assert job.labels == {"ingestd": "load"}
    assert job.configuration["sourceUris"] == [one_row]
    assert job.created <= job.started <= job.ended
    info = await ports.warehouse.table(table)
    assert (info.name, info.location, info.resource["numRows"]) == (table, "US", "1")


async def test_an_id_that_is_taken_is_adopted_and_never_run_twice(ports, table, one_row, unique):
    request = load(f"job-{unique}", one_row, table)
    first = await finished(ports.warehouse, request)
    again = await ports.warehouse.insert_job(request)
    assert again.done and again.ref == first.ref
    assert (await ports.warehouse.table(table)).resource["numRows"] == "1"


async def test_a_job_whose_answer_was_lost_is_adopted(ports, table, one_row, unique, fault):
    fault("bigquery", "jobs.insert", FaultKind.DROP_RESPONSE, times=1)
    job = await finished(ports.warehouse, load(f"job-{unique}", one_row, table))
    assert job.error is None
    assert (await ports.warehouse.table(table)).resource["numRows"] == "1"


async def test_an_unknown_job_is_none(ports, unique):
    assert await ports.warehouse.get_job(JobRef(PROJECT, "US", f"none-{unique}")) is None


async def test_a_failed_job_is_returned_with_its_error(ports, dataset, table, unique):
    copy = {"sourceTables": [TableName(PROJECT, dataset, "none").rest], "destinationTable": table.rest}
    job = await finished(ports.warehouse, JobRequest(JobRef(PROJECT, "US", f"job-{unique}"), JobKind.COPY, copy))
    assert job.failed and job.error.reason == "notFound"
    assert isinstance(job_failure(job), NotFound)


async def test_a_bad_file_is_blamed_by_name(ports, bucket, table, unique):
    await ports.warehouse.create_table(table, {"schema": SCHEMA})
    await ports.store.create(ObjectRef(bucket, "bad.json"), b'{"id": "not a number"}\n')
    failure = job_failure(await finished(ports.warehouse, load(f"load-{unique}", f"gs://{bucket}/bad.json", table)))
    assert isinstance(failure, BadInput) and failure.files == (f"gs://{bucket}/bad.json",)


async def test_copy_and_extract_jobs_run(ports, bucket, dataset, table, one_row, unique):
    await finished(ports.warehouse, load(f"make-{unique}", one_row, table))
    copy_to = TableName(PROJECT, dataset, "copied")
    copy = {"sourceTables": [table.rest], "destinationTable": copy_to.rest, "writeDisposition": "WRITE_TRUNCATE"}
    done = await finished(ports.warehouse, JobRequest(JobRef(PROJECT, "US", f"copy-{unique}"), JobKind.COPY, copy))
    assert done.error is None and done.kind is JobKind.COPY
    extract = {
        "sourceTable": copy_to.rest,
        "destinationUris": [f"gs://{bucket}/out.csv"],
        "destinationFormat": "CSV",
    }
    done = await finished(
        ports.warehouse, JobRequest(JobRef(PROJECT, "US", f"extract-{unique}"), JobKind.EXTRACT, extract)
    )
    assert done.error is None and done.kind is JobKind.EXTRACT
    assert (await ports.store.read(ObjectRef(bucket, "out.csv")))[0] == b"id,name\n1,\n"


async def test_rows_come_back_as_python_values(ports, unique):
    sql = """SELECT 1 AS i, 1.5 AS f, 'x' AS s, TRUE AS b, b'ab' AS y, NUMERIC '1.25' AS n, DATE '2024-01-31' AS d,
      TIMESTAMP '2024-01-31 10:00:00.25 UTC' AS t, TIME '10:00:01' AS c, DATETIME '2024-01-31 10:00:01' AS w,
      [1, 2] AS l, STRUCT(1 AS a, 'z' AS z) AS r, CAST(NULL AS STRING) AS e"""
    job = await finished(ports.warehouse, query(f"job-{unique}", sql))
    (row,) = await ports.warehouse.rows(job.ref)
    assert row == {
        "i": 1,
        "f": 1.5,
        "s": "x",
        "b": True,
        "y": b"ab",
        "n": Decimal("1.25"),
        "d": date(2024, 1, 31),
        "t": datetime(2024, 1, 31, 10, 0, 0, 250_000, UTC),
        "c": time(10, 0, 1),
        "w": datetime(2024, 1, 31, 10, 0, 1),  # noqa: DTZ001 - DATETIME has no zone
        "l": [1, 2],
        "r": {"a": 1, "z": "z"},
        "e": None,
    }


async def test_rows_stop_at_the_limit(ports, unique):
    job = await finished(ports.warehouse, query(f"job-{unique}", "SELECT n FROM UNNEST([1, 2, 3]) AS n ORDER BY n"))
    assert await ports.warehouse.rows(job.ref, limit=2) == [{"n": 1}, {"n": 2}]
    assert len(await ports.warehouse.rows(job.ref)) == 3
    assert await ports.warehouse.rows(job.ref, limit=2, start=1) == [{"n": 2}, {"n": 3}]
    assert await ports.warehouse.rows(job.ref, limit=2, start=3) == []


async def test_a_table_is_made_once_patched_and_dropped(ports, table):
    assert await ports.warehouse.table(table) is None
    made = await ports.warehouse.create_table(table, {"schema": SCHEMA, "description": "first"})
    again = await ports.warehouse.create_table(table, {"schema": SCHEMA, "description": "second"})
    assert made.resource["description"] == again.resource["description"] == "first"
    wider = {"fields": [*SCHEMA["fields"], {"name": "more", "type": "STRING"}]}
    patched = await ports.warehouse.patch_table(table, {"schema": wider, "expirationTime": "4102444800000"})
    assert [field["name"] for field in patched.resource["schema"]["fields"]] == ["id", "name", "more"]
    assert patched.resource["expirationTime"] == "4102444800000"
    assert await ports.warehouse.delete_table(table) is True
    assert await ports.warehouse.delete_table(table) is False


async def test_a_table_tells_when_it_expires_and_how_many_rows_were_loaded(ports, bucket, table, unique):
    expires = "4102444800000"
    await ports.warehouse.create_table(table, {"schema": SCHEMA, "expirationTime": expires})
    await ports.store.create(ObjectRef(bucket, "two.json"), b'{"id": 1}\n{"id": 2}')
    await finished(ports.warehouse, load(unique, f"gs://{bucket}/two.json", table))
    resource = (await ports.warehouse.table(table)).resource
    assert (resource["expirationTime"], int(resource["numRows"])) == (expires, 2)


async def test_dropping_a_partition_keeps_the_table(ports, dataset, unique):
    table = TableName(PROJECT, dataset, "parted")
    sql = (
        f"CREATE TABLE {table.sql} (d DATE, n INT64) PARTITION BY d; "
        f"INSERT INTO {table.sql} VALUES (DATE '2024-01-01', 1), (DATE '2024-01-02', 2)"
    )
    assert (await finished(ports.warehouse, query(f"job-{unique}", sql))).error is None
    assert await ports.warehouse.delete_table(table.partition("20240101")) is True
    assert (await ports.warehouse.table(table)).resource["numRows"] == "1"


async def test_patching_a_missing_table_is_not_found(ports, table):
    with pytest.raises(NotFound, match=table.table):
        await ports.warehouse.patch_table(table, {"description": "x"})


async def test_a_datasets_location_is_known_and_a_missing_one_none(ports, dataset):
    assert await ports.warehouse.dataset_location(PROJECT, dataset) == "US"
    assert await ports.warehouse.dataset_location("", dataset) == "US"
    assert await ports.warehouse.dataset_location(PROJECT, "missing_dataset") is None


async def test_a_dataset_is_created_once_and_its_tables_expire(ports, unique):
    name = f"made_{unique.replace('-', '_')}"
    day = timedelta(days=1)
    assert await ports.warehouse.create_dataset("", name, "EU", table_expiration=day) == "EU"
    assert await ports.warehouse.create_dataset(PROJECT, name, "US") == "EU", "it is where it was made"
    made = await ports.warehouse.create_table(TableName(PROJECT, name, "t"), {"schema": SCHEMA})
    resource = made.resource
    assert int(resource["expirationTime"]) - int(resource["creationTime"]) == day.total_seconds() * 1000


async def test_the_load_state_in_a_dataset_that_is_there_takes_no_right_to_make_datasets(ports, dataset, fault):
    """BigQuery refuses whoever has no such right before it looks whether the dataset is there."""
    fault("bigquery", "datasets.insert", status=403, reason="accessDenied")
    name = TableName(PROJECT, dataset, "load_states")
    await LoadStateTable(ports.warehouse, name, location="US").ensure()
    assert await ports.warehouse.table(name) is not None
    with pytest.raises(Fatal, match="no permission"):
        await LoadStateTable(ports.warehouse, TableName(PROJECT, "nowhere", "t"), location="US").ensure()


async def test_streaming_twice_under_the_same_ids_adds_rows_once(ports, table):
    await ports.warehouse.create_table(table, {"schema": SCHEMA})
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    for _ in range(2):
        await ports.warehouse.insert_rows(table, rows, ["e-2-0", "e-2-1"])
    assert (await ports.warehouse.table(table)).resource["numRows"] == "2"


async def test_refused_rows_are_bad_input(ports, table):
    await ports.warehouse.create_table(table, {"schema": SCHEMA})
    with pytest.raises(BadInput, match="nonsense"):
        await ports.warehouse.insert_rows(table, [{"id": 1}, {"nonsense": 2}], ["a", "b"])
    with pytest.raises(NotFound):
        await ports.warehouse.insert_rows(TableName(PROJECT, table.dataset, "none"), [{"id": 1}], ["a"])


async def test_a_bad_job_is_refused_as_bad_input(ports, table, unique):
    request = JobRequest(JobRef(PROJECT, "US", f"bad-{unique}"), JobKind.COPY, {"destinationTable": table.rest,
                         "sourceTables": []})  # fmt: skip
    with pytest.raises((BadInput, Fatal)):
        await ports.warehouse.insert_job(request)


@pytest.mark.parametrize(
    ("status", "reason", "kind", "quota"),
    [(403, "rateLimitExceeded", Throttled, False), (403, "quotaExceeded", Throttled, True)],
)
async def test_limits_are_throttling_not_missing_permission(ports, dataset, fault, status, reason, kind, quota):
    fault("bigquery", "tables.get", status=status, reason=reason)
    with pytest.raises(kind) as refused:
        await ports.warehouse.table(TableName(PROJECT, dataset, "t"))
    assert refused.value.quota is quota


async def test_a_lasting_outage_is_transient_and_no_permission_fatal(ports, dataset, fault):
    table = TableName(PROJECT, dataset, "t")
    fault("bigquery", "tables.get", status=503, times=4)
    with pytest.raises(Transient):
        await ports.warehouse.table(table)
    fault("bigquery", "tables.get", status=403, reason="accessDenied", times=1)
    with pytest.raises(Fatal, match="permission"):
        await ports.warehouse.table(table)
    assert await ports.warehouse.table(table) is None


async def test_a_cancelled_job_ends_stopped(ports, unique, cloud):
    from dataclasses import replace
    from datetime import timedelta

    before = cloud.bigquery.settings
    runner = cloud.bigquery.runner
    object.__setattr__(runner, "_settings", replace(before, job_latency=timedelta(seconds=20)))
    try:
        job = await ports.warehouse.insert_job(query(f"job-{unique}", "SELECT 1"))
        assert not job.done
        await ports.warehouse.cancel_job(job.ref)
        async with asyncio.timeout(60):
            while not job.done:
                await asyncio.sleep(0.02)
                job = await ports.warehouse.get_job(job.ref)
    finally:
        object.__setattr__(runner, "_settings", before)
    assert job.error.reason == "stopped"
