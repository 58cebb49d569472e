"""What Prometheus and Grafana are given, and a running Prometheus."""

import json
from typing import Any

import httpx
import yaml
from tests.support.places import ROOT

ALERTS = yaml.safe_load((ROOT / "k8s/monitoring/alerts/alerts.yaml").read_text())["spec"]

DASHBOARDS = ROOT / "k8s/monitoring/dashboards"

PANELS = {
    (file.stem, panel["title"], target["refId"]): target["expr"]
    for file in sorted(DASHBOARDS.glob("*.json"))
    for panel in json.loads(file.read_text())["panels"]
    for target in panel.get("targets", [])
}


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def ask(url: str, query: str) -> list[Any]:
    answer = httpx.get(f"{url}/api/v1/query", params={"query": query}, trust_env=False).json()
    assert answer["status"] == "success", (query, answer)
    found: list[Any] = answer["data"]["result"]
    return found
