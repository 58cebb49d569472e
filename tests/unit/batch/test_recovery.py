"""Bad files are found exactly, no file loads twice, and the number of loads stays within its bound."""

from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingestd.batch.content import Chunk, Fate, Progress, SetAside, members, spans
from ingestd.batch.recovery import (
    JobLimits,
    begin,
    concluded,
    given_up,
    left_out,
    loaded,
    repeated,
    suspected,
    taken_out,
)

BAD = SetAside(Fate.CORRUPTED, "a row is broken", "job")
SCHEMA = SetAside(Fate.INVALID_SCHEMA, "no such field", "job")
PLENTY = 10_000


def start(count: int, limits: JobLimits | None = None) -> Progress:
    return begin(Progress(), [1] * count, limits or JobLimits())


def run(progress: Progress, bad: set[int], *, named: int = 0, max_reload: int = PLENTY) -> tuple[Progress, int]:
    """Play BigQuery, which names up to `named` bad files per job; the end, and how many jobs it took."""
    jobs = 0
    numbers: set[int] = set()
    while progress.chunks:
        chunk = progress.chunks[-1]  # any order of completions will do
        assert chunk.files, "no job is submitted for nothing"
        assert chunk.job not in numbers, "a job id is used once"
        numbers.add(chunk.job)
        jobs += 1
        found = [index for index in chunk.files if index in bad]
        if not found:
            progress = loaded(progress, chunk, len(chunk.files), 0, max_reload)
        elif named:
            progress = taken_out(progress, chunk, dict.fromkeys(found[:named], BAD), max_reload)
        else:
            progress = suspected(progress, chunk, BAD, max_reload)
    return progress, jobs


def everything(progress: Progress) -> list[int]:
    return sorted((*progress.loaded, *(i for i, one in progress.aside.items() if one.fate is not Fate.READ_EARLIER)))


batches = st.integers(1, 300).flatmap(
    lambda count: st.tuples(st.just(count), st.sets(st.integers(0, count - 1), max_size=min(count, 12)))
)


@given(batches)
def test_exactly_the_bad_files_are_set_aside_when_none_is_named(batch: tuple[int, set[int]]) -> None:
    count, bad = batch
    progress, jobs = run(start(count), bad)
    assert set(progress.with_fate(Fate.CORRUPTED)) == bad
    assert set(progress.loaded) == set(range(count)) - bad
    assert everything(progress) == list(range(count))
    assert jobs <= len(bad) * (ceil(log2(count)) + 1) + 1 if count > 1 else jobs == 1


@pytest.mark.parametrize("count", [2, 3, 10, 100, 1000, 10_000])
def test_one_bad_file_costs_its_search_and_one_load_of_the_others(count: int) -> None:
    for bad in {0, 1, count // 3, count // 2, count - 1}:
        progress, jobs = run(start(count), {bad})
        assert progress.with_fate(Fate.CORRUPTED) == (bad,)
        assert jobs - 1 <= ceil(log2(count)) + 1  # reloads: k·⌈log2 n⌉ + 1 for k = 1
        assert progress.reloads == jobs - 1


@given(batches, st.integers(1, 5))
def test_named_files_cost_one_reload_per_answer(batch: tuple[int, set[int]], named: int) -> None:
    count, bad = batch
    progress, jobs = run(start(count), bad, named=named)
    assert set(progress.with_fate(Fate.CORRUPTED)) == bad
    assert jobs <= ceil(len(bad) / named) + 1


@given(batches, st.integers(0, 20), st.integers(0, 3))
def test_reloads_never_pass_their_limit_and_no_file_is_forgotten(
    batch: tuple[int, set[int]], max_reload: int, named: int
) -> None:
    count, bad = batch
    progress, jobs = run(start(count), bad, named=named, max_reload=max_reload)
    assert progress.reloads <= max_reload
    assert jobs <= max_reload + 1
    assert everything(progress) == list(range(count))
    assert set(progress.loaded).isdisjoint(bad)
    assert set(progress.with_fate(Fate.CORRUPTED)) <= bad


@given(batches, st.integers(1, 40))
def test_large_batches_are_searched_part_by_part(batch: tuple[int, set[int]], per_job: int) -> None:
    count, bad = batch
    progress = start(count, JobLimits(files=per_job))
    assert len(progress.chunks) == ceil(count / per_job)
    progress, _ = run(progress, bad)
    assert set(progress.with_fate(Fate.CORRUPTED)) == bad
    assert set(progress.loaded) == set(range(count)) - bad


def test_jobs_are_cut_by_size_and_a_giant_goes_alone() -> None:
    progress = begin(Progress(), [4, 4, 30, 4, 4], JobLimits(files=10, size=10))
    assert [chunk.files for chunk in progress.chunks] == [(0, 1), (2,), (3, 4)]
    assert [chunk.job for chunk in progress.chunks] == [1, 2, 3]


def test_a_batch_begun_again_leaves_out_what_is_settled_and_uses_new_numbers() -> None:
    progress = Progress(aside={1: SetAside(Fate.LOADED, "before")}, jobs=4)
    again = begin(progress, [1, 1, 1], JobLimits(files=1))
    assert [(chunk.job, chunk.files) for chunk in again.chunks] == [(5, (0,)), (6, (2,))]


def test_a_batch_of_which_nothing_loads_blames_no_file_by_elimination() -> None:
    progress, _ = run(start(4), {0, 1, 2, 3})
    final = concluded(progress, 4)
    assert {one.fate for one in final.aside.values()} == {Fate.FAILED}
    alone, _ = run(start(1), {0})
    assert concluded(alone, 1).with_fate(Fate.CORRUPTED) == (0,)
    named, _ = run(start(2), {0, 1}, named=2)
    assert concluded(named, 2).with_fate(Fate.CORRUPTED) == (0, 1)


def test_a_suspect_that_vanishes_clears_the_others() -> None:
    """The vanished file may have been the bad one: blaming what is left would be a guess."""
    progress = suspected(start(2), start(2).chunks[0], BAD, PLENTY)
    (probe,) = progress.chunks
    assert (probe.files, probe.rest) == ((0,), (1,))
    progress = left_out(progress, probe, {0: SetAside(Fate.MISSING, "gone")})
    (chunk,) = progress.chunks
    assert (chunk.files, chunk.rest, chunk.job) == ((1,), (), probe.job)
    progress, _ = run(progress, set())
    assert progress.loaded == (1,)


def test_files_refused_only_together_are_not_blamed() -> None:
    progress = suspected(start(2), start(2).chunks[0], BAD, PLENTY)
    progress = loaded(progress, progress.chunks[0], 1, 0, PLENTY, cumulative=True)
    progress = loaded(progress, progress.chunks[0], 1, 0, PLENTY, cumulative=True)
    assert progress.loaded == (0, 1)
    assert not progress.aside


def test_a_repetition_keeps_the_files_and_takes_the_next_number() -> None:
    progress = start(6, JobLimits(files=2))
    again = repeated(progress, progress.chunks[1], failures=1)
    assert [chunk.job for chunk in again.chunks] == [1, 4, 3]
    assert again.chunks[1].files == progress.chunks[1].files
    assert again.reloads == 0
    once_more = repeated(again, again.chunks[0], failures=1)
    assert [chunk.job for chunk in once_more.chunks] == [5, 4, 3], "a number is a job's id: none is used twice"


def test_giving_up_a_chunk_keeps_the_others() -> None:
    progress = start(4, JobLimits(files=2))
    progress = given_up(progress, progress.chunks[0], SetAside(Fate.FAILED, "cancelled"))
    assert [chunk.files for chunk in progress.chunks] == [(2, 3)]
    assert progress.with_fate(Fate.FAILED) == (0, 1)


@given(st.sets(st.integers(0, 400)))
def test_spans_say_the_same_when_read_back(indexes: set[int]) -> None:
    assert members(spans(indexes)) == tuple(sorted(indexes))


@given(batches, st.integers(0, 30))
def test_progress_says_the_same_when_read_back(batch: tuple[int, set[int]], steps: int) -> None:
    count, bad = batch
    progress = start(count, JobLimits(files=50))
    for _ in range(steps):
        if not progress.chunks:
            break
        chunk: Chunk = progress.chunks[0]
        if bad.intersection(chunk.files):
            progress = suspected(progress, chunk, SCHEMA, PLENTY)
        else:
            progress = loaded(progress, chunk, 3, 7, PLENTY)
    assert Progress.from_json(progress.to_json()) == progress
