"""The quota governor: loads are paced so that BigQuery has no reason to refuse them.

Per table 5 changes in 10 s (50 if it is partitioned) and 1,500 a day, failed ones included; per project 100,000 loads a
day. Every load and every publishing copy is admitted here first. Short waits are waited out; a long one is handed back
as `Throttled` with the time that is reserved for the caller, so that nobody asks twice. What BigQuery refuses all the
same (others may write to the table too) feeds back. `stretch` says by how much windows should widen meanwhile.

Replicas share the quotas. Rates are divided by how many are alive. A day's budget is everybody's: each counts its own
use and is told that of the others, the gone ones included (`own_use`, `restore`, `learn`; `windows/quota_use.py` keeps
the notes). With a `share` of its own a process keeps to that part of each quota instead, whatever the others do.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import structlog
from prometheus_client import Counter, Gauge, Histogram

from ingestd.model.clock import Clock
from ingestd.model.errors import Throttled
from ingestd.model.tables import TableName
from ingestd.warehouse.budget import DAY, LOOK_EVERY, MOST, Budget, Pace

log = structlog.get_logger(__name__)

ADMITTED = Counter("ingestd_quota_admitted", "Loads and publishing copies admitted.")
WAITS = Counter("ingestd_quota_waits", "Loads that had to wait for a quota, by which one.", ["quota"])
REFUSALS = Counter("ingestd_quota_refusals", "Jobs that BigQuery refused for a quota, by kind.", ["kind"])
WAIT_SECONDS = Histogram(
    "ingestd_quota_wait_seconds", "Seconds that loads waited for a quota.", buckets=(0.1, 1, 5, 10, 30, 60, 600, 3600)
)
WAITING = Gauge("ingestd_quota_waiting", "Loads waiting for a quota in this process.")
USED = Gauge("ingestd_quota_used_ratio", "Share of its daily budget that the busiest table has used.")
WIDEST = Gauge("ingestd_quota_stretch", "By how much windows are widened, at most, for the busiest tables.")
for _quota in ("rate", "table_day", "project_day", "refused", "others"):
    WAITS.labels(_quota)
for _kind in ("rate", "quota"):
    REFUSALS.labels(_kind)

_CALM = 600.0  # a refusal's pressure halves in this time
_MAX_DOUBLINGS = 6
_UNUSED = 600.0  # a reservation that nobody comes for lapses
_SHOWN = 20
_TIDY_EVERY = 3600.0


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    enabled: bool = True
    changes: int = 5
    changes_partitioned: int = 50
    span: timedelta = timedelta(seconds=10)
    margin: timedelta = timedelta(seconds=2)  # BigQuery counts when jobs end, which is less even than when they begin
    table_day: int = 1_500
    project_day: int = 100_000
    share: float | None = None  # None: an equal part, by how many replicas are alive
    patience: timedelta = timedelta(seconds=15)  # a batch that waits holds a place that others could use

    def daily(self, whole: int) -> int:
        """A day's budget as this process counts it: everybody's, unless it has a share of its own."""
        return max(1, int(whole * (self.share or 1.0)))


@dataclass(slots=True)
class _Table:
    promised: Pace
    admitted: Pace
    budget: Budget
    closed_until: float = 0.0
    pressure: float = 1.0
    refused_at: float = 0.0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class _Slot:
    table: str
    moment: float
    quota: str


@dataclass(slots=True)
class QuotaGovernor:
    clock: Clock
    limits: QuotaLimits = field(default_factory=QuotaLimits)
    _tables: dict[str, _Table] = field(default_factory=dict)
    _reserved: dict[str, _Slot] = field(default_factory=dict)
    _project: Budget = field(init=False)
    _tidied: float = 0.0
    share: float = field(init=False)

    def __post_init__(self) -> None:
        self._project = Budget(self.limits.daily(self.limits.project_day))
        self.share = self.limits.share or 1.0

    def expose(self) -> None:
        """Let the metrics tell about this governor, whenever they are asked."""
        USED.set_function(lambda: max((one["used_today"] / one["limit"] for one in self.status()["tables"]), default=0))
        WIDEST.set_function(lambda: max((one["stretch"] for one in self.status()["tables"]), default=1.0))

    async def admit(self, table: TableName, *, partitioned: bool = False, key: str = "") -> None:
        """Return when the table may be changed once more.

        A wait beyond `patience` raises `Throttled` instead, with the time that is kept for `key` until then.
        """
        if not self.limits.enabled:
            return
        now = self.clock.monotonic()
        name = _name(table)
        slot = self._reserved.pop(key, None)
        if slot is None or slot.table != name:
            self._ask_for_others(name, now)
            slot = self._reserve(name, now, partitioned)
        state = self._table(name)
        # Whoever comes later than promised comes together with others: the pace holds for when they really come.
        moment = max(slot.moment, state.admitted.next(now))
        wait = moment - now
        if wait > 0:
            WAITS.labels(slot.quota).inc()
        if wait > self.limits.patience.total_seconds():
            self._keep(key, slot)
            until = self.clock.now() + timedelta(seconds=wait)
            raise Throttled(f"{name} has used up its {_WORDS[slot.quota]}; its turn is at {until:%H:%M:%S}", until)
        state.admitted.take(moment)
        if wait > 0:
            await self._wait(slot, wait)
        ADMITTED.inc()

    def throttled(self, table: TableName, until: datetime | None = None, *, quota: bool = False) -> None:
        """BigQuery refused a change of the table: nothing more until then, and wider windows for a while."""
        REFUSALS.labels("quota" if quota else "rate").inc()
        now = self.clock.monotonic()
        state = self._table(_name(table))
        if until is not None:
            state.closed_until = max(state.closed_until, now + (until - self.clock.now()).total_seconds())
        state.pressure = min(self._pressure(state, now) * 2, 2.0**_MAX_DOUBLINGS)
        state.refused_at = now
        log.warning("quota.refused", table=_name(table), until=until, daily=quota, stretch=self.stretch(table))

    def stretch(self, table: TableName, window: timedelta | None = None) -> float:
        """By how much a window of the table should widen: 1.0 while there is plenty of budget left.

        Without `window` it is one of the even pace over the day: 57.6 s.
        """
        if not self.limits.enabled:
            return 1.0
        now = self.clock.monotonic()
        project = self._project.stretch(now)
        state = self._tables.get(_name(table))
        if state is None:
            return project
        own = state.budget.stretch(now, window.total_seconds() if window else None)
        return min(max(own, project) * self._pressure(state, now), MOST)

    def own_use(self) -> dict[str, dict[float, int]]:
        """What this process has used and still counts: by table, when (in seconds from now) and how many."""
        now = self.clock.monotonic()
        use = {name: state.budget.own(now) for name, state in self._tables.items()}
        return {name: {at - now: count for at, count in used.items()} for name, used in use.items() if used}

    def restore(self, use: Mapping[str, Mapping[float, int]]) -> None:
        """What this replica had used before it was started again."""
        now = self.clock.monotonic()
        for name, used in use.items():
            for ago, count in used.items():
                self._table(name).budget.take(now + ago, count)
                self._project.take(now + ago, count)

    def learn(self, others: Mapping[str, Mapping[float, int]], alive: int) -> None:
        """What others have used (as `own_use` has it), and how many replicas share what is left."""
        now = self.clock.monotonic()
        self.share = self.limits.share or 1 / max(1, alive)
        # With a share of its own this process spends what is its alone, and inherits that part of what others spent.
        part, ration = (self.limits.share, 1.0) if self.limits.share else (1.0, self.share)
        project: dict[float, int] = {}
        for name in {*self._tables, *others}:
            used = {now + ago: math.ceil(count * part) for ago, count in others.get(name, {}).items()}
            self._table(name).budget.learn(used, ration, now)
            for moment, count in used.items():
                project[moment] = project.get(moment, 0) + count
        self._project.learn(project, ration, now)

    def status(self) -> dict[str, Any]:
        """What `/status` shows: the project, and the busiest tables."""
        now = self.clock.monotonic()
        used = {name: state.budget.used(now) for name, state in self._tables.items()}
        busiest = sorted(used, key=lambda name: -used[name])[:_SHOWN]
        return {
            "enabled": self.limits.enabled,
            "share": round(self.share, 4),
            "project_used": self._project.used(now),
            "project_limit": self._project.limit,
            "waiting": sum(state.waiting for state in self._tables.values()),
            "reserved": len(self._reserved),
            "tables": [self._describe(name, used[name], now) for name in busiest],
        }

    def _describe(self, name: str, used: int, now: float) -> dict[str, Any]:
        state = self._tables[name]
        stretch = max(state.budget.stretch(now), self._project.stretch(now)) * self._pressure(state, now)
        return {
            "table": name,
            "used_today": used,
            "limit": state.budget.limit,
            "stretch": round(min(stretch, MOST), 2),
            "waiting": state.waiting,
            "closed_for_seconds": round(max(0.0, state.closed_until - now), 1),
        }

    def _ask_for_others(self, name: str, now: float) -> None:
        """The last of a day's budget goes to nobody who does not know what the others took: no turn is kept for it."""
        if self._table(name).budget.blind(now) or self._project.blind(now):
            WAITS.labels("others").inc()
            until = self.clock.now() + timedelta(seconds=LOOK_EVERY)
            raise Throttled(f"{name} has little left of its loads of the day, which other replicas may be using", until)

    def _reserve(self, name: str, now: float, partitioned: bool) -> _Slot:
        self._tidy(now)
        state = self._table(name)
        changes = self._part(self.limits.changes_partitioned if partitioned else self.limits.changes)
        if state.promised.count != changes:
            state.promised, state.admitted = state.promised.widened(changes), state.admitted.widened(changes)
        times = {
            "rate": state.promised.next(now),
            "table_day": state.budget.next(now),
            "project_day": self._project.next(now),
            "refused": max(now, state.closed_until),
        }
        quota = max(times, key=lambda one: times[one])
        moment = times[quota]
        state.promised.take(moment)
        state.budget.take(moment)
        self._project.take(moment)
        return _Slot(name, moment, quota)

    async def _wait(self, slot: _Slot, seconds: float) -> None:
        WAIT_SECONDS.observe(seconds)
        with self._waiting(self._tables[slot.table]):
            try:
                await self.clock.sleep(timedelta(seconds=seconds))
            except BaseException:
                self._give_back(slot)
                raise

    @contextmanager
    def _waiting(self, state: _Table) -> Iterator[None]:
        WAITING.inc()
        state.waiting += 1
        try:
            yield
        finally:
            state.waiting -= 1
            WAITING.dec()

    def _keep(self, key: str, slot: _Slot) -> None:
        if key:
            self._reserved[key] = slot
        else:
            self._give_back(slot)

    def _give_back(self, slot: _Slot) -> None:
        if state := self._tables.get(slot.table):
            state.budget.give_back(slot.moment)
        self._project.give_back(slot.moment)

    def _table(self, name: str) -> _Table:
        state = self._tables.get(name)
        if state is None:
            changes = self._part(self.limits.changes)
            span = (self.limits.span + self.limits.margin).total_seconds()
            budget = Budget(self.limits.daily(self.limits.table_day))
            state = self._tables[name] = _Table(Pace(changes, span), Pace(changes, span), budget)
        return state

    def _part(self, rate: int) -> int:
        return max(1, int(rate * self.share))

    def _pressure(self, state: _Table, now: float) -> float:
        halvings = (now - state.refused_at) / _CALM  # of a table that was never refused, since its node was started
        return max(1.0, state.pressure * math.exp2(-halvings))

    def _tidy(self, now: float) -> None:
        """Reservations nobody came for, and tables nobody writes to any more."""
        for key in [key for key, slot in self._reserved.items() if slot.moment + _UNUSED < now]:
            self._give_back(self._reserved.pop(key))
        if now - self._tidied < _TIDY_EVERY:
            return
        self._tidied = now
        idle = [
            name
            for name, state in self._tables.items()
            if not state.waiting and not state.budget.used(now) and state.closed_until < now - DAY
        ]
        for name in idle:
            del self._tables[name]


_WORDS = {
    "rate": "changes per 10 seconds",
    "table_day": "loads of the day",
    "project_day": "project's loads of the day",
    "refused": "quota, says BigQuery",
}


def _name(table: TableName) -> str:
    return str(table.partition(None))
