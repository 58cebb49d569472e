"""Text read as a date, a time or a number, as literals and CAST read it. Raises ValueError in BigQuery's words."""

import contextlib
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache
from zoneinfo import ZoneInfo

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
EXACT = Context(prec=100, rounding=ROUND_HALF_UP)
NUMERIC_STEP, NUMERIC_LIMIT = Decimal("1e-9"), Decimal(10) ** 29

_DATE = r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
_TIME = r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{0,6}))?"
_DATE_ONLY, _TIME_ONLY = re.compile(_DATE), re.compile(_TIME)
_DATETIME = re.compile(rf"{_DATE}(?:[ Tt]{_TIME})?")
_ZONE = r"[Zz]|[+-][0-9]{1,2}(?::?[0-9]{2})?| [A-Za-z][A-Za-z0-9_+/:-]*"
_TIMESTAMP = re.compile(rf"{_DATE}(?:[ Tt]{_TIME}({_ZONE})?)?")
OFFSET = re.compile(r"(?:UTC|GMT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?$", re.IGNORECASE)


@lru_cache(maxsize=256)
def zone(name: str) -> tzinfo:
    """A time zone by IANA name or by offset from UTC."""
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    offset = OFFSET.match(name)
    if offset:
        hours, minutes = int(offset[2]), int(offset[3] or 0)
        if hours > 14 or minutes > 59:
            raise ValueError(f"Invalid time zone: {name}")
        delta = timedelta(hours=hours, minutes=minutes)
        return timezone(-delta if offset[1] == "-" else delta)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"Invalid time zone: {name}") from None


def micros(fraction: str | None) -> int:
    return int(fraction[:6].ljust(6, "0")) if fraction else 0


def _civil(match: re.Match[str]) -> datetime:
    hour, minute, second = (int(match[index] or 0) for index in (4, 5, 6))
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    return datetime(year, month, day, hour, minute, second, micros(match[7]))  # noqa: DTZ001 - civil time


def parse_date(text: str) -> date:
    match = _DATE_ONLY.fullmatch(text)
    with contextlib.suppress(ValueError):
        if match is not None:
            return date(int(match[1]), int(match[2]), int(match[3]))
    raise ValueError(f"Invalid date: '{text}'")


def parse_time(text: str) -> time:
    match = _TIME_ONLY.fullmatch(text)
    with contextlib.suppress(ValueError):
        if match is not None:
            return time(int(match[1]), int(match[2]), int(match[3]), micros(match[4]))
    raise ValueError(f'Invalid time string "{text}"')


def parse_datetime(text: str) -> datetime:
    match = _DATETIME.fullmatch(text)
    with contextlib.suppress(ValueError):
        if match is not None:
            return _civil(match)
    raise ValueError(f'Invalid datetime string "{text}"')


def parse_timestamp(text: str, default_zone: str = "UTC") -> datetime:
    match = _TIMESTAMP.fullmatch(text)
    with contextlib.suppress(ValueError, OverflowError):
        if match is not None:
            return _civil(match).replace(tzinfo=zone((match[8] or default_zone).strip())).astimezone(UTC)
    raise ValueError(f"Invalid timestamp: '{text}'")


def parse_numeric(text: str) -> Decimal:
    """A NUMERIC, rounded half away from zero to its nine digits."""
    return exact(decimal(text, "NUMERIC"), text, "NUMERIC", NUMERIC_STEP, NUMERIC_LIMIT)


def decimal(text: str, kind: str) -> Decimal:
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        raise ValueError(f"Invalid {kind} value: {text}") from None


def exact(value: Decimal, text: object, kind: str, step: Decimal, limit: Decimal) -> Decimal:
    if not value.is_finite() or value.copy_abs() >= limit:
        raise ValueError(f"Invalid {kind} value: {text}")
    return value.quantize(step, context=EXACT)


READERS: Mapping[str, Callable[[str], object]] = {
    "DATE": parse_date, "TIME": parse_time, "DATETIME": parse_datetime, "TIMESTAMP": parse_timestamp,
    "NUMERIC": parse_numeric,
}  # fmt: skip
