"""What people and tools leave in folders that the daemon reads: its own, the rules', and `_config/` beside the data.

Every folder, every way of being wrong. In the daemon's own folders it is left alone. A rule file that cannot be read is
reported, and the others stay in force. Beside a directory's configuration it is passed over; in its place the directory
waits until somebody mends it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.sim.names import CONFIG, DATASET, OPS, TRIGGER

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
    "journal/Names/",
    "journal/Names/bqtail.dummy/",
    "journal/Names/bqtail.t0/",
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
    "round.json",
    "2024-01-01.2024-01-01.2024-01-02-0123abcd.idx",
    "2024-01-01.2024-01-01.late",
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
RULES = "rules/"
RULE_NAMES = ("x", "README.md", ".x.json.swp", "r0.json~", "r0.json.bak", "x.json", "x.yaml", "deeper/still/x.yml")
NO_RULES = (b"junk", b"\xff\xfe\x00", b"[" * 5000)  # of `CONTENTS` those that nobody takes for a file without rules
SETTINGS = "_config/load.json"
SETTINGS_NAMES = ("x", "README.md", "load.json.bak", "Load.JSON", "load.yaml", "_SUCCESS", "deeper/load.json")
_TOO_LONG = b" " * ((1 << 20) + 1)
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
    bucket: str = OPS

    @property
    def folder(self) -> str:
        if self.bucket == TRIGGER:
            return "the place of a directory's configuration" if self.mended else "_config/"
        parts = self.name.split("/")
        return "/".join(parts[: 2 if parts[0] == "journal" and len(parts) > 2 else 1]) + "/"

    @property
    def mended(self) -> bool:
        """Whether somebody has to, before whoever reads it goes on."""
        return self.bucket == TRIGGER and self.name.endswith(SETTINGS)

    @property
    def reported(self) -> bool:
        """Whether it has to be among the problems of the rules."""
        return self.bucket == CONFIG and self.name.endswith((".json", ".yaml", ".yml")) and self.content in NO_RULES

    def put(self, storage: StorageCore) -> None:
        storage.objects.insert(self.bucket, self.name, self.content, metadata=ObjectMetadata(custom=dict(self.labels)))


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


def drawn_elsewhere(seed: int, until: float, tables: Sequence[str]) -> list[tuple[float, Junk]]:
    """Among the rules and around the configuration of directories; from a chance of its own.

    `tables`: folders of those that are loaded by success files.
    """
    rng = random.Random(f"junk elsewhere {seed}")
    found = []
    if rng.random() < 0.1:
        for name in rng.sample(("", *RULE_NAMES), k=rng.randint(1, 3)):
            junk = Junk(RULES + name, rng.choice(CONTENTS) if name else b"", bucket=CONFIG)
            found.append((rng.choice((0.0, rng.uniform(0, until))), junk))
    for table in tables:
        folders = ("", f"{DATASET}/", f"{table}/", f"{table}/incremental/", f"{table}/incremental/01/")
        if rng.random() < 0.4:
            for name in rng.sample(("", *SETTINGS_NAMES), k=rng.randint(1, 4)):
                content = rng.choice((*CONTENTS, _TOO_LONG)) if name else b""
                junk = Junk(f"{rng.choice(folders)}_config/{name}", content, bucket=TRIGGER)
                found.append((rng.uniform(0, until / 2), junk))
        if rng.random() < 0.2:
            junk = Junk(rng.choice(folders) + SETTINGS, rng.choice((*CONTENTS, _TOO_LONG)), bucket=TRIGGER)
            found.append((rng.uniform(0, until / 2), junk))
    return found
