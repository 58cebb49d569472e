"""What the console remembers, and that it forgets in time."""

from datetime import UTC, datetime, timedelta

from ingestd.ops.history import FILES_REMEMBERED, Ended, History, Level, Trouble, TroubleKind
from ingestd.ops.labels import OTHER, BoundedLabel

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def ended(number: int, **changes: object) -> Ended:
    values = {
        "event_id": str(number),
        "kind": "load",
        "phase": "done",
        "rule": "orders",
        "dest": "shop.orders",
        "files": 2,
        "rows": 10,
        "size": 100,
        "attempts": 1,
        "created": NOW,
        "ended": NOW,
        "source": f"gs://b/{number}",
        "window": "",
        "error": "",
        "record": "gs://ops/r",
        "fates": {"done": 2},
        "newest": NOW,
    }
    return Ended(**{**values, **changes})  # type: ignore[arg-type]


def test_only_the_latest_batches_are_kept_and_found() -> None:
    history = History(size=3)
    for number in range(5):
        history.ended(ended(number), [f"gs://b/{number}"], [1.0])
    assert [one.event_id for one in history.recent()] == ["4", "3", "2"]
    assert history.batch("0") is None and history.batch_of("gs://b/1") is None
    assert history.batch_of("gs://b/4") is history.batch("4")
    assert (history.batch_count, history.totals.rows, history.rules["orders"].files["done"]) == (5, 50, 10)


def test_a_replayed_batch_is_found_by_its_last_end() -> None:
    history = History(size=2)
    history.ended(ended(1, phase="failed"), ["gs://b/1"], [])
    history.ended(ended(1), ["gs://b/1"], [])
    history.ended(ended(2), ["gs://b/2"], [])  # drops the first end, not the second
    found = history.batch_of("gs://b/1")
    assert found is not None and found.phase == "done"


def test_files_are_remembered_up_to_a_bound() -> None:
    history = History()
    history.ended(ended(1), (f"gs://b/{number}" for number in range(FILES_REMEMBERED + 10)), [])
    assert history.batch_of("gs://b/0") is None
    assert history.batch_of(f"gs://b/{FILES_REMEMBERED + 9}") is not None


def test_a_sample_counts_what_ended_since_the_one_before() -> None:
    history = History()
    history.ended(ended(1), [], [2.0, 4.0, 9.0])
    history.tick(NOW, Level(windows=3))
    history.tick(NOW + timedelta(seconds=2), Level())  # too early for another
    history.ended(ended(2, rows=7), [], [])
    history.tick(NOW + timedelta(seconds=5), Level())
    seconds, (first, second) = history.samples(60)
    assert (seconds, first.files, first.rows, first.typical, first.slowest, first.level.windows) == (
        5,
        2,
        10,
        4.0,
        9.0,
        3,
    )
    assert (second.rows, second.typical, second.slowest) == (7, None, None)


def test_a_day_is_sampled_by_the_minute() -> None:
    history = History()
    for minute in range(1_500):
        history.tick(NOW + timedelta(minutes=minute), Level())
    seconds, samples = history.samples(1_440)
    assert (seconds, len(samples)) == (60, 1_440)


def test_a_batch_that_is_blocked_again_and_again_is_one_line() -> None:
    history = History()
    for minute in range(3):
        at = NOW + timedelta(minutes=minute)
        history.trouble(Trouble(at, TroubleKind.BLOCKED, "gs://b/1", "no dataset", event_id="1"))
    (one,) = history.recent_troubles()
    assert one.at == NOW + timedelta(minutes=2)
    assert history.trouble_counts[TroubleKind.BLOCKED] == 3


def test_names_beyond_the_bound_share_one_label() -> None:
    label = BoundedLabel(limit=2)
    assert [label.of(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]
