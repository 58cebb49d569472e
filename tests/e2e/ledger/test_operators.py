"""What an operator types when something is wrong: status, windows, explain, replay."""

from typing import Any

import pytest
from tests.support.e2e.commands import Ingestd
from tests.support.e2e.load_state import ON, rows, told
from tests.support.e2e.world import LOADED, SCHEMA, World
from tests.support.rule_documents import FILE, alone

pytestmark = pytest.mark.usefixtures("emulators")


def lines_fit(text: str, width: int = 80) -> bool:
    return max(map(len, text.splitlines())) <= width


def test_a_failed_batch_is_seen_replayed_and_audited(world: World) -> None:
    world.prepared(alone(asynchronous=False, OnSuccess=[]))
    world.start(**ON)
    ingestd = Ingestd(world, **ON)
    world.upload(FILE, '{"id": 1, "name": "a", "colour": "red"}')
    (failed,) = told(world)
    assert failed["state"] == "failed"

    status = ingestd.json("status")
    assert [one["event_id"] for one in status["failures"]] == [failed["event_id"]]
    assert status["tables"][0]["batches_failed"] == 1
    screen = ingestd("status")
    assert "Recent failures" in screen
    assert lines_fit(screen), screen

    assert "ingestd replay" in ingestd("explain", f"gs://{world.trigger}/{FILE}")
    (seen,) = ingestd.json("replay", "--rule", "rule", "--since", "1h", "--dry-run")
    assert (seen["what"], seen["event_id"]) == ("failed", failed["event_id"])
    assert ingestd("replay", "--rule", "other", code=1).startswith("error: nothing of that")
    assert ingestd("replay", "--until", "1h", code=1).startswith("error: nothing of that")
    assert "say what" in ingestd("replay", code=1)

    table = world.bigquery.get_table(f"{world.project}.bqtail.dummy")
    table.schema = [*SCHEMA, type(SCHEMA[0])("colour", "STRING")]
    world.bigquery.update_table(table, ["schema"])
    out = ingestd("replay", "--rule", "rule", "--reason", "the column is there now", "--by", "ann")
    assert "opened again" in out
    world.until(lambda: [one["state"] for one in told(world)] == ["done"])
    assert world.rows() == [(1, "a", "red")]

    asked = [row for row in rows(world) if row["actor"]]
    assert [(one["actor"], one["reason"], one["state"]) for one in asked] == [
        ("ann", "the column is there now", "accepted")
    ]
    (note,) = [world.document(name) for name in world.objects(f"journal/Replays/{failed['event_id']}/")]
    assert (note["Who"], note["Why"]) == ("ann", "the column is there now")
    explained = ingestd.json("explain", f"gs://{world.trigger}/{FILE}")
    (incident,) = explained["history"]
    assert (incident["phase"], incident["replays"][0]["by"]) == ("done", "ann")


def test_the_load_state_explains_what_the_journal_has_no_more(world: World) -> None:
    world.prepared(alone())
    world.start(**ON)
    ingestd = Ingestd(world, **ON)
    generation = world.upload()
    told(world)
    for name in world.objects("journal/"):
        world.storage.bucket(world.ops).blob(name).delete()
    (incident,) = ingestd.json("explain", f"gs://{world.trigger}/{FILE}")["history"]
    assert incident["remembered"]
    assert (incident["generation"], incident["phase"], incident["rows"]) == (generation, "done", 2)
    assert "known from the load state" in ingestd("explain", f"gs://{world.trigger}/{FILE}")


def test_quarantined_files_go_back_and_are_loaded_once_the_table_takes_them(world: World) -> None:
    world.prepared(alone(asynchronous=False, OnSuccess=[]))
    put_away = {"corrupted_file_url": f"gs://{world.ops}/corrupted", **ON}
    world.start(**put_away)
    ingestd = Ingestd(world, **put_away)
    world.upload(FILE, '{"id": 1, "name": "a", "colour": "red"}')
    told(world)
    assert not world.exists()
    source, kept = f"gs://{world.trigger}/{FILE}", f"gs://{world.ops}/corrupted/{FILE}"
    explained = ingestd("explain", source, width=500)
    assert "set aside: does not fit the table" in explained
    assert "row 1, column colour: " in explained and "No such field: colour" in explained
    assert f"kept at {kept}\n" in explained
    assert f"reason  {kept}.reason.json\n" in explained
    assert f"once table and rule take it as it is: ingestd replay --quarantine {source}\n" in explained
    (seen,) = ingestd.json("replay", source, "--quarantine", "--dry-run")
    assert seen["subject"] == source
    assert not world.exists()
    table = world.bigquery.get_table(f"{world.project}.bqtail.dummy")
    table.schema = [*SCHEMA, type(SCHEMA[0])("colour", "STRING")]
    world.bigquery.update_table(table, ["schema"])
    assert "goes back" in ingestd("replay", "--quarantine", "--reason", "schema fixed")
    states = told(world, 2)
    assert sorted(one["state"] for one in states) == ["done", "failed"]
    assert world.rows() == [(1, "a", "red")]
    assert world.objects("corrupted/") == []
    assert "not there any more" in ingestd("explain", source), "the generation that was bad is nowhere now"


def test_open_windows_and_batches_that_wait_are_shown_with_their_countdown(world: World) -> None:
    world.prepared(alone(Batch={"Window": {"DurationInSec": 3600}}), "hourly.json")
    world.rule({"When": {"Prefix": "/nowhere"}, "Dest": {"Table": "bqtail.absent"}}, "absent.json")
    daemon = world.start(windows={"flush_after": "100ms"}, recovery={"retry_first": "1h", "retry_longest": "1h"}, **ON)
    ingestd = Ingestd(world, **ON)
    for number in range(3):
        world.upload(f"data/case002/part{number}.json")
    world.upload("nowhere/file.json")

    def seen() -> Any:
        windows = ingestd.json("windows")
        return [one for one in windows if one["files"] == 3]

    (window,) = world.until(seen)
    assert (window["rule"], window["destination"], window["state"]) == ("hourly", "bqtail.dummy", "open")
    assert 0 < window["seconds_left"] <= 3602
    assert window["bytes"] == 3 * 45
    world.until(lambda: any(one["state"] == "waiting" for one in ingestd.json("status")["batches"]))
    view = ingestd.json("status", "--daemon", daemon.url)
    (batch,) = view["batches"]
    assert (batch["destination"], batch["files"], batch["state"]) == ("bqtail.absent", 1, "waiting")
    assert view["daemon"]["project"] == world.project
    for text in (ingestd("windows"), ingestd("status", "--daemon", daemon.url)):
        assert lines_fit(text), text
        assert "bqtail.dummy" in text
    assert "again in 59m" in ingestd("status", width=120)
    assert world.rows() != LOADED
