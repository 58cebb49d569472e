"""Rules are re-read when they change; a broken edit keeps the last good version."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs
from tests.support.manual_clock import ManualClock
from tests.support.memory_store import MemoryStore

from ingestd.documents import Severity
from ingestd.model.errors import NotFound, Transient
from ingestd.model.objects import ObjectRef
from ingestd.rules import bucket
from ingestd.rules.lint import lint
from ingestd.rules.loading import RuleLoader
from ingestd.rules.matching import Match, NoMatch
from ingestd.rules.source import FolderSource


class MemorySource:
    """Rule files in a dict; counts what is read."""

    root = "mem://rules/"

    def __init__(self, **files: str) -> None:
        self.files = {f"{self.root}{name.replace('__', '.')}": text for name, text in files.items()}
        self.reads: list[str] = []
        self.broken = False

    def put(self, name: str, text: str) -> None:
        self.files[f"{self.root}{name}"] = text

    async def list(self) -> Sequence[tuple[str, str]]:
        if self.broken:
            raise OSError("bucket is away")
        return [(url, str(hash(text))) for url, text in self.files.items()]

    async def read(self, url: str) -> bytes:
        self.reads.append(url.removeprefix(self.root))
        return self.files[url].encode()


ONE = "When: {Prefix: /one}\nDest: {Table: d.one}\n"
TWO = "When: {Prefix: /two}\nDest: {Table: d.two}\n"
WITH_SQL = (
    "When: {Prefix: /sql}\nDest: {Table: d.sql}\nOnSuccess: [{Action: query, Request: {SQLURL: q.sql, Dest: d.q}}]\n"
)


def counted(outcome: str) -> float:
    return REGISTRY.get_sample_value("ingestd_rule_reloads_total", {"outcome": outcome}) or 0.0


async def test_only_changed_files_are_read_again() -> None:
    source = MemorySource(a__yaml=ONE, b__json='{"Dest": {"Table": "d.b"}, "When": {"Prefix": "/b"}}', c__txt="x")
    loader = RuleLoader(source)
    book = await loader.refresh()
    assert [rule.name for rule in book.rules] == ["a", "b"]
    assert await loader.refresh() is book
    source.put("a.yaml", TWO)
    again = await loader.refresh()
    assert again.route("two/x") == Match(again.rules[0])
    assert again.route("one/x") == NoMatch()
    assert source.reads == ["a.yaml", "b.json", "a.yaml"]


async def test_a_broken_edit_keeps_the_last_good_version_and_is_reported_once() -> None:
    source = MemorySource(a__yaml=ONE, b__yaml=TWO)
    loader = RuleLoader(source)
    good = await loader.refresh()
    before = counted("broken")
    source.put("a.yaml", "When: {Prefix: /one}\nDest: {Tabel: d.one}\n")
    with capture_logs() as logs:
        book = await loader.refresh()
        await loader.refresh()
    assert book.rules == good.rules
    assert [str(problem) for problem in book.problems] == [
        "mem://rules/a.yaml:2:8: Dest.Tabel: unknown key 'Tabel'; did you mean 'Table'?"
    ]
    assert [(entry["event"], entry["kept_last_good"]) for entry in logs] == [("rules.file_broken", True)]
    assert counted("broken") == before + 1
    source.put("a.yaml", ONE)
    assert (await loader.refresh()).problems == ()


async def test_a_new_broken_file_does_not_hold_up_the_others() -> None:
    loader = RuleLoader(MemorySource(a__yaml="][", b__yaml=TWO))
    book = await loader.refresh()
    assert [rule.name for rule in book.rules] == ["b"]
    assert len(book.problems) == 1


async def test_removed_files_take_their_rules_along() -> None:
    source = MemorySource(a__yaml=ONE, b__yaml=TWO)
    loader = RuleLoader(source)
    await loader.refresh()
    del source.files["mem://rules/a.yaml"]
    assert [rule.name for rule in (await loader.refresh()).rules] == ["b"]


@pytest.mark.parametrize("error", [Transient("503"), NotFound("moved again since it was listed")])
async def test_a_rule_that_moves_to_a_file_that_cannot_be_read_yet_stays_in_force(
    error: Exception,
) -> None:
    source = MemorySource(a__yaml=ONE, b__yaml=TWO)
    loader = RuleLoader(source)
    await loader.refresh()
    source.put("moved.yaml", source.files.pop("mem://rules/a.yaml"))
    source.put("c.yaml", "When: {Prefix: /three}\nDest: {Table: d.three}\n")
    read = source.read

    async def unreadable(url: str) -> bytes:
        if url.endswith("moved.yaml"):
            raise error
        return await read(url)

    source.read = unreadable  # type: ignore[method-assign]
    with capture_logs() as logs:
        for _ in range(2):
            assert [rule.name for rule in (await loader.refresh()).rules] == ["a", "b"]
    assert [entry["unread"] for entry in logs if entry["event"] == "rules.removal_postponed"] == [
        ["mem://rules/moved.yaml"]
    ] * 2
    source.read = read  # type: ignore[method-assign]
    assert [rule.name for rule in (await loader.refresh()).rules] == ["b", "c", "moved"]


async def test_a_rule_that_moves_while_the_first_book_is_made_is_in_it() -> None:
    source = MemorySource(a__yaml=ONE, b__yaml=TWO)
    read = source.read

    async def moving(url: str) -> bytes:
        if url.endswith("/a.yaml"):
            source.put("moved.yaml", source.files.pop(url))
            raise NotFound("it was listed a moment ago")
        return await read(url)

    source.read = moving  # type: ignore[method-assign]
    book = await RuleLoader(source).refresh()
    assert [rule.name for rule in book.rules] == ["b", "moved"]
    assert book.problems == ()


async def test_an_old_rule_stays_reachable_by_its_hash_while_someone_holds_it() -> None:
    source = MemorySource(a__yaml=ONE)
    loader = RuleLoader(source)
    pinned = (await loader.refresh()).rules[0]
    source.put("a.yaml", TWO)
    await loader.refresh()
    assert loader.rule(pinned.content_hash) is pinned
    content_hash = pinned.content_hash
    del pinned
    assert loader.rule(content_hash) is None


async def test_files_hold_one_rule_a_list_or_several_documents() -> None:
    source = MemorySource(
        list__yaml="- {Dest: {Table: d.a}}\n- {Dest: {Table: d.b}}\n",
        docs__yml="Dest: {Table: d.c}\n---\nDest: {Table: d.e}\n",
        named__json='[{"Dest": {"Table": "d.f"}, "Info": {"Workflow": "special"}}]',
        empty__yaml="# nothing yet\n",
    )
    book = await RuleLoader(source).refresh()
    assert [(rule.name, rule.index, rule.spec.dest.table) for rule in book.rules] == [
        ("docs#0", 0, "d.c"),
        ("docs#1", 1, "d.e"),
        ("list#0", 0, "d.a"),
        ("list#1", 1, "d.b"),
        ("special", 0, "d.f"),
    ]


async def test_routes_are_read_from_a_file_with_routes() -> None:
    text = "Routes:\n  - {When: {Dest: 'p:d\\.t', Type: export}, OnSuccess: [{Action: delete}]}\n"
    book = await RuleLoader(MemorySource(r__yaml=text)).refresh()
    assert [route.name for route in book.routes] == ["r#0"]
    assert book.routes[0].matches("EXTRACT", "", "p:d.t")
    assert not book.routes[0].matches("LOAD", "", "p:d.t")
    assert not book.routes[0].matches("extract", "", "p:d_t")


async def test_sql_beside_a_rule_is_read_with_it_and_watched() -> None:
    rule = "Dest: {Table: d.t}\nOnSuccess: [{Action: query, Request: {SQLURL: sql/q.sql, Dest: d.x}}]\n"
    source = MemorySource(a__yaml=rule)
    source.put("sql/q.sql", "SELECT 1")
    loader = RuleLoader(source)
    before = (await loader.refresh()).rules[0]
    assert before.spec.on_success[0].request.sql == "SELECT 1"
    source.put("sql/q.sql", "SELECT 2")
    after = (await loader.refresh()).rules[0]
    assert after.spec.on_success[0].request.sql == "SELECT 2"
    assert before.content_hash != after.content_hash


async def test_a_missing_sql_file_is_a_problem_of_the_rule_and_heals() -> None:
    rule = "Dest: {Table: d.t}\nOnSuccess: [{Action: query, Request: {SQLURL: q.sql}}]\n"
    source = MemorySource(a__yaml=rule)
    loader = RuleLoader(source)
    assert "OnSuccess[0].Request.SQLURL: cannot read mem://rules/q.sql" in str((await loader.refresh()).problems[0])
    source.put("q.sql", "SELECT 1")
    assert len((await loader.refresh()).rules) == 1


async def test_sql_elsewhere_is_left_for_the_action() -> None:
    rule = "Dest: {Table: d.t}\nOnSuccess: [{Action: query, Request: {SQLURL: 'gs://other/q.sql'}}]\n"
    spec = (await RuleLoader(MemorySource(a__yaml=rule)).refresh()).rules[0].spec
    assert spec.on_success[0].request.sql is None


async def test_a_source_that_goes_away_leaves_the_rules_in_force() -> None:
    source = MemorySource(a__yaml=ONE)
    loader = RuleLoader(source)
    book = await loader.refresh()
    source.broken = True
    before = counted("unlisted")
    assert await loader.refresh() is book
    assert counted("unlisted") == before + 1
    with pytest.raises(OSError, match="bucket is away"):
        await RuleLoader(source).refresh()


async def test_watching_refreshes_at_each_interval_and_when_woken() -> None:
    source, clock = MemorySource(a__yaml=ONE), ManualClock()
    loader = RuleLoader(source, clock)
    await loader.refresh()
    watcher = asyncio.create_task(loader.watch(timedelta(seconds=60)))

    async def settle() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    await settle()
    source.put("a.yaml", TWO)
    clock.advance(timedelta(seconds=59))
    await settle()
    assert loader.book.rules[0].spec.dest.table == "d.one"
    clock.advance(timedelta(seconds=1))
    await settle()
    assert loader.book.rules[0].spec.dest.table == "d.two"
    source.put("a.yaml", ONE)
    loader.wake()
    await settle()
    assert loader.book.rules[0].spec.dest.table == "d.one"
    watcher.cancel()
    await asyncio.gather(watcher, return_exceptions=True)


async def test_a_folder_is_read_recursively_and_hidden_names_are_passed_over(tmp_path: Path) -> None:
    mounted = tmp_path / "..2024_01_01"
    mounted.mkdir()
    (mounted / "a.yaml").write_text(ONE)
    (tmp_path / "..data").symlink_to(mounted)
    (tmp_path / "a.yaml").symlink_to(tmp_path / "..data" / "a.yaml")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.yml").write_text(TWO)
    (tmp_path / ".b.yaml.swp").write_text("junk")
    loader = RuleLoader(FolderSource(tmp_path))
    book = await loader.refresh()
    assert [rule.name for rule in book.rules] == ["a", "sub/b"]
    assert book.rules[1].url == f"{tmp_path}/sub/b.yml"
    newer = tmp_path / "..2024_01_02"
    newer.mkdir()
    (newer / "a.yaml").write_text(ONE.replace("d.one", "d.new"))
    (tmp_path / "..data").unlink()
    (tmp_path / "..data").symlink_to(newer)
    assert (await loader.refresh()).rules[0].spec.dest.table == "d.new"


async def test_a_relative_folder_works_with_sql_beside_the_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "q.sql").write_text("SELECT 1")
    (tmp_path / "rules" / "a.yaml").write_text(
        "Dest: {Table: d.t}\nOnSuccess: [{Action: query, Request: {SQLURL: q.sql}}]\n"
    )
    for folder in ("rules", "./rules", "."):
        book = await RuleLoader(FolderSource(Path(folder))).refresh()
        assert book.problems == ()
        assert book.rules[0].spec.on_success[0].request.sql == "SELECT 1"


async def test_a_missing_folder_is_an_error_at_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        await RuleLoader(FolderSource(tmp_path / "nowhere")).refresh()


async def test_a_daemon_does_not_begin_without_a_rule_that_cannot_be_fetched_for_a_moment() -> None:
    source = MemorySource(a__yaml=ONE, b__yaml=TWO)
    read = source.read

    async def flaky(url: str) -> bytes:
        if url.endswith("b.yaml") and len(source.reads) < 2:
            source.reads.append("b.yaml")
            raise Transient("503")
        return await read(url)

    source.read = flaky  # type: ignore[method-assign]
    loader = RuleLoader(source)
    with pytest.raises(Transient):
        await loader.refresh()
    assert len((await loader.refresh()).rules) == 2


async def test_a_file_in_a_bucket_that_is_too_large_is_told_and_the_others_stay_in_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bucket, "LARGEST", 1_000)
    store = MemoryStore(ManualClock())
    source = bucket.BucketSource(cast("Any", store), "gs://config/rules")
    for name, text in (("one.yaml", ONE), ("two.yaml", TWO), ("sql.yaml", WITH_SQL)):
        store.put(ObjectRef("config", f"rules/{name}"), text.encode())
    store.put(ObjectRef("config", "rules/q.sql"), b"SELECT 1")
    loader = RuleLoader(source)
    assert len((await loader.refresh()).rules) == 3
    for name in ("two.yaml", "three.yaml"):
        store.put(ObjectRef("config", f"rules/{name}"), TWO.encode() + b"#" * 1_000)
    book = await loader.refresh()
    assert len(book.rules) == 3, "the last good version stays"
    told = {problem.file: problem.message for problem in book.problems}
    assert set(told) == {"gs://config/rules/two.yaml", "gs://config/rules/three.yaml"}
    assert all("at most 1000 are read" in message for message in told.values())
    store.put(ObjectRef("config", "rules/q.sql"), b"-" * 2_000)
    book = await loader.refresh()
    assert len(book.rules) == 3
    assert any("rules/q.sql: 2000 bytes" in problem.message for problem in book.problems)
    problems = await lint(source)
    assert {one.file for one in problems if one.severity is Severity.ERROR} == {
        f"gs://config/rules/{name}.yaml" for name in ("two", "three", "sql")
    }
