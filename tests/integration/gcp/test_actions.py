"""Post-actions over the wire: Google's clients, the real job runner, real tables, objects and messages."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.google import PROJECT
from tests.support.progress import MemoryProgress

from ingestd.actions.context import ActionContext, ActionSettings
from ingestd.actions.executor import ActionFailed, run_actions
from ingestd.actions.plan import plan
from ingestd.gcp.connect import ClientOptions, Clients, connect
from ingestd.localcloud.http import HttpServer, Request, Response
from ingestd.model.clock import SystemClock
from ingestd.model.errors import BadInput, Transient
from ingestd.model.jobs import JobKind, JobRef, JobState, Mode
from ingestd.model.objects import FileVersion, ObjectRef
from ingestd.model.tables import TableName
from ingestd.retry import RetryPolicy
from ingestd.warehouse.jobs import Completions, JobRunner

SCHEMA = {"fields": [{"name": "id", "type": "INTEGER"}, {"name": "name", "type": "STRING"}]}
QUICK = RetryPolicy(attempts=3, first_wait=timedelta(milliseconds=10), longest_wait=timedelta(milliseconds=50))


@pytest.fixture
async def clients(cloud) -> AsyncIterator[Clients]:
    options = ClientOptions(retry=QUICK, pull_timeout=timedelta(milliseconds=300))
    async with connect(PROJECT, options=options, environment=cloud.endpoints.environ()) as made:
        yield made


@pytest.fixture
def ctx(clients, unique, bucket) -> ActionContext:
    runner = JobRunner(clients.warehouse, Completions(), SystemClock(), pause=timedelta(milliseconds=10))
    return ActionContext(
        store=clients.store,
        warehouse=clients.warehouse,
        publisher=clients.publisher,
        http=clients.http,
        jobs=runner,
        progress=MemoryProgress(),
        settings=ActionSettings(project=PROJECT, timeout=timedelta(seconds=5)),
        event_id=str(int(unique[1:], 16)),
        dest=f"{unique}.orders",
        mode=Mode.TAIL,
        rule_key="rule",
        values={"Dataset": unique, "Bucket": bucket},
    )


@pytest.fixture
async def orders(clients, dataset) -> TableName:
    """A table with one row."""
    table = TableName(PROJECT, dataset, "orders")
    await clients.warehouse.create_table(table, {"schema": SCHEMA})
    await clients.warehouse.insert_rows(table, [{"id": 1, "name": "a"}], ["1"])
    return table


def loaded(orders: TableName) -> JobState:
    return JobState(JobRef(PROJECT, "US", "load"), JobKind.LOAD, "DONE", {"destinationTable": orders.rest})


async def run(ctx: ActionContext, *actions: dict[str, Any], **options: Any) -> None:
    await run_actions(ctx, plan(actions).on_success, **options)


async def rows_of(clients: Clients, table: str, dataset: str) -> str | None:
    found = await clients.warehouse.table(TableName(PROJECT, dataset, table))
    return found.resource["numRows"] if found else None


async def test_copy_then_export_then_delete(ctx, clients, orders, dataset, bucket):
    ref = ObjectRef(bucket, "in/a.json")
    generation = await clients.store.create(ref, b"{}")
    ctx = replace(ctx, files=(FileVersion(ref, generation),), values={**ctx.values, "LoadURIs": [ref.url]})
    await run(
        ctx,
        {
            "Action": "copy",
            "Request": {"Dest": "$Dataset.copied"},
            "OnSuccess": [
                {"Action": "export", "Request": {"DestURL": "gs://$Bucket/out/a.json"}},
                {"Action": "delete"},
            ],
        },
        job=loaded(orders),
    )
    assert await rows_of(clients, "copied", dataset) == "1"
    assert (await clients.store.read(ObjectRef(bucket, "out/a.json")))[0] == b'{"id":"1","name":"a"}\n'
    assert await clients.store.stat(ref) is None


async def test_running_a_list_again_from_the_start_changes_nothing(ctx, clients, orders, dataset):
    actions = [
        {"Action": "copy", "Request": {"Source": "$Dataset.orders", "Dest": "$Dataset.copied", "Append": True}},
        {"Action": "insert", "Request": {"Dest": "$Dataset.orders", "Data": [{"id": 2, "name": "b"}]}},
    ]
    await run(ctx, *actions)
    await run(replace(ctx, progress=MemoryProgress()), *actions)
    assert await rows_of(clients, "copied", dataset) == "1"
    assert await rows_of(clients, "orders", dataset) == "2"


async def test_query_and_insert_from_a_statement(ctx, clients, orders, dataset):
    await run(
        replace(ctx, values={**ctx.values, "DestTable": orders.dotted}),
        {"Action": "query", "Request": {"SQL": "SELECT id + 1 AS id, name FROM $DestTable", "Dest": "$Dataset.more"}},
        {"Action": "insert", "Request": {"Dest": "$Dataset.orders", "SQL": "SELECT * FROM `$Dataset.more`"}},
        {"Action": "query", "Request": {"SQL": "DELETE FROM `$Dataset.orders` WHERE id = 1", "Dest": "$Dataset.x"}},
        job=loaded(orders),
    )
    assert await rows_of(clients, "more", dataset) == "1"
    assert await rows_of(clients, "orders", dataset) == "1"


async def test_partitions_are_copied_one_by_one(ctx, clients, dataset):
    source = TableName(PROJECT, dataset, "parted")
    resource = {
        "schema": {"fields": [{"name": "d", "type": "DATE"}, {"name": "n", "type": "INTEGER"}]},
        "timePartitioning": {"type": "DAY", "field": "d"},
    }
    await clients.warehouse.create_table(source, resource)
    rows = [{"d": "2024-01-01", "n": 1}, {"d": "2024-01-02", "n": 2}]
    await clients.warehouse.insert_rows(source, rows, ["1", "2"])
    request = {
        "Source": "$Dataset.parted${DollarSign}$PartitionID",
        "Dest": "$Dataset.day_$PartitionID",
        "MultiPartition": True,
    }
    await run(ctx, {"Action": "copy", "Request": request})
    assert await rows_of(clients, "day_20240101", dataset) == "1"
    assert await rows_of(clients, "day_20240102", dataset) == "1"


async def test_a_failed_job_runs_on_failure_with_its_error(ctx, clients, dataset, topic):
    with pytest.raises(ActionFailed) as failed:
        await run(
            ctx,
            {
                "Action": "copy",
                "Request": {"Source": "$Dataset.none", "Dest": "$Dataset.x"},
                "OnFailure": [{"Action": "push", "Request": {"Topic": topic, "Message": "$Error"}}],
            },
        )
    assert "none" in str(failed.value)
    (message,) = await clients.subscription(topic).pull(10)
    assert b"notFound" in message.data
    assert message.attributes["ingestd-idempotency-key"] == f"{ctx.event_id}-00003"


async def test_a_table_condition_and_a_drop(ctx, clients, orders, dataset):
    await run(
        ctx,
        {"Action": "drop", "Request": {"Table": "$Dataset.orders"}, "When": {"Exists": "$Dataset.none"}},
        {"Action": "drop", "Request": {"Table": "$Dataset.none"}},
    )
    assert await rows_of(clients, "orders", dataset) == "1"
    await run(replace(ctx, progress=MemoryProgress()), {"Action": "drop", "Request": {"Table": "$Dataset.orders"}})
    assert await rows_of(clients, "orders", dataset) is None


async def test_a_job_that_fails_for_a_moment_gets_a_next_attempt(ctx, clients, orders, dataset, fault):
    fault("bigquery", "jobs.insert", status=503, times=1)
    await run(ctx, {"Action": "copy", "Request": {"Source": "$Dataset.orders", "Dest": "$Dataset.copied"}})
    assert await rows_of(clients, "copied", dataset) == "1"


class Endpoint:
    """A stand-in for somebody's service and for Slack, on loopback."""

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self.statuses: list[int] = []

    def __call__(self, request: Request) -> Response:
        self.seen.append(request)
        status = self.statuses.pop(0) if self.statuses else 200
        if request.path.endswith("files.getUploadURLExternal"):
            return Response.json({"ok": True, "upload_url": f"http://{request.host}/upload/1", "file_id": "F1"})
        if request.path == "/upload/1":
            return Response(200, b"OK")
        if request.path.endswith("files.completeUploadExternal") and not request.json()["channel_id"].startswith("C"):
            return Response.json({"ok": False, "error": "invalid_arguments"})  # names are for messages
        return Response.json({"ok": True, "ts": "1", "channel": "C012345678", "BatchID": 42}, status)


@pytest.fixture
async def endpoint(ctx) -> AsyncIterator[tuple[Endpoint, str]]:
    made = Endpoint()
    server = HttpServer(made)
    await server.start()
    yield made, f"http://127.0.0.1:{server.port}"
    await server.stop()


async def test_a_call_feeds_the_next_action_and_a_bad_status_fails(ctx, clients, endpoint, topic):
    service, url = endpoint
    ctx = replace(ctx, settings=replace(ctx.settings, allowed_hosts=("127.0.0.1:*",)))
    service.statuses = [503, 200]
    await run(
        ctx,
        {"Action": "call", "Request": {"URL": f"{url}/hook", "Method": "POST", "Body": {"a": 1}}},
        {"Action": "push", "Request": {"Topic": topic, "Message": {"batch": "$Data.BatchID"}}},
    )
    assert [request.headers["idempotency-key"] for request in service.seen] == [f"{ctx.event_id}-00002"] * 2
    (message,) = await clients.subscription(topic).pull(10)
    assert message.data == b'{"batch":42}'

    service.statuses = [404]
    with pytest.raises(ActionFailed) as failed:
        await run(replace(ctx, progress=MemoryProgress()), {"Action": "call", "Request": {"URL": f"{url}/hook"}})
    assert isinstance(failed.value.cause, BadInput)

    with pytest.raises(ActionFailed) as failed:
        away = {"URL": "http://127.0.0.1:1/", "Retries": 1}
        await run(replace(ctx, progress=MemoryProgress()), {"Action": "call", "Request": away})
    assert isinstance(failed.value.cause, Transient)


async def test_notify_posts_and_uploads(ctx, endpoint):
    service, url = endpoint
    ctx = replace(ctx, settings=replace(ctx.settings, slack_url=f"{url}/api"))
    request = {"Channels": ["#ops"], "Title": "t", "Message": "$Error", "Body": {"x": 1}, "Token": "xoxb"}
    await run(ctx, {"Action": "notify", "Request": request}, error="it broke")
    assert [seen.path for seen in service.seen] == [
        "/api/chat.postMessage",
        "/api/files.getUploadURLExternal",
        "/upload/1",
        "/api/files.completeUploadExternal",
    ]
    assert service.seen[0].json()["attachments"][0]["text"] == "it broke"
    assert service.seen[2].body == b'{"x":1}'


async def test_a_move_into_a_watched_place_says_who_moved_it(ctx, clients, bucket):
    ref = ObjectRef(bucket, "in/a.json")
    generation = await clients.store.create(ref, b"{}", metadata={"own": "1"}, content_type="text/x")
    ctx = replace(ctx, files=(FileVersion(ref, generation),), values={**ctx.values, "LoadURIs": [ref.url]})
    await run(ctx, {"Action": "move", "Request": {"DestURL": "gs://$Bucket/in"}})
    assert await clients.store.stat(ref) is None
    info = await clients.store.stat(ObjectRef(bucket, "in/in/a.json"))
    assert info.metadata["ingestd-rules"] == "rule" and info.metadata["own"] == "1"
    assert info.content_type == "text/x"
