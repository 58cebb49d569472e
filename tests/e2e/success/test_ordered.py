"""Ordered tables in real daemons over the wire: order, lateness, failures and what people do about them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.e2e.directories import batch, put, records, settings
from tests.support.e2e.world import World
from typer.testing import CliRunner

from ingestd.cli.main import app
from ingestd.localcloud.faults import Fault, FaultKind, FaultPlan

FOLDER = "bqtail/t"


def prepared(world: World, *tables: str) -> None:
    for table in tables or ("t",):
        world.table(f"bqtail.{table}")
        put(world, f"bqtail/{table}/_config/ORDERME")


def arrive(world: World, *numbers: int, table: str = "t") -> None:
    for number in numbers:
        batch(world, f"bqtail/{table}/b{number:02d}", f"{number},x\n")


def committed(world: World, table: str = "t") -> list[int]:
    """The batches in the order in which BigQuery committed them."""
    jobs = [job for job in world.jobs("load") if not job.error_result and job.destination.table_id == table]
    ended = sorted((job for job in jobs if job.state == "DONE"), key=lambda job: job.ended)
    return [int(job.source_uris[0].split("/")[-2][1:]) for job in ended]


def idle(world: World) -> None:
    world.until(lambda: not any("/queue/" in name for name in world.objects("journal/ordered/")) and world.quiet())


def waiting(world: World) -> list[str]:
    return [
        name.partition("/queue/")[2].partition("/")[0]
        for name in world.objects("journal/ordered/")
        if "/queue/" in name
    ]


def state(world: World, table: str = "t") -> dict[str, Any]:
    found = [name for name in world.objects(f"journal/ordered/bqtail.{table}-") if name.endswith("/state.json")]
    return world.document(found[0]) if found else {}


def held(world: World, why: str, table: str = "t") -> None:
    world.until(lambda: state(world, table).get("Hold") == why)


def command(world: World, config: Path, *arguments: str) -> str:
    ran = CliRunner().invoke(app, ["ordered", *arguments, "--config", str(config)], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_w04_w05_batches_commit_in_order_a_late_one_is_applied_and_duplicates_never_block(world: World) -> None:
    prepared(world)
    world.start(**settings(world, order_grace="1500ms"))
    arrive(world, 3, 1, 2)
    idle(world)
    assert committed(world) == [1, 2, 3]
    arrive(world, 5)
    idle(world)
    arrive(world, 4)  # late: 05 was committed before
    for name, record in records(world).items():
        world.announce(name, int(record["Success"]["Generation"]), times=2)  # duplicates never block a table
    idle(world)
    arrive(world, 6)
    idle(world)
    assert committed(world) == [1, 2, 3, 5, 4, 6]
    assert len(world.records()) == 6


@pytest.mark.usefixtures("emulators")
def test_a_late_batch_is_held_or_rejected_where_the_settings_say_so(world: World) -> None:
    prepared(world, "t", "u")
    conventions = {
        "success": {
            "order_grace": "0s",
            "conventions": [
                {"bucket": world.trigger, "prefix": "bqtail/t/", "late": "hold"},
                {"bucket": world.trigger, "prefix": "bqtail/u/", "late": "reject"},
            ],
        }
    }
    world.start(**conventions)
    config = world.settings(**conventions)
    for table in ("t", "u"):
        arrive(world, 2, table=table)
    idle(world)
    for table in ("t", "u"):
        arrive(world, 1, 3, table=table)
    held(world, "late")
    world.until(lambda: committed(world, "u") == [2, 3])
    rejected = records(world)["bqtail/u/b01/_SUCCESS"]
    assert rejected["Status"] == "failed"
    assert "late batches are rejected" in rejected["Error"]
    assert committed(world) == [2]
    shown = command(world, config, "show", "bqtail.t")
    assert "held       late" in shown
    assert "b01/_SUCCESS" in shown
    (document,) = json.loads(command(world, config, "show", "bqtail.t", "--json"))
    assert (document["hold"], document["committed"], len(document["waiting"])) == ("late", "b02/_SUCCESS", 1)
    assert "is tried again" in command(world, config, "retry", "bqtail.t")
    idle(world)
    assert committed(world) == [2, 1, 3]
    assert world.rows("bqtail.u") == [(2, "x"), (3, "x")]


@pytest.mark.usefixtures("emulators")
def test_w07_a_failed_batch_holds_its_table_alone_until_it_is_retried_or_skipped(world: World) -> None:
    prepared(world, "t", "other")
    world.start(**settings(world))
    config = world.settings(**settings(world))
    batch(world, f"{FOLDER}/b01", "broken,x\n")
    held(world, "failed")
    arrive(world, 2)
    arrive(world, 1, table="other")
    world.until(lambda: committed(world, "other") == [1])
    assert committed(world) == []
    assert world.exists(f"{FOLDER}/_bqlock")

    # By command, after the data was mended.
    put(world, f"{FOLDER}/b01/part-0.csv", "1,x\n")
    assert "is tried again" in command(world, config, "retry", f"gs://{world.trigger}/{FOLDER}")
    idle(world)
    assert committed(world) == [1, 2]
    assert not world.exists(f"{FOLDER}/_bqlock")

    # By the gesture of old: delete the lock, drop _BACKFILL.
    batch(world, f"{FOLDER}/b03", "broken,x\n")
    held(world, "failed")
    arrive(world, 4)
    put(world, f"{FOLDER}/b03/part-0.csv", "3,x\n")
    world.storage.bucket(world.trigger).blob(f"{FOLDER}/_bqlock").delete()
    generation = put(world, f"{FOLDER}/_BACKFILL")
    idle(world)
    assert committed(world) == [1, 2, 3, 4]
    world.until(lambda: not world.exists(f"{FOLDER}/_BACKFILL"))

    # By uploading the success file again, which takes the place of the failed one.
    batch(world, f"{FOLDER}/b04", "broken,x\n")
    held(world, "failed")
    batch(world, f"{FOLDER}/b04", "4,again\n")
    idle(world)
    assert committed(world) == [1, 2, 3, 4, 4]
    assert not world.exists(f"{FOLDER}/_bqlock")

    # And left out, for good: not even a duplicate brings it back.
    broken = batch(world, f"{FOLDER}/b05", "broken,x\n")
    held(world, "failed")
    arrive(world, 6)
    world.announce(f"{FOLDER}/_BACKFILL", generation)  # the same gesture again means nothing
    assert "is left out" in command(world, config, "skip", "bqtail.t")
    idle(world)
    world.announce(f"{FOLDER}/b05/_SUCCESS", broken)
    idle(world)
    assert committed(world) == [1, 2, 3, 4, 4, 6]
    assert state(world)["Hold"] == ""
    assert records(world)[f"{FOLDER}/b05/_SUCCESS"]["Status"] == "failed"
    assert "nothing to skip" in command(world, config, "skip", "bqtail.t")


def test_w21_gate_and_validation_hold_under_new_arrivals(world: World) -> None:
    prepared(world)
    world.start(**settings(world, start_backfill_filename="_HISTORYDONE", wait_for_validation=True))
    arrive(world, 2, 1)
    put(world, f"{FOLDER}/_BACKFILL")  # does not open the gate
    world.until(lambda: waiting(world) == ["b01", "b02"] and world.quiet())
    assert committed(world) == []
    put(world, f"{FOLDER}/_HISTORYDONE")
    held(world, "validation")
    arrive(world, 3)
    world.until(lambda: "b03" in waiting(world) and world.quiet())
    assert committed(world) == [1]
    for expected in ([1, 2], [1, 2, 3]):
        put(world, f"{FOLDER}/_BACKFILL")
        world.until(lambda: committed(world) == expected)  # noqa: B023
        held(world, "validation")


def test_backfill_files_go_when_the_backlog_is_empty_and_not_before(world: World) -> None:
    """Scripts wait for that. Whoever dropped it, and even if there was nothing to do."""
    prepared(world)
    world.start(**settings(world, start_backfill_filename="_HISTORYDONE"))
    arrive(world, 2, 1)
    put(world, f"{FOLDER}/_BACKFILL")
    world.until(lambda: waiting(world) == ["b01", "b02"] and world.quiet())
    assert world.exists(f"{FOLDER}/_BACKFILL")
    put(world, f"{FOLDER}/_HISTORYDONE")
    idle(world)
    assert committed(world) == [1, 2]
    assert not world.exists(f"{FOLDER}/_BACKFILL")
    put(world, f"{FOLDER}/_BACKFILL")
    world.until(lambda: not world.exists(f"{FOLDER}/_BACKFILL"))


def test_w08_orderme_below_the_table_orders_what_lies_below_it(world: World) -> None:
    world.table("bqtail.t")
    put(world, f"{FOLDER}/incremental/_config/ORDERME")
    world.start(**settings(world, order_grace="1s"))
    for number in (2, 1):
        batch(world, f"{FOLDER}/incremental/b{number:02d}", f"{number},x\n")
    batch(world, f"{FOLDER}/historical/b09", "9,x\n")  # not ordered, and waits for nobody
    idle(world)
    assert [number for number in committed(world) if number != 9] == [1, 2]
    assert len(world.rows("bqtail.t")) == 3
    assert state(world)["Committed"].startswith("incremental/b02/")


def test_w09_w14_failing_loads_are_repeated_in_order_by_two_replicas_one_of_them_killed(
    world: World, faults: FaultPlan
) -> None:
    prepared(world)
    numbers = list(range(1, 9))
    gate = settings(world, start_backfill_filename="_HISTORYDONE")
    first, second = world.start(mortal=True, **gate), world.start(**gate)
    arrive(world, *reversed(numbers))
    world.until(lambda: len(waiting(world)) == len(numbers) and world.quiet())
    # Some loads fail for a moment: they are repeated, and nobody overtakes them.
    faults.add(
        Fault("bigquery", "job.load", FaultKind.FAIL, resource=f"{world.project}/*", times=2, reason="backendError")
    )
    put(world, f"{FOLDER}/_HISTORYDONE")
    world.until(lambda: len(committed(world)) >= 2)
    first.kill()
    world.end_leases(first)
    idle(world)
    assert committed(world) == numbers
    assert len(world.rows("bqtail.t")) == len(numbers)
    assert second.alive
