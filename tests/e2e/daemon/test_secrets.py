"""Secrets written in rules, routes and tasks arrive where they are sent, and lie nowhere else.

The bucket keeps every version of every object, so what was written for a moment (a running record, a window, a deferred
task) is looked at as well as what is left.
"""

import json
from typing import Any

from tests.support.e2e.foreign_jobs import load, task
from tests.support.e2e.web import Web
from tests.support.e2e.world import World
from tests.support.rule_documents import alone

PLANTED = "pl4nted"
API = ("overview", "windows", "running", "batches", "rules", "errors", "quotas", "settings")


def secret(name: str) -> str:
    return f"{PLANTED}-{name}-5f1c9e"


def call(web: Web, path: str, **request: Any) -> dict[str, Any]:
    """A call with a secret wherever a call can have one."""
    return {
        "Action": "call",
        "Request": {
            "URL": f"{web.url}{path}?key={secret('query')}",
            "Method": "POST",
            "Headers": {"Authorization": f"Bearer {secret(path)}", "X-Partner": secret("header"), "Accept": "*/*"},
            "Body": {"user": "u", "password": secret("body"), "deep": [{"apiKey": secret("deep")}]},
            **request,
        },
    }


def notify() -> dict[str, Any]:
    return {"Action": "notify", "Request": {"Channels": ["#ops"], "Title": "loaded", "Token": secret("slack")}}


def where(name: str) -> dict[str, Any]:
    return {"Prefix": f"/data/{name}", "Suffix": ".json"}


def watched(world: World, web: Web, **settings: Any) -> dict[str, Any]:
    bucket = world.storage.bucket(world.ops)
    bucket.versioning_enabled = True
    bucket.patch()
    world.table()
    return {
        "actions": {"allowed_hosts": [web.host], "slack_url": f"{web.url}/api"},
        "load_state": {"enabled": True},
        "windows": {"late_patience": "1s", "grace": "100ms"},
        **settings,
    }


def everything(world: World) -> dict[str, str]:
    """Whatever lies in the ops bucket, or ever lay there, and all rows, as text by place."""
    found = {
        f"{blob.name}#{blob.generation}": f"{blob.metadata}"
        + blob.download_as_bytes(raw_download=True).decode(errors="replace")
        for blob in world.storage.list_blobs(world.ops, versions=True)
    }
    for dataset in world.bigquery.list_datasets():
        for table in world.bigquery.list_tables(dataset.dataset_id):
            if table.table_type == "TABLE":
                found[str(table.reference)] = str([tuple(row) for row in world.bigquery.list_rows(table)])
    for job in world.jobs():
        found[job.job_id] = json.dumps(job._properties, default=str)
    for log in world.folder.parent.glob("*.log"):
        found[str(log)] = log.read_text()
    return found


def leaks(found: dict[str, str]) -> list[str]:
    return sorted(f"{place}: …{text[max(0, text.index(PLANTED) - 80) :][:160]}" for place, text in found.items()
                  if PLANTED in text)  # fmt: skip


def test_a_secret_is_in_nothing_the_daemon_writes_says_or_shows(world: World, web: Web) -> None:
    topic, _heard = world.listening()
    push = {"Action": "push", "Request": {"Topic": topic, "Message": "x", "Attributes": {"token": secret("push")}}}
    web.answers["/refused"] = [400]  # and it answers with what it was sent
    web.answers[f"/refused?key={secret('query')}"] = [400]
    many = {"Window": {"DurationInSec": 1}, "Group": {"DurationInSec": 1, "OnDone": [call(web, "/group")]}}
    rules = {
        "sync": alone(False, When=where("sync"), OnSuccess=[{**call(web, "/sync"), "OnSuccess": [notify(), push]}]),
        "async": alone(True, When=where("async"), OnSuccess=[call(web, "/async")]),
        "many": alone(True, When=where("many"), OnSuccess=[call(web, "/many")], Batch=many),
        "bad": alone(True, When=where("bad"), OnSuccess=[call(web, "/refused")], OnFailure=[call(web, "/after")]),
    }
    for name, document in rules.items():
        world.rule(document, f"{name}.json")
    world.bigquery.create_dataset("mydataset")
    route = {"When": {"Dest": r".+:mydataset\.routed"}, "OnSuccess": [call(web, "/route")]}
    daemon = world.start(**watched(world, web, Routes=[route]))
    task(world, "mine_dispatch", OnSuccess=[call(web, "/byhand")])
    (mine,) = world.storage.list_blobs(world.ops, prefix="tasks/mine_dispatch")
    load(world, "mydataset.routed").result()
    load(world, "mydataset.by_hand", "mine_dispatch").result()
    for name in rules:
        world.upload(f"data/{name}/a.json")
    ends = ("/sync", "/async", "/many", "/group", "/refused", "/route", "/byhand")

    def called(path: str) -> bool:
        return any(one.path.startswith(path) for one in web.received)

    world.until(lambda: all(map(called, ends)) and len(world.records()) == 7)
    world.settled()

    for path in ends:
        (one,) = [one for one in web.received if one.path.startswith(path)]
        assert one.path == f"{path}?key={secret('query')}"
        assert one.headers["authorization"] == f"Bearer {secret(path)}"
        assert (one.headers["x-partner"], one.headers["accept"]) == (secret("header"), "*/*")
        assert one.json == {"user": "u", "password": secret("body"), "deep": [{"apiKey": secret("deep")}]}
    (posted,) = web.of("/api/chat.postMessage")
    assert posted.headers["authorization"] == f"Bearer {secret('slack')}"

    found = everything(world)
    found.pop(f"{mine.name}#{mine.generation}")  # what the user wrote
    source = f"gs://{world.trigger}/data/bad/a.json"
    paths = [f"/api/v1/{name}" for name in API] + [f"/api/v1/explain?path={source}", "/status", "/metrics"]
    paths += [f"/api/v1/explain?path={source}&full=true"]
    paths += [f"/api/v1/batches/{record['EventID']}" for record in world.records()]
    for path in paths:
        answer = daemon.get(path)
        assert answer.status_code == 200, path
        found[path] = answer.text
    assert leaks(found) == []
    assert any("Running/" in place for place in found) and any("tasks/" in place for place in found)
    assert any(".win" in place for place in found) and any(".err" in place for place in found)


def test_a_batch_under_way_gets_the_new_token_and_waits_for_an_action_that_is_gone(world: World, web: Web) -> None:
    """Stopped before its action and continued by another daemon, after the rule was edited, emptied and restored."""

    def written(token: str, path: str = "/hook") -> dict[str, Any]:
        headers = {"Authorization": token}
        return alone(True, OnSuccess=[{"Action": "call", "Request": {"URL": f"{web.url}{path}", "Headers": headers}}])

    settings = watched(world, web, rules={"url": f"gs://{world.config}/rules", "check_every": "200ms"})
    web.answers["/hook"] = [503]
    world.rule(written(secret("old")))
    first = world.start(**settings)
    world.upload()
    world.until(lambda: len(web.of("/hook")) >= 2)
    first.kill()
    world.rule(written(secret("new"), "/elsewhere"))
    world.start(**settings)
    waiting = world.until(
        lambda: [one for one in world.records("Running") if "no such action any more" in one["Error"]]
    )
    assert "rule.json" in waiting[0]["Error"]
    assert not web.of("/elsewhere"), "a secret never goes where the batch's own rule did not send it"
    web.answers["/hook"] = [200]
    world.rule(written(secret("new")))
    world.until(lambda: world.statuses() == ["done"])
    assert web.of("/hook")[-1].headers["authorization"] == secret("new")
    assert leaks(everything(world)) == []


def test_a_record_of_an_older_version_keeps_the_secret_it_holds(world: World, web: Web) -> None:
    world.rule(alone(True, OnSuccess=[call(web, "/hook")]))
    settings = watched(world, web)
    web.answers[f"/hook?key={secret('query')}"] = [503]
    first = world.start(**settings)
    world.upload()
    (record,) = world.until(lambda: world.records("Running") if web.received else [])
    first.kill()
    (name,) = [name for name in world.objects("journal/Running/") if name.endswith(".run")]
    record = {**world.document(name), "schema_version": 1}
    record["Rule"]["OnSuccess"] = [call(web, "/hook", Headers={"Authorization": "in clear"})]
    blob = world.storage.bucket(world.ops).blob(name)
    blob.reload()
    metadata = blob.metadata
    blob = world.storage.bucket(world.ops).blob(name)
    blob.metadata = metadata
    blob.upload_from_string(json.dumps(record))
    world.storage.bucket(world.config).blob("rules/rule.json").delete()
    web.answers.clear()
    web.received.clear()
    world.start(**settings)
    world.until(lambda: world.statuses() == ["done"])
    (received,) = web.received
    assert received.headers["authorization"] == "in clear"
