"""Rule expressions: what Spark computes is what BigQuery would, and what it cannot is refused by name."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import farmhash as reference
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.yardstick import LocalBigQuery, local_bigquery, normal, outcome, same, spark_frame
from tests.support.places import ROOT
from tests.support.spark.conformance import FAILING, PARAMETERS, ROWS, SCHEMA, expressions

from ingestd.formats.errors import BigQueryError
from ingestd.googlesql.errors import SqlError
from ingestd.spark.sql import farmhash
from ingestd.spark.sql.checker import unsupported
from ingestd.spark.sql.expressions import Rows, Scope, columns_of, condition, translate
from ingestd.spark.sql.functions import REGISTRY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCOPE = Scope({"t": Rows.of(SCHEMA)}, PARAMETERS)


@pytest.fixture(scope="module")
def bigquery() -> Iterator[LocalBigQuery]:
    with local_bigquery() as local:
        local.create("d.v", SCHEMA, ROWS)
        yield local


def test_spark_computes_what_bigquery_computes(session: "SparkSession", bigquery: LocalBigQuery) -> None:
    listed = expressions()
    assert len(listed) > 400
    _interpreted(session)
    farmhash.register(session)
    frame = spark_frame(session, SCHEMA, ROWS).orderBy("k").coalesce(1).cache()
    different = []
    for start in range(0, len(listed), 80):
        chosen = listed[start : start + 80]
        translated = [translate(text, SCOPE) for text in chosen]
        ours = frame.selectExpr(
            *(f"{outcome(value.sql, value.type)} AS c{index}" for index, value in enumerate(translated))
        ).collect()
        columns = ", ".join(f"({text}) AS c{index}" for index, text in enumerate(chosen))
        theirs = bigquery.run(f"SELECT {columns}, t.k FROM d.v AS t ORDER BY t.k", PARAMETERS)
        for index, (text, value) in enumerate(zip(chosen, translated, strict=True)):
            a = [normal(row[index], value.type) for row in ours]
            b = [normal(row[index], value.type) for row in theirs]
            if not same(a, b):
                different.append((text, a, b))
    frame.unpersist()
    assert different == []


def test_what_fails_in_bigquery_fails_on_spark(session: "SparkSession", bigquery: LocalBigQuery) -> None:
    """Division by zero, overflow, text that is no number: an error, never NULL."""
    from pyspark.errors import PySparkException

    _interpreted(session)
    frame = spark_frame(session, SCHEMA[:1], ROWS[:1]).coalesce(1).cache()
    survived = []
    for text in FAILING:
        with pytest.raises(BigQueryError):
            bigquery.run(f"SELECT ({text}) FROM d.v AS t WHERE k = 1")
        value = translate(text, SCOPE)
        with suppress(PySparkException):
            survived.append((text, frame.selectExpr(f"{value.sql} AS c").collect()))
    frame.unpersist()
    assert survived == []


def _interpreted(session: "SparkSession") -> None:
    """Compiling hundreds of expressions takes a minute; the interpreter gives the same answers."""
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")


def test_every_function_of_the_table_is_measured() -> None:
    """A function that no expression of the table calls is not known to be right."""
    text = "\n".join([*expressions(), *FAILING]).upper()
    untested = {name for name in REGISTRY if f"{name}(" not in text}
    assert untested == UNMEASURED


# What they answer differs by its nature.
UNMEASURED = {"CURRENT_DATE", "CURRENT_DATETIME", "CURRENT_TIME", "CURRENT_TIMESTAMP", "GENERATE_UUID", "RAND"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SOUNDEX(s)", "function SOUNDEX is not available on Spark"),
        ("UPPERR(s)", "function UPPERR is not available on Spark; did you mean UPPER?"),
        ("NET.HOST(s)", "function NET.HOST is not available on Spark"),
        ("SAFE.CHR(i)", "SAFE.CHR is not available on Spark"),
        ("ROW_NUMBER() OVER (ORDER BY i)", "function ROW_NUMBER is not available on Spark"),
        ("i +", "not a GoogleSQL expression"),
        ("SUM(i)", "function SUM is not available on Spark"),
    ],
)
def test_what_spark_cannot_do_is_named_without_spark(text: str, problem: str) -> None:
    assert any(found.startswith(problem) for found in unsupported(text))


def test_what_spark_can_do_is_no_problem() -> None:
    assert [(text, unsupported(text)) for text in [*expressions(), *FAILING] if unsupported(text)] == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nothing + 1", "there is no column nothing"),
        ("t.nothing", "t has no column nothing"),
        ("i + s", "operator + does not take INT64 and STRING"),
        ("IF(i, 1, 2)", "the condition of IF must be BOOL"),
        ("COALESCE(i, s)", "COALESCE has no common type"),
        ("@absent", "there is no parameter @absent"),
        ("REGEXP_CONTAINS(s, r'(?=x)')", "is not a regular expression"),
        ("REGEXP_CONTAINS(s, u)", "needs a constant text"),
        ("FORMAT_DATE('%Ee', d)", "format element"),
        ("(SELECT x FROM other)", "a sub-select"),
        ("i IN (SELECT 1)", "use a side input"),
        ("COUNT(DISTINCT i)", "function COUNT"),
        ("ARRAY(SELECT x FROM UNNEST(a) x ORDER BY x)", "ordered by its offset"),
        ("CAST(s AS GEOGRAPHY)", "a CAST from STRING to GEOGRAPHY"),
        ("CAST(n AS NUMERIC(10, 2))", "with parameters"),
        ("DATE '2024-02-30'", "is no DATE"),
        ("i + INTERVAL 1 DAY", "an INTERVAL can only be added to a date or time"),
        ("ts + INTERVAL 1 MONTH", "does not support the date part MONTH"),
    ],
)
def test_a_wrong_expression_says_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(SqlError, match=why.replace("+", r"\+").replace("(", r"\(")):
        translate(text, SCOPE)


def test_the_columns_of_an_expression_are_told() -> None:
    text = "DATE_DIFF(t.d, day, DAY) + EXTRACT(WEEK(MONDAY) FROM e) + (SELECT SUM(x + i) FROM UNNEST(st.a) AS x)"
    assert sorted(columns_of(text)) == [("day",), ("e",), ("i",), ("st", "a"), ("t", "d")]
    assert columns_of("IF(CURRENT_DATE > d, 'DAY', @p)") == [("d",)]
    assert columns_of("ARRAY_TRANSFORM(a, e -> e + j)") == [("a",), ("j",)]


def test_a_name_in_two_tables_needs_its_alias() -> None:
    scope = Scope({"t": Rows.of(SCHEMA), "x": Rows.of(SCHEMA[:2], "side.")})
    with pytest.raises(SqlError, match="column k is ambiguous"):
        translate("k + 1", scope)
    assert condition("t.k = x.k", scope, "On") == "(`k` = side.`k`)"
    with pytest.raises(SqlError, match="On must be a BOOL"):
        condition("t.k", scope, "On")


@pytest.mark.parametrize("value", ["' OR 1=1 --", "\\", "${system:x}", "a\nb", "\0", "`", "日本", '"'])
def test_a_parameter_is_a_value_whatever_it_holds(session: "SparkSession", value: str) -> None:
    scope = Scope({"t": Rows.of(SCHEMA)}, {"p": value})
    row: Any = session.range(1).selectExpr(f"{translate('@p', scope).sql} AS c").collect()[0]
    assert row[0] == value


def test_the_documented_functions_are_the_ones_there_are() -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    table = page.partition("### Expressions")[2].partition("Also `CASE`")[0]
    assert set(re.findall(r"`([A-Z][A-Z0-9_]+)`", table.partition("| --- |")[2])) == set(REGISTRY)


@given(st.binary(max_size=300))
def test_fingerprints_are_farmhashs(data: bytes) -> None:
    expected = reference.fingerprint64(data)
    assert farmhash.fingerprint(data) == (expected - 2**64 if expected >= 2**63 else expected)
