"""Records of batches, as short as a test wants them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ingestd.batch.content import Fate, Load, Progress, SetAside
from ingestd.batch.phases import Phase
from ingestd.batch.placement import Placement
from ingestd.batch.record import Kind, Record
from ingestd.batch.rule import PinnedRule
from ingestd.batch.stamp import Stamp
from ingestd.model.objects import FileVersion, Generation, ObjectInfo, ObjectRef

START = datetime(2024, 5, 1, 12, tzinfo=UTC)
_LATER = Stamp(START, revision=3)
SPLIT = {"Schema": {"Split": {"Mapping": [{"When": "a", "Then": "ds.one"}, {"When": "b", "Then": "ds.two"}]}}}


def file(name: str, generation: int = 1, size: int = 10, bucket: str = "b") -> FileVersion:
    return FileVersion(ObjectRef(bucket, name), Generation(generation), size, START - timedelta(minutes=generation))


def pinned_rule(document: dict[str, Any]) -> PinnedRule:
    return PinnedRule(document, "gs://config/rules/r.yaml", "r", "h")


def record(*files: FileVersion, **changes: Any) -> Record:
    given = files or (file("data/a.json"),)
    made = Record(
        event_id=given[0].event_id,
        kind=Kind.LOAD,
        phase=Phase.ACCEPTED,
        dest="d.t",
        files=given,
        rule=pinned_rule({}),
        created=START,
        stamp=Stamp(START, revision=1),
        placement=Placement("p"),
        load={"destinationTable": {"projectId": "p", "datasetId": "d", "tableId": "t$20240501"}},
    )
    return replace(made, **changes)


def done(*files: FileVersion, **changes: Any) -> Record:
    given = files or (file("data/a.json"),)
    loads = (Load(1, tuple(range(len(given))), rows=2 * len(given), size=20),)
    more = {"phase": Phase.DONE, "rows": 2 * len(given), "progress": Progress(loads=loads, jobs=1), "stamp": _LATER}
    return record(*given, **(more | changes))


def failed(*files: FileVersion, **changes: Any) -> Record:
    given = files or (file("data/a.json"),)
    aside = {place: SetAside(Fate.CORRUPTED, "bad") for place in range(len(given))}
    more = {"phase": Phase.FAILED, "error": "bad", "progress": Progress(aside=aside, jobs=1), "stamp": _LATER}
    return record(*given, **(more | changes))


def files(count: int) -> tuple[FileVersion, ...]:
    return tuple(
        FileVersion(
            ObjectRef("b", f"d/{n}.json"), Generation(1_700_000_000_000_000 + n), n, START, "crc", Generation(n)
        )
        for n in range(count)
    )


def batch_of(count: int, **changes: Any) -> Record:
    """Of so many files, with all that a rule and a table say."""
    table = {"projectId": "p", "datasetId": "ds", "tableId": "t"}
    given: dict[str, Any] = {
        "event_id": "17",
        "dest": "ds.t",
        "files": files(count),
        "rule": pinned_rule({"Dest": {"Table": "ds.t"}}),
        "placement": Placement("p", "US"),
        "load": {"sourceFormat": "CSV", "destinationTable": table},
        "stamp": Stamp(START),
    }
    return record(**given | changes)


def batch(*versions: tuple[str, int]) -> Record:
    """Of files of these names and generations."""
    return batch_of(1, files=tuple(FileVersion(ObjectRef("b", name), Generation(one)) for name, one in versions))


def ruled(dest: dict[str, Any], count: int = 2, **more: Any) -> Record:
    """Of so many files, by a rule with such a destination."""
    table = {"projectId": "p", "datasetId": "ds", "tableId": "t"}
    load: dict[str, Any] = {"sourceFormat": "NEWLINE_DELIMITED_JSON", "destinationTable": table}
    if dest.get("Override"):
        load["writeDisposition"] = "WRITE_TRUNCATE"
    return batch_of(count, rule=pinned_rule({"Dest": {"Table": "ds.t", **dest}, **more}), load=load)


def info(name: str, generation: int = 7, size: int = 3, created: datetime = START, **metadata: str) -> ObjectInfo:
    """What Cloud Storage says of a file now."""
    return ObjectInfo(ObjectRef("b", name), Generation(generation), size, created, "crc", metadata=metadata)
