"""Objects in the daemon's own folders that it cannot read: left alone, counted, and told once each.

The counter rises with every look at such an object, so that it keeps rising while one is there.
"""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from prometheus_client import Counter

from ingestd.model.clock import Clock, SystemClock
from ingestd.model.errors import NewerVersion
from ingestd.model.objects import ObjectRef

log = structlog.get_logger(__name__)

LEFT_ALONE = Counter(
    "ingestd_objects_left_alone",
    "Looks at objects in the daemon's own folders that it cannot read and leaves alone, by folder and reason.",
    ["place", "why"],
)
_PLACES = ("journal", "windows", "paces", "queues", "tasks", "quarantine", "load_state", "notes", "quota", "names")
for _place in _PLACES:
    for _why in ("unreadable", "newer_version"):
        LEFT_ALONE.labels(_place, _why)

_REMEMBERED = 200
_RECENT = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Stranger:
    url: str
    place: str
    why: str  # unreadable, newer_version
    reason: str
    seen: datetime

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class Strangers:
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._known: OrderedDict[str, Stranger] = OrderedDict()

    def met(self, place: str, ref: ObjectRef, error: Exception) -> None:
        why = "newer_version" if isinstance(error, NewerVersion) else "unreadable"
        LEFT_ALONE.labels(place, why).inc()
        before = self._known.pop(ref.url, None)
        if before is None or before.reason != str(error):
            log.warning("object.left_alone", object=ref.url, why=why, reason=str(error))
        self._known[ref.url] = Stranger(ref.url, place, why, str(error), self._clock.now())
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def recent(self) -> list[Stranger]:
        """Those that were met within the last hour."""
        since = self._clock.now() - _RECENT
        return [one for one in self._known.values() if one.seen >= since]
