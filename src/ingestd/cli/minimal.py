"""The shortest daemon there is: a notification comes, its rule's load job runs, the rows are there.

It waits for each job and runs no post-action; sources stay where they are.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import structlog
import yaml

from ingestd.gcp.connect import Clients
from ingestd.intake.notifications import ObjectEvent, Unreadable, parse_notification
from ingestd.model.errors import IngestError
from ingestd.model.jobs import JobKind, JobRef, JobRequest, Mode, job_id
from ingestd.ports import Message

log = structlog.get_logger(__name__)

_FORMATS = {".json": "NEWLINE_DELIMITED_JSON", ".csv": "CSV", ".parquet": "PARQUET", ".avro": "AVRO"}


async def run(clients: Clients, subscription: str, rules: Path | None) -> None:
    """Load what arrives, until cancelled."""
    known = await asyncio.to_thread(_read, rules) if rules else []
    async for message in _messages(clients, subscription):
        try:
            event = parse_notification(message.data, message.attributes)
            if event.finalized and (rule := _match(known, event)):
                await _load(clients, rule, event)
        except Unreadable as error:
            log.warning("intake.unreadable", reason=error.reason)
        except IngestError as error:
            log.warning("load.failed", error=str(error))
            continue  # not acknowledged: it comes back
        await clients.subscription(subscription).ack([message.ack_id])


def _read(folder: Path) -> list[dict[str, Any]]:
    return [yaml.safe_load(file.read_text()) for file in sorted(folder.glob("*.yaml"))]


async def _messages(clients: Clients, subscription: str) -> AsyncIterator[Message]:
    source = clients.subscription(subscription)
    while True:
        for message in await source.pull(100):
            yield message


def _match(rules: list[dict[str, Any]], event: ObjectEvent) -> dict[str, Any] | None:
    path = "/" + event.file.ref.name
    for rule in rules:
        when = rule.get("When", {})
        if path.startswith(when.get("Prefix", "")) and path.endswith(when.get("Suffix", "")):
            return rule
    return None


async def _load(clients: Clients, rule: dict[str, Any], event: ObjectEvent) -> None:
    dest, file = rule["Dest"], event.file
    dataset, _, table = dest["Table"].rpartition(".")
    project = clients.warehouse.project
    configuration = {
        "sourceUris": [file.ref.url],
        "sourceFormat": _FORMATS[Path(file.ref.name).suffix],
        "destinationTable": {"projectId": project, "datasetId": dataset, "tableId": table},
        "writeDisposition": "WRITE_TRUNCATE" if dest.get("Override") else "WRITE_APPEND",
        **({"skipLeadingRows": dest["SkipLeadingRows"]} if "SkipLeadingRows" in dest else {}),
    }
    ref = JobRef(project, "US", job_id(dest["Table"], file.event_id, 1, "load", Mode.TAIL))
    job = await clients.warehouse.insert_job(JobRequest(ref, JobKind.LOAD, configuration))
    while not job.done:
        await asyncio.sleep(0.1)
        job = await clients.warehouse.get_job(job.ref) or job
    rows = job.statistics.get("load", {}).get("outputRows")
    log.info("batch.loaded" if not job.failed else "batch.failed", file=str(file.ref), rows=rows, error=job.error)
