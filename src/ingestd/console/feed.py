"""From the daemon's work to the console's memory: batches that end or wait, refused files, dead letters, samples.

The runner and the intake tell; nothing here asks Cloud Storage or BigQuery anything.
"""

import asyncio
from collections import Counter, OrderedDict
from datetime import datetime, timedelta

from prometheus_client import Gauge

from ingestd.batch.content import Fate
from ingestd.batch.journal import Journal
from ingestd.batch.news import News
from ingestd.batch.phases import Phase
from ingestd.batch.record import Record
from ingestd.batch.report import fates_of
from ingestd.batch.rule_metrics import RULES
from ingestd.batch.runner import BatchRunner
from ingestd.batch.sources import MANY_FILES
from ingestd.collect.windows.manager import Windows
from ingestd.console.story import where
from ingestd.dispatch.reconciler import Reconciler
from ingestd.intake.puller import Puller
from ingestd.model.aside import aside
from ingestd.model.clock import Clock
from ingestd.model.objects import FileVersion
from ingestd.ops.history import FILES_REMEMBERED, Ended, History, Level, Trouble, TroubleKind

RULE_WINDOWS = Gauge("ingestd_rule_windows_open", "Windows this process is tending, by rule.", ["rule"])
RULE_WINDOW_AGE = Gauge(
    "ingestd_rule_window_age_seconds", "Age of the oldest window this process is tending, by rule; 0: none.", ["rule"]
)

EVERY = timedelta(seconds=5)
_AWAITING = 2_000
_SHOWN_FILES = 20  # set aside in one batch; its record has them all
_REASON = 2_000  # characters
_AT_A_STRETCH = 10_000  # files remembered before others get their turn


class Feed:
    def __init__(
        self,
        history: History,
        clock: Clock,
        *,
        news: News,
        journal: Journal,
        runner: BatchRunner,
        windows: Windows,
        reconciler: Reconciler,
        pullers: tuple[Puller, ...],
    ) -> None:
        self.history = history
        self._clock = clock
        self._journal = journal
        self._runner = runner
        self._windows = windows
        self._reconciler = reconciler
        self._pullers = pullers
        self._awaiting: OrderedDict[str, tuple[Record, datetime]] = OrderedDict()
        self._gauged: set[str] = set()
        news.ended.append(self.ended)
        news.released.append(self.released)
        news.refused.append(self.refused)
        news.buried.append(self.dead_letter)

    async def run(self) -> None:
        """Root task: samples for the plots."""
        while True:
            self.look()
            await self._clock.sleep(EVERY)

    def look(self) -> None:
        """Take a sample now."""
        now = self._clock.now()
        windows = self._windows.open_windows
        oldest: dict[str, float] = {}
        counts: Counter[str] = Counter()
        for window in windows:
            rule = RULES.of(window.head.rule.name)
            counts[rule] += 1
            oldest[rule] = min(oldest.get(rule, window.window.start), window.window.start)
        for rule in self._gauged | counts.keys():
            RULE_WINDOWS.labels(rule).set(counts[rule])
            age = now.timestamp() - oldest[rule] if rule in oldest else 0.0
            RULE_WINDOW_AGE.labels(rule).set(max(0.0, age))
        self._gauged |= counts.keys()
        self.history.tick(
            now,
            Level(
                windows=len(windows),
                waiting=sum(window.files for window in windows),
                active=len(self._runner.active),
                in_flight=sum(puller.desk.in_flight for puller in self._pullers),
            ),
        )
        self._prune()

    def awaiting(self) -> list[Record]:
        """Batches this process has let go of that have not ended: their job runs, or they wait for a retry."""
        self._prune()
        return [record for record, _ in self._awaiting.values()]

    def refused(self, file: FileVersion, reason: str, rules: list[str]) -> None:
        self._trouble(TroubleKind.REFUSED, file.ref.url, reason, rule=", ".join(rules))

    def dead_letter(self, subscription: str, message_id: str, reason: str) -> None:
        self._trouble(TroubleKind.DEAD_LETTER, f"message {message_id} of {subscription}", reason)

    async def ended(self, record: Record) -> None:
        """A batch has ended: what the runner tells."""
        heavy = len(record.files) > MANY_FILES
        batch, latencies, sources = await aside(heavy, self._gone_through, record)
        self.history.ended(batch, (), latencies)
        for at in range(0, len(sources), _AT_A_STRETCH):
            if at:
                await asyncio.sleep(0)
            self.history.remember(batch.event_id, sources[at : at + _AT_A_STRETCH])
        failed = record.phase is Phase.FAILED
        # One trouble each: files that failed with their batch are its own, a batch that failed for bad files is theirs.
        bad = [one for one in record.progress.wrong if not (failed and record.progress.aside[one].fate is Fate.FAILED)]
        for index in bad[:_SHOWN_FILES]:
            found = record.progress.aside[index]
            place = f"{found.fate}{where(found.row, found.column)}"
            self._trouble(TroubleKind.QUARANTINED, record.files[index].ref.url, f"{place}: {found.why}", record=record)
        if failed and not 0 < len(record.files) == len(bad) <= _SHOWN_FILES:
            self._trouble(TroubleKind.FAILED, _subject(record), record.error, record=record)

    def _gone_through(self, record: Record) -> tuple[Ended, list[float], list[str]]:
        """What is remembered of a batch that has ended: as it is described, how long files took, which they were."""
        now = self._clock.now()
        latencies = [max(0.0, (now - file.event_time).total_seconds()) for file in record.loaded_files]
        return self.describe(record), latencies, [file.ref.url for file in record.files[-FILES_REMEMBERED:]]

    def describe(self, record: Record) -> Ended:
        return Ended(
            event_id=record.event_id,
            kind=record.kind,
            phase=record.phase,
            rule=record.rule.name,
            dest=record.dest,
            files=len(record.files),
            rows=record.progress.rows if record.rows is None else record.rows,
            size=record.progress.size,
            attempts=record.attempt,
            created=record.created,
            ended=self._clock.now(),
            source=record.files[0].ref.url if record.files else str(record.trigger_job or ""),
            window=record.window.name if record.window else "",
            error=record.error[:_REASON],
            record=self._journal.done(record).url,
            fates=dict(fates_of(record)),
            newest=max((file.event_time for file in record.loaded_files), default=None),
        )

    def released(self, record: Record) -> None:
        self._awaiting.pop(record.event_id, None)
        if record.phase.final:
            return
        self._awaiting[record.event_id] = (record, self._clock.now())
        if len(self._awaiting) > _AWAITING:
            self._awaiting.popitem(last=False)
        if record.wait.until is not None:
            self._trouble(TroubleKind.BLOCKED, _subject(record), record.error, record=record)

    def _prune(self) -> None:
        """Forget what another replica has brought to its end: it is not under `Running/` any more."""
        swept, running = self._reconciler.swept_at, self._reconciler.running
        if swept is None or len(running) >= _AWAITING:
            return
        gone = [key for key, (_, since) in self._awaiting.items() if since < swept and key not in running]
        for key in gone:
            del self._awaiting[key]

    def _trouble(
        self, kind: TroubleKind, subject: str, reason: str, *, rule: str = "", record: Record | None = None
    ) -> None:
        self.history.trouble(
            Trouble(
                at=self._clock.now(),
                kind=kind,
                subject=subject,
                reason=reason[:_REASON],
                rule=record.rule.name if record else rule,
                dest=record.dest if record else "",
                event_id=record.event_id if record else "",
                retry_at=record.wait.until if record else None,
            )
        )


def _subject(record: Record) -> str:
    if not record.files:
        return str(record.trigger_job or record.event_id)
    more = f" and {len(record.files) - 1:,} more" if len(record.files) > 1 else ""
    return f"{record.files[0].ref.url}{more}"
