"""What became of the files that a command handed to its own engine: counted as batches end, so that it costs no memory.

To be taken is not to be loaded: a file may be refused, or its batch may fail.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ingestd.batch.phases import Phase
from ingestd.batch.record import Record
from ingestd.model.objects import FileVersion, ObjectRef

_SHOWN = 20


@dataclass(slots=True)
class Outcome:
    """Of files below `prefix` (directories, where a success file names them) whose batch was made after `since`."""

    prefix: ObjectRef
    since: datetime
    loaded: int = 0
    not_loaded: int = 0
    refused_files: int = 0
    unfinished: int = 0  # batches whose rows are there, and whose actions failed
    examples: list[tuple[str, str]] = field(default_factory=list)  # what is not loaded or not finished, and why

    @property
    def trouble(self) -> bool:
        return bool(self.not_loaded or self.refused_files or self.unfinished)

    def left(self, taken: int) -> int:
        """What was taken and has not ended here."""
        return max(0, taken - self.loaded - self.not_loaded - self.refused_files)

    async def ended(self, record: Record) -> None:
        if record.created < self.since:
            return
        if record.success is not None:
            if self._mine(ObjectRef.parse(record.success.url)):
                self._directory(record, record.success.url)
            return
        progress, loaded = record.progress, set(record.progress.loaded)
        mine = [(index, file) for index, file in enumerate(record.known_files) if self._mine(file.ref)]
        for index, file in mine:
            aside = progress.aside.get(index)
            if index in loaded:
                self.loaded += 1
            elif aside is None or aside.fate.wrong:
                self.not_loaded += 1
                self._example(file.ref.url, (aside.why if aside else "") or record.error)
        if mine and record.phase is Phase.FAILED and loaded and not progress.wrong:
            self._unfinished(record)

    def refused(self, file: FileVersion, reason: str, rules: list[str]) -> None:
        del rules
        if self._mine(file.ref):
            self.refused_files += 1
            self._example(file.ref.url, reason)

    def to_json(self, taken: int) -> dict[str, Any]:
        return {
            "loaded": self.loaded,
            "not_loaded": self.not_loaded,
            "refused": self.refused_files,
            "unfinished": self.unfinished,
            "left": self.left(taken),
            "examples": [{"what": what, "why": why} for what, why in self.examples],
        }

    def _directory(self, record: Record, url: str) -> None:
        """A directory loads as a whole; one that took part of its rows before it failed is not loaded."""
        if record.phase is Phase.FAILED and (not record.progress.loaded or record.progress.wrong):
            self.not_loaded += 1
            self._example(url, record.error)
            return
        if record.phase in (Phase.DONE, Phase.FAILED):
            self.loaded += 1
        if record.phase is Phase.FAILED:
            self._unfinished(record)

    def _unfinished(self, record: Record) -> None:
        self.unfinished += 1
        self._example(record.dest, f"the rows are there, what was to follow failed: {record.error}")

    def _mine(self, ref: ObjectRef) -> bool:
        return ref.bucket == self.prefix.bucket and ref.name.startswith(self.prefix.name)

    def _example(self, what: str, why: str) -> None:
        if len(self.examples) < _SHOWN:
            self.examples.append((what, why))
