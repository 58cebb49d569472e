"""Proof that a load did what it was asked, before anything is deleted on the strength of it.

A job that is `DONE` without `errorResult` must also have read every file we gave it. Whether it read the generations
that were meant is another question (see `batch.overwrites`).
"""

from collections.abc import Sequence

from ingestd.model.errors import Fatal
from ingestd.model.jobs import JobState
from ingestd.model.objects import FileVersion


def loaded_rows(job: JobState) -> int:
    return _count(job, "outputRows") or 0


def loaded_bytes(job: JobState) -> int:
    return _count(job, "inputFileBytes") or 0


def prove(job: JobState, files: Sequence[FileVersion]) -> None:
    """Raise `Fatal` when the counts do not reconcile; then nothing may be deleted."""
    sources = job.configuration.get("sourceUris")
    if sources is not None and sorted(sources) != sorted(file.ref.url for file in files):
        raise Fatal(f"job {job.ref} loaded other files than this batch's: {sources[:3]}")
    read = _count(job, "inputFiles")
    if read is not None and read != len(files):
        raise Fatal(f"job {job.ref} read {read} files, but was given {len(files)}")


def prove_published(job: JobState, rows: int | None) -> int | None:
    """The rows that a job has brought to its target, where it tells; `Fatal` when they should be `rows` and are not."""
    copy, query = job.statistics.get("copy"), job.statistics.get("query")
    moved = copy.get("copiedRows") if isinstance(copy, dict) else None
    if moved is None and isinstance(query, dict):
        moved = query.get("numDmlAffectedRows")
    if moved is None:
        return rows
    if rows is not None and int(moved) != rows:
        raise Fatal(f"job {job.ref} published {moved} rows, but the loads had landed {rows}")
    return int(moved)


def missing_source(job: JobState) -> bool:
    """Whether the load failed because a source object is gone."""
    error = job.error
    words = ("URI", "gs://", "/bigstore/")
    return error is not None and error.reason == "notFound" and any(word in error.message for word in words)


def _count(job: JobState, name: str) -> int | None:
    load = job.statistics.get("load")
    value = load.get(name) if isinstance(load, dict) else None
    return int(value) if value is not None else None
