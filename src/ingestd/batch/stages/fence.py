"""Jobs that whoever held a batch before us may be about to submit: their ids are used up, or the jobs are heard.

A replica that was paused, whose request hangs, or whose clock is behind may have looked at the sources before they
changed, and submit the job for all of them after we took the batch over. Its id is known, and BigQuery takes an id
once. So before a record says that a file is not loaded, a job that reads nothing takes that id; if it was taken
already, that job has the file, and its end decides.

| dies after             | what is there             | who goes on, and how                                          |
|------------------------|---------------------------|---------------------------------------------------------------|
| a job's id was used up | record, a job that failed | adopts the job, and takes the next number for the same files  |
"""

from ingestd.batch.drive import Drive, request
from ingestd.batch.landing import landing_load
from ingestd.batch.record import Record
from ingestd.model.jobs import JobKind, JobState
from ingestd.model.objects import ObjectRef


def unsure(drive: Drive, number: int) -> bool:
    """Whether somebody else may submit this job yet. What lands apart is looked at before it is published."""
    return number in drive.unsure and not drive.record.lands_apart


async def use_up(drive: Drive, number: int) -> JobState:
    """The batch's load job of this number, whoever submitted it: there will be no other."""
    record, parts = drive.record, drive.parts
    ref = record.load_job(number)
    if record.asynchronous:
        await parts.tasks.put(record, parts.journal.running(record), ref)
    nothing = nothing_of(record, parts.settings.staging).url
    load = {**landing_load(record), "sourceUris": [nothing], "createDisposition": "CREATE_NEVER"}
    return await parts.warehouse.insert_job(request(record, ref, JobKind.LOAD, load, "load"))


def reads_nothing(drive: Drive, job: JobState) -> bool:
    """Whether it is a job that only uses up its id."""
    return nothing_of(drive.record, drive.parts.settings.staging).url in (job.configuration.get("sourceUris") or ())


def nothing_of(record: Record, staging: ObjectRef) -> ObjectRef:
    """What such a job is told to read: there is no object of that name."""
    return staging / f"{record.event_id}/1/nothing"
