"""`ingestd rules`: tests of rules that can fail, and say why."""

import json
from pathlib import Path

import pytest
from tests.support.places import ROOT
from typer.testing import CliRunner, Result

from ingestd.cli.main import app
from ingestd.cli.terminal import output

RULES = {
    "orders.yaml": """
When: {Prefix: /orders/, Suffix: .json}
Async: true
Batch: {Window: {DurationInSec: 300}}
Dest: {Table: shop.orders, Partition: $Date}
OnSuccess: [{Action: delete}]
""",
    "logs.yaml": """
When: {Prefix: /logs/}
Dest:
  Table: "ops.logs_$1"
  Pattern: /logs/([a-z]+)/.+
""",
    "narrow.yaml": "When: {Prefix: /twice/}\nDest: {Table: a.b}\n",
    "wide.yaml": "When: {Prefix: /twi}\nDest: {Table: a.c}\n",
    "off.yaml": "When: {Prefix: /off/}\nDisabled: true\nDest: {Table: a.d}\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules").mkdir()
    for name, text in RULES.items():
        (tmp_path / "rules" / name).write_text(text)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, ["rules", *arguments])


def checked(folder: Path, text: str) -> Result:
    (folder / "tests.yaml").write_text(text)
    return run("test", "tests.yaml", "--rules", "rules", "--json")


def failures(result: Result) -> list[str]:
    return [failure for one in json.loads(result.stdout) for failure in one["failures"]]


def test_the_samples_own_tests_pass() -> None:
    shown = run("test", str(ROOT / "config" / "tests"))
    assert (shown.exit_code, shown.stdout.splitlines()[-1]) == (0, "3 tests passed")


def test_everything_a_rule_decides_can_be_expected(folder: Path) -> None:
    result = checked(
        folder,
        """
Tests:
  - Name: a window of five minutes
    Given: [gs://b/orders/x/1.json, gs://b/orders/x/2.json]
    At: 2024-05-01T12:03:00Z
    Every: 1s
    Expect:
      Rule: orders
      Table: shop.orders
      Partition: "20240501"
      Window: 5m
      Due: 2024-05-01T12:05:00Z
      Together: true
      Async: true
      OnSuccess: [delete]
      OnFailure: []
  - Given: [gs://b/orders/x/1.json, gs://b/orders/y/2.json]
    Expect: {Together: false}
  - {Given: /logs/web/today.txt, Expect: {Rule: logs, Table: ops.logs_web, Window: none, Async: false}}
  - {Given: /twice/a.json, Expect: {Rule: ambiguous}}
  - {Given: /off/a.json, Expect: {Rule: disabled}}
  - {Given: /nothing/a.json, Expect: {Rule: none}}
  - {Given: gs://b/orders//1.json, Expect: {Rule: orders, Refused: several slashes}}
""",
    )
    assert failures(result) == []
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("expectation", "complaint"),
    [
        ("Rule: logs", "expected rule logs, got orders"),
        ("Rule: none", "expected rule none, got orders"),
        ("Table: shop.order", "expected table shop.order, got shop.orders"),
        ("Partition: '20240502'", "expected partition 20240502, got 20240501"),
        ("Window: none", "expected window none, got 5m"),
        ("Window: 10m", "expected window 10m, got 5m"),
        ("Due: 2024-05-01T12:10:00Z", "expected a window due 2024-05-01 12:10:00+00:00, got 2024-05-01 12:05:00+00:00"),
        ("Async: false", "expected Async False, got True"),
        ("OnSuccess: [move]", "expected OnSuccess ['move'], got ['delete']"),
        ("Refused: no table", "expected a refusal that says 'no table', got table shop.orders"),
    ],
)
def test_what_does_not_hold_is_said_with_what_is_so_instead(folder: Path, expectation: str, complaint: str) -> None:
    result = checked(
        folder, f"Tests: [{{Given: gs://b/orders/1.json, At: 2024-05-01T12:03:00Z, Expect: {{{expectation}}}}}]"
    )
    assert result.exit_code == 1
    assert failures(result) == [f"gs://b/orders/1.json: {complaint}"]


def test_a_failure_names_the_line_of_its_test(folder: Path) -> None:
    (folder / "tests.yaml").write_text(
        "Rules: rules\nTests:\n  - {Given: a, Expect: {Rule: none}}\n  - {Given: /logs/x/y, Expect: {Table: a.b}}\n"
    )
    shown = run("test", "tests.yaml")
    assert shown.exit_code == 1
    assert "FAIL /logs/x/y  tests.yaml:4:5" in shown.stdout
    assert "gs://bucket/logs/x/y: expected table a.b, got ops.logs_x" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "1 of 2 tests failed"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Tests: [{Given: a, Expect: {Tabel: x.y}}]", "unknown key 'Tabel'; did you mean 'Table'?"),
        ("Tests: []", "Tests: must not be empty"),
        ("Tests: [{Given: 'gs:///a', Expect: {}}]", "Given: not a gs:// URL: 'gs:///a'"),
        ("Tests: [{Given: [a, b], At: 9999-12-31, Every: 1d, Expect: {}}]", "see At and Every of a"),
        ("Tests: [{Given: a, At: 1969-12-31, Expect: {}}]", "no file is uploaded before 1970"),
        ("Tests: [{Given: a, Expect: {Window: soon}}, {Given: /logs/a/b, Expect: {Window: soon}}]", "not 'soon'"),
    ],
)
def test_a_mistake_in_a_test_is_no_passing_test(folder: Path, text: str, complaint: str) -> None:
    result = checked(folder, text)
    assert result.exit_code == 1
    assert complaint in result.stderr


def test_broken_rules_are_not_tested(folder: Path) -> None:
    (folder / "rules" / "bad.yaml").write_text("When: {Prefx: /a/}\nDest: {Table: a.b}\n")
    result = checked(folder, "Tests: [{Given: /logs/a/b, Expect: {Rule: logs}}]")
    assert result.exit_code == 1
    assert "rules/bad.yaml:1:8" in result.stderr and "did you mean 'Prefix'?" in result.stderr


def test_rules_are_shown_as_they_are_understood(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_width", 120)
    shown = run("show", "rules")
    (orders,) = [line for line in shown.stdout.splitlines() if "shop.orders" in line]
    assert "/orders/… ….json" in orders and "300 s, async" in orders and "delete" in orders
    assert "off (disabled)" in shown.stdout
    (one,) = json.loads(run("show", "rules", "orders", "--json").stdout)
    assert one["rule"]["Dest"]["Table"] == "shop.orders"
    missing = run("show", "rules", "oders")
    assert missing.exit_code == 1
    assert "there is no rule 'oders'; did you mean 'orders'?" in missing.stderr


def test_lint_speaks_json(folder: Path) -> None:
    found = json.loads(run("lint", "rules", "--json").stdout)
    assert {one["severity"] for one in found} == {"warning"}
    assert any("files of this rule also match" in one["message"] for one in found)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("LOWER(t.page", "it ends too early (expecting ))"),
        ("a = ", "it ends too early"),
        ("IF(a, b c)", "unexpected 'c' after 'IF(a, b' (expecting ))"),
        ("a DESCC", "unexpected 'DESCC' at its end"),
        ('d AT TIME ZONE "UTC"', "unexpected 'AT' at its end"),
        ("CONCAT(''a)", "it cannot be read; is a quote missing?"),
    ],
)
def test_an_expression_that_is_none_fails_the_check_in_words_of_its_own_text(
    folder: Path, expression: str, complaint: str
) -> None:
    rule = f"When: {{Prefix: /a}}\nDest:\n  Table: d.t\n  Transform:\n    page: '{expression}'\n"
    (folder / "rules" / "bad.yaml").write_text(rule)
    shown = run("lint", "rules/bad.yaml")
    assert shown.exit_code == 1
    place = "rules/bad.yaml:5:5: Dest.Transform.page: not a GoogleSQL expression: "
    assert f"{place}{complaint}\n" in shown.stdout


def test_a_folder_without_rules_is_no_clean_folder(folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "notes.txt").write_text("no rules")
    for path in ("empty", "notes.txt"):
        shown = run("lint", path)
        assert shown.exit_code == 1
        assert f"there are no rules in {path}; the names of rule files end in .json, .yaml, .yml" in shown.output


def test_a_tab_in_yaml_is_named(folder: Path) -> None:
    (folder / "rules" / "bad.yaml").write_text("When:\n\tPrefix: /a\n")
    assert "rules/bad.yaml:2:1: not valid YAML" in (shown := run("lint", "rules/bad.yaml").stdout)
    assert "indent with spaces, not tabs" in shown
