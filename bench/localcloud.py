"""The local cloud's speed: each service with Google's client and with a raw one, beside its target.

Usage: python -m bench.localcloud

The parts (`bench.localcloud_storage` and so on) do the measuring, each against a server process of its own.
"""

import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

SERVICES = ("storage", "pubsub", "bigquery")
BIGQUERY = ("load", "select", "insert", "update")


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that was promised on two cores; `at_most` for times, where less is better."""

    value: float
    at_most: bool = False

    def ratio(self, measured: float) -> float:
        """How far the promise is kept: 1 and more is kept."""
        return round(self.value / measured if self.at_most else measured / self.value, 2)


TARGETS = {
    ("cloud", "ready_seconds"): Target(2, at_most=True),
    ("storage", "raw.ops_per_second"): Target(2_500),
    ("pubsub", "messages_per_second.pull_ack_raw"): Target(40_000),
    **{("bigquery", f"raw.{name}.median_ms"): Target(10, at_most=True) for name in BIGQUERY},
}


def cloud_start() -> dict[str, Any]:
    """How long `ingestd cloud` takes from the command to answering; the best of three, as imports come from a cache."""
    seconds = []
    with tempfile.TemporaryDirectory() as state:
        for _ in range(3):
            started = time.perf_counter()
            command = [sys.executable, "-m", "ingestd", "cloud", "--state", state]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                process.stdout.readline()
                seconds.append(time.perf_counter() - started)
                process.terminate()
    return {"ready_seconds": round(min(seconds), 2)}


def figures(result: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a part's result, under its dotted name."""
    for key, value in result.items():
        if isinstance(value, Mapping):
            yield from figures(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + key, float(value)


def main() -> int:
    results: dict[str, Any] = {}
    ratios: dict[str, float] = {}
    table = Table("service", "measured", "figure", "target", "kept", title="local cloud", title_justify="left")
    for service in ("cloud", *SERVICES):
        whole = service == "cloud"
        results[service] = cloud_start() if whole else importlib.import_module(f"bench.localcloud_{service}").run()
        for name, value in figures(results[service]):
            target = TARGETS.get((service, name))
            if (target is None and not ("per_second" in name or "median_ms" in name)) or "target" in name:
                continue  # the line of JSON has it
            promised = kept = ""
            if target is not None:
                ratio = ratios[f"{service}.{name}"] = target.ratio(value)
                promised = f"{'≤' if target.at_most else '≥'} {target.value:,.0f}"
                kept = f"{ratio:.2f}x"
            table.add_row(service, name, f"{value:,.2f}" if value < 100 else f"{value:,.0f}", promised, kept)
        table.add_section()
    Console(width=110).print(table)
    missing = [f"{service}.{name}" for service, name in TARGETS if f"{service}.{name}" not in ratios]
    if missing:
        print(f"not measured: {', '.join(missing)}", file=sys.stderr)
    print(json.dumps({"ratios": ratios, **results}))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
