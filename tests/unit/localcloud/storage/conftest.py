"""A storage core on a temporary folder, with time moved by hand."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.manual_clock import ManualClock

from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.storage import StorageCore, StorageSettings


@dataclass(slots=True)
class Topic:
    """Collects what a core publishes; `failing` makes it refuse."""

    messages: list[tuple[str, bytes, dict[str, str]]] = field(default_factory=list)
    failing: Exception | None = None

    def __call__(self, topic: str, data: bytes, attributes: dict[str, str]) -> None:
        if self.failing is not None:
            raise self.failing
        self.messages.append((topic, data, attributes))

    def events(self) -> list[tuple[str, str]]:
        return [(attributes["eventType"], attributes["objectId"]) for _, _, attributes in self.messages]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def topic() -> Topic:
    return Topic()


MakeCore = Callable[..., StorageCore]


@pytest.fixture
def make_core(tmp_path: Path, clock: ManualClock, topic: Topic) -> Iterator[MakeCore]:
    """Opens cores; `make_core()` twice without closing is the restart of a killed process on a copied folder."""
    opened: list[StorageCore] = []

    def make(root: Path | None = None, **settings: object) -> StorageCore:
        core = StorageCore(
            root or tmp_path / "state",
            project="p",
            clock=clock,
            hooks=Hooks("storage"),
            publish=topic,
            settings=StorageSettings(**settings),
        )
        opened.append(core)
        return core

    yield make
    for core in opened:
        core.close()


@pytest.fixture
def core(make_core: MakeCore) -> StorageCore:
    made = make_core()
    made.buckets.insert({"name": "bucket"})
    made.buckets.insert({"name": "versioned", "versioning": {"enabled": True}})
    return made
