"""The `spark` post-action over the wire: rows of the batch into tables and files, once."""

import gzip
import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.cloud import bigquery
from tests.support.progress import MemoryProgress

from ingestd.actions.context import ActionContext, ActionSettings, BatchRows
from ingestd.actions.executor import ActionFailed, run_actions
from ingestd.actions.objects import loop_guard
from ingestd.actions.plan import plan
from ingestd.gcp.connect import Clients
from ingestd.model.clock import SystemClock
from ingestd.model.errors import BadInput
from ingestd.model.objects import FileVersion, ObjectRef
from ingestd.model.schema import Field, Type, schema_rest
from ingestd.model.tables import TableName
from ingestd.spark.files.scratch import Scratch
from ingestd.spark.preparer import Where
from ingestd.spark.session.masters import Files
from ingestd.spark.session.session import Spark
from ingestd.spark.statements import SparkStatements
from ingestd.warehouse.jobs import Completions, JobRunner

COLUMNS = tuple(
    map(
        Field.from_rest,
        (
            {"name": "id", "type": "INTEGER"},
            {"name": "country", "type": "STRING"},
            {"name": "amount", "type": "NUMERIC"},
            {"name": "at", "type": "TIMESTAMP"},
        ),
    )
)
TOTALS = "SELECT country, count(*) AS orders, sum(amount) AS amount, max(at) AS last FROM batch GROUP BY country"
EVENT = "4711"


@pytest.fixture
async def context(clients: Clients, spark: Spark, bucket: str, dataset: str, tmp_path: Path) -> ActionContext:
    """A batch of two files that was loaded into `orders`."""
    table = TableName("test-project", dataset, "orders")
    await clients.warehouse.create_table(table, {"schema": schema_rest(COLUMNS)})
    files = []
    for number in range(2):
        rows = [
            {"id": n, "country": "de" if n % 2 else "fr", "amount": "1.5", "at": f"2026-01-0{number + 1}T00:00:00Z"}
            for n in range(number * 10, number * 10 + 10)
        ]
        ref = ObjectRef(bucket, f"in/{number}.json")
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        generation = await clients.store.create(ref, data)
        files.append(FileVersion(ref, generation, len(data)))
    clock = SystemClock()
    return ActionContext(
        store=clients.store,
        warehouse=clients.warehouse,
        publisher=clients.publisher,
        http=clients.http,
        jobs=JobRunner(clients.warehouse, Completions(), clock, poll_every=timedelta(seconds=0.1)),
        progress=MemoryProgress(),
        settings=ActionSettings("test-project", staging=ObjectRef(bucket, "staging")),
        event_id=EVENT,
        dest=f"test-project:{dataset}.{table.table}",
        rule_key="orders",
        files=tuple(files),
        values={"EventID": EVENT},
        spark=SparkStatements(spark, clients.store, Scratch(tmp_path, 1 << 30), Where(Files.LOCAL, 2)),
        rows=BatchRows(load={"sourceFormat": "NEWLINE_DELIMITED_JSON"}),
    )


async def act(context: ActionContext, **request: Any) -> None:
    await run_actions(context, plan([{"Action": "spark", "Request": request}]).on_success, last_try=True)


def rows_of(bigquery_client: Any, dataset: str, name: str) -> list[tuple[Any, ...]]:
    job = bigquery_client.query(f"SELECT * FROM `{dataset}.{name}` ORDER BY 1, 2")
    return [tuple(row.values()) for row in job.result()]


async def names(context: ActionContext, prefix: str) -> list[str]:
    bucket = context.settings.staging.bucket
    return [info.ref.name async for info in context.store.list(ObjectRef(bucket, prefix))]


async def test_a_table_gets_the_statements_rows_once_however_often_the_step_runs(
    context: ActionContext, bigquery_client: Any, dataset: str
) -> None:
    request = {"SQL": f"{TOTALS} HAVING count(*) > $Least", "Dest": f"{dataset}.totals", "Append": True}
    context = replace(context, values={"EventID": EVENT, "Least": 1})
    await act(context, **request)
    first = rows_of(bigquery_client, dataset, "totals")
    assert [(row[0], row[1], str(row[2]), row[3].day) for row in first] == [
        ("de", 10, "15", 2),
        ("fr", 10, "15", 2),
    ]
    # The daemon died before it could note that the step is finished.
    await act(replace(context, progress=MemoryProgress()), **request)
    assert rows_of(bigquery_client, dataset, "totals") == first
    assert await names(context, "staging/") == []


async def test_prepared_files_are_read_where_the_batch_has_them_and_no_rows_replace_what_was_there(
    context: ActionContext, bigquery_client: Any, dataset: str
) -> None:
    prepared = ObjectRef(context.settings.staging.bucket, f"staging/{EVENT}/1/rows-00000.json")
    await context.store.create(prepared, b'{"id": 1, "country": "it"}\n')
    rows = BatchRows({"sourceFormat": "NEWLINE_DELIMITED_JSON"}, COLUMNS, (prepared.url,))
    context = replace(context, rows=rows)
    statement = {"SQL": "SELECT id, country FROM batch WHERE country = '$Country'", "Dest": f"{dataset}.latest"}
    await act(replace(context, values={"Country": "it"}), **statement)
    assert rows_of(bigquery_client, dataset, "latest") == [(1, "it")]
    later = replace(context, values={"Country": "xx"}, event_id="4712", progress=MemoryProgress())
    await act(later, **statement)
    assert rows_of(bigquery_client, dataset, "latest") == []
    assert await names(context, "staging/") == [prepared.name]


async def test_files_go_to_a_folder_of_the_batch_and_do_not_feed_the_rule_that_wrote_them(
    context: ActionContext, storage_client: Any
) -> None:
    bucket = context.settings.staging.bucket
    left = ObjectRef(bucket, f"out/{EVENT}/rows-00009.csv.gz")
    await context.store.create(left, b"of an earlier run with more files")
    request = {"SQL": "SELECT id, country FROM batch ORDER BY id LIMIT 3", "DestURL": f"gs://{bucket}/out"}
    await act(context, **request, Format="CSV", Compression="GZIP")
    (name,) = await names(context, "out/")
    assert name.startswith(f"out/{EVENT}/")
    blob = storage_client.bucket(bucket).get_blob(name)
    assert loop_guard(blob.metadata) == {"orders"}
    assert gzip.decompress(blob.download_as_bytes(raw_download=True)) == b"id,country\n0,fr\n1,de\n2,fr\n"
    for kind in ("AVRO", "ORC"):
        await act(replace(context, progress=MemoryProgress()), **request, Format=kind)
        (name,) = await names(context, "out/")
        assert storage_client.bucket(bucket).get_blob(name).size > 0


async def test_a_statement_that_cannot_work_is_bad_input(context: ActionContext, dataset: str) -> None:
    wrong = ("SELECT nothing FROM batch", "DROP VIEW batch", "SELECT 1 / (id - id) FROM batch")
    for statement in wrong:
        with pytest.raises(ActionFailed) as failure:
            await act(context, SQL=statement, Dest=f"{dataset}.never")
        assert isinstance(failure.value.cause, BadInput), statement
    files = (replace(context.files[0], generation=1),)
    with pytest.raises(ActionFailed, match="gone"):
        await act(replace(context, files=files), SQL=TOTALS, Dest=f"{dataset}.never")
    assert await names(context, "staging/") == []


async def test_a_row_that_cannot_be_read_is_told_even_where_the_statement_looks_at_few_of_many_columns(
    context: ActionContext, bucket: str, dataset: str
) -> None:
    """Spark plans tables of more than a hundred columns otherwise, and asks for a column's value before anything."""
    columns = (Field("id", Type.INT64), *(Field(f"c{n}", Type.STRING) for n in range(120)))
    contents = [b'{"id": 1}\n', b'{"id": 2}\n{"id": "three"}\n']
    urls = []
    for number, data in enumerate(contents):
        ref = ObjectRef(bucket, f"staging/{EVENT}/1/rows-{number:05d}.json")
        await context.store.create(ref, data)
        urls.append(ref.url)
    wide = replace(context, rows=BatchRows({"sourceFormat": "NEWLINE_DELIMITED_JSON"}, columns, tuple(urls)))
    with pytest.raises(ActionFailed, match=r"rows-00001\.json, line 2: .*three") as failed:
        await act(wide, SQL="SELECT id FROM batch WHERE id > 0", Dest=f"{dataset}.some")
    assert isinstance(failed.value.cause, BadInput)
    tolerant = BatchRows({"sourceFormat": "NEWLINE_DELIMITED_JSON", "maxBadRecords": 1}, columns, tuple(urls))
    await act(replace(wide, rows=tolerant), SQL="SELECT id FROM batch WHERE id > 0", Dest=f"{dataset}.some")


async def test_over_a_batch_without_rows_the_statement_runs_too(
    context: ActionContext, bigquery_client: Any, dataset: str
) -> None:
    """Its criteria left none: there are no prepared files, and the batch's own are not what was loaded."""
    empty = replace(context, rows=BatchRows({"sourceFormat": "PARQUET"}, COLUMNS, ()))
    await act(empty, SQL="SELECT count(*) AS n, max(amount) AS most FROM batch", Dest=f"{dataset}.counted")
    assert rows_of(bigquery_client, dataset, "counted") == [(0, None)]
    assert await names(context, "staging/") == []


async def test_files_are_read_in_the_order_of_the_columns_that_their_load_was_given(
    context: ActionContext, bigquery_client: Any, bucket: str, dataset: str
) -> None:
    ref = ObjectRef(bucket, "in/legs.csv")
    data = b"Berlin,de,7\n"
    file = FileVersion(ref, await context.store.create(ref, data), len(data))
    given = (Field("city", Type.STRING), Field("country", Type.STRING), Field("id", Type.INT64))
    legs = replace(context, files=(file,), rows=BatchRows({"sourceFormat": "CSV"}, given))
    await act(legs, SQL="SELECT id, country, city, amount FROM batch", Dest=f"{dataset}.legs")
    assert [row[:3] for row in rows_of(bigquery_client, dataset, "legs")] == [(7, "de", "Berlin")]


@pytest.mark.parametrize("there", [False, True])
async def test_a_result_without_a_zone_is_a_datetime_in_a_new_table_and_in_one_that_is_there(
    context: ActionContext, bigquery_client: Any, dataset: str, there: bool
) -> None:
    """A file of it reads as a TIMESTAMP, so the load names the result's columns."""
    civil = "TIMESTAMP_NTZ'2024-01-02 03:04:05.123456'"
    values = (
        f"{civil} AS dt, array({civil}) AS l, struct({civil} AS dt, 1 AS n) AS r, CAST(1.25 AS DECIMAL(10, 2)) AS d"
    )
    statement = (
        f"SELECT {values}, TIMESTAMP'2024-01-02 03:04:05Z' AS ts, X'78' AS y, true AS b, DATE'2024-01-02' AS day"
    )
    if there:
        columns = "dt DATETIME, l ARRAY<DATETIME>, r STRUCT<dt DATETIME, n INT64>, d NUMERIC, ts TIMESTAMP, y BYTES"
        bigquery_client.query(f"CREATE TABLE `{dataset}.civil` ({columns}, b BOOL, day DATE)").result()
    await act(context, SQL=f"{statement} FROM batch LIMIT 1", Dest=f"{dataset}.civil", Append=True)
    table = bigquery_client.get_table(f"{bigquery_client.project}.{dataset}.civil")
    kinds = {item.name: (item.field_type, item.mode) for item in table.schema}
    assert kinds == {
        "dt": ("DATETIME", "NULLABLE"),
        "l": ("DATETIME", "REPEATED"),
        "r": ("RECORD", "NULLABLE"),
        "d": ("NUMERIC", "NULLABLE"),
        "ts": ("TIMESTAMP", "NULLABLE"),
        "y": ("BYTES", "NULLABLE"),
        "b": ("BOOLEAN", "NULLABLE"),
        "day": ("DATE", "NULLABLE"),
    }
    at = datetime(2024, 1, 2, 3, 4, 5, 123456)  # noqa: DTZ001
    rows = [tuple(row.values())[:3] for row in bigquery_client.list_rows(table)]
    assert rows == [(at, [at], {"dt": at, "n": 1})]


@pytest.mark.parametrize("kind", ["CSV", "NEWLINE_DELIMITED_JSON"])
async def test_text_files_lose_nothing_on_their_way_into_another_table(
    context: ActionContext, bigquery_client: Any, bucket: str, dataset: str, kind: str
) -> None:
    """Microseconds, quotes, backslashes, line ends, spaces around, bytes, and what is empty but not NULL."""
    kinds = {"n": "INTEGER", "at": "TIMESTAMP", "dt": "DATETIME", "s": "STRING", "y": "BYTES", "x": "FLOAT"}
    columns = tuple(Field(name, Type.of(kind)) for name, kind in kinds.items())
    texts = ['say "hi", \\ ok', "two\r\nlines", "one\rline", " pad ", "", "back\\", '"', '\\"', "NULL", None]
    moment = {"at": "2026-01-01T00:00:00.123456Z", "dt": "2026-01-01T00:00:00.654321", "y": "//8=", "x": "NaN"}
    rows = [{"n": n, "s": text} | (moment if n else {}) for n, text in enumerate(texts)]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    ref = ObjectRef(bucket, "in/texts.json")
    file = FileVersion(ref, await context.store.create(ref, data), len(data))
    batch = replace(context, files=(file,), rows=BatchRows({"sourceFormat": "NEWLINE_DELIMITED_JSON"}, columns))
    statement = "SELECT n, at, dt, s, y, x FROM batch ORDER BY n"
    await act(batch, SQL=statement, DestURL=f"gs://{bucket}/out", Format=kind)
    (name,) = await names(context, "out/")
    load = {"skipLeadingRows": 1, "allowQuotedNewlines": True} if kind == "CSV" else {}
    target = f"{bigquery_client.project}.{dataset}.texts"
    configuration = {"load": {"sourceFormat": kind, "schema": schema_rest(columns), **load}}
    job = bigquery.LoadJobConfig.from_api_repr(configuration)
    bigquery_client.load_table_from_uri(f"gs://{bucket}/{name}", target, job_config=job).result()
    loaded = rows_of(bigquery_client, dataset, "texts")
    assert [row[3] for row in loaded] == texts
    assert loaded[0][1:3] == (None, None)
    assert [(row[1].microsecond, row[2].microsecond, row[4], repr(row[5])) for row in loaded[1:]] == [
        (123456, 654321, b"\xff\xff", "nan")
    ] * (len(texts) - 1)
