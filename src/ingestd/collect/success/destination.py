"""From the path of a success file to the table its directory is loaded into: a pure function that shows its steps.

The usual layout is `<dataset>/<table>/[historical|incremental/][$partition | yyyy/mm/dd/hh][/batch]/…`. A path that may
mean two things (`2020-01-02/`, `12345/`) is refused: a wrong guess would overwrite a partition that nobody meant. A
pattern of one's own (`destinationRegex`) runs on RE2, in linear time whatever it and the path are.
"""

import re
from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ingestd.model.tables import InvalidTableName, TableName, parse_table
from ingestd.rules.fields import compile_pattern

LAYOUT = "<dataset>/<table>/[historical|incremental/][$partition | yyyy/mm/dd/hh][/batch]"

_DATASET = re.compile(r"[\w.-]+")
_TABLE = re.compile(r"([\w-]+)(?:\$(\d+))?")
_BATCH = re.compile(r"[\w-]+")
_KINDS = frozenset({"historical", "incremental"})
_YEARS = range(1900, 2200)
_DATE_PARTS = ("yyyy", "mm", "dd", "hh")
_GROUPS = {"dataset", "table", "partition", "yyyy", "mm", "dd", "hh", "hr", "batch"}


class NoDestination(ValueError):  # noqa: N818 - a verdict on the path
    """The path names no table, or more than one reading of it is possible; the message says which and what to do."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a directory goes, and how that was found."""

    table: TableName  # with its partition
    prefix: str  # the name of the table's folder, without a slash at the end
    batch: str = ""
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Overrides:
    """What load.json says about the destination."""

    regex: str = ""
    table: Mapping[str, str] = field(default_factory=dict)  # a TableReference, or a part of one


@dataclass(slots=True)
class _Reading:
    dataset: str = ""
    table: str = ""
    partition: str = ""
    batch: str = ""
    end: int = 0  # where the table's folder ends in the name
    steps: list[str] = field(default_factory=list)


def infer(name: str, *, root: str = "", regex: str = "", overrides: Overrides, project: str) -> Destination:
    """The destination of the directory of success file `name`; raises `NoDestination`.

    `root` is the folder that stands for the bucket, `regex` the setting's, `project` where tables are by default.
    """
    path = name.removeprefix(root)
    if overrides.regex:
        reading = _by_pattern(path, overrides.regex, "destinationRegex of load.json")
    elif regex:
        reading = _by_pattern(path, regex, "the destination_regex setting")
    else:
        reading = _by_layout(path)
    table = _named(reading, overrides.table, project)
    reading.steps.append(f"so the rows go to {table}")
    return Destination(table, root + path[: reading.end].rstrip("/"), reading.batch, tuple(reading.steps))


def table_prefix(name: str, *, root: str = "", regex: str = "") -> str | None:
    """The folder of the table, for those who need no more; None when the path does not tell."""
    path = name.removeprefix(root)
    try:
        reading = _by_pattern(path, regex, "") if regex else _by_layout(path)
    except NoDestination:
        return None
    return root + path[: reading.end].rstrip("/")


def _by_layout(path: str) -> _Reading:
    reading = _Reading()
    folders = path.split("/")[:-1]
    if len(folders) < 2:
        raise NoDestination(f"{path!r} names no dataset and table; the layout is {LAYOUT}")
    if not _DATASET.fullmatch(folders[0]):
        raise NoDestination(f"{folders[0]!r} cannot be a dataset; the layout is {LAYOUT}")
    found = _TABLE.fullmatch(folders[1])
    if not found:
        raise NoDestination(f"{folders[1]!r} cannot be a table; the layout is {LAYOUT}")
    reading.dataset, reading.table = folders[0], found[1]
    reading.end = len(folders[0]) + 1 + len(found[1])
    reading.steps += [f"folder {folders[0]!r} is the dataset", f"folder {folders[1]!r} names table {found[1]!r}"]
    rest = folders[2:]
    if found[2]:
        reading.partition = found[2]
        reading.steps.append(f"and partition ${found[2]}")
    if rest and rest[0] in _KINDS:
        reading.steps.append(f"folder {rest[0]!r} says what kind of data it is, and is passed over")
        rest = rest[1:]
    _read_partition(reading, rest)
    return reading


def _read_partition(reading: _Reading, rest: list[str]) -> None:
    if rest and rest[0].startswith("$"):
        if not rest[0][1:].isdecimal():
            raise NoDestination(
                f"folder {rest[0]!r}: after '$' only digits name a partition; put what follows into a folder of its own"
            )
        if reading.partition:
            raise NoDestination(f"folder {rest[0]!r} names a partition, and ${reading.partition} is named already")
        reading.partition = rest[0][1:]
        reading.steps.append(f"folder {rest[0]!r} is partition ${reading.partition}")
        rest = rest[1:]
    elif not reading.partition:
        rest = _read_date(reading, rest)
    if rest and _BATCH.fullmatch(rest[0]):
        reading.batch = rest[0]
        reading.steps.append(f"folder {rest[0]!r} is the batch id (a label)")
    elif rest:
        reading.steps.append(f"folder {rest[0]!r} says nothing about the destination")


def _read_date(reading: _Reading, rest: list[str]) -> list[str]:
    """Take the folders that are a date; refuse what looks like one and is not."""
    if not rest or not re.match(r"\d{4}", rest[0]):
        return rest
    first = rest[0]
    if not first.isdecimal() or len(first) not in (4, 6, 8, 10):
        raise NoDestination(
            f"folder {first!r} starts like a year and is none: it could be a date or a batch id. Write the date as "
            "yyyy/mm/dd/hh or yyyymmdd, the partition as $yyyymmdd, or start the batch id with a letter"
        )
    parts = [first[:4], *(first[at : at + 2] for at in range(4, len(first), 2))]
    taken = 1
    while taken < len(rest) and len(parts) < len(_DATE_PARTS) and re.fullmatch(r"\d{2}", rest[taken]):
        parts.append(rest[taken])
        taken += 1
    if len(parts) < len(_DATE_PARTS) and taken < len(rest) and re.match(r"\d", rest[taken]):
        raise NoDestination(
            f"folder {rest[taken]!r} after {'/'.join(rest[:taken])!r} could be the {_DATE_PARTS[len(parts)]} of the "
            "date or a batch id. Write two digits for mm, dd and hh, or start the batch id with a letter"
        )
    _refuse_impossible(parts, "/".join(rest[:taken]))
    reading.partition = "".join(parts)
    shown = ", ".join(f"{name}={part}" for name, part in zip(_DATE_PARTS, parts, strict=False))
    reading.steps.append(f"folder {'/'.join(rest[:taken])!r} is a date ({shown}): partition ${reading.partition}")
    return rest[taken:]


def _refuse_impossible(parts: list[str], shown: str) -> None:
    year, month, day, hour = (int(part) for part in [*parts, *("1", "1", "1", "1")[len(parts) :]][:4])
    right = (
        year in _YEARS
        and 1 <= month <= 12
        and 1 <= day <= monthrange(year, month)[1]
        and (hour < 24 or len(parts) < len(_DATE_PARTS))
    )
    if not right:
        raise NoDestination(
            f"{shown!r} has the form of a date and is none: is it a batch id? Then start it with a letter; "
            f"a partition that is no date is written ${''.join(parts)}"
        )


def _by_pattern(path: str, pattern: str, whose: str) -> _Reading:
    try:
        compiled = compile_pattern(pattern)
    except ValueError as error:
        raise NoDestination(f"{whose}: {error}") from None
    found = compiled.match(path)
    if not found:
        raise NoDestination(f"{path!r} does not match {whose}, {pattern!r}")
    known = compiled.groupindex
    if odd := sorted(set(known) - _GROUPS):
        raise NoDestination(f"{whose} has a group {odd[0]!r}; known are {', '.join(sorted(_GROUPS))}")
    groups = {name: found.group(name) or "" for name in known}
    if "table" not in known or not groups["table"]:
        raise NoDestination(f"{whose} captures no 'table' from {path!r}; it is needed to find the table's folder")
    reading = _Reading(groups.get("dataset", ""), groups["table"], batch=groups.get("batch", "").strip("/"))
    reading.end = found.end(known["table"])
    captured = ", ".join(f"{name}={text!r}" for name, text in groups.items() if text)
    reading.steps.append(f"{whose} {pattern!r} captures {captured}")
    if groups.get("partition"):
        reading.partition = groups["partition"].removeprefix("$")
    else:
        reading.partition = _pattern_date(groups, whose)
    if reading.partition:
        reading.steps.append(f"which makes partition ${reading.partition}")
    return reading


def _pattern_date(groups: Mapping[str, str], whose: str) -> str:
    given = [
        groups.get("yyyy", ""),
        groups.get("mm", ""),
        groups.get("dd", ""),
        groups.get("hh") or groups.get("hr", ""),
    ]
    while given and not given[-1]:
        given.pop()
    if not given:
        return ""
    for name, text in zip(_DATE_PARTS, given, strict=False):
        if not text:
            raise NoDestination(f"{whose} captures a finer part of the date, and no {name}")
        if not text.isdecimal():
            raise NoDestination(f"{whose} captures {text!r} as {name}, which is no number")
    parts = [text.zfill(2) for text in given]
    _refuse_impossible(parts, "/".join(given))
    return "".join(parts)


def _named(reading: _Reading, override: Mapping[str, str], project: str) -> TableName:
    """The table's full name, from path and `destinationTable`; refuses contradictions."""
    dataset, table, partition = override.get("datasetId", ""), override.get("tableId", ""), reading.partition
    home = override.get("projectId", "")
    if override:
        shown = ", ".join(f"{key}={value}" for key, value in override.items())
        reading.steps.append(f"destinationTable of load.json says {shown}")
    if not dataset:
        if not reading.dataset:
            raise NoDestination("neither path nor destinationTable name a dataset")
        before, dot, dataset = reading.dataset.rpartition(".")
        if dot and "." in before:
            raise NoDestination(f"{reading.dataset!r} has more parts than project and dataset")
        if dot:
            home = home or before
            reading.steps.append(f"{reading.dataset!r} is project {before!r} and dataset {dataset!r}")
    table, dollar, decorator = (table or reading.table).partition("$")
    if dollar:
        if partition and partition != decorator:
            raise NoDestination(f"the path says partition ${partition}, and destinationTable says ${decorator}")
        partition = decorator
    try:
        return TableName(home or project, dataset, table, partition or None)
    except InvalidTableName as error:
        raise NoDestination(str(error)) from None


def allowed(table: TableName, datasets: tuple[str, ...], project: str) -> bool:
    """Whether batches may go to this table's dataset."""
    if not datasets:
        return True
    own = (table.project or project, table.dataset)
    return any(_dataset(text, project) == own for text in datasets)


def _dataset(text: str, project: str) -> tuple[str, str]:
    name = parse_table(f"{text}.x").in_project(project)
    return (name.project or project, name.dataset)


def reference_parts(value: Any) -> dict[str, str]:
    """`destinationTable` of load.json as given; raises `NoDestination` when it is none."""
    keys = ("projectId", "datasetId", "tableId")
    if not isinstance(value, dict) or any(key not in keys or not isinstance(text, str) for key, text in value.items()):
        raise NoDestination(f"destinationTable has to be an object with some of {', '.join(keys)}, not {value!r}")
    return {key: value[key] for key in keys if value.get(key)}
