"""Rows on their way into tables: transient, by statements, split, prepared; with a crash after each effect."""

from typing import Any

import pytest
from tests.support.rule_documents import modes, together
from tests.support.sim.names import DATASET, OPS, PROJECT, SCHEMA, TRIGGER
from tests.support.sim.plain_bigquery import Job
from tests.support.sim.stories import (
    OLD_ROW,
    PLACES,
    Simulate,
    crash_everywhere,
    expected,
    fill,
    fill_partition,
    name,
    partitioned,
    upload_all,
)
from tests.support.sim.ways import ON_BIGQUERY, SPLIT, TEMP, UNIQUE, WAYS, everything, prepare
from tests.support.sim.world import World

from ingestd.localcloud.faults import Fault, FaultKind

LATE = {"SQL": "SELECT COUNT(*) AS n FROM $TempTable", "Dest": f"{DATASET}.counted"}

SPLITS = [way for way in WAYS if "split" in way]
PREPARED = [way for way in WAYS if "prepared" in way]
FEW = {"jobs": {"poll_every": "30s", "max_files": 2, "retry_pause": "1s"}}


def left_behind(world: World) -> list[str]:
    """Tables that belong to no rule, and prepared files."""
    if world.plain:
        names = [one for one in world.plain.tables if one.partition(".")[2] not in ("dummy", "third", "even")]
    else:
        found = world.bigquery.metadata.list_tables(PROJECT, "temp", {}) if "temp" in datasets(world) else {}
        names = [one["tableReference"]["tableId"] for one in found.get("tables", ())]
    return names + world.objects("staging/")


def datasets(world: World) -> list[str]:
    listed = world.bigquery.metadata.list_datasets(PROJECT, {}).get("datasets", ())
    return [one["datasetReference"]["datasetId"] for one in listed]


@modes
@pytest.mark.parametrize("way", WAYS)
def test_rows_arrive_once_by_every_way_and_nothing_is_left_behind(
    simulate: Simulate, way: str, asynchronous: bool
) -> None:
    """On the local cloud's own BigQuery, which reads the SQL."""

    async def story(world: World) -> None:
        prepare(world, way, asynchronous, **PLACES)
        with world.daemon(**FEW):
            upload_all(world, 6, corrupted=(4,))
            await world.settled()
        assert everything(world) == expected(0, 1, 2, 3, 5, 6)
        if "split" in way:
            assert (world.rows("third"), world.rows("even")) == (expected(0, 3, 6), expected(2))
        assert world.objects("data/", TRIGGER) == []
        assert world.objects("corrupted/") == [f"corrupted/{name(4)}", f"corrupted/{name(4)}.reason.json"]
        assert left_behind(world) == []
        (record,) = world.record()
        assert record["Status"] == "done"
        assert record["Rows"] == 6

    simulate(story)


CRASHES = ("transient query", "statements, split", "prepared, split", "prepared, upsert")


@pytest.mark.parametrize("way", CRASHES)
def test_a_crash_after_any_effect_changes_nothing(simulate: Simulate, way: str) -> None:
    def begin(world: World) -> None:
        prepare(world, way, asynchronous="split" in way, **PLACES)
        upload_all(world, 4, corrupted=(1,))

    def check(world: World) -> None:
        assert everything(world) == expected(0, 2, 3, 4)
        assert world.objects("data/", TRIGGER) == []
        assert world.objects("corrupted/") == [f"corrupted/{name(1)}", f"corrupted/{name(1)}.reason.json"]
        assert left_behind(world) == []
        assert [record["Status"] for record in world.record()] == ["done"]

    assert crash_everywhere(simulate, begin, check) >= 12


def fail_jobs(world: World, kind: str, times: int, reason: str = "backendError") -> None:
    world.faults.add(Fault("bigquery", f"job.{kind}", FaultKind.FAIL, times=times, reason=reason))


@modes
@pytest.mark.parametrize(("way", "kind"), [("transient copy", "copy"), ("prepared, upsert", "query")])
def test_a_publish_that_fails_keeps_what_was_landed_and_succeeds_later(
    simulate: Simulate, way: str, kind: str, asynchronous: bool
) -> None:
    async def story(world: World) -> None:
        prepare(world, way, asynchronous)
        with world.daemon(**FEW):
            fail_jobs(world, kind, 4)
            upload_all(world, 3)
            await world.settled(limit=3600)
        assert everything(world) == expected(0, 1, 2)
        assert len(world.jobs(kind)) == 5
        first = world.jobs()[-1]["jobReference"]["jobId"]
        assert "_try" not in first
        assert len([one for one in world.jobs() if one["jobReference"]["jobId"] == first]) == 1
        assert left_behind(world) == []

    simulate(story, plain=True)


def test_a_split_that_fails_in_the_middle_says_which_tables_have_their_rows(simulate: Simulate) -> None:
    failed = [{"Action": "move", "Request": {"DestURL": f"gs://{OPS}/failed"}}]

    async def story(world: World) -> None:
        prepare(world, "statements, split", True, OnFailure=failed)
        assert world.plain is not None
        with world.daemon(recovery={"lease": "20s", "sweep_every": "5s", "give_up_after": "120s"}):
            upload_all(world, 6)
            await world.until(lambda: bool(world.rows("third")))
            fail_jobs(world, "query", 1000)
            await world.settled(limit=3600)
        (record,) = world.record()
        assert record["Status"] == "failed"
        assert "third (2 rows)" in record["Error"] or f"{DATASET}.third" in record["Error"]
        assert world.rows("third") == expected(0, 3)
        assert len(world.objects("failed/")) == 6
        assert left_behind(world) == []

    simulate(story, plain=True)


@pytest.mark.parametrize("way", PREPARED)
def test_a_preparer_that_dies_is_asked_again_elsewhere(simulate: Simulate, way: str) -> None:
    async def story(world: World) -> None:
        prepare(world, way, False)
        troubles = iter([True, False, True, False, False, True])
        world.mishap = lambda: next(troubles, False)
        with world.daemon(**FEW):
            upload_all(world, 5)
            await world.settled()
        assert everything(world) == expected(*range(5))
        (record,) = world.record()
        assert record["Progress"]["Preparing"] == 4
        assert left_behind(world) == []

    simulate(story, plain=True)


def test_what_a_paused_replica_prepares_too_late_is_never_loaded_and_collected(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        prepare(world, "prepared", False)
        world.storage.write(OPS, "staging/1234567890123456789/1/0-0.json", b"{}", "application/json")
        with world.daemon(**FEW):
            upload_all(world, 3)
            await world.settled(limit=3600)
        assert everything(world) == expected(0, 1, 2)
        assert left_behind(world) == []

    simulate(story, plain=True)


def test_bad_rows_are_kept_apart_where_the_rule_says_so(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        prepare(world, "prepared", True, OnBadData="quarantine rows")
        with world.daemon():
            world.upload(name(0), {"id": 0, "name": "x"}, {"id": "surprise", "name": "x"}, {"id": 1, "name": "x"})
            await world.settled()
        assert everything(world) == expected(0, 1)
        assert world.objects("data/", TRIGGER) == []
        (kept,) = world.objects("errors/")
        assert ".rejected/" in kept
        assert b"surprise" in world.storage.read(OPS, kept)
        (record,) = world.record()
        assert record["Progress"]["Prepared"]["BadRows"]["0"]["Rows"] == 1

    simulate(story)


def test_a_crash_after_any_effect_of_a_batch_with_bad_rows_changes_nothing(simulate: Simulate) -> None:
    def begin(world: World) -> None:
        prepare(world, "prepared", False, OnBadData="quarantine rows")
        world.upload(name(0), {"id": 0, "name": "x"}, {"id": "surprise", "name": "x"}, {"id": 1, "name": "x"})

    def check(world: World) -> None:
        assert everything(world) == expected(0, 1)
        assert world.objects("data/", TRIGGER) == []
        (kept,) = world.objects("errors/")
        assert world.storage.read(OPS, kept) == b'{"id":"surprise","name":"x"}'
        assert left_behind(world) == []

    assert crash_everywhere(simulate, begin, check) >= 8


@pytest.mark.parametrize("way", ["prepared, override", "transient copy"])
def test_a_batch_without_a_good_file_replaces_nothing(simulate: Simulate, way: str) -> None:
    async def story(world: World) -> None:
        dest = {**WAYS[way]["Dest"], "Override": True}
        prepare(world, way, True, Dest=dest, **PLACES)
        fill(world)
        await world.until(lambda: world.rows() == [OLD_ROW])
        with world.daemon():
            upload_all(world, 0, corrupted=(0, 1))
            await world.settled()
        assert world.rows() == [OLD_ROW]
        assert [record["Status"] for record in world.record()] == ["failed"]
        assert left_behind(world) == []

    simulate(story)


def test_a_batch_without_rows_still_replaces_its_table(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        prepare(world, "prepared, override", False)
        fill(world)
        await world.until(lambda: world.rows() == [OLD_ROW])
        with world.daemon():
            world.storage.write(TRIGGER, name(0), b"", "application/json")
            await world.settled()
        assert world.rows() == []
        assert world.tables() == ["dummy"]

    simulate(story)


def test_a_partition_is_replaced_and_no_other_through_a_transient_table(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        partitioned(world)
        for number, day in enumerate(("20240101", "20240102"), 91):
            fill_partition(world, day, number)
        await world.until(lambda: len(world.rows()) == 2)
        world.rule("rule.json", together(False, Dest={**TEMP, "Override": True, "Partition": "20240101"}))
        with world.daemon():
            upload_all(world, 3)
            await world.settled()
        assert world.rows() == expected(0, 1, 2, 92)
        assert left_behind(world) == []

    simulate(story)


def test_the_transient_table_is_there_for_the_actions_and_expires_by_itself(simulate: Simulate) -> None:
    query = {"SQL": "SELECT * FROM $TempTable", "Dest": f"{DATASET}.copy"}

    async def story(world: World) -> None:
        world.create_table("dummy")
        actions = [{"Action": "query", "Request": query}, {"Action": "delete"}]
        world.rule("rule.json", together(True, Dest=TEMP, OnSuccess=actions))
        expirations: list[Any] = []

        def landed() -> bool:
            if "temp" in datasets(world):
                for one in world.bigquery.metadata.list_tables(PROJECT, "temp", {}).get("tables", ()):
                    table = one["tableReference"]["tableId"]
                    found = world.bigquery.metadata.get_table(PROJECT, "temp", table)
                    expirations.append(found.get("expirationTime"))
            return world.quiet()

        with world.daemon():
            upload_all(world, 3)
            await world.until(landed)
        assert world.rows("copy") == world.rows() == expected(0, 1, 2)
        assert expirations
        assert all(expirations)
        assert left_behind(world) == []

    simulate(story)


def test_a_transient_table_that_the_load_makes_itself_expires_too(simulate: Simulate) -> None:
    dest = {**TEMP, "Schema": {"Autodetect": True}}

    async def story(world: World) -> None:
        world.prepared(together(False, Dest=dest, OnSuccess=[{"Action": "query", "Request": LATE}]))
        with world.daemon() as daemon:
            upload_all(world, 2)
            await world.until(lambda: any("query" in one["configuration"] for one in world.jobs("query")))
            (table,) = left_behind(world)
            assert "expirationTime" in world.bigquery.metadata.get_table(PROJECT, "temp", table)
            assert daemon.alive
            await world.settled()
        assert world.rows() == expected(0, 1)
        assert left_behind(world) == []

    simulate(story, job_latency=5.0)


DOUBLED = {"SQL": "SELECT COUNT(1) - COUNT(DISTINCT id) AS n FROM $TempTable", "Dest": f"{DATASET}.counted"}


@pytest.mark.parametrize(("shape", "rows"), [(UNIQUE, (0, 1, 2)), (SPLIT, (1,))], ids=["unique", "split"])
def test_actions_find_the_rows_as_they_were_loaded_in_the_transient_table(
    simulate: Simulate, shape: dict[str, Any], rows: tuple[int, ...]
) -> None:
    """As in bqtail, whose rules count there what its `UniqueColumns` will leave out."""

    async def story(world: World) -> None:
        world.create_table("third")
        world.prepared(together(False, Dest={**TEMP, **shape}, OnSuccess=[{"Action": "query", "Request": DOUBLED}]))
        with world.daemon():
            upload_all(world, 3)
            world.upload(name(3), *(({"id": 1, "name": "x"},) if shape is UNIQUE else ()), {"id": 2, "name": "x"})
            await world.settled()
        assert world.rows("counted") == [("2",) if shape is UNIQUE else ("1",)]
        assert world.rows() == expected(*rows)
        if shape is SPLIT:
            assert (world.rows("third"), world.rows("even")) == (expected(0), expected(2, 2))
        assert left_behind(world) == []

    simulate(story)


def test_a_daemon_without_spark_says_so_and_keeps_the_batch(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        prepare(world, "prepared", False)
        with world.daemon() as daemon:
            daemon.app.runner._parts.preparer = None
            upload_all(world, 2)
            await world.until(lambda: any(one["Error"] for one in world.record("Running")))
            (record,) = world.record("Running")
            assert "needs its rows prepared by Spark" in record["Error"]
        with world.daemon():
            await world.settled()
        assert everything(world) == expected(0, 1)

    simulate(story, plain=True)


@modes
def test_load_jobs_in_flight_stay_under_their_limit(simulate: Simulate, asynchronous: bool) -> None:
    """Also those that nobody waits for: their completion may be another replica's to handle.

    The limit is used up by two tables: one alone has its share of it, which leaves a slot for the others.
    """

    async def story(world: World) -> None:
        for table in ("dummy", "other"):
            world.create_table(table)
            document = together(asynchronous, When={"Prefix": f"/{table}/"}, Dest={"Table": f"{DATASET}.{table}"})
            del document["Batch"]
            world.rule(f"{table}.json", document)
        assert world.plain is not None
        with world.daemon(max_concurrent_load=2):
            for number in range(7):
                for table in ("dummy", "other"):
                    world.upload(f"{table}/{number}.json", {"id": number, "name": "x"})
            await world.settled()
        assert world.rows() == world.rows("other") == expected(*range(7))
        jobs = list(world.plain.known.values())
        assert most_together(jobs) == 2
        for table in ("dummy", "other"):
            assert most_together([job for job in jobs if f"_{table}--" in job.reference["jobId"]]) == 1

    simulate(story, plain=True, job_latency=20.0)


def most_together(jobs: list[Job]) -> int:
    return max(sum(two.created <= one.created < (two.ended or two.created) for two in jobs) for one in jobs)


def test_batches_that_wait_for_spark_keep_no_other_waiting(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        prepare(world, "prepared", False)
        world.create_table("other")
        plain = together(False, Dest={"Table": f"{DATASET}.other"})
        del plain["Batch"]
        world.rule("other.json", plain | {"When": {"Prefix": "/other/"}})
        world.preparing = 600.0
        with world.daemon(jobs={"max_running": 1, "poll_every": "30s"}):
            upload_all(world, 2)
            await world.until(lambda: bool(world.record("Running")))
            world.upload("other/f.json", {"id": 7, "name": "x"})
            await world.until(lambda: bool(world.rows("other")), limit=60)
            assert world.rows() == []
            await world.settled(limit=3600)
        assert world.rows() == expected(0, 1)

    simulate(story, plain=True)


def test_a_table_that_got_other_columns_meanwhile_gets_the_batchs_as_well(simulate: Simulate) -> None:
    """Two batches with different new columns at once: the second one finds a table that the first one has widened."""

    async def story(world: World) -> None:
        world.create_table("dummy")
        drift = {"Schema": {"Drift": "evolve"}}
        world.rule("rule.json", together(False, Dest=drift, **ON_BIGQUERY))
        with world.daemon(**FEW):
            for number in range(4):
                world.upload(name(number), {"id": number, "name": "x", "mine": number})
            await world.until(lambda: any("__ingestd_" in table for table in world.tables()))
            fields = [*SCHEMA["fields"], {"name": "theirs", "type": "INTEGER"}]
            wider = {"schema": {"fields": fields}}
            world.bigquery.metadata.update_table(PROJECT, DATASET, "dummy", wider, patch=True, etag=None)
            await world.settled()
        assert [record["Status"] for record in world.record()] == ["done"]
        found = world.bigquery.metadata.get_table(PROJECT, DATASET, "dummy")["schema"]["fields"]
        assert [one["name"] for one in found] == ["id", "name", "theirs", "mine"]
        assert sorted(world.rows()) == [(str(number), "x", None, str(number)) for number in range(4)]

    simulate(story)


def test_a_table_that_is_replaced_by_several_loads_may_lose_columns(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy", {"fields": [*SCHEMA["fields"], {"name": "before", "type": "STRING"}]})
        drift = {"Schema": {"Drift": "evolve", "Autodetect": True}, "Override": True}
        world.rule("rule.json", together(False, Dest=drift, **ON_BIGQUERY))
        with world.daemon(**FEW):
            upload_all(world, 4)
            await world.settled()
        assert [record["Status"] for record in world.record()] == ["done"]
        assert sorted(world.rows()) == expected(*range(4))

    simulate(story)
