"""One table of functions, of which each engine has what it has."""

import pytest

from ingestd.googlesql.functions import FUNCTIONS, Signature, overload, types
from ingestd.googlesql.types import BIGNUMERIC, BYTES, FLOAT64, INT64, NUMERIC, STRING, SqlType, coerces
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.sql.library import REGISTRY as DUCKDB
from ingestd.spark.sql.functions import REGISTRY as SPARK


def test_an_engine_has_nothing_that_is_not_in_the_table() -> None:
    assert DUCKDB.keys() <= FUNCTIONS.keys()
    assert SPARK.keys() <= FUNCTIONS.keys()
    assert FUNCTIONS.keys() - DUCKDB.keys() == {"EXTRACT"}  # syntax of its own
    assert {FUNCTIONS[name].kind for name in SPARK} == {"scalar"}


@pytest.mark.parametrize(
    ("name", "wanted", "fits"),
    [
        ("SUBSTR", "2 to 3", [2, 3]),
        ("IF", "3", [3]),
        ("CONCAT", "at least 1", [1, 2, 3, 4, 5, 9, 99]),
        ("INSTR", "2 to 4", [2, 3, 4]),
    ],
)
def test_a_function_knows_how_many_arguments_it_takes(name: str, wanted: str, fits: list[int]) -> None:
    function = FUNCTIONS[name]
    assert function.wanted == wanted
    assert [count for count in (0, 1, 2, 3, 4, 5, 9, 99) if function.takes(count)] == fits


def _chosen(name: str, *args: Value, without: SqlType | None = None) -> Signature | None:
    def coerce(value: Value, target: SqlType) -> Value | None:
        return value if value.null or coerces(value.type, target) else None

    found = overload(FUNCTIONS[name], args, coerce, lambda one: without not in one.parameters)
    return found and found[0]


def test_the_nearest_overload_is_chosen_whether_an_engine_has_it_or_not() -> None:
    assert _chosen("ABS", Value("x", INT64)) == Signature((INT64,), INT64)
    assert _chosen("SQRT", Value("x", INT64)) == Signature((FLOAT64,), FLOAT64)
    assert _chosen("SQRT", Value("x", NUMERIC), without=NUMERIC) == Signature((NUMERIC,), NUMERIC)
    assert _chosen("POW", Value("x", NUMERIC), Value("x", BIGNUMERIC)) == Signature((BIGNUMERIC,) * 2, BIGNUMERIC)
    assert _chosen("LENGTH", Value("x", INT64)) is None
    assert _chosen("LENGTH") is None


def test_a_null_is_of_the_first_type_that_the_engine_has() -> None:
    null = Value("NULL", INT64, null=True)
    assert _chosen("BYTE_LENGTH", null) == Signature((BYTES,), INT64)
    assert _chosen("BYTE_LENGTH", null, without=BYTES) == Signature((STRING,), INT64)


def test_types_are_read_as_they_are_written() -> None:
    assert types("STRING, ARRAY<INT64> FLOAT64") == (STRING, SqlType("ARRAY", INT64), FLOAT64)
