"""Custom date and time formats of a load (`dateFormat`, `timestampFormat`, …).

The elements are those of GoogleSQL's `CAST … FORMAT` for parsing: https://cloud.google.com/bigquery/docs/reference/standard-sql/format-elements
"""

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import Any

from ingestd.formats.errors import BigQueryError
from ingestd.formats.temporal import UnreadableError, to_utc
from ingestd.model.schema import Type

_MONTHS = (
    "JANUARY",
    "FEBRUARY",
    "MARCH",
    "APRIL",
    "MAY",
    "JUNE",
    "JULY",
    "AUGUST",
    "SEPTEMBER",
    "OCTOBER",
    "NOVEMBER",
    "DECEMBER",
)
_ELEMENTS = {
    "YYYY": r"(?P<year>\d{4})",
    "RRRR": r"(?P<year>\d{4})",
    "YYY": r"(?P<year3>\d{3})",
    "YY": r"(?P<year2>\d{2})",
    "RR": r"(?P<rounded>\d{2})",
    "Y": r"(?P<year1>\d)",
    "MONTH": "(?P<month_name>" + "|".join(_MONTHS) + ")",
    "MON": "(?P<month_name>" + "|".join(name[:3] for name in _MONTHS) + ")",
    "MM": r"(?P<month>\d{1,2})",
    "DDD": r"(?P<yearday>\d{1,3})",
    "DD": r"(?P<day>\d{1,2})",
    "HH24": r"(?P<hour>\d{1,2})",
    "HH12": r"(?P<hour12>\d{1,2})",
    "HH": r"(?P<hour12>\d{1,2})",
    "MI": r"(?P<minute>\d{1,2})",
    "SSSSS": r"(?P<secondday>\d{1,5})",
    "SS": r"(?P<second>\d{1,2})",
    "AM": r"(?P<half>AM|PM)",
    "PM": r"(?P<half>AM|PM)",
    "A.M.": r"(?P<half>A\.M\.|P\.M\.)",
    "P.M.": r"(?P<half>A\.M\.|P\.M\.)",
    "TZH": r"(?P<zone_hour> ?[+-]?\d{1,2})",
    "TZM": r"(?P<zone_minute>\d{1,2})",
} | {f"FF{digits}": rf"(?P<fraction>\d{{1,{digits}}})" for digits in range(1, 10)}
_TOKEN = re.compile(
    "|".join(re.escape(name) for name in sorted(_ELEMENTS, key=len, reverse=True))
    + r'|"(?P<literal>(?:[^"\\]|\\.)*)"|(?P<space>\s+)|(?P<mark>[-./,\';:T])',
    re.IGNORECASE,
)


def compile_format(text: str, kind: Type, default_zone: tzinfo) -> Callable[[str], Any]:
    """A parser for one custom format; raises `UnreadableError` on text that does not fit."""
    pattern = re.compile(_pattern(text), re.IGNORECASE | re.ASCII)

    def read(value: str) -> Any:
        found = pattern.fullmatch(value.strip())
        if found is None:
            raise UnreadableError
        try:
            return _build(
                {key: part for key, part in found.groupdict().items() if part is not None}, kind, default_zone
            )
        except (ValueError, OverflowError):
            raise UnreadableError from None

    return read


def _pattern(text: str) -> str:
    out, at = "", 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise BigQueryError("invalid", f"Invalid format string: {text!r}, unknown element at position {at}")
        if token["literal"] is not None:
            out += re.escape(re.sub(r"\\(.)", r"\1", token["literal"]))
        elif token["space"]:
            out += r"\s*"
        elif token["mark"]:
            out += re.escape(token["mark"])
        else:
            out += _ELEMENTS[token[0].upper()]
        at = token.end()
    try:
        re.compile(out)
    except re.error:
        raise BigQueryError("invalid", f"Invalid format string: {text!r}, an element appears twice") from None
    return out


def _build(parts: dict[str, str], kind: Type, default_zone: tzinfo) -> Any:
    now = datetime.now(tz=default_zone)
    if kind is Type.TIME:
        return _clock(parts)
    day = _day(parts, now)
    if kind is Type.DATE:
        return day
    moment = datetime.combine(day, _clock(parts))
    if kind is Type.DATETIME:
        return moment
    if "zone_hour" in parts:
        hours = int(parts["zone_hour"].strip())
        minutes = int(parts.get("zone_minute", 0)) * (-1 if parts["zone_hour"].strip().startswith("-") else 1)
        return to_utc(moment.replace(tzinfo=timezone(timedelta(hours=hours, minutes=minutes))))
    return to_utc(moment.replace(tzinfo=default_zone))


def _day(parts: dict[str, str], now: datetime) -> date:
    year = now.year
    if "year" in parts:
        year = int(parts["year"])
    elif "rounded" in parts:
        year = _rounded(int(parts["rounded"]), now.year)
    else:
        for digits in (3, 2, 1):
            if f"year{digits}" in parts:
                year = now.year - now.year % 10**digits + int(parts[f"year{digits}"])
    if "yearday" in parts:
        found = date(year, 1, 1) + timedelta(days=int(parts["yearday"]) - 1)
        if found.year != year:
            raise UnreadableError
        return found
    month = int(parts.get("month", now.month))
    if name := parts.get("month_name"):
        month = next(index for index, full in enumerate(_MONTHS, 1) if full.startswith(name.upper()))
    return date(year, month, int(parts.get("day", 1)))


def _rounded(two: int, this_year: int) -> int:
    century = this_year // 100 * 100
    if two < 50 <= this_year % 100:
        return century + 100 + two
    if two >= 50 > this_year % 100:
        return century - 100 + two
    return century + two


def _clock(parts: dict[str, str]) -> time:
    fraction = parts.get("fraction", "")
    if len(fraction) > 6 and fraction[6:].strip("0"):
        raise UnreadableError
    micros = int(fraction[:6].ljust(6, "0")) if fraction else 0
    if "secondday" in parts:
        seconds = int(parts["secondday"])
        return time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)
    hour = int(parts.get("hour", 0))
    if "hour12" in parts:
        hour = int(parts["hour12"])
        if not 1 <= hour <= 12:
            raise UnreadableError
        hour = hour % 12 + (12 if parts.get("half", "AM").upper().startswith("P") else 0)
    return time(hour, int(parts.get("minute", 0)), int(parts.get("second", 0)), micros)
