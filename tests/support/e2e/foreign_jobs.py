"""Jobs that are not ours: somebody's loads and queries, what follows them, and how they are announced."""

import json
from typing import Any

from google.cloud import bigquery
from tests.support.e2e.world import SCHEMA, World


def query(world: World, dest: str, sql: str = "SELECT 1 AS id, 'a' AS name") -> bigquery.QueryJob:
    config = bigquery.QueryJobConfig(destination=f"{world.project}.{dest}", write_disposition="WRITE_TRUNCATE")
    job = world.bigquery.query(sql, job_config=config)
    job.result()
    return job


def load(world: World, dest: str, job_id: str | None = None) -> bigquery.LoadJob:
    world.upload("elsewhere/mine.json")
    config = bigquery.LoadJobConfig(source_format="NEWLINE_DELIMITED_JSON", schema=SCHEMA)
    uri = f"gs://{world.trigger}/elsewhere/mine.json"
    return world.bigquery.load_table_from_uri(uri, f"{world.project}.{dest}", job_config=config, job_id=job_id)


def task(world: World, job_id: str, **lists: Any) -> None:
    """A deferred task as the dispatcher's documentation writes it."""
    document = {"DeferTaskURL": f"gs://{world.ops}/tasks/", "Async": True, "JobID": job_id, **lists}
    world.storage.bucket(world.ops).blob(f"tasks/{job_id}.json").upload_from_string(json.dumps(document))


def audit_entry(project: str, job_id: str, after: str = "DONE") -> bytes:
    """A completion as a log sink publishes it."""
    job = {"jobName": f"projects/{project}/jobs/{job_id}", "jobStatus": {"jobState": after}}
    payload = {
        "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
        "metadata": {
            "@type": "type.googleapis.com/google.cloud.audit.BigQueryAuditMetadata",
            "jobChange": {"after": after, "job": job},
        },
    }
    labels = {"project_id": project, "location": "US"}
    return json.dumps({"protoPayload": payload, "resource": {"labels": labels}}).encode()
