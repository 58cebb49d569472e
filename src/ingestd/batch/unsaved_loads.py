"""Load jobs that a record does not know of, because whoever submitted them died before it was saved.

A job that fails for a moment is repeated under the next number after a pause, and the record is saved only where the
pause is long. So there may be several of them, one after the other: each was submitted when the one before had failed.
"""

from ingestd.batch.record import Record
from ingestd.model.jobs import JobState
from ingestd.ports import Warehouse


async def unsaved_loads(record: Record, warehouse: Warehouse) -> list[JobState]:
    """In the order of their numbers; the record has to know where its jobs run."""
    found: list[JobState] = []
    while (job := await warehouse.get_job(record.load_job(record.progress.jobs + len(found) + 1))) is not None:
        found.append(job)
    return found
