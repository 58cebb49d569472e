"""Keys that rules do not have: bqtail passes over them, and a slip must still not change what happens to data."""

import asyncio
import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.support.rules import lint_path, parsed

from ingestd.documents import DocumentError, Severity
from ingestd.model.unknown_keys import UnknownKeys
from ingestd.rules.loading import IGNORED, RuleLoader
from ingestd.rules.source import FolderSource

# Written here in the shapes that bqtail's own regression cases and usage folder have.
BALANCED = r"""
When: {Prefix: /data/balanced, Suffix: .json}
Async: true
Dest:
  Pattern: /data/balanced/(\d{4})/(\d{2})/.+
  Table: stats.daily_$1$2
  Transient: {Dataset: temp, Balancer: {Strategy: rand, MaxLoadJobs: 2, ProjectIDs: [one, two]}}
Batch:
  Window:
    MultiPath: true
    DurationInSec: 10
OnSuccess: [{Action: delete}]
"""
TEMPLATED = """
When: {Prefix: /data/templated, Suffix: .json}
Dest:
  Table: stats.visits
  Schema: {Template: stats.visits_like}
  Transient: {Alias: t, Template: stats.raw_like, Dataset: temp}
  Transform: {parts: 'SPLIT(t.joined, ",")'}

  Async: true
OnSuccess: [{Action: delete}]
"""
OLD_BATCH = """{
  "When": {"Prefix": "/data/old", "Suffix": ".json"},
  "Dest": {"Table": "stats.old"},
  "Batch": {"BaseURL": "gs://ops/batch/", "Window": {"DurationInSec": 10}}
}"""
HIGH = "Dest: {Table: d.t}\nTransient: {Dataset: temp}\n"
DISPATCH = [
    {
        "When": {"Dest": ".+:stats\\.daily", "Type": "QUERY"},
        "OnSuccess": [{"Action": "export", "Request": {"DestURL": "gs://out/daily.json.gz"}}],
    }
]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (BALANCED, "r.yaml:10:5: warning: Batch.Window.MultiPath: 'MultiPath' has no effect here (nor in bqtail); it "),
        (TEMPLATED, "r.yaml:9:3: warning: Dest.Async: 'Async' has no effect here (nor in bqtail); it belongs to Async"),
        (OLD_BATCH, "r.yaml:4:13: warning: Batch.BaseURL: unknown key 'BaseURL' has no effect (nor in bqtail)"),
        (
            HIGH,
            "r.yaml:2:1: warning: Transient: 'Transient' has no effect here (nor in bqtail); it belongs to Dest",
        ),
        (
            "Dest: {Table: d.t, DestinationTable: {tableId: x}}\n",
            "r.yaml:1:20: warning: Dest.DestinationTable: 'DestinationTable' has no effect here (nor in bqtail)",
        ),
        ("Dest: {Table: d.t}\nContact: me\n", "r.yaml:2:1: warning: Contact: unknown key 'Contact' has no effect"),
        (
            "Dest: {Table: d.t}\nOnSuccess: [{Action: move, Request: {DestURL: gs://b/x, Team: us}}]\n",
            "r.yaml:2:57: warning: OnSuccess[0].Request.Team: unknown key 'Team' has no effect",
        ),
        (
            "Dest: {Table: d.t}\nOnSuccess: [{Action: delete, URLs: $LoadURIs}]\n",
            "r.yaml:2:30: warning: OnSuccess[0].URLs: 'URLs' has no effect here (nor in bqtail); it belongs to Request",
        ),
    ],
)
async def test_a_key_that_bqtail_passes_over_does_not_take_the_rule_out(text: str, warning: str) -> None:
    file = await parsed(text)
    assert str(file.ignored[0]).startswith(warning)
    assert len(file.rules) == 1


@pytest.mark.parametrize("key", ["SchemaInline", "SchemaInlineFormat", "ConnectionProperties", "CreateSession"])
async def test_an_option_that_bqtail_hands_on_is_not_passed_over(key: str) -> None:
    with pytest.raises(DocumentError, match=rf"Dest\.{key}: '{key}' is an option that loads do not have here: "):
        await parsed(f"Dest: {{Table: d.t, {key}: x}}\n")


async def test_the_rule_means_what_it_would_without_the_key() -> None:
    (with_key,) = (await parsed(TEMPLATED)).rules
    (without,) = (await parsed(TEMPLATED.replace("  Async: true\n", ""))).rules
    assert with_key.rule.content_hash == without.rule.content_hash
    assert not with_key.rule.spec.async_, "bqtail does not read Dest.Async either"


@pytest.mark.parametrize(
    "text",
    [
        "Dest: {Table: d.t, Overide: true}\n",
        "Dest: {Table: d.t, Partitoin: $Date}\n",
        "Dest: {Table: d.t}\nOnSucess: [{Action: delete}]\n",
        "Dest: {Table: d.t}\nOnSuccess: [{Action: drop, When: {Exits: d.x}, Request: {Table: d.y}}]\n",
        "Dest: {Table: d.t, Transient: {Dataset: temp, tAlias: x}}\n",
    ],
)
async def test_a_misspelt_key_stays_an_error_that_says_what_was_meant(text: str) -> None:
    with pytest.raises(DocumentError, match=r"unknown key .*did you mean"):
        await parsed(text)


async def test_who_wants_bqtails_way_gets_misspelt_keys_as_warnings() -> None:
    file = await parsed("Dest: {Table: d.t, Overide: true}\n", unknown=UnknownKeys.WARN)
    assert [problem.path for problem in file.ignored] == ["Dest.Overide"]


async def test_who_wants_it_strict_gets_every_key_refused_with_its_place() -> None:
    with pytest.raises(DocumentError, match=r"unknown key 'MultiPath'; it belongs to Batch.MultiPath$"):
        await parsed(BALANCED, unknown=UnknownKeys.REFUSE)
    with pytest.raises(DocumentError, match="unknown key 'BaseURL'"):
        await parsed(OLD_BATCH, unknown=UnknownKeys.REFUSE)


@pytest.mark.parametrize("unknown", list(UnknownKeys))
async def test_a_key_given_twice_is_refused_in_every_mode(unknown: UnknownKeys) -> None:
    with pytest.raises(DocumentError, match="key 'table' repeats 'Table'"):
        await parsed("Dest: {Table: d.t, table: d.u}\n", unknown=unknown)


async def test_other_mistakes_are_told_beside_keys_that_are_passed_over() -> None:
    with pytest.raises(DocumentError) as caught:
        await parsed("Dest: {Table: d.t, Async: true}\nBatch: {Window: {DurationInSec: soon}}\n")
    assert [problem.path for problem in caught.value.problems] == ["Batch.Window.DurationInSec"]


async def test_the_daemon_logs_and_counts_keys_it_passes_over(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(BALANCED)
    with capture_logs() as logs:
        book = await RuleLoader(FolderSource(tmp_path)).refresh()
    assert len(book.rules) == 1 and not book.problems
    (line,) = [one for one in logs if one["event"] == "rules.keys_ignored"]
    assert "it belongs to Batch.MultiPath" in line["keys"][0]
    assert IGNORED._value.get() == 1


def test_lint_warns_of_keys_that_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(BALANCED)
    found = [one for one in lint_path(tmp_path) if "Batch.MultiPath" in one.message]
    assert [one.severity for one in found] == [Severity.WARNING]


async def test_a_bare_list_of_routes_is_taken_as_routes() -> None:
    file = await parsed(json.dumps(DISPATCH), "export.json")
    assert not file.rules
    (route,) = file.routes
    assert route.matches("QUERY", "SELECT 1", "p:stats.daily")


def test_a_list_of_rules_is_still_a_list_of_rules() -> None:
    file = asyncio.run(parsed('[{"When": {"Prefix": "/a"}, "Dest": {"Table": "d.t"}}]', "r.json"))
    assert len(file.rules) == 1 and not file.routes


@pytest.mark.parametrize(
    ("when", "warned"),
    [
        ({"Dest": r".+:stats\.daily_v2"}, ["end it in $"]),
        ({"Dest": r"stats\.daily_v2$"}, ["begin it with"]),
        ({"Dest": r".+:stats\.daily_v2$"}, []),
        ({"Dest": r"^p:stats\.(a|b)$"}, []),
        ({"Dest": r"p:stats\.a|p:stats\.b$"}, ["end it in $", "begin it with"]),
        ({"Dest": r":stats\.daily.*"}, []),
        ({"Source": r"FROM stats.daily", "Type": "QUERY"}, []),
        ({"Source": r".+:stats.daily", "Type": "COPY"}, ["end it in $"]),
    ],
)
def test_lint_says_which_route_patterns_match_more_than_they_name(
    tmp_path: Path, when: dict[str, str], warned: list[str]
) -> None:
    routes = {"Routes": [{**DISPATCH[0], "When": when}]}
    (tmp_path / "routes.json").write_text(json.dumps(routes))
    found = lint_path(tmp_path)
    assert len(found) == len(warned)
    for problem, words in zip(sorted(found, key=lambda one: one.message), sorted(warned), strict=True):
        assert words in problem.message and problem.path.startswith("Routes[0].When.")
        assert problem.severity is Severity.WARNING
