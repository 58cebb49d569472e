"""One row per key decided by the keys alone: the same rows as Spark's own way, whatever the files and their order."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import count, groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.spark.batches import Batches
from tests.support.files import avro, lines, parquet
from tests.support.loads import schema

from ingestd.formats.options import LoadOptions
from ingestd.model.errors import BadInput
from ingestd.model.objects import ObjectRef
from ingestd.model.preparation import BadData, Branch, Drift, Prepared, Shaping, SideInput, Unmatched
from ingestd.model.schema import Field, Type
from ingestd.spark.files import alike, kept
from ingestd.spark.files.kept import Keeping, Kept, worthwhile
from ingestd.spark.files.read_task import Reading, Unit
from ingestd.spark.files.readers import ReadPlan
from ingestd.spark.files.reserved import FILE, LINE
from ingestd.spark.preparer import SparkPreparer, Where
from ingestd.spark.session.session import Spark
from ingestd.spark.shape import choose, distinct, pipeline, work
from ingestd.spark.shape.choose import mark
from ingestd.spark.shape.distinct import keys_of
from ingestd.spark.shape.steps import SideFrame

RECORD = {"name": "info", "type": "RECORD", "fields": [{"name": "key", "type": "STRING"}]}
COLUMNS = (
    *schema("id INT64", "name STRING", "day DATE", "x FLOAT64", "tags STRING REPEATED"),
    Field.from_rest(RECORD),
)
NDJSON = LoadOptions.from_rest({"sourceFormat": "NEWLINE_DELIMITED_JSON"})
SIDE = SideInput("s", "s.id = t.id", select="SELECT 1 AS id")


def test_so_can_one_beside_rows_of_a_side_input_that_leaves_none_out() -> None:
    assert len(keys_of(Shaping(unique_columns=("id",), side_inputs=(SIDE,)), COLUMNS)[0]) == 1


@pytest.mark.parametrize("keys", [("id",), ("t.id", "Name"), ("`id`",), ("T.`day`",)])
def test_a_key_of_the_files_own_columns_can_be_looked_at(keys: tuple[str, ...]) -> None:
    assert len(keys_of(Shaping(unique_columns=keys), COLUMNS)[0]) == len(keys)


@pytest.mark.parametrize(
    "shaping",
    [
        Shaping(),
        Shaping(unique_columns=("nowhere",)),
        Shaping(unique_columns=("UPPER(name)",)),
        Shaping(unique_columns=("info.key",)),
        Shaping(unique_columns=("x",)),  # NaN equals NaN, and 0.0 equals -0.0
        Shaping(unique_columns=("tags",)),
        Shaping(unique_columns=("id", "x")),
        Shaping(unique_columns=("id",), order_by=("x",)),
        Shaping(unique_columns=("id",), order_by=("name DESC", "LENGTH(name)")),
        Shaping(unique_columns=("id",), order_by=("name",), transform={"name": "UPPER(t.name)"}),
        Shaping(unique_columns=("id",), criteria="x > 0"),
        Shaping(unique_columns=("id",), transform={"ID": "t.id + 1"}),
        Shaping(unique_columns=("id",), side_inputs=(SIDE, replace(SIDE, alias="u", inner=True))),
        Shaping(unique_columns=("s.id",), side_inputs=(SIDE,)),
    ],
)
def test_whatever_takes_more_than_looking_goes_sparks_way(shaping: Shaping) -> None:
    assert keys_of(shaping, COLUMNS) == ((), ())


def test_rows_are_kept_where_scratch_has_room_for_what_they_may_take() -> None:
    size = distinct.ALONE_BYTES
    assert worthwhile(size, None)
    assert worthwhile(size, kept.room(size))
    assert not worthwhile(2 * size, kept.room(size))


KEYS = {
    "id": st.none() | st.integers(-2, 2),
    "name": st.none() | st.sampled_from(["", "a", "ä"]),
    "on": st.none() | st.booleans(),
    "at": st.none() | st.sampled_from(["1969-01-01T00:00:00Z", "2026-01-01T00:00:00Z"]),
}
ROWS = st.lists(st.fixed_dictionaries(KEYS), max_size=5)
numbers = count()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    files=st.lists(ROWS, min_size=1, max_size=5),
    keys=st.sampled_from([("id",), ("name",), ("id", "name"), ("day",)]),
    chance=st.randoms(use_true_random=False),
    shares=st.integers(1, 3),
    keyless=st.booleans(),
    by=st.lists(
        st.tuples(st.sampled_from(["id", "name", "day", "on", "at"]), st.booleans(), st.booleans()), max_size=2
    ),
    most=st.sampled_from([choose.MOST_ROWS, 3]),
)
def test_the_last_row_of_the_newest_file_is_the_one_that_is_kept(
    tmp_path: Path,
    files: list[list[dict[str, Any]]],
    keys: tuple[str, ...],
    chance: Any,
    shares: int,
    keyless: bool,
    by: list[tuple[str, bool, bool]],
    most: int,
) -> None:
    """Of those that come first in the order asked for, if any is: here, NULLs first or last, and up or down.

    Also when a large file was cut into parts that different workers read, in any order.

    Where rows without a key are kept, all of them are.
    """
    folder = tmp_path / f"{next(numbers)}"
    folder.mkdir()
    order = list(range(len(files)))
    chance.shuffle(order)
    units: list[Unit] = []
    for index, rows in enumerate(files):
        told = [json.dumps({**row, "day": f"2026-01-0{1 + len(row['name'] or '')}"}).encode() + b"\n" for row in rows]
        path = folder / f"{index}.json"
        path.write_bytes(b"".join(told))
        cut = chance.randint(0, len(told))
        start = 0
        for part, piece in enumerate((told[:cut], told[cut:])):
            size = sum(map(len, piece))
            units.append(Unit(index, path.name, str(path), start, size, part))
            start += size
    columns = schema("id INT64", "name STRING", "day DATE", "on BOOL", "at TIMESTAMP")
    dealt: list[list[Unit]] = [[] for _ in range(shares)]
    for unit in units:
        dealt[chance.randrange(shares)].append(unit)
    reading = Reading(ReadPlan(columns, NDJSON), BadData.QUARANTINE_FILE, tuple(map(tuple, dealt)))
    wanted = pa.record_batch({"id": list(range(shares))})
    told_of = [text for text in Keeping(reading, str(folder)).tell(range(shares)) if text is not None]
    assert sum(len(text.splitlines()) for text in told_of) == len(units)
    before = [row for batch in Kept(str(folder), marked=False)(iter([wanted])) for row in batch.to_pylist()]
    newest: dict[Any, dict[str, Any]] = {}
    rows = sorted(before, key=lambda row: (order[row[FILE]], row[LINE]))
    for name, down, last in reversed(by):  # the best at the end: there it replaces the others
        there = sorted((row for row in rows if row[name] is not None), key=lambda row: _sortable(row[name]))
        groups = [list(group) for _, group in groupby(there, key=lambda row: _sortable(row[name]))]
        there = [row for group in (groups if down else reversed(groups)) for row in group]
        absent = [row for row in rows if row[name] is None]
        rows = [*absent, *there] if last else [*there, *absent]
    for row in rows:
        key = tuple(row[name] for name in keys)
        newest[(row[FILE], row[LINE]) if keyless and None in key else key] = row
    kinds = {item.name: item for item in columns}
    asked = [choose.By(kinds[name], down, last) for name, down, last in by]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "MOST_ROWS", most)  # so many are looked at together
        dropped = mark(str(folder), shares, [kinds[key] for key in keys], order, keyless, asked)
    after = [row for batch in Kept(str(folder), marked=True)(iter([wanted])) for row in batch.to_pylist()]
    plain = [{name: value for name, value in row.items() if name in kinds} for row in newest.values()]
    assert sorted(map(repr, after)) == sorted(map(repr, plain))
    assert dropped == len(before) - len(after) == sum(map(len, files)) - len(after)


@settings(deadline=None)
@given(words=st.lists(st.none() | st.text(max_size=2), max_size=80), binary=st.booleans())
def test_many_texts_are_told_apart_by_more_than_their_hashes(words: list[str | None], binary: bool) -> None:
    """Rows have the same number exactly when they have the same text, however few places hashes have."""
    texts = pa.array(words, pa.string()).cast(pa.binary() if binary else pa.string())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "_MANY", 1)
        for spread in (1, 64):
            patch.setattr(choose, "_SPREAD", spread)
            item = Field("k", Type.BYTES if binary else Type.STRING)
            codes = choose._codes([pa.table({"k": texts})], [item])
            assert codes is not None
            assert len({*zip(codes.tolist(), words, strict=True)}) == len(set(codes.tolist())) == len(set(words))


@given(
    codes=st.lists(st.integers(-5, 5) | st.sampled_from([-(2**63), 2**63 - 1]), max_size=40),
)
def test_the_last_of_each_is_found_with_and_without_sorting(codes: list[int]) -> None:
    last = {code: place for place, code in enumerate(codes)}
    found = choose._last_of_each(np.array(codes, np.int64), [])
    assert sorted(found.tolist()) == sorted(last.values())


def _sortable(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Every batch is large enough; what each look at the keys answered."""
    answers: list[int | None] = []
    plain = choose.mark

    def look(*given: Any) -> int | None:
        answers.append(plain(*given))
        return answers[-1]

    monkeypatch.setattr(distinct, "ALONE_BYTES", 0)
    monkeypatch.setattr(choose, "mark", look)
    return answers


FLAT = schema("id INT64 REQUIRED", "name STRING", "amount FLOAT64", "at TIMESTAMP")
SHAPING = Shaping(
    transform={"name": "UPPER(t.name)", "amount": "t.amount * 2"},
    unique_columns=("id", "at"),
    branches=(Branch("amount > 50"), Branch("name = 'N1'")),
)
FAR = 10**6


def _row(n: int) -> dict[str, Any]:
    return {"id": n % 17, "name": f"n{n % 5}", "amount": n / 2, "at": f"2026-01-{1 + n % 3:02d}T00:00:00Z"}


def _csv(rows: list[dict[str, Any]]) -> bytes:
    return "".join(",".join(str(value) for value in row.values()) + "\n" for row in rows).encode()


async def _prepared(batches: Batches, kind: str, **more: Any) -> tuple[Prepared, list[list[tuple[Any, ...]]]]:
    make = {"NEWLINE_DELIMITED_JSON": lines, "CSV": _csv}[kind]
    contents: Mapping[str, bytes] = {
        "in/new": make([_row(n) for n in range(60)]),
        "in/bad": make([_row(n) for n in range(5)]) + b'{"id": "?",\n',
        "in/old": make([_row(n) for n in range(40, 200)]),
        "in/empty": b"",
    }
    files = await batches.put_all(contents)
    prepared = await batches.prepare(files, FLAT, {"sourceFormat": kind}, **{"shaping": SHAPING, **more})
    return prepared, [await batches.loaded(prepared, branch) for branch in (-1, 0, 1)]


def _avro(rows: list[dict[str, Any]]) -> bytes:
    kinds = {"id": "long", "name": "string", "amount": "double", "at": "string"}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    return avro(fields, rows, "deflate")


PACKED = {
    "NEWLINE_DELIMITED_JSON": lambda rows: gzip.compress(lines(rows)),
    "AVRO": _avro,
    "PARQUET": lambda rows: parquet(pa.Table.from_pylist(rows)),
}


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("few", [True, False])
async def test_rows_of_packed_files_are_kept_where_there_is_room(
    batches: Batches, marked: list[int | None], monkeypatch: pytest.MonkeyPatch, kind: str, few: bool
) -> None:
    """Else they go Spark's way, and are the same."""
    make = PACKED[kind]
    files = await batches.put_all(
        {
            "in/0.gz": make([_row(n) for n in range(60)]),
            "in/1.gz": make([_row(n) for n in range(5)])[:-9],
            "in/2.gz": make([_row(n) for n in range(40, 200)]),
        }
    )
    if few:
        monkeypatch.setattr(distinct, "ALONE_BYTES", FAR)
        monkeypatch.setattr(alike, "comparable", lambda *_: False)
    options = {"sourceFormat": kind, "useAvroLogicalTypes": True}
    prepared = await batches.prepare(files, FLAT, options, shaping=SHAPING)
    rows = [await batches.loaded(prepared, branch) for branch in (-1, 0, 1)]
    assert marked == ([] if few else [220 - 51])
    monkeypatch.setattr(batches.scratch, "more", lambda *_: False)
    monkeypatch.setattr(kept, "_FRAME", 0)
    monkeypatch.setattr(kept, "MOST_KEPT", 3)
    unkept = []
    plain = pipeline._unkept
    monkeypatch.setattr(pipeline, "_unkept", lambda *given: unkept.append(given) or plain(*given))
    again = await batches.prepare(files, FLAT, options, shaping=SHAPING)
    assert rows == [await batches.loaded(again, branch) for branch in (-1, 0, 1)]
    assert unkept or kind == "AVRO"  # of which a short one hardly grows
    assert sum(map(len, rows)) == 51
    assert (prepared.rows_left_out, prepared.bad) == (again.rows_left_out, again.bad)
    assert [bad.index for bad in prepared.bad] == [1]


@pytest.mark.parametrize("kind", ["NEWLINE_DELIMITED_JSON", "CSV"])
@pytest.mark.parametrize("way", ["two jobs", "too many keys", "one task"])
async def test_either_way_a_batch_becomes_the_same(
    batches: Batches, marked: list[int | None], monkeypatch: pytest.MonkeyPatch, kind: str, way: str
) -> None:
    """Rows, what was left out and the verdict on a bad file; also when there turn out to be too many keys."""
    monkeypatch.setattr(choose, "MOST_ROWS", 1 if way == "too many keys" else FAR)
    if way == "one task":
        monkeypatch.setattr(distinct, "ALONE_BYTES", FAR)
        monkeypatch.setattr(alike, "comparable", lambda *_: False)
    prepared, rows = await _prepared(batches, kind)
    assert marked == {"two jobs": [220 - 51], "too many keys": [None], "one task": []}[way]
    before = len(marked)
    monkeypatch.setattr(kept, "worthwhile", lambda *_: False)
    plain, plain_rows = await _prepared(batches, kind)
    assert len(marked) == before
    assert rows == plain_rows
    assert sum(map(len, rows)) == 51
    assert (prepared.rows_left_out, prepared.rows_read) == (plain.rows_left_out, plain.rows_read)
    assert prepared.rows_left_out["duplicate"] == 220 - 51
    assert prepared.bad == plain.bad
    assert [bad.index for bad in prepared.bad] == [1]
    assert not list(batches.scratch.folder.glob("batch-*"))


async def test_a_batch_that_has_to_be_read_again_is_not_written_first(
    batches: Batches, marked: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New columns are known, and a policy that fails is kept, before any row is looked at twice."""
    written: list[str] = []
    plain = pipeline._write_late
    monkeypatch.setattr(
        pipeline, "_write_late", lambda work, *given: written.append(work.target) or plain(work, *given)
    )
    files = [await batches.put("in/a", lines([{"id": 1, "extra": 0.5}, {"id": 1, "extra": 2}]))]
    columns = schema("id INT64")
    shaping = Shaping(unique_columns=("id",))
    prepared = await batches.prepare(files, columns, shaping=shaping, drift=Drift.EVOLVE)
    assert [field.name for field in prepared.added] == ["extra"]
    assert await batches.loaded(prepared) == [(1, 2.0)]
    assert (len(written), marked) == (1, [1])
    with pytest.raises(BadInput, match="in/bad line 6"):
        await _prepared(batches, "NEWLINE_DELIMITED_JSON", bad_data=BadData.FAIL)
    assert len(written) == 1


async def test_of_files_whose_bad_rows_are_set_aside_the_good_ones_are_compared(
    batches: Batches, marked: list[int | None]
) -> None:
    prepared, rows = await _prepared(batches, "NEWLINE_DELIMITED_JSON", bad_data=BadData.QUARANTINE_ROWS)
    assert sum(map(len, rows)) == 51
    assert marked == [225 - 51]
    assert prepared.rows_left_out == {"duplicate": 225 - 51, "bad": 1}
    assert len(prepared.rejected) == 1


@pytest.mark.parametrize("alone", [0, FAR])
async def test_rows_that_take_far_more_room_than_their_files_are_not_kept(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: int
) -> None:
    monkeypatch.setattr(distinct, "ALONE_BYTES", alone)
    marked = []
    monkeypatch.setattr(choose, "mark", lambda *given: marked.append(given))
    unkept = []
    plain = pipeline._unkept
    monkeypatch.setattr(pipeline, "_unkept", lambda *given: unkept.append(given) or plain(*given))
    batches = Batches(spark, tmp_path)
    wide = schema("id INT64", *(f"c{number} INT64" for number in range(200)))
    files = [await batches.put(f"{n}.json", lines([{"id": i % 70} for i in range(7000)])) for n in range(2)]
    prepared = await batches.prepare(files, wide, shaping=Shaping(unique_columns=("id",)))
    assert [row[0] for row in await batches.loaded(prepared)] == list(range(70))
    assert prepared.rows_left_out == {"duplicate": 13_930}
    assert not marked
    assert len(unkept) == 1


COMPUTED = {
    "text": (("CONCAT('k', CAST(id AS STRING))", "`at`"), ()),
    "transformed": (("MOD(amount, 7)", "name"), ()),
    "ordered": (("id", "`at`"), ("LENGTH(name) DESC", "UPPER(name) ASC NULLS LAST", "CAST(amount AS INT64)")),
    "null": (("IF(id < 3, NULL, id)", "DATE(`at`)"), ("`at` > '2026-01-02' DESC",)),
    "float": (("amount / 3",), ()),  # which it takes Spark to compare
}


@pytest.mark.parametrize("how", COMPUTED)
@pytest.mark.parametrize("keyless", [False, True])
async def test_keys_that_spark_computes_are_looked_at_without_the_rows(
    batches: Batches, marked: list[int | None], monkeypatch: pytest.MonkeyPatch, how: str, keyless: bool
) -> None:
    """The same rows stay as Spark would choose, who sees all of them."""
    keys, order = COMPUTED[how]
    transform = {"amount": "CAST(t.amount * 2 AS INT64)", "name": "CONCAT(t.name, CAST(t.id AS STRING))"}
    if how == "float":
        transform = {}
    shaping = replace(SHAPING, unique_columns=keys, order_by=order, keep_keyless=keyless, transform=transform)
    columns = schema("id INT64 REQUIRED", "name STRING", "amount FLOAT64", "at TIMESTAMP")
    files = await batches.put_all({f"in/{n}": lines([_row(i) for i in range(n * 30, n * 50 + 40)]) for n in range(4)})
    prepared = await batches.prepare(files, columns, shaping=shaping)
    rows = [await batches.loaded(prepared, branch) for branch in (-1, 0, 1)]
    assert bool(marked) == (how != "float")
    assert None not in marked
    before = len(marked)
    monkeypatch.setattr(kept, "worthwhile", lambda *_: False)
    plain = await batches.prepare(files, columns, shaping=shaping)
    assert len(marked) == before
    assert rows == [await batches.loaded(plain, branch) for branch in (-1, 0, 1)]
    assert prepared.rows_left_out == plain.rows_left_out
    assert prepared.rows_left_out["duplicate"]


@pytest.mark.parametrize(
    "shaping",
    [
        Shaping(),
        Shaping(unique_columns=("UPPER(name)",), criteria="id > 1"),
        Shaping(unique_columns=("UPPER(name)",), side_inputs=(SIDE,)),
        Shaping(unique_columns=("RAND()",)),
        Shaping(unique_columns=("name",), transform={"name": "GENERATE_UUID()"}),
        Shaping(unique_columns=("id",), order_by=("CURRENT_DATE()",)),
    ],
)
def test_keys_that_need_more_or_change_are_not_computed_before(shaping: Shaping) -> None:
    assert not distinct.computable(shaping)


class Labels:
    """A side input of these rows."""

    def __init__(self, rows: list[tuple[int, str]]) -> None:
        self.rows = rows

    async def ready(self, _: Shaping) -> pipeline.Sides:
        columns = (Field("id", Type.INT64), Field("label", Type.STRING))
        return lambda session: {"s": SideFrame(session.createDataFrame(self.rows, "id BIGINT, label STRING"), columns)}


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("every", [False, True])
async def test_rows_are_joined_after_they_were_chosen_and_are_the_same(
    spark: Spark,
    tmp_path: Path,
    marked: list[int | None],
    monkeypatch: pytest.MonkeyPatch,
    several: bool,
    few: bool,
    every: bool,
) -> None:
    """A side input that makes several rows of one is noticed, and one of them stays: here they are all alike."""
    batches = Batches(spark, tmp_path)
    labels = [(n, f"label {n}") for n in range(10)]
    if several:
        labels += labels[:3]
    batches.preparer = SparkPreparer(spark, batches.store, batches.scratch, Where(cores=2), Labels(labels))
    if few:
        monkeypatch.setattr(distinct, "ALONE_BYTES", FAR)
    shaping = replace(
        SHAPING,
        side_inputs=(SideInput("s", "s.id = t.id", select="SELECT 1"),),
        transform={"name": "COALESCE(s.label, t.name)"},
        branches=(Branch("amount > 50"), Branch("name = 'label 1'")),
        unmatched=Unmatched.DROP,
        every_branch=every,
    )
    unkept = []
    plain = pipeline._unkept
    monkeypatch.setattr(pipeline, "_unkept", lambda *given: unkept.append(given) or plain(*given))
    prepared, rows = await _prepared(batches, "NEWLINE_DELIMITED_JSON", shaping=shaping)
    assert marked == ([] if few else [220 - 51])
    assert len(unkept) == several
    monkeypatch.setattr(kept, "worthwhile", lambda *_: False)
    other, other_rows = await _prepared(batches, "NEWLINE_DELIMITED_JSON", shaping=shaping)
    assert rows == other_rows
    assert sum(map(len, rows)) > 10
    assert (prepared.rows_left_out, prepared.bad) == (other.rows_left_out, other.bad)


async def test_a_bad_row_is_set_aside_once_however_often_the_batch_is_made(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One task reads the first time; the second time several do, under other numbers."""
    batches = Batches(spark, tmp_path)
    labels = Labels([(n, "label") for n in (1, 1, 2)])
    batches.preparer = SparkPreparer(spark, batches.store, batches.scratch, Where(cores=2), labels)
    monkeypatch.setattr(alike, "comparable", lambda *_: False)
    monkeypatch.setattr(work, "SHARE_BYTES", 1)
    unkept = []
    plain = pipeline._unkept
    monkeypatch.setattr(pipeline, "_unkept", lambda *given: unkept.append(given) or plain(*given))
    contents = {"in/large": lines([_row(n) for n in range(60)]), "in/bad": lines([_row(1)]) + b'{"id": "?"}\n'}
    files = await batches.put_all(contents)
    side = SideInput("s", "s.id = t.id", select="SELECT 1")
    shaping = Shaping(transform={"name": "s.label"}, side_inputs=(side,), unique_columns=("id",))
    prepared = await batches.prepare(files, FLAT, shaping=shaping, bad_data=BadData.QUARANTINE_ROWS)
    assert len(unkept) == 1
    told = [(await batches.store.read(ObjectRef.parse(url)))[0] for url in prepared.rejected]
    assert len(b"".join(told).splitlines()) == prepared.rows_left_out["bad"] == 1
