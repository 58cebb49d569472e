"""Every post-action, written in a rule file and run by the whole daemon."""

import gzip
import json
from typing import Any

import pytest
from tests.support.e2e.web import Web
from tests.support.e2e.world import LOADED, SCHEMA, World
from tests.support.rule_documents import FILE, alone, modes


def run(world: World, follow_ups: list[dict[str, Any]], asynchronous: bool = True, **settings: Any) -> None:
    """Load one file with these follow-ups, to the end."""
    world.prepared(alone(asynchronous, OnSuccess=follow_ups))
    world.start(**settings)
    world.upload()
    world.until(lambda: world.records())
    world.settled()


def test_move_takes_the_source_away_and_into_a_watched_prefix_does_not_loop(world: World) -> None:
    inside = {"Action": "move", "Request": {"DestURL": f"gs://{world.trigger}/data/case002/done"}}
    run(world, [inside])
    moved = f"data/case002/done/{FILE}"
    assert not world.exists()
    assert world.exists(moved)
    world.ended("done", "ignored")
    assert world.rows() == LOADED
    assert world.exists(moved)


@modes
@pytest.mark.parametrize("name", ["delete", "move"])
def test_a_newer_upload_is_not_touched_by_what_follows_the_older_ones_load(
    world: World, web: Web, asynchronous: bool, name: str
) -> None:
    """It arrives between the older one's load and its delete (or move): it stays, and is loaded in its turn."""
    web.meanwhile["/hook"] = lambda: world.upload(FILE, {"id": 3, "name": "newer"})
    last = (
        {"Action": "delete"}
        if name == "delete"
        else {"Action": "move", "Request": {"DestURL": f"gs://{world.ops}/old"}}
    )
    world.prepared(alone(asynchronous, OnSuccess=[{"Action": "call", "Request": {"URL": f"{web.url}/hook"}}, last]))
    daemon = world.start(actions={"allowed_hosts": [web.host]})
    world.upload()
    world.ended("done", "done")
    assert world.rows() == [*LOADED, (3, "newer")]
    assert len(web.of("/hook")) == 2
    assert not world.exists()
    assert daemon.metric("ingestd_action_objects_total", action=name, fate="superseded") == 1
    if name == "move":
        assert json.loads(world.read(f"old/{FILE}")) == {"id": 3, "name": "newer"}


@modes
def test_table_actions_work_on_each_others_results(world: World, asynchronous: bool) -> None:
    world.table("bqtail.audit")
    run(
        world,
        [
            {"Action": "copy", "Request": {"Source": "$DestTable", "Dest": "bqtail.copied"}},
            {
                "Action": "query",
                "Request": {
                    "SQL": "SELECT id, CONCAT(name, '!') AS name FROM bqtail.copied WHERE id > 1",
                    "Dest": "bqtail.queried",
                    "Append": False,
                },
            },
            {"Action": "insert", "Request": {"SQL": "SELECT 9 AS id, '$EventID' AS name", "Dest": "bqtail.audit"}},
            {
                "Action": "export",
                "Request": {"Source": "bqtail.queried", "DestURL": f"gs://{world.ops}/export/out-*.json.gz"},
            },
            {"Action": "drop", "Request": {"Table": "bqtail.copied"}},
            {"Action": "delete"},
        ],
        asynchronous,
    )
    assert world.rows() == LOADED
    assert world.rows("bqtail.queried") == [(2, "b!")]
    assert {table.table_id for table in world.bigquery.list_tables("bqtail")} == {"audit", "dummy", "queried"}
    (record,) = world.records()
    assert world.rows("bqtail.audit") == [(9, record["EventID"])]
    (exported,) = world.objects("export/")
    assert json.loads(gzip.decompress(world.read(exported))) == {"id": "2", "name": "b!"}
    assert not world.exists()
    assert record["Status"] == "done"


def test_nested_lists_follow_success_or_failure_and_conditions_skip_what_they_guard(world: World) -> None:
    topic, heard = world.listening()

    def say(word: str) -> dict[str, Any]:
        return {"Action": "push", "Request": {"Topic": topic, "Message": word}}

    run(
        world,
        [
            {
                "Action": "query",
                "Request": {"SQL": "SELECT COUNT(*) AS n FROM $DestTable", "Dest": "bqtail.counted"},
                "OnSuccess": [say("counted"), {**say("deep"), "OnSuccess": [say("deeper")]}],
                "OnFailure": [say("never: the query succeeds")],
            },
            {
                "Action": "drop",
                "When": {"Exists": "bqtail.absent"},
                "Request": {"Table": "bqtail.dummy"},
                "OnSuccess": [say("never: below a condition that does not hold")],
            },
            {**say("exists"), "When": {"Exists": "bqtail.counted"}},
            {"Action": "delete"},
        ],
    )
    assert [message.data.decode() for message in world.pulled(heard, 4)] == ["counted", "deep", "deeper", "exists"]
    assert world.rows() == LOADED
    assert not world.exists()


@modes
def test_a_failing_action_runs_its_on_failure_stops_its_list_and_keeps_the_source(
    world: World, asynchronous: bool
) -> None:
    topic, heard = world.listening()
    told = {"Action": "push", "Request": {"Topic": topic, "Message": "failed: $Error"}}
    run(
        world,
        [
            {
                "Action": "query",
                "Request": {"SQL": "SELECT no_such_column FROM $DestTable", "Dest": "bqtail.queried"},
                "OnFailure": [told],
            },
            {"Action": "delete"},
        ],
        asynchronous,
    )
    (record,) = world.records()
    assert record["Status"] == "failed"
    assert "no_such_column" in record["Error"]
    (message,) = world.pulled(heard)
    assert b"no_such_column" in message.data
    assert world.rows() == LOADED, "the load stands"
    assert world.exists(), "nothing after the failed action ran"
    assert b"no_such_column" in world.read(world.objects("errors/bqtail.dummy/")[0])


def test_push_carries_json_attributes_and_the_key_that_tells_a_repetition(world: World) -> None:
    topic, heard = world.listening()
    message = {"dest": "$DestTable", "files": "$LoadURIs", "job": "$JobID"}
    action = {"Action": "push", "Request": {"Topic": topic, "Message": message, "Attributes": {"event": "$EventID"}}}
    run(world, [action])
    (record,) = world.records()
    (pushed,) = world.pulled(heard)
    assert json.loads(pushed.data) == {
        "dest": "bqtail.dummy",
        "files": [f"gs://{world.trigger}/{FILE}"],
        "job": record["JobID"],
    }
    assert pushed.attributes["event"] == record["EventID"]
    assert pushed.attributes["ingestd-idempotency-key"].startswith(record["EventID"])


@modes
def test_call_reaches_allowed_hosts_with_its_key_and_retries_a_stumbling_server(
    world: World, web: Web, asynchronous: bool
) -> None:
    web.answers["/hook?table=bqtail.dummy"] = [503, 200]
    request = {
        "URL": f"{web.url}/hook?table=$DestTable",
        "Method": "POST",
        "Body": {"rows": "$DestTable", "source": "$SourceURI"},
        "Headers": {"X-Team": "data"},
    }
    run(
        world,
        [{"Action": "call", "Request": request}, {"Action": "delete"}],
        asynchronous,
        actions={"allowed_hosts": [web.host]},
    )
    first, second = web.of("/hook?table=bqtail.dummy")
    assert second.method == "POST"
    assert second.json == {"rows": "bqtail.dummy", "source": f"gs://{world.trigger}/{FILE}"}
    assert second.headers["x-team"] == "data"
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert not world.exists()


def test_a_call_that_is_refused_is_a_failure(world: World, web: Web) -> None:
    web.answers["/hook"] = [404]
    action = {
        "Action": "call",
        "Request": {"URL": f"{web.url}/hook"},
        "OnFailure": [{"Action": "call", "Request": {"URL": f"{web.url}/failed", "Method": "PUT", "Body": "$Error"}}],
    }
    run(world, [action, {"Action": "delete"}], actions={"allowed_hosts": ["127.0.0.1:*"]})
    assert len(web.of("/hook")) == 1
    (told,) = web.of("/failed")
    assert b"404" in told.body
    assert world.statuses() == ["failed"]
    assert world.exists()


def test_a_host_nobody_allowed_is_never_called(world: World, web: Web) -> None:
    run(world, [{"Action": "call", "Request": {"URL": f"{web.url}/hook"}}, {"Action": "delete"}])
    assert web.received == []
    (record,) = world.records()
    assert record["Status"] == "failed"
    assert "actions.allowed_hosts" in record["Error"]
    assert world.exists()


def test_notify_posts_to_slack_and_uploads_a_body_without_showing_the_token(world: World, web: Web) -> None:
    token = world.folder / "slack-token"
    token.write_text("xoxb-secret\n")
    action = {
        "Action": "notify",
        "Request": {
            "Channels": ["#data", "#ops"],
            "Title": "Loaded $DestTable",
            "Message": "from $SourceURI",
            "From": "ingestd",
            "Filename": "event.json",
            "Body": {"event": "$EventID"},
        },
    }
    run(world, [action], actions={"slack_url": f"{web.url}/api", "slack_token_file": str(token)})
    (record,) = world.records()
    posted = [one.json for one in web.of("/api/chat.postMessage")]
    assert [one["channel"] for one in posted] == ["#data", "#ops"]
    assert posted[0]["text"] == "Loaded bqtail.dummy"
    assert posted[0]["attachments"][0]["text"] == f"from gs://{world.trigger}/{FILE}"
    assert posted[0]["metadata"]["event_payload"]["event_id"] == record["EventID"]
    shared = [one.json["channel_id"] for one in web.of("/api/files.completeUploadExternal")]
    assert shared == ["C012345678"] * 2, "Slack shares files with ids, as it told them"
    assert json.loads(web.of("/upload/1")[0].body) == {"event": record["EventID"]}
    assert web.of("/api/files.getUploadURLExternal")[0].form["filename"] == ["event.json"]
    assert {one.headers["authorization"] for one in web.received if one.path.startswith("/api/")} == {
        "Bearer xoxb-secret"
    }
    everything = "".join(log.read_text() for log in world.folder.parent.glob("*.log")) + json.dumps(record)
    assert "xoxb-secret" not in everything


def test_an_object_name_cannot_inject_sql(world: World) -> None:
    """Variables are quoted by their place in the statement, whatever a file is called."""
    world.table("bqtail.names", [SCHEMA[1]])
    world.table()
    name = "data/case002/x' FROM bqtail.dummy; DROP TABLE bqtail.dummy; --.json"
    sql = "INSERT INTO bqtail.names (name) VALUES ('$SourceURI')"
    world.rule(alone(OnSuccess=[{"Action": "query", "Request": {"SQL": sql}}]))
    world.start()
    world.upload(name)
    world.until(lambda: world.records())
    world.settled()
    assert world.rows("bqtail.names") == [(f"gs://{world.trigger}/{name}",)]
    assert world.rows() == LOADED


def test_a_table_an_action_needs_may_come_later(world: World) -> None:
    """A missing table stops this batch's list and nothing else; once it is there the list goes on where it stood."""
    topic, heard = world.listening()
    world.table()
    world.rule(
        alone(
            OnSuccess=[
                {"Action": "push", "Request": {"Topic": topic, "Message": "once"}},
                {"Action": "copy", "Request": {"Source": "bqtail.later", "Dest": "bqtail.copied"}},
                {"Action": "delete"},
            ]
        )
    )
    world.start()
    world.upload()
    world.until(lambda: any(record["RetryAt"] for record in world.records("Running")))
    assert world.exists()
    world.table("bqtail.later")
    world.ended("done")
    assert len(world.pulled(heard)) == 1
    assert not world.exists()


@pytest.mark.parametrize("name", ["copy", "export"])
def test_an_action_without_a_source_takes_the_loads_own_table(world: World, name: str) -> None:
    request = {"Dest": "bqtail.copied"} if name == "copy" else {"DestURL": f"gs://{world.ops}/export/all.csv"}
    run(world, [{"Action": name, "Request": request}])
    if name == "copy":
        assert world.rows("bqtail.copied") == LOADED
    else:
        assert world.read("export/all.csv") == b"id,name\n1,a\n2,b\n"
