"""The load-state table over the wire: what it says, and that it says it whatever dies, refuses or repeats."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from google.cloud.bigquery import SchemaField, Table
from tests.support.e2e.directories import batch
from tests.support.e2e.directories import settings as convention
from tests.support.e2e.load_state import ON, TABLE, latest, rows, told
from tests.support.e2e.world import LOADED, World, at_once
from tests.support.rule_documents import FILE, alone

from ingestd.localcloud.faults import Fault, FaultKind, FaultPlan


def forbidden(world: World, method: str, times: int | None = None) -> Fault:
    place = f"{world.project}/bigquery_loads/*"
    return Fault("bigquery", method, FaultKind.FAIL, place, 403, "accessDenied", "no", times=times)


def test_a_batch_is_told_from_its_files_to_its_rows(world: World) -> None:
    world.prepared(alone())
    world.start(**ON)
    generation = world.upload()
    (state,) = told(world)
    (record,) = world.records()
    expected = {
        "event_id": record["EventID"],
        "revision": record["Revision"],
        "state": "done",
        "final": True,
        "origin": "rule",
        "batch_key": f"{world.trigger}/{FILE}#{generation}",
        "rule": "rule",
        "source_prefix": f"gs://{world.trigger}/data/case002/",
        "destination": f"{world.project}.bqtail.dummy",
        "files": 1,
        "files_loaded": 1,
        "files_set_aside": 0,
        "bytes": 45,
        "rows_loaded": 2,
        "job_ids": [record["JobID"]],
        "attempt": 1,
        "error": None,
        "uris": [f"gs://{world.trigger}/{FILE}#{generation}"],
        "schema_version": 1,
    }
    assert {key: state[key] for key in expected} == expected
    assert state["first_event_at"] <= state["created_at"] <= state["updated_at"] <= datetime.now(UTC)
    (table,) = rows(world, "_tables")
    assert (table["destination"], table["rows_loaded"], table["last_state"]) == (state["destination"], 2, "done")
    assert table["fresh_until"] == state["last_event_at"]
    made = world.bigquery.get_table(f"{world.project}.{TABLE}")
    assert made.time_partitioning.field == "updated_at"
    assert made.clustering_fields == ["destination", "state", "event_id"]


def test_many_batches_are_written_together_and_a_failed_one_says_why(world: World) -> None:
    world.prepared(alone(asynchronous=False))
    daemon = world.start(mortal=True, load_state={"enabled": True, "flush_every": "1s"})
    for number in range(20):
        world.upload(f"data/case002/good{number:02d}.json")
    world.upload("data/case002/bad.json", '{"id": "no number"}')
    states = told(world, 21)
    assert [state["state"] for state in states].count("done") == 20
    (failed,) = [state for state in states if state["state"] == "failed"]
    assert failed["source_prefix"].endswith("data/case002/")
    assert "id" in failed["error"]
    assert failed["files_set_aside"] == 1
    writes = [one for one in daemon.effects() if one.startswith("warehouse.insert_rows")]
    assert len(writes) <= 8, "many batches share a write"


BOUNDARIES = {
    "finished": "store.create gs://{ops}/journal/Done/",
    "told": "warehouse.insert_rows",
    "forgotten": "store.delete gs://{ops}/journal/Running/",
    "put away": "store.create gs://{ops}/journal/LoadState/",
}


def test_the_end_is_told_whenever_the_daemon_dies(new_world: Callable[[], World], faults: FaultPlan) -> None:
    def story(origin: str, boundary: str) -> None:
        world = new_world()
        world.table()
        if origin == "rule":
            world.rule(alone(asynchronous=False))
        on = {**ON, **convention(world)}
        if boundary == "put away":
            faults.add(forbidden(world, "tabledata.insertAll", times=1))
        effect = BOUNDARIES[boundary].format(ops=world.ops)
        first = world.start(dies_after=(effect, 1), **on)
        if origin == "rule":
            world.upload()
        else:
            batch(world, "bqtail/dummy/run1")
        first.wait()
        if boundary == "finished":
            assert rows(world) == [] or not any(row["final"] for row in rows(world))
        world.start(**on)
        (state,) = told(world)
        assert (state["state"], state["rows_loaded"], state["origin"]) == ("done", 2, origin), boundary
        world.until(lambda: not world.objects("journal/LoadState/"))
        assert world.rows() == LOADED
        twice = [row for row in rows(world) if row["final"]]
        assert all(row == twice[0] | {"replica": row["replica"]} for row in twice), "told twice, it is the same"

    stories = [("rule", boundary) for boundary in BOUNDARIES] + [("convention", "finished"), ("convention", "told")]
    with at_once(len(stories)) as pool:
        list(pool.map(story, *zip(*stories, strict=True)))


def test_a_table_that_refuses_rows_holds_up_no_batch(world: World, faults: FaultPlan) -> None:
    world.prepared(alone(asynchronous=False, OnSuccess=[]))
    for method in ("tabledata.insertAll", "tables.insert"):
        faults.add(forbidden(world, method))
    daemon = world.start(**ON)
    world.upload()
    world.until(lambda: world.objects("journal/LoadState/"))
    world.settled()
    assert world.rows() == LOADED
    assert daemon.heard("load_state.refused")
    assert latest(world) == []
    faults.clear()
    daemon.kill()
    world.start(**ON)
    (state,) = told(world)
    assert state["state"] == "done"


def test_columns_that_an_older_table_lacks_are_added_and_a_dropped_table_is_made_again(world: World) -> None:
    old = [("event_id", "STRING"), ("revision", "INTEGER"), ("updated_at", "TIMESTAMP"), ("mine", "STRING")]
    world.bigquery.create_dataset("bigquery_loads")
    schema = [SchemaField(name, kind) for name, kind in old]
    world.bigquery.create_table(Table(f"{world.project}.{TABLE}", schema=schema))
    world.prepared(alone())
    world.start(**ON)
    world.upload()
    (state,) = told(world)
    assert (state["state"], state["mine"]) == ("done", None)
    world.bigquery.delete_table(f"{world.project}.{TABLE}")
    world.upload("data/case002/dummy2.json")
    world.until(lambda: world.objects("journal/LoadState/") or latest(world))
    world.upload("data/case002/dummy3.json")
    world.until(lambda: any(row["batch_key"].count("dummy3") for row in latest(world)))


def test_it_can_be_switched_off(world: World) -> None:
    world.prepared(alone())
    world.start()
    world.upload()
    world.settled()
    with pytest.raises(Exception, match="Not found"):
        world.bigquery.get_dataset("bigquery_loads")
