"""Traces of batches, by OpenTelemetry: off unless `tracing.endpoint` is set, and then without cost.

A batch is one trace, from the notification (or the window, or the success file) to its last action, whichever replicas
work on it. Its first span has ids that follow from the event id, and its context is kept in the batch's record: whoever
continues the batch continues the trace. A window gathers many notifications; each of them is a span of its own, whose
ids follow from the file, so that the window's span links to them without anything being stored per file.

What a crash costs: spans that were open or not sent yet. The trace goes on with the next span; nothing depends on it.
The tracer is the process's, as metrics are: OpenTelemetry's context travels with tasks, and a span is current in one.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from ingestd.model.errors import Fatal

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

MOST_LINKS = 128  # of one window: OpenTelemetry's own limit

Value = str | int | float | bool


class _Ids(NamedTuple):
    trace: int
    span: int


class _State:
    tracer: Any = None
    provider: Any = None
    project: str = ""
    sample: float = 1.0


_state = _State()
_given: ContextVar[_Ids | None] = ContextVar("ids", default=None)
_NOTHING: AbstractContextManager[None] = nullcontext()


def start(
    endpoint: str,
    *,
    project: str,
    version: str,
    replica: str,
    sample: float = 1.0,
    exporter: "SpanExporter | None" = None,
) -> None:
    """Send spans to an OTLP receiver from now on, in the background; `exporter` instead, for tests."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise Fatal("tracing.endpoint needs an extra: pip install 'ingestd[otel]'") from error

    class Ids(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            given = _given.get()
            return given.trace if given else super().generate_trace_id()

        def generate_span_id(self) -> int:
            given = _given.get()
            return given.span if given else super().generate_span_id()

    resource = Resource.create(
        {"service.name": "ingestd", "service.version": version, "service.instance.id": replica or "ingestd"}
    )
    provider = TracerProvider(
        resource=resource, sampler=ParentBased(TraceIdRatioBased(sample)), id_generator=Ids(), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter(endpoint=endpoint)))
    _state.provider, _state.project, _state.sample = provider, project, sample
    _state.tracer = provider.get_tracer("ingestd", version)


def stop() -> None:
    """Send what waits, for a few seconds at most; blocks, so call it beside the event loop."""
    provider, _state.provider, _state.tracer = _state.provider, None, None
    if provider is not None:
        provider.force_flush(5_000)
        provider.shutdown()


def on() -> bool:
    return _state.tracer is not None


def context_of(event_id: str) -> str:
    """The context (a W3C traceparent) of the first span of a batch or file; empty when there are no traces."""
    if _state.tracer is None:
        return ""
    ids = _ids(event_id)
    return f"00-{ids.trace:032x}-{ids.span:016x}-{'01' if _sampled(ids.trace) else '00'}"


def first(
    name: str, event_id: str, began: datetime, *, files: Iterable[str] = (), attributes: Mapping[str, Value]
) -> None:
    """The first span of a trace, from `began` until now; `files` are the event ids of notifications it gathers."""
    if _state.tracer is None:
        return
    from opentelemetry import context, trace

    links = [trace.Link(_span_context(context_of(one))) for one, _ in zip(files, range(MOST_LINKS), strict=False)]
    token = _given.set(_ids(event_id))
    try:
        now = time.time_ns()
        started = min(int(began.timestamp() * 1_000_000_000), now)
        span = _state.tracer.start_span(
            name, context=context.Context(), links=links, start_time=started, attributes=dict(attributes)
        )
    finally:
        _given.reset(token)
    span.end(now)


def span(name: str, *, parent: str = "", **attributes: Value) -> AbstractContextManager[Any]:
    """Around a piece of work: a child of the span around it, or of a `parent` that another process may have begun."""
    if _state.tracer is None:
        return _NOTHING
    return _around(name, parent, attributes)


@contextmanager
def _around(name: str, parent: str, attributes: Mapping[str, Value]) -> Iterator[Any]:
    from opentelemetry import trace

    begun = trace.set_span_in_context(trace.NonRecordingSpan(_span_context(parent))) if parent else None
    with _state.tracer.start_as_current_span(name, context=begun, attributes=dict(attributes)) as made:
        yield made


def failed(why: str) -> None:
    """The span around this has not done what it should."""
    if _state.tracer is None:
        return
    from opentelemetry import trace

    trace.get_current_span().set_status(trace.StatusCode.ERROR, why)


def log_fields() -> dict[str, Value]:
    """What ties a log line to the span it was written in, by the names that Cloud Logging knows."""
    if _state.tracer is None:
        return {}
    from opentelemetry import trace

    here = trace.get_current_span().get_span_context()
    if not here.is_valid:
        return {}
    return {
        "logging.googleapis.com/trace": f"projects/{_state.project}/traces/{here.trace_id:032x}",
        "logging.googleapis.com/spanId": f"{here.span_id:016x}",
        "logging.googleapis.com/trace_sampled": bool(here.trace_flags.sampled),
    }


def _ids(event_id: str) -> _Ids:
    digest = blake2b(event_id.encode(), digest_size=24, person=b"ingestd").digest()
    return _Ids(int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:]) or 1)


def _sampled(trace_id: int) -> bool:
    """As OpenTelemetry's ratio sampler decides, so that all replicas agree."""
    return trace_id & (2**64 - 1) < round(_state.sample * 2**64)


def _span_context(traceparent: str) -> Any:
    from opentelemetry import trace

    _, trace_id, span_id, flags = traceparent.split("-")
    marks = trace.TraceFlags(int(flags, 16))
    return trace.SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=marks)
