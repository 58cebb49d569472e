"""`push`, `call`, `notify`: what leaves the daemon, and the keys by which receivers tell repetitions."""

import base64
from datetime import timedelta

import orjson
import pytest
from pydantic import SecretStr

from ingestd.actions.call import check_host
from ingestd.actions.executor import ActionFailed
from ingestd.model.errors import BadInput, Fatal, Throttled, Transient
from ingestd.ports import HttpAnswer

URL = "https://api.example/hook?token=secret"


def call(**request):
    return {"Action": "call", "Request": {"URL": URL, **request}}


def notify(**request):
    return {"Action": "notify", "Request": {"Channels": ["#ops", "#dev"], "Title": "Loaded $EventID", **request}}


@pytest.fixture
def batch(batch):
    batch.settings = {"allowed_hosts": ("api.example",), "slack_token": SecretStr("xoxb-1")}
    return batch


async def test_push_carries_its_key_and_its_attributes(batch):
    request = {"Topic": "news", "Message": {"urls": "$LoadURIs", "n": 1}, "Attributes": {"count": 2, "e": "$EventID"}}
    batch.upload("a.json")
    await batch.run({"Action": "push", "Request": request})
    (message,) = batch.messages()
    assert orjson.loads(message.data) == {"urls": ["gs://inbox/a.json"], "n": 1}
    assert message.attributes == {
        "count": "2",
        "e": "117",
        "ingestd-idempotency-key": "117-00002",
        "ingestd-event": "117",
    }


async def test_push_data_wins_and_is_bytes(batch):
    encoded = base64.b64encode(b"\x00\x01").decode()
    await batch.run({"Action": "push", "Request": {"Topic": "news", "Message": "text", "Data": encoded}})
    assert batch.messages()[0].data == b"\x00\x01"


async def test_push_to_a_missing_topic_is_a_failure(batch):
    with pytest.raises(ActionFailed) as failed:
        await batch.run({"Action": "push", "Request": {"Topic": "missing", "Message": "x"}})
    assert isinstance(failed.value.cause, Fatal)


async def test_a_call_carries_its_key_headers_and_body(batch):
    await batch.run(
        call(Method="post", Body={"e": "$EventID"}, Headers={"X-Mine": "$EventID", "user-agent": "me"}, Timeout="5s")
    )
    (asked,) = batch.http.asked
    assert (asked["method"], asked["url"], asked["limit"]) == ("POST", URL, timedelta(seconds=5))
    assert orjson.loads(asked["body"]) == {"e": "117"}
    assert asked["headers"] == {
        "Idempotency-Key": "117-00002",
        "Content-Type": "application/json",
        "X-Mine": "117",
        "user-agent": "me",
    }


async def test_a_call_reads_its_body_from_a_file(batch):
    batch.storage.write("outbox", "body", b"\xff\x00")
    await batch.run(call(Method="PUT", BodyURL="gs://outbox/body"))
    assert batch.http.asked[0]["body"] == b"\xff\x00"


async def test_a_call_proves_who_it_is(batch):
    await batch.run(call(Auth=True), call(Scopes=["a", "b"], Auth=True))
    assert [asked["headers"]["Authorization"] for asked in batch.http.asked] == [
        "Bearer identity-for-https://api.example/hook",
        "Bearer access-for-a,b",
    ]


@pytest.mark.parametrize(("status", "kind"), [(404, BadInput), (302, BadInput), (500, Transient), (429, Throttled)])
async def test_any_answer_but_success_is_a_failure(batch, status, kind):
    batch.http.answers = [HttpAnswer(status, {}, b"no")] * 9
    with pytest.raises(ActionFailed, match=f"answered {status}: no") as failed:
        await batch.run(call(Retries=0))
    assert isinstance(failed.value.cause, kind)
    assert "secret" not in str(failed.value)


async def test_a_stumbling_server_is_asked_again_under_the_same_key(batch):
    batch.http.answers = [HttpAnswer(503), Transient("reset"), HttpAnswer(200, {}, b"ok")]
    await batch.run(call(Retries=2))
    assert [asked["headers"]["Idempotency-Key"] for asked in batch.http.asked] == ["117-00002"] * 3


async def test_a_refusal_is_not_repeated(batch):
    batch.http.answers = [HttpAnswer(400)]
    with pytest.raises(ActionFailed):
        await batch.run(call(Retries=5))
    assert len(batch.http.asked) == 1


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://api.example/x", True),
        ("https://API.example:8443/x", True),
        ("https://deep.sub.wild.example/", True),
        ("https://wild.example/", False),
        ("https://api.example.evil.com/", False),
        ("https://evil.com/api.example", False),
        ("https://api.example@evil.com/", False),
        ("http://169.254.169.254/computeMetadata", False),
        ("ftp://api.example/", False),
        ("https://[bad/", False),
    ],
)
def test_only_allowed_hosts_are_called(url, allowed):
    hosts = ("api.example", "*.wild.example")
    if allowed:
        check_host(url, hosts)
        return
    with pytest.raises(BadInput):
        check_host(url, hosts)


async def test_without_an_allow_list_nothing_is_called(batch):
    batch.settings = {}
    with pytest.raises(ActionFailed, match="allowed_hosts"):
        await batch.run(call())
    assert batch.http.asked == []


async def test_a_large_answer_is_kept_in_part(batch):
    batch.http.answers = [HttpAnswer(200, {}, b"x" * 1_000_000)]
    await batch.run(call())
    assert len(batch.progress.response(2)["Body"]) < 100_000


async def test_notify_posts_to_every_channel(batch):
    batch.http.answers = [HttpAnswer(200, {}, b'{"ok": true, "ts": "1"}')] * 2
    await batch.run(notify(Message="$Error rows", From="ingestd"), error="bad")
    first, second = batch.http.asked
    assert first["url"] == "https://slack.com/api/chat.postMessage"
    assert first["headers"]["Authorization"] == "Bearer xoxb-1"
    body = orjson.loads(first["body"])
    assert (body["channel"], body["text"]) == ("#ops", "Loaded 117")
    assert body["attachments"] == [{"text": "bad rows", "fallback": "Loaded 117", "author_name": "ingestd"}]
    assert body["metadata"]["event_payload"]["idempotency_key"] == "117-00002"
    assert orjson.loads(second["body"])["channel"] == "#dev"


async def test_notify_uploads_a_body_as_a_file(batch):
    batch.http.answers = [
        HttpAnswer(200, {}, b'{"ok": true, "upload_url": "https://files.slack.com/u/1", "file_id": "F1"}'),
        HttpAnswer(200, {}, b"OK - 5"),
        HttpAnswer(200, {}, b'{"ok": true}'),
    ]
    await batch.run(notify(Channels="#ops", Body={"a": 1}, Filename="r.json"))
    ask, put, share = batch.http.asked
    assert ask["url"].endswith("/files.getUploadURLExternal") and ask["body"] == b"filename=r.json&length=7"
    assert (put["url"], put["body"]) == ("https://files.slack.com/u/1", b'{"a":1}')
    assert "Authorization" not in put["headers"]
    assert orjson.loads(share["body"]) == {"files": [{"id": "F1", "title": "Loaded 117"}], "channel_id": "#ops"}


async def test_an_upload_address_elsewhere_is_not_followed(batch):
    batch.http.answers = [HttpAnswer(200, {}, b'{"ok": true, "upload_url": "https://evil.com/", "file_id": "F1"}')]
    with pytest.raises(ActionFailed, match=r"evil\.com"):
        await batch.run(notify(Channels="#ops", Body="x"))
    assert len(batch.http.asked) == 1


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("channel_not_found", BadInput), ("invalid_auth", Fatal), ("ratelimited", Throttled), ("fatal_error", Transient)],
)
async def test_slacks_refusals_are_told_apart(batch, reason, kind):
    batch.http.answers = [HttpAnswer(200, {}, orjson.dumps({"ok": False, "error": reason}))] * 9
    with pytest.raises(ActionFailed, match=reason) as failed:
        await batch.run(notify(Message="x"))
    assert isinstance(failed.value.cause, kind)


async def test_the_token_comes_from_a_file_or_the_rules_credentials(batch, tmp_path):
    file = tmp_path / "token"
    file.write_text("xoxb-file\n")
    batch.settings = {"slack_token_file": file}
    batch.storage.write("outbox", "slack.json", b'{"Token": "xoxb-object"}')
    await batch.run(
        notify(Channels="#ops", Message="x"),
        notify(Channels="#ops", Message="x", Credentials={"URL": "gs://outbox/slack.json"}),
        notify(Channels="#ops", Message="x", Token="xoxb-own"),
    )
    tokens = [asked["headers"]["Authorization"] for asked in batch.http.asked]
    assert tokens == ["Bearer xoxb-file", "Bearer xoxb-object", "Bearer xoxb-own"]


async def test_without_a_token_the_message_says_where_to_put_one(batch):
    batch.settings = {}
    with pytest.raises(ActionFailed, match="slack_token_file"):
        await batch.run(notify(Message="x"))
