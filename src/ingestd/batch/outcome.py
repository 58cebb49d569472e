"""What a batch came to, as its record tells: decisions only, no I/O."""

from dataclasses import replace

from ingestd.batch.content import Fate, Progress, SetAside
from ingestd.batch.phases import Phase
from ingestd.batch.pinned import UNMATCHED
from ingestd.batch.record import Record


def unloaded(progress: Progress, why: SetAside) -> Progress:
    """What was landed and never published was not loaded."""
    landed = {index: why for load in progress.loads for index in load.files}
    return replace(progress, loads=(), aside={**progress.aside, **landed})


def concluded_phase(record: Record) -> Record:
    """The record in the phase that follows from what became of its files."""
    progress = record.progress
    if progress.loaded:
        return record.enter(Phase.LOADED, rows=progress.claimed, error="" if not progress.wrong else record.error)
    why = next((progress.aside[index].why for index in (*progress.wrong, *sorted(progress.aside))), record.error)
    if progress.wrong:
        return record.enter(Phase.FAILING, error=record.error or why)
    for fate, phase in ((Fate.SUPERSEDED, Phase.SUPERSEDED), (Fate.IGNORED, Phase.IGNORED)):
        if progress.with_fate(fate):
            return record.enter(phase, error=why)
    return record.enter(Phase.MISSING, error=why)


def abandoned(record: Record, error: str) -> Record:
    """A batch that is given up in the middle: what is not committed by now fails, and it is said what is."""
    progress = record.progress
    if there := ", ".join(str(one) for one in progress.published if one.branch != UNMATCHED):
        error = f"{error}; these tables have got their rows: {there}"
    why = SetAside(Fate.FAILED, error)
    if record.lands_apart:
        progress = unloaded(progress, why)
    settled = {*progress.loaded, *progress.aside}
    left = (index for index in range(len(record.files)) if index not in settled)
    progress = replace(progress, chunks=(), aside={**progress.aside, **dict.fromkeys(left, why)})
    return concluded_phase(replace(record, progress=progress, error=error))
