"""Batches of many files: bad ones are set aside exactly, large ones appear at once, and crashes change nothing."""

import asyncio
from collections.abc import Callable, Iterator

import orjson
import pytest
from tests.support.rule_documents import modes, together
from tests.support.sim.names import DATASET, OPS, PROJECT, TRIGGER
from tests.support.sim.stories import (
    OLD_ROW,
    PLACES,
    SMALL,
    Simulate,
    crash_everywhere,
    expected,
    fill,
    name,
    upload_all,
)
from tests.support.sim.world import World

from ingestd.batch import journal
from ingestd.formats.errors import BigQueryError
from ingestd.formats.problems import Tally
from ingestd.localcloud.faults import Fault, FaultKind


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A BigQuery that refuses files without saying which."""

    def raise_if_failed(self: Tally) -> None:
        if self.failed:
            raise BigQueryError(
                "invalid", "Error while reading data, error message: The data is not what it should be."
            )

    monkeypatch.setattr(Tally, "raise_if_failed", raise_if_failed)
    yield


@modes
def test_exactly_the_bad_files_are_quarantined_with_their_reasons(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(together(asynchronous, **PLACES))
        with world.daemon():
            upload_all(world, 4, corrupted=(1,), invalid=(4,))
            await world.settled()
        assert world.rows() == expected(0, 2, 3, 5)
        assert world.objects("data/", TRIGGER) == []
        assert world.objects("corrupted/") == [f"corrupted/{name(1)}", f"corrupted/{name(1)}.reason.json"]
        assert world.objects("invalid/") == [f"invalid/{name(4)}", f"invalid/{name(4)}.reason.json"]
        reason = orjson.loads(world.storage.read(OPS, f"invalid/{name(4)}.reason.json"))
        assert reason["Reason"] == "invalid_schema"
        assert reason["Column"] == "id"
        assert reason["Position"] == len(b'{"id":4,"name":"x"}\n')
        assert reason["Row"] == 2
        assert "Could not convert value to integer" in reason["Message"]
        (record,) = world.record()
        assert record["Status"] == "done"
        assert record["Rows"] == 4
        assert {reason["EventID"], reason["Rule"]} == {record["EventID"], record["RuleName"]}
        assert reason["JobID"] == world.jobs()[-1]["jobReference"]["jobId"]
        assert {index: one["Fate"] for index, one in record["Progress"]["Aside"].items()} == {
            "1": "corrupted",
            "4": "invalid_schema",
        }
        assert len(world.jobs()) == 2

    simulate(story)


@modes
def test_a_crash_after_any_effect_of_a_batch_with_bad_files_changes_nothing(
    simulate: Simulate, asynchronous: bool
) -> None:
    def prepare(world: World) -> None:
        world.prepared(together(asynchronous, **PLACES))
        upload_all(world, 4, corrupted=(1,), invalid=(4,))

    def check(world: World) -> None:
        assert world.rows() == expected(0, 2, 3, 5)
        assert world.objects("data/", TRIGGER) == []
        assert world.objects("corrupted/") == [f"corrupted/{name(1)}", f"corrupted/{name(1)}.reason.json"]
        assert world.objects("invalid/") == [f"invalid/{name(4)}", f"invalid/{name(4)}.reason.json"]
        assert [record["Status"] for record in world.record()] == ["done"]
        assert len(world.jobs()) == 2

    assert crash_everywhere(simulate, prepare, check) >= 15


@modes
def test_a_crash_after_any_effect_of_a_search_changes_nothing(simulate: Simulate, asynchronous: bool) -> None:
    def prepare(world: World) -> None:
        world.prepared(together(asynchronous, CorruptedFileURL=f"gs://{OPS}/corrupted"))
        upload_all(world, 4, corrupted=(2, 3))

    def check(world: World) -> None:
        assert world.rows() == expected(0, 1, 4, 5)
        assert world.objects("data/", TRIGGER) == []
        moved = [one for one in world.objects("corrupted/") if not one.endswith(".reason.json")]
        assert moved == [f"corrupted/{name(2)}", f"corrupted/{name(3)}"]
        assert [record["Status"] for record in world.record()] == ["done"]
        assert len(world.jobs()) <= 2 * (3 + 1) + 1

    assert crash_everywhere(simulate, prepare, check, names_bad_files=False) >= 20


def visible_at_once(world: World, complete: list[tuple[str, str]], before: list[tuple[str, str]]) -> Callable[[], bool]:
    """Settled; and on the way there nobody saw half a batch."""

    def done() -> bool:
        assert world.rows() in (before, complete)
        return world.quiet()

    return done


@modes
def test_a_batch_of_several_jobs_appears_at_once(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(together(asynchronous))
        with world.daemon(**SMALL):
            upload_all(world, 6)
            await world.until(visible_at_once(world, expected(*range(6)), []))
        assert world.rows() == expected(*range(6))
        assert len(world.jobs()) == 3
        assert len(world.jobs("copy")) == 1
        assert world.tables() == ["dummy"]
        (record,) = world.record()
        assert (record["Status"], record["Rows"], record["Staged"]) == ("done", 6, True)

    simulate(story, job_latency=5.0)


@modes
def test_a_crash_after_any_effect_of_a_staged_batch_changes_nothing(simulate: Simulate, asynchronous: bool) -> None:
    def prepare(world: World) -> None:
        world.prepared(together(asynchronous, **PLACES))
        upload_all(world, 5, corrupted=(3,))

    def check(world: World) -> None:
        assert world.rows() == expected(0, 1, 2, 4, 5)
        assert world.objects("data/", TRIGGER) == []
        assert world.tables() == ["dummy"]
        assert len(world.jobs()) == 4
        assert len(world.jobs("copy")) == 1
        assert [record["Status"] for record in world.record()] == ["done"]

    assert crash_everywhere(simulate, prepare, check, **SMALL) >= 20


def test_a_crash_after_any_effect_of_a_replacing_batch_changes_nothing(simulate: Simulate) -> None:
    def prepare(world: World) -> None:
        world.prepared(together(True, Dest={"Override": True}))
        assert world.plain is not None
        world.plain.tables[f"{DATASET}.dummy"].rows[99] += 1
        upload_all(world, 6)

    def check(world: World) -> None:
        assert world.rows() == expected(*range(6))
        assert world.tables() == ["dummy"]

    assert crash_everywhere(simulate, prepare, check, **SMALL) >= 15


@modes
def test_a_search_in_a_replacing_batch_replaces_once(simulate: Simulate, asynchronous: bool, nameless: None) -> None:
    async def story(world: World) -> None:
        world.prepared(together(asynchronous, Dest={"Override": True}, **PLACES))
        fill(world)
        await world.until(lambda: world.rows() == [OLD_ROW])
        with world.daemon():
            upload_all(world, 5, corrupted=(4,))
            await world.until(visible_at_once(world, expected(0, 1, 2, 3, 5), [OLD_ROW]))
        assert world.rows() == expected(0, 1, 2, 3, 5)
        assert world.tables() == ["dummy"]
        assert len(world.objects("corrupted/")) == 2

    simulate(story)


@modes
def test_an_incomplete_batch_never_replaces_a_table(simulate: Simulate, asynchronous: bool, nameless: None) -> None:
    async def story(world: World) -> None:
        world.prepared(together(asynchronous, Dest={"Override": True}, MaxReload=2, **PLACES))
        fill(world)
        await world.until(lambda: world.rows() == [OLD_ROW])
        with world.daemon():
            upload_all(world, 6, corrupted=(1, 5))
            await world.settled()
        assert world.rows() == [OLD_ROW]
        assert len(world.objects("data/", TRIGGER)) == 8
        assert [record["Status"] for record in world.record()] == ["failed"]
        assert world.tables() == ["dummy"]

    simulate(story)


@modes
def test_the_rest_fails_when_reloads_run_out_and_the_loaded_part_stands(
    simulate: Simulate, asynchronous: bool, nameless: None
) -> None:
    failed = [{"Action": "move", "Request": {"DestURL": f"gs://{OPS}/failed"}}]

    async def story(world: World) -> None:
        world.prepared(together(asynchronous, MaxReload=2, OnFailure=failed, **PLACES))
        with world.daemon():
            upload_all(world, 7, corrupted=(7,))
            await world.settled()
        loaded = {number for number, _ in world.rows()}
        moved = world.objects("failed/")
        assert loaded
        assert moved == [f"failed/{name(number)}" for number in range(8) if str(number) not in loaded]
        assert world.objects("data/", TRIGGER) == []
        assert world.objects("corrupted/") == [], "nobody knows which of them is bad"
        (record,) = world.record()
        assert record["Status"] == "failed"
        assert record["Rows"] == len(loaded)
        assert len(world.jobs()) == 3
        (listing,) = [one for one in world.objects("errors/") if one.endswith(".files.json")]
        assert len(orjson.loads(world.storage.read(OPS, listing))["Files"]) == len(moved)

    simulate(story)


@modes
def test_if_no_file_is_good_on_failure_runs(simulate: Simulate, asynchronous: bool) -> None:
    failed = [{"Action": "move", "Request": {"DestURL": f"gs://{OPS}/failed"}}]

    async def story(world: World) -> None:
        world.prepared(together(asynchronous, OnFailure=failed))
        with world.daemon():
            upload_all(world, 0, corrupted=(0, 1, 2))
            await world.settled()
        assert world.rows() == []
        assert world.objects("failed/") == [f"failed/{name(number)}" for number in range(3)]
        assert [record["Status"] for record in world.record()] == ["failed"]

    simulate(story)


@modes
def test_without_a_place_to_go_bad_files_stay_and_are_listed(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(together(asynchronous))
        with world.daemon():
            upload_all(world, 3, corrupted=(1,))
            await world.settled()
        assert world.rows() == expected(0, 2, 3)
        assert world.objects("data/", TRIGGER) == [name(1)]
        (record,) = world.record()
        assert record["Status"] == "done"
        (listing,) = world.objects("errors/")
        (one,) = orjson.loads(world.storage.read(OPS, listing))["Files"]
        assert one["Kept"] == one["Source"] == f"gs://{TRIGGER}/{name(1)}"

    simulate(story)


@modes
def test_a_wrong_table_blames_no_file(simulate: Simulate, asynchronous: bool) -> None:
    """What every file is refused for alike is nobody's fault among them, and no search is worth a load."""

    async def story(world: World) -> None:
        world.create_table("dummy", {"fields": []})
        world.rule("rule.json", together(asynchronous, **PLACES))
        with world.daemon():
            upload_all(world, 4)
            await world.settled()
        assert len(world.jobs()) == 1
        assert len(world.objects("data/", TRIGGER)) == 4
        assert [record["Status"] for record in world.record()] == ["failed"]

    simulate(story)


@modes
def test_files_that_vanish_or_are_overwritten_are_dropped_one_by_one(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(together(asynchronous))
        with world.daemon():
            upload_all(world, 5)
            await asyncio.sleep(3)
            world.storage.objects.delete(TRIGGER, name(1))
            world.upload(name(3), {"id": 30, "name": "x"})
            await world.settled()
        assert world.rows() == expected(0, 2, 4, 30)
        assert world.objects("data/", TRIGGER) == []
        aside = {
            record["Files"][int(index)]["URL"].rpartition("/")[2]: one["Fate"]
            for record in world.record()
            for index, one in record["Progress"]["Aside"].items()
        }
        assert aside == {"f1.json": "missing", "f3.json": "superseded"}

    simulate(story)


@modes
def test_a_batch_of_which_nothing_is_left_ends_quietly(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(together(asynchronous))
        upload_all(world, 3)
        for number in range(3):
            world.storage.objects.delete(TRIGGER, name(number))
        with world.daemon():
            await world.settled()
        assert world.jobs() == []
        assert [record["Status"] for record in world.record()] == ["missing"]

    simulate(story)


@modes
def test_one_part_that_fails_for_a_moment_is_repeated_alone(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(together(asynchronous))
        world.faults.add(Fault("bigquery", "job.load", FaultKind.FAIL, reason="backendError", times=1))
        world.faults.add(Fault("bigquery", "job.copy", FaultKind.FAIL, reason="backendError", times=2))
        with world.daemon(**SMALL):
            upload_all(world, 6)
            await world.settled(limit=3600)
        assert world.rows() == expected(*range(6))
        assert len(world.jobs()) == 4
        assert len(world.jobs("copy")) == 3
        assert world.tables() == ["dummy"]

    simulate(story)


def test_a_staging_table_that_is_lost_is_filled_again(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(together(False))
        world.faults.add(Fault("bigquery", "job.copy", FaultKind.FAIL, reason="backendError", times=1))
        with world.daemon(**SMALL):
            upload_all(world, 4)
            await world.until(lambda: len(world.jobs("copy")) == 1)
            await world.until(lambda: world.jobs("copy")[0]["status"]["state"] == "DONE")
            (staged,) = [table for table in world.tables() if table != "dummy"]
            world.bigquery.metadata.delete_table(PROJECT, DATASET, staged)
            await world.settled(limit=3600)
        assert world.rows() == expected(*range(4))
        assert world.tables() == ["dummy"]

    simulate(story)


def test_a_long_list_of_files_is_written_once_beside_the_record(
    simulate: Simulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "INLINE", 3)

    def prepare(world: World) -> None:
        world.prepared(together(False, **PLACES))
        upload_all(world, 5, corrupted=(2,))

    def check(world: World) -> None:
        assert world.rows() == expected(0, 1, 3, 4, 5)
        (record,) = world.record()
        assert (record["Files"], record["FileCount"], record["Status"]) == ([], 6, "done")
        listed = orjson.loads(world.storage.read(OPS, record["FilesURL"].removeprefix(f"gs://{OPS}/")))
        assert len(listed["Files"]) == 6

    crash_everywhere(simulate, prepare, check)


def test_a_burst_of_single_files_keeps_to_the_quotas(simulate: Simulate) -> None:
    single = {key: value for key, value in together(False).items() if key != "Batch"}

    async def story(world: World) -> None:
        world.prepared(single)
        with world.daemon() as daemon:
            upload_all(world, 60)
            await world.settled(limit=3600)
            status = daemon.app.governor.status()
        assert world.rows() == expected(*range(60))
        refused = [job for job in world.jobs() if "errorResult" in job["status"]]
        assert len(refused) <= 3, "jobs that end closer together than they began are all that BigQuery had to refuse"
        assert status["tables"][0]["used_today"] == len(world.jobs())

    simulate(story, enforce_quotas=True)
