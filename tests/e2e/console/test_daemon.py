"""The console's API on a real daemon process, over the wire: a file's story from upload to table."""

from typing import Any

import httpx
from tests.support.e2e.processes import Daemon
from tests.support.e2e.world import World
from tests.support.rule_documents import FILE, alone
from tests.support.waiting import eventually

SECRET = "slack-s3cret"


def ask(daemon: Daemon, what: str, **parameters: Any) -> Any:
    headers = {"Authorization": "Bearer open-sesame"}
    answer = httpx.get(f"{daemon.url}/api/v1/{what}", params=parameters, headers=headers, timeout=20, trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.json()


def steps(history: dict[str, Any]) -> dict[str, str]:
    return {step["what"]: step["text"] for step in history["steps"]}


def test_the_story_of_a_good_and_of_a_bad_file_is_told_and_nothing_secret(world: World) -> None:
    world.prepared(alone(asynchronous=False, OnFailure=[{"Action": "delete"}]), "orders.json")
    window = {"When": {"Prefix": "/slow/"}, "Dest": {"Table": "bqtail.dummy"}, "Batch": {"Window": {"Duration": "1h"}}}
    world.rule(window, "slow.json")
    daemon = world.start(http={"token": "open-sesame", "protect_metrics": False}, actions={"slack_token": SECRET})
    world.upload(FILE)
    world.upload("data/case002/bad.json", '{"id": "no number"}')
    world.upload("slow/a.json")
    eventually(lambda: ask(daemon, "batches")["total"] == 2, lambda: ask(daemon, "batches"))

    good = ask(daemon, "explain", path=f"gs://{world.trigger}/{FILE}")
    assert not good["complete"], "memory knows it: the journal was not looked through"
    (told,) = good["history"]
    assert told["phase"] == "done" and told["rows"] == 2
    assert {"uploaded", "rule", "batch", "load job", "action delete", "end"} <= steps(told).keys()

    full = ask(daemon, "explain", path=f"gs://{world.trigger}/{FILE}", full=1)
    assert full["complete"] and full["found"] is None, "it was deleted after the load"
    assert full["verdict"] == "taken by rule orders"
    assert [one["event_id"] for one in full["history"]] == [told["event_id"]]

    bad = ask(daemon, "explain", path=f"gs://{world.trigger}/data/case002/bad.json")
    assert bad["history"][0]["phase"] == "failed"
    assert bad["history"][0]["fate"] == "invalid_schema"
    told = steps(bad["history"][0])
    assert told["set aside"].startswith("invalid_schema: ") and told["set aside"].endswith("row 1, column id")
    assert "taken away since" in told["kept"], "OnFailure has deleted it"
    assert told["what to do"] == f"mend the file and upload it again to gs://{world.trigger}/data/case002/bad.json"
    troubles = ask(daemon, "errors")["items"]
    assert [one["kind"] for one in troubles] == ["quarantined"], "one bad file is one trouble"
    assert troubles[0]["reason"].startswith("invalid_schema, row 1, column id: ")

    (waiting,) = eventually(lambda: ask(daemon, "windows")["items"], "no window")
    assert (waiting["rule"], waiting["files"], waiting["owned"]) == ("slow", 1, True)
    slow = f"gs://{world.trigger}/slow/a.json"

    def place() -> list[str]:
        return [line for line in ask(daemon, "explain", path=slow)["plan"] if "the file waits in it" in line]

    eventually(place, "the file is not durable in its window")

    rules = {one["name"]: one for one in ask(daemon, "rules")["items"]}
    assert rules["orders"]["totals"]["rows"] == 2
    assert "there is no OnFailure" in rules["slow"]["warnings"][0]["message"]
    settings = httpx.get(
        f"{daemon.url}/api/v1/settings", headers={"Authorization": "Bearer open-sesame"}, trust_env=False
    ).text
    assert SECRET not in settings and "open-sesame" not in settings
    assert httpx.get(f"{daemon.url}/api/v1/overview", trust_env=False).status_code == 401
    assert daemon.metric("ingestd_rule_rows_loaded_total", rule="orders") == 2
    assert daemon.metric("ingestd_rule_files_total", rule="orders", fate="done") == 1
