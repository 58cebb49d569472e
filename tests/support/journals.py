"""A journal in memory, as one replica or several of them have it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

from tests.support.manual_clock import ManualClock
from tests.support.memory_store import MemoryStore

from ingestd.batch.journal import Journal
from ingestd.model.objects import ObjectRef


def replicas(*start: Any) -> tuple[ManualClock, Callable[[str], Journal]]:
    """The clock, and what makes a replica's journal of its name."""
    clock = ManualClock(*start)
    store = MemoryStore(clock)

    def journal(owner: str) -> Journal:
        return Journal(cast("Any", store), ObjectRef("ops", "j"), clock, owner=owner, lease=timedelta(seconds=60))

    return clock, journal


def replica(*start: Any) -> tuple[ManualClock, Journal]:
    clock, journal = replicas(*start)
    return clock, journal("a")
