"""Every variable a rule may use, where it is known, and what it stands for.

The documentation and lint are made from this list; whoever fills a variable in at run time finds its name here.
"""

from dataclasses import dataclass
from enum import StrEnum


class Context(StrEnum):
    DESTINATION = "destination"  # Dest.Table, Dest.Partition and parameter expressions
    ACTION = "action"  # requests and conditions of any action
    FAILURE = "failure"  # actions under OnFailure
    CHAINED = "chained"  # any action that follows another one in its list
    PARTITION_COPY = "partition copy"  # copy with MultiPartition
    GROUP = "group"  # rules with Batch.Group


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    description: str
    contexts: tuple[Context, ...]


_EVERYWHERE = (Context.DESTINATION, Context.ACTION)
_ACTION = (Context.ACTION,)

VARIABLES: tuple[Variable, ...] = (
    Variable("EventID", "identity of the file or batch, the same at every delivery", _EVERYWHERE),
    Variable("Date", "date of the file, UTC, `yyyyMMdd`", _EVERYWHERE),
    Variable("Hour", "hour of the file, UTC, `00` to `23`", _EVERYWHERE),
    Variable("ProjectID", "project that runs the jobs", _EVERYWHERE),
    Variable("Region", "location of the jobs", _EVERYWHERE),
    Variable("TriggerBucket", "bucket of the (first) file", _EVERYWHERE),
    Variable("RuleURL", "file the rule came from", _EVERYWHERE),
    Variable(
        "Source", "the (first) file: `$Source.URL`, `$Source.Time`, `$Source.Bucket`, `$Source.Name`", _EVERYWHERE
    ),
    Variable("SourceURI", "URL of the (first) file", _EVERYWHERE),
    Variable("DestTable", "destination table, variables filled in", _ACTION),
    Variable("TempTable", "transient table of the load, with its rows as they were loaded (see Engines)", _ACTION),
    Variable("URLs", "URLs of the loaded files, joined by commas", _ACTION),
    Variable("LoadURIs", "URLs of the loaded files, as a list", _ACTION),
    Variable("JobID", "id of the BigQuery job that leads to the action", _ACTION),
    Variable("JobSource", "source of that job: URLs, SQL or table", _ACTION),
    Variable("Response", "outcome of that job as data", _ACTION),
    Variable("ProcessURL", "journal of the batch while it runs", _ACTION),
    Variable("DoneProcessURL", "journal of the batch once done", _ACTION),
    Variable("FailedURL", "where the journal goes when the batch is given up", _ACTION),
    Variable("Params", "all parameters as a mapping", _ACTION),
    Variable("Async", "whether the rule is asynchronous", _ACTION),
    Variable("Error", "message of the error that led to OnFailure", (Context.FAILURE,)),
    Variable("StatusCode", "status of the call before", (Context.CHAINED,)),
    Variable("Headers", "headers of the answer to the call before", (Context.CHAINED,)),
    Variable("Data", "answer to the call before, as data: `$Data.BatchID`", (Context.CHAINED,)),
    Variable("Body", "answer to the call before, as text", (Context.CHAINED,)),
    Variable("MessageIDs", "ids of the messages pushed before", (Context.CHAINED,)),
    Variable("PartitionID", "partition being copied", (Context.PARTITION_COPY,)),
    Variable("DollarSign", "a dollar sign, for partition decorators", (Context.PARTITION_COPY, Context.ACTION)),
    Variable("GroupID", "identity of the batch group", (Context.GROUP, Context.DESTINATION)),
    Variable("GroupURL", "where the batch group is recorded", (Context.GROUP,)),
)


def names(*contexts: Context) -> frozenset[str]:
    """Names of the variables known in any of these contexts."""
    return frozenset(variable.name for variable in VARIABLES if set(variable.contexts) & set(contexts))
