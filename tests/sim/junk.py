"""What people and tools leave in the daemon's own folders: every folder that is read, every way of being wrong."""

import random
from dataclasses import dataclass

from ingestd.localcloud.storage.core import StorageCore
from ingestd.localcloud.storage.model import ObjectMetadata

FOLDERS = (
    "journal/",
    "journal/Running/",
    "journal/Running/bqtail.dummy/2024-01-01/",
    "journal/Running/_success.somewhere/2024-01-01/",
    "journal/Done/",
    "journal/Done/bqtail.dummy/2024-01-01/",
    "journal/Files/",
    "journal/Trail/",
    "journal/Trail/sim-project.bqtail.dummy/",
    "journal/pace/",
    "journal/quota/",
    "journal/register/",
    "journal/register/sim-project.bqtail.t0/2024-01-01T12/",
    "journal/replicas/",
    "journal/ordered/",
    "journal/ordered/bqtail.dummy-0123456789abcdef/queue/",
    "journal/LoadState/",
    "journal/sweep/",
    "journal/Replays/",
    "batch/",
    "batch/bqtail.dummy_123_1704110410/",
    "tasks/",
    "staging/",
)
NAMES = (
    "x",
    "x.json",
    "x.run",
    "x.win",
    "x.grp",
    "state.json",
    "closed",
    "sim-project.bqtail.dummy.json",
    "bqtail.dummy_1_2.win",
    "1234567890123456789.run",
    "a--1_00001_load--dispatch.json",
    "_SUCCESS@00001704110400000001",
    "deeper/still/x.json",
)
CONTENTS = (
    b"",
    b"junk",
    b"[]",
    b"{}",
    b"null",
    b"\xff\xfe\x00",
    b'{"schema_version": 99}',
    b'{"schema_version": 1}',
    b'{"schema_version": "1", "Entries": [[1e300, 10, 1]], "Hours": {"t": {"99999999999999999999": 1}}}',
    b'{"schema_version": 1, "Entries": [[0, 1e18, "x"]], "rows": [1], "Files": [[]], "Window": {}}',
    b"[" * 5000,
)
LABELS: tuple[dict[str, str], ...] = (
    {},
    {},
    {
        "ingestd-due": "soon",
        "ingestd-files": "9" * 5000,
        "ingestd-retry-at": "0001-01-01T00:00:00+23:59",
        "ingestd-lease-until": "9999-12-31T23:59:59-23:59",
        "ingestd-table": "nowhere",
        "ingestd-success": "nothing",
        "ingestd-generation": "-",
    },
    {"ingestd-due": "2024-01-01T12:00:00+00:00", "ingestd-table": "gs://b/t", "ingestd-owner": "nobody"},
)


@dataclass(frozen=True, slots=True)
class Junk:
    name: str
    content: bytes
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> str:
        parts = self.name.split("/")
        return "/".join(parts[: 2 if parts[0] == "journal" and len(parts) > 2 else 1]) + "/"

    def put(self, storage: StorageCore, bucket: str) -> None:
        storage.objects.insert(bucket, self.name, self.content, metadata=ObjectMetadata(custom=dict(self.labels)))


def everything() -> list[Junk]:
    """A placeholder in every folder, and every folder with every content once, names and labels in turn."""
    found = [Junk(folder, b"") for folder in FOLDERS]
    at = 0
    for folder in FOLDERS:
        for content in CONTENTS:
            at += 1
            found.append(Junk(folder + NAMES[at % len(NAMES)], content, tuple(LABELS[at % len(LABELS)].items())))
    return found


def drawn(rng: random.Random, many: int) -> list[Junk]:
    found = []
    for _ in range(many):
        name = rng.choice(("", *NAMES))
        labels = tuple(rng.choice(LABELS).items())
        found.append(Junk(rng.choice(FOLDERS) + name, rng.choice(CONTENTS) if name else b"", labels))
    return found
