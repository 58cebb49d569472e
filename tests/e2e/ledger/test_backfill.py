"""What lies in a bucket already is loaded, once; and a file whose notification was lost is found by the daemon."""

import json

import pytest
from tests.support.e2e.commands import Ingestd
from tests.support.e2e.load_state import ON, told
from tests.support.e2e.world import World
from tests.support.rule_documents import ROWS, alone

pytestmark = pytest.mark.usefixtures("emulators")

COLLECTED = alone(asynchronous=False, Batch={"Window": {"DurationInSec": 1}}, OnSuccess=[])
QUICK_WINDOWS = {"windows": {"grace": "100ms", "flush_after": "200ms", "late_patience": "1s"}}


def archive(world: World, first: int, last: int) -> str:
    """A bucket that announces nothing, with files of one row each."""
    bucket = f"{world.project}-archive"
    if first == 0:
        world.storage.create_bucket(bucket, project=world.project)
    for number in range(first, last):
        row = json.dumps({"id": number, "name": f"n{number}"}).encode()
        world.cloud.storage.write(bucket, f"data/case002/part-{number:05d}.json", row, "application/json")
    return f"gs://{bucket}/data"


def ids(world: World) -> list[int]:
    return [row[0] for row in world.rows()]


def count(world: World) -> int:
    """How many rows there are: reading five thousand of them again and again would be most of the test's time."""
    return int(world.cloud.bigquery.metadata.get_table(world.project, "bqtail", "dummy")["numRows"])


def test_of_5000_objects_the_100_that_are_loaded_are_left_alone(world: World) -> None:
    world.prepared(COLLECTED)
    ingestd = Ingestd(world, **ON, **QUICK_WINDOWS)
    prefix = archive(world, 0, 100)
    first = ingestd.json("backfill", prefix, "--mode", "local")
    assert (first["missing"], first["announced"], first["loaded"]) == (100, 100, 0)
    assert sorted(ids(world)) == list(range(100))
    assert len(world.jobs("load")) <= 3, "the same windows as the daemon's"

    archive(world, 100, 5000)
    world.upload("unrelated/file.txt", "x", bucket=f"{world.project}-archive")
    dry = ingestd.json("backfill", prefix, "--dry-run")
    assert (dry["objects"], dry["loaded"], dry["missing"], dry["announced"]) == (5000, 100, 4900, 0)
    assert count(world) == 100, "a dry run loads nothing"

    text = ingestd("backfill", prefix, "--topic", world.topic)
    assert "4,900  announced" in text
    assert max(map(len, text.splitlines())) <= 80
    world.start(**ON, **QUICK_WINDOWS)
    world.until(lambda: count(world) >= 5000)
    world.settled()
    assert sorted(ids(world)) == list(range(5000)), "each once"
    after = ingestd.json("backfill", prefix, "--dry-run")
    assert (after["loaded"], after["missing"]) == (5000, 0)

    for name in world.objects("journal/Done/"):
        world.storage.bucket(world.ops).blob(name).delete()
    forgotten = ingestd.json("backfill", prefix, "--dry-run")
    assert (forgotten["loaded"], forgotten["missing"]) == (5000, 0), "the load state remembers what the journal forgot"


def test_single_files_are_subtracted_by_their_identity_and_failed_ones_are_left_to_replay(world: World) -> None:
    world.prepared(alone(OnSuccess=[]))
    prefix = archive(world, 0, 15)
    bucket = f"{world.project}-archive"
    world.upload("data/case002/bad.json", '{"id": "no number"}', bucket=bucket)
    ingestd = Ingestd(world)
    first = ingestd.json("backfill", prefix, "--mode", "local", code=1)
    assert (first["missing"], first["announced"]) == (16, 16)
    outcome = first["outcome"]
    assert [outcome[key] for key in ("loaded", "not_loaded", "refused", "left")] == [15, 1, 0, 0]
    assert outcome["examples"][0]["what"].endswith("/bad.json"), "to be taken is not to be loaded"
    assert sorted(ids(world)) == list(range(15))
    world.upload("data/case002/part-00003.json", *ROWS, bucket=bucket)
    again = ingestd.json("backfill", prefix, "--dry-run")
    assert (again["loaded"], again["failed"], again["missing"]) == (14, 1, 1), "an overwritten file is a new one"
    young = ingestd.json("backfill", prefix, "--dry-run", "--until", "1h")
    assert (young["outside"], young["missing"]) == (16, 0)


def test_a_refused_file_is_not_called_ingested(world: World) -> None:
    world.table()
    named = alone(OnSuccess=[])
    pattern = r"/data/case002/(.+)\.json"
    named["Dest"] |= {
        "Pattern": pattern,
        "Parameters": [{"Name": "Table", "Expression": "$1"}],
        "Table": "bqtail.$Table",
    }
    world.rule(named)
    bucket = f"{world.project}-archive"
    world.storage.create_bucket(bucket, project=world.project)
    for name in ("dummy", "a-b!"):
        world.upload(f"data/case002/{name}.json", *ROWS, bucket=bucket)
    ingestd = Ingestd(world)
    shown = ingestd("backfill", f"gs://{bucket}/data", "--mode", "local", code=1, width=200)
    assert "1  loaded" in shown and "1  refused" in shown and "ingested" not in shown
    assert "a-b!.json" in shown
    again = ingestd.json("backfill", f"gs://{bucket}/data", "--dry-run")
    assert (again["loaded"], again["refused"], again["missing"]) == (1, 1, 0)


def test_a_backfill_that_cannot_work_says_what_to_do(world: World) -> None:
    world.rule(alone())
    archive(world, 0, 1)
    ingestd = Ingestd(world)
    assert "--mode local" in ingestd("backfill", f"gs://{world.project}-archive/data", code=1)
    assert "2024-05-01" in ingestd("backfill", f"gs://{world.project}-archive", "--since", "yesterday", code=1)


def test_a_lost_notification_is_found_by_the_sweep(world: World) -> None:
    world.prepared(alone(OnSuccess=[]))
    prefix = archive(world, 0, 3)
    sweep = {"prefixes": [prefix], "every": "600ms", "older_than": "0s"}
    replicas = [world.start(sweep=sweep, **ON) for _ in range(2)]
    told(world, 3)
    assert ids(world) == [0, 1, 2]
    for name in ("part-00000.json", "part-00001.json"):
        blob = world.storage.bucket(f"{world.project}-archive").get_blob(f"data/case002/{name}")
        world.publisher.publish(
            topic=world.topic,
            messages=[{"attributes": world.attributes(blob.name, blob.generation, f"{world.project}-archive")}],
        )
    archive(world, 3, 4)
    told(world, 4)
    world.settled()
    assert ids(world) == [0, 1, 2, 3], "what comes late after all is a duplicate"
    looks = sum(one.metric("ingestd_sweep_looks_total") for one in replicas)
    assert sum(one.metric("ingestd_sweep_files_found_total") for one in replicas) == 4
    assert looks >= 2


def directories(world: World, bucket: str, first: int, last: int) -> None:
    """Complete directories of two files each, written without any notification."""
    load = b'{"sourceFormat": "NEWLINE_DELIMITED_JSON"}'
    world.cloud.storage.write(bucket, "bqtail/dummy/_config/load.json", load, "application/json")
    for number in range(first, last):
        for part in ("a", "b"):
            row = json.dumps({"id": number, "name": part}).encode()
            world.cloud.storage.write(bucket, f"bqtail/dummy/run{number:03d}/{part}.json", row, "application/json")
        world.cloud.storage.write(bucket, f"bqtail/dummy/run{number:03d}/_SUCCESS", b"", "text/plain")


def test_complete_directories_are_found_by_backfill_and_by_the_sweep(world: World) -> None:
    world.table()
    bucket = f"{world.project}-archive"
    world.storage.create_bucket(bucket, project=world.project)
    directories(world, bucket, 0, 3)
    success = {"success": {"conventions": [{"bucket": bucket}]}}
    ingestd = Ingestd(world, **ON)  # knows of no convention: the command says it
    old_flags = ("-p", f"gs://{bucket}/bqtail", "-m", "LOCAL", "-f", "_SUCCESS")  # as gcs_ocn_bq_ingest writes them
    first = ingestd.json("backfill", *old_flags)
    assert (first["missing"], first["announced"]) == (3, 3)
    assert ids(world) == [0, 0, 1, 1, 2, 2]

    directories(world, bucket, 3, 4)
    world.cloud.storage.write(bucket, "bqtail/dummy/_config/_SUCCESS", b"", "text/plain")
    ingestd = Ingestd(world, **ON, **success)
    dry = ingestd.json("backfill", f"gs://{bucket}", "--dry-run")
    assert (dry["loaded"], dry["missing"]) == (3, 1)
    world.start(**ON, **success, sweep={"prefixes": [f"gs://{bucket}"], "every": "600ms", "older_than": "0s"})
    states = told(world, 4)
    assert ids(world) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {(one["origin"], one["files"], one["rows_loaded"], one["state"]) for one in states} == {
        ("convention", 2, 2, "done")
    }
    assert [one["source_prefix"] for one in states] == [f"gs://{bucket}/bqtail/dummy/run{n:03d}/" for n in range(4)]
    assert states[0]["batch_key"].startswith(f"success:gs://{bucket}/bqtail/dummy/run000/_SUCCESS#")
    assert states[0]["destination"] == f"{world.project}.bqtail.dummy"
    part = ingestd.json("explain", f"gs://{bucket}/bqtail/dummy/run003/b.json")
    (incident,) = part["history"]
    assert (incident["phase"], incident["rows"]) == ("done", 2)
    assert "run003/_SUCCESS completes" in part["verdict"]
    whole = ingestd("explain", f"gs://{bucket}/bqtail/dummy/run003/_SUCCESS", width=200)
    for told_so in ("a success file", "_config/load.json", "into", "NEWLINE_DELIMITED_JSON", "2 files", "done"):
        assert told_so in whole
    world.upload("bqtail/dummy/run009/a.json", bucket=bucket)
    dry_run = ingestd("explain", f"gs://{bucket}/bqtail/dummy/run009/_SUCCESS", width=200)
    for told_so in ("a dry run", 'sourceFormat: "NEWLINE_DELIMITED_JSON"', "sources: gs://", "history  none"):
        assert told_so in dry_run
    assert "not complete" in ingestd("explain", f"gs://{bucket}/bqtail/dummy/run009/a.json")
