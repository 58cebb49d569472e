"""Windows as values: where a file belongs, and what an open window holds."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from ingestd.batch.rule import PinnedRule
from ingestd.collect.windows.model import Arrival, WindowId, WindowKey, late_due, window_of
from ingestd.collect.windows.pending import OpenWindow, Pending
from ingestd.collect.windows.store import WindowHead
from ingestd.model.objects import FileVersion, Generation, ObjectRef
from ingestd.rules.rule import Rule
from ingestd.rules.schema import RuleSpec

moments = st.datetimes(datetime(2015, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
durations = st.integers(1, 100_000)
names = st.from_regex(r"[a-z]{1,3}(/[a-z]{1,3}){0,2}\.(json|csv)(\.gz)?", fullmatch=True)


def rule(**batch: object) -> Rule:
    document = {"When": {"Prefix": "/"}, "Dest": {"Table": "d.t"}, "Batch": {"Window": {"DurationInSec": 10}, **batch}}
    return Rule.of(RuleSpec.model_validate(document), "rules/r.json")


def file(name: str, moment: datetime, generation: int = 1) -> FileVersion:
    return FileVersion(ObjectRef("b", name), Generation(generation), 10, moment)


@settings(max_examples=100, deadline=None)
@given(names, moments, durations)
def test_a_file_lies_within_its_window(name: str, moment: datetime, seconds: int) -> None:
    window = window_of(rule(), file(name, moment), "d.t", seconds)
    assert window.start % seconds == 0
    assert window.start <= moment.timestamp() < window.start + seconds
    assert window.due > moment


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(names, moments), min_size=2, max_size=6), durations, st.booleans())
def test_windows_have_one_name_each(files: list[tuple[str, datetime]], seconds: int, multi_path: bool) -> None:
    windows = {window_of(rule(MultiPath=multi_path), file(name, moment), "d.t", seconds) for name, moment in files}
    every = {one for window in windows for one in (window, window.next(), window.next().next())}
    assert len({one.name for one in every}) == len({one.event_id for one in every}) == len(every)
    for one in every:
        assert WindowId.from_json(one.to_json()) == one


@settings(max_examples=100, deadline=None)
@given(moments, durations, moments, st.integers(0, 1000))
def test_a_late_window_is_due_in_time(start: datetime, seconds: int, now: datetime, patience: int) -> None:
    window = WindowId(WindowKey("r", "d.t", "", ".json"), int(start.timestamp()), seconds, 1)
    due = late_due(window, now, timedelta(seconds=patience))
    assert due >= now
    assert due == window.due or due - now <= timedelta(seconds=min(patience, seconds))


class Nothing:
    def ack(self) -> None: ...


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20)),
        st.tuples(st.just("take"), st.integers(0, 6)),
        st.tuples(st.just("put_back"), st.just(0)),
        st.tuples(st.just("know"), st.integers(0, 20)),
        st.tuples(st.just("duplicates"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_an_open_window_neither_drops_nor_repeats_what_it_was_given(plan: list[tuple[str, int]]) -> None:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    window_id = WindowId(WindowKey("r", "d.t", "", ".json"), 0, 10)
    head = WindowHead(window_id, "me", moment, PinnedRule({}, "", ""), "d.t", {}, {}, False)
    window = OpenWindow(window_id, head, moment)
    inside: list[Pending] = []
    taken: list[Pending] = []
    for step, number in plan:
        arrival = Arrival.of(file(f"f{number}.json", moment), None)
        if step == "add":
            inside.append(Pending.brought(arrival, Nothing()))
            window.add(inside[-1], 0.0)
        elif step == "take":
            taken = window.take(number)
            assert [id(one) for one in taken] == [id(one) for one in inside[:number]]
            inside = inside[number:]
        elif step == "put_back":
            window.put_back(taken)
            inside, taken = taken + inside, []
        elif step == "know":
            window.known.add(arrival.digest)
        else:
            duplicates = window.take_duplicates()
            assert [id(one) for one in duplicates] == [id(one) for one in inside if one.digest in window.known]
            inside = [one for one in inside if one.digest not in window.known]
        assert [id(one) for one in window.pending] == [id(one) for one in inside]
