"""What is done next with a batch follows from its record and what was observed, by this table."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from tests.support.records import START, file, pinned_rule, record

from ingestd.batch.content import Chunk, Fate, Load, Progress, SetAside
from ingestd.batch.decide import Command, Observed, decide
from ingestd.batch.drive import Drive
from ingestd.batch.journal import Held
from ingestd.batch.marks import SuccessMark
from ingestd.batch.phases import IllegalTransition, Phase, Stage
from ingestd.batch.pinned import HOME, Pinned, Pour, Published
from ingestd.batch.record import Kind, Record
from ingestd.batch.steps import Way, way_of
from ingestd.model.objects import Generation
from ingestd.model.preparation import Output, Prepared

DIRECT, PREPARED, QUERY = Observed(Way.DIRECT), Observed(Way.PREPARED), Observed(Way.QUERY)
RULE = pinned_rule({"Dest": {"Table": "d.t"}})
HEARD = replace(DIRECT, heard=True)
GONE = {0: SetAside(Fate.MISSING, "no longer exists")}
DIRECTORY = SuccessMark("gs://b/d/_SUCCESS", Generation(1), resolved=True)
PUBLISHED = (Published(HOME, "d.t", 2, "j"),)


def begun(**changes: Any) -> Progress:
    return Progress(jobs=1, **changes)


def pinned(done: bool) -> Progress:
    pour = Pour(0, 0, 1, 1, rows=2 if done else None)
    return begun(preparing=1, pinned=Pinned(Prepared(1, "AVRO", (), (Output(HOME, ("gs://s/1",), 2, 9),)), (pour,)))


def staged(progress: Progress) -> Progress:
    return replace(progress, staged=True)


LOADED = begun(loads=(Load(1, (0,), 2, 9),))


@pytest.mark.parametrize(
    ("changes", "observed", "stage", "command"),
    [
        # A fresh batch: known before it is looked at, looked at before a job.
        ({}, replace(DIRECT, ready=False), Stage.LOOK, Command.READY),
        ({}, DIRECT, Stage.LOOK, Command.LOOK),
        ({}, replace(DIRECT, exists=True), Stage.LOOK, Command.ADOPT),
        ({}, PREPARED, Stage.LOOK, Command.PREPARE),
        # A directory is pinned first, every time, whatever is known of it.
        ({"trigger": DIRECTORY}, replace(DIRECT, pinned=False, ready=False), Stage.LOOK, Command.PIN),
        ({"trigger": replace(DIRECTORY, resolved=False), "files": ()}, DIRECT, Stage.LOOK, Command.LOOK),
        ({"trigger": DIRECTORY}, QUERY, Stage.LOOK, Command.ADOPT),
        # An attempt at preparing counts when its manifest is pinned.
        ({"progress": Progress(preparing=2)}, PREPARED, Stage.PREPARE, Command.PREPARE),
        ({"progress": pinned(done=False)}, PREPARED, Stage.LAND, Command.POUR),
        ({"progress": pinned(done=True)}, PREPARED, Stage.PROVE, Command.CONCLUDE),
        ({"progress": staged(pinned(done=True))}, PREPARED, Stage.PUBLISH, Command.CHECK),
        # Loads of files as they are.
        ({"progress": begun(chunks=(Chunk(1, (0,)),))}, DIRECT, Stage.LAND, Command.LAND),
        ({"progress": staged(begun(chunks=(Chunk(1, (0,)),)))}, DIRECT, Stage.LAND, Command.LAND),
        ({"progress": begun(chunks=(Chunk(1, (0,)),)), "trigger": DIRECTORY}, QUERY, Stage.LAND, Command.QUERY),
        ({"progress": LOADED}, DIRECT, Stage.PROVE, Command.CONCLUDE),
        # What landed apart is checked, then published, then it is over.
        ({"progress": staged(LOADED)}, DIRECT, Stage.PUBLISH, Command.CHECK),
        ({"progress": staged(LOADED)}, replace(DIRECT, checked=True), Stage.PUBLISH, Command.PUBLISH),
        (
            {"progress": staged(replace(LOADED, published=PUBLISHED))},
            replace(DIRECT, checked=True),
            Stage.PUBLISH,
            Command.CONCLUDE,
        ),
        # Nothing is left to load. Somebody else may have submitted a job all the same.
        ({"progress": Progress(aside=GONE)}, DIRECT, Stage.PROVE, Command.HEAR),
        ({"progress": Progress(aside=GONE)}, HEARD, Stage.PROVE, Command.CONCLUDE),
        ({"progress": Progress(aside=GONE, staged=True)}, DIRECT, Stage.PROVE, Command.HEAR),
        ({"progress": Progress(aside=GONE)}, PREPARED, Stage.PROVE, Command.CONCLUDE),
        ({"progress": Progress(aside={0: SetAside(Fate.MISSING, "", "j")})}, DIRECT, Stage.PROVE, Command.CONCLUDE),
        ({"progress": Progress(aside={0: SetAside(Fate.IGNORED, "")})}, DIRECT, Stage.PROVE, Command.CONCLUDE),
        # How it ended decides about the actions, whatever the way was.
        ({"phase": Phase.LOADED, "progress": LOADED}, DIRECT, Stage.ACT, Command.SUCCEED),
        ({"phase": Phase.FAILING}, PREPARED, Stage.ACT, Command.FAIL),
        *[({"phase": phase}, DIRECT, Stage.ACT, Command.END) for phase in Phase if phase.final],
        # A route has a job instead of files.
        ({"kind": Kind.ROUTE, "files": ()}, DIRECT, Stage.PROVE, Command.REOPEN),
        ({"kind": Kind.ROUTE, "files": (), "phase": Phase.FAILING}, DIRECT, Stage.ACT, Command.FAIL),
    ],
)
def test_the_next_command_follows_from_record_and_observation(
    changes: dict[str, Any], observed: Observed, stage: Stage, command: Command
) -> None:
    batch = record(**{"rule": RULE, **changes})
    assert (batch.stage, decide(batch, observed)) == (stage, command)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"progress": staged(LOADED)}),  # published without having landed
        ({"progress": LOADED}, {"progress": Progress(preparing=1)}),
        ({"progress": staged(LOADED)}, {"progress": staged(begun(chunks=(Chunk(1, (0,)),)))}),
        ({"phase": Phase.LOADED}, {"phase": Phase.ACCEPTED}),
    ],
)
def test_a_step_that_no_batch_may_take_raises(before: dict[str, Any], after: dict[str, Any]) -> None:
    settings = SimpleNamespace(engine="spark")
    drive = Drive(cast("Any", SimpleNamespace(settings=settings)), Held(record(**before), Generation(1)))
    with pytest.raises(IllegalTransition):
        drive.change(**after)
    assert drive.record == record(**before)


def test_every_stage_but_the_last_can_be_left_and_the_last_cannot() -> None:
    ways_out = {stage: [after for after in Stage if after is not stage and stage.may_become(after)] for stage in Stage}
    assert not ways_out.pop(Stage.ACT)
    assert all(Stage.ACT in after for after in ways_out.values())


BEFORE = [orjson.loads(line) for line in (Path(__file__).parent / "running_before.jsonl").read_bytes().splitlines()]


@pytest.mark.parametrize("stored", BEFORE, ids=lambda one: f"{one['stage']}-{one['command']}")
def test_a_batch_of_the_version_before_goes_on_where_it_was(stored: dict[str, Any]) -> None:
    """Records as the daemon wrote them that knew no stages, and what this one does next with them."""
    batch = Record.from_json(orjson.dumps(stored["record"]))
    way = way_of(batch, "bigquery") if batch.kind is Kind.LOAD else Way.DIRECT
    observed = Observed(way, pinned=batch.success is None or batch.progress.begun, checked=True)
    assert (batch.stage, decide(batch, observed)) == (stored["stage"], stored["command"])


@pytest.mark.parametrize("stored", BEFORE, ids=lambda one: f"{one['stage']}-{one['command']}")
def test_the_version_before_reads_in_a_record_what_it_wrote_itself(stored: dict[str, Any]) -> None:
    written = orjson.loads(Record.from_json(orjson.dumps(stored["record"])).to_json())
    written.pop("Stage", None)
    assert orjson.dumps(written) == orjson.dumps(stored["record"]), "the same, and in the same order"


def test_a_file_more_than_was_set_aside_is_still_to_be_looked_at() -> None:
    two = record(file("a.json"), file("b.json"), progress=Progress(aside=GONE), created=START - timedelta(days=1))
    assert two.stage is Stage.LOOK
