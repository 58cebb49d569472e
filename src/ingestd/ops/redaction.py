"""What an action knows and nobody else shall read: left out of logs, errors and answers while it runs.

Servers repeat what they were sent, and libraries quote it in their errors. So whoever uses a secret says so (`hide`),
and within `hiding` every log line, and whatever is passed through `redacted`, has stars in its place.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ingestd.documents.secrecy import STARS

_SHORTEST = 6  # characters: less is part of many words

_hidden: ContextVar[set[str] | None] = ContextVar("hidden", default=None)


@contextmanager
def hiding(texts: Iterable[str] = ()) -> Iterator[None]:
    before = _hidden.set(set())
    try:
        for text in texts:
            hide(text)
        yield
    finally:
        _hidden.reset(before)


def hide(text: str) -> str:
    """Note a secret in use, until the surrounding `hiding` ends."""
    known = _hidden.get()
    if known is not None and len(text.strip()) >= _SHORTEST:
        known.add(text.strip())
    return text


def redacted(value: Any) -> Any:
    """The value without the secrets in use, at any depth."""
    if not (known := _hidden.get()):
        return value
    return _without(value, sorted(known, key=len, reverse=True))


def _without(value: Any, known: list[str]) -> Any:
    if isinstance(value, str):
        for text in known:
            value = value.replace(text, STARS)
        return value
    if isinstance(value, Mapping):
        return {_without(key, known): _without(one, known) for key, one in value.items()}
    if isinstance(value, list | tuple):
        found = [_without(one, known) for one in value]
        return found if isinstance(value, list) else tuple(found)
    return value


def processor(_logger: Any, _method: str, event: Any) -> Any:
    """For structlog: on the fields of a line, and on the line as written (with its traceback)."""
    return redacted(event)
