"""Durations and byte sizes as people write them: `90s`, `1h30m`, `64MiB`.

Used as annotated pydantic types, so one notation holds in settings and rules. A bare number is refused: a unit that
has to be guessed is a unit that will be guessed wrong.
"""

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_DURATION_UNITS: dict[str, timedelta] = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|w)\s*")

_SIZE_UNITS: dict[str, int] = {
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgtp", start=1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgtp", start=1)},
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?i?b)", re.IGNORECASE)

# A month and a year have no fixed length; an expiry needs one, and too long is the safe side of neither.
_WORDS: dict[str, timedelta] = {
    "year": timedelta(days=365),
    "month": timedelta(days=30),
    "week": timedelta(weeks=1),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "second": timedelta(seconds=1),
    "sec": timedelta(seconds=1),
    "millisecond": timedelta(milliseconds=1),
    "ms": timedelta(milliseconds=1),
    "microsecond": timedelta(microseconds=1),
    "us": timedelta(microseconds=1),
    "nanosecond": timedelta(),
    "ns": timedelta(),
}
_EXPRESSION = re.compile(
    r"(\d+)?\s*(" + "|".join(_WORDS) + r")s?\s*(?:onward|ahead|after|later|in\s*the\s*future)?", re.IGNORECASE
)


_LONGEST = timedelta(days=36_525)  # a century: it is added to moments, and has to fit
_LARGEST = 1 << 63


def parse_duration(text: str) -> timedelta:
    """`90s`, `5m`, `1h30m`, `500ms`, `2d`; raises ValueError otherwise."""
    cleaned = text.strip()
    if cleaned == "0":
        return timedelta()
    total, position = timedelta(), 0
    try:
        while position < len(cleaned) and (part := _DURATION_PART.match(cleaned, position)):
            total += float(part[1]) * _DURATION_UNITS[part[2]]
            position = part.end()
    except OverflowError as error:
        raise ValueError(f"{text!r} is too long a duration") from error
    if not cleaned or position < len(cleaned):
        raise ValueError(f"{text!r} is not a duration; write it with units, like 90s, 5m or 1h30m")
    if total > _LONGEST:
        raise ValueError(f"{text!r} is too long a duration")
    return total


def format_duration(duration: timedelta) -> str:
    """The shortest exact spelling that `parse_duration` reads back."""
    if duration < timedelta():
        raise ValueError("a duration cannot be negative")
    if not duration:
        return "0s"
    left, parts = duration, []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, left = divmod(left, _DURATION_UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def parse_time_expression(text: str) -> timedelta:
    """bqtail's spelling of a duration (`2min`, `1hour`, `3 days`, `week`), or the short one."""
    cleaned = text.strip()
    if not (match := _EXPRESSION.fullmatch(cleaned)):
        try:
            return parse_duration(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a duration; write it like 2hours, 3days or 90s") from None
    try:
        count = int(match[1] or 1)
        tiny = match[2].lower() in {"nanosecond", "ns"}
        found = timedelta(microseconds=count / 1000) if tiny else count * _WORDS[match[2].lower()]
    except (OverflowError, ValueError) as error:
        raise ValueError(f"{text[:100]!r} is too long a duration") from error
    if found > _LONGEST:
        raise ValueError(f"{text!r} is too long a duration")
    return found


def parse_size(text: str) -> int:
    """`64MiB`, `1.5GB`, `512B`: the number of bytes."""
    if not (match := _SIZE.fullmatch(text.strip())):
        raise ValueError(f"{text!r} is not a size; write it with a unit, like 64MiB or 500MB")
    size = float(match[1]) * _SIZE_UNITS[match[2].lower()]
    if size >= _LARGEST:
        raise ValueError(f"{text[:100]!r} is too large a size")
    return int(size)


def format_size(size: int) -> str:
    """The largest unit that divides the size exactly."""
    for unit, name in (("tib", "TiB"), ("gib", "GiB"), ("mib", "MiB"), ("kib", "KiB")):
        if size and size % _SIZE_UNITS[unit] == 0:
            return f"{size // _SIZE_UNITS[unit]}{name}"
    return f"{size}B"


def _duration(value: object) -> object:
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ValueError(f"{value} has no unit; write it like {value}s or {value}m")  # noqa: TRY004 - pydantic reads it
    return value


def _expression(value: object) -> object:
    return parse_time_expression(value) if isinstance(value, str) else value


def _size(value: object) -> object:
    if isinstance(value, str) and not value.strip().isdigit():
        return parse_size(value)
    return value


Duration = Annotated[timedelta, BeforeValidator(_duration), PlainSerializer(format_duration, when_used="json")]
TimeExpression = Annotated[timedelta, BeforeValidator(_expression), PlainSerializer(format_duration, when_used="json")]
ByteSize = Annotated[int, BeforeValidator(_size)]
