"""The meaning of GoogleSQL is pinned by values that Google computed, for everything that both engines have."""

import re
from itertools import product

import pytest
from tests.googlesql.cases import ENGINES, Case, cases, differences
from tests.googlesql.compare import ask, unexplained
from tests.googlesql.engines import RefusedError, Spark, local_bigquery

from ingestd.googlesql.types import SCALARS, holds
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.sql.library import REGISTRY as BIGQUERY
from ingestd.model.errors import BadInput
from ingestd.model.schema import Field, Type
from ingestd.spark.shape.steps import _converted
from ingestd.spark.sql.checker import unsupported
from ingestd.spark.sql.functions import REGISTRY as SPARK
from ingestd.warehouse.columns import converted

CASES = cases()
TYPES = (
    "INT64", "FLOAT64", "NUMERIC", "BIGNUMERIC", "BOOL", "STRING", "BYTES", "DATE", "TIME", "DATETIME", "TIMESTAMP",
    "INTERVAL", "JSON", "ARRAY<INT64>", "STRUCT<a INT64>",
)  # fmt: skip
OPERATORS = (
    "+", "-", "*", "/", "||", "~", "&", "|", "^", "<<", ">>", "=", "!=", "<>", "<", ">", "<=", ">=", "AND", "OR", "NOT",
    "BETWEEN", "IN", "IN UNNEST", "IS NULL", "IS TRUE", "IS FALSE", "IS DISTINCT FROM", "LIKE", "LIKE ANY", "LIKE ALL",
)  # fmt: skip


def test_the_local_bigquery_answers_as_google_does() -> None:
    with local_bigquery() as engine:
        answers = ask(engine, [case.expression for case in CASES])
    assert unexplained("bigquery", CASES, answers) == []


def test_spark_s_front_end_types_and_refuses_as_google_does() -> None:
    engine, known = Spark(), differences()
    wrong = []
    for case in CASES:
        try:
            kind = str(engine.compile(case.expression).type)
        except RefusedError:
            kind = ""
        listed = ("spark", case.expression) in known
        # What fails when it is computed may be refused beforehand.
        if kind != case.type and not listed and (kind or case.value is not None):
            wrong.append(f"{case.expression}: {case.type or 'refused'}, not {kind or 'refused'}")
    assert wrong == []


def test_what_spark_refuses_is_said_by_lint() -> None:
    silent = [
        item.expression
        for (engine, _), item in differences().items()
        if engine == "spark" and item.how == "refuses" and not unsupported(item.expression)
    ]
    assert silent == []


def test_every_function_that_both_engines_have_is_pinned() -> None:
    """A function without a case is not known to be right."""
    both = (BIGQUERY.keys() & SPARK.keys()) | {"EXTRACT"}
    called = set(re.findall(r"[A-Z][A-Z0-9_]*(?=\()", "\n".join(case.expression for case in CASES)))
    assert sorted(both - called) == []
    assert SPARK.keys() - BIGQUERY.keys() == {"EXTRACT"}


def test_every_cast_is_pinned() -> None:
    """From each type to each other, allowed and refused."""
    text = {case.expression for case in CASES}
    missing = [
        (source, target)
        for source, sample in _SAMPLES.items()
        for target in TYPES
        if not any(f"CAST({sample}" in item and f" AS {target})" in item for item in text)
    ]
    assert missing == []


_SAMPLES = dict(
    zip(
        TYPES,
        ("1 ", "1.5 ", "NUMERIC ", "BIGNUMERIC ", "TRUE ", "'", "b'", "DATE ", "TIME ", "DATETIME ", "TIMESTAMP ",
         "INTERVAL ", "JSON ", "[", "STRUCT("),
        strict=True,
    )
)  # fmt: skip


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_is_pinned(operator: str) -> None:
    page = [case.expression for case in CASES if case.page == "operators" and case.value is not None]
    assert any(f" {operator} " in f" {item} ".replace("(", " (") or item.startswith(operator) for item in page)


def test_every_difference_is_of_a_case_and_has_a_reason() -> None:
    known = {case.expression for case in CASES}
    for (engine, expression), item in differences().items():
        assert engine in ENGINES
        assert expression in known, f"no case: {expression}"
        assert item.reason
        assert item.how in ("refuses", "accepts", "fails", "differs")
        assert engine == "reference" or item.how != "differs" or item.reason.startswith("documented"), expression


def test_no_case_is_there_twice() -> None:
    seen: dict[str, Case] = {}
    for case in CASES:
        assert case.expression not in seen, case.expression
        seen[case.expression] = case


def test_on_its_way_into_a_column_a_value_becomes_the_same_on_both_engines() -> None:
    """What Spark prepares and what BigQuery's own statements cast: "the same rows on both engines"."""
    different = []
    for have, want in product([kind for kind in TYPES if kind in SCALARS], repeat=2):
        source, target = (Field("c", Type(kind)) for kind in (have, want))
        on_spark = _converted(Value("c", SCALARS[have]), SCALARS[want]) is not None
        try:
            by_statement = bool(converted("t.c", source, target, strict=True))
        except BadInput:
            by_statement = False
        if not on_spark == by_statement == holds(want, have):
            different.append((have, want, on_spark, by_statement))
    assert different == []
