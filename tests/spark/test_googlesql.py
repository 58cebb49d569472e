"""Spark computes what Google computes: the values come from Google's own implementation, not from this project."""

from typing import TYPE_CHECKING

from tests.googlesql.cases import cases
from tests.googlesql.compare import ask, unexplained
from tests.googlesql.engines import Spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_answers_as_google_does(session: "SparkSession") -> None:
    """With columns in place of constants, where a case has both; `make oracle` computes the constants as well."""
    chosen = [case for case in cases() if case.bare]
    engine = Spark(session)
    answers = ask(engine, [case.expression for case in chosen if case.value is not None])
    answers |= ask(engine, [case.expression for case in chosen if case.value is None])
    assert unexplained("spark", chosen, answers) == []
