"""Alerts and dashboards, tried on a real Prometheus that scrapes a real daemon.

Debian's `prometheus` package brings the server and promtool. Where it is not installed, it is unpacked into a folder of
the test's own; without apt the tests that need it are skipped.
"""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from tests.e2e.deploy.prometheus import ALERTS, DASHBOARDS, PANELS, answers, ask
from tests.support.e2e.world import World
from tests.support.places import ROOT
from tests.support.ports import free_port
from tests.support.rule_documents import alone
from tests.support.waiting import eventually


@pytest.fixture
def alerts(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(ALERTS))
    return tmp_path / "rules.yaml"


def test_every_alert_is_rehearsed_and_fires_as_promised(tools: Callable[[str], Path], alerts: Path) -> None:
    rehearsal = alerts.parent / "rehearsal.yaml"
    shutil.copy(ROOT / "tests/e2e/deploy/alerts_rehearsal.yaml", rehearsal)
    checked = subprocess.run([tools("promtool"), "check", "rules", alerts], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    played = subprocess.run(
        [tools("promtool"), "test", "rules", rehearsal], capture_output=True, text=True, check=False
    )
    assert played.returncode == 0, played.stdout + played.stderr
    names = {one["alert"] for group in ALERTS["groups"] for one in group["rules"]}
    tests = yaml.safe_load(rehearsal.read_text())["tests"]
    fired = {one["alertname"] for test in tests for one in test["alert_rule_test"] if one["exp_alerts"]}
    assert fired == names


def test_every_alert_has_its_page_in_the_runbook() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.+)$", page, re.M)
    }
    told = yaml.safe_load((ROOT / "k8s/monitoring/alerts/alerts.yaml").read_text())["metadata"]["annotations"]
    for group in ALERTS["groups"]:
        assert group["interval"], "Google's older CRDs demand it"
        for one in group["rules"]:
            url, _, anchor = one["annotations"]["runbook_url"].partition("#")
            assert url == told["ingestd/runbook"]
            assert urlsplit(url).scheme == "https"
            assert urlsplit(url).hostname
            assert anchor in anchors, one["alert"]


def test_where_the_runbook_lies_is_said_in_one_place(tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed; it renders the kustomizations")
    shutil.copytree(ROOT / "k8s/monitoring/alerts", tmp_path / "alerts")
    file = tmp_path / "alerts/alerts.yaml"
    file.write_text(re.sub(r"(ingestd/runbook: )\S+", r"\1https://wiki.example.com/run", file.read_text()))
    rendered = subprocess.run(["kubectl", "kustomize", file.parent], capture_output=True, text=True, check=True).stdout
    [group] = yaml.safe_load(rendered)["spec"]["groups"]
    urls = [one["annotations"]["runbook_url"] for one in group["rules"]]
    assert all(re.fullmatch(r"https://wiki\.example\.com/run#[a-z-]+", url) for url in urls), urls


def test_the_dashboards_are_what_their_list_of_panels_says(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "tools/dashboards", tmp_path], check=True)
    for file in DASHBOARDS.glob("*.json"):
        assert file.read_text() == (tmp_path / file.name).read_text(), f"run tools/dashboards: {file.name}"
        places = [panel["gridPos"] for panel in json.loads(file.read_text())["panels"]]
        assert all(place["x"] + place["w"] <= 24 for place in places)


@pytest.fixture
def scraped(world: World, tools: Callable[[str], Path], alerts: Path, tmp_path: Path) -> Iterator[str]:
    """A daemon under load: files that load, one that does not, actions, a message that nobody can read."""
    server = tools("prometheus")
    world.prepared({**alone(Async=False), "Info": {"Workflow": "orders"}})
    windowed = {"When": {"Prefix": "/windowed/"}, "Dest": {"Table": "bqtail.dummy"}}
    world.rule({**windowed, "Batch": {"Window": {"DurationInSec": 3600}}}, "windowed.json")
    daemon = world.start()
    port, target = free_port(), daemon.url.removeprefix("http://")
    config = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s"},
        "rule_files": [str(alerts)],
        "scrape_configs": [
            {"job_name": "ingestd", "static_configs": [{"targets": [target], "labels": {"namespace": "play"}}]}
        ],
    }
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    command = [server, f"--config.file={tmp_path}/prometheus.yaml", f"--storage.tsdb.path={tmp_path}/data"]
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        # Every counter is scraped at zero before it moves.
        eventually(lambda: answers(url) and ask(url, "count_over_time(ingestd_rules[1m]) > 1"), "nothing is scraped")
        for number in range(6):
            world.upload(f"data/case002/file{number}.json")
        world.upload("data/case002/bad.json", "this is no JSON")
        world.upload("windowed/waits.json")
        world.publisher.publish(topic=world.topic, messages=[{"data": b"nobody can read this"}])
        world.until(lambda: len(world.records()) == 7)
        time.sleep(1.2)
        yield url
    finally:
        process.kill()
        process.wait()


def test_every_panel_and_every_alert_finds_its_data_in_a_real_prometheus_and_those_fire_that_should(
    scraped: str,
) -> None:
    names = [one["metric"]["rule"] for one in ask(scraped, 'ingestd_rule_files_total{fate="done"}')]
    filled = {"$namespace": "play", "$__rate_interval": "10s", "$rule": sorted(names)[0]}
    empty = []
    for place, query in PANELS.items():
        for variable, value in filled.items():
            query = query.replace(variable, value)
        if not ask(scraped, query):
            empty.append((*place, query))
    assert empty == []
    for group in ALERTS["groups"]:
        for one in group["rules"]:
            first = one["expr"].partition(" and ")[0]
            measured = re.sub(r"^absent\((.*)\)$", r"\1", re.sub(r" [<>] [\d.]+$", "", first))
            # A gauge of moments is 0 while nothing is pending, and then there is nothing to measure.
            assert ask(scraped, re.sub(r"\((\w+) > 0\)", r"\1", measured)), one["alert"]

    def firing() -> set[str]:
        listed = httpx.get(f"{scraped}/api/v1/alerts", trust_env=False).json()["data"]["alerts"]
        return {one["labels"]["alertname"] for one in listed if one["state"] == "firing"}

    eventually(lambda: {"IngestdBatchFailed", "IngestdDeadLetters"} <= firing(), lambda: firing())
