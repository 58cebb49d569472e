"""A batch request: every call has its own outcome, all are committed at once, and what they tell is told afterwards."""

import asyncio
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.manual_clock import ManualClock

from ingestd.gcp.multicall import Answer, Call, parse, render
from ingestd.localcloud.faults import Fault, FaultKind, Hooks
from ingestd.localcloud.feeds import Notifications
from ingestd.localcloud.http import DropConnection, Request
from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.storage import StorageCore
from ingestd.localcloud.storage.model import ListQuery
from ingestd.localcloud.storage.server import make_handler

TOPIC = "projects/p/topics/told"
LARGE = b"l" * 200_000


def send(core: StorageCore, *calls: Call) -> list[Answer]:
    async def sent() -> list[Answer]:
        boundary, body = render(calls)
        headers = {"content-type": f"multipart/mixed; boundary={boundary}"}
        response = await make_handler(core)(Request("POST", "/batch/storage/v1", "", headers, body, "h"))  # type: ignore[misc]
        found = parse(response.headers["content-type"], response.body)
        return [found[number] for number in range(len(calls))]

    return asyncio.run(sent())


def delete(name: str, generation: int | None = None, bucket: str = "bucket") -> Call:
    return Call(
        "DELETE", f"/storage/v1/b/{bucket}/o/{name}" + (f"?ifGenerationMatch={generation}" if generation else "")
    )


def names(core: StorageCore) -> list[str]:
    return [one.name for one in core.objects.list("bucket", ListQuery()).items]


def watch(core: StorageCore) -> None:
    core.buckets.insert_notification("bucket", {"topic": f"//pubsub.googleapis.com/{TOPIC}"})


def commits(core: StorageCore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Statements that end a transaction, as they are executed from now on."""
    ended: list[str] = []
    database = core._state.database
    execute = database.execute

    def noting(sql: str, *values: object) -> sqlite3.Cursor:
        if sql in ("COMMIT", "ROLLBACK"):
            ended.append(sql)
        return execute(sql, *values)  # type: ignore[arg-type]

    monkeypatch.setattr(database, "execute", noting)
    return ended


def test_calls_of_a_batch_have_their_own_outcomes_and_one_commit(
    core: StorageCore, topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {name: core.write("bucket", name, b"x").generation for name in ("a", "b", "c", "d")}
    large = core.write("bucket", "large", LARGE).generation
    watch(core)
    ended = commits(core, monkeypatch)
    answers = send(
        core,
        delete("a", made["a"]),
        delete("b", made["b"] - 1),
        delete("none"),
        delete("x", bucket="absent"),
        Call(
            "POST",
            f"/storage/v1/b/bucket/o/large/rewriteTo/b/bucket/o/moved?sourceGeneration={large}",
        ),
        delete("large"),
        Call("POST", "/storage/v1/b/bucket/o/c/rewriteTo/b/bucket/o/d?ifGenerationMatch=0"),
        delete("a"),
        Call("PATCH", "/storage/v1/b/bucket", b'{"labels": {"k": "v"}}'),
        delete("c", made["c"]),
    )
    assert [one.status for one in answers] == [204, 412, 404, 404, 200, 204, 412, 404, 200, 204]
    assert ended == ["COMMIT"]
    assert names(core) == ["b", "d", "moved"]
    assert core.read("bucket", "moved") == LARGE
    assert len(list((tmp_path / "state" / "objects").glob("*/*"))) == 1
    assert not list((tmp_path / "state" / "staging").iterdir())
    assert topic.events() == [
        ("OBJECT_DELETE", "a"),
        ("OBJECT_FINALIZE", "moved"),
        ("OBJECT_DELETE", "large"),
        ("OBJECT_DELETE", "c"),
    ]
    assert core.hooks.operations["objects.delete"] == 7
    assert core.hooks.operations["objects.rewrite"] == 2


def test_a_process_that_dies_in_a_batch_has_done_none_of_it_and_after_it_all(
    core: StorageCore, make_core, topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        core.write("bucket", name, LARGE)
    watch(core)
    drop = core.objects._drop
    deliver = core._state.notifier.deliver
    dropped: list[str] = []

    def dying(change, target, *, permanently: bool) -> None:
        drop(change, target, permanently=permanently)
        dropped.append(target.name)
        if len(dropped) == 2:
            shutil.copytree(tmp_path / "state", tmp_path / "during")

    def killed_first() -> None:
        shutil.copytree(tmp_path / "state", tmp_path / "committed")
        deliver()

    monkeypatch.setattr(core.objects, "_drop", dying)
    monkeypatch.setattr(core._state.notifier, "deliver", killed_first)
    send(core, delete("a"), delete("b"), delete("c"))
    assert topic.events() == [("OBJECT_DELETE", name) for name in ("a", "b", "c")]

    topic.messages.clear()
    during = make_core(tmp_path / "during")
    assert names(during) == ["a", "b", "c"]
    assert [during.read("bucket", name) for name in names(during)] == [LARGE] * 3
    assert topic.messages == []

    committed = make_core(tmp_path / "committed")
    assert names(committed) == []
    assert topic.events() == [("OBJECT_DELETE", name) for name in ("a", "b", "c")], "told after the restart"


def test_a_batch_that_cannot_be_committed_is_not_answered_and_nothing_of_it_is_done(
    core: StorageCore, topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.write("bucket", "a", LARGE)
    watch(core)
    database = core._state.database
    execute = database.execute

    def full(sql: str, *values: object) -> sqlite3.Cursor:
        if sql == "COMMIT":
            raise sqlite3.OperationalError("database or disk is full")
        return execute(sql, *values)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(database, "execute", full)
        with pytest.raises(sqlite3.OperationalError):
            send(
                core,
                Call("POST", "/storage/v1/b/bucket/o/a/rewriteTo/b/bucket/o/b"),
                Call("POST", "/storage/v1/b", b'{"name": "another"}'),
                delete("a"),
            )
    assert names(core) == ["a"]
    assert [one.name for one in core.buckets.list()[0]] == ["bucket", "versioned"]
    assert len(list((tmp_path / "state" / "objects").glob("*/*"))) == 1
    assert topic.messages == []
    assert [one.status for one in send(core, delete("a"))] == [204]


def test_a_lost_answer_keeps_what_was_done_before_it(core: StorageCore, topic) -> None:
    for name in ("a", "b", "c"):
        core.write("bucket", name, b"x")
    watch(core)
    core.hooks.plan.add(Fault("storage", "objects.delete", FaultKind.DROP_RESPONSE, resource="bucket/b", times=1))
    with pytest.raises(DropConnection):
        send(core, delete("a"), delete("b"), delete("c"))
    assert names(core) == ["c"]
    assert topic.events() == [("OBJECT_DELETE", "a"), ("OBJECT_DELETE", "b")]


def test_a_call_that_waits_does_so_after_those_before_it_are_committed(
    core: StorageCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        core.write("bucket", name, b"x")
    core.hooks.plan.add(Fault("storage", "objects.delete", FaultKind.DELAY, resource="bucket/b", seconds=0.01))
    core.hooks.plan.add(Fault("storage", "objects.delete", FaultKind.FAIL, resource="bucket/c", status=429, times=1))
    seen: list[list[str]] = []

    async def sleep(seconds: float) -> None:
        seen.append(names(core))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    assert [one.status for one in send(core, delete("a"), delete("b"), delete("c"))] == [204, 204, 429]
    assert seen == [["b", "c"]]
    assert names(core) == ["c"]


class Topics:
    """Refuses several at once if one of them is about `poison`, and that one alone."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def one(self, topic: str, data: bytes, attributes: dict[str, str]) -> None:
        self.many(topic, [(data, attributes)])

    def many(self, topic: str, messages: Sequence[tuple[bytes, dict[str, str]]]) -> None:
        about = [attributes["objectId"] for _, attributes in messages]
        if "poison" in about:
            raise RuntimeError("refused")
        self.calls.append(about)


def watched(root: Path, topics: Topics) -> StorageCore:
    core = StorageCore(root, project="p", clock=ManualClock(), publish=topics.one, publish_many=topics.many)
    core.buckets.insert({"name": "bucket"})
    return core


def test_messages_of_a_batch_are_handed_over_at_once_and_forgotten(tmp_path: Path) -> None:
    topics = Topics()
    core = watched(tmp_path, topics)
    for name in ("a", "b", "c"):
        core.write("bucket", name, b"x")
    watch(core)
    send(core, delete("a"), delete("b"), delete("c"))
    assert topics.calls == [["a", "b", "c"]]
    core.close()
    StorageCore(tmp_path, project="p", clock=ManualClock(), publish=topics.one).close()
    assert topics.calls == [["a", "b", "c"]], "not told again"


def test_a_message_that_is_refused_does_not_take_those_before_it_along(tmp_path: Path) -> None:
    topics = Topics()
    core = watched(tmp_path, topics)
    for name in ("a", "poison", "c"):
        core.write("bucket", name, b"x")
    watch(core)
    send(core, delete("a"), delete("poison"), delete("c"))
    assert topics.calls == [["a"]]
    assert core.deliver_notifications() == 2
    assert core.hooks.operations["notifications.failed"] == 2
    core.close()


def test_each_message_counts_as_a_publish_and_planned_faults_strike_single_ones(tmp_path: Path) -> None:
    clock = ManualClock()
    pubsub = PubSubCore(None, clock=clock, hooks=Hooks("pubsub"))
    pubsub.create_topic(wire.Topic(name=TOPIC))
    pubsub.create_subscription(wire.Subscription(name="projects/p/subscriptions/told", topic=TOPIC))
    told = Notifications(pubsub)
    core = StorageCore(tmp_path, project="p", clock=clock, publish=told, publish_many=told.many)
    core.buckets.insert({"name": "bucket"})
    for name in ("a", "b", "c", "d"):
        core.write("bucket", name, b"x")
    watch(core)
    send(core, delete("a"), delete("b"))
    assert pubsub.hooks.operations["Publish"] == 2
    core.hooks.plan.add(Fault("storage", "notifications.publish", FaultKind.DUPLICATE, resource="bucket/c"))
    send(core, delete("c"), delete("d"))
    received = pubsub.pull("projects/p/subscriptions/told", 10)
    assert [one.attributes["objectId"] for one in received] == ["a", "b", "c", "c", "d"]
    assert pubsub.hooks.operations["Publish"] == 5
    core.close()
    pubsub.close()
