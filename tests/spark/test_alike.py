"""Rows that stand for others that are alike: the same rows come out as if each had gone through Spark itself."""

from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.spark.batches import Batches
from tests.support.files import lines
from tests.support.loads import schema

from ingestd.model.preparation import Branch, Shaping, SideInput, Unmatched
from ingestd.spark.files import alike
from ingestd.spark.files.alike import comparable, everybody, leave_answers, leave_kinds, shown
from ingestd.spark.files.reserved import ROW, ROW_BITS
from ingestd.spark.shape import distinct, pipeline
from ingestd.spark.shape.steps import SideFrame, answers_alike

numbers = count()
VALUES = st.sampled_from([None, 0.0, -0.0, float("nan"), 1.5])
SIDE = SideInput("c", "c.code = t.code", select="SELECT 1")


def test_columns_without_equality_in_arrow_are_not_compared() -> None:
    assert comparable(schema("a INT64", "b STRING", "c FLOAT64", "d NUMERIC", "e BYTES", "f TIMESTAMP", "g JSON"))
    assert not comparable(schema("a INT64", "tags STRING REPEATED"))
    assert not comparable(())


@pytest.mark.parametrize(
    "shaping",
    [
        Shaping(transform={"a": "RAND()"}),
        Shaping(transform={"a": "GENERATE_UUID()"}),
        Shaping(unique_columns=("a",)),
        Shaping(branches=(Branch("a > 1"),), every_branch=True),
        Shaping(branches=(Branch("a > 1"),), unmatched=Unmatched.DROP),
        Shaping(side_inputs=(SIDE,), criteria="a > 1"),
    ],
)
def test_no_row_stands_for_others_where_answers_differ_or_rows_are_counted(shaping: Shaping) -> None:
    assert not answers_alike(shaping)


def test_else_one_may() -> None:
    assert answers_alike(Shaping(transform={"a": "UPPER(t.a)"}, side_inputs=(SIDE,), branches=(Branch("a > 1"),)))
    assert answers_alike(Shaping(transform={"a": "'RAND()'"}, criteria="a > 1"))


def _batches(rows: list[tuple[Any, Any]], cuts: list[int]) -> list[pa.RecordBatch]:
    table = pa.table(
        {"x": pa.array([one for one, _ in rows], pa.float64()), "name": pa.array([two for _, two in rows], pa.string())}
    )
    edges = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    return [table.slice(start, end - start).combine_chunks().to_batches()[0] for start, end in pairwise(edges)]


def _bits(rows: list[dict[str, Any]]) -> list[tuple[str, Any, int]]:
    return [(repr(row["x"]), row["name"], row[ROW]) for row in rows]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(
    rows=st.lists(st.tuples(VALUES, st.sampled_from([None, "", "a"])), min_size=1, max_size=200),
    cuts=st.lists(st.integers(0, 200), max_size=3),
    chance=st.randoms(use_true_random=False),
    marked=st.booleans(),
    times=st.integers(0, 3),
)
def test_everybody_gets_the_answer_of_the_one_that_is_like_it(
    tmp_path: Path, rows: list[tuple[Any, Any]], cuts: list[int], chance: Any, marked: bool, times: int
) -> None:
    """To the sign of a zero; several answers make several rows, none leaves them out, and only marked rows count."""
    folder = str(tmp_path / f"{next(numbers)}")
    Path(folder).mkdir()
    shares = {0: rows, 1: [], 2: [*reversed(rows)]}
    for share, content in shares.items():
        leave_kinds(folder, share, _batches(content, cuts) if content else [], ("x", "name"))
    marks = [np.array([not marked or chance.random() < 0.7 for _ in content], bool) for content in shares.values()]
    kinds = shown(folder, [one if marked else None for one in marks])
    if kinds is None:
        assert not any(one.any() for one in marks)
        return
    named = [(row[ROW] >> ROW_BITS, repr(row["x"]), row["name"]) for row in kinds.to_pylist()]
    left = {
        (share, repr(x), name)
        for share, content in shares.items()
        for at, (x, name) in enumerate(content)
        if marks[share][at]
    }
    assert (set(named), len(named)) == (left, len(left))
    answers = [row for row in kinds.to_pylist() for _ in range(times if row["name"] == "a" else 1)]
    chance.shuffle(answers)
    leave_answers(folder, pa.Table.from_pylist(answers, schema=kinds.schema))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alike, "_STEP", 16)
        made = [
            row
            for share in shares
            for batch in everybody(folder, share, marks[share] if marked else None)
            for row in batch.to_pylist()
        ]
    expected = [
        (repr(x), name, at | (share << ROW_BITS))
        for share, content in shares.items()
        for at, (x, name) in enumerate(content)
        if marks[share][at]
        for _ in range(times if name == "a" else 1)
    ]
    assert _bits(made) == expected


def test_rows_of_many_kinds_go_through_spark_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "FEW", 3)
    rows = [(None, f"n{number}") for number in range(40)]
    leave_kinds(str(tmp_path), 0, _batches(rows, []), ("name",))
    leave_kinds(str(tmp_path), 0, _batches(rows[:5] * 7, []), ("name",))
    assert shown(str(tmp_path), [None]) is None
    assert not list(tmp_path.iterdir())
    leave_kinds(str(tmp_path), 1, _batches(rows[:5] * 8, []), ("name",))
    assert shown(str(tmp_path), [None, None]) is None
    leave_kinds(str(tmp_path), 0, _batches(rows[:3], []), ("name",))
    found = shown(str(tmp_path), [None, None])
    assert found is not None
    assert found.num_rows == 8


COLUMNS = schema("id INT64", "code STRING", "amount FLOAT64", "note STRING")
SHAPINGS = {
    "transformed": Shaping(transform={"code": "UPPER(t.code)"}),
    "unique": Shaping(transform={"code": "UPPER(t.code)"}, unique_columns=("id",)),
    "joined": Shaping(transform={"code": "COALESCE(c.name, '?')"}, side_inputs=(SIDE,), unique_columns=("id",)),
    "multiplied": Shaping(transform={"code": "c.name"}, side_inputs=(SIDE,)),
    "inner": Shaping(transform={"code": "c.name"}, side_inputs=(SideInput("c", SIDE.on, select="x", inner=True),)),
    "filtered": Shaping(criteria="t.code <> 'a'"),
    "split": Shaping(branches=(Branch("code = 'a'"), Branch("amount < 1")), unique_columns=("id",)),
    "computed key": Shaping(transform={"code": "UPPER(t.code)"}, unique_columns=("MOD(id, 100)", "LOWER(code)")),
}


class Sides:
    """Two codes and their names; one of them has several where rows are to be multiplied."""

    def __init__(self, *more: tuple[str, str]) -> None:
        self._rows = [("a", "first"), ("b", "second"), *more]

    async def ready(self, _: Shaping) -> pipeline.Sides:
        return self._frames

    def _frames(self, session: Any) -> dict[str, SideFrame]:
        frame = session.createDataFrame(self._rows, "code STRING, name STRING")
        return {"c": SideFrame(frame, schema("code STRING", "name STRING"))}


@pytest.mark.parametrize("name", SHAPINGS)
@pytest.mark.parametrize("alone", [0, 1 << 30])
async def test_a_batch_becomes_the_same_when_every_row_goes_through_spark(
    batches: Batches, monkeypatch: pytest.MonkeyPatch, name: str, alone: int
) -> None:
    monkeypatch.setattr(distinct, "ALONE_BYTES", alone)
    more = [("b", "again")] if name == "multiplied" else []
    monkeypatch.setattr(batches.preparer, "_side_inputs", Sides(*more))
    stood: list[bool] = []
    plain = pipeline._write_late
    monkeypatch.setattr(pipeline, "_write_late", lambda *given: stood.append(given[-1]) or plain(*given))
    rows = [
        {"id": n % 150, "code": ("a", "b", "c", None)[n % 4], "amount": (n % 3) / 2, "note": f"{n}"} for n in range(400)
    ]
    files = await batches.put_all({"in/0": lines(rows[:150]), "in/1": lines(rows[150:])})
    prepared = await batches.prepare(files, COLUMNS, shaping=SHAPINGS[name])
    found = [await batches.loaded(prepared, branch) for branch in (-1, 0, 1)]
    assert stood == [name != "computed key" or not alone]  # of few rows, Spark does that itself
    monkeypatch.setattr(alike, "comparable", lambda *_: False)
    again = await batches.prepare(files, COLUMNS, shaping=SHAPINGS[name])
    assert not stood[1]
    assert found == [await batches.loaded(again, branch) for branch in (-1, 0, 1)]
    assert (prepared.rows_left_out, prepared.rows_read) == (again.rows_left_out, again.rows_read)
    assert sum(map(len, found)) == sum(output.rows for output in prepared.outputs)
