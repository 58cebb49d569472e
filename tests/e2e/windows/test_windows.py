"""Windows in real daemons over the wire: files load together, once, whoever dies meanwhile."""

import json
import signal
import time
from typing import Any

import pytest
from tests.support.e2e.world import World
from tests.support.waiting import early_in_a_window

from ingestd.localcloud.faults import Fault, FaultKind, FaultPlan

SEED_RULE = """[{"When": {"Prefix": "/data/case003", "Suffix": ".json"}, "Dest": {"Table": "bqtail.dummy"},
  "Batch": {"Window": {"DurationInSec": 10}}, "OnSuccess": [{"Action": "delete"}]}]"""
EAGER: dict[str, Any] = {"windows": {"flush_after": "200ms", "grace": "500ms", "late_patience": "2s"}}


def rule(seconds: int, table: str = "bqtail.dummy", **batch: Any) -> list[dict[str, Any]]:
    document = json.loads(SEED_RULE)
    document[0]["Dest"]["Table"] = table
    document[0]["Batch"] = {"Window": {"DurationInSec": seconds}, **batch}
    return document  # type: ignore[no-any-return]


def upload(world: World, number: int) -> tuple[str, int]:
    name = f"data/case003/dummy{number}.json"
    return name, world.upload(name, {"id": number, "name": "x"})


def expected(count: int) -> list[tuple[int, str]]:
    return [(number, "x") for number in range(count)]


def loads(world: World) -> list[Any]:
    return [job for job in world.jobs("load") if job.error_result is None]


def test_files_of_ten_seconds_load_together(world: World) -> None:
    """The second scenario, as a user writes it."""
    world.prepared(SEED_RULE)
    daemon = world.command()
    early_in_a_window(10, room=5)
    names = [upload(world, number)[0] for number in range(5)]
    (lock,) = world.until(lambda: [name for name in world.objects("batch/") if name.endswith(".win")])
    table, _, due = lock.removeprefix("batch/").removesuffix(".win").rsplit("_", 2)
    assert table == "bqtail.dummy"
    assert int(due) % 10 == 0
    assert int(due) >= time.time() - 10
    owner = world.document(lock)
    assert owner["EventID"].isdigit()
    # Acknowledged as soon as they are durable, not when the window is over.
    world.until(lambda: world.backlog(world.notifications) == 0 or world.rows())
    assert world.rows() == [] or time.time() > int(due)

    world.windows_settled()
    assert world.rows() == expected(5)
    assert not any(world.exists(name) for name in names)
    (job,) = loads(world)
    assert sorted(job.source_uris) == [f"gs://{world.trigger}/{name}" for name in names]
    (record,) = world.records()
    assert record["EventID"] == owner["EventID"]
    assert world.objects(f"journal/Done/bqtail.dummy/{record['Created'][:10]}/{record['EventID']}.run")
    (line,) = daemon.heard("window.closed")
    assert line["files"] == 5
    assert line["why"] == "due"


def test_two_thousand_files_for_two_tables_load_once_although_a_daemon_is_killed(world: World) -> None:
    tables = [f"bqtail.dummy_{part}" for part in range(2)]
    for table in tables:
        world.table(table)
    world.rule(rule(5, "bqtail.dummy_$Mod(2)"))
    some = {"windows": {**EAGER["windows"], "flush_files": 200}, "recovery": {"lease": "2s", "sweep_every": "500ms"}}
    first, second = world.start(mortal=True, **some), world.start(**some)
    count = 2000
    for number in range(count):
        # Straight into the cloud, which announces them as it does all others.
        data = json.dumps({"id": number, "name": "x"}).encode()
        world.cloud.storage.write(world.trigger, f"data/case003/f{number}.json", data, "application/json")
    world.until(lambda: len([name for name in world.objects("batch/") if name.count("/") == 2]) >= 2)
    first.kill()
    world.end_leases(first)
    world.windows_settled()
    rows = sorted(row for table in tables for row in world.rows(table))
    assert rows == expected(count)
    assert all(world.rows(table) for table in tables)
    assert world.objects("data/", world.trigger) == []
    assert second.alive
    assert len(loads(world)) <= 12


def test_a_window_survives_a_restart(world: World) -> None:
    world.prepared(rule(8))
    first = world.start(**EAGER)
    early_in_a_window(8, room=6)
    upload(world, 0)
    world.until(lambda: world.backlog(world.notifications) == 0)
    first.send(signal.SIGTERM)
    first.wait()
    assert world.rows() == []
    world.start(**EAGER)
    upload(world, 1)
    world.windows_settled()
    assert world.rows() == expected(2)
    assert len(loads(world)) == 1


def test_a_late_file_loads_in_a_window_of_its_own_and_a_duplicate_in_none(world: World, faults: FaultPlan) -> None:
    world.prepared(rule(2))
    world.start(**EAGER)
    early_in_a_window(2, room=1)
    name, generation = upload(world, 0)
    faults.add(Fault("storage", "notifications.publish", FaultKind.WITHHOLD, resource=f"{world.trigger}/*dummy1*"))
    late_name, late_generation = upload(world, 1)
    world.until(lambda: world.rows() == expected(1))
    world.windows_settled()
    world.announce(late_name, late_generation)
    world.announce(name, generation, times=3)
    world.windows_settled()
    assert world.rows() == expected(2)
    assert len(loads(world)) == 2
    assert not world.exists(late_name)


@pytest.mark.parametrize("limit", [{"MaxFiles": 4}, {"MaxBytes": "80B"}], ids=["files", "bytes"])
def test_a_full_window_does_not_wait_for_its_time(world: World, limit: dict[str, Any]) -> None:
    world.prepared(rule(3600, **limit))
    daemon = world.start(**EAGER)
    early_in_a_window(3600, room=60)
    for batch in range(2):
        for number in range(4):
            upload(world, batch * 4 + number)
        world.until(lambda: len(world.rows()) >= 4 * (batch + 1))  # noqa: B023
    world.windows_settled()
    assert world.rows() == expected(8)
    assert len(loads(world)) >= 2
    assert {line["why"] for line in daemon.said("window.closed")} == {"full"}
