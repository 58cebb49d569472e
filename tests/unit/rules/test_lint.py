"""Lint says what will hurt before a file arrives."""

import json
import re
import textwrap
from pathlib import Path

import pytest
from tests.support.rules import lint_path
from tests.support.spark.conformance import FAILING, expressions

from ingestd.documents import Problem, Severity
from ingestd.rules.lint import report
from ingestd.rules.lint_dest import ExpressionChecks
from ingestd.spark.sql.checker import unsupported
from ingestd.spark.sql.expressions import columns_of

QUIET = "OnFailure: [{Action: notify, Request: {Channels: c, Title: '$Error'}}]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def linted(folder: Path, text: str, *, quiet: bool = True) -> list[str]:
    (folder / "r.yaml").write_text(textwrap.dedent(text) + (QUIET if quiet else ""))
    return [str(problem).replace(f"{folder}/", "") for problem in lint_path(folder)]


def test_a_sound_rule_has_no_problems(folder: Path) -> None:
    text = """
        When: {Prefix: /data/, Suffix: .json}
        Dest:
          Table: d.t_$1_$Date_x
          Pattern: '/data/(\\w+)/'
          Parameters: [{Name: App, Expression: $ToLower($1)}]
        OnSuccess:
          - {Action: query, Request: {SQL: "SELECT '$App', $EventID, '$Source.URL'", Dest: d.x, Append: true}}
          - {Action: call, Request: {URL: 'https://x/$Id', Body: {a: $LoadURIs}}}
          - {Action: push, Request: {Topic: t, Message: $Data.BatchID}}
        """
    assert linted(folder, text) == []
    assert report([]) == "no problems"


def test_errors_come_with_warnings_of_other_files(folder: Path) -> None:
    (folder / "bad.yaml").write_text("Dest: {Tabel: d.t}\n")
    found = linted(folder, "When: {Prefix: data/}\nDest: {Table: d.t}\n")
    assert found == [
        "bad.yaml:1:8: Dest.Tabel: unknown key 'Tabel'; did you mean 'Table'?",
        "r.yaml:1:8: warning: When.Prefix: paths start with '/', so 'data/' matches nothing; write '/data/'",
    ]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("Dest: {Table: d.t}", "r.yaml:1:1: warning: without Prefix, Suffix or Filter the rule takes every file"),
        ("When: {Prefix: /a, Directory: true}\nDest: {Table: d.t}", "this rule never matches"),
        ("When: {Prefix: /a}\nDest: {Table: d.t_$Nope}", "Dest.Table: $Nope is no variable known here"),
        (
            "When: {Prefix: /a}\nDest: {Table: d.t}\nCorruptedFileURL: gs://${ProjectID}-${Nope}/bad",
            "3:1: warning: CorruptedFileURL: $Nope is no variable known here; bad files could not be put away",
        ),
        (
            "When: {Prefix: /a}\nDest: {Table: d.t}\nInvalidSchemaURL: s3://b/bad",
            "r.yaml:3:1: InvalidSchemaURL: bad files are put into a bucket: write gs://bucket/folder instead of",
        ),
        (
            "When: {Prefix: /a}\nDest: {Table: d.t, Parameters: [{Name: A, Expression: $Nope}]}",
            "Dest.Parameters[0].Expression: $Nope is no variable",
        ),
        (
            "When: {Prefix: /a}\nDest: {Table: d.t, Parameters: [{Name: A, Expression: $Date}]}",
            "Dest.Parameters[0]: parameter A is never used",
        ),
        (
            "When: {Prefix: /a}\nDest: {Table: d.t}\nOnSuccess:\n  - {Action: query, Request: {SQL: x, Dest: d.x}}",
            "r.yaml:4:21: warning: OnSuccess[0].Request: Append is not given, so d.x is replaced",
        ),
        (
            "When: {Prefix: /a}\nDest: {Table: d.t}\nOnSuccess: [{Action: copy, Request: {Source: d.t, Dest: d.x}}]",
            "Append is not given, so d.x is replaced",
        ),
        (
            "When: {Prefix: /a}\nDest: {Table: d.t}\nOnSuccess: [{Action: query, Request: {SQL: 'SELECT $Nope'}}]",
            "OnSuccess[0].Request: $Nope is no variable known here",
        ),
        (
            "When: {Prefix: /a}\nDest: {Table: d.t}\nOnSuccess: [{Action: query, Request: {SQL: 'SELECT $Error'}}]",
            "$Error is no variable known here",
        ),
        (
            "When: {Prefix: /}\nDest: {Table: d.t}\nOnSuccess: {Action: notify, Request: {Channels: c, Title: t, Token: x}}",  # noqa: E501
            "a Token in a rule file is readable",
        ),
        (
            "When: {Prefix: /}\nDest: {Table: d.t}\nOnSuccess: {Action: notify, Request: {Channels: c, Title: t, Secret: {URL: gs://b/s, Key: r/k}}}",  # noqa: E501
            "Credentials with a Key are not read here: the daemon's own token is used",
        ),
        ("When: {Prefix: /a}\nDest: {Table: d.t, sourceFormat: AVRO, Quote: x}", "Quote applies to CSV only"),
        ("When: {Prefix: /a}\nDest: {Table: d.t}\nCounterURL: gs://b/c", "CounterURL: CounterURL is accepted"),
    ],
)
def test_warnings(folder: Path, text: str, warning: str) -> None:
    assert warning in "\n".join(linted(folder, text + "\n"))


def test_a_rule_that_tells_no_one_about_failure_is_named(folder: Path) -> None:
    assert "there is no OnFailure" in linted(folder, "When: {Prefix: /a}\nDest: {Table: d.t}\n", quiet=False)[0]


def test_errors_are_known_variables_under_on_failure_only(folder: Path) -> None:
    text = "When: {Prefix: /a}\nDest: {Table: d.t}\nOnFailure: [{Action: push, Request: {Topic: t, Message: $Error}}]\n"
    assert linted(folder, text, quiet=False) == []


@pytest.mark.parametrize(
    ("one", "two", "overlaps"),
    [
        ("{Prefix: /a/, Suffix: .json}", "{Prefix: /a/, Suffix: .json}", True),
        ("{Prefix: /a/}", "{Prefix: /a/b/, Suffix: .json}", True),
        ("{Suffix: .gz}", "{Prefix: /x, Suffix: .json.gz}", True),
        ("{Prefix: /a/, Suffix: .json}", "{Prefix: /a/, Suffix: .csv}", False),
        ("{Prefix: /a/}", "{Prefix: /b/}", False),
        ("{Prefix: /a/, Filter: x}", "{Prefix: /a/}", False),
        ("{Prefix: /a/, Suffix: .json}", "{Prefix: /a/b/}", False),
    ],
)
def test_rules_that_surely_share_files_are_named(folder: Path, one: str, two: str, overlaps: bool) -> None:
    (folder / "a.yaml").write_text(f"When: {one}\nDest: {{Table: d.t}}\n{QUIET}")
    found = linted(folder, f"When: {two}\nDest: {{Table: d.t}}\n")
    assert bool(found) is overlaps
    if overlaps:
        assert "r.yaml:1:1: warning: When: files of this rule also match a (a.yaml:1:1)" in found[0]


def test_a_disabled_twin_does_not_overlap(folder: Path) -> None:
    (folder / "a.yaml").write_text(f"When: {{Prefix: /a}}\nDisabled: true\nDest: {{Table: d.t}}\n{QUIET}")
    assert linted(folder, "When: {Prefix: /a}\nDest: {Table: d.t}\n") == []


def test_the_report_counts(folder: Path) -> None:
    problems = [Problem("a", 1, 1, "x", "bad"), Problem("a", 2, 1, "y", "hm", Severity.WARNING)]
    assert report(problems) == "a:1:1: x: bad\na:2:1: warning: y: hm\n1 error, 1 warning"


def test_one_file_can_be_linted(folder: Path) -> None:
    (folder / "r.yaml").write_text("Dest: {Table: t}\n")
    assert "names no dataset" in str(lint_path(folder / "r.yaml")[0])


def test_a_window_that_can_exceed_the_daily_loads_is_warned_about_with_the_arithmetic(folder: Path) -> None:
    text = """
        When: {Prefix: /data/}
        Dest: {Table: d.t}
        Batch: {Window: {Duration: 10s}}
    """
    (warning,) = linted(folder, text)
    assert "86,400 / 10 = 8,640 loads a day" in warning
    assert "1,500" in warning
    assert linted(folder, text.replace("10s", "60s")) == []
    (error,) = linted(folder, text.replace("10s", "500ms"))
    assert "whole seconds" in error


CHECKS = ExpressionChecks(
    parse=lambda text: "no expression" if text.count("(") != text.count(")") else "",
    spark=lambda text: ["SOUNDEX is not available"] if "SOUNDEX" in text else [],
    columns=lambda text: [tuple(name.split(".")) for name in re.findall(r"(?<![@\w.])[a-z_]+(?:\.[a-z_]+)*", text)],
)


def shaped(folder: Path, dest: str, rest: str = "") -> list[str]:
    text = f"When: {{Prefix: /a}}\nDest:\n  Table: d.t\n{textwrap.indent(textwrap.dedent(dest), '  ')}\n{rest}{QUIET}"
    (folder / "r.yaml").write_text(text)
    return [problem.message for problem in lint_path(folder, CHECKS)]


SCHEMA = "schema: {fields: [{name: id, type: INTEGER}, {name: name, type: STRING}]}\n"


@pytest.mark.parametrize(
    ("dest", "warnings"),
    [
        ("Transform: {a: 'UPPER(t.b'}", ["no expression"]),
        ("Transform: {a: 'SOUNDEX(t.b)'}", ["SOUNDEX is not available"]),
        ("Transform: {a: $Nope}", ["$Nope is no variable known here; it would be left as it is"]),
        (SCHEMA + "Transform: {name: t.nme}", ["there is no column nme; 'schema' has id, name"]),
        (SCHEMA + "Transform: {more: t.name, name: '@x'}\nUniqueColumns: id\nOrderBy: [more DESC, id]", []),
        (
            "UniqueColumns: id",
            ["there is no OrderBy: which of several rows with one key is kept depends on the engine"],
        ),
        (
            "Schema: {Split: {Mapping: [{When: RAND() < 0.5, Then: d.x}], Unmatched: drop}}",
            ["RAND changes from one look to the next: a row may end in no table, or in two"],
        ),
        (
            "Schema: {Split: {Mapping: [{When: id = 1, Then: d.x}]}}",
            ["rows that fit no mapping are left out and counted; say so with Unmatched: drop, or keep or refuse"],
        ),
        (
            "Schema: {Split: {Mapping: [{When: id = 1, Then: d.$Nope}], Unmatched: keep}}",
            ["$Nope is no variable known here; it would be left as it is"],
        ),
    ],
)
def test_expressions_are_looked_into(folder: Path, dest: str, warnings: list[str]) -> None:
    assert shaped(folder, dest) == warnings


def test_joins_are_looked_into(folder: Path) -> None:
    join = "SideInputs: [{Table: d.s, Alias: s, 'On': s.x = t.id}]\nTransform: {name: s.y}"
    assert shaped(folder, SCHEMA + join, "Engine: bigquery\n") == []
    loose = "SideInputs: [{Table: d.s, Alias: s, 'On': s.x = id}]"
    assert shaped(folder, loose, "Engine: bigquery\n") == ["the condition does not mention t: is it a join?"]


def test_what_nobody_can_run_is_an_error_and_what_spark_lacks_a_warning(folder: Path) -> None:
    (folder / "r.yaml").write_text(
        f"When: {{Prefix: /a}}\nDest: {{Table: d.t, Transform: {{a: 'UPPER(t.b'}}}}\n{QUIET}"
    )
    assert report(lint_path(folder, CHECKS)).splitlines()[-1] == "1 error, 0 warnings"
    (folder / "r.yaml").write_text(f"When: {{Prefix: /a}}\nDest: {{Table: d.t, Transform: {{a: SOUNDEX(b)}}}}\n{QUIET}")
    assert report(lint_path(folder, CHECKS)).splitlines()[-1] == "0 errors, 1 warning"


TRANSLATOR = ExpressionChecks(parse=lambda text: "", spark=unsupported, columns=columns_of)


def judged(folder: Path, dest: dict[str, object]) -> list[str]:
    """What lint says with the translator that the batch will meet."""
    rule = {"When": {"Prefix": "/a"}, "Dest": {"Table": "d.t", **dest}}
    (folder / "r.yaml").write_text(json.dumps(rule)[:-1] + f", {QUIET.strip()}}}")
    return [problem.message for problem in lint_path(folder, TRANSLATOR)]


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("SOUNDEX(x)", "function SOUNDEX is not available on Spark"),
        ("CAST(x AS NUMERIC(5, 2))", "type NUMERIC with parameters is not available on Spark"),
        ("CAST(d AS STRING FORMAT 'YYYY')", "CAST … FORMAT is not available on Spark"),
        ("x IN (SELECT 1)", "IN with a sub-select is not available on Spark"),
        ("PARSE_JSON(x, wide_number_mode=>'round')", "PARSE_JSON takes 1 arguments, not 2"),
        ("JSON_VALUE(x, json_path => '$.a')", "an argument by name (json_path =>) is not available on Spark"),
        ("DATE_TRUNC(d, CENTURY)", "DATE_TRUNC does not support the date part CENTURY"),
        ("DATE_DIFF(d, e, CENTURY)", "DATE_DIFF does not support the date part CENTURY"),
        ("EXTRACT(CENTURY FROM d)", "EXTRACT does not support the date part CENTURY"),
        ("DATE_ADD(d, INTERVAL 1 CENTURY)", "DATE_ADD does not support the date part CENTURY"),
        ("DATE_ADD(d, INTERVAL 'x' DAY)", "'x' is no number of an INTERVAL"),
        ("REGEXP_CONTAINS(x, '(?=a)')", "'(?=a)' is not a regular expression"),
        ("REGEXP_CONTAINS(x, y)", "REGEXP_CONTAINS needs a constant text there on Spark"),
        ("SUBSTR(x)", "SUBSTR takes 2 to 3 arguments, not 1"),
        ("UPPER(a, b, c)", "UPPER takes 1 arguments, not 3"),
        ("JSON_VALUE(x, '$..a')", "JSON path '$..a' is not available on Spark"),
        ("JSON_QUERY(x, '$.a[1001]')", "JSON path '$.a[1001]': Spark finds only the first 1,000 elements of an array"),
        ("UPPER(LENGTH(x))", "UPPER does not take INT64 on Spark"),
        ("IF(a, CONCAT(b, SUBSTR(x)), c)", "SUBSTR takes 2 to 3 arguments, not 1"),
        ("ARRAY_TRANSFORM(a, e -> SOUNDEX(e.x))", "function SOUNDEX is not available on Spark"),
        ("(SELECT SUM(SUBSTR(e)) FROM UNNEST(a) AS e)", "SUBSTR takes 2 to 3 arguments, not 1"),
        ("SOUNDEX($EventID)", "function SOUNDEX is not available on Spark"),
        ("SUBSTR('$EventID')", "SUBSTR takes 2 to 3 arguments, not 1"),
    ],
)
def test_what_the_translator_refuses_for_every_type_is_named(folder: Path, expression: str, problem: str) -> None:
    (found,) = judged(folder, {"Transform": {"a": expression}})
    assert found.startswith(problem)


def test_unique_columns_are_looked_into(folder: Path) -> None:
    found = judged(folder, {"UniqueColumns": ["id", "SOUNDEX(name)"], "OrderBy": ["id"]})
    assert found == ["function SOUNDEX is not available on Spark"]


def test_what_the_translator_takes_is_no_problem(folder: Path) -> None:
    listed = [re.sub(r"\$[01{]", "", text) for text in [*expressions(), *FAILING]]  # variables to a rule
    assert judged(folder, {"Transform": {f"c{index}": text for index, text in enumerate(listed)}}) == []


@pytest.mark.parametrize(
    "expression",
    [
        "DATE_TRUNC(x, HOUR)",  # of a DATETIME
        "x + INTERVAL 1 HOUR",
        "st = STRUCT(1 AS x)",
        "a || [STRUCT(1 AS x)]",
        "STRUCT(1, 2) IN UNNEST(a)",
        "IF(b, a[OFFSET(0)], STRUCT(1 AS x))",
        "UPPER(a[SAFE_OFFSET(0)].name.first)",
        "UPPER(COALESCE(x, y, z))",
        "ARRAY_FILTER(a, e -> e.name = 'x')",
        "ARRAY_TRANSFORM(a, e -> IF(e.ok, e, STRUCT(TRUE AS ok)))",
        "ARRAY(SELECT AS STRUCT e.x, e.y.z FROM UNNEST(st.a) AS e WHERE e.ok)",
        "ARRAY(SELECT x FROM UNNEST(a))",
        "CAST(st AS STRUCT<a INT64>)",
        "CURRENT_DATE > d",
        "JSON_VALUE(x, @path)",
        "ROUND(x, -(@digits))",
        "DATE '$Date'",
        "DATE_ADD(d, INTERVAL '$EventID' DAY)",
        "REGEXP_EXTRACT(x, $EventID)",
    ],
)
def test_what_depends_on_the_columns_or_on_the_batch_is_left_to_it(folder: Path, expression: str) -> None:
    assert judged(folder, {"Transform": {"a": expression}}) == []


def test_a_file_without_a_rule_is_named(folder: Path) -> None:
    (folder / "r.yaml").write_text("# nothing yet\n")
    assert [str(problem) for problem in lint_path(folder)] == [
        f"{folder}/r.yaml:1:1: warning: there is no rule in this file"
    ]


def test_what_only_spark_lacks_is_fine_on_bigquery(folder: Path) -> None:
    assert shaped(folder, "Transform: {a: 'SOUNDEX(t.b)'}", "Engine: bigquery\n") == []


RAW = """OnSuccess: [{Action: query, Request: {SQL: 'SELECT COUNT(1) FROM $TempTable', Dest: d.n, Append: true}}]\n"""
TRANSIENT = "Transient: {Dataset: temp}\n"
BY_KEY = f"{TRANSIENT}UniqueColumns: [id]\nOrderBy: [id]\n"
BY_TABLE = TRANSIENT + "Schema: {Split: {Mapping: [{When: id = 1, Then: d.x}], Unmatched: drop}}\n"
BY_SPARK = "Engine: spark\n"
SPARK_FILES = "Merge: {Format: PARQUET}\n"
LOADED = "the rows as they were shaped, and in bqtail as they were loaded"
NOWHERE = "not there, or lacks rows: those of Schema.Split lie in a table per mapping"
REMEDY = "leave Engine out, and they all lie there as loaded"


@pytest.mark.parametrize(
    ("dest", "rest", "found"),
    [
        (BY_KEY, BY_SPARK, f"r.yaml:8:1: warning: Engine: with Engine: spark, $TempTable has {LOADED}; {REMEDY}"),
        (BY_TABLE, BY_SPARK, f"r.yaml:7:1: Engine: with Engine: spark, $TempTable is {NOWHERE}; {REMEDY}"),
        (BY_KEY, SPARK_FILES, f"r.yaml:4:3: warning: Dest.Transient: $TempTable has {LOADED}"),
        (BY_TABLE, SPARK_FILES, f"r.yaml:4:3: Dest.Transient: $TempTable is {NOWHERE}"),
    ],
    ids=["shaped by word", "split by word", "shaped by need", "split by need"],
)  # fmt: skip
def test_a_transient_table_without_the_rows_that_were_loaded_is_named(
    folder: Path, dest: str, rest: str, found: str
) -> None:
    assert shaped(folder, dest, rest + RAW) != []
    (problem,) = [str(one).replace(f"{folder}/", "") for one in lint_path(folder, CHECKS)]
    assert problem.startswith(found)
    for said in ("", "Engine: bigquery\n"):
        assert shaped(folder, dest, said + RAW) == []
    assert shaped(folder, dest, rest) == []
    assert shaped(folder, TRANSIENT, rest + RAW) == []


def test_what_only_spark_lacks_is_fine_where_the_rule_reads_the_rows_as_they_were_loaded(folder: Path) -> None:
    dest = TRANSIENT + "Transform: {a: 'SOUNDEX(t.b)'}"
    assert shaped(folder, dest) == ["SOUNDEX is not available"]
    assert shaped(folder, dest, RAW) == []


def bare(folder: Path, pattern: str, expression: str, sql: str, *, key: str = "SQL") -> list[str]:
    """The warnings about types of a rule with the parameter `Id`, which an action's SQL uses."""
    action = {"Action": "query", "Request": {key: sql, "Dest": "d.x", "Append": True}}
    rule = {
        "When": {"Prefix": "/in/"},
        "Dest": {"Table": "d.t", "Pattern": pattern, "Parameters": [{"Name": "Id", "Expression": expression}]},
        "OnSuccess": [action],
        "OnFailure": [{"Action": "notify", "Request": {"Channels": "c", "Title": "$Error"}}],
    }
    (folder / "r.yaml").write_text(json.dumps(rule, indent=1))
    found = [str(problem).replace(f"{folder}/", "") for problem in lint_path(folder)]
    return [one for one in found if "never used" not in one]


@pytest.mark.parametrize(
    ("pattern", "expression", "sql"),
    [
        (r"/in/(\d{5})\.json", "$1", "SELECT $Id AS id"),
        (r"/in/(?:x|y)_(?P<id>\d+)[()\]]", "$1", "SELECT * FROM d.t WHERE id = $Id"),
        (r"/in/(\d+)/(\d+)", "$Concat($1,$2)", "SELECT ${Id}"),
        (r"/in/([^/]+)/", "$ToLower($1)", "SELECT f(x, $Params.Id)"),
        (r"/in/(\d+)", "$1", "SELECT CAST($Id AS STRING), $Id"),
        (r"/in/(\w+)", "$FormatTime('now','MM')", "SELECT $Id"),
    ],
)
def test_a_bare_capture_whose_type_changes_from_file_to_file_is_named(
    folder: Path, pattern: str, expression: str, sql: str
) -> None:
    (found,) = bare(folder, pattern, expression, sql)
    assert re.match(r"r\.yaml:\d+:\d+: warning: OnSuccess\[0\]\.Request\.SQL: \$Id stands bare", found)
    assert found.endswith("write '$Id' for text, or CAST($Id AS INT64)")


@pytest.mark.parametrize(
    ("pattern", "expression", "sql"),
    [
        (r"/in/(\d{5})\.json", "$1", "SELECT '$Id', \"x_$Id\""),  # quoted: text
        (r"/in/(\d{5})\.json", "$1", "SELECT CAST($Id AS INT64), safe_cast( ${Id} AS STRING)"),
        (r"/in/(\d{5})\.json", "$1", "SELECT 1 FROM d.t_$Id -- $Id"),  # part of a name, or of a comment
        (r"/in/(\d{5})\.json", "$AsInt($1)", "SELECT $Id"),  # always a number
        (r"/in/(20\d\d)/", "$1", "SELECT $Id"),
        (r"/in/([a-z]+)/", "$1", "SELECT $Id"),  # always text
        (r"/in/(\d+)/(\d+)", "$1-$2", "SELECT $Id"),
        (r"/in/(\d+)", "$Date", "SELECT $Id, $Date, $EventID"),
    ],
)
def test_what_is_of_one_type_for_every_file_may_stand_bare(
    folder: Path, pattern: str, expression: str, sql: str
) -> None:
    assert bare(folder, pattern, expression, sql) == []


def test_bare_captures_are_named_in_files_of_sql_in_transforms_and_for_the_hour(folder: Path) -> None:
    (folder / "q.sql").write_text("SELECT $Id\n")
    (found,) = bare(folder, r"/in/(\d+)", "$1", "q.sql", key="SQLURL")
    assert "OnSuccess[0].Request.SQLURL: q.sql: $Id stands bare" in found
    transform = """
        When: {Prefix: /in/}
        Dest: {Table: d.t, Transform: {hour: $Hour, name: "'$Hour'"}}
        """
    (found,) = linted(folder, transform)
    assert "Dest.Transform.hour: $Hour stands bare" in found
    assert "12 is a number, '05' is text" in found
