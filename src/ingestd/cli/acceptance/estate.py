"""What one acceptance run owns: names that are functions of the run's id, so that they are found again without it.

Objects lie below `ingestd-acceptance/<run>/` of the bucket, tables start with `acc_<run>_`, topics, subscriptions and
the log sink with `ingestd-acc-<run>-`. A run that was killed is removed by these names alone: `--clean RUN`.
"""

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_RUN = re.compile(r"[0-9]{10}[0-9a-f]{4}")
LABEL = "ingestd-acceptance"
SINK_FILTER = (
    'protoPayload.metadata."@type"="type.googleapis.com/google.cloud.audit.BigQueryAuditMetadata" '
    'protoPayload.metadata.jobChange.after="DONE"'
)


def new_run() -> str:
    return f"{datetime.now(UTC):%m%d%H%M%S}{secrets.token_hex(2)}"


def is_run(text: str) -> bool:
    return _RUN.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Estate:
    project: str
    bucket: str
    dataset: str
    run: str
    location: str = "US"

    # In the bucket

    @property
    def folder(self) -> str:
        return f"ingestd-acceptance/{self.run}/"

    @property
    def arrivals(self) -> str:
        """Only what is below is announced: the daemon's own objects lie beside it."""
        return f"{self.folder}in/"

    def url(self, name: str) -> str:
        return f"gs://{self.bucket}/{self.folder}{name}"

    # In the warehouse

    @property
    def tables(self) -> str:
        return f"acc_{self.run}_"

    def table(self, name: str) -> str:
        return f"{self.tables}{name}"

    def full(self, name: str) -> str:
        return f"{self.dataset}.{self.table(name)}"

    @property
    def labels(self) -> dict[str, str]:
        return {LABEL: self.run}

    # Messages

    def _name(self, what: str) -> str:
        return f"ingestd-acc-{self.run}-{what}"

    @property
    def notifications(self) -> str:
        """Topic and subscription."""
        return self._name("notifications")

    @property
    def completions(self) -> str:
        """Topic, subscription and log sink."""
        return self._name("completions")

    @property
    def dead_letters(self) -> str:
        return self._name("dead-letter")

    def settings(self, routes: list[dict[str, Any]]) -> dict[str, Any]:
        """The daemon's settings file."""
        return {
            "project": self.project,
            "rules": {"url": self.url("rules")},
            "subscriptions": {
                "notifications": self.notifications,
                "completions": self.completions,
                "dead_letter_topic": self.dead_letters,
            },
            "journal_url": self.url("ops/journal"),
            "error_url": self.url("ops/errors"),
            "defer_task_url": self.url("ops/tasks"),
            "batch_url": self.url("ops/batch"),
            "staging_url": self.url("ops/staging"),
            "load_state": {"table": self.full("loads")},
            "success": {
                "conventions": [
                    {"bucket": self.bucket, "prefix": f"{self.arrivals}success/", "root": f"{self.arrivals}success"}
                ]
            },
            "routes": routes,
            "jobs": {"location": self.location},
            "http": {"host": "127.0.0.1", "port": 0},
            "logging": {"format": "json"},
            "replica": f"acceptance-{self.run}",
        }
