"""A batch's record as a story: what happened, in order, with names and numbers a person can look up."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ingestd.actions.plan import plan
from ingestd.batch.record import Kind, Record
from ingestd.ledger.explain import Incident, files, rows
from ingestd.ledger.unloaded import Unloaded
from ingestd.model.errors import IngestError
from ingestd.model.objects import FileVersion, Generation, ObjectRef

_SHOWN_FILES = 200


def batch_story(record: Record, url: str) -> dict[str, Any]:
    """Everything about a batch, its first files included."""
    return {
        "event_id": record.event_id,
        "kind": record.kind,
        "phase": record.phase,
        "dest": record.dest,
        "rule": record.rule.name,
        "rule_url": record.rule.url,
        "rule_hash": record.rule.content_hash[:12],
        "created": record.created,
        "updated": record.stamp.updated,
        "owner": record.stamp.owner,
        "retry_at": record.wait.until,
        "error": record.error,
        "rows": record.rows,
        "record": url,
        "steps": _steps(record, None, url),
        "file_count": len(record.files),
        "files": [_file(record, index, file) for index, file in enumerate(record.files[:_SHOWN_FILES])],
    }


def file_story(
    record: Record, ref: ObjectRef, url: str, unloaded: Mapping[Generation, Unloaded]
) -> list[dict[str, Any]]:
    """How far each generation of an object got in this batch, and what became of those that it did not load."""
    return [
        {
            "generation": str(file.generation),
            "phase": record.phase,
            "fate": record.progress.fate_of(index),
            "event_id": record.event_id,
            "record": url,
            "error": record.error,
            "retry_at": record.wait.until,
            "rows": record.rows,
            "steps": _steps(record, index, url, unloaded.get(file.generation)),
        }
        for index, file in enumerate(record.known_files)
        if file.ref == ref
    ]


def remembered_story(incident: Incident) -> dict[str, Any]:
    """What the load-state table still knows of a batch whose record is gone."""
    steps = [_step("batch", "ok", f"{incident.event_id} for {incident.destination}; its record has expired")]
    if incident.job_id:
        steps.append(_step("load job", "ok", incident.job_id))
    good = incident.phase not in ("failed", "missing")
    text = incident.phase + (f": {incident.error}" if incident.error else "")
    if incident.phase == "done" and incident.files_set_aside:
        count = f"{incident.files_set_aside:,} of its {files(incident.files)}"
        steps.append(_step("set aside", "bad", f"{count}; whether this is one of them is not known any more"))
    return {
        "generation": str(incident.generation),
        "phase": incident.phase,
        "fate": incident.fate,
        "event_id": incident.event_id,
        "record": "",
        "error": incident.error,
        "retry_at": incident.retry_at,
        "rows": incident.rows,
        "steps": [*steps, _step("end", "ok" if good else "bad", text, at=incident.updated)],
    }


def _file(record: Record, index: int, file: FileVersion) -> dict[str, Any]:
    aside = record.progress.aside.get(index)
    place = where(aside.row, aside.column) if aside else ""
    return {
        "url": file.ref.url,
        "generation": str(file.generation),
        "size": file.size,
        "time": file.event_time,
        "fate": record.progress.fate_of(index),
        "why": aside.why + place if aside else "",
    }


def _steps(record: Record, index: int | None, url: str, unloaded: Unloaded | None = None) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    if index is not None and index < len(record.files):
        file = record.files[index]
        text = f"{file.size:,} bytes, generation {file.generation}"
        steps.append(_step("uploaded", "ok", text, at=file.event_time))
    rule = record.rule
    steps.append(_step("rule", "ok", f"{rule.name} ({rule.url}), version {rule.content_hash[:12]}"))
    if record.window:
        began = datetime.fromtimestamp(record.window.start, record.created.tzinfo)
        shards = len(record.window.shards)
        steps.append(_step("window", "ok", f"{record.window.name}, {shards} shard{'s' * (shards != 1)}", at=began))
    together = files(len(record.files))
    steps.append(_step("batch", "ok", f"{record.event_id}: {together} for {record.dest}", at=record.created, link=url))
    steps += _jobs(record)
    if index is not None and (aside := record.progress.aside.get(index)):
        wrong = "bad" if aside.fate.wrong else "ok"
        steps.append(_step("set aside", wrong, f"{aside.fate}: {aside.why}" + where(aside.row, aside.column)))
        if unloaded and unloaded.fate.wrong:
            steps.append(_step("kept", "ok", _kept(unloaded, record.files[index].ref), link=unloaded.kept_url))
    steps += _actions(record, apart=unloaded is not None)
    steps.append(_end(record, apart=unloaded is not None))
    if unloaded and unloaded.remedy:
        steps.append(_step("what to do", "now" if unloaded.fate.wrong else "ok", unloaded.remedy))
    return steps


def _jobs(record: Record) -> list[dict[str, Any]]:
    if record.kind is not Kind.LOAD:
        return [_step("job", "ok", str(record.trigger_job))] if record.trigger_job else []
    found = []
    for load in record.progress.loads:
        text = f"{record.load_job(load.job).job_id}: {rows(load.rows)} from {files(len(load.files))}"
        found.append(_step("load job", "ok", f"{text}, {load.size:,} bytes"))
    for chunk in record.progress.chunks:
        text = f"{record.load_job(chunk.job).job_id}: {files(len(chunk.files))}"
        found.append(_step("load job", "now", text + (f", {chunk.failures} failures so far" * bool(chunk.failures))))
    if record.progress.staged and record.progress.publishing:
        found.append(_step("publish", "ok" if record.rows is not None else "now", record.publish_job().job_id))
    return found


def _kept(unloaded: Unloaded, source: ObjectRef) -> str:
    if not unloaded.kept_url:
        return "nowhere that is known: it was taken away since, or uploaded again"
    where = "where it was uploaded" if unloaded.kept_url == source.url else "there"
    return where + (f", with the reason in {unloaded.reason_url}" if unloaded.reason_url else "")


def _actions(record: Record, *, apart: bool) -> list[dict[str, Any]]:
    try:
        planned = plan(record.rule.on_success, record.rule.on_failure)
        names = {action.step: action.name for action in planned.walk()}
        others = {action.step for first in planned.on_success for action in first.walk()} if apart else set()
    except IngestError:
        names, others = {}, set()
    return [
        _step(
            f"action {names.get(step, step)}",
            "bad" if "fail" in one.outcome else "ok",
            f"step {step}: {one.outcome}" + ", for the files that were loaded" * (step in others),
        )
        for step, one in sorted(record.steps.items())
    ]


def _end(record: Record, *, apart: bool) -> dict[str, Any]:
    """How the batch ended; `apart`: without the file that is looked at."""
    if record.phase.final:
        good = record.phase not in ("failed", "missing")
        loaded = f", {rows(record.rows)}" if record.rows is not None else ""
        if apart and record.rows is not None:
            loaded += f" from {len(record.progress.loaded):,} of its {files(len(record.files))}, without this one"
        text = f"{record.phase}{loaded}" + (f": {record.error}" if record.error else "")
        return _step("end", "ok" if good else "bad", text, at=record.stamp.updated)
    if record.wait.until:
        return _step("waits", "bad", f"{record.error}; tried again by itself", at=record.wait.until)
    owner = record.stamp.owner
    doing = f"being worked on by {owner}" if owner else "its job runs; the completion continues it"
    return _step("now", "now", f"{record.phase}, {doing}", at=record.stamp.updated)


def where(row: int | None, column: str) -> str:
    """`, row 3, column total`: where in a file something is wrong, as far as that is known."""
    return (f", row {row}" if row is not None else "") + (f", column {column}" if column else "")


def _step(what: str, state: str, text: str, *, at: datetime | None = None, link: str = "") -> dict[str, Any]:
    return {"what": what, "state": state, "text": text, "at": at, "link": link}
