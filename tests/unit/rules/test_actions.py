"""Actions are typed: each request is checked at load and filled in by field."""

from datetime import timedelta
from typing import Any

import pytest
from tests.support.rules import refused, spec

from ingestd.rules.actions import (
    ACTIONS,
    CallRequest,
    DeleteRequest,
    ExportFormat,
    ExportRequest,
    MoveRequest,
    NotifyRequest,
    PushRequest,
    QueryRequest,
)
from ingestd.rules.expansion import Scope


def action(text: str) -> Any:
    return spec(f"Dest: {{Table: d.t}}\nOnSuccess:\n  - {text}\n").on_success[0]


def test_delete_and_move_mean_the_loaded_files() -> None:
    assert action("{Action: delete}").request == DeleteRequest(urls=("$LoadURIs",))
    assert action("{Action: delete, Request: {}}").request == DeleteRequest(urls=("$LoadURIs",))
    moved = action("{action: MOVE, request: {desturl: gs://b/done}}")
    assert moved.name == "move"
    assert moved.request == MoveRequest(dest_url="gs://b/done", source_urls=("$LoadURIs",))


def test_a_named_source_is_not_joined_by_the_loaded_files() -> None:
    request = action("{Action: move, Request: {Source: gs://b/x, Dest: gs://b/y}}").request
    assert (request.source_url, request.source_urls, request.dest_url) == ("gs://b/x", (), "gs://b/y")


def test_documented_names_of_request_fields_are_accepted() -> None:
    export = action("{Action: export, Request: {Source: d.t, Dest: gs://b/x-*.json.gz}}").request
    assert export == ExportRequest(source="d.t", dest_url="gs://b/x-*.json.gz")
    assert export.resolved_format is ExportFormat.NEWLINE_DELIMITED_JSON
    assert export.resolved_compression == "GZIP"
    notify = action("{Action: notify, Request: {Channels: '#a', Title: t, Secret: {URL: gs://b/s, Key: r/k}}}").request
    assert isinstance(notify, NotifyRequest)
    assert notify.credentials is not None
    assert notify.credentials.key == "r/k"


def test_call_takes_headers_timeout_and_retries() -> None:
    request = action(
        "{Action: call, Request: {URL: 'https://x/y', Method: post, Headers: {X-A: $EventID}, Timeout: 1m30s,"
        " Retries: 3, Auth: true, Body: {n: 1}}}"
    ).request
    assert request == CallRequest(
        url="https://x/y",
        method="POST",
        headers={"X-A": "$EventID"},
        timeout=timedelta(seconds=90),
        retries=3,
        auth=True,
        body={"n": 1},
    )


def test_every_action_takes_nested_lists_and_a_condition() -> None:
    requests = {
        "delete": "{}",
        "move": "{DestURL: gs://b/x}",
        "copy": "{Source: d.a, Dest: d.b}",
        "query": "{SQL: SELECT 1}",
        "export": "{DestURL: gs://b/x.json}",
        "insert": "{Dest: d.t, Data: [{a: 1}]}",
        "spark": "{SQL: SELECT * FROM batch, DestURL: gs://b/x}",
        "drop": "{Table: d.t}",
        "push": "{Topic: t, Message: {a: 1}}",
        "call": "{URL: 'https://x'}",
        "notify": "{Channels: c, Title: t}",
    }
    assert requests.keys() == ACTIONS.keys()
    for name, request in requests.items():
        nested = action(
            f"{{Action: {name}, When: {{Exists: d.t}}, Request: {request},"
            f" OnSuccess: [{{Action: delete}}], OnFailure: [{{Action: delete}}]}}"
        )
        assert nested.when.exists == "d.t"
        assert [inner.name for inner in nested.nested()] == [name, "delete", "delete"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{Action: delet}", "r.yaml:3:5: OnSuccess[0]: unknown action 'delet'; did you mean 'delete'?"),
        ("{Request: {}}", "OnSuccess[0]: required key 'Action' is missing"),
        ("{Action: move}", "OnSuccess[0].Request: required key 'Request' is missing"),
        ("{Action: move, Request: {}}", "OnSuccess[0].Request.DestURL: required key 'DestURL' is missing"),
        ("{Action: move, Request: {DestUrl: x, Foo: 1}}", "unknown key 'Foo'"),
        ("{Action: query, Request: {Dest: d.t}}", "SQL is empty; give SQL or SQLURL"),
        ("{Action: delete, Request: {URLs: []}}", "URLs is empty"),
        ("{Action: spark, Request: {SQL: SELECT 1}}", "give either Dest, a table, or DestURL, a folder for files"),
        ("{Action: spark, Request: {SQL: SELECT 1, Dest: d.t, DestURL: gs://b/x}}", "give either Dest, a table"),
        ("{Action: spark, Request: {DestURL: gs://b/x}}", "SQL is empty; give SQL or SQLURL"),
        ("{Action: insert, Request: {Dest: d.t}}", "nothing to insert"),
        ("{Action: drop, Request: {Table: t}}", "names no dataset"),
        ("{Action: call, Request: {URL: 'file:///etc/passwd'}}", "Request.URL"),
        ("{Action: notify, Request: {Channels: [], Title: x}}", "Channels: must not be empty"),
        ("{Action: copy, Request: {Dest: d.t, Append: maybe}}", "must be true or false, not 'maybe'"),
        ("{Action: delete, When: {}}", "When.Exists: required key 'Exists' is missing"),
        ("{Action: delete, OnSuccess: [{Action: nope}]}", "OnSuccess[0].OnSuccess[0]: unknown action 'nope'"),
    ],
)
def test_requests_that_cannot_work_are_refused_at_load(text: str, problem: str) -> None:
    assert problem in "\n".join(refused(f"Dest: {{Table: d.t}}\nOnSuccess:\n  - {text}\n"))


def test_a_request_is_filled_in_by_field() -> None:
    scope = Scope({"LoadURIs": ["gs://b/1", "gs://b/2"], "EventID": "7", "DestTable": "p:d.t", "Name": "o'x"})
    assert DeleteRequest(urls=("$LoadURIs",)).expanded(scope).urls == ("gs://b/1", "gs://b/2")
    query = QueryRequest(sql="SELECT '$Name' FROM $DestTable", dest="d.out_$EventID").expanded(scope)
    assert (query.sql, query.dest) == (r"SELECT 'o\'x' FROM `p.d.t`", "d.out_7")
    push = PushRequest(topic="t", message={"uris": "$LoadURIs", "id": "x-$EventID"}).expanded(scope)
    assert push.message == {"uris": ["gs://b/1", "gs://b/2"], "id": "x-7"}
    notify = NotifyRequest(channels=("c",), title="t", message="$LoadURIs").expanded(scope)
    assert notify.message == '["gs://b/1", "gs://b/2"]'


def test_a_whole_action_is_filled_in_with_its_condition() -> None:
    copied = action(
        "{Action: copy, When: {Exists: d.t_$EventID}, Request: {Source: $TempTable, Dest: d.x, Append: true}}"
    ).expanded(Scope({"EventID": "7", "TempTable": "`p.tmp.t`"}))
    assert (copied.when.exists, copied.request.source, copied.request.append) == ("d.t_7", "`p.tmp.t`", True)


def test_a_token_never_shows_in_a_repr() -> None:
    assert "s3cret" not in repr(NotifyRequest(channels=("c",), title="t", token="s3cret"))
