"""Logs are events: JSON in Cloud Logging's fields, or coloured lines on a terminal.

What libraries log through the standard library takes the same way: one stream never mixes two formats.
"""

import logging
import sys
from datetime import datetime, timedelta
from typing import Any

import structlog

from ingestd import __version__
from ingestd.ops import redaction, tracing

# https://cloud.google.com/logging/docs/structured-logging: `severity`, `message` and `time` are picked up by the agent.
_ERROR_EVENT = "type.googleapis.com/google.devtools.clouderrorreporting.v1beta1.ReportedErrorEvent"
_SEVERITY = {"debug": "DEBUG", "info": "INFO", "warning": "WARNING", "error": "ERROR", "critical": "CRITICAL"}


def configure(format_: str = "auto", level: str = "info") -> None:
    """Set up structlog for the whole process; call once, first thing."""
    as_json = format_ == "json" or (format_ == "auto" and not sys.stderr.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time" if as_json else "timestamp"),
        _plain_values,
        redaction.processor,
    ]
    renderer: list[Any] = (
        [structlog.processors.format_exc_info, _cloud_logging, structlog.processors.JSONRenderer(default=str)]
        if as_json
        else [
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
        ]
    )
    structlog.configure(
        processors=[*shared, *renderer, redaction.processor],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    foreign = logging.StreamHandler(sys.stderr)
    foreign.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer, redaction.processor],
        )
    )
    logging.basicConfig(handlers=[foreign], level=logging.WARNING, force=True)


def _cloud_logging(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    event["severity"] = _SEVERITY.get(event.pop("level", "info"), "DEFAULT")
    event["message"] = event.pop("event", "")
    event.update(tracing.log_fields())
    if event["severity"] in ("ERROR", "CRITICAL"):
        # Error Reporting takes up what says that it is an error event, and groups it by its stack trace or message.
        event["@type"] = _ERROR_EVENT
        event["serviceContext"] = {"service": "ingestd", "version": __version__}
        if stack := event.pop("exception", ""):
            event["stack_trace"] = stack
    return event


def _plain_values(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Durations and instants in the units people grep for."""
    for key, value in event.items():
        if isinstance(value, timedelta):
            event[key] = round(value.total_seconds(), 3)
        elif isinstance(value, datetime):
            event[key] = value.isoformat()
    return event
