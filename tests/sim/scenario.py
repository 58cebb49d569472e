"""What happens in one simulated run, drawn from its seed alone: rules, files, replicas, and what goes wrong.

Every seed switches some kinds of trouble on and leaves others out, at its own intensity, so that a thousand of them
cover combinations that no single mix of probabilities would reach.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from tests.sim.changes import Change, draw_changes, draw_patience
from tests.sim.grouped import draw_groups
from tests.support.sim.names import DATASET

_FOLDERS = ("a", "b", "c/d")
_FILES = (5, 5, 5, 6, 6, 7, 8, 8, 10, 12, 15, 40)  # mostly few: many small runs find more than a few large ones
_NEEDS_BAD_FILES = ("store.create error", "store.create corrupted", "store.copy corrupted", "store.delete done")
_NEEDS_STAGING = ("warehouse.insert_job copy", "warehouse.create_table", "warehouse.delete_table")
_NEEDS_TRANSIENT = ("warehouse.insert_job query", "warehouse.create_dataset")
_NEEDS_PREPARING = ("store.create staging", "store.delete staging")
_NEEDS_GROUPS = ("store.create group", "store.delete group", "publisher.publish")
_NEEDS_LOAD_STATE = ("warehouse.insert_rows",)
_NEEDS_OVERWRITES = ("store.create trail", "store.replace trail")


class Ending(StrEnum):
    """What a rule does with a file that was loaded."""

    DELETE = "delete"
    MOVE = "move"
    KEEP = "keep"


class Way(StrEnum):
    """How rows get from a rule's files into its tables."""

    DIRECT = "direct"
    COPY = "copy"  # through a transient table
    QUERY = "query"
    UNIQUE = "unique"  # by statements of the BigQuery engine
    FAN = "fan"
    UPSERT = "upsert"
    PREPARED = "prepared"  # by a preparer
    PREPARED_FAN = "prepared fan"
    PREPARED_UPSERT = "prepared upsert"
    PREPARED_COPY = "prepared copy"

    @property
    def fans(self) -> bool:
        return self in (Way.FAN, Way.PREPARED_FAN)

    def dest(self, table: str) -> dict[str, Any]:
        """What it adds to the rule's `Dest`."""
        dest: dict[str, Any] = {}
        if self in (Way.COPY, Way.QUERY, Way.FAN, Way.PREPARED_COPY):
            dest["Transient"] = {"Dataset": "temp", **({"CopyMethod": "QUERY"} if self is Way.QUERY else {})}
        if self in (Way.UNIQUE, Way.PREPARED, Way.PREPARED_COPY):
            dest["UniqueColumns"] = ["id"]
        if self.fans:
            mapping = [{"When": "MOD(id, 2) = 0", "Then": f"{table}_even"}]
            dest["Schema"] = {"Split": {"Mapping": mapping, "Unmatched": "keep"}}
        if self in (Way.UPSERT, Way.PREPARED_UPSERT):
            dest["Merge"] = {"Keys": ["id"]}
        return dest


_BY_QUERY = (Way.QUERY, Way.FAN)
_PREPARED = (Way.PREPARED, Way.PREPARED_FAN, Way.PREPARED_UPSERT, Way.PREPARED_COPY)


@dataclass(frozen=True, slots=True)
class RulePlan:
    number: int
    asynchronous: bool
    ending: Ending
    split: bool  # over two tables, by `$Mod(2)`
    batch: dict[str, Any] | None = None
    broken: bool = False  # its table is missing until the trouble is over
    way: Way = Way.DIRECT
    success: bool = False  # no rule at all: an ordered table, loaded by success files

    @property
    def prefix(self) -> str:
        return f"{DATASET}/t{self.number}" if self.success else f"data/r{self.number}"

    @property
    def tables(self) -> tuple[str, ...]:
        if self.way.fans:
            return (f"t{self.number}", f"t{self.number}_even")
        return tuple(f"t{self.number}_{part}" for part in range(2)) if self.split else (f"t{self.number}",)

    @property
    def created(self) -> tuple[str, ...]:
        """Those that are there from the beginning; the others are made like them."""
        return self.tables[:1] if self.way.fans else self.tables

    def document(self, ops: str) -> dict[str, Any]:
        table = f"{DATASET}.t{self.number}_$Mod(2)" if self.split else f"{DATASET}.t{self.number}"
        actions: dict[Ending, list[dict[str, Any]]] = {
            Ending.DELETE: [{"Action": "delete"}],
            Ending.MOVE: [{"Action": "move", "Request": {"DestURL": f"gs://{ops}/archive"}}],
            Ending.KEEP: [],
        }
        document: dict[str, Any] = {
            "When": {"Prefix": f"/{self.prefix}/", "Suffix": ".json"},
            "Async": self.asynchronous,
            "Dest": {"Table": table, **self.way.dest(table)},
            "OnSuccess": actions[self.ending],
            "CorruptedFileURL": f"gs://{ops}/corrupted",
        }
        if self.batch is not None:
            document["Batch"] = self.batch
        if self.way in (Way.UNIQUE, Way.FAN, Way.UPSERT):
            document["Engine"] = "bigquery"
        return document


@dataclass(frozen=True, slots=True)
class Upload:
    at: float
    name: str
    rule: RulePlan
    ids: tuple[int, ...]
    bad: bool = False
    absent: float | None = None  # seconds for which there is nothing of that name before; None: it is overwritten


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the network does to messages of one kind: shares of them."""

    duplicated: float = 0.0
    late: float = 0.0
    lost: float = 0.0
    latest: float = 2.0  # seconds a message takes at most; they overtake each other


@dataclass(frozen=True, slots=True)
class Mischief:
    """How often a call is refused, or does its work and loses the answer; and how jobs end."""

    refused: dict[str, float] = field(default_factory=dict)  # by service
    unanswered: dict[str, float] = field(default_factory=dict)
    throttled: float = 0.2  # share of refusals that are 429 rather than 503
    jobs_failing: float = 0.0
    preparing_failing: float = 0.0  # at each write of a preparer
    attempts: int = 6  # tries per call before its failure reaches the engine
    outage: tuple[str, float, float] | None = None  # service, from, to
    notifications: Delivery = Delivery()
    audit: Delivery = Delivery()


@dataclass(frozen=True, slots=True)
class Crash:
    """A replica dies right after an effect: the n-th at `site` by anybody, or simply its own n-th."""

    nth: int
    site: str = ""
    replica: int = 0
    back_after: float = 10.0


@dataclass(frozen=True, slots=True)
class Pause:
    """A replica's calls hang from its n-th effect on, and go through when others may have taken over."""

    replica: int
    nth: int
    seconds: float
    before: bool  # the effect itself hangs, rather than its answer


@dataclass(frozen=True, slots=True)
class Scenario:
    seed: int
    rules: tuple[RulePlan, ...]
    uploads: tuple[Upload, ...]
    skews: tuple[float, ...]  # one replica each, seconds
    same_names: bool  # a replica that restarts keeps its name
    mischief: Mischief
    crashes: tuple[Crash, ...]
    pauses: tuple[Pause, ...]
    healed_at: float
    settings: dict[str, Any]
    job_seconds: tuple[float, float]
    repeated: tuple[int, ...]  # uploads announced once more after everything was settled
    names_bad_files: bool = True
    changes: tuple[Change, ...] = ()
    patience: float = 0.0  # seconds between the end and what is repeated
    load_state: bool = False  # the table is kept
    ordered: tuple[RulePlan, ...] = ()  # tables that are loaded by success files, in order


@dataclass(frozen=True, slots=True)
class Features:
    """What scenarios may contain; tests that look for one thing switch the rest off."""

    bad_files: bool = True
    overwrites: float = 0.1  # share of files
    overwrites_in_windows: bool = True
    crash_sites: Sequence[str] = ()
    changes: bool = True  # rules are edited and paces change under way
    groups: bool = True
    ordered: bool = True  # a table is loaded by success files, in order
    ways: bool = True  # rows take other ways than straight from their files into one table
    way: Way | None = None  # all take this one


def draw(seed: int, features: Features) -> Scenario:
    chance = random.Random(f"scenario {seed}")
    site = features.crash_sites[seed % len(features.crash_sites)] if features.crash_sites else ""
    rules = _rules(chance, features, site)
    if features.groups:
        rules = draw_groups(seed, rules, wanted=site in _NEEDS_GROUPS)
    if site in _NEEDS_OVERWRITES:
        features = replace(features, overwrites=0.8)
    uploads = _uploads(chance, rules, features, with_bad=site in _NEEDS_BAD_FILES)
    ordered = _ordered(seed) if features.ordered else ()
    uploads = tuple(sorted((*uploads, *ordered), key=lambda upload: upload.at))
    replicas = chance.choice((1, 2, 2, 3))
    last = max(upload.at for upload in uploads)
    healed_at = last + chance.uniform(20, 90)
    settings = _settings(chance)
    if site in _NEEDS_STAGING:
        settings["jobs"]["max_files"] = 2
    return Scenario(
        seed=seed,
        rules=rules,
        uploads=uploads,
        skews=tuple(chance.choice((0.0, 0.0, 3.0, -3.0, 300.0, -300.0)) for _ in range(replicas)),
        same_names=chance.random() < 0.4,
        mischief=_mischief(chance, healed_at),
        crashes=_crashes(chance, replicas, site),
        pauses=_pauses(chance, replicas),
        healed_at=healed_at,
        settings=settings,
        job_seconds=chance.choice(((0.2, 1.0), (0.5, 8.0), (5.0, 40.0))),
        repeated=tuple(i for i in range(len(uploads)) if chance.random() < 0.2) if chance.random() < 0.5 else (),
        names_bad_files=chance.random() < 0.7,
        changes=draw_changes(seed, rules, last) if features.changes else (),
        patience=draw_patience(seed),
        ordered=tuple({upload.rule.number: upload.rule for upload in ordered}.values()),
        load_state=site in _NEEDS_LOAD_STATE or random.Random(f"load state {seed}").random() < 0.4,
    )


def _way(chance: random.Random, features: Features, site: str) -> Way:
    if features.way is not None:
        return features.way
    if site in _NEEDS_TRANSIENT:
        return chance.choice(_BY_QUERY)
    if site in _NEEDS_PREPARING:
        return chance.choice(_PREPARED)
    return chance.choice(tuple(Way)) if features.ways and chance.random() < 0.3 else Way.DIRECT


def _rules(chance: random.Random, features: Features, site: str) -> tuple[RulePlan, ...]:
    rules = []
    for number in range(chance.choice((1, 1, 2, 2, 3))):
        windowed = number == 0 or chance.random() < 0.6
        way = _way(chance, features, "" if number else site)
        rules.append(
            RulePlan(
                number,
                asynchronous=chance.random() < 0.5,
                ending=chance.choice((Ending.DELETE, Ending.DELETE, Ending.MOVE, Ending.KEEP)),
                split=chance.random() < 0.3 and not way.fans,
                batch=_batch(chance) if windowed else None,
                broken=number > 0 and chance.random() < 0.2,
                way=way,
            )
        )
    return tuple(rules)


def _batch(chance: random.Random) -> dict[str, Any]:
    batch: dict[str, Any] = {"Window": {"DurationInSec": chance.choice((10, 20, 60))}}
    if chance.random() < 0.3:
        batch["MultiPath"] = True
    if chance.random() < 0.3:
        batch["MaxFiles"] = chance.randint(1, 8)
    elif chance.random() < 0.15:
        batch["MaxBytes"] = f"{chance.randint(40, 200)}B"
    return batch


def _uploads(
    chance: random.Random, rules: tuple[RulePlan, ...], features: Features, *, with_bad: bool
) -> tuple[Upload, ...]:
    span = chance.choice((5.0, 40.0, 90.0))
    folders = _FOLDERS[: chance.choice((1, 2, 3))]
    with_bad = features.bad_files and (chance.random() < 0.3 or with_bad)
    uploads: list[Upload] = []
    row = 0
    for number in range(chance.choice(_FILES)):
        rule = chance.choice(rules)
        ids = tuple(range(row, row + chance.choice((1, 1, 2, 3))))
        row += len(ids)
        bad = with_bad and chance.random() < 0.15
        name = f"{rule.prefix}/{chance.choice(folders)}/f{number}.json"
        uploads.append(Upload(round(chance.uniform(0, span), 3), name, rule, ids, bad))
    if features.overwrites and chance.random() < 0.3 + features.overwrites:
        for first in chance.sample(uploads, k=round(len(uploads) * features.overwrites + 0.5)):
            if not first.bad and (first.rule.batch is None or features.overwrites_in_windows):
                again = _written_again(chance, first, row)
                row += sum(len(upload.ids) for upload in again)
                uploads += again
    return tuple(sorted(uploads, key=lambda upload: upload.at))


def _ordered(seed: int) -> tuple[Upload, ...]:
    """Now and then one more table, filled by success files; from a chance of its own."""
    chance = random.Random(f"ordered among others {seed}")
    if chance.random() < 0.85:
        return ()
    table = RulePlan(9, False, Ending.KEEP, split=False, success=True)
    places = chance.sample(("incremental/01", "incremental/02", "historical/01", "00x/y", "07"), k=chance.randint(2, 4))
    return tuple(
        Upload(round(chance.uniform(0, 60), 3), f"{table.prefix}/{place}/f.json", table, (1_000_000 + number,))
        for number, place in enumerate(places)
    )


def _written_again(chance: random.Random, first: Upload, row: int) -> list[Upload]:
    """The name once more, or many times, in place or deleted before; at once, or when its batch may have ended."""
    again: list[Upload] = []
    at, size = first.at, len(first.ids)
    pace = chance.choice((1.0, 5.0, 20.0, 90.0))
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 8) if pace < 90 else (1, 1, 2))):
        # One more row than before: contents of the same size could not be told apart afterwards.
        size += 1
        at += chance.uniform(0.05, pace)
        absent = chance.uniform(0, min(2.0, pace)) if chance.random() < 0.3 else None
        again.append(Upload(at, first.name, first.rule, tuple(range(row, row + size)), absent=absent))
        row += size
    return again


def _mischief(chance: random.Random, healed_at: float) -> Mischief:
    def level(*levels: float) -> float:
        return chance.choice(levels) if chance.random() < 0.5 else 0.0

    outage = None
    if chance.random() < 0.15:
        start = chance.uniform(0, healed_at)
        outage = (chance.choice(("storage", "bigquery", "pubsub")), start, start + chance.uniform(5, 60))
    services = ("storage", "bigquery", "pubsub")
    return Mischief(
        refused={service: level(0.01, 0.05, 0.2) for service in services},
        unanswered={service: level(0.01, 0.05, 0.2) for service in services},
        jobs_failing=level(0.1, 0.4),
        preparing_failing=level(0.05, 0.2),
        attempts=chance.choice((1, 3, 6)),
        outage=outage,
        notifications=_delivery(chance),
        audit=_delivery(chance),
    )


def _delivery(chance: random.Random) -> Delivery:
    def level(*levels: float) -> float:
        return chance.choice(levels) if chance.random() < 0.4 else 0.0

    return Delivery(level(0.1, 0.5), level(0.1, 0.4), level(0.05, 0.3), chance.choice((0.0, 2.0, 10.0)))


def _crashes(chance: random.Random, replicas: int, site: str) -> tuple[Crash, ...]:
    crashes = []
    if site:
        crashes.append(Crash(chance.choice((1, 1, 2, 3)), site, back_after=chance.choice((0.5, 15.0, 50.0))))
    for _ in range(chance.choice((0, 0, 1, 2))):
        nth, back = chance.randint(1, 120), chance.choice((0.5, 15.0, 50.0))
        crashes.append(Crash(nth, replica=chance.randrange(replicas), back_after=back))
    return tuple(crashes)


def _pauses(chance: random.Random, replicas: int) -> tuple[Pause, ...]:
    return tuple(
        Pause(
            chance.randrange(replicas),
            chance.randint(1, 80),
            chance.choice((5.0, 40.0, 90.0)),
            before=chance.random() < 0.5,
        )
        for _ in range(chance.choice((0, 0, 0, 1, 2)))
    )


def _settings(chance: random.Random) -> dict[str, Any]:
    return {
        "intake": {
            "concurrent_pulls": chance.choice((1, 1, 2)),
            "max_messages": chance.choice((3, 10, 2000)),
            "messages_per_pull": chance.choice((1, 10, 1000)),
            "ack_deadline": f"{chance.choice((10, 60))}s",
        },
        "jobs": {"max_running": chance.choice((1, 3, 100)), "max_files": chance.choice((2, 10_000, 10_000, 10_000))},
        "windows": {
            "flush_files": chance.choice((1, 3, 1000)),
            "flush_after": f"{chance.choice((1, 5))}s",
            "late_patience": f"{chance.choice((5, 60))}s",
        },
    }
