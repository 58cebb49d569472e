"""Records of batches, as short as a test wants them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ingestd.batch.content import Fate, Load, Progress, SetAside
from ingestd.batch.phases import Phase
from ingestd.batch.record import Kind, Record
from ingestd.model.objects import FileVersion, Generation, ObjectRef

START = datetime(2024, 5, 1, 12, tzinfo=UTC)


def file(name: str, generation: int = 1, size: int = 10, bucket: str = "b") -> FileVersion:
    return FileVersion(ObjectRef(bucket, name), Generation(generation), size, START - timedelta(minutes=generation))


def record(*files: FileVersion, **changes: Any) -> Record:
    given = files or (file("data/a.json"),)
    made = Record(
        event_id=given[0].event_id,
        kind=Kind.LOAD,
        phase=Phase.ACCEPTED,
        dest="d.t",
        files=given,
        rule={},
        rule_url="gs://config/rules/r.yaml",
        rule_name="r",
        rule_hash="h",
        created=START,
        updated=START,
        project="p",
        load={"destinationTable": {"projectId": "p", "datasetId": "d", "tableId": "t$20240501"}},
        revision=1,
    )
    return replace(made, **changes)


def done(*files: FileVersion, **changes: Any) -> Record:
    given = files or (file("data/a.json"),)
    loads = (Load(1, tuple(range(len(given))), rows=2 * len(given), size=20),)
    more = {"phase": Phase.DONE, "rows": 2 * len(given), "progress": Progress(loads=loads, jobs=1), "revision": 3}
    return record(*given, **(more | changes))


def failed(*files: FileVersion, **changes: Any) -> Record:
    given = files or (file("data/a.json"),)
    aside = {place: SetAside(Fate.CORRUPTED, "bad") for place in range(len(given))}
    more = {"phase": Phase.FAILED, "error": "bad", "progress": Progress(aside=aside, jobs=1), "revision": 3}
    return record(*given, **(more | changes))
