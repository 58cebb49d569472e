"""Transformation SQL over `temp_ext`, in a real daemon over the wire."""

from typing import Any

import pyarrow as pa
from tests.support.e2e.directories import CSV, FIELDS, LOADED, batch, put, records, settings
from tests.support.e2e.world import World
from tests.support.files import parquet
from tests.support.rule_documents import ROWS

EXTERNAL = {"sourceFormat": "CSV", "schema": {"fields": FIELDS}, "sourceUris": ["REPLACEME"]}
INSERT = "INSERT {dest_dataset}.{dest_table} SELECT * FROM temp_ext"


def transform(world: World, table: str, sql: str, external: dict[str, Any] | None = None) -> None:
    put(world, f"bqtail/{table}/_config/bq_transform.sql", sql)
    if external is not None:
        put(world, f"bqtail/{table}/_config/external.json", external)


def test_w18_queries_scripts_and_their_failures(world: World) -> None:
    for table in ("insert", "parquet", "merge", "script", "halfway", "together", "idle", "idle_ok"):
        world.table(f"bqtail.{table}")
    world.start(
        success={
            "conventions": [
                {"bucket": world.trigger, "prefix": "bqtail/idle_ok/", "fail_on_zero_dml_rows": False},
                {"bucket": world.trigger, "job_prefix": "x-"},
            ]
        }
    )
    transform(world, "insert", INSERT, EXTERNAL)
    batch(world, "bqtail/insert/b 1 #?", "1,a\n", "2,b\n")
    transform(world, "parquet", INSERT)  # without external.json: PARQUET
    batch(world, "bqtail/parquet", parquet(pa.Table.from_pylist(ROWS)), ending="parquet")
    transform(world, "made", "CREATE OR REPLACE TABLE {dest_dataset}.{dest_table} AS SELECT id FROM temp_ext", EXTERNAL)
    batch(world, "bqtail/made")
    hive = {**EXTERNAL, "hivePartitioningOptions": {"mode": "STRINGS"}}
    transform(world, "hive", "CREATE TABLE {dest_dataset}.{dest_table} AS SELECT id, dt FROM temp_ext", hive)
    put(world, "bqtail/hive/x/dt=2024-01-01/f.csv", "1,a\n")
    put(world, "bqtail/hive/x/_SUCCESS")
    upsert = """MERGE {dest_dataset}.{dest_table} t USING temp_ext s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT ROW"""
    transform(world, "merge", upsert, EXTERNAL)
    batch(world, "bqtail/merge/1", "1,old\n")
    world.until(lambda: world.rows("bqtail.merge") == [(1, "old")])
    batch(world, "bqtail/merge/2")
    transform(
        world,
        "script",
        f"DECLARE n INT64 DEFAULT 5; {INSERT}; INSERT {{dest_dataset}}.{{dest_table}} VALUES (n, 'n');",
        EXTERNAL,
    )
    batch(world, "bqtail/script")
    failing = f"{INSERT}; INSERT {{dest_dataset}}.{{dest_table}} SELECT 1, ERROR('no');"
    transform(world, "halfway", failing, EXTERNAL)
    batch(world, "bqtail/halfway")
    transform(world, "together", f"BEGIN TRANSACTION;\n{failing}\nCOMMIT TRANSACTION;", EXTERNAL)
    batch(world, "bqtail/together")
    for table in ("idle", "idle_ok"):
        transform(world, table, "DELETE {dest_dataset}.{dest_table} WHERE id IN (SELECT id FROM temp_ext)", EXTERNAL)
        batch(world, f"bqtail/{table}")
    world.settled()

    for table in ("insert", "parquet", "merge"):
        assert world.rows(f"bqtail.{table}") == LOADED, table
    assert world.rows("bqtail.made") == [(1,), (2,)]
    assert world.rows("bqtail.hive") == [(1, "2024-01-01")]
    assert world.rows("bqtail.script") == [*LOADED, (5, "n")]
    done = records(world)
    assert done["bqtail/script/_SUCCESS"]["Rows"] == 3
    assert done["bqtail/insert/b 1 #?/_SUCCESS"]["JobID"].startswith("x-bqtail_insert--")
    job = world.bigquery.get_job(done["bqtail/insert/b 1 #?/_SUCCESS"]["JobID"])
    assert job.job_type == "query"
    assert job.labels["component"] == "event-based-gcs-ingest"
    assert list(job.table_definitions["temp_ext"].source_uris) == [
        f"gs://{world.trigger}/bqtail/insert/b 1 #?/part-{number}.csv" for number in range(2)
    ]

    # A script that failed after a commit is not run again, and says what stays; in a transaction nothing does.
    failed = {name.split("/")[1]: one for name, one in done.items() if one["Status"] == "failed"}
    assert sorted(failed) == ["halfway", "idle", "together"]
    assert "committed before that, and not undone: statement 1 (INSERT)" in failed["halfway"]["Error"]
    assert world.rows("bqtail.halfway") == LOADED
    assert "committed before" not in failed["together"]["Error"]
    assert world.rows("bqtail.together") == []
    assert "its DELETE changed no row" in failed["idle"]["Error"]
    assert done["bqtail/idle_ok/_SUCCESS"]["Status"] == "done"


def test_w15_transformations_can_be_switched_off_and_destinations_limited(world: World) -> None:
    for table in ("t", "u", "ok"):
        world.table(f"bqtail.{table}")
    world.start(**settings(world, transform_sql=False, destination_overrides=False, allowed_datasets=["bqtail"]))
    transform(world, "t", INSERT, EXTERNAL)
    batch(world, "bqtail/t")
    put(world, "bqtail/u/_config/load.json", {"destinationTable": {"datasetId": "secret", "tableId": "x"}})
    batch(world, "bqtail/u")
    batch(world, "elsewhere/t")
    batch(world, "bqtail/ok", CSV)

    def errors() -> dict[str, str]:
        return {name: one["Error"] for name, one in records(world, "Running").items() if one["RetryAt"]}

    world.until(lambda: len(errors()) == 3 and world.rows("bqtail.ok") == LOADED)
    assert "transformations are switched off" in errors()["bqtail/t/_SUCCESS"]
    assert "names a destination, which is switched off" in errors()["bqtail/u/_SUCCESS"]
    assert "may not go to" in errors()["elsewhere/t/_SUCCESS"]
    assert world.jobs("query") == []
