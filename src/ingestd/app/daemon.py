"""A daemon that is put together: its root tasks, how it drains, and what it says of its condition.

One task group of named root tasks. A root task that dies takes the daemon down loudly; Kubernetes starts it again, and
everything under way is durable. SIGTERM drains: pulling stops, what is in flight is finished or handed over.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from ingestd import __version__
from ingestd.batch.leftovers import Leftovers
from ingestd.batch.news import News
from ingestd.batch.runner import BatchRunner
from ingestd.collect.success.arrivals import SuccessArrivals
from ingestd.collect.windows.manager import Windows
from ingestd.collect.windows.pacing import Pacing
from ingestd.collect.windows.quota_use import QuotaUse
from ingestd.collect.windows.replicas import Replicas
from ingestd.collect.windows.sweep import WindowSweep
from ingestd.console.views import ConsoleViews
from ingestd.dispatch.reconciler import Reconciler
from ingestd.intake.puller import Puller
from ingestd.intake.router import Router
from ingestd.ledger.name_keeper import NameKeeper
from ingestd.ledger.sweep import LostFiles
from ingestd.ledger.writer import LoadStateWriter
from ingestd.model.clock import Clock
from ingestd.ops import process
from ingestd.ops.http import OpsServer
from ingestd.ops.strangers import Strangers
from ingestd.rules.loading import RuleLoader
from ingestd.settings import Settings
from ingestd.spark.session.session import Spark
from ingestd.spark.start import wants_spark
from ingestd.warehouse.governor import QuotaGovernor

log = structlog.get_logger(__name__)

_SHOWN_STRANGERS = 20


@dataclass(slots=True)
class Condition:
    """What the daemon says of itself: whether it takes work, and what everybody at it is up to."""

    settings: Settings
    rules: RuleLoader
    pullers: tuple[Puller, ...]
    governor: QuotaGovernor
    pacing: Pacing
    strangers: Strangers
    spark: Spark | None
    running: bool = False

    def missing(self) -> list[str]:
        """What keeps the daemon from taking work; empty when it is ready."""
        reasons = []
        if not self.running:
            reasons.append("starting or draining")
        if self.spark is not None and (problem := self.spark.missing()):
            reasons.append(problem)
        return reasons

    async def status(self) -> dict[str, Any]:
        book = self.rules.book
        return {
            "version": __version__,
            "project": self.settings.project,
            "ready": not self.missing(),
            "rules": [{"name": rule.name, "hash": rule.content_hash[:12]} for rule in book.rules],
            "rule_problems": [str(problem) for problem in book.problems],
            "quotas": self.governor.status(),
            "paces": self.pacing.status(),
            "spark": self.spark.status() if self.spark else {},
            "left_alone": [one.to_json() for one in self.strangers.recent()[-_SHOWN_STRANGERS:]],
            "in_flight": {puller.desk.name: puller.desk.in_flight for puller in self.pullers},
        }


@dataclass(slots=True)
class App:
    """A daemon that is put together; `run` runs it until `stop`."""

    settings: Settings
    clock: Clock
    news: News
    rules: RuleLoader
    condition: Condition
    pullers: tuple[Puller, ...]
    router: Router
    reconciler: Reconciler
    windows: Windows
    sweep: WindowSweep
    replicas: Replicas
    governor: QuotaGovernor
    pacing: Pacing
    quota_use: QuotaUse
    runner: BatchRunner
    leftovers: Leftovers | None
    success: SuccessArrivals | None
    load_state: LoadStateWriter | None
    lost: LostFiles | None
    names: NameKeeper
    spark: Spark | None
    console: ConsoleViews | None
    ops: OpsServer | None
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Drain and end: what SIGTERM asks for."""
        self._stopping.set()

    def reload_rules(self) -> None:
        """Look for edited rules now: what SIGHUP asks for."""
        self.rules.wake()

    async def run(self, instead: Callable[[], Awaitable[None]] | None = None) -> None:
        """Run until `stop`; with `instead`, run only that, beside everything but the intake and the HTTP server."""
        await self.rules.refresh()
        await self.quota_use.start()
        await self.pacing.look()
        if self.ops is not None and instead is None:
            await self.ops.start()
        try:
            async with asyncio.TaskGroup() as roots:
                collecting = [roots.create_task(self.windows.run(), name="windows")]
                if self.success is not None:
                    collecting.append(roots.create_task(self.success.run(), name="success"))
                steady = [
                    roots.create_task(self.replicas.beat_forever(), name="heartbeat"),
                    roots.create_task(self.sweep.run(), name="sweep:windows"),
                    roots.create_task(self.pacing.run(), name="pacing"),
                    roots.create_task(self.quota_use.run(), name="quota-use"),
                    roots.create_task(self.reconciler.run(), name="reconciler"),
                    roots.create_task(self.rules.watch(self.settings.rules.check_every), name="rules"),
                ]
                if self.leftovers is not None:
                    steady.append(roots.create_task(self.leftovers.run(), name="sweep:staging"))
                if self.spark is not None:
                    self._want_spark(self.spark)
                    roots.create_task(self.spark.supervise(), name="spark")
                if self.load_state is not None:
                    steady.append(roots.create_task(self.load_state.run(), name="load-state"))
                if self.lost is not None and instead is None:
                    steady.append(roots.create_task(self.lost.run(), name="sweep:lost-files"))
                if instead is None:
                    steady.append(roots.create_task(self.names.run(), name="sweep:names"))
                if self.console is not None:
                    steady.append(roots.create_task(self.console.feed.run(), name="console"))
                if self.ops is not None and instead is None:
                    steady.append(roots.create_task(process.watch_loop(), name="loop-lag"))
                pulling = [
                    roots.create_task(puller.run(), name=f"intake:{puller.desk.name}")
                    for puller in (self.pullers if instead is None else ())
                ]
                self.condition.running = True
                served = {"http": self.ops.url} if self.ops and instead is None else {}
                log.info("daemon.started", version=__version__, rules=len(self.rules.book.rules), **served)
                await (self._stopping.wait() if instead is None else instead())
                self.condition.running = False
                await self._drain([*pulling, *collecting])
                for task in steady:
                    task.cancel()
                if self.spark is not None:
                    self.spark.close()
            if self.load_state is not None:
                await self.load_state.close()
            await self.quota_use.close()
        finally:
            if self.ops is not None:
                await self.ops.stop()
        log.info("daemon.stopped")

    def _want_spark(self, spark: Spark) -> None:
        """A JVM takes many seconds to be of use: started ahead where it will be needed, and nowhere else."""
        how, engine = self.settings.spark.start, self.settings.engine
        needed = any(wants_spark(rule.spec, engine) for rule in self.rules.book.rules)
        if how == "always" or (how == "auto" and needed):
            spark.want()
        elif how == "never" and needed:
            log.warning("spark.needed", why="rules prepare files on Spark and spark.start is never: their batches wait")

    async def _drain(self, pulling: list[asyncio.Task[None]]) -> None:
        log.info("daemon.draining", in_flight=sum(puller.desk.in_flight for puller in self.pullers))
        for puller in self.pullers:
            puller.stop()
        self.windows.stop()
        if self.success is not None:
            self.success.stop()
        _, late = await asyncio.wait(pulling, timeout=self.settings.drain.total_seconds())
        for task in late:
            # Cancelled batches give their lease back, so that another replica continues them at once.
            log.warning("daemon.handing_over", task=task.get_name())
            task.cancel()

    def missing(self) -> list[str]:
        return self.condition.missing()

    async def status(self) -> dict[str, Any]:
        return await self.condition.status()
