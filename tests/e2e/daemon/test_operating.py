"""Running it: rules that change, probes, metrics, logs, and the end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from tests.support.e2e.processes import Daemon
from tests.support.e2e.world import LOADED, World
from tests.support.rule_documents import FILE, alone
from tests.support.waiting import ended, eventually

from ingestd.localcloud.faults import Fault, FaultKind, FaultPlan
from ingestd.settings import Settings


def problems(daemon: Daemon) -> list[str]:
    found: list[str] = daemon.status()["rule_problems"]
    return found


def test_rules_are_reloaded_and_a_broken_edit_keeps_the_last_good_version(world: World) -> None:
    world.prepared(alone())
    daemon = world.start(rules={"check_every": "100ms"})
    (good,) = daemon.status()["rules"]
    world.rule('{"When": {"Prefix": "/data/case002"}, "Dest": {"Tabel": "bqtail.dummy"}}')
    (problem,) = world.until(lambda: problems(daemon))
    assert "rules/rule.json:1" in problem
    assert "Tabel" in problem
    assert "Table" in problem
    assert daemon.status()["rules"] == [good]
    assert daemon.metric("ingestd_rule_problems") == 1
    world.upload()
    world.until(lambda: world.statuses() == ["done"])
    assert world.rows() == LOADED
    assert len(daemon.said("rules.file_broken")) == 1, "said once, however often it is looked at"
    world.rule(alone(OnSuccess=[]))
    world.until(lambda: not problems(daemon))
    assert daemon.status()["rules"] != [good]


def test_sighup_reloads_rules_at_once(world: World) -> None:
    world.table()
    daemon = world.start(rules={"check_every": "1h"})
    assert daemon.status()["rules"] == []
    world.rule(alone())
    daemon.send(signal.SIGHUP)
    world.until(lambda: daemon.status()["rules"])
    world.upload()
    world.until(lambda: world.statuses() == ["done"])
    assert daemon.alive


def test_rules_may_live_in_a_folder(world: World) -> None:
    folder = world.folder / "rules"
    folder.mkdir()
    (folder / "rule.yaml").write_text(
        "When: {Prefix: /data/case002, Suffix: .json}\nAsync: true\nDest: {Table: bqtail.dummy}\n"
    )
    world.table()
    world.start(rules={"url": str(folder)})
    world.upload()
    world.until(lambda: world.statuses() == ["done"])
    assert world.rows() == LOADED


def test_sigterm_finishes_what_is_in_flight_and_exits_0(world: World, faults: FaultPlan) -> None:
    world.prepared(alone(asynchronous=False))
    faults.add(Fault("bigquery", "job.load", FaultKind.DELAY, seconds=4.0, resource=f"{world.project}/*"))
    daemon = world.command(drain="20s")
    world.upload()
    world.until(lambda: world.jobs("load"))
    daemon.send(signal.SIGTERM)
    eventually(lambda: daemon.get("/readyz").status_code == 503, "draining is not ready")
    assert daemon.get("/healthz").status_code == 200
    assert daemon.command is not None
    assert ended(daemon.command, daemon.said) == 0
    assert world.statuses() == ["done"]
    assert world.rows() == LOADED
    assert not world.exists()
    assert world.backlog(world.notifications) <= 1, "at most the delete's own notification is left"
    assert [one["message"] for one in daemon.said("daemon.")] == ["daemon.started", "daemon.draining", "daemon.stopped"]


def test_sigterm_hands_over_what_does_not_finish_within_the_grace_period(world: World, faults: FaultPlan) -> None:
    world.prepared(alone(asynchronous=False))
    faults.add(Fault("bigquery", "job.load", FaultKind.DELAY, seconds=15.0, resource=f"{world.project}/*"))
    first = world.start(drain="1s", recovery={"lease": "1h"})
    world.upload()
    world.until(lambda: world.jobs("load"))
    first.send(signal.SIGTERM)
    first.wait()
    assert world.jobs("load")[0].state != "DONE", "it did not wait for the job"
    assert first.said()[-1]["message"] == "daemon.stopped"
    (record,) = world.records("Running")
    assert record["LeaseUntil"] is None, "the next one need not wait for the lease"
    world.start()
    world.until(lambda: world.statuses() == ["done"])
    assert world.rows() == LOADED
    assert len(world.jobs("load")) == 1


def test_an_idle_daemon_stops_at_once(world: World) -> None:
    daemon = world.start(drain="1h")
    daemon.send(signal.SIGTERM)
    daemon.wait()
    assert daemon.said()[-1]["message"] == "daemon.stopped"


def test_probes_status_and_metrics_tell_how_it_is(world: World) -> None:
    world.prepared(alone())
    daemon = world.start()
    assert daemon.get("/healthz").text == "ok\n"
    assert daemon.get("/readyz").text == "ready\n"
    world.upload()
    world.ended("done")
    status = daemon.status()
    assert status["project"] == world.project
    assert status["ready"] is True
    assert [one["name"] for one in status["rules"]] == ["rule"]
    assert status["in_flight"] == {world.notifications: 0, world.completions: 0}
    assert daemon.metric("ingestd_messages_received_total", subscription=world.notifications) >= 1
    assert daemon.metric("ingestd_batches_total", kind="load", phase="done") == 1
    assert daemon.metric("ingestd_files_total", phase="done") == 1
    assert daemon.metric("ingestd_rows_loaded_total") == 2
    assert daemon.metric("ingestd_bytes_loaded_total") > 0
    assert daemon.metric("ingestd_jobs_total", kind="load", outcome="succeeded") == 1
    assert daemon.metric("ingestd_job_seconds_count", kind="load") == 1
    assert daemon.metric("ingestd_actions_total", action="delete", outcome="succeeded") == 1
    assert daemon.metric("ingestd_file_latency_seconds_count") == 1
    assert time.time() - daemon.metric("ingestd_last_loaded_timestamp_seconds") < 60
    assert daemon.metric("ingestd_rules") == 1
    modern = httpx.get(
        f"{daemon.url}/metrics", headers={"Accept": "application/openmetrics-text"}, timeout=5, trust_env=False
    )
    assert modern.text.endswith("# EOF\n")


def test_logs_are_cloud_loggings_json_with_one_canonical_line_per_batch(world: World) -> None:
    world.prepared(alone())
    daemon = world.start()
    for number in range(3):
        world.upload(f"data/case002/dummy{number}.json", {"id": number, "name": "x"})
    world.until(lambda: world.statuses() == ["done"] * 3)
    world.settled()
    lines = daemon.said()
    assert lines
    for line in lines:
        assert {"severity", "message", "time"} <= line.keys()
        assert line["severity"] in {"INFO", "WARNING", "ERROR"}
        assert line["time"].endswith("Z")
    canonical = daemon.said("batch.done")
    assert len(canonical) == 3
    assert {line["event_id"] for line in canonical} == {record["EventID"] for record in world.records()}
    (one,) = [line for line in canonical if line["source"].endswith("dummy1.json")]
    wanted: dict[str, Any] = {"dest": "bqtail.dummy", "files": 1, "rows": 1, "attempts": 1, "severity": "INFO"}
    assert wanted.items() <= one.items()
    assert one["rule"] == f"gs://{world.config}/rules/rule.json"
    assert 0 < one["seconds"] < 60


def test_settings_that_are_wrong_stop_it_before_it_starts(world: World) -> None:
    config = world.folder / "wrong.yaml"
    config.write_text(f"project: {world.project}\njobs:\n  pol_every: 5s\n")
    command = [Path(sys.executable).parent / "ingestd", "run", "--config", config]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert ended.returncode == 1
    assert "pol_every" in ended.stderr
    assert "poll_every" in ended.stderr
    assert "wrong.yaml:3" in ended.stderr.replace("\n", "")
    assert FILE not in ended.stderr


@pytest.mark.parametrize("deadline", ["500ms", "11m"])
def test_a_lease_that_pubsub_would_not_grant_is_refused(deadline: str) -> None:
    """Below a second it would even give messages back instead of keeping them."""
    with pytest.raises(ValidationError, match="ack_deadline"):
        Settings.model_validate({"project": "p", "intake": {"ack_deadline": deadline}})


def ingestd(world: World, *arguments: str) -> str:
    """A command as an operator runs it, beside the daemon and with its settings."""
    environ = {**os.environ, **world.cloud.endpoints.environ(), "COLUMNS": "300"}
    command = [Path(sys.executable).parent / "ingestd", *arguments, "--config", world.settings()]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=500)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_an_operator_learns_why_a_file_waits_and_has_it_tried_at_once(world: World) -> None:
    world.rule(alone())
    world.start(recovery={"retry_first": "1h", "retry_longest": "1h"})
    world.upload()
    world.until(lambda: any(record["RetryAt"] for record in world.records("Running")))
    url = f"gs://{world.trigger}/{FILE}"
    said = ingestd(world, "explain", url)
    assert "taken by rule" in said
    assert "accepted" in said
    assert "does not exist; create it" in said
    assert "next try" in said
    world.table()
    (record,) = world.records("Running")
    assert record["EventID"] in ingestd(world, "replay", url)
    world.until(lambda: world.statuses() == ["done"])
    assert world.rows() == LOADED
    assert not world.exists()
