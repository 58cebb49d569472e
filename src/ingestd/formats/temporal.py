"""Dates, times and intervals as BigQuery reads them from text.

Nothing is rounded: a seventh digit after the second that is not zero is refused, as BigQuery refuses it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Context, Decimal
from typing import TypeVar
from zoneinfo import ZoneInfo

_T = TypeVar("_T")
_EXACT = Context(prec=100)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_DATE = r"(\d{4})-(\d{1,2})-(\d{1,2})"
_CLOCK = r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?"
_DATE_ONLY = re.compile(_DATE, re.ASCII)
_TIME_ONLY = re.compile(_CLOCK, re.ASCII)
_DATETIME = re.compile(_DATE + r"(?:[ tT]" + _CLOCK + ")?", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4})([-/])(\d{1,2})\2(\d{1,2})(?:[ tT]" + _CLOCK + r")?"
    r"(?: ?(?:([zZ]|UTC|utc)|([+-])(\d{1,2})(?::?(\d{2}))?)| ([A-Za-z][\w+-]*(?:/[\w+-]+)*))?",
    re.ASCII,
)
_EPOCH_SECONDS = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?", re.ASCII)
_INTERVAL = re.compile(
    r"(?:([+-]?)(\d+)-(\d+))?(?:(?:^| )([+-]?\d+)(?= |$))?(?:(?:^| )([+-]?)(\d+):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?)?",
    re.ASCII,
)
_ISO_INTERVAL = re.compile(
    r"P(?:([+-]?\d+)Y)?(?:([+-]?\d+)M)?(?:([+-]?\d+)W)?(?:([+-]?\d+)D)?"
    r"(?:T(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+)(?:\.(\d{1,9}))?S)?)?",
    re.ASCII,
)


class UnreadableError(ValueError):
    """The text is not a value of the type."""


@dataclass(frozen=True, slots=True)
class Interval:
    """BigQuery's three independent parts of an INTERVAL."""

    months: int
    days: int
    micros: int


def zone(name: str) -> tzinfo:
    """A time zone by name or offset."""
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    if offset := re.fullmatch(r"(?:UTC)?([+-])(\d{1,2})(?::?(\d{2}))?", name):
        sign, hours, minutes = offset.groups()
        return _offset(sign, hours, minutes)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UnreadableError(f"Invalid time zone: {name}") from None


def parse_date(text: str) -> date:
    found = _DATE_ONLY.fullmatch(text)
    if found is None:
        raise UnreadableError
    return _checked(date, *map(int, found.groups()))


def parse_time(text: str) -> time:
    found = _TIME_ONLY.fullmatch(text)
    if found is None or found[3] is None:
        raise UnreadableError
    return _checked(time, int(found[1]), int(found[2]), int(found[3]), _micros(found[4]))


def parse_datetime(text: str) -> datetime:
    found = _DATETIME.fullmatch(text)
    if found is None:
        raise UnreadableError
    year, month, day, hour, minute, second, fraction = found.groups()
    if hour and second is None:
        raise UnreadableError
    return _checked(
        datetime, int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), _micros(fraction)
    )


def parse_timestamp(text: str, default_zone: tzinfo = UTC) -> datetime:
    """A calendar date and time with or without a zone, or decimal seconds since the epoch."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        if len(text) < 64 and _EPOCH_SECONDS.fullmatch(text):
            return from_seconds(Decimal(text))
        raise UnreadableError
    year, _, month, day, hour, minute, second, fraction, utc, sign, hours, minutes, region = found.groups()
    where = default_zone
    if utc:
        where = UTC
    elif sign:
        where = _offset(sign, hours, minutes)
    elif region:
        where = zone(region)
    local = _checked(
        datetime, int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), _micros(fraction)
    )
    return to_utc(local.replace(tzinfo=where))


def to_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except (OverflowError, ValueError):
        raise UnreadableError from None


def from_micros(micros: int) -> datetime:
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise UnreadableError from None


def from_seconds(seconds: Decimal) -> datetime:
    """Decimal seconds since the epoch; more than microseconds is refused."""
    if not seconds.is_finite() or seconds.copy_abs() > 10**12:
        raise UnreadableError
    micros = seconds.scaleb(6, _EXACT)
    if micros != micros.to_integral_value(context=_EXACT):
        raise UnreadableError
    return from_micros(int(micros))


def parse_interval(text: str) -> Interval:
    """The canonical `Y-M D H:M:S.F` or an ISO 8601 duration."""
    if text.startswith("P") and len(text) > 1 and (found := _ISO_INTERVAL.fullmatch(text)):
        years, months, weeks, days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:7])
        sign = -1 if (found[7] or "").startswith("-") else 1
        clock = (hours * 60 + minutes) * 60 + seconds
        return Interval(years * 12 + months, weeks * 7 + days, clock * 1_000_000 + sign * _micros(found[8]))
    found = _INTERVAL.fullmatch(text.strip())
    if found is None or not text.strip():
        raise UnreadableError
    month_sign, year, month, day, clock_sign, hour, minute, second, fraction = found.groups()
    months = (int(year or 0) * 12 + int(month or 0)) * (-1 if month_sign == "-" else 1)
    micros = ((int(hour or 0) * 60 + int(minute or 0)) * 60 + int(second or 0)) * 1_000_000 + _micros(fraction)
    return Interval(months, int(day or 0), -micros if clock_sign == "-" else micros)


def interval_text(value: Interval) -> str:
    """BigQuery's canonical rendering."""
    sign = "-" if value.months < 0 else ""
    year, month = divmod(abs(value.months), 12)
    clock_sign = "-" if value.micros < 0 else ""
    seconds, micros = divmod(abs(value.micros), 1_000_000)
    fraction = f".{micros:06d}" if micros % 1000 else (f".{micros // 1000:03d}" if micros else "")
    clock = f"{clock_sign}{seconds // 3600}:{seconds // 60 % 60}:{seconds % 60}{fraction}"
    return f"{sign}{year}-{month} {value.days} {clock}"


def _offset(sign: str, hours: str, minutes: str | None) -> timezone:
    delta = timedelta(hours=int(hours), minutes=int(minutes or 0))
    if delta > timedelta(hours=14) or int(minutes or 0) > 59:
        raise UnreadableError
    return timezone(-delta if sign == "-" else delta)


def _micros(fraction: str | None) -> int:
    if not fraction:
        return 0
    if len(fraction) > 6 and fraction[6:].strip("0"):
        raise UnreadableError
    return int(fraction[:6].ljust(6, "0"))


def _checked(build: Callable[..., _T], *parts: int) -> _T:
    try:
        return build(*parts)
    except ValueError:
        raise UnreadableError from None
