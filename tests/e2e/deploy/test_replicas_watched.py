"""Every panel and every alert, with two replicas of which one is idle and one is started again.

The series are those of real daemons (`/metrics`, after work and after none); their values are written here,
put into a real Prometheus, and asked with every expression. A gauge is one replica's: whoever adds up what both see, or
takes an idle replica's word for what was loaded last, is wrong here.
"""

import json
import math
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.e2e.deploy.prometheus import ALERTS, PANELS, answers
from tests.support.e2e.world import World
from tests.support.ports import free_port
from tests.support.rule_documents import alone
from tests.support.waiting import eventually

BEGAN = 1_700_000_100  # a multiple of five minutes: subqueries look at those
RESTART = 60  # minutes: replica a works until then, and after its restart has nothing to do
END = 100
PER_MINUTE = 6  # what every counter of a working replica grows by
HOURS_AGO = 4 * 3600
LIMIT_BYTES = 8e9

# What every replica sees of the whole deployment, and what both say then.
EVERYBODY_SEES = {
    "ingestd_batches_blocked_now": 0,
    "ingestd_batches_pending": 4,
    "ingestd_ordered_tables_held": 0,
    "ingestd_ordered_tables_waiting": 5,
    "ingestd_quota_used_ratio": 0.4,
    "ingestd_replicas_alive": 2,
    "ingestd_rule_problems": 0,
    "ingestd_rules": 2,
    "ingestd_memory_limit_bytes": LIMIT_BYTES,
    "ingestd_build_info": 1,
    "ingestd_spark_wanted": 0,
    "ingestd_spark_up": 0,
}
ITS_OWN = 3  # any other gauge of the working replica; 0 on the idle one and after the restart


@dataclass(frozen=True)
class Series:
    name: str
    labels: tuple[tuple[str, str], ...]
    kind: str

    def text(self, pod: str) -> str:
        labels = {**dict(self.labels), "namespace": "play", "pod": pod, "instance": f"{pod}:9090"}
        return self.name + "{" + ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items()) + "}"


Shape = list[Series]


def shape(metrics: str) -> Shape:
    found = []
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            found.append(Series(sample.name, tuple(sample.labels.items()), family.type))
    return found


@pytest.fixture
def shapes(world: World) -> tuple[Shape, Shape]:
    """Of a daemon that has worked, and of one that has only just begun."""
    world.prepared(alone(Async=False))
    daemon = world.start()
    for number in range(3):
        world.upload(f"data/case002/file{number}.json")
    world.upload("data/case002/bad.json", "this is no JSON")
    world.until(lambda: len(world.records()) == 4)
    busy = httpx.get(f"{daemon.url}/metrics", trust_env=False).text
    fresh = httpx.get(f"{world.start().url}/metrics", trust_env=False).text
    assert "_created" not in busy
    return shape(busy), shape(fresh)


def value(series: Series, minute: int, *, working: bool, idle: bool) -> float:
    now = BEGAN + 60 * minute
    if series.name.endswith("_timestamp_seconds"):
        if "last_pull" in series.name:
            return now - 5
        if "oldest" in series.name:
            return now - 120 if "pending" in series.name else 0
        return now - 30 if working else now * idle - idle * (now - BEGAN) - idle * HOURS_AGO
    if series.kind == "gauge":
        return EVERYBODY_SEES.get(series.name, ITS_OWN if working else 0)
    if series.kind == "histogram" and series.name.endswith("_bucket"):
        slow = float(dict(series.labels)["le"]) >= 2.5
        return PER_MINUTE * minute if working and slow else 0
    if series.kind == "info":
        return 1
    return PER_MINUTE * minute if working else 0


def timeline(busy: Shape, fresh: Shape, successor: str) -> Iterator[tuple[str, float, int]]:
    """Series, value, time: replica b is idle all the time, a works and is then started again (or replaced)."""
    for minute in range(END + 1):
        now = BEGAN + 60 * minute
        working = minute < RESTART
        for series in busy if working else fresh:
            yield series.text("a" if working else successor), value(series, minute, working=working, idle=False), now
        for series in busy:
            yield series.text("b"), value(series, minute, working=False, idle=True), now


@pytest.fixture(params=["a", "c"], ids=["restarted in place", "replaced by another pod"])
def asked(
    request: pytest.FixtureRequest, shapes: tuple[Shape, Shape], tools: Callable[[str], Path], tmp_path: Path
) -> Iterator[Callable[[str, int], dict[str, float]]]:
    """`asked(expression, minute)`: what a real Prometheus answers, by the labels it leaves."""
    samples: dict[str, list[str]] = {}
    for series, number, now in timeline(*shapes, request.param):
        samples.setdefault(re.split(r"[{]", series)[0], []).append(f"{series} {number} {now}")
    lines = [line for name, found in sorted(samples.items()) for line in (f"# TYPE {name} unknown", *found)]
    (tmp_path / "openmetrics").write_text("\n".join([*lines, "# EOF", ""]))
    command = [
        tools("promtool"),
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        tmp_path / "openmetrics",
        tmp_path / "data",
    ]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-2000:]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": []}))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = [tools("prometheus"), f"--config.file={tmp_path}/prometheus.yaml", f"--storage.tsdb.path={tmp_path}/data"]
    server += [f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=100y"]
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(server, stdout=log, stderr=log)
    try:
        eventually(lambda: answers(url), lambda: (tmp_path / "prometheus.log").read_text()[-2000:])
        variables = {"$namespace": "play", "$__rate_interval": "5m", "$rule": _rule(shapes[0])}

        def ask(expression: str, minute: int) -> dict[str, float]:
            for name, chosen in variables.items():
                expression = expression.replace(name, chosen)
            query = {"query": expression, "time": str(BEGAN + 60 * minute)}
            answer = httpx.get(f"{url}/api/v1/query", params=query, trust_env=False).json()
            assert answer["status"] == "success", (expression, answer)
            result = answer["data"]["result"]
            return {json.dumps(one["metric"], sort_keys=True): float(one["value"][1]) for one in result}

        yield ask
    finally:
        process.kill()
        process.wait()


def _rule(busy: Shape) -> str:
    return next(dict(one.labels)["rule"] for one in busy if one.name == "ingestd_rule_rows_loaded_total")


SHOWN = 45  # a moment while a works
AFTER = 80  # and one long enough after its restart for every rate to have seen only that
RATE = PER_MINUTE / 60

# Each panel's query: what its values add up to while a works, and after its restart. A number per series is a rate.
PER_SERIES = "per series"
LATEST = "since the newest load"
Expected = tuple[object, object]
EXPECTED: dict[tuple[str, str, str], Expected] = {
    ("overview", "Data late", "A"): (120, 120),
    ("overview", "Blocked batches", "A"): (0, 0),
    ("overview", "Overdue window", "A"): (0, 0),
    ("overview", "Quota used", "A"): (0.4, 0.4),
    ("overview", "Failed batches, 1 h", "A"): (PER_SERIES, PER_SERIES),
    ("overview", "Replicas", "A"): (2, 2),
    ("overview", "Freshness per rule", "A"): (LATEST, LATEST),
    ("overview", "Last event, last load", "A"): (LATEST, LATEST),
    ("overview", "Last event, last load", "B"): (LATEST, LATEST),
    ("overview", "Open windows", "A"): (ITS_OWN, 0),
    ("overview", "Open windows", "B"): (ITS_OWN, 0),
    ("overview", "Ordered tables", "A"): (0, 0),
    ("overview", "Ordered tables", "B"): (5, 5),
    ("overview", "Waiting for quotas", "A"): (ITS_OWN, 0),
    ("overview", "Work on Spark", "A"): (ITS_OWN, 0),
    ("overview", "Work on Spark", "B"): (ITS_OWN, 0),
    ("overview", "Tasks", "A"): (3 * ITS_OWN, 0),
    ("overview", "Sessions", "B"): (0, 0),
    ("overview", "Messages in flight", "A"): (2 * ITS_OWN, 0),
    ("overview", "Silence of subscriptions", "A"): (2 * 5, 2 * 5),
    ("overview", "Silence of subscriptions", "B"): (2 * 5, 2 * 5),
    ("overview", "Memory", "A"): (3 * ITS_OWN, 0),
    ("overview", "Memory", "B"): (2 * LIMIT_BYTES, 2 * LIMIT_BYTES),
    ("overview", "Scratch disk", "A"): (2 * ITS_OWN, 0),
    ("overview", "Versions", "A"): (2, 2),
    ("overview", "Retries", "A"): (0, 0),  # its series are born when a service first stumbles
    ("rule", "Freshness", "A"): (LATEST, LATEST),
}


def test_every_panel_is_right_with_an_idle_replica_and_after_a_restart(
    asked: Callable[[str, int], dict[str, float]], shapes: tuple[Shape, Shape]
) -> None:
    wrong = []
    for place, expression in PANELS.items():
        for minute, expected in zip((SHOWN, AFTER), EXPECTED.get(place, (PER_SERIES, PER_SERIES)), strict=True):
            found = asked(expression, minute)
            if not _as_expected(expression, found, expected, minute, shapes[0]):
                wrong.append((place, minute, expected, found, expression))
    assert wrong == []
    assert set(EXPECTED) <= set(PANELS)


def _as_expected(expression: str, found: dict[str, float], expected: object, minute: int, busy: Shape) -> bool:
    total = sum(value for value in found.values() if not math.isnan(value))
    if "histogram_quantile" in expression:
        # A histogram that nobody added to has no quantile, and one of the working replica lies where its bucket does.
        return bool(found) and (1 < max(found.values()) <= 2.5 if minute < RESTART else total == 0)
    if expected == LATEST:
        least = 30 if minute < RESTART else (minute - RESTART + 1) * 60 + 30
        # What was before a restart is known to five minutes.
        return len(found) == 1 and least <= total <= least + (0 if minute < RESTART else 300)
    if expected == PER_SERIES:
        metric = re.search(r"(\w+_total)\{([^}]*)\}\[", expression)
        assert metric, f"say what to expect of {expression}"
        wanted = re.search(r'(phase|fate)(!?=)"(\w+)"', metric[2])
        count = 0
        for one in busy:
            if one.name == metric[1]:
                labels = dict(one.labels)
                count += not wanted or (labels[wanted[1]] == wanted[3]) is (wanted[2] == "=")
        assert count, metric[1]
        if "[1h]" in expression:  # 15 of the last hour's minutes were before the restart at 80
            minutes = minute if minute < RESTART else RESTART - 1 - (minute - 60)
            return total == pytest.approx(count * PER_MINUTE * minutes, rel=0.1)
        return total == pytest.approx(count * RATE if minute < RESTART else 0)
    return bool(found) and total == pytest.approx(expected)


def test_alerts_on_what_is_counted_fire_for_the_working_replica_and_no_alert_fires_for_a_restart(
    asked: Callable[[str, int], dict[str, float]],
) -> None:
    alerts = [one for group in ALERTS["groups"] for one in group["rules"]]
    counted = {one["alert"] for one in alerts if "increase(" in one["expr"]}
    assert (
        {"IngestdBatchFailed", "IngestdActionsFailing", "IngestdLoadStateUnwritten"}
        <= counted
        < {one["alert"] for one in alerts}
    )
    for minute, expected in ((SHOWN, counted), (END, set())):
        fired = {one["alert"] for one in alerts if asked(one["expr"], minute)}
        assert fired == expected, minute
