"""Files of orders whose rule has them prepared on Spark: keys that several files have, and what is left of them."""

from typing import Any

from tests.support.e2e.processes import Daemon
from tests.support.e2e.world import World
from tests.support.spark.processes import children
from tests.support.waiting import early_in_a_window, eventually

SPARK = {
    "master": "local[2]",
    "heap": "1GiB",
    "warm_up": False,
    # A short life with small jobs: compiling little costs least.
    "conf": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
    "heartbeat": "500ms",
    "heartbeat_timeout": "8s",
    "restart_first": "100ms",
}
TABLE = "bqtail.orders"
FILES = 3
KEYS = 200
WINDOW = 4
RULE = {
    "When": {"Prefix": "/orders/", "Suffix": ".json"},
    "Dest": {
        "Table": TABLE,
        "UniqueColumns": ["id"],
        "OrderBy": ["version DESC"],
        "Transform": {"name": "CONCAT(UPPER(SUBSTR(t.name, 1, 2)), '!')"},
    },
    "Batch": {"Window": {"DurationInSec": WINDOW}},
    "OnSuccess": [{"Action": "delete"}],
}
SCHEMA = [{"name": "id", "type": "INTEGER"}, {"name": "name", "type": "STRING"}, {"name": "version", "type": "INTEGER"}]


def set_up(world: World) -> None:
    world.table(TABLE, schema=SCHEMA)
    world.rule(RULE)


def upload(world: World, padding: int = 0) -> None:
    """Files of one window, each with all keys; the padding makes them larger, and is gone after the transformation."""
    early_in_a_window(WINDOW, room=2.5)
    for number in range(FILES):
        name = f"n{number}{'x' * padding}"
        rows = [{"id": key, "name": name, "version": (key + number) % FILES} for key in range(KEYS)]
        world.upload(f"orders/{number}.json", *rows)


# One row per key: the one with the highest version, computed without any Spark.
EXPECTED = [(key, f"N{(FILES - 1 - key) % FILES}!", FILES - 1) for key in range(KEYS)]


def calls(daemon: Daemon) -> list[dict[str, Any]]:
    """What the daemon has on Spark right now."""
    found: list[dict[str, Any]] = daemon.status()["spark"]["calls"]
    return found


def java(daemon: Daemon) -> int:
    """The process of the daemon's JVM."""
    (found,) = eventually(lambda: children(daemon.pid, "org.apache.spark.deploy.SparkSubmit"), "no JVM")
    return int(found)
