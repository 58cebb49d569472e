"""What becomes of a rule with keys that rules do not have: a choice of the settings and of commands that read rules."""

from enum import StrEnum


class UnknownKeys(StrEnum):
    REFUSE = "refuse"
    TYPOS = "typos"  # only what is nearly a key of the rule is refused; the others are passed over with a warning
    WARN = "warn"  # bqtail's way: all are passed over, here with a warning
