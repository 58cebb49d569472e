"""The same rule makes the same rows on Spark, in BigQuery, and in a few lines of Python.

Rows repeat their keys and lack values; transformations, criteria, keys, orders and splits are drawn from the functions
that both engines have.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.spark.yardstick import LocalBigQuery, local_bigquery, normal, spark_frame
from tests.support.tables import publish_statements

from ingestd.model.preparation import Branch, Shaping, Unmatched
from ingestd.model.schema import Field
from ingestd.model.tables import TableName
from ingestd.spark.files.reserved import BRANCH, FILE, HOME, LINE
from ingestd.spark.shape.steps import shape
from ingestd.spark.sql.types import from_field
from ingestd.warehouse.statements import Publication, TableShape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
COLUMNS = tuple(
    map(
        Field.from_rest,
        [
            {"name": "seq", "type": "INTEGER"},
            {"name": "id", "type": "INTEGER"},
            {"name": "a", "type": "INTEGER"},
            {"name": "f", "type": "FLOAT"},
            {"name": "s", "type": "STRING"},
            {"name": "d", "type": "DATE"},
        ],
    )
)


@dataclass(frozen=True)
class Expression:
    """GoogleSQL, and what it means."""

    text: str
    value: Callable[[Row], Any]

    def __repr__(self) -> str:
        return self.text


def column(name: str) -> Expression:
    return Expression(f"t.{name}", lambda row: row[name])


def strict(form: str, compute: Callable[..., Any], *parts: Expression) -> Expression:
    """A function that is NULL when an argument is."""

    def value(row: Row) -> Any:
        values = [part.value(row) for part in parts]
        return None if any(item is None for item in values) else compute(*values)

    return Expression(form.format(*parts), value)


def _if(test: Expression, then: Expression, otherwise: Expression) -> Expression:
    return Expression(
        f"IF({test}, {then}, {otherwise})", lambda row: then.value(row) if test.value(row) else otherwise.value(row)
    )


def _coalesce(*parts: Expression) -> Expression:
    return Expression(
        f"COALESCE({', '.join(map(repr, parts))})",
        lambda row: next((found for part in parts if (found := part.value(row)) is not None), None),
    )


def _and(left: Expression, right: Expression) -> Expression:
    def value(row: Row) -> bool | None:
        values = (left.value(row), right.value(row))
        return False if False in values else None if None in values else True

    return Expression(f"({left} AND {right})", value)


def _not(part: Expression) -> Expression:
    return strict("(NOT {0})", lambda value: not value, part)


def _truncated(left: int, right: int) -> int:
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


def _round(value: float) -> int:
    return int(abs(value) + 0.5) * (1 if value >= 0 else -1)


def _safe_int(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


_TEXTS = st.text("ab 1é", max_size=4)
_constants = st.integers(-9, 9).map(lambda number: Expression(f"({number})", lambda row: number))
_nonzero = st.sampled_from([-4, -3, 2, 5, 7])
_parts = st.sampled_from(["DAY", "MONTH", "YEAR"])


def integers() -> st.SearchStrategy[Expression]:
    base = st.sampled_from([column("id"), column("a"), column("seq")]) | _constants
    return st.recursive(
        base,
        lambda inner: st.one_of(
            st.builds(lambda x, y: strict("({0} + {1})", lambda a, b: a + b, x, y), inner, inner),
            st.builds(lambda x, y: strict("({0} - {1})", lambda a, b: a - b, x, y), inner, inner),
            st.builds(lambda x: strict("ABS({0})", abs, x), inner),
            st.builds(lambda x, n: strict(f"DIV({{0}}, {n})", lambda a: _truncated(a, n), x), inner, _nonzero),
            st.builds(lambda x, n: strict(f"MOD({{0}}, {n})", lambda a: a - n * _truncated(a, n), x), inner, _nonzero),
            st.builds(lambda x, y: strict("GREATEST({0}, {1})", max, x, y), inner, inner),
            st.builds(_coalesce, inner, inner),
            st.builds(_if, conditions(), inner, inner),
            st.builds(lambda x: strict("LENGTH({0})", len, x), texts()),
            st.builds(lambda x: strict("CAST({0} AS INT64)", _round, x), floats()),
            st.builds(lambda x: Expression(f"SAFE_CAST({x} AS INT64)", lambda row: _safe_int(x.value(row))), texts()),
            st.builds(lambda x, y: strict("DATE_DIFF({0}, {1}, DAY)", lambda a, b: (a - b).days, x, y), days(), days()),
            st.builds(
                lambda x, part: strict(f"EXTRACT({part} FROM {{0}})", lambda a: getattr(a, part.lower()), x),
                days(),
                _parts,
            ),
        ),
        max_leaves=5,
    )


def floats() -> st.SearchStrategy[Expression]:
    return st.sampled_from(
        [
            column("f"),
            strict("(t.a / 4)", lambda a: a / 4, column("a")),
            strict("ROUND(t.f)", lambda f: float(_round(f)), column("f")),
            strict("SAFE_DIVIDE(t.f, 2)", lambda f: f / 2, column("f")),
        ]
    )


def texts() -> st.SearchStrategy[Expression]:
    base = st.just(column("s")) | _TEXTS.map(lambda text: Expression(f"'{text}'", lambda row: text))
    return st.recursive(
        base,
        lambda inner: st.one_of(
            st.builds(lambda x: strict("UPPER({0})", str.upper, x), inner),
            st.builds(lambda x, y: strict("CONCAT({0}, {1})", lambda a, b: a + b, x, y), inner, inner),
            st.builds(lambda x: strict("TRIM({0})", str.strip, x), inner),
            st.builds(lambda x: strict("REPLACE({0}, 'a', 'xy')", lambda a: a.replace("a", "xy"), x), inner),
            st.builds(lambda x: strict("SUBSTR({0}, 2, 2)", lambda a: a[1:3], x), inner),
            st.builds(lambda x: strict("SUBSTR({0}, -2)", lambda a: a[-2:], x), inner),
            st.builds(lambda x: strict("REVERSE({0})", lambda a: a[::-1], x), inner),
            st.builds(_coalesce, inner, inner),
            st.builds(_if, conditions(), inner, inner),
            st.just(strict("CAST(t.a AS STRING)", str, column("a"))),
            st.just(strict("FORMAT_DATE('%Y%m%d', t.d)", lambda d: d.strftime("%Y%m%d"), column("d"))),
        ),
        max_leaves=4,
    )


def days() -> st.SearchStrategy[Expression]:
    return st.just(column("d")) | st.integers(-40, 400).map(
        lambda n: strict(f"DATE_ADD({{0}}, INTERVAL {n} DAY)", lambda d: d + timedelta(days=n), column("d"))
    )


def conditions() -> st.SearchStrategy[Expression]:
    simple = st.sampled_from(
        [
            strict("(t.a > t.id)", lambda a, b: a > b, column("a"), column("id")),
            strict("(t.s < 'b')", lambda s: s < "b", column("s")),
            strict("(t.f >= 0.5)", lambda f: f >= 0.5, column("f")),
            strict("(t.d > '2024-02-01')", lambda d: d > date(2024, 2, 1), column("d")),
            strict("STARTS_WITH(t.s, 'a')", lambda s: s.startswith("a"), column("s")),
            strict("(t.a IN (1, 2, 3))", lambda a: a in (1, 2, 3), column("a")),
            Expression("(t.id IS NULL)", lambda row: row["id"] is None),
            strict("(MOD(t.seq, 3) = 0)", lambda seq: seq % 3 == 0, column("seq")),
        ]
    )
    return st.recursive(simple, lambda inner: st.builds(_and, inner, inner) | st.builds(_not, inner), max_leaves=3)


@st.composite
def batches(draw: st.DrawFn) -> list[Row]:
    small = st.one_of(st.none(), st.integers(-5, 5))
    made = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "id": st.sampled_from([None, 0, 1, 2]),
                    "a": small,
                    "f": st.one_of(st.none(), st.integers(-8, 8).map(lambda number: number / 4)),
                    "s": st.one_of(st.none(), _TEXTS),
                    "d": st.one_of(st.none(), st.dates(date(2023, 12, 30), date(2024, 3, 1))),
                }
            ),
            min_size=12,  # enough for repeated keys, and for rows that fit two branches
            max_size=30,
        )
    )
    return [{"seq": place, **row} for place, row in enumerate(made)]


@dataclass(frozen=True)
class Case:
    """A rule's part about rows, in GoogleSQL and in Python."""

    transform: dict[str, Expression]
    criteria: Expression | None
    keys: tuple[str, ...]
    order: tuple[str, ...]
    branches: tuple[Expression, ...]
    every: bool
    unmatched: Unmatched

    @property
    def shaping(self) -> Shaping:
        return Shaping(
            transform={name: one.text for name, one in self.transform.items()},
            criteria=self.criteria.text if self.criteria else "",
            unique_columns=self.keys,
            order_by=self.order,
            branches=tuple(Branch(one.text) for one in self.branches),
            every_branch=self.every,
            unmatched=self.unmatched,
        )

    def expected(self, rows: list[Row]) -> dict[int, list[Row]]:
        kept = [row for row in rows if self.criteria is None or self.criteria.value(row)]
        shaped = [{**row, **{name: one.value(row) for name, one in self.transform.items()}} for row in kept]
        if self.keys:
            first: dict[Any, Row] = {}
            for row in sorted(shaped, key=self._place):
                first.setdefault(tuple(row[name] for name in self.keys), row)
            shaped = list(first.values())
        targets: dict[int, list[Row]] = {}
        for row in shaped:
            fits = [number for number, one in enumerate(self.branches) if one.value(row)]
            if not fits and (not self.branches or self.unmatched is Unmatched.KEEP):
                fits = [HOME]
            for number in fits if self.every else fits[:1]:
                targets.setdefault(number, []).append(row)
        return targets

    def _place(self, row: Row) -> tuple[Any, ...]:
        down = self.order[0] == "seq DESC"
        if down:
            return (-row["seq"],)
        # `f DESC, seq`: what is NULL comes last.
        return (row["f"] is None, -(row["f"] or 0), row["seq"])


cases = st.builds(
    Case,
    st.fixed_dictionaries({}, optional={"a": integers(), "s": texts(), "d": days()}),
    st.none() | conditions(),
    st.sampled_from([("id",), ("id",), (), ("id", "s"), ("a",)]),
    st.sampled_from([("seq DESC",), ("f DESC", "seq")]),
    st.just(()) | st.lists(conditions(), min_size=2, max_size=3).map(tuple),
    st.booleans(),
    st.sampled_from([Unmatched.KEEP, Unmatched.DROP]),
)


@pytest.fixture(scope="module")
def bigquery() -> Iterator[LocalBigQuery]:
    with local_bigquery() as local:
        yield local


def _sorted(rows: Any) -> list[tuple[Any, ...]]:
    kinds = [from_field(field) for field in COLUMNS]
    made = [tuple(normal(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in rows]
    return sorted(made, key=repr)


def on_spark(session: "SparkSession", case: Case, rows: list[Row]) -> dict[int, list[tuple[Any, ...]]]:
    frame = spark_frame(session, COLUMNS, rows).coalesce(1)
    frame = frame.selectExpr("*", f"0 AS {FILE}", f"seq AS {LINE}")
    made = shape(frame, case.shaping, source=COLUMNS, destination=COLUMNS)
    targets: dict[int, list[Any]] = {}
    for row in made.frame.collect():
        branch = row[BRANCH] if made.branches else HOME
        targets.setdefault(branch, []).append(tuple(row)[: len(COLUMNS)])
    return {branch: _sorted(found) for branch, found in targets.items()}


def in_bigquery(bigquery: LocalBigQuery, case: Case, rows: list[Row]) -> dict[int, list[tuple[Any, ...]]]:
    bigquery.create("d.landed", COLUMNS, rows)
    tables = tuple(TableShape(TableName("p", "d", f"t{n}"), COLUMNS) for n in range(len(case.branches)))
    plan = Publication(
        TableShape(TableName("p", "d", "landed"), COLUMNS),
        TableShape(TableName("p", "d", "home"), COLUMNS),
        case.shaping,
        tables,
    )
    targets = {}
    for statement in publish_statements(plan):
        found = bigquery.run(statement.sql or "SELECT * FROM d.landed")
        if found:
            targets[statement.branch] = _sorted(found)
    return targets


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(case=cases, rows=batches())
def test_both_engines_make_the_rows_that_python_makes(
    session: "SparkSession", bigquery: LocalBigQuery, case: Case, rows: list[Row]
) -> None:
    expected = {
        branch: _sorted(tuple(row[field.name] for field in COLUMNS) for row in found)
        for branch, found in case.expected(rows).items()
    }
    assert in_bigquery(bigquery, case, rows) == expected
    assert on_spark(session, case, rows) == expected
