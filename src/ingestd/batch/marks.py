"""What made a batch, as its record keeps it: a window and its shards, a success file and its `_config/`, or a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ingestd.model.jobs import JobRef
from ingestd.model.objects import Generation


@dataclass(frozen=True, slots=True)
class WindowMark:
    """Which window a batch came from, and the shards that went into it."""

    name: str
    start: int
    shards: tuple[str, ...] = ()
    group: str = ""


@dataclass(frozen=True, slots=True)
class SuccessMark:
    """The success file whose directory the batch is, and what its `_config/` says beyond the load itself.

    Until `resolved`, only the success file is known: destination, files and load are filled in before any job.
    """

    url: str
    generation: Generation
    resolved: bool = False
    table_prefix: str = ""  # the folder of its table, `gs://bucket/dataset/table`
    order: str = ""  # its place among the ordered batches of the table; empty: they are not ordered
    job_prefix: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    sql: str = ""  # rows come in by this query over `temp_ext`
    spark: bool = False  # the query is Spark's, and what it selects is loaded
    external: dict[str, Any] = field(default_factory=dict)  # how `temp_ext` reads the files
    zero_rows_fail: bool = True
    config: tuple[str, ...] = ()  # the `_config/` files (with generations) that went into it
    left_out: bool = False  # of its ordered table, by a person


Trigger = WindowMark | SuccessMark | JobRef
"""What a batch is the batch of, or whose end has actions. A file that is loaded alone has none."""


def trigger_json(trigger: Trigger | None) -> dict[str, Any]:
    return {
        "TriggerJob": _job_json(trigger) if isinstance(trigger, JobRef) else None,
        "Window": _window_json(trigger) if isinstance(trigger, WindowMark) else None,
        "Success": _success_json(trigger) if isinstance(trigger, SuccessMark) else None,
    }


def trigger_from_json(document: Mapping[str, Any]) -> Trigger | None:
    job = document["TriggerJob"]
    if item := document.get("Window"):
        return WindowMark(item["Name"], item["Start"], tuple(item["Shards"]), item["Group"])
    if item := document.get("Success"):
        return _success_from_json(item)
    return JobRef(job["project"], job["location"], job["job_id"]) if job else None


def _job_json(job: JobRef) -> dict[str, str]:
    return {"project": job.project, "location": job.location, "job_id": job.job_id}


def _window_json(mark: WindowMark) -> dict[str, Any]:
    return {"Name": mark.name, "Start": mark.start, "Shards": mark.shards, "Group": mark.group}


def _success_json(mark: SuccessMark) -> dict[str, Any]:
    return {
        "URL": mark.url,
        "Generation": str(mark.generation),
        "Resolved": mark.resolved,
        "TablePrefix": mark.table_prefix,
        "Order": mark.order,
        "JobPrefix": mark.job_prefix,
        "Labels": mark.labels,
        "SQL": mark.sql,
        "Spark": mark.spark,
        "External": mark.external,
        "ZeroRowsFail": mark.zero_rows_fail,
        "Config": mark.config,
        **({"LeftOut": True} if mark.left_out else {}),
    }


def _success_from_json(item: Mapping[str, Any]) -> SuccessMark:
    return SuccessMark(
        url=item["URL"],
        generation=Generation(int(item["Generation"])),
        resolved=item["Resolved"],
        table_prefix=item["TablePrefix"],
        order=item["Order"],
        job_prefix=item["JobPrefix"],
        labels=item["Labels"],
        sql=item["SQL"],
        spark=item["Spark"],
        external=item["External"],
        zero_rows_fail=item["ZeroRowsFail"],
        config=tuple(item["Config"]),
        left_out=item.get("LeftOut", False),
    )
