"""The core against a model that fits on one page: whatever sequence of calls, both say the same."""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.manual_clock import ManualClock

from ingestd.localcloud.storage import StorageCore, StorageError, StorageSettings
from ingestd.localcloud.storage.model import ListQuery, Preconditions

NAMES = st.sampled_from(["a", "a/", "a/b", "a/b/c", "a/c", "b", "b/é", "z"])
DATA = st.sampled_from([b"", b"x", b"y" * 40, b"z" * 100])
# Which generation a condition names: none, "must not exist", the live one, or one that never was.
ASKED = st.sampled_from(["any", "absent", "live", "other"])


@dataclass
class Kept:
    generation: int
    data: bytes
    live: bool = True
    metageneration: int = 1


@dataclass
class Model:
    versioned: bool
    names: dict[str, list[Kept]] = field(default_factory=dict)

    def live(self, name: str) -> Kept | None:
        return next((kept for kept in self.names.get(name, ()) if kept.live), None)

    def retire(self, name: str) -> None:
        kept = self.live(name)
        if kept is not None and self.versioned:
            kept.live = False
        elif kept is not None:
            self.names[name].remove(kept)


class StorageMachine(RuleBasedStateMachine):
    @initialize(versioned=st.booleans())
    def start(self, versioned: bool) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.core = self.open(self.folder / "0")
        self.restarts = 0
        self.core.buckets.insert({"name": "bucket", "versioning": {"enabled": versioned}})
        self.model = Model(versioned)

    def open(self, root: Path) -> StorageCore:
        return StorageCore(root, project="p", clock=self.clock, settings=StorageSettings(inline_limit=50))

    def teardown(self) -> None:
        self.core.close()
        shutil.rmtree(self.folder)

    def bytes_of(self, name: str, generation: int) -> bytes:
        return self.core.read("bucket", name, generation)

    def condition(self, name: str, asked: str) -> tuple[Preconditions, bool]:
        """A precondition, and whether the model says it holds."""
        live = self.model.live(name)
        if asked == "any":
            return Preconditions(), True
        if asked == "absent":
            return Preconditions(generation=0), live is None
        if asked == "live":
            return Preconditions(generation=live.generation if live else 12345), live is not None
        return Preconditions(generation=12345), False

    @rule(name=NAMES, data=DATA, asked=ASKED)
    def put(self, name: str, data: bytes, asked: str) -> None:
        conditions, holds = self.condition(name, asked)
        try:
            version = self.core.objects.insert("bucket", name, data, conditions=conditions)
        except StorageError as error:
            assert (error.status, holds) == (412, False)
            return
        assert holds
        self.model.retire(name)
        self.model.names.setdefault(name, []).append(Kept(version.generation, data))

    @rule(name=NAMES, asked=ASKED)
    def delete(self, name: str, asked: str) -> None:
        conditions, holds = self.condition(name, asked)
        try:
            self.core.objects.delete("bucket", name, conditions=conditions)
        except StorageError as error:
            expected = 404 if self.model.live(name) is None else 412
            assert error.status == expected
            assert not holds or expected == 404
            return
        assert holds
        self.model.retire(name)

    @rule(name=NAMES, pick=st.integers(0, 3))
    def delete_generation(self, name: str, pick: int) -> None:
        versions = self.model.names.get(name, [])
        if pick < len(versions):
            self.core.objects.delete("bucket", name, versions[pick].generation)
            del versions[pick]

    @rule(name=NAMES)
    def patch(self, name: str) -> None:
        live = self.model.live(name)
        try:
            version = self.core.objects.patch("bucket", name, {"contentType": "a/b"})
        except StorageError as error:
            assert (error.status, live) == (404, None)
            return
        assert live is not None
        live.metageneration += 1
        assert version.metageneration == live.metageneration

    @rule(source=NAMES, into=NAMES)
    def copy(self, source: str, into: str) -> None:
        live = self.model.live(source)
        try:
            version = self.core.objects.copy(("bucket", source), ("bucket", into))
        except StorageError as error:
            assert (error.status, live) == (404, None)
            return
        assert live is not None
        data = live.data
        self.model.retire(into)
        self.model.names.setdefault(into, []).append(Kept(version.generation, data))

    @precondition(lambda self: self.restarts < 3)
    @rule(gracefully=st.booleans())
    def restart(self, gracefully: bool) -> None:
        """Either closed in order, or its folder taken over as a killed process would leave it."""
        before, after = self.folder / str(self.restarts), self.folder / str(self.restarts + 1)
        if gracefully:
            self.core.close()
        shutil.copytree(before, after)
        if not gracefully:
            self.core.close()
        self.core = self.open(after)
        self.restarts += 1

    @rule(
        prefix=st.sampled_from(["", "a", "a/", "b", "q"]), delimiter=st.sampled_from(["", "/"]), size=st.integers(1, 5)
    )
    def pages(self, prefix: str, delimiter: str, size: int) -> None:
        live = sorted((name for name in self.model.names if self.model.live(name)), key=str.encode)
        names: list[str] = []
        folders: list[str] = []
        for name in live:
            if not name.startswith(prefix):
                continue
            at = name.find(delimiter, len(prefix)) if delimiter else -1
            if at < 0:
                names.append(name)
            elif name[: at + 1] not in folders:
                folders.append(name[: at + 1])
        found: list[str] = []
        prefixes: list[str] = []
        token = ""
        for _ in range(20):
            query = ListQuery(prefix=prefix, delimiter=delimiter, max_results=size, page_token=token)
            page = self.core.objects.list("bucket", query)
            found += (item.name for item in page.items)
            prefixes += page.prefixes
            token = page.next_page_token
            if not token:
                break
        assert (found, prefixes) == (names, folders)

    @invariant()
    def same_versions_and_bytes(self) -> None:
        if not hasattr(self, "core"):
            return
        expected = [
            (name, kept.generation, kept.live, kept.metageneration, kept.data)
            for name in sorted(self.model.names, key=str.encode)
            for kept in self.model.names[name]
        ]
        page = self.core.objects.list("bucket", ListQuery(versions=True))
        found = [
            (item.name, item.generation, item.live, item.metageneration, self.bytes_of(item.name, item.generation))
            for item in page.items
        ]
        assert found == expected


StorageMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestStorageModel = StorageMachine.TestCase
