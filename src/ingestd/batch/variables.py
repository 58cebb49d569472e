"""A batch's variables: what `$…` stands for in its expressions and post-actions."""

from collections.abc import Sequence
from typing import Any

from ingestd.batch.landing import landing_table
from ingestd.batch.record import Kind, Record
from ingestd.model.objects import FileVersion, ObjectRef
from ingestd.settings import Settings


def batch_variables(record: Record, files: Sequence[FileVersion], settings: Settings) -> dict[str, Any]:
    """The variables for these of its files; named parameters of the rule override built-ins of the same name."""
    first = next(iter((*files, *record.files)), None)
    ref = first.ref if first else ObjectRef("", "")
    urls = [file.ref.url for file in files]
    moment = first.event_time if first else record.created
    values: dict[str, Any] = {
        "EventID": record.event_id,
        "DestTable": record.dest,
        "TempTable": landing_table(record).dotted if record.transient else "",
        "URLs": ",".join(urls),
        "LoadURIs": urls,
        "SourceURI": first.ref.url if first else "",
        "Source": {
            "URL": first.ref.url if first else "",
            "Time": moment.isoformat(),
            "Bucket": ref.bucket,
            "Name": ref.name,
            "Status": "pending",
        },
        "RuleURL": record.rule.url,
        "TriggerBucket": ref.bucket,
        "ProjectID": record.placement.project or settings.project,
        "Region": record.placement.location,
        "Date": moment.strftime("%Y%m%d"),
        "Hour": moment.strftime("%H"),
        "Async": record.asynchronous,
        "FailedURL": settings.errors.url,
        "Params": record.values,
    }
    if record.kind is Kind.LOAD:
        values["JobID"] = record.load_job().job_id
    return values | record.values
