"""Audit log entries, v2 and legacy v1, name the finished job."""

import json
from typing import Any

import pytest

from ingestd.intake.audit import JobDone, OtherEntry, parse_audit
from ingestd.intake.notifications import Unreadable
from ingestd.model.jobs import JobRef


def v2(after: str = "DONE", job_name: Any = "projects/p/jobs/ds_t--1_00001_load--dispatch") -> dict[str, Any]:
    return {
        "protoPayload": {
            "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
            "serviceName": "bigquery.googleapis.com",
            "methodName": "google.cloud.bigquery.v2.JobService.InsertJob",
            "metadata": {
                "@type": "type.googleapis.com/google.cloud.audit.BigQueryAuditMetadata",
                "jobChange": {
                    "before": "RUNNING",
                    "after": after,
                    "job": {"jobName": job_name, "jobStatus": {"jobState": after}},
                },
            },
        },
        "resource": {"type": "bigquery_project", "labels": {"project_id": "p", "location": "EU"}},
    }


def v1() -> dict[str, Any]:
    name = {"projectId": "p", "jobId": "ds_t--1_00001_load--dispatch", "location": "EU"}
    return {
        "protoPayload": {
            "methodName": "jobservice.jobcompleted",
            "serviceData": {"jobCompletedEvent": {"eventName": "load_job_completed", "job": {"jobName": name}}},
        }
    }


@pytest.mark.parametrize("entry", [v2(), v1()], ids=["v2", "v1"])
def test_both_shapes_name_the_same_job(entry: dict[str, Any]) -> None:
    expected = JobRef("p", "EU", "ds_t--1_00001_load--dispatch")
    assert parse_audit(json.dumps(entry).encode(), {}) == JobDone(expected)


def test_a_job_that_only_started_announces_nothing() -> None:
    assert isinstance(parse_audit(json.dumps(v2(after="RUNNING")).encode(), {}), OtherEntry)


def test_other_audit_entries_are_not_errors() -> None:
    entry = {"protoPayload": {"methodName": "google.cloud.bigquery.v2.TableService.InsertTable", "metadata": {}}}
    assert isinstance(parse_audit(json.dumps(entry).encode(), {}), OtherEntry)


@pytest.mark.parametrize(
    "data", [b"nope", b"{}", b"[]", json.dumps(v2(job_name=7)).encode(), json.dumps(v2(job_name="x/y")).encode()]
)
def test_what_is_no_audit_entry_says_why(data: bytes) -> None:
    with pytest.raises(Unreadable):
        parse_audit(data, {})


@pytest.mark.parametrize("job", ["projects/p/jobs/" + "x" * 5000, f"projects/{'p' * 500}/jobs/a"])
def test_a_job_name_that_no_job_can_have_is_unreadable(job: str) -> None:
    with pytest.raises(Unreadable, match="cannot be one"):
        parse_audit(json.dumps(v2(job_name=job)).encode(), {})
