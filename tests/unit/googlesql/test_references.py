"""Which columns an expression uses."""

import pytest

from ingestd.googlesql.errors import UnexpectedToken
from ingestd.googlesql.parser import parse_column, parse_expression
from ingestd.googlesql.references import columns_of


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("TIMESTAMP_TRUNC(ts, DAY, 'UTC')", [("ts",)]),
        ("LAST_DAY(day)", [("day",)]),
        ("DATE_TRUNC(day, WEEK(MONDAY))", [("day",)]),
        ("EXTRACT(DAY FROM ts AT TIME ZONE zone)", [("ts",), ("zone",)]),
        ("DATE_DIFF(a, b, `DAY`)", [("a",), ("b",), ("DAY",)]),
        ("ARRAY_FILTER(a, (e, i) -> e > i + c) || [e]", [("a",), ("c",), ("e",)]),
        ("EXISTS(SELECT 1 FROM UNNEST(t.a) AS x WITH OFFSET AS o WHERE x = y AND o > 0)", [("t", "a"), ("y",)]),
        ("STRUCT(a AS b, f(c).d)", [("a",), ("c",)]),
        ("CAST(a AS STRUCT<b INT64>).b", [("a",)]),
    ],
)
def test_date_parts_and_names_of_the_expression_are_no_columns(text: str, columns: list[tuple[str, ...]]) -> None:
    assert columns_of(parse_expression(text)[1]) == columns


def test_a_column_alone_may_be_a_reserved_word() -> None:
    assert [found and found.parts for found in map(parse_column, ("at", "hash.To"))] == [("at",), ("hash", "To")]
    assert [parse_column(text) for text in ("null", "CURRENT_DATE", "a + b", "`a`", "", "1", "a.")] == [None] * 7


def test_a_chain_may_be_longer_than_calls_can_be_deep() -> None:
    assert columns_of(parse_expression(" OR ".join(f"a = {number}" for number in range(2_000)))[1]) == [("a",)] * 2_000


def test_reserved_words_that_nothing_begins_with_are_names_where_they_were_always_taken_for_some() -> None:
    text = "IF(new IS NOT NULL, at + hash, DATE(to)) IN (no, t.of)"
    columns = [("new",), ("at",), ("hash",), ("to",), ("no",), ("t", "of")]
    assert columns_of(parse_expression(text, loose=True)[1]) == columns
    with pytest.raises(UnexpectedToken):
        parse_expression("at + hash")
    for wrong in ("a + AND b", "THEN", "a WHERE b", "to(1)"):
        with pytest.raises(UnexpectedToken):
            parse_expression(wrong, loose=True)
