"""What is told of a batch: the canonical line and the metrics at its end, and its place in a trace."""

from collections import Counter as TallyOf
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime

import structlog
from prometheus_client import Counter, Gauge, Histogram

from ingestd.batch.content import Fate
from ingestd.batch.phases import Phase
from ingestd.batch.record import Kind, Record
from ingestd.batch.rule_metrics import Times, measure
from ingestd.batch.sources import MANY_FILES
from ingestd.model.aside import aside
from ingestd.ops import tracing
from ingestd.ops.latencies import observe_all

log = structlog.get_logger(__name__)

BATCHES = Counter("ingestd_batches", "Batches that reached their end, by kind and phase.", ["kind", "phase"])
ROWS = Counter("ingestd_rows_loaded", "Rows loaded and proven.")
BYTES = Counter("ingestd_bytes_loaded", "Source bytes loaded and proven.")
FILES = Counter("ingestd_files", "Files whose batch ended, by what became of them.", ["phase"])
LATENCY = Histogram(
    "ingestd_file_latency_seconds",
    "Seconds from a file's event to the end of its batch.",
    buckets=(1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400),
)
LAST_LOADED = Gauge("ingestd_last_loaded_timestamp_seconds", "When a batch last ended well.")
for _phase in Phase:
    if _phase.final:
        BATCHES.labels(Kind.LOAD, _phase)
        FILES.labels(_phase)
for _fate in Fate:
    FILES.labels(_fate)


def count_loaded(record: Record) -> None:
    ROWS.inc(record.progress.claimed)
    BYTES.inc(record.progress.size)


async def report(record: Record, now: datetime) -> None:
    """The canonical line: one per batch, with everything a person asks first."""
    times = await aside(len(record.files) > MANY_FILES, Times.of, record, now)
    BATCHES.labels(record.kind, record.phase).inc()
    fates = fates_of(record)
    for fate, number in fates.items():
        FILES.labels(fate).inc(number)
    measure(record, fates, times)
    observe_all(LATENCY, times.seconds)
    if record.phase is Phase.DONE:
        LAST_LOADED.set(now.timestamp())
    write = log.error if record.phase is Phase.FAILED else log.info
    write(
        f"batch.{record.phase}",
        event_id=record.event_id,
        rule=record.rule.url,
        dest=record.dest,
        files=len(record.files),
        source=record.files[0].ref.url if record.files else "",
        rows=record.rows,
        attempts=record.attempt,
        **({"set_aside": len(record.progress.aside)} if record.progress.aside else {}),
        seconds=round((now - record.created).total_seconds(), 3),
        **({"error": record.error} if record.error else {}),
    )


def begin_trace(record: Record) -> None:
    """What led to the batch, as its first span: a notification, or the time in which a window collected its files."""
    if not tracing.on():
        return
    what: dict[str, tracing.Value] = {"event_id": record.event_id, "dest": record.dest, "rule": record.rule.name}
    what["files"] = len(record.files)
    if record.window is not None:
        began = datetime.fromtimestamp(record.window.start, UTC)
        gathered = [file.event_id for file in record.files[: tracing.MOST_LINKS]]
        tracing.first("window", record.event_id, began, files=gathered, attributes=what)
    elif record.files and record.success is None:
        what["source"] = record.files[0].ref.url
        tracing.first("notification", record.event_id, record.files[0].event_time, attributes=what)
    else:
        tracing.first("success" if record.success else "route", record.event_id, record.created, attributes=what)


def traced(record: Record) -> AbstractContextManager[object]:
    if not tracing.on():
        return nullcontext()
    parent = record.trace or tracing.context_of(record.event_id)
    return tracing.span("batch", parent=parent, event_id=record.event_id, dest=record.dest, rule=record.rule.name)


def fates_of(record: Record) -> TallyOf[str]:
    """How many files ended how: set aside for a reason, or as the batch did."""
    fates = TallyOf(str(one.fate) for one in record.progress.aside.values() if one.fate is not Fate.READ_EARLIER)
    if (others := len(record.files) - fates.total()) > 0:
        fates[str(record.phase)] += others
    return fates
