"""Times by Java-style formats (`yyyy-MM-dd_HH`), and the loose time texts rules use."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from ingestd.model.quantities import parse_time_expression
from ingestd.rules.expansion import render

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+|'")
_AGO = re.compile(r"(.+?)\s*(ago|past|before|earlier|in\s*the\s*past)", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")

_NUMBERS = {"d": "%d", "H": "%H", "h": "%I", "m": "%M", "s": "%S", "D": "%j", "M": "%m"}


def format_time(instant: datetime, pattern: str) -> str:
    """`instant` by a Java-style pattern: y M d H h m s S a E D Z z X; quoted text stays as it is."""
    return "".join(_format(instant, token) for token in _TOKEN.finditer(pattern))


def _format(instant: datetime, token: re.Match[str]) -> str:
    letter, text = token[2], token[0]
    if letter is None:
        return "'" if text in {"''", "'"} else (token[1].replace("''", "'") if token[1] is not None else text)
    if letter in "yuY":
        return f"{instant.year % 100:02d}" if len(text) == 2 else f"{instant.year:0{min(len(text), 8)}d}"
    if letter == "S":
        return f"{instant.microsecond:06d}".ljust(9, "0")[: len(text)]
    if letter in "zZX":
        return _zone(instant, text)
    if letter == "E":
        return instant.strftime("%A" if len(text) > 3 else "%a")
    if letter == "M" and len(text) > 2:
        return instant.strftime("%B" if len(text) > 3 else "%b")
    if letter == "a":
        return instant.strftime("%p")
    if letter in _NUMBERS:
        number = int(instant.strftime(_NUMBERS[letter]))
        return f"{number:0{min(len(text), 8)}d}"
    return text


def _zone(instant: datetime, text: str) -> str:
    offset = instant.strftime("%z") or "+0000"
    if text.startswith("z"):
        return instant.strftime("%Z") or "UTC"
    if text.startswith("X"):
        return "Z" if offset == "+0000" else f"{offset[:3]}:{offset[3:5]}" if len(text) == 3 else offset[:5]
    return offset[:5]


def parse_time(value: Any, pattern: str, now: datetime) -> datetime:
    """A time from a time, Unix seconds or milliseconds, an ISO text, a text in `pattern`, `now` or `2 days ago`.

    `now` is the file's own time, so that an expression gives the same answer at every delivery.
    """
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    text = render(value).strip()
    relative = _relative(text, now)
    if relative is not None:
        return relative
    for attempt in (_by_pattern, _by_iso, _by_number):
        instant = attempt(text, pattern)
        if instant is not None:
            return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    raise ValueError(f"{text!r} is not a time")


def _relative(text: str, now: datetime) -> datetime | None:
    fixed = {"now": timedelta(), "yesterday": timedelta(days=-1), "tomorrow": timedelta(days=1)}
    if text.lower() in fixed:
        return now + fixed[text.lower()]
    match = _AGO.fullmatch(text)
    if not match and not text.endswith(("ahead", "later", "onward", "after")):
        return None
    try:
        return now - parse_time_expression(match[1]) if match else now + parse_time_expression(text)
    except (ValueError, OverflowError):
        return None


def _by_pattern(text: str, pattern: str) -> datetime | None:
    directives = {"y": "%Y", "u": "%Y", "M": "%m", "d": "%d", "H": "%H", "h": "%I", "m": "%M", "s": "%S"}
    directives |= {"S": "%f", "a": "%p", "Z": "%z", "X": "%z", "D": "%j"}
    layout = ""
    for token in _TOKEN.finditer(pattern):
        letter = token[2]
        if letter == "M" and len(token[0]) > 2:
            layout += "%B" if len(token[0]) > 3 else "%b"
        elif letter == "E":
            layout += "%A" if len(token[0]) > 3 else "%a"
        elif letter == "y" and len(token[0]) == 2:
            layout += "%y"
        else:
            layout += directives.get(letter, token[0].replace("%", "%%")) if letter else token[0].replace("%", "%%")
    try:
        return datetime.strptime(text, layout)  # noqa: DTZ007 - the caller adds UTC where no zone is given
    except (ValueError, re.error):
        return None


def _by_iso(text: str, _pattern: str) -> datetime | None:
    if _NUMBER.fullmatch(text) and len(text) not in {4, 6, 8}:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _by_number(text: str, _pattern: str) -> datetime | None:
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    seconds = number / 1000 if abs(number) >= 1e11 else number
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
