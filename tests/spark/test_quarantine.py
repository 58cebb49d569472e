"""Bad files and bad rows: named in one pass, and never half loaded."""

import gzip
import json
from typing import Any

import pytest
from tests.spark.batches import NDJSON, Batches
from tests.support.files import lines
from tests.support.loads import schema

from ingestd.model.errors import BadInput
from ingestd.model.objects import ObjectRef
from ingestd.model.preparation import BadData, Drift
from ingestd.spark.files.read_task import Report
from ingestd.spark.shape import pipeline
from ingestd.spark.shape.quarantine import judge, refusal

COLUMNS = schema("id INT64 REQUIRED", "name STRING")


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files each pass over a batch read."""
    counted: list[int] = []
    plain = pipeline._rows

    def count(session: Any, work: Any, tolerated: int) -> Any:
        counted.append(len({unit.index for unit in work.units}))
        return plain(session, work, tolerated)

    monkeypatch.setattr(pipeline, "_rows", count)
    return counted


def rows(index: int) -> list[dict[str, Any]]:
    return [{"id": index * 1000 + n, "name": "n"} for n in range(5)]


BROKEN = {
    0: lines(rows(0)) + b"{oops\n",
    25: gzip.compress(lines(rows(25)) * 50)[:-8],
    50: lines([*rows(50), {"id": "fifty"}]),
    75: lines([*rows(75), {"name": "without id"}]),
    100: lines([*rows(100), {"id": 1, "extra": True}]),
}


async def test_twenty_bad_files_of_five_hundred_cost_one_pass(batches: Batches, passes: list[int]) -> None:
    bad = {index * 25: BROKEN[index % 5 * 25] for index in range(20)}
    contents = {f"in/{n:03d}.json": bad.get(n) or lines(rows(n)) for n in range(500)}
    files = await batches.put_all(contents)
    prepared = await batches.prepare(files, COLUMNS)
    assert passes == [500]
    assert [item.index for item in prepared.bad] == sorted(bad)
    told = {item.index: (item.line, item.column, item.schema, item.loaded) for item in prepared.bad}
    assert told[0] == (6, "", False, False)
    assert told[25] == (None, "", False, False)
    assert told[50] == (6, "id", True, False)
    assert told[75] == (6, "id", True, False)
    assert told[100] == (6, "extra", True, False)
    good = [file for n, file in enumerate(files) if n not in bad]
    assert await batches.loaded(prepared) == await batches.direct(good, COLUMNS)
    assert len([uri for output in prepared.outputs for uri in output.uris]) <= 2


async def test_bad_rows_go_to_a_file_of_their_own_and_good_ones_are_loaded(batches: Batches) -> None:
    files = await batches.put_all({f"in/{n}.json": BROKEN.get(n * 25, lines(rows(n))) for n in range(6)})
    prepared = await batches.prepare(files, COLUMNS, bad_data=BadData.QUARANTINE_ROWS)
    assert {item.index: (item.rows, item.loaded) for item in prepared.bad} == {
        0: (1, True),
        1: (1, False),  # cut short: what is missing cannot be known
        2: (1, True),
        3: (1, True),
        4: (1, True),
    }
    expected = [(row["id"], row["name"]) for n in (0, 50, 75, 100, 5) for row in rows(n)]
    assert await batches.loaded(prepared) == sorted(expected)
    assert prepared.rows_left_out == {"bad": 4}
    told = []
    for url in prepared.rejected:
        data, _ = await batches.store.read(ObjectRef.parse(url))
        told += [json.loads(line) for line in data.splitlines()]
    assert {(item["file"], item["line"], item["row"]) for item in told} == {
        ("gs://bucket/in/0.json", 6, "{oops"),
        ("gs://bucket/in/2.json", 6, '{"id": "fifty"}'),
        ("gs://bucket/in/3.json", 6, '{"name": "without id"}'),
        ("gs://bucket/in/4.json", 6, '{"id": 1, "extra": true}'),
    }


async def test_the_policy_that_fails_names_the_files_and_leaves_no_manifest(batches: Batches) -> None:
    files = await batches.put_all({f"in/{n}.json": BROKEN.get(n * 25, lines(rows(n))) for n in range(3)})
    with pytest.raises(BadInput, match=r"in 3 file\(s\): gs://bucket/in/0.json line 6: Syntax error") as caught:
        await batches.prepare(files, COLUMNS, bad_data=BadData.FAIL)
    assert caught.value.files == tuple(file.ref.url for file in files)
    assert await batches.names("staging/") == []


async def test_a_bad_file_too_large_to_hold_is_left_out_by_a_second_pass(
    batches: Batches, passes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker lets rows of a large file go before it has seen the file's end."""
    monkeypatch.setattr(pipeline, "HOLD_BYTES", 1 << 20)
    many = lines([{"id": n, "name": "x" * 100} for n in range(30_000)])
    large = gzip.compress(many * 3 + b"{oops\n", 1)
    files = await batches.put_all({"in/large.json.gz": large, "in/ok.json": lines(rows(1))})
    prepared = await batches.prepare(files, COLUMNS)
    assert passes == [2, 1]
    assert [(item.index, item.line, item.loaded) for item in prepared.bad] == [(0, 90_001, False)]
    assert await batches.loaded(prepared) == await batches.direct(files[1:], COLUMNS)


async def test_max_bad_records_counts_over_the_whole_batch(batches: Batches, passes: list[int]) -> None:
    files = await batches.put_all({f"in/{n}.json": BROKEN.get(n * 25, lines(rows(n))) for n in (2, 3, 5)})
    load = {**NDJSON, "maxBadRecords": 2}
    prepared = await batches.prepare(files, COLUMNS, load)
    assert (passes, [(item.rows, item.loaded) for item in prepared.bad]) == ([3], [(1, True), (1, True)])
    assert await batches.loaded(prepared) == await batches.direct(files, COLUMNS, load)
    passes.clear()
    strict = await batches.prepare(files, COLUMNS, {**NDJSON, "maxBadRecords": 1})
    assert (passes, [item.loaded for item in strict.bad]) == ([3, 3], [False, False])


async def test_evolving_gets_the_new_columns_with_types_over_the_whole_batch(
    batches: Batches, passes: list[int]
) -> None:
    contents = {
        "in/0.json": lines([{"id": 1, "price": 1, "day": "2024-01-01"}]),
        "in/1.json": lines([{"id": 2, "price": 0.5, "day": "soon"}, {"name": "no id"}]),
        "in/2.json": lines([{"id": 3, "more": {"deep": [True]}}]),
    }
    files = await batches.put_all(contents)
    prepared = await batches.prepare(files, COLUMNS, drift=Drift.EVOLVE)
    assert passes == [3, 3]
    assert [(item.name, item.type.rest) for item in prepared.added] == [
        ("price", "FLOAT"),
        ("day", "STRING"),
        ("more", "RECORD"),
    ]
    assert prepared.relaxed == ("id",)
    assert prepared.bad == ()
    assert await batches.loaded(prepared) == [
        (1, None, 1.0, "2024-01-01", None),
        (2, None, 0.5, "soon", None),
        (3, None, None, None, {"deep": [True]}),
        (None, "no id", None, None, None),
    ]


async def test_rows_with_new_columns_can_be_left_out_and_are_counted(batches: Batches) -> None:
    files = [await batches.put("in/a.json", lines([{"id": 1}, {"id": 2, "new": 1}]))]
    prepared = await batches.prepare(files, COLUMNS, drift=Drift.DISCARD_ROW)
    assert await batches.loaded(prepared) == [(1, None)]
    assert (prepared.rows_left_out, prepared.rows_read, prepared.bad) == ({"drift": 1}, 2, ())


async def test_a_table_without_columns_gets_those_of_all_files(batches: Batches) -> None:
    contents = {"in/0.json": lines([{"id": 1, "at": "2024-01-01T00:00:00Z"}]), "in/1.json": lines([{"id": 0.5}])}
    files = await batches.put_all(contents)
    prepared = await batches.prepare(files, (), {**NDJSON, "autodetect": True})
    assert [(item.name, item.type.rest) for item in prepared.schema] == [("id", "FLOAT"), ("at", "TIMESTAMP")]
    assert [row[0] for row in await batches.loaded(prepared)] == [0.5, 1.0]


def test_lines_of_a_later_part_are_counted_from_the_files_beginning() -> None:
    reports = [Report(0, 0, lines=10), Report(0, 2, lines=5), Report(0, 1, bad=1, line=3, why="x", lines=10)]
    assert judge(reports, BadData.QUARANTINE_FILE).bad[0].line == 13


def test_a_share_that_ran_twice_counts_once() -> None:
    reports = [Report(0, rows=3, out=3), Report(0, rows=3, out=3)]
    assert judge(reports, BadData.QUARANTINE_FILE).rows_per_file == {0: 3}


def test_a_refusal_shows_the_first_files_and_counts_the_rest() -> None:
    verdict = judge([Report(n, bad=1, why="w", line=1) for n in range(8)], BadData.FAIL)
    assert "and 3 more" in str(refusal(verdict, [f"gs://b/{n}" for n in range(8)]))


def test_a_report_travels_as_text() -> None:
    report = Report(3, 1, 5, 4, 1, why="ü", line=2, column="c", schema=True, unknown=[{"name": "n"}])
    assert Report.parse(report.text()) == report
