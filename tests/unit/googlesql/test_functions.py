"""One table of functions, of which each engine has what it has."""

import pytest

from ingestd.googlesql.coercion import Conversions
from ingestd.googlesql.functions import FUNCTIONS, Chosen, Signature, overload, types
from ingestd.googlesql.types import (
    BIGNUMERIC,
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT64,
    INT64,
    JSON,
    NUMERIC,
    STRING,
    TIMESTAMP,
    SqlType,
    array_of,
    struct_of,
)
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.sql.coercion import DUCKDB as ON_DUCKDB
from ingestd.localcloud.bigquery.sql.library import REGISTRY as DUCKDB
from ingestd.spark.sql.functions import REGISTRY as SPARK
from ingestd.spark.sql.values import SPARK as ON_SPARK

NULL = Value("NULL", INT64, literal=True, null=True)
ONE, HALF, TEXT, DAY = (
    ON_DUCKDB.literal(value, kind)
    for value, kind in ((1, INT64), (0.5, FLOAT64), ("a", STRING), ("2024-01-02", STRING))
)


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


def _column(kind: SqlType) -> Value:
    return Value("x", kind)


def _listed(*items: Value) -> Value:
    kind = ON_DUCKDB.supertype(items)
    assert kind is not None
    return ON_DUCKDB.array_value([item for item in (ON_DUCKDB.coerce(item, kind) for item in items) if item], kind)


def _resolved(name: str, *args: Value, conversions: Conversions = ON_DUCKDB) -> Chosen | None:
    return overload(FUNCTIONS[name], args, conversions)


def _chosen(name: str, *args: Value, without: SqlType | None = None) -> Signature | None:
    found = overload(FUNCTIONS[name], args, ON_DUCKDB, lambda one: without not in one.parameters)
    return found and found.signature


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


@pytest.mark.parametrize("conversions", [ON_DUCKDB, ON_SPARK])
@pytest.mark.parametrize(
    ("name", "args", "wanted", "returns"),
    [
        ("COALESCE", [NULL, ONE], [INT64, INT64], INT64),
        ("COALESCE", [NULL, NULL], [INT64, INT64], INT64),
        ("COALESCE", [ONE, HALF], [FLOAT64, FLOAT64], FLOAT64),
        ("COALESCE", [ONE, _column(NUMERIC), HALF], [NUMERIC] * 3, NUMERIC),
        ("COALESCE", [_column(INT64), _column(FLOAT64)], [FLOAT64, FLOAT64], FLOAT64),
        ("COALESCE", [DAY, _column(DATE)], [DATE, DATE], DATE),
        ("IF", [NULL, NULL, NULL], [BOOL, INT64, INT64], INT64),
        ("IF", [_column(BOOL), NULL, TEXT], [BOOL, STRING, STRING], STRING),
        ("IFNULL", [_listed(ONE), _listed(HALF)], [array_of(FLOAT64)] * 2, array_of(FLOAT64)),
        ("NULLIF", [ONE, HALF], [FLOAT64, FLOAT64], FLOAT64),
        (
            "NULLIF",
            [_column(struct_of([("a", INT64)]))] * 2,
            [struct_of([("a", INT64)])] * 2,
            struct_of([("a", INT64)]),
        ),
        ("ZEROIFNULL", [NULL], [INT64], INT64),
        ("GREATEST", [_column(DATE), DAY], [DATE, DATE], DATE),
        ("SAFE_ADD", [ONE, _column(NUMERIC)], [NUMERIC, NUMERIC], NUMERIC),
        ("ARRAY_LENGTH", [NULL], [array_of(INT64)], INT64),
        ("ARRAY_LENGTH", [_column(array_of(DATE))], [array_of(DATE)], INT64),
        ("ARRAY_FIRST", [_listed(TEXT, NULL)], [array_of(STRING)], STRING),
        ("ARRAY_REVERSE", [ON_DUCKDB.array_value([], STRING)], [array_of(STRING)], array_of(STRING)),
        ("ARRAY_CONCAT", [_listed(), _listed(TEXT), NULL], [array_of(STRING)] * 3, array_of(STRING)),
        ("ARRAY_CONCAT", [_listed(ONE), _column(array_of(FLOAT64))], [array_of(FLOAT64)] * 2, array_of(FLOAT64)),
        ("ARRAY_CONCAT", [_listed(HALF), _listed(_column(NUMERIC))], [array_of(NUMERIC)] * 2, array_of(NUMERIC)),
        ("ARRAY_TO_STRING", [_column(array_of(BYTES)), NULL], [array_of(BYTES), BYTES], BYTES),
        ("GENERATE_ARRAY", [ONE, ONE, HALF], [FLOAT64] * 3, array_of(FLOAT64)),
        ("RANGE_BUCKET", [_column(FLOAT64), _listed(ONE)], [FLOAT64, array_of(FLOAT64)], INT64),
        ("RANGE_BUCKET", [ONE, _column(array_of(FLOAT64))], [FLOAT64, array_of(FLOAT64)], INT64),
        ("SUBSTR", [NULL, ONE], [STRING, INT64], STRING),
        ("SUBSTR", [_column(BYTES), ONE, NULL], [BYTES, INT64, INT64], BYTES),
        ("TRIM", [NULL, _column(BYTES)], [BYTES, BYTES], BYTES),
        ("ROUND", [ONE], [FLOAT64], FLOAT64),
        ("JSON_QUERY", [NULL], [STRING], STRING),
        ("JSON_QUERY", [_column(JSON), TEXT], [JSON, STRING], JSON),
        ("DATETIME", [_column(DATE), _column(SqlType("TIME"))], [DATE, SqlType("TIME")], DATETIME),
        ("DATETIME", [DAY, TEXT], [TIMESTAMP, STRING], DATETIME),
        ("JSON_REMOVE", [_column(JSON), TEXT, TEXT], [JSON, STRING, STRING], JSON),
    ],
)
def test_arguments_become_what_the_table_says_on_both_engines(
    conversions: Conversions, name: str, args: list[Value], wanted: list[SqlType], returns: SqlType
) -> None:
    found = _resolved(name, *args, conversions=conversions)
    assert found is not None
    assert ([arg.type for arg in found.args], found.returns) == (wanted, returns)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("COALESCE", []),
        ("COALESCE", [ONE, TEXT]),
        ("COALESCE", [_column(STRING), _column(DATE)]),
        ("IF", [ONE, ONE, ONE]),
        ("IF", [_column(BOOL), ONE]),
        ("NULLIF", [_listed(ONE), _listed(ONE)]),
        ("GREATEST", [_column(struct_of([("a", INT64)]))]),
        ("ZEROIFNULL", [TEXT]),
        ("ARRAY_LENGTH", [ONE]),
        ("ARRAY_MAX", [_column(array_of(JSON))]),
        ("ARRAY_CONCAT", [_listed(ONE), TEXT]),
        ("RANGE_BUCKET", [ONE, NULL]),
        ("RANGE_START", [NULL]),
        ("ARRAY_CONCAT", [_column(array_of(INT64)), _column(array_of(FLOAT64))]),
        ("RANGE_BUCKET", [HALF, _column(array_of(INT64))]),
        ("SUBSTR", [TEXT, HALF]),
        ("SUBSTR", [TEXT]),
        ("TRIM", [_column(BYTES)]),
        ("JSON_REMOVE", [_column(JSON)]),
    ],
)
def test_what_the_table_does_not_say_is_not_taken(name: str, args: list[Value]) -> None:
    assert _resolved(name, *args) is None


def test_a_text_that_cannot_be_read_as_the_nearest_type_is_none_of_another() -> None:
    moment = ON_DUCKDB.literal("2024-01-02 03:04:05", STRING)
    assert _resolved("FORMAT_DATE", TEXT, DAY) is not None
    assert _resolved("FORMAT_DATE", TEXT, moment) is None
    assert _resolved("FORMAT_DATETIME", TEXT, moment) is not None
    assert _resolved("TIME", ON_DUCKDB.literal("03:04:05", STRING)) is None


def test_a_reader_is_told_of_types_and_not_of_variables() -> None:
    assert FUNCTIONS["IF"].described == "IF(BOOL, ANY, ANY)"
    assert FUNCTIONS["ARRAY_CONCAT"].described == "ARRAY_CONCAT(ARRAY<ANY>...)"
    assert FUNCTIONS["INITCAP"].described == "INITCAP(STRING); INITCAP(STRING, STRING)"


def test_an_engine_cannot_name_an_overload_that_the_table_has_not() -> None:
    assert len(FUNCTIONS["INSTR"].overloads("STRING, STRING, INT64?")) == 2
    with pytest.raises(AssertionError):
        FUNCTIONS["INSTR"].overloads("BYTES, BYTES")


def test_both_engines_type_alike_by_the_table() -> None:
    """What only has a number of arguments is typed by each engine: date parts, lambdas, names and the like."""
    counted = {name for name in DUCKDB.keys() & SPARK.keys() if not FUNCTIONS[name].signatures}
    assert counted == {
        "CONCAT", "FORMAT", "ERROR", "LAST_DAY", "GENERATE_DATE_ARRAY", "ARRAY_INCLUDES", "ARRAY_FILTER",
        "ARRAY_TRANSFORM", "DATE_ADD", "DATE_SUB", "DATETIME_ADD", "DATETIME_SUB", "TIMESTAMP_ADD", "TIMESTAMP_SUB",
        "DATE_DIFF", "DATETIME_DIFF", "TIMESTAMP_DIFF", "DATE_TRUNC", "DATETIME_TRUNC", "TIMESTAMP_TRUNC",
    }  # fmt: skip


def test_types_are_read_as_they_are_written() -> None:
    assert types("STRING, ARRAY<INT64> FLOAT64") == (STRING, SqlType("ARRAY", INT64), FLOAT64)
    assert types("ARRAY<T>, RANGE<DATE>") == (array_of(SqlType("T")), SqlType("RANGE", DATE))
    with pytest.raises(AssertionError):
        types("TEXT")
