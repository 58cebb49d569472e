"""Where a batch came from, as its record keeps it: a window and its shards, or a success file and its `_config/`."""

from dataclasses import dataclass, field
from typing import Any

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


def window_json(mark: WindowMark | None) -> dict[str, Any] | None:
    if mark is None:
        return None
    return {"Name": mark.name, "Start": mark.start, "Shards": mark.shards, "Group": mark.group}


def window_from_json(item: dict[str, Any] | None) -> WindowMark | None:
    return WindowMark(item["Name"], item["Start"], tuple(item["Shards"]), item["Group"]) if item else None


def success_json(mark: SuccessMark | None) -> dict[str, Any] | None:
    if mark is None:
        return None
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
    }


def success_from_json(item: dict[str, Any] | None) -> SuccessMark | None:
    if not item:
        return None
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
    )
