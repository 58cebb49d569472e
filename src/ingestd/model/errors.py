"""The four kinds of failure. Adapters map every foreign error to one of them, once; nothing else is invented later.

`Transient` is retried, `Throttled` waits, `BadInput` sets files aside, `Fatal` stops one batch and keeps its state.
"""

from collections.abc import Iterable
from datetime import datetime


class IngestError(Exception):
    """Base of the four kinds."""


class Transient(IngestError):  # noqa: N818 - the four kinds are named by what to do about them
    """The service or the network hiccuped: the same call may succeed in a moment."""


class Throttled(IngestError):  # noqa: N818
    """A rate or quota is used up; `until` says when trying again makes sense, where the service told."""

    def __init__(self, message: str, until: datetime | None = None, *, quota: bool = False) -> None:
        super().__init__(message)
        self.until = until
        self.quota = quota  # a daily quota takes hours to come back, a rate limit seconds


class BadInput(IngestError):  # noqa: N818
    """These files (or this document) are wrong; trying again changes nothing until they change."""

    def __init__(self, message: str, files: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.files = files


class Fatal(IngestError):  # noqa: N818
    """Permission, configuration or a missing resource: a person (or time) has to change the surroundings."""


class NotFound(Fatal):
    """A missing bucket, object, dataset, table, topic or subscription."""


class PreconditionFailed(IngestError):  # noqa: N818
    """A generation precondition did not hold: somebody else was first. A verdict, not a failure."""


class TooWide(IngestError):  # noqa: N818
    """A listing by pattern takes more than one call: ask for the folders one by one. A verdict, not a failure."""


class UnreadableObject(Fatal):
    """An object in a folder of ours that we cannot make sense of: not ours, damaged, or too large. It is left alone."""


class NewerVersion(UnreadableObject):
    """An object that a newer ingestd wrote: it is left for one that knows what it says."""


def raise_first(outcomes: Iterable[object], *, but: type[IngestError] | tuple[()] = ()) -> None:
    """Raise the first failure among the outcomes of many calls; `but`: that kind is an answer like others."""
    for outcome in outcomes:
        if isinstance(outcome, IngestError) and not isinstance(outcome, but):
            raise outcome


def leading(failures: ExceptionGroup[Exception]) -> Exception:
    """The error to go by of several that came together: a kind that callers know, if there is one."""
    found: list[Exception] = []
    groups: list[ExceptionGroup[Exception]] = [failures]
    while groups:
        for one in groups.pop(0).exceptions:
            if isinstance(one, ExceptionGroup):
                groups.append(one)
            else:
                found.append(one)
    return next((one for one in found if isinstance(one, IngestError)), found[0])
