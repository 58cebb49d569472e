from ingestd.actions.fill import fill_from_job
from ingestd.actions.values import job_destination, job_response, job_source
from ingestd.model.jobs import JobKind, JobRef, JobState
from ingestd.rules.actions import CopyRequest, ExportRequest, PushRequest

TABLE = {"projectId": "p", "datasetId": "d", "tableId": "t"}


def job(kind: JobKind, **configuration) -> JobState:
    return JobState(JobRef("p", "US", "j"), kind, "DONE", configuration, statistics={
        "endTime": "1", "query": {"statementType": "SELECT", "queryPlan": [{}]}, "other": {"x": 1}})  # fmt: skip


def test_what_a_job_read_and_wrote():
    load = job(JobKind.LOAD, sourceUris=["gs://b/1", "gs://b/2"], destinationTable=TABLE)
    assert (job_source(load), job_destination(load)) == ("gs://b/1,gs://b/2", "p:d.t")
    query = job(JobKind.QUERY, query="SELECT\n 1", destinationTable=TABLE)
    assert (job_source(query), job_destination(query)) == ("SELECT 1", "p:d.t")
    copy = job(JobKind.COPY, sourceTables=[TABLE], destinationTable=TABLE)
    assert job_source(copy) == "p:d.t"
    extract = job(JobKind.EXTRACT, sourceTable=TABLE, destinationUris=["gs://b/x"])
    assert (job_source(extract), job_destination(extract)) == ("p:d.t", "gs://b/x")
    assert job_destination(job(JobKind.QUERY, query="DELETE FROM x")) == ""


def test_a_routes_export_and_copy_take_the_jobs_table():
    load = job(JobKind.LOAD, destinationTable=TABLE)
    assert fill_from_job(ExportRequest(dest_url="gs://b/x.json"), load).source == "p:d.t"
    assert fill_from_job(CopyRequest(dest="d.o"), load).source == "p:d.t"
    assert fill_from_job(CopyRequest(dest="d.o", source="d.mine"), load).source == "d.mine"
    extract = job(JobKind.EXTRACT, sourceTable=TABLE, destinationUris=["gs://b/x"])
    assert fill_from_job(CopyRequest(dest="d.o"), extract).source == "p:d.t"
    assert fill_from_job(CopyRequest(dest="d.o"), None).source is None
    push = PushRequest(topic="t")
    assert fill_from_job(push, load) is push


def test_a_jobs_response_is_small():
    assert job_response(job(JobKind.QUERY)) == {
        "Id": "p:US.j",
        "JobReference": {"ProjectId": "p", "Location": "US", "JobId": "j"},
        "Status": {"State": "DONE"},
        "Statistics": {"endTime": "1", "query": {"statementType": "SELECT"}},
    }
