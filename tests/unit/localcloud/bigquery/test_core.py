"""The core in virtual time: job states, latency, cancellation, expiry, recovery, the outbox."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_objects import MemoryObjects
from tests.unit.localcloud.bigquery.bench import FIELDS, Bench

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery import execution
from ingestd.localcloud.bigquery.core import BigQueryCore
from ingestd.localcloud.bigquery.execution import Run
from ingestd.localcloud.bigquery.jobs import JobState
from ingestd.localcloud.bigquery.mirror import Session
from ingestd.localcloud.bigquery.settings import BigQuerySettings
from ingestd.localcloud.bigquery.sql.queries import CompiledQuery
from ingestd.localcloud.bigquery.sql.runner import Runner
from ingestd.localcloud.faults import Fault, FaultKind
from ingestd.model.schema import Schema


def test_nothing_runs_until_told(bench: Bench) -> None:
    job = bench.start(schema={"fields": FIELDS})
    assert bench.core.jobs.get("p", job.key.job_id).state is JobState.PENDING
    assert bench.core.run_pending() == 1
    assert bench.core.jobs.get("p", job.key.job_id).state is JobState.DONE
    assert bench.core.run_pending() == 0


def test_latency_is_half_waiting_and_half_running(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(job_latency=timedelta(seconds=10))
    job = bench.start(schema={"fields": FIELDS})
    states = []
    for _ in range(4):
        bench.core.run_pending()
        states.append(bench.core.jobs.get("p", job.key.job_id).state)
        bench.clock.advance(timedelta(seconds=4))
    assert states == [JobState.PENDING, JobState.PENDING, JobState.RUNNING, JobState.DONE]
    done = bench.core.jobs.get("p", job.key.job_id)
    assert done.started == job.created + timedelta(seconds=5)


def test_a_delay_fault_keeps_the_job_running_in_virtual_time(bench: Bench) -> None:
    bench.create()
    bench.core.hooks.plan.add(Fault("bigquery", "job.load", FaultKind.DELAY, resource="p/slow", seconds=60))
    bench.start(job_id="slow")
    bench.start(job_id="quick")
    bench.core.run_pending()
    states = {name: bench.core.jobs.get("p", name).state for name in ("slow", "quick")}
    assert states == {"slow": JobState.RUNNING, "quick": JobState.DONE}
    bench.clock.advance(timedelta(seconds=60))
    bench.core.run_pending()
    assert bench.core.jobs.get("p", "slow").state is JobState.DONE


def test_a_cancelled_job_writes_nothing(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(job_latency=timedelta(seconds=10))
    bench.create()
    job = bench.start()
    cancelled = bench.core.jobs.cancel("p", job.key.job_id)
    assert cancelled.error is not None
    assert (cancelled.state, cancelled.error.reason) == (JobState.DONE, "stopped")
    bench.clock.advance(timedelta(seconds=20))
    bench.core.run_pending()
    assert bench.rows() == []
    assert bench.audit[-1]["protoPayload"]["metadata"]["jobChange"]["job"]["jobStatus"]["errorResult"]["code"] == 1


def test_a_failed_load_leaves_the_table_as_it_was(bench: Bench) -> None:
    bench.create()
    bench.load()
    failed = bench.load(content='{"id": 2}\n{"id": "x"}\n', writeDisposition="WRITE_TRUNCATE")
    assert failed.error is not None
    assert bench.rows() == [["1", None]]


def test_what_is_said_of_a_column_stays_with_it(bench: Bench) -> None:
    """Through a load that adds a column, too."""
    said = {"collation": "und:ci", "policyTags": {"names": ["projects/p/locations/us/taxonomies/1/policyTags/2"]}}
    secret = {"name": "secret", "type": "STRING", "mode": "NULLABLE", **said}
    bench.create(schema={"fields": [secret]})
    updates = {"schemaUpdateOptions": ["ALLOW_FIELD_ADDITION"], "autodetect": True}
    assert bench.load(content='{"secret": "x", "more": 1}\n', **updates).error is None
    fields = bench.core.metadata.get_table("p", "d", "t")["schema"]["fields"]
    assert fields == [secret, {"name": "more", "type": "INTEGER", "mode": "NULLABLE"}]


def test_an_expired_table_does_not_exist_and_its_name_is_free(bench: Bench) -> None:
    due = bench.clock.now() + timedelta(hours=1)
    bench.create(expirationTime=str(round(due.timestamp() * 1000)))
    bench.load()
    bench.clock.advance(timedelta(hours=1))
    with pytest.raises(BigQueryError, match=r"Not found: Table p:d\.t"):
        bench.core.metadata.get_table("p", "d", "t")
    assert "tables" not in bench.core.metadata.list_tables("p", "d", {})
    bench.create()
    assert bench.rows() == []


def test_the_default_expiration_of_a_dataset_applies_to_new_tables(bench: Bench) -> None:
    bench.core.metadata.update_dataset("p", "d", {"defaultTableExpirationMs": "3600000"}, patch=True, etag=None)
    created = bench.create()
    assert int(created["expirationTime"]) == int(created["creationTime"]) + 3_600_000


def test_old_partitions_are_swept_and_young_ones_stay(bench: Bench) -> None:
    day = timedelta(days=1)
    bench.create(timePartitioning={"type": "DAY", "expirationMs": str(round(day.total_seconds() * 2000))})
    bench.load("t$20231228")
    bench.load("t$20231231", content='{"id": 2}\n')
    bench.core.runner.sweep()
    assert bench.rows() == [["2", None]]


def test_a_job_left_pending_runs_when_the_process_returns(tmp_path: Path) -> None:
    objects = MemoryObjects({"gs://b/a.json": b'{"id": 1}\n'})
    settings = BigQuerySettings(workers=0)
    load = {
        "sourceUris": ["gs://b/a.json"],
        "sourceFormat": "NEWLINE_DELIMITED_JSON",
        "destinationTable": {"datasetId": "d", "tableId": "t"},
        "schema": {"fields": FIELDS},
    }
    with BigQueryCore(tmp_path, project="p", objects=objects, clock=ManualClock(), settings=settings) as first:
        first.metadata.insert_dataset("p", {"datasetReference": {"datasetId": "d"}})
        first.insert_job("p", {"jobReference": {"jobId": "j"}, "configuration": {"load": load}})
    with BigQueryCore(tmp_path, project="p", objects=objects, clock=ManualClock(), settings=settings) as second:
        assert second.run_pending() == 1
        assert second.jobs.get("p", "j").statistics["load"]["outputRows"] == "1"
        with pytest.raises(BigQueryError, match=r"Already Exists: Job p:US\.j"):
            second.insert_job("p", {"jobReference": {"jobId": "j"}, "configuration": {"load": load}})


def query(sql: str, job_id: str) -> dict[str, Any]:
    configuration = {"query": {"query": sql, "useLegacySql": False}}
    return {"jobReference": {"jobId": job_id}, "configuration": configuration}


def die(*_: object) -> None:
    raise SystemExit


def die_after_commit(self: Session) -> None:
    self._conn.commit()
    raise SystemExit


@pytest.mark.parametrize(
    ("sql", "where", "how", "again", "reason"),
    [
        pytest.param("INSERT INTO d.t (id) VALUES (1)", Run, die, 1, None, id="before the commit"),
        pytest.param("INSERT INTO d.t (id) VALUES (1)", Session, die_after_commit, 0, None, id="after the commit"),
        pytest.param("INSERT INTO d.t (id) VALUES (1); SELECT 1", Run, die, 0, "backendError", id="inside a script"),
    ],
)
def test_a_change_committed_before_death_is_never_applied_twice(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sql: str,
    where: type,
    how: Callable[..., None],
    again: int,
    reason: str | None,
) -> None:

    settings = BigQuerySettings(workers=0)
    with BigQueryCore(tmp_path, project="p", objects=MemoryObjects(), settings=settings) as first:
        first.metadata.insert_dataset("p", {"datasetReference": {"datasetId": "d"}})
        table = {"tableReference": {"tableId": "t"}, "schema": {"fields": FIELDS}}
        first.metadata.insert_table("p", "d", table)
        first.insert_job("p", query(sql, "j"))
        with monkeypatch.context() as patch, pytest.raises(SystemExit):
            patch.setattr(where, "finish" if where is Run else "commit", how)
            first.run_pending()
    with BigQueryCore(tmp_path, project="p", objects=MemoryObjects(), settings=settings) as second:
        assert second.run_pending() == again
        job = second.jobs.get("p", "j")
        assert job.state is JobState.DONE
        assert (job.error.reason if job.error else None) == reason
        if reason is None:
            assert job.statistics["query"]["numDmlAffectedRows"] == "1"
        assert second.metadata.get_table("p", "d", "t")["numRows"] == "1"


def test_a_change_whose_marker_cannot_be_written_is_rolled_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no marker")

    bench.create()
    monkeypatch.setattr(execution, "mark", refuse)
    job = bench.core.wait(bench.core.insert_job("p", query("INSERT INTO d.t (id) VALUES (1); SELECT 1", "j")))
    assert job.error is not None
    assert job.error.reason == "internalError"
    assert bench.rows() == []


def test_a_change_whose_done_row_cannot_be_written_is_rolled_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no row")

    bench.create()
    before = bench.core.metadata.get_table("p", "d", "t")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "finish", refuse)
        job = bench.core.wait(bench.core.insert_job("p", query("INSERT INTO d.t (id) VALUES (1)", "j")))
    assert job.error is not None
    assert job.error.reason == "internalError"
    assert bench.rows() == []
    assert bench.core.metadata.get_table("p", "d", "t") == before


def test_a_query_compiled_from_columns_that_changed_meanwhile_runs_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.create()
    keep = Runner.keep
    runs: list[str] = []

    def slow(self: Runner, query: CompiledQuery, bound: Mapping[str, object]) -> tuple[str, Schema]:
        runs.append(query.sql)
        if len(runs) == 1:
            patch = {"schema": {"fields": [*FIELDS, {"name": "late", "type": "STRING"}]}}
            bench.core.metadata.update_table("p", "d", "t", patch, patch=True, etag=None)
        return keep(self, query, bound)

    monkeypatch.setattr(Runner, "keep", slow)
    answer = bench.core.query("p", {"query": "SELECT * FROM d.t", "useLegacySql": False})
    assert len(runs) == 2
    assert answer["schema"]["fields"][-1]["name"] == "late"


def test_metadata_of_a_rolled_back_script_is_never_seen(bench: Bench) -> None:
    bench.create()
    before = bench.core.metadata.get_table("p", "d", "t")
    script = "BEGIN TRANSACTION; INSERT INTO d.t (id) VALUES (1); ROLLBACK TRANSACTION;"
    assert bench.core.wait(bench.core.insert_job("p", query(script, "j"))).error is None
    assert bench.core.metadata.get_table("p", "d", "t") == before


def test_a_destination_for_dml_is_refused_before_it_runs(bench: Bench) -> None:
    bench.create()
    resource = query("INSERT INTO d.t (id) VALUES (1)", "j")
    resource["configuration"]["query"]["destinationTable"] = {"datasetId": "d", "tableId": "other"}
    job = bench.core.wait(bench.core.insert_job("p", resource))
    assert job.error is not None
    assert "Cannot set destination table" in job.error.message
    assert bench.rows() == []


def test_an_undelivered_audit_entry_is_delivered_after_a_restart(tmp_path: Path) -> None:
    def refuse(_: dict[str, Any]) -> None:
        raise ConnectionError("the topic is away")

    delivered: list[dict[str, Any]] = []
    settings = BigQuerySettings(workers=0)
    query = {
        "configuration": {
            "load": {"sourceUris": ["gs://b/none"], "destinationTable": {"datasetId": "d", "tableId": "t"}}
        }
    }
    with BigQueryCore(tmp_path, project="p", objects=MemoryObjects(), settings=settings, on_job_done=refuse) as first:
        first.insert_job("p", query)
        with pytest.raises(ConnectionError):
            first.run_pending()
    with BigQueryCore(
        tmp_path, project="p", objects=MemoryObjects(), settings=settings, on_job_done=delivered.append
    ) as second:
        second.run_pending()
        second.run_pending()
    assert len(delivered) == 1


def test_concurrent_jobs_and_requests_lose_nothing(tmp_path: Path) -> None:
    objects = MemoryObjects({"gs://b/a.json": b'{"id": 1}\n'})
    settings = BigQuerySettings(workers=4)
    with BigQueryCore(tmp_path, project="p", objects=objects, settings=settings) as core:
        core.metadata.insert_dataset("p", {"datasetReference": {"datasetId": "d"}})
        for name in ("a", "b"):
            table = {"tableReference": {"tableId": name}, "schema": {"fields": FIELDS}}
            core.metadata.insert_table("p", "d", table)
        failures: list[BaseException] = []

        def work(worker: int) -> None:
            try:
                for turn in range(10):
                    name = "ab"[(worker + turn) % 2]
                    load = {
                        "sourceUris": ["gs://b/a.json"],
                        "sourceFormat": "NEWLINE_DELIMITED_JSON",
                        "destinationTable": {"datasetId": "d", "tableId": name},
                    }
                    job = core.insert_job("p", {"configuration": {"load": load}})
                    core.metadata.update_table("p", "d", name, {"labels": {"w": str(worker)}}, patch=True, etag=None)
                    assert core.wait(job, 20).error is None
            except Exception as error:  # noqa: BLE001 - told to the test's own thread below
                failures.append(error)

        threads = [Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        counts = [int(core.metadata.get_table("p", "d", name)["numRows"]) for name in ("a", "b")]
        assert counts == [20, 20]


def test_posted_bytes_outlive_a_restart_and_go_with_their_job(tmp_path: Path) -> None:
    settings = BigQuerySettings(workers=0)
    load = {"destinationTable": {"datasetId": "d", "tableId": "t"}, "schema": {"fields": FIELDS}}
    job = {"jobReference": {"jobId": "posted"}, "configuration": {"load": load}}
    with BigQueryCore(tmp_path, project="p", objects=MemoryObjects(), settings=settings) as first:
        first.metadata.insert_dataset("p", {"datasetReference": {"datasetId": "d"}})
        first.upload_job("p", job, b"1,a\n")
        (tmp_path / "uploads" / "left-behind").write_bytes(b"x")
    with BigQueryCore(tmp_path, project="p", objects=MemoryObjects(), settings=settings) as second:
        second.run_pending()
        assert second.jobs.get("p", "posted").statistics["load"]["outputRows"] == "1"
    with BigQueryCore(tmp_path, project="p", objects=MemoryObjects(), settings=settings):
        assert list((tmp_path / "uploads").iterdir()) == []


def test_jobs_are_remembered_for_half_a_year(bench: Bench) -> None:
    bench.create()
    job = bench.load()
    bench.clock.advance(timedelta(days=181))
    bench.core.runner.sweep()
    bench.core.runner.forget(job.key)
    with pytest.raises(BigQueryError, match="Not found: Job"):
        bench.core.jobs.get("p", job.key.job_id)


def test_cancelling_a_running_statement_interrupts_it(tmp_path: Path) -> None:
    started = Event()

    class Endless(MemoryObjects):
        def read(self, uri: str) -> bytes:
            started.set()
            release.wait(10)
            return super().read(uri)

    release = Event()
    objects = Endless({"gs://b/a.json": b'{"id": 1}\n'})
    load = {
        "sourceUris": ["gs://b/a.json"],
        "sourceFormat": "NEWLINE_DELIMITED_JSON",
        "destinationTable": {"datasetId": "d", "tableId": "t"},
        "schema": {"fields": FIELDS},
    }
    with BigQueryCore(tmp_path, project="p", objects=objects) as core:
        core.metadata.insert_dataset("p", {"datasetReference": {"datasetId": "d"}})
        job = core.insert_job("p", {"configuration": {"load": load}})
        assert started.wait(10)
        assert core.jobs.cancel("p", job.key.job_id).state is JobState.RUNNING
        release.set()
        done = core.wait(job, 10)
        assert done.error is not None
        assert done.error.reason == "stopped"
        with pytest.raises(BigQueryError, match="Not found: Table"):
            core.metadata.get_table("p", "d", "t")
