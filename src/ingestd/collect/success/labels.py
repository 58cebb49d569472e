"""Job labels that BigQuery takes, from texts that may hold anything."""

import re
from collections.abc import Mapping

_UNFIT = re.compile(r"[^a-z0-9_-]")
_LONGEST = 63


def label_value(text: str) -> str:
    """Lower case letters, digits, `_` and `-`, at most 63 of them."""
    return _UNFIT.sub("_", text.lower())[:_LONGEST]


def label_key(text: str) -> str:
    """As a value, and it starts with a letter."""
    key = label_value(text)
    return key if key[:1].isalpha() else f"x{key}"[:_LONGEST]


def job_labels(user: Mapping[str, str], *, bucket: str, batch: str, function: str) -> dict[str, str]:
    """The user's labels, and those by which the jobs of the convention have always been found."""
    own = {
        "component": "event-based-gcs-ingest",
        "bucket-id": bucket,
        "batch-id": batch,
        "cloud-function-name": function,
    }
    labels = {label_key(key): label_value(value) for key, value in user.items()}
    return labels | {key: label_value(value) for key, value in own.items() if value}
