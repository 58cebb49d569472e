"""Values reach SQL by position: escaped in strings, quoted as names, tamed in comments, literals elsewhere."""

from typing import Any

import pytest
import sqlglot

from ingestd.model.tables import parse_table
from ingestd.rules.expansion import Scope
from ingestd.rules.sql import UnsafeValue, expand_sql, literal, parameter_value

NASTY = "o'x\"; DROP TABLE a.b -- `\n"
VALUES: dict[str, Any] = {
    "DestTable": "my-proj:ds.t",
    "TempTable": "`p.tmp.t_77`",
    "Table": parse_table("p.d.x$20240101"),
    "ProjectID": "my-proj",
    "EventID": "77",
    "Name": NASTY,
    "Word": "abc",
    "Path": "other.ds",
    "List": ["a'b", 1],
    "minus": -1,
    "Yes": True,
    "Nothing": None,
    "Map": {"k": "v'"},
}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT '$Word'", "SELECT 'abc'"),
        ("SELECT '$Name'", r"""SELECT 'o\'x\"; DROP TABLE a.b -- \`\n'"""),
        ('SELECT "$Name"', r"""SELECT "o\'x\"; DROP TABLE a.b -- \`\n" """.rstrip()),
        ("SELECT '''$Name'''", r"""SELECT '''o\'x\"; DROP TABLE a.b -- \`\n'''"""),
        (r"SELECT r'\d$Word'", r"SELECT '\\dabc'"),
        (r"SELECT r'a\'$Word'", r"SELECT 'a\\\'abc'"),
        (r"SELECT r'\d', '$Word'", r"SELECT r'\d', 'abc'"),
        ("SELECT b'$Word', rb'\\x$Word'", "SELECT b'abc', b'\\\\xabc'"),
        ("SELECT $Name", r"""SELECT 'o\'x\"; DROP TABLE a.b -- \`\n'"""),
        ("SELECT $EventID AS batch", "SELECT 77 AS batch"),
        ("SELECT 5-$minus", "SELECT 5-(-1)"),
        ("SELECT $Yes, $Nothing, $List", r"SELECT TRUE, NULL, ['a\'b', 1]"),
        ("SELECT $Map", r"""SELECT '{\"k\": \"v\'\"}'"""),
        ("SELECT * FROM $DestTable", "SELECT * FROM `my-proj.ds.t`"),
        ("SELECT * FROM $TempTable t", "SELECT * FROM `p.tmp.t_77` t"),
        ("SELECT * FROM `$DestTable`, `$TempTable`", "SELECT * FROM `my-proj.ds.t`, `p.tmp.t_77`"),
        ("SELECT * FROM $Table", "SELECT * FROM `p.d.x`"),
        ("SELECT * FROM ${DestTable}_old", "SELECT * FROM `my-proj.ds.t_old`"),
        ("SELECT $DestTable.id", "SELECT `my-proj.ds.t`.id"),
        ("SELECT * FROM ${ProjectID}.tmp.x", "SELECT * FROM `my-proj`.tmp.x"),
        ("SELECT * FROM ds.t_$Word", "SELECT * FROM ds.`t_abc`"),
        ("SELECT * FROM ds.t_$EventID x", "SELECT * FROM ds.`t_77` x"),
        ("SELECT * FROM `ds.t_$EventID`", "SELECT * FROM `ds.t_77`"),
        ("SELECT * FROM $Path", "SELECT * FROM `other.ds`"),
        ("SELECT EXTRACT(YEAR FROM $Word)", "SELECT EXTRACT(YEAR FROM 'abc')"),
        ("SELECT EXTRACT(WEEK(MONDAY) FROM $Word)", "SELECT EXTRACT(WEEK(MONDAY) FROM 'abc')"),
        ("SELECT 1 + -- from\n$Word", "SELECT 1 + -- from\n'abc'"),
        ("SELECT * FROM /* the table */ $Word", "SELECT * FROM /* the table */ `abc`"),
        ("SELECT 1 -- $Name\n, 2", "SELECT 1 -- o_x__ DROP TABLE a.b -- _\n, 2"),
        ("SELECT 1 # $Word\n, 2", "SELECT 1 # abc\n, 2"),
        ("SELECT /* *$Word */ 1", "SELECT /* *abc */ 1"),
        ("SELECT $Unknown, '$.a', REGEXP_EXTRACT(x, r'a$')", "SELECT $Unknown, '$.a', REGEXP_EXTRACT(x, r'a$')"),
        ("SELECT '\\'$Word'", "SELECT '\\'abc'"),
        ("SELECT 'it''s', $Word", "SELECT 'it''s', 'abc'"),
    ],
)
def test_values_are_written_by_position(sql: str, expected: str) -> None:
    assert expand_sql(sql, VALUES) == expected


@pytest.mark.parametrize("sql", ["SELECT * FROM ds.t_$Path", "SELECT * FROM `ds.t_$Path`", "SELECT $Path.x"])
def test_a_value_cannot_name_another_table(sql: str) -> None:
    with pytest.raises(UnsafeValue, match=r"\$Path is 'other.ds', which would name another table"):
        expand_sql(sql, VALUES)


def test_legacy_sql_names_tables_in_brackets() -> None:
    sql = "SELECT * FROM [$DestTable$__PARTITIONS_SUMMARY__] WHERE x = '$Name'"
    assert expand_sql(sql, VALUES, legacy=True).startswith("SELECT * FROM [my-proj:ds.t$__PARTITIONS_SUMMARY__] WHERE")
    assert expand_sql("SELECT * FROM $DestTable", VALUES, legacy=True) == "SELECT * FROM [my-proj.ds.t]"


@pytest.mark.parametrize(
    ("sql", "legacy", "expected"),
    [
        ("SELECT '$DestTable' FROM $DestTable", False, "SELECT 'ds.t' FROM `home.ds.t`"),
        ("SELECT 1 FROM `$DestTable`, ${DestTable}_old", False, "SELECT 1 FROM `home.ds.t`, `home.ds.t_old`"),
        ("SELECT 1 FROM `x.$DestTable`, x.$DestTable", False, "SELECT 1 FROM `x.ds.t`, x.`ds.t`"),
        ("SELECT 1 FROM $TempTable, ds.t", False, "SELECT 1 FROM `p.tmp.t_77`, ds.t"),
        ("SELECT 1 FROM ${ProjectID}.tmp.x, `$ProjectID.tmp.x`", False, "SELECT 1 FROM `jobs`.tmp.x, `jobs.tmp.x`"),
        ("SELECT 1 FROM [$DestTable]", True, "SELECT 1 FROM [home:ds.t]"),
    ],
)
def test_a_table_without_a_project_gets_the_one_it_is_in_where_the_job_runs_elsewhere(
    sql: str, legacy: bool, expected: str
) -> None:
    values = {"DestTable": "ds.t", "TempTable": "p.tmp.t_77", "ProjectID": "jobs"}
    assert expand_sql(sql, Scope(values, home="home"), legacy=legacy) == expected


def test_statements_without_known_variables_are_untouched() -> None:
    sql = "SELECT r'\\d' -- $x\n FROM `a.b`"
    assert expand_sql(sql, VALUES) is sql


@pytest.mark.parametrize("value", [NASTY, "\\", "'", "\u2028", "\x00\x7f", "é😀", "a\\'b", "'''"])
def test_a_literal_means_the_value_it_was_made_from(value: str) -> None:
    parsed = sqlglot.parse_one(f"SELECT {literal(value)}", dialect="bigquery").expressions[0]
    assert parsed.is_string
    text = parsed.this
    # sqlglot leaves \u escapes as they stand.
    for char in value:
        if not char.isprintable() and char not in "\n\t\r":
            text = text.replace(f"\\u{ord(char):04x}", char)
    assert text == value


def test_numbers_that_are_none_keep_their_meaning() -> None:
    assert literal(float("nan")) == "CAST('nan' AS FLOAT64)"
    assert literal(-0.5) == "(-0.5)"
    assert literal("007") == "'007'"
    assert literal("9223372036854775807") == "9223372036854775807"
    assert literal("9223372036854775808") == "'9223372036854775808'"
    assert literal("1e5") == "'1e5'"
    assert literal("9" * 30) == f"'{'9' * 30}'"


def test_digits_that_a_number_would_lose_stay_text() -> None:
    """A file's number in its name: `00012` compared with a column of text failed its action."""
    assert [literal(text) for text in ("00012", "0", "12", "007")] == ["'00012'", "0", "12", "'007'"]
    assert [parameter_value(text) for text in ("00012", "0", "12")] == ["00012", 0, 12]
