"""One rule takes a file, or none, or it is an error that names them all."""

import random
import time

import pytest
from tests.support.naive_matching import find_naively
from tests.support.rules import rule

from ingestd.rules import fields
from ingestd.rules.fields import PatternSet
from ingestd.rules.matching import Ambiguous, Disabled, Match, NoMatch, RuleIndex, path_of
from ingestd.rules.rule import Rule


def test_all_given_conditions_must_hold() -> None:
    taken = rule(When={"Prefix": "/data/", "Suffix": ".json", "Filter": r"/\d+/", "Exclusion": "tmp"})
    index = RuleIndex([taken])
    assert index.route("data/1/x.json") == Match(taken)
    for name in ("dat/1/x.json", "data/1/x.csv", "data/a/x.json", "data/1/tmp.json"):
        assert index.route(name) == NoMatch()


def test_paths_have_one_leading_slash_and_no_double_ones() -> None:
    assert [path_of(name) for name in ("a/b", "/a//b", "a///b", "")] == ["/a/b", "/a/b", "/a/b", "/"]
    assert RuleIndex([rule(When={"Prefix": "/a/b"})]).route("a//b/c") != NoMatch()


def test_an_empty_when_takes_every_file() -> None:
    assert isinstance(RuleIndex([rule()]).route("anything"), Match)


def test_the_destinations_pattern_is_the_filter_when_there_is_none() -> None:
    by_pattern = rule(Dest={"Table": "d.t_$1", "Pattern": r"/x/(\w+)/"})
    assert RuleIndex([by_pattern]).route("x/a/b") == Match(by_pattern)
    assert RuleIndex([by_pattern]).route("y/a/b") == NoMatch()
    both = rule(When={"Filter": "y"}, Dest={"Table": "d.t_$1", "Pattern": r"/x/(\w+)/"})
    assert RuleIndex([both]).route("y/a/b") == Match(both)


def test_two_enabled_rules_are_ambiguous_and_both_are_named() -> None:
    one, two = rule("b.yaml", When={"Prefix": "/data"}), rule("a.yaml", When={"Suffix": ".json"})
    found = RuleIndex([one, two]).route("data/x.json")
    assert found == Ambiguous((two, one))
    assert str(found) == "several rules match: a.yaml (a.yaml), b.yaml (b.yaml)"


def test_a_disabled_twin_is_fine() -> None:
    on, off = rule("a.yaml", When={"Prefix": "/d"}), rule("b.yaml", When={"Prefix": "/d"}, Disabled=True)
    assert RuleIndex([off, on]).route("d/x") == Match(on)
    assert RuleIndex([off]).route("d/x") == Disabled(off)


def test_directory_rules_never_match_files() -> None:
    assert RuleIndex([rule(When={"Directory": True})]).route("x") == NoMatch()


def test_every_prefix_on_the_way_is_found() -> None:
    prefixes = ["", "/", "/a", "/a/", "/a/b", "/ab", "/b", "/a/b/c"]
    rules = [rule(f"{number}", When={"Prefix": prefix}) for number, prefix in enumerate(prefixes)]
    found = RuleIndex(rules).route("a/b/x")
    assert isinstance(found, Ambiguous)
    assert {r.spec.when.prefix for r in found.rules} == {"", "/", "/a", "/a/", "/a/b"}


def test_many_suffixes_under_one_prefix_are_found() -> None:
    suffixes = ["", ".gz", ".json.gz", ".json", ".csv", ".csv.gz", "n.gz"]
    rules = [rule(f"{number}", When={"Prefix": "/d/", "Suffix": suffix}) for number, suffix in enumerate(suffixes)]
    found = RuleIndex(rules).route("d/x.json.gz")
    assert isinstance(found, Ambiguous)
    assert {r.spec.when.suffix for r in found.rules} == {"", ".gz", ".json.gz", "n.gz"}


def test_patterns_that_exhaust_the_automaton_still_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """RE2 answers nothing when its memory runs out; the answer must still be right."""
    monkeypatch.setattr(fields, "_SET_MEMORY", 40_000)
    patterns = [f"(a|b)*a(a|b){{{length}}}x{length}" for length in range(4, 14)]
    text = "/" + "".join(random.Random(1).choice("ab") for _ in range(2000)) + "aaaaaaaaax8"
    plenty = [at for at, pattern in enumerate(patterns) if fields.compile_pattern(pattern).search(text)]
    starved = PatternSet(patterns)
    assert sorted(starved.search(text)) == plenty != []


def test_names_beyond_ascii_are_matched() -> None:
    by_name = rule(When={"Prefix": "/é/", "Filter": "ü.$"})
    assert RuleIndex([by_name]).route("é/xü€") == Match(by_name)


def _mixed(count: int) -> list[Rule]:
    return [
        rule(f"{n}.yaml", When={"Prefix": f"/data/table_{n}/", "Suffix": ".json"})
        if n % 5
        else rule(f"{n}.yaml", When={"Filter": rf"^/drop/table_{n}-\d+\.csv$"})
        for n in range(count)
    ]


def test_ten_thousand_rules_cost_about_what_a_hundred_do() -> None:
    """The benchmark measures the promise (2x); here a wide margin catches a scan, which would be 100x."""

    def seconds(index: RuleIndex, count: int) -> float:
        names = [f"data/table_{n * 7 % count}/x.json" for n in range(300)] + [
            f"drop/table_{5}-{n}.csv" for n in range(50)
        ]
        best = float("inf")
        for _ in range(5):
            started = time.thread_time()
            for name in names:
                index.route(name)
            best = min(best, time.thread_time() - started)
        return best

    rules = _mixed(10_000)
    few, many = RuleIndex(rules[:100]), RuleIndex(rules)
    sample = ["data/table_77/x.json", "drop/table_500-1.csv", "data/table_9999/x.csv", "drop/table_501-1.csv"]
    assert [many.route(name) for name in sample] == [find_naively(rules, path_of(name)) for name in sample]
    assert seconds(many, 10_000) < 5 * seconds(few, 100)
