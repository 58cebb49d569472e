"""Names of tables and sizes of things, in every spelling people use."""

from datetime import timedelta

import pytest

from ingestd.model.quantities import (
    format_duration,
    format_size,
    parse_duration,
    parse_size,
    parse_time_expression,
)
from ingestd.model.tables import InvalidTableName, TableName, parse_table


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("p:d.t", ("p", "d", "t", None)),
        ("p.d.t", ("p", "d", "t", None)),
        ("`p.d.t`", ("p", "d", "t", None)),
        ("`p`.`d`.`t`", ("p", "d", "t", None)),
        ("`p.d`.t", ("p", "d", "t", None)),
        ("[p:d.t]", ("p", "d", "t", None)),
        ("proj:dataset:table", ("proj", "dataset", "table", None)),
        ("d.t", (None, "d", "t", None)),
        (".d.t", (None, "d", "t", None)),
        ("d.t$20240131", (None, "d", "t", "20240131")),
        ("`p.d.t$20240131`", ("p", "d", "t", "20240131")),
        ("d.t$__NULL__", (None, "d", "t", "__NULL__")),
        ("example.com:proj:d.t", ("example.com:proj", "d", "t", None)),
        ("example.com:proj.d.t", ("example.com:proj", "d", "t", None)),
        (" d.täble-1 x ", (None, "d", "täble-1 x", None)),
    ],
)
def test_every_spelling_of_a_table_is_read(text: str, parts: tuple[str | None, ...]) -> None:
    table = parse_table(text)
    assert (table.project, table.dataset, table.table, table.decorator) == parts


@pytest.mark.parametrize(
    "text",
    ["t", "", ".", "d.", ".t", "d.t$", "d-x.t", "d.t;", "d.t`", "d.`t", "d.t$a-b", "p p.d.t", "d.t'x", "d.t$"],
)
def test_what_names_no_table_is_refused(text: str) -> None:
    with pytest.raises(InvalidTableName):
        parse_table(text)


def test_a_table_is_written_as_each_reader_wants_it() -> None:
    table = parse_table("my-p:d.t$20240131")
    assert str(table) == "my-p.d.t$20240131"
    assert table.sql == "`my-p.d.t`"
    assert table.legacy == "my-p:d.t$20240131"
    assert table.rest == {"projectId": "my-p", "datasetId": "d", "tableId": "t$20240131"}
    assert TableName(None, "d", "t").in_project("q").rest == {"projectId": "q", "datasetId": "d", "tableId": "t"}
    assert table.in_project("q") == table


def test_a_table_id_has_at_most_1024_bytes() -> None:
    TableName(None, "d", "x" * 1024)
    with pytest.raises(InvalidTableName, match="longer than 1024 bytes"):
        TableName(None, "d", "é" * 513)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("2d", 172800),
        ("1.5h", 5400),
        ("1h 5s", 3605),
        ("0", 0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)
    assert parse_duration(format_duration(timedelta(seconds=seconds))) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "90", "s", "5x", "1h30", "-5s", "9" * 400 + "d", "40000d"])
def test_durations_without_unit_or_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("2min", timedelta(minutes=2)),
        ("1hour", timedelta(hours=1)),
        ("3 Days", timedelta(days=3)),
        ("week", timedelta(weeks=1)),
        ("10sec", timedelta(seconds=10)),
        ("2 hours ahead", timedelta(hours=2)),
        ("1month", timedelta(days=30)),
        ("2years", timedelta(days=730)),
        ("5000ns", timedelta(microseconds=5)),
        ("90s", timedelta(seconds=90)),
    ],
)
def test_bqtails_time_expressions(text: str, duration: timedelta) -> None:
    assert parse_time_expression(text) == duration


@pytest.mark.parametrize(
    ("text", "size"), [("64MiB", 64 << 20), ("1.5GB", 1_500_000_000), ("512B", 512), ("2 TiB", 2 << 40), ("3kb", 3000)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("text", ["", "64", "64XB", "MiB", "-1B"])
def test_sizes_without_unit_or_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)
