"""Rules are known by their names, so no two of a book share one."""

import itertools
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.rules import lint_path, rule

from ingestd.actions.objects import RULES_MARK, TARGET_MARK, aimed
from ingestd.batch.post_actions import PostActions
from ingestd.batch.rule import PinnedRule
from ingestd.collect.windows.model import window_of
from ingestd.model.errors import Transient
from ingestd.model.objects import FileVersion, Generation, ObjectInfo, ObjectRef
from ingestd.rules.loading import RuleBook, RuleLoader
from ingestd.rules.names import names_of, place_in_file, place_key, told_apart
from ingestd.rules.rule import Rule
from ingestd.rules.source import FolderSource

ROOT = "gs://config/rules/"
QUIET = "OnFailure: [{Action: notify, Request: {Channels: c, Title: '$Error'}}]\n"


def made(path: str, workflow: str | None = None, index: int = 0, count: int = 1) -> Rule:
    """A rule as a file of `count` of them is read."""
    spec = rule(Dest={"Table": "d.t"}, **({"Info": {"Workflow": workflow}} if workflow else {})).spec
    return Rule.of(spec, ROOT + path, index, *names_of(ROOT + path, ROOT, index, count, workflow))


def called(*rules: Rule) -> dict[str, str]:
    names = {f"{one.url.removeprefix(ROOT)}:{one.index}": one.name for one in told_apart(rules)}
    for several in itertools.permutations(rules):
        assert {f"{one.url.removeprefix(ROOT)}:{one.index}": one.name for one in told_apart(several)} == names
    return names


def text(table: str, workflow: str | None = None) -> str:
    info = f"Info: {{Workflow: {workflow}}}\n" if workflow else ""
    return f"{info}When: {{Prefix: /{table}/}}\nDest: {{Table: d.{table}}}\n{QUIET}"


def test_a_workflow_that_no_other_rule_claims_is_the_rules_name() -> None:
    assert called(made("a.yaml", "w"), made("sub/b.yaml", "v"), made("c.yaml")) == {
        "a.yaml:0": "w",
        "sub/b.yaml:0": "v",
        "c.yaml:0": "c",
    }


def test_rules_of_one_workflow_are_called_by_their_files() -> None:
    assert called(made("a.yaml", "w"), made("sub/b.yaml", "w"), made("c.yaml", "v")) == {
        "a.yaml:0": "a",
        "sub/b.yaml:0": "sub/b",
        "c.yaml:0": "v",
    }
    first, second = (made("list.yaml", "w", index, 2) for index in range(2))
    assert called(first, second) == {"list.yaml:0": "w#0", "list.yaml:1": "w#1"}, "their places tell them apart"
    assert called(first, second, made("b.yaml", "w#1")) == {
        "list.yaml:0": "w#0",
        "list.yaml:1": "list#1",
        "b.yaml:0": "b",
    }


@pytest.mark.parametrize(
    ("rules", "names"),
    [
        ([made("w.yaml"), made("a.yaml", "w")], ["w", "a"]),  # a file's name is its own
        ([made("w.yaml", "w"), made("a.yaml", "w")], ["w", "a"]),  # copied with its workflow
        ([made("w.yaml", "v"), made("a.yaml", "w")], ["v", "w"]),  # nobody is called so
        ([made("w.yaml", "v"), made("a.yaml", "w"), made("b.yaml", "v")], ["w", "a", "b"]),  # until somebody is
        ([made("a.yaml"), made("a.json")], ["a.yaml", "a.json"]),
        ([made("a.yaml", "w"), made("b.yaml", "w"), made("a.json")], ["a.yaml", "b", "a.json"]),
        ([made("a.yaml"), made("a.json"), made("b.yaml", "a.json")], ["a.yaml", "a.json", "b"]),
        ([made("a.yaml", None, 1, 2), made("a#1.yaml")], ["a.yaml#1", "a#1.yaml"]),
    ],
)
def test_names_are_unique(rules: list[Rule], names: list[str]) -> None:
    assert list(called(*rules).values()) == names


def test_names_are_unique_whatever_is_called_how() -> None:
    words = ("a", "b", "a.yaml", "b#0")
    files = [("a.yaml", 1), ("a.json", 1), ("b.yaml", 2), ("a.yaml.yaml", 1)]
    for workflows in itertools.product((None, *words), repeat=len(files)):
        rules = [
            made(path, workflow, index, count)
            for (path, count), workflow in zip(files, workflows, strict=True)
            for index in range(count)
        ]
        names = [one.name for one in told_apart(rules)]
        assert len(set(names)) == len(names), workflows


def test_files_of_rules_that_share_a_workflow_share_no_window() -> None:
    document = {"Batch": {"MultiPath": True, "Window": {"DurationInSec": 60}}, "Info": {"Workflow": "w"}}
    spec = rule(**document).spec
    one, two = (Rule.of(spec, ROOT + path, 0, *names_of(ROOT + path, ROOT, 0, 1, "w")) for path in ("a.yaml", "b.yaml"))
    file = FileVersion(ObjectRef("b", "x.json"), Generation(1), event_time=datetime(2024, 5, 1, tzinfo=UTC))
    windows = {window_of(each, file, "d.t", 60) for each in RuleBook.of((one, two)).rules}
    assert len({window.name for window in windows}) == len({window.event_id for window in windows}) == 2


async def test_names_follow_files_that_come_and_go(tmp_path: Path) -> None:
    loader = RuleLoader(FolderSource(tmp_path))

    async def names() -> list[str]:
        return [one.name for one in (await loader.refresh()).rules]

    (tmp_path / "a.yaml").write_text(text("a", "w"))
    assert await names() == ["w"]
    (tmp_path / "b.yaml").write_text(text("b", "w"))
    assert await names() == ["a", "b"]
    (tmp_path / "b.yaml").write_text("][")
    assert await names() == ["a", "b"], "the last good version still claims its name"
    (tmp_path / "b.yaml").write_text(text("b", "mine"))
    assert await names() == ["w", "mine"]
    (tmp_path / "a.yaml").rename(tmp_path / "c.yaml")
    assert await names() == ["mine", "w"], "a rule that moves keeps its workflow"
    (tmp_path / "a.yaml").write_text(text("a", "w"))
    assert await names() == ["a", "mine", "c"]
    (tmp_path / "a.yaml").unlink()
    assert await names() == ["mine", "w"]
    assert loader.rule(loader.book.rules[1].content_hash) is loader.book.rules[1]


async def test_a_file_that_cannot_be_read_for_a_moment_changes_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FolderSource(tmp_path)
    loader = RuleLoader(source)
    (tmp_path / "a.yaml").write_text(text("a", "w"))
    (tmp_path / "b.yaml").write_text(text("b", "w"))
    book = await loader.refresh()
    read = source.read

    async def unreadable(url: str) -> bytes:
        if url.endswith("b.yaml"):
            raise Transient("503")
        return await read(url)

    monkeypatch.setattr(source, "read", unreadable)
    (tmp_path / "b.yaml").write_text(text("bb", "w"))
    assert [one.name for one in (await loader.refresh()).rules] == [one.name for one in book.rules] == ["a", "b"]


def test_an_action_finds_its_secrets_under_every_name_of_its_rule() -> None:
    def with_token(path: str, channel: str) -> Rule:
        notify = {"Action": "notify", "Request": {"Channels": channel, "Title": "t", "Token": path}}
        spec = rule(OnSuccess=[notify], Info={"Workflow": "w"}).spec
        return Rule.of(spec, ROOT + path, 0, *names_of(ROOT + path, ROOT, 0, 1, "w"))

    one, two, edited = with_token("w.yaml", "one"), with_token("b.yaml", "two"), with_token("b.yaml", "edited")
    book = RuleBook.of((one, two))
    assert [each.name for each in book.rules] == ["b", "w"]
    for before in (one, two):  # pinned when both were called by their workflow
        assert book.actions("w", before.content_hash) == before.actions
    assert book.actions("b", two.content_hash) == two.actions
    renamed = RuleBook.of((edited, with_token("c.yaml", "three")))
    assert [each.name for each in renamed.rules] == ["b", "c"]
    assert set(renamed.actions("w", two.content_hash) or ()) >= set(edited.actions)
    assert renamed.actions("nobody", "unknown") is None


@pytest.mark.parametrize(
    ("path", "workflow", "index", "count", "place"),
    [
        ("a.yaml", "w", 0, 1, ""),
        ("a#1.yaml", "w", 0, 1, ""),
        ("a.yaml", "w", 0, 2, "#0"),
        ("sub/a#1.yaml", "w#3", 12, 13, "#12"),
    ],
)
def test_the_place_in_its_file_is_told_by_every_name(
    path: str, workflow: str, index: int, count: int, place: str
) -> None:
    _, *by_file = names_of(ROOT + path, ROOT, index, count, workflow)
    assert [place_in_file(name, ROOT + path) for name in by_file] == [place, place]


def test_what_an_earlier_version_moved_under_the_shared_name_is_guarded_and_no_more_than_that() -> None:
    first, second = (PinnedRule.of(one) for one in told_apart((made("a.yaml", "w"), made("b.yaml", "w"))))
    in_list = PinnedRule.of(told_apart((made("l.yaml", "v", 1, 2), made("m.yaml", "v#1")))[0])
    assert [one.name for one in (first, second, in_list)] == ["a", "b", "l#1"]
    assert [one.workflow_name for one in (first, second, in_list)] == ["w", "w", "v#1"]
    assert PinnedRule.of(made("c.yaml")).workflow_name == ""

    def guarded(by: PinnedRule, **marks: str) -> bool:
        info = ObjectInfo(ObjectRef("b", "o"), Generation(1), 1, datetime(2024, 5, 1, tzinfo=UTC), metadata=marks)
        return PostActions.guarded(cast("Any", None), cast("Any", SimpleNamespace(rule=by)), info)

    old = {"ingestd-event": "1", "ingestd-source": "b/from%231", RULES_MARK: "w"}
    assert guarded(first, **old) and guarded(second, **old)
    assert not guarded(PinnedRule.of(made("c.yaml")), **old)
    new = aimed(old, ObjectRef("b", "o"))
    assert TARGET_MARK in new
    assert not guarded(first, **new), "a rule of that name, which is not this one"
    by_place = {**new, RULES_MARK: f"w,{place_key('w', first.url)}"}
    assert guarded(first, **by_place) and not guarded(second, **by_place), "it was called so before"
    assert guarded(first, **{**new, RULES_MARK: "a"}) and not guarded(second, **{**new, RULES_MARK: "a"})


def test_lint_names_the_other_file_and_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text("a", "w"))
    (tmp_path / "b.yaml").write_text("# copied\n" + text("b", "w"))
    (tmp_path / "c.yaml").write_text(text("c", "v"))

    def found() -> list[str]:
        return [str(problem).replace(f"{tmp_path}/", "") for problem in lint_path(tmp_path)]

    shared = "Info.Workflow: w is also the name of"
    apart = "and rules are told apart by their names: this one is called"
    assert found() == [
        f"a.yaml:1:8: warning: {shared} b.yaml:2:1, {apart} a until each has a Workflow of its own",
        f"b.yaml:2:8: warning: {shared} a.yaml:1:1, {apart} b until each has a Workflow of its own",
    ]
    (tmp_path / "b.yaml").write_text(text("b", "own"))
    assert found() == []
    (tmp_path / "c.yml").write_text((tmp_path / "c.yaml").read_text().replace("v}", "c}").replace("/c/", "/d/"))
    assert found() == []


def test_lint_tells_of_files_that_differ_in_their_extension_and_of_copies_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text("a"))
    (tmp_path / "a.yml").write_text(text("b"))
    (tmp_path / "orders.yaml").write_text(text("c", "orders"))
    (tmp_path / "orders-2.yaml").write_text(text("d", "orders"))
    told = {one.file.rpartition("/")[2]: one.message.replace(f"{tmp_path}/", "") for one in lint_path(tmp_path)}
    assert set(told) == {"a.yaml", "a.yml", "orders.yaml", "orders-2.yaml"}
    assert told["a.yml"].startswith("a is also the name of a.yaml:1:1, and")
    assert told["a.yml"].endswith("this one is called a.yml until one of the files has another name")
    assert told["orders.yaml"].endswith("is called orders until each has a Workflow of its own")
    assert told["orders-2.yaml"].endswith("is called orders-2 until each has a Workflow of its own")
