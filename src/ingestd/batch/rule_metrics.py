"""What each rule and each table gets done, for dashboards: counted once, when a batch has ended.

Names are bounded (see `BoundedLabel`): beyond the first 200 rules or tables, series are added up under `other`.
"""

from collections import Counter as TallyOf
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import Counter, Gauge, Summary

from ingestd.batch.record import Kind, Record
from ingestd.ops.labels import BoundedLabel
from ingestd.ops.latencies import observe_all

RULE_BATCHES = Counter("ingestd_rule_batches", "Batches that ended, by rule and phase.", ["rule", "phase"])
RULE_FILES = Counter(
    "ingestd_rule_files", "Files whose batch ended, by rule and what became of them.", ["rule", "fate"]
)
RULE_ROWS = Counter("ingestd_rule_rows_loaded", "Rows loaded and proven, by rule.", ["rule"])
RULE_BYTES = Counter("ingestd_rule_bytes_loaded", "Source bytes loaded and proven, by rule.", ["rule"])
RULE_LATENCY = Summary(
    "ingestd_rule_file_latency_seconds", "Seconds from a file's event to the end of its batch, by rule.", ["rule"]
)
RULE_NEWEST = Gauge(
    "ingestd_rule_newest_loaded_timestamp_seconds",
    "Event time of the newest file loaded, by rule: its distance from now is the rule's freshness.",
    ["rule"],
)
TABLE_NEWEST = Gauge(
    "ingestd_table_newest_loaded_timestamp_seconds",
    "Event time of the newest file loaded, by destination table.",
    ["table"],
)

RULES, TABLES = BoundedLabel(), BoundedLabel()


_USUAL = ("done", "failed", "corrupted", "invalid_schema")


def expect(rules: Iterable[str]) -> None:
    """Series of these rules begin at 0: what a counter has when it first shows, Prometheus counts for nothing."""
    for name in rules:
        rule = RULES.of(name)
        for fate in _USUAL:
            RULE_FILES.labels(rule, fate)
        for phase in _USUAL[:2]:
            RULE_BATCHES.labels(rule, phase)
        RULE_ROWS.labels(rule)
        RULE_BYTES.labels(rule)


@dataclass(frozen=True, slots=True)
class Times:
    """How long the files of a batch took, and which time the newest of those that loaded is of."""

    seconds: Sequence[float]  # ascending
    newest: datetime | None

    @classmethod
    def of(cls, record: Record, now: datetime) -> "Times":
        """Goes through all files: of many, beside the event loop."""
        seconds = sorted(max(0.0, (now - file.event_time).total_seconds()) for file in record.files)
        return cls(seconds, max((file.event_time for file in record.loaded_files), default=None))


def measure(record: Record, fates: TallyOf[str], times: Times) -> None:
    """Count a batch that has ended."""
    if record.kind is not Kind.LOAD:
        return
    rule = RULES.of(record.rule.name)
    RULE_BATCHES.labels(rule, record.phase).inc()
    for fate, number in fates.items():
        RULE_FILES.labels(rule, fate).inc(number)
    RULE_ROWS.labels(rule).inc(record.progress.claimed)
    RULE_BYTES.labels(rule).inc(record.progress.size)
    observe_all(RULE_LATENCY.labels(rule), times.seconds)
    if times.newest is not None:
        newest = times.newest.timestamp()
        for gauge in (RULE_NEWEST.labels(rule), TABLE_NEWEST.labels(TABLES.of(record.dest))):
            gauge.set(max(newest, gauge._value.get()))
