"""What a restart finds: everything acknowledged, nothing twice, in bounded space."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.manual_clock import ManualClock

from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.pubsub.errors import PubSubError
from ingestd.localcloud.pubsub.journal import Journal, RecordKind, encode

TOPIC = "projects/p/topics/events"
SUBSCRIPTION = "projects/p/subscriptions/worker"


def segment(broker: Any) -> Path:
    (path,) = broker.root.glob("segment-*.log")
    assert isinstance(path, Path)
    return path


def test_unacknowledged_messages_are_delivered_after_a_restart(durable: Any) -> None:
    durable.subscription()
    ids = durable.publish("a", "b", "c", colour="red")
    first, *_ = durable.pull()
    durable.ack(first)
    durable.restart()
    again = durable.pull()
    assert [one.message_id for one in again] == ids[1:]
    assert again[0].attributes == {"colour": "red"}


def test_an_ack_id_from_before_a_restart_still_acknowledges(durable: Any) -> None:
    durable.subscription()
    durable.publish("a")
    (received,) = durable.pull()
    durable.restart()
    durable.ack(received)
    assert durable.texts() == []
    durable.restart()
    assert durable.texts() == []


def test_resources_survive(durable: Any) -> None:
    durable.subscription(labels={"a": "b"}, enable_message_ordering=True, filter="attributes:x")
    durable.topic("projects/p/topics/other", message_retention_duration=timedelta(days=2))
    before = durable.core.get_subscription(SUBSCRIPTION).SerializeToString(deterministic=True)
    durable.restart()
    assert durable.core.get_subscription(SUBSCRIPTION).SerializeToString(deterministic=True) == before
    assert [one.name for one in durable.core.list_topics("projects/p")[0]] == [TOPIC, "projects/p/topics/other"]
    durable.core.delete_subscription(SUBSCRIPTION)
    durable.core.delete_topic(TOPIC)
    durable.restart()
    assert durable.core.list_subscriptions("projects/p") == ([], "")


def test_seeks_snapshots_and_retention_survive(durable: Any) -> None:
    durable.subscription(retain_acked_messages=True)
    durable.publish("a", "b")
    durable.core.create_snapshot("projects/p/snapshots/snap", SUBSCRIPTION)
    durable.ack(*durable.pull())
    durable.restart()
    durable.core.seek_to_time(SUBSCRIPTION, 0)
    durable.restart()
    durable.ack(*durable.pull())
    durable.restart()
    assert durable.texts() == []
    durable.core.seek_to_snapshot(SUBSCRIPTION, "projects/p/snapshots/snap")
    durable.restart()
    assert durable.texts() == ["a", "b"]


@pytest.mark.parametrize("cut", [1, 5, 9, 30])
def test_a_torn_last_record_is_dropped_and_the_rest_kept(durable: Any, cut: int) -> None:
    durable.subscription()
    durable.publish("whole")
    durable.publish("torn")
    path = segment(durable)
    durable.core.close()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - cut)
    durable.restart()
    assert durable.texts() == ["whole"]
    durable.publish("after")
    durable.restart()
    assert sorted(durable.texts()) == ["after", "whole"]


def test_a_damaged_middle_keeps_the_evidence(durable: Any) -> None:
    durable.subscription()
    durable.publish("first")
    size = segment(durable).stat().st_size
    durable.publish("second")
    durable.publish("third")
    path = segment(durable)
    durable.core.close()
    data = bytearray(path.read_bytes())
    data[size + 20] ^= 0xFF
    path.write_bytes(data)
    durable.restart()
    assert durable.texts() == ["first"]
    assert path.with_suffix(".damaged").stat().st_size == len(data) - size


def test_the_log_is_compacted_while_running_and_loses_nothing(durable_with: Callable[..., Any]) -> None:
    broker = durable_with(compact_bytes=20_000)
    broker.subscription()
    broker.publish("kept" + "x" * 1000)
    (kept,) = broker.pull()
    for _ in range(300):
        broker.publish("y" * 1000)
        broker.ack(*broker.pull())
    assert broker.core.stats().log_bytes < 60_000
    broker.restart()
    (again,) = broker.pull()
    assert again.message_id == kept.message_id
    assert broker.stats().backlog == 1


def test_compaction_keeps_everything_there_is_to_know(durable: Any) -> None:
    broker = durable
    dead = broker.topic("projects/p/topics/dead", message_retention_duration=timedelta(days=1))
    broker.subscription(
        retain_acked_messages=True,
        enable_message_ordering=True,
        dead_letter_policy={"dead_letter_topic": dead, "max_delivery_attempts": 5},
    )
    broker.publish("a", "b", "c", key="k")
    broker.publish("retained by its topic", topic=dead)
    first, second, _ = broker.pull()
    broker.ack(first)
    broker.core.create_snapshot("projects/p/snapshots/snap", SUBSCRIPTION)
    broker.nack(second)
    broker.core.compact()
    broker.restart()
    broker.publish("d", key="k")
    broker.core.compact()
    broker.restart()
    assert [(one.data, one.delivery_attempt) for one in broker.pull()] == [(b"b", 2), (b"c", 2), (b"d", 1)]
    broker.core.seek_to_snapshot(SUBSCRIPTION, "projects/p/snapshots/snap")
    assert broker.texts() == ["b", "c", "d"]
    broker.core.seek_to_time(SUBSCRIPTION, 0)
    assert broker.texts() == ["a", "b", "c", "d"]
    late = broker.subscription("projects/p/subscriptions/late", topic=dead)
    broker.core.seek_to_time(late, 0)
    assert broker.texts(subscription=late) == ["retained by its topic"]


def test_message_ids_are_not_reused_after_everything_was_compacted_away(durable: Any) -> None:
    durable.subscription()
    (before,) = durable.publish("a")
    durable.ack(*durable.pull())
    durable.core.compact()
    durable.restart()
    assert int(durable.publish("b")[0]) > int(before)


def test_an_interrupted_compaction_leaves_the_old_segment_in_charge(durable: Any) -> None:
    durable.subscription()
    durable.publish("a")
    durable.core.close()
    (durable.root / "segment-00000002.tmp").write_bytes(b"half of something")
    durable.restart()
    assert durable.texts() == ["a"]
    assert not list(durable.root.glob("*.tmp"))


def test_a_second_process_on_the_same_folder_is_refused(durable: Any) -> None:
    with pytest.raises(RuntimeError, match="another process"):
        PubSubCore(durable.root, clock=ManualClock(), hooks=Hooks("pubsub"))


def test_a_write_that_does_not_fit_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    journal.append(encode(RecordKind.STARTED, b"12345678"))
    monkeypatch.setattr("os.write", lambda fd, data: 3)
    with pytest.raises(PubSubError, match="no space"):
        journal.append(encode(RecordKind.STARTED, b"abcdefgh"))
    monkeypatch.undo()
    journal.append(encode(RecordKind.STARTED, b"87654321"))
    assert [record.payload for record in journal.replay()] == [b"12345678", b"87654321"]
    journal.close()
