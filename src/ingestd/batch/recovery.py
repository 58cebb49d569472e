"""What to load next, after a load succeeded or was refused: decisions only, no I/O.

Files that BigQuery names are set aside and the rest is loaded again. When it names none, the bad ones are found by
halving: half of the suspects is loaded; if that succeeds it is final, and the bad file is in the other half; if it is
refused, the other half goes back to the pool of files nobody suspects, which is loaded once the bad one is found.
One bad file costs at most ⌈log2 n⌉ loads to find and one for the pool, so k bad files of n cost at most
k·(⌈log2 n⌉ + 1) reloads. `max_reload` bounds them; what is left then fails as a whole.

No file is loaded twice: a chunk's next job is decided only after its last one ended, a refused job commits nothing,
and files that were loaded leave the chunk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ingestd.batch.content import Chunk, Fate, Load, Members, Progress, SetAside


@dataclass(frozen=True, slots=True)
class JobLimits:
    """What one load job may read."""

    files: int = 10_000
    size: int = 15 * 2**40


def begin(progress: Progress, sizes: Sequence[int], limits: JobLimits) -> Progress:
    """The first jobs: all files that are not set aside, in order, as many per job as it may read."""
    chunks: list[list[int]] = []
    size = 0
    for index, own in enumerate(sizes):
        if index in progress.aside:
            continue
        if not chunks or len(chunks[-1]) >= limits.files or (chunks[-1] and size + own > limits.size):
            chunks.append([])
            size = 0
        chunks[-1].append(index)
        size += own
    jobs = tuple(Chunk(number, tuple(chunk)) for number, chunk in enumerate(chunks, progress.jobs + 1))
    given = progress.give_out((part, len(chunks)) for part in range(1, len(chunks) + 1))
    return replace(given, chunks=jobs)


def loaded(
    progress: Progress, chunk: Chunk, rows: int, size: int, max_reload: int, *, cumulative: bool = False
) -> Progress:
    """The chunk's job succeeded: its files are done for good, and a bad one, if any was suspected, is in the rest.

    `cumulative`: bad rows are tolerated up to a number per job, so that files may be refused together and yet each be
    fine; then the rest is not suspected but tried.
    """
    done = replace(progress, loads=(*progress.loads, Load(chunk.job, chunk.files, rows, size)))
    suspects, pool = chunk.rest, chunk.pool
    if cumulative:
        suspects, pool = (), _sorted(chunk.rest, chunk.pool)
    return _go_on(done, chunk, suspects=suspects, pool=pool, blame=chunk.blame, max_reload=max_reload)


def taken_out(progress: Progress, chunk: Chunk, found: Mapping[int, SetAside], max_reload: int) -> Progress:
    """The chunk's job was refused over these files. The others are as good as unknown, whatever was suspected."""
    progress, pool = _without(progress, chunk, found)
    return _go_on(progress, chunk, suspects=(), pool=pool, blame=None, max_reload=max_reload)


def left_out(progress: Progress, chunk: Chunk, found: Mapping[int, SetAside]) -> Progress:
    """These files drop out before the chunk's job was submitted, so that it keeps its number.

    One of them may have been the bad one that was searched for: nothing is suspected any more.
    """
    progress, files = _without(progress, chunk, found)
    return _put(progress, chunk, Chunk(chunk.job, files, failures=chunk.failures) if files else None)


def suspected(progress: Progress, chunk: Chunk, blame: SetAside, max_reload: int) -> Progress:
    """The job was refused without naming a file: one of its files is bad, and the rest is suspected no more."""
    pool = _sorted(chunk.rest, chunk.pool)
    return _go_on(progress, chunk, suspects=chunk.files, pool=pool, blame=blame, max_reload=max_reload)


def repeated(progress: Progress, chunk: Chunk, *, failures: int) -> Progress:
    """The same files again, under the next number: a failed job's id is used up."""
    again = replace(chunk, job=progress.jobs + 1, failures=failures)
    return _put(progress.give_out_again(chunk.job), chunk, again)


def given_up(progress: Progress, chunk: Chunk, why: SetAside) -> Progress:
    """Whatever of the chunk is not loaded fails."""
    aside = {**progress.aside, **dict.fromkeys(chunk.all, why)}
    return _put(replace(progress, aside=aside), chunk, None)


def concluded(progress: Progress, count: int) -> Progress:
    """The last word, when nothing is left to load.

    Elimination proves a file bad only if others of the batch did load: when none did, the fault may be the table's
    or the rule's, and no file is blamed for it.
    """
    if progress.loaded or count == 1:
        return progress
    aside = {
        index: one if one.named or not one.fate.bad else replace(one, fate=Fate.FAILED)
        for index, one in progress.aside.items()
    }
    return replace(progress, aside=aside)


def _go_on(
    progress: Progress, chunk: Chunk, *, suspects: Members, pool: Members, blame: SetAside | None, max_reload: int
) -> Progress:
    """The chunk's next job: half of the suspects while there are several, then the pool."""
    if len(suspects) == 1:
        assert blame is not None
        found = replace(blame, named=False)
        progress = replace(progress, aside={**progress.aside, suspects[0]: found})
        suspects = ()
    if not suspects and not pool:
        return _put(progress, chunk, None)
    half = len(suspects) // 2
    following = Chunk(
        job=progress.jobs + 1,
        files=suspects[:half] if suspects else pool,
        rest=suspects[half:],
        pool=pool if suspects else (),
        blame=blame if suspects else None,
    )
    if progress.reloads >= max_reload:
        reason = blame.why if blame else next((one.why for one in progress.aside.values() if one.fate.bad), "")
        job_id = blame.job_id if blame else ""
        why = f"still refused after {max_reload} reloads: {reason}".rstrip(": ")
        return given_up(progress, replace(following, job=chunk.job), SetAside(Fate.FAILED, why, job_id))
    given = progress.give_out_again(chunk.job)
    return _put(replace(given, reloads=progress.reloads + 1), chunk, following)


def _without(progress: Progress, chunk: Chunk, found: Mapping[int, SetAside]) -> tuple[Progress, Members]:
    own = set(chunk.all)
    aside = {index: one for index, one in found.items() if index in own}
    left = tuple(index for index in chunk.all if index not in aside)
    return replace(progress, aside={**progress.aside, **aside}), left


def _sorted(*groups: Members) -> Members:
    return tuple(sorted(index for group in groups for index in group))


def _put(progress: Progress, chunk: Chunk, following: Chunk | None) -> Progress:
    """The progress with the chunk replaced; a chunk is known by its job's number."""
    chunks = [following if one.job == chunk.job else one for one in progress.chunks]
    return replace(progress, chunks=tuple(one for one in chunks if one is not None))
