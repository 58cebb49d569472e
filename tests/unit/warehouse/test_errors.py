"""What BigQuery's errors mean for whoever asked."""

import pytest

from ingestd.model.errors import BadInput, Transient
from ingestd.model.jobs import JobError, JobKind, JobRef, JobState
from ingestd.warehouse.errors import from_status, job_failure

WRONG = "Syntax error: Unexpected keyword SELECT at [1:8]"
# As seen with Kafka Connect's sink (its issue 279), and documented for DML on streamed rows.
PASSING = [
    "Could not serialize access to table p:d.t due to concurrent update",
    "Transaction is aborted due to concurrent update against table p:d.t. Transaction ID: 1",
    "UPDATE or DELETE statement over table p.d.t would affect rows in the streaming buffer, which is not supported",
]


@pytest.mark.parametrize(("text", "kind"), [(WRONG, BadInput), *((text, Transient) for text in PASSING)])
def test_a_statement_that_met_another_one_is_not_wrong(text: str, kind: type[Exception]) -> None:
    error = JobError("invalidQuery", text)
    job = JobState(JobRef("p", "US", "j"), JobKind.QUERY, "DONE", {}, error=error, errors=(error,))
    assert isinstance(job_failure(job), kind)
    assert isinstance(from_status(400, text, reason="invalidQuery"), kind)
