"""`push`, `call`, `notify`: what leaves the daemon, and the keys by which receivers tell repetitions."""

from datetime import timedelta
from ipaddress import ip_address

import orjson
import pytest
from pydantic import SecretStr

from ingestd.actions import call as calls
from ingestd.actions.executor import ActionFailed
from ingestd.actions.hosts import check_host, reach
from ingestd.model.errors import BadInput, Fatal, Throttled, Transient
from ingestd.ports import HttpAnswer
from ingestd.rules.parsing import parse_file
from ingestd.rules.rule import plain
from ingestd.rules.source import FolderSource

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


@pytest.mark.parametrize("data", ["done", "20240101", "1641366893942630", "hello world", "AAE="])
async def test_push_data_wins_and_is_sent_as_it_stands(batch, data):
    """As bqtail sends it: text that would be base64 by chance is no other."""
    await batch.run({"Action": "push", "Request": {"Topic": "news", "Message": "text", "Data": data}})
    assert batch.messages()[0].data == data.encode()


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


async def test_a_body_that_is_too_large_is_neither_read_nor_sent(batch, monkeypatch):
    monkeypatch.setattr(calls, "_LARGEST_BODY", 100)
    batch.storage.write("outbox", "body", b"x" * 101)
    with pytest.raises(ActionFailed, match=r"BodyURL: gs://outbox/body: 101 bytes, and at most 100 are read"):
        await batch.run(call(Method="PUT", BodyURL="gs://outbox/body"))
    assert not batch.http.asked


async def test_a_token_is_not_looked_for_in_a_large_file(batch):
    batch.storage.write("outbox", "slack.json", b"x" * (64 * 1024 + 1))
    with pytest.raises(ActionFailed, match=r"Credentials\.URL: gs://outbox/slack\.json: 65537 bytes"):
        await batch.run(notify(Channels="#ops", Message="x", Credentials={"URL": "gs://outbox/slack.json"}))
    assert not batch.http.asked


async def test_the_variables_of_a_body_in_a_bucket_are_filled_in(batch):
    batch.storage.write("outbox", "body.txt", b'{"BatchID": "$EventID", "URIS": "$URLs"}')
    batch.values = {"URLs": "gs://in/a.json,gs://in/b.json"}
    await batch.run(call(Method="POST", BodyURL="gs://outbox/body.txt"))
    sent = orjson.loads(batch.http.asked[0]["body"])
    assert sent == {"BatchID": "117", "URIS": "gs://in/a.json,gs://in/b.json"}


async def test_a_body_beside_its_rule_is_sent_filled_in(batch, tmp_path):
    (tmp_path / "body.txt").write_text("batch $EventID")
    action = call(Method="POST", BodyURL="body.txt")
    rule = orjson.dumps({"Dest": {"Table": "a.b"}, "OnSuccess": [action]})
    source = FolderSource(tmp_path)
    parsed = await parse_file(f"{tmp_path}/rule.json", rule, source.root, source.read)
    (read,) = plain(parsed.rules[0].rule.spec)["OnSuccess"]
    await batch.run(read)
    assert batch.http.asked[0]["body"] == b"batch 117"


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
        ("https://API.example:443/x", True),
        ("https://api.example:8443/x", False),
        ("http://api.example:443/x", False),
        ("https://api.example:22/x", False),
        ("http://ported.example:8080/", True),
        ("http://ported.example/", False),
        ("http://any.example:9/", True),
        ("http://[::1]:8080/", True),
        ("http://[::1]/", False),
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
    hosts = ("api.example", "*.wild.example", "ported.example:8080", "any.example:*", "[::1]:8080")
    if allowed:
        check_host(url, hosts)
        return
    with pytest.raises(BadInput):
        check_host(url, hosts)


@pytest.mark.parametrize(
    ("host", "address", "reached"),
    [
        ("wild.example", "93.184.215.14", True),
        ("wild.example", "2606:2800:21f:cb07::1", True),
        ("wild.example", "10.1.2.3", False),
        ("wild.example", "127.0.0.1", False),
        ("wild.example", "169.254.169.254", False),
        ("wild.example", "::ffff:169.254.169.254", False),
        ("wild.example", "64:ff9b::a9fe:a9fe", False),
        ("wild.example", "192.168.7.7", True),
        ("corp.example", "10.1.2.3", True),
        ("corp.example", "fd00::7", True),
        ("corp.example", "100.64.1.1", True),
        ("corp.example", "127.0.0.1", False),
        ("corp.example", "169.254.169.254", False),
        ("corp.example", "fd20:ce::254", False),
        ("corp.example", "0.0.0.0", False),
        ("corp.example", "224.0.0.1", False),
        ("localhost", "127.0.0.1", True),
        ("localhost", "::1", True),
        ("localhost", "169.254.169.254", False),
        ("::1", "::1", True),
    ],
)
def test_a_name_leads_no_further_than_the_list_says(host, address, reached):
    """`wild.example` is allowed by a wildcard only; 192.168.7.7 and ::1 are listed themselves."""
    hosts = ("*.example", "*", "corp.example", "localhost", "192.168.7.*", "[::1]")
    url = f"http://[{host}]/" if ":" in host else f"http://{host}/"
    assert reach(url, hosts)(ip_address(address)) is reached


async def test_a_call_hands_on_what_its_host_may_lead_to(batch):
    await batch.run(call())
    (asked,) = batch.http.asked
    assert asked["reach"](ip_address("10.0.0.1")) and not asked["reach"](ip_address("169.254.169.254"))


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


@pytest.mark.parametrize("channel", ["#ops", "C012345678"])
async def test_notify_uploads_a_body_as_a_file(batch, channel):
    """Slack shares files with a channel's id alone; for a name, it tells the id when it posts a message."""
    posted = HttpAnswer(200, {}, b'{"ok": true, "ts": "1", "channel": "C012345678"}')
    batch.http.answers = [posted] if channel == "#ops" else []
    batch.http.answers += [
        HttpAnswer(200, {}, b'{"ok": true, "upload_url": "https://files.slack.com/u/1", "file_id": "F1"}'),
        HttpAnswer(200, {}, b"OK - 5"),
        HttpAnswer(200, {}, b'{"ok": true}'),
    ]
    await batch.run(notify(Channels=channel, Body={"a": 1}, Filename="r.json"))
    *posts, ask, put, share = batch.http.asked
    assert [orjson.loads(post["body"])["channel"] for post in posts] == (["#ops"] if channel == "#ops" else [])
    assert ask["url"].endswith("/files.getUploadURLExternal") and ask["body"] == b"filename=r.json&length=7"
    assert (put["url"], put["body"]) == ("https://files.slack.com/u/1", b'{"a":1}')
    assert "Authorization" not in put["headers"]
    told = {"files": [{"id": "F1", "title": "Loaded 117"}], "channel_id": "C012345678"}
    assert orjson.loads(share["body"]) == told


async def test_an_upload_address_elsewhere_is_not_followed(batch):
    batch.http.answers = [HttpAnswer(200, {}, b'{"ok": true, "upload_url": "https://evil.com/", "file_id": "F1"}')]
    with pytest.raises(ActionFailed, match=r"evil\.com"):
        await batch.run(notify(Channels="C012345678", Body="x"))
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


SEALED = {"URL": "gs://outbox/slack.json.enc", "Key": "ring/key"}


async def test_the_daemons_own_token_stands_for_one_that_a_key_encrypts(batch):
    await batch.run(notify(Channels="#ops", Message="x", Secret=SEALED))
    assert batch.http.asked[0]["headers"]["Authorization"] == "Bearer xoxb-1"


async def test_without_a_token_of_its_own_the_daemon_says_how_to_get_what_a_key_encrypts(batch):
    batch.settings = {}
    with pytest.raises(ActionFailed, match=r"Credentials\.Key.*set actions\.slack_token_file"):
        await batch.run(notify(Channels="#ops", Message="x", Secret=SEALED))


async def test_without_a_token_the_message_says_where_to_put_one(batch):
    batch.settings = {}
    with pytest.raises(ActionFailed, match="slack_token_file"):
        await batch.run(notify(Message="x"))
