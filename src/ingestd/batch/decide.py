"""What to do next with a batch: a function of its record and of what was observed, and of nothing else.

Each command is carried out by one stage (see `stages`), which leaves the record further than it was, or raises.
"""

from dataclasses import dataclass
from enum import StrEnum

from ingestd.batch.content import Fate
from ingestd.batch.phases import Phase, Stage
from ingestd.batch.record import Kind, Record
from ingestd.batch.steps import Way, next_step

_GONE = (Fate.SUPERSEDED, Fate.MISSING)


class Command(StrEnum):
    REOPEN = "reopen"  # a route that is replayed: its job tells which of its actions are meant
    PIN = "pin"  # a success file's directory: what lies in it, and how it is loaded
    READY = "ready"  # the destination, the project and the engine
    ADOPT = "adopt"  # one job for all files, which may exist already
    LOOK = "look"  # at the sources, and decide which jobs load them
    PREPARE = "prepare"  # rows, until a manifest is pinned
    LAND = "land"  # a round of load jobs over the files
    POUR = "pour"  # a round of load jobs over prepared files
    QUERY = "query"  # the job that is a directory's own query
    HEAR = "hear"  # a job that somebody before us may have submitted behind the record's back
    CHECK = "check"  # that what landed apart may be published
    PUBLISH = "publish"  # the next step from the batch's own table to a target
    CONCLUDE = "conclude"  # enter the phase that follows from what became of the files
    SUCCEED = "succeed"  # OnSuccess
    FAIL = "fail"  # OnFailure
    END = "end"


@dataclass(frozen=True, slots=True)
class Observed:
    """What this drive of the batch knows beside the record."""

    way: Way
    pinned: bool = True
    ready: bool = True
    exists: bool = False  # the first job of the batch, although the record does not know of it
    checked: bool = False
    heard: bool = False


def decide(record: Record, observed: Observed) -> Command:
    if record.phase is not Phase.ACCEPTED:
        return {Phase.LOADED: Command.SUCCEED, Phase.FAILING: Command.FAIL}.get(record.phase, Command.END)
    if record.kind is Kind.ROUTE:
        return Command.REOPEN
    if not observed.pinned:
        return Command.PIN
    if not observed.ready:
        return Command.READY
    way, stage = observed.way, record.stage
    if stage is Stage.PREPARE or (stage is Stage.LOOK and way is Way.PREPARED):
        return Command.PREPARE
    if stage is Stage.LOOK:
        return Command.ADOPT if observed.exists or way is Way.QUERY else Command.LOOK
    if stage is Stage.LAND:
        return {Way.PREPARED: Command.POUR, Way.QUERY: Command.QUERY}.get(way, Command.LAND)
    if stage is Stage.PUBLISH:
        return _publish(record, observed)
    return Command.HEAR if _outrun(record, observed) else Command.CONCLUDE


def _publish(record: Record, observed: Observed) -> Command:
    if not observed.checked:
        return Command.CHECK
    return Command.PUBLISH if next_step(record) is not None else Command.CONCLUDE


def _outrun(record: Record, observed: Observed) -> bool:
    """Whether all files dropped out before a job was submitted, which somebody else may be about to do."""
    if observed.heard or observed.way is Way.PREPARED:
        return False
    return not (record.progress.loads or record.success) and bool(gone_unread(record))


def gone_unread(record: Record) -> list[int]:
    """The files that went away before a job of ours could read them."""
    return [index for index, one in record.progress.aside.items() if one.fate in _GONE and not one.job_id]
