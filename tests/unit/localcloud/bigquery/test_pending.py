"""The journal of jobs that are not DONE: what is in it runs after a restart, what is over does not."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_objects import MemoryObjects

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery import pending
from ingestd.localcloud.bigquery.core import BigQueryCore
from ingestd.localcloud.bigquery.jobs import JobState
from ingestd.localcloud.bigquery.settings import BigQuerySettings


def reopen(root: Path, clock: ManualClock | None = None) -> BigQueryCore:
    settings = BigQuerySettings(workers=0)
    return BigQueryCore(root, project="p", objects=MemoryObjects(), clock=clock or ManualClock(), settings=settings)


def select(job_id: str) -> dict[str, Any]:
    query = {"query": "SELECT 1 AS one", "useLegacySql": False}
    return {"jobReference": {"jobId": job_id}, "configuration": {"query": query}}


def test_a_finished_job_does_not_run_again_and_keeps_its_id(tmp_path: Path) -> None:
    with reopen(tmp_path) as core:
        core.insert_job("p", select("j"))
        assert core.run_pending() == 1
    with reopen(tmp_path) as core:
        assert core.run_pending() == 0
        assert core.jobs.get("p", "j").state is JobState.DONE
        with pytest.raises(BigQueryError, match="Already Exists"):
            core.insert_job("p", select("j"))


def test_a_deleted_job_does_not_come_back(tmp_path: Path) -> None:
    with reopen(tmp_path) as core:
        core.insert_job("p", select("j"))
        core.run_pending()
        core.jobs.delete("p", "j")
    with reopen(tmp_path) as core:
        assert core.run_pending() == 0
        with pytest.raises(BigQueryError, match="Not found: Job"):
            core.jobs.get("p", "j")
        core.insert_job("p", select("j"))
        assert core.run_pending() == 1


def test_a_job_deleted_before_it_is_announced_does_not_come_back(tmp_path: Path) -> None:
    def refuse(_: dict[str, Any]) -> None:
        raise ConnectionError("the topic is away")

    settings = BigQuerySettings(workers=0)
    with BigQueryCore(tmp_path, project="p", objects=MemoryObjects(), settings=settings, on_job_done=refuse) as core:
        core.insert_job("p", select("j"))
        with pytest.raises(ConnectionError):
            core.run_pending()
        core.jobs.delete("p", "j")
        core.runner.sweep()
    with reopen(tmp_path) as core:
        assert core.run_pending() == 0
        with pytest.raises(BigQueryError, match="Not found: Job"):
            core.jobs.get("p", "j")


def test_a_line_cut_short_by_death_was_no_job(tmp_path: Path) -> None:
    with reopen(tmp_path) as core:
        core.insert_job("p", select("whole"))
    journal = tmp_path / pending.FILE_NAME
    journal.write_bytes(journal.read_bytes() + journal.read_bytes().replace(b"whole", b"torn")[:-20])
    with reopen(tmp_path) as core:
        core.insert_job("p", select("next"))
        assert core.run_pending() == 2
    with reopen(tmp_path) as core:
        assert {job["jobReference"]["jobId"] for job in core.jobs.list_jobs("p", {}, [])["jobs"]} == {"whole", "next"}


def test_a_long_journal_keeps_only_what_still_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "_REWRITE_BYTES", 1_000)
    with reopen(tmp_path) as core:
        for number in range(20):
            core.insert_job("p", select(f"done-{number}"))
            core.run_pending()
        core.insert_job("p", select("waits"))
    assert (tmp_path / pending.FILE_NAME).stat().st_size < 2_000
    with reopen(tmp_path) as core:
        assert core.run_pending() == 1
        assert core.jobs.get("p", "waits").state is JobState.DONE


def test_a_listing_shows_waiting_and_finished_jobs_once_and_in_order(tmp_path: Path) -> None:
    clock = ManualClock()
    with reopen(tmp_path, clock) as core:
        for name in ("a", "b", "c"):
            core.insert_job("p", select(name))
            if name != "c":
                core.run_pending()
            clock.advance(timedelta(seconds=1))
        shown: list[str] = []
        token = ""
        while True:
            page = core.jobs.list_jobs("p", {"maxResults": "1", "pageToken": token}, [])
            shown += [job["jobReference"]["jobId"] for job in page["jobs"]]
            token = page.get("nextPageToken", "")
            if not token:
                break
        assert shown == ["c", "b", "a"]
        waiting = core.jobs.list_jobs("p", {}, ["pending"])["jobs"]
        assert [job["jobReference"]["jobId"] for job in waiting] == ["c"]
