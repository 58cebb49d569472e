"""Background tasks outlive whatever one round of theirs meets: it is told, counted, and the next round tries again.

A task that runs for ever and dies takes the daemon down, with everybody's work; what it stumbled over would still be
there after the restart.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from prometheus_client import Counter

from ingestd.model.errors import IngestError, leading

log = structlog.get_logger(__name__)

FAILED = Counter("ingestd_task_failures", "Rounds of background tasks that failed; the next one tries again.", ["task"])


@contextmanager
def surviving(task: str, event: str, count: Callable[[], object] | None = None, **told: object) -> Iterator[None]:
    """One round of the task. `event` is what the log says, `count` a counter of the task's own."""
    try:
        yield
    except Exception as error:
        known = leading(error) if isinstance(error, ExceptionGroup) else error
        FAILED.labels(task).inc()
        if count is not None:
            count()
        if isinstance(known, IngestError):
            log.warning(event, task=task, error=str(known), **told)
        else:
            log.exception(event, task=task, error=f"{type(known).__name__}: {known}", **told)
