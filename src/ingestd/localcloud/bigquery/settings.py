"""How the local BigQuery behaves where the real one is configured or governed by Google."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class BigQuerySettings:
    job_latency: timedelta = timedelta()  # half of it a job is PENDING, half of it RUNNING, before its work is done
    poll_grace: timedelta = timedelta(milliseconds=50)  # jobs.get waits this long for a job that is about to be DONE
    workers: int = 4  # 0: nothing runs by itself; the owner calls `run_pending`
    enforce_quotas: bool = False  # the rate and daily limits; limits per job always hold
    legacy_audit: bool = False  # also publish the v1 shape of a completion
    default_location: str = "US"
    user_email: str = "local@ingestd.invalid"
    project_number: str = "123456789012"
    insert_id_memory: timedelta = timedelta(minutes=1)  # how long a streamed row's insertId suppresses duplicates
    sweep_interval: timedelta = timedelta(seconds=60)  # how often expired tables and partitions are freed
