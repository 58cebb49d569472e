"""Directories with success files, in a real daemon over the wire: one warm daemon, many tables."""

import json
from typing import Any

import pyarrow as pa
from google.cloud import bigquery
from tests.support.e2e.directories import FIELDS, LOADED, batch, put, records, settings
from tests.support.e2e.world import SCHEMA, World
from tests.support.files import avro, parquet
from tests.support.rule_documents import ROWS, alone


def ndjson(*rows: dict[str, Any]) -> str:
    return "\n".join(json.dumps(row) for row in rows or ROWS)


def partitioned(world: World, name: str) -> None:
    table = bigquery.Table(f"{world.project}.{name}", schema=SCHEMA)
    table.time_partitioning = bigquery.TimePartitioning("DAY")
    world.bigquery.create_table(table)


def test_w01_w11_w20_formats_layouts_regions_and_configuration_of_one_bucket(world: World) -> None:
    for table in ("plain", "plain2", "avro", "json", "odd", "nested", "levels"):
        world.table(f"bqtail.{table}")
    world.prepared(alone())
    world.bigquery.create_dataset(_regional(world))
    world.table("berlin.t")
    world.start(**settings(world, function_name="My Function"))

    world.upload()  # a file for a rule, in the same bucket
    batch(world, "bqtail/plain")  # no configuration at all: nothing of it may stick to the next table
    batch(world, "bqtail/plain2/Batch-7")
    batch(
        world,
        "bqtail/avro/incremental",
        avro([{"name": "id", "type": "long"}, {"name": "name", "type": "string"}], ROWS),
        ending="avro",
    )
    batch(world, "bqtail/json", ndjson(), ending="json")
    batch(world, "bqtail/made", parquet(pa.Table.from_pylist(ROWS)), ending="parquet")  # Parquet makes its table
    batch(world, "berlin/t")
    put(world, "bqtail/odd/what? #1/file é #2?.csv", "1,a\n")
    put(world, "bqtail/odd/what? #1/sub dir/part", "2,b\n")
    put(world, "bqtail/odd/what? #1/_SUCCESS")
    put(world, "bqtail/odd/what/decoy.csv", "666,x\n")
    put(world, "bqtail/nested/outer/inner/in.csv", "2,b\n")
    put(world, "bqtail/nested/outer/inner/_SUCCESS")
    put(world, "bqtail/nested/outer/_temporary/0/tmp.csv", "666,x\n")
    put(world, "bqtail/nested/outer/out.csv", "1,a\n")
    put(world, "bqtail/nested/outer/_metadata", "666,x\n")
    put(world, "bqtail/nested/outer/_SUCCESS")
    hive = {"sourceFormat": "CSV", "schema": {"fields": FIELDS}, "hivePartitioningOptions": {"mode": "AUTO"}}
    put(world, "bqtail/hive/_config/load.json", hive)
    put(world, "bqtail/hive/dt=2024-01-01/a.csv", "1,a\n")
    put(world, "bqtail/hive/dt=2024-01-02/a.csv", "2,b\n")
    put(world, "bqtail/hive/_SUCCESS")
    put(world, "_config/load.json", {"labels": {"Team": "Data & AI", "level": "root"}})
    put(
        world,
        "bqtail/levels/_config/load.json",
        '{"sourceFormat": "CSV", "fieldDelimiter": ";", "labels": {"level": "table"},}',
    )
    put(world, "bqtail/levels/b1/_config/load.json", {"fieldDelimiter": "|", "skipLeadingRows": 1})
    batch(world, "bqtail/levels/b1", "id|name\n1|a\n2|b\n")
    world.settled()

    for table in ("plain", "plain2", "avro", "json", "made", "odd", "nested", "levels"):
        assert world.rows(f"bqtail.{table}") == LOADED, table
    assert world.rows("berlin.t") == world.rows("bqtail.dummy") == LOADED
    assert not world.exists()
    assert [(row[0], str(row[2])) for row in world.rows("bqtail.hive")] == [(1, "2024-01-01"), (2, "2024-01-02")]
    done = records(world)
    assert {one["Status"] for one in done.values()} == {"done"}
    assert len(done) == 11
    assert done["berlin/t/_SUCCESS"]["Region"] == "europe-west3"
    jobs = {job.job_id: job for job in world.jobs("load")}
    assert all(one["JobID"].startswith("gcf-ingest-") for one in done.values())
    labels = jobs[done["bqtail/levels/b1/_SUCCESS"]["JobID"]].labels
    assert (
        labels.items()
        >= {
            "component": "event-based-gcs-ingest",
            "bucket-id": world.trigger,
            "batch-id": "b1",
            "cloud-function-name": "my_function",
            "team": "data___ai",
            "level": "table",
        }.items()
    )
    assert jobs[done["bqtail/plain2/Batch-7/_SUCCESS"]["JobID"]].labels["batch-id"] == "batch-7"
    # Nothing is left beside the data: no claims, no locks, no pointers.
    assert not [name for name in world.objects("bqtail/", world.trigger) if "_claimed" in name or "_bqlock" in name]


def _regional(world: World) -> bigquery.Dataset:
    dataset = bigquery.Dataset(f"{world.project}.berlin")
    dataset.location = "europe-west3"
    return dataset


def test_w22_duplicates_load_nothing_a_new_upload_runs_again_and_other_events_mean_nothing(world: World) -> None:
    for table in ("t", "late"):
        world.table(f"bqtail.{table}")
    world.start(**settings(world))
    generation = batch(world, "bqtail/t")
    world.until(lambda: world.rows("bqtail.t") == LOADED)
    world.announce("bqtail/t/_SUCCESS", generation, times=5)
    attributes = world.attributes("bqtail/t/_SUCCESS", generation)
    for kind in ("OBJECT_DELETE", "OBJECT_METADATA_UPDATE", "OBJECT_ARCHIVE"):
        world.publisher.publish(topic=world.topic, messages=[{"attributes": {**attributes, "eventType": kind}}])
    put(world, "bqtail/t/part-9.csv", "9,z\n")  # data alone triggers nothing
    bare = {"bucketId": world.trigger, "objectId": "bqtail/t/_SUCCESS", "_metaInfo": "backfill"}
    world.publisher.publish(topic=world.topic, messages=[{"attributes": bare}])  # as the old tool's backfill does
    world.settled()
    assert world.rows("bqtail.t") == LOADED

    again = put(world, "bqtail/t/_SUCCESS")
    world.settled()
    assert world.rows("bqtail.t") == sorted([*LOADED, *LOADED, (9, "z")])
    assert len(world.records()) == 2

    # The event of a generation that was replaced before it was looked at gives way to the newer one.
    world.announce("bqtail/t/_SUCCESS", again - 1)
    world.settled()
    assert world.statuses() == ["done", "done", "superseded"]
    # So does a success file that is gone, and one without data says so.
    put(world, "bqtail/late/x/empty.csv", "")
    put(world, "bqtail/late/x/_SUCCESS")
    world.announce("bqtail/late/gone/_SUCCESS", again)
    world.settled()
    done = records(world)
    assert done["bqtail/late/x/_SUCCESS"]["Status"] == "missing"
    assert "there are no files to load" in done["bqtail/late/x/_SUCCESS"]["Error"]
    assert done["bqtail/late/gone/_SUCCESS"]["Status"] == "missing"
    assert len(world.jobs("load")) == 2


def test_w18_truncating_with_several_jobs_replaces_the_partition_once_and_no_other(world: World) -> None:
    partitioned(world, "bqtail.t")
    world.start(**settings(world), jobs={"max_files": 2})
    put(world, "bqtail/t/_config/load.json", {"writeDisposition": "WRITE_TRUNCATE"})
    batch(world, "bqtail/t/$20240101", "1,old\n")
    batch(world, "bqtail/t/2024/01/02/b", "2,kept\n")
    world.settled()
    # Three files are two jobs here: staged, and published by one copy into the partition.
    batch(world, "bqtail/t/20240101/again", "3,n\n", "4,n\n", "5,n\n")
    world.settled()
    assert world.rows("bqtail.t") == [(2, "kept"), (3, "n"), (4, "n"), (5, "n")]
    (copy,) = world.jobs("copy")
    assert copy.destination.table_id == "t$20240101"
    assert [table.table_id for table in world.bigquery.list_tables("bqtail")] == ["t"]


def test_w03_bad_configuration_holds_its_batch_until_it_is_mended(world: World) -> None:
    for table in ("bad", "sql", "path", "good"):
        world.table(f"bqtail.{table}")
    slow = {"recovery": {"lease": "2s", "sweep_every": "300ms", "retry_first": "60s", "retry_longest": "60s"}}
    world.start(**settings(world), **slow)
    put(world, "bqtail/bad/_config/load.json", '{"sourceFormat": "CVS"}')
    batch(world, "bqtail/bad/b1")
    put(world, "bqtail/sql/_config/a.sql", "SELECT 1")
    put(world, "bqtail/sql/_config/b.sql", "SELECT 2")
    batch(world, "bqtail/sql")
    batch(world, "bqtail/path/2024-01-02")
    batch(world, "bqtail/good")

    def blocked() -> dict[str, Any]:
        return {name: one for name, one in records(world, "Running").items() if one["RetryAt"]}

    world.until(lambda: len(blocked()) == 2 and len(world.records()) == 2)
    assert "did you mean 'CSV'" in blocked()["bqtail/bad/b1/_SUCCESS"]["Error"]
    assert f"gs://{world.trigger}/bqtail/bad/_config/load.json" in blocked()["bqtail/bad/b1/_SUCCESS"]["Error"]
    assert "a.sql" in blocked()["bqtail/sql/_SUCCESS"]["Error"]
    assert world.rows("bqtail.good") == LOADED  # nobody else has to wait
    rejected = records(world)["bqtail/path/2024-01-02/_SUCCESS"]
    assert rejected["Status"] == "failed"
    assert "could be a date or a batch id" in rejected["Error"]

    put(world, "bqtail/bad/_config/load.json", '{"sourceFormat": "CSV"}')  # the change itself wakes what waits
    world.storage.bucket(world.trigger).blob("bqtail/sql/_config/b.sql").delete()
    put(world, "bqtail/sql/_config/a.sql", "")  # an empty one: load the files as they are
    world.until(lambda: world.rows("bqtail.bad") == LOADED and world.rows("bqtail.sql") == LOADED)
    world.settled()
    assert world.rows("bqtail.path") == []


def test_w12_ten_thousand_and_fifty_files_and_one_larger_than_a_job_may_read_commit_at_once(world: World) -> None:
    world.table("bqtail.many")
    world.table("bqtail.large")
    count = 10_050
    for number in range(count):
        world.cloud.storage.write(
            world.trigger, f"bqtail/many/x/{number:05d}.csv", f"{number},x\n".encode(), "text/csv"
        )
    first = world.start(**settings(world))
    put(world, "bqtail/many/x/_SUCCESS")
    world.until(lambda: len(world.objects("journal/Done/")) == 1)
    assert world.bigquery.get_table(f"{world.project}.bqtail.many").num_rows == count
    assert [len(job.source_uris) for job in world.jobs("load")] == [10_000, 50]
    assert len(world.jobs("copy")) == 1

    put(world, "bqtail/large/_config/load.json", {"writeDisposition": "WRITE_TRUNCATE"})
    batch(world, "bqtail/large", "666,before\n")
    world.until(lambda: world.rows("bqtail.large") == [(666, "before")])
    world.settled()
    first.kill()
    world.start(**settings(world), jobs={"max_bytes": 100})
    big = "".join(f"{number},{'y' * 20}\n" for number in range(10))
    batch(world, "bqtail/large", big, "10,z\n", big.replace("y", "w"))
    world.settled()
    assert len(world.rows("bqtail.large")) == 21
    assert len(world.jobs("copy")) == 2


def test_a_refused_load_commits_nothing_of_its_batch(world: World) -> None:
    world.table("bqtail.t")
    world.start(**settings(world), jobs={"max_files": 1})
    batch(world, "bqtail/t/b1", "1,a\n", "2,b\nnot a number,c\n", "3,c\n")
    world.until(lambda: world.statuses() == ["failed"])
    (failed,) = world.records()
    assert "not a number" in failed["Error"]
    assert world.rows("bqtail.t") == []
    assert [table.table_id for table in world.bigquery.list_tables("bqtail")] == ["t"]
    assert len(world.objects("bqtail/t/b1/", world.trigger)) == 4  # everything is kept
    put(world, "bqtail/t/b1/part-1.csv", "2,b\n")
    put(world, "bqtail/t/b1/_SUCCESS")
    world.until(lambda: len(world.rows("bqtail.t")) == 3)
    world.settled()
