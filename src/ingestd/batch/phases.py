"""A batch's phases, the stages an accepted one goes through, and the steps between them that there are.

The phase is stored. The stage follows from the rest of the record (`Record.stage`).
"""

from enum import StrEnum


class Phase(StrEnum):
    ACCEPTED = "accepted"  # durable; its load job may or may not have been submitted
    LOADED = "loaded"  # the load is proven; OnSuccess actions may have begun
    FAILING = "failing"  # the load finally failed; OnFailure actions may have begun
    DONE = "done"
    FAILED = "failed"
    SUPERSEDED = "superseded"  # overwritten before it was loaded: the newer generation has its own batch
    MISSING = "missing"  # deleted before it was loaded
    IGNORED = "ignored"  # other batches have its files, or our own move put them there

    @property
    def final(self) -> bool:
        return not _NEXT[self]

    def may_become(self, phase: "Phase") -> bool:
        return phase in _NEXT[self]


_NEXT: dict[Phase, frozenset[Phase]] = {
    Phase.ACCEPTED: frozenset({Phase.LOADED, Phase.FAILING, Phase.SUPERSEDED, Phase.MISSING, Phase.IGNORED}),
    Phase.LOADED: frozenset({Phase.DONE, Phase.FAILED, Phase.FAILING}),  # FAILING: a part of it did not load
    Phase.FAILING: frozenset({Phase.FAILED, Phase.DONE}),  # DONE: a route that dealt with somebody's failed job
    Phase.DONE: frozenset(),
    Phase.FAILED: frozenset(),
    Phase.SUPERSEDED: frozenset(),
    Phase.MISSING: frozenset(),
    Phase.IGNORED: frozenset(),
}


class Stage(StrEnum):
    """How far an accepted batch has come. It follows from the record, so records of every version tell it."""

    LOOK = "look"  # it is not decided yet which jobs load its files
    PREPARE = "prepare"  # an attempt at preparing its rows may have begun; none counts yet
    LAND = "land"  # which jobs load its rows is decided, and not all of them are proven
    PUBLISH = "publish"  # its rows are in a table of its own, all of them, and go from there to their targets
    PROVE = "prove"  # every file's rows are where they belong, or the file is set aside: the end is to be told
    ACT = "act"  # it is known how the load ended: what is left are actions, or nothing

    def may_become(self, stage: "Stage") -> bool:
        return stage is self or stage in _NEXT_STAGE[self]


_NEXT_STAGE: dict[Stage, frozenset[Stage]] = {
    Stage.LOOK: frozenset({Stage.PREPARE, Stage.LAND, Stage.PROVE, Stage.ACT}),
    Stage.PREPARE: frozenset({Stage.LAND, Stage.PUBLISH, Stage.PROVE, Stage.ACT}),
    # Back: what the jobs were to read is gone, or BigQuery takes no such job.
    Stage.LAND: frozenset({Stage.PUBLISH, Stage.PROVE, Stage.LOOK, Stage.PREPARE, Stage.ACT}),
    # Back: what was landed is gone, or is not the batch's. PROVE: a part of it must not be published.
    Stage.PUBLISH: frozenset({Stage.PROVE, Stage.LOOK, Stage.PREPARE, Stage.ACT}),
    # LAND: a job turned up that somebody else had submitted. LOOK: a directory that has other files by now.
    Stage.PROVE: frozenset({Stage.LAND, Stage.LOOK, Stage.ACT}),
    Stage.ACT: frozenset(),
}


class IllegalTransition(RuntimeError):  # noqa: N818 - a programming error, named for what it is
    def __init__(self, before: Phase | Stage, after: Phase | Stage) -> None:
        super().__init__(f"a batch cannot go from {before} to {after}")
