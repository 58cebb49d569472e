"""Whatever arrives on the subscriptions, the parsers answer an event or say why not, and never raise anything else."""

import json
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ingestd.intake.audit import parse_audit
from ingestd.intake.notifications import Unreadable, parse_notification

NAMES = st.sampled_from(
    ["bucket", "name", "generation", "size", "timeCreated", "metadata", "data", "type", "context", "eventType",
     "protoPayload", "jobChange", "job", "jobName", "jobStatus", "jobState", "after", "serviceData",
     "jobCompletedEvent", "projectId", "jobId", "location", "resource", "labels", "crc32c"]
)  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["DONE", "OBJECT_FINALIZE", "projects/p/jobs/j", "1700000000000001", "2024-01-01T00:00:00Z"])
)
DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(), inner, max_size=6)
)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(["eventType", "bucketId", "objectId", "objectGeneration", "payloadFormat", "overwroteGeneration"]),
    st.sampled_from(["OBJECT_FINALIZE", "NONE", "JSON_API_V1", "1", "x", ""]) | st.text(),
)


@given(DOCUMENTS, ATTRIBUTES)
def test_the_notification_parser_never_raises_on_arbitrary_json(document: Any, attributes: dict[str, str]) -> None:
    with suppress(Unreadable):
        parse_notification(json.dumps(document).encode(), attributes)


@given(DOCUMENTS)
def test_the_audit_parser_never_raises_on_arbitrary_json(document: Any) -> None:
    with suppress(Unreadable):
        parse_audit(json.dumps(document).encode(), {})


@given(st.binary(), ATTRIBUTES)
def test_the_parsers_never_raise_on_arbitrary_bytes(data: bytes, attributes: dict[str, str]) -> None:
    with suppress(Unreadable):
        parse_notification(data, attributes)
    with suppress(Unreadable):
        parse_audit(data, attributes)
