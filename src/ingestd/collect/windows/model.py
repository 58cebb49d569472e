"""Windows as values: which one a file belongs to, what it is called, when it is due.

Everything derives from the file's event time and the rule, never from the moment a message arrives: a redelivered
message always finds the window it found before.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from sys import intern
from typing import Any, Self

from ingestd.model.objects import FileVersion, Generation, ObjectRef, digest, event_id
from ingestd.model.segments import segment
from ingestd.rules.destination import group_number, told_apart
from ingestd.rules.expansion import fnv1_64
from ingestd.rules.matching import path_of
from ingestd.rules.rule import Rule
from ingestd.rules.schema import Batch


@dataclass(frozen=True)
class WindowKey:
    """What files must share to load together."""

    rule: str  # its name: an edit must not send a redelivered file to another window
    dest: str  # the expanded table, with its partition
    folder: str  # `gs://bucket/folder`; empty with MultiPath
    extension: str
    pattern: str = ""  # the pattern's groups, with UsePatternHash

    @cached_property
    def hash(self) -> str:
        return str(fnv1_64("\n".join((self.rule, self.dest, self.folder, self.extension, self.pattern))))


@dataclass(frozen=True, slots=True)
class WindowSlot:
    """All sequences of one window, by what their names are made of."""

    dest: str
    hash: str
    start: int
    seconds: int

    def name(self, sequence: int) -> str:
        """`<destTable>_<sourcePathHash>_<dueUnix>`, and `-<sequence>` for late ones."""
        late = f"-{sequence}" if sequence else ""
        return f"{segment(self.dest)}_{self.hash}_{self.start + self.seconds}{late}"

    def event_id(self, sequence: int) -> str:
        return event_id(f"window:{self.hash}:{self.dest}:{self.start}:{self.seconds}:{sequence}")


@dataclass(frozen=True)
class WindowId:
    """One window: a key, an interval of event time, and a sequence for files that came after it was closed."""

    key: WindowKey
    start: int  # Unix seconds, a multiple of the duration
    seconds: int
    sequence: int = 0

    @property
    def due(self) -> datetime:
        return datetime.fromtimestamp(self.start + self.seconds, UTC)

    @property
    def slot(self) -> "WindowSlot":
        return WindowSlot(self.key.dest, self.key.hash, self.start, self.seconds)

    @cached_property
    def name(self) -> str:
        return self.slot.name(self.sequence)

    @cached_property
    def event_id(self) -> str:
        return self.slot.event_id(self.sequence)

    def next(self) -> "WindowId":
        return replace(self, sequence=self.sequence + 1)

    def to_json(self) -> dict[str, Any]:
        key = self.key
        return {
            "Rule": key.rule,
            "Dest": key.dest,
            "Folder": key.folder,
            "Extension": key.extension,
            "Pattern": key.pattern,
            "Start": self.start,
            "Seconds": self.seconds,
            "Sequence": self.sequence,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "WindowId":
        key = WindowKey(data["Rule"], data["Dest"], data["Folder"], data["Extension"], data["Pattern"])
        return cls(key, data["Start"], data["Seconds"], data["Sequence"])


def window_of(rule: Rule, file: FileVersion, dest: str, seconds: int) -> WindowId:
    """The window a file belongs to; one exactly on a boundary belongs to the later window."""
    batch = rule.spec.batch or Batch()
    folder = "" if batch.multi_path else f"gs://{file.ref.bucket}/{file.ref.name.rpartition('/')[0]}"
    pattern = (
        "\n".join(rule.matcher.groups(path_of(file.ref.name))) if batch.use_pattern_hash else told_apart(rule, file)
    )
    key = WindowKey(rule.name, dest, folder, extension(file.ref.name), pattern)
    moment = int(file.event_time.timestamp())
    return WindowId(key, moment - moment % seconds, seconds)


def extension(name: str) -> str:
    """All extensions of the file's name, so that `a.json.gz` and `a.csv.gz` never share a window."""
    base = name.rpartition("/")[2]
    _, dot, rest = base.partition(".")
    parts = (dot + rest).lower().split(".")[1:]
    return "".join(f".{part}" for part in parts[-2:] if part and not part.isdigit())


@dataclass(frozen=True, slots=True)
class WindowGroup:
    """Batches of one destination that finish together: those whose windows begin within the same stretch of time."""

    name: str
    number: int  # `$GroupID`: the Unix time the stretch begins
    due: datetime  # no window of the group begins later

    def to_json(self) -> dict[str, Any]:
        return {"Name": self.name, "GroupID": self.number, "Due": self.due}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "WindowGroup":
        return cls(data["Name"], data["GroupID"], datetime.fromisoformat(data["Due"]))


def group_of(rule: Rule, window: WindowId) -> WindowGroup | None:
    """The group of a window; without a duration, the windows of one interval form one."""
    group = rule.spec.batch.group if rule.spec.batch else None
    if group is None:
        return None
    seconds = group.duration_in_sec or window.seconds
    start = group_number(rule, window.start, window.seconds)
    assert start is not None, "the rule has a group"
    end = max(start + seconds, window.start + window.seconds)
    name = f"{segment(window.key.dest)}_{fnv1_64(rule.name + window.key.dest)}_{start + seconds}"
    return WindowGroup(name, start, datetime.fromtimestamp(end, UTC))


@dataclass(slots=True)
class Arrival:
    """A file waiting in a window: only what the load needs, since there may be a million of them."""

    bucket: str
    name: str
    generation: int
    size: int
    time: float
    crc32c: str = ""
    overwrote: int = 0

    @classmethod
    def of(cls, file: FileVersion, overwrote: Generation | None) -> Self:
        ref = file.ref
        moment = file.event_time.timestamp()
        return cls(intern(ref.bucket), ref.name, file.generation, file.size, moment, file.crc32c, overwrote or 0)

    @property
    def digest(self) -> bytes:
        return digest(f"{self.bucket}/{self.name}#{self.generation}")

    def file(self) -> FileVersion:
        moment = datetime.fromtimestamp(self.time, UTC)
        ref = ObjectRef(self.bucket, self.name)
        return FileVersion(ref, Generation(self.generation), self.size, moment, self.crc32c, Generation(self.overwrote))

    def to_json(self) -> list[Any]:
        return [self.bucket, self.name, self.generation, self.size, self.time, self.crc32c, self.overwrote]


def late_due(window: WindowId, now: datetime, patience: timedelta) -> datetime:
    """When a late window closes: with its interval if that is still ahead (closed early), else after some patience."""
    return window.due if window.due > now else now + min(patience, timedelta(seconds=window.seconds))
