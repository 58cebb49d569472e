"""Jobs that were accepted and are not over: a journal beside the database.

A job's row in the database is written once, with the work, when the job is DONE; until then this file remembers it. A
line without a row is a job to run (again); a line with a row is a job whose completion may not have been announced. A
second line says that a job is over, and both go when the file is rewritten.
What `add` wrote survives the death of the process. It is not forced to the disk: a machine that loses power may forget
a job it accepted moments before, as if it had never been inserted.
"""

import errno
import os
from collections.abc import Iterable
from dataclasses import replace
from io import FileIO
from pathlib import Path

import orjson

from ingestd.localcloud.bigquery.jobs import Job, JobKey, JobState

FILE_NAME = "pending.jsonl"
_REWRITE_BYTES = 1 << 20


class PendingJobs:
    """The journal; the caller makes sure that one thread at a time uses it. Without a folder nothing is kept."""

    def __init__(self, root: Path | None) -> None:
        self._path = root / FILE_NAME if root is not None else None
        self._file: FileIO | None = None
        self._size = 0

    def load(self) -> list[Job]:
        """The jobs that are not over, in the order they came. A torn last line was never acknowledged."""
        jobs: dict[JobKey, Job] = {}
        if self._path is None or not self._path.exists():
            return []
        content = self._path.read_bytes()
        self._size = len(content)
        for line in content.split(b"\n"):
            try:
                entry = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            key = JobKey(*entry["key"])
            if "job" in entry:
                jobs[key] = replace(Job.load(key, JobState.PENDING, "", entry["job"]), started=None)
            else:
                jobs.pop(key, None)
        return list(jobs.values())

    def add(self, job: Job) -> None:
        self._append(_line(job))

    def over(self, key: JobKey) -> None:
        """The job is announced, or deleted: its line must not bring it back."""
        self._append(_dump({"key": _parts(key)}))

    @property
    def long(self) -> bool:
        return self._size > _REWRITE_BYTES

    def rewrite(self, jobs: Iterable[Job]) -> None:
        """Keep these jobs only."""
        content = b"".join(_line(job) for job in jobs)
        if self._path is None or (self._path.exists() and not self._size and not content):
            return
        self.close()
        new = self._path.with_suffix(".new")
        new.write_bytes(content)
        new.replace(self._path)
        self._size = len(content)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, line: bytes) -> None:
        if self._path is None:
            return
        if self._file is None:
            self._file = FileIO(self._path, "ab")
        before = self._file.tell()
        written = self._file.write(line)
        if written != len(line):  # the disk is full
            self._file.truncate(before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._size += len(line)


def _line(job: Job) -> bytes:
    return _dump({"key": _parts(job.key), "job": job.dump()})


def _dump(entry: dict[str, object]) -> bytes:
    return orjson.dumps(entry) + b"\n"


def _parts(key: JobKey) -> list[str]:
    return [key.project, key.location, key.job_id]
