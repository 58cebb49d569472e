"""Traces cost nothing while they are off, and what they need is named."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ingestd.model.errors import Fatal
from ingestd.ops import tracing


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    found = InMemorySpanExporter()
    tracing.start("", project="p", version="1", replica="r", exporter=found)
    yield found
    tracing.stop()


def test_switched_off_a_span_is_nothing_and_its_library_is_not_even_imported() -> None:
    assert tracing.span("one") is tracing.span("two", job="j")
    assert tracing.context_of("event") == ""
    assert tracing.log_fields() == {}
    code = "import sys, ingestd.app; print(any(name.startswith('opentelemetry.sdk') for name in sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "False\n"


def test_the_first_span_of_an_event_is_the_same_for_every_process_and_those_after_it_are_its_children(
    exporter: InMemorySpanExporter,
) -> None:
    tracing.first("notification", "42", datetime.now(UTC), attributes={"rule": "r"})
    with tracing.span("batch", parent=tracing.context_of("42")), tracing.span("load"):
        fields = tracing.log_fields()
        tracing.failed("no table")
    tracing._state.provider.force_flush()
    spans = {one.name: one for one in exporter.get_finished_spans()}
    first, batch, load = spans["notification"], spans["batch"], spans["load"]
    assert first.context is not None and batch.parent is not None and load.parent is not None
    assert tracing.context_of("42") == f"00-{first.context.trace_id:032x}-{first.context.span_id:016x}-01"
    assert batch.parent.span_id == first.context.span_id
    assert load.parent.span_id == batch.context.span_id
    assert fields["logging.googleapis.com/spanId"] == f"{load.context.span_id:016x}"
    assert load.status.description == "no table"


@pytest.mark.parametrize("sample", [0.0, 0.5, 1.0])
def test_what_is_sampled_is_decided_by_the_event_alone(sample: float) -> None:
    found = InMemorySpanExporter()
    tracing.start("", project="p", version="1", replica="r", sample=sample, exporter=found)
    try:
        events = [str(number) for number in range(200)]
        told = {one for one in events if tracing.context_of(one).endswith("-01")}
        for one in events:
            tracing.first("notification", one, datetime.now(UTC), attributes={"event": one})
        tracing._state.provider.force_flush()
        assert {one.attributes["event"] for one in found.get_finished_spans() if one.attributes} == told
        assert abs(len(told) - 200 * sample) < 40
    finally:
        tracing.stop()


def test_a_window_of_thousands_links_to_as_many_as_are_kept(exporter: InMemorySpanExporter) -> None:
    tracing.first("window", "w", datetime.now(UTC), files=map(str, range(5000)), attributes={})
    tracing._state.provider.force_flush()
    assert len(exporter.get_finished_spans()[0].links) == tracing.MOST_LINKS


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(Fatal, match=r"pip install 'ingestd\[otel\]'"):
        tracing.start("http://127.0.0.1:9/v1/traces", project="p", version="1", replica="r")
