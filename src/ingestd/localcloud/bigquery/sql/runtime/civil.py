"""Dates and times: reading and writing them the way GoogleSQL does (literals, CAST, PARSE_*, FORMAT_*)."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache

from ingestd.googlesql.civil import ELEMENT, EXPANSIONS, escape_format
from ingestd.googlesql.literals import OFFSET, micros, parse_date, parse_datetime, parse_time, parse_timestamp, zone
from ingestd.localcloud.bigquery.sql.runtime.registry import runtime

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@runtime("bq_zone", "VARCHAR", "VARCHAR")
def icu_zone(name: str) -> str:
    """The name under which DuckDB knows the zone."""
    zone(name)
    offset = OFFSET.match(name)
    if offset:
        return f"GMT{offset[1]}{int(offset[2])}:{offset[3] or '00'}"
    return "UTC" if name.upper() in ("Z", "GMT") else name


runtime("bq_string_to_date", "VARCHAR", "DATE")(parse_date)
runtime("bq_string_to_time", "VARCHAR", "TIME")(parse_time)
runtime("bq_string_to_datetime", "VARCHAR", "TIMESTAMP")(parse_datetime)
runtime("bq_string_to_timestamp", "VARCHAR VARCHAR", "TIMESTAMPTZ")(parse_timestamp)


@runtime("bq_civil_to_timestamp", "TIMESTAMP VARCHAR", "TIMESTAMPTZ")
def civil_to_timestamp(moment: datetime, zone_name: str) -> datetime:
    """A civil time that a zone has twice is the first of them; to DuckDB it is the second."""
    return moment.replace(tzinfo=zone(zone_name)).astimezone(UTC)


runtime("bq_escape_format", "VARCHAR VARCHAR", "VARCHAR")(escape_format)

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


def format_civil(pattern: str, moment: datetime) -> str:
    return ELEMENT.sub(lambda match: _element(match[1], moment), pattern)


def _element(code: str, at: datetime) -> str:
    if code == "F":  # the year has four digits here, and as many as it needs in %Y
        return format_civil("%E4Y-%m-%d", at)
    if code in EXPANSIONS:
        return format_civil(EXPANSIONS[code], at)
    if code[0] == "E" and code[-1] == "S":
        if code == "E*S":
            fraction = f"{at.microsecond:06d}".rstrip("0")
            return f"{at.second:02d}" + (f".{fraction}" if fraction else "")
        digits = int(code[1:-1])
        fraction = f"{at.microsecond:06d}".ljust(digits, "0")[:digits]
        return f"{at.second:02d}" + (f".{fraction}" if digits else "")
    if code == "E4Y":
        return f"{at.year:04d}"
    if code[0] in "EO" and len(code) == 2 and code != "Ez":
        return _element(code[1], at)
    write = _WRITERS.get(code)
    if write is None:
        raise ValueError(f"Invalid format element: %{code}")
    return write(at)


def _week(at: datetime, weekday: int) -> int:
    return (at.timetuple().tm_yday + 6 - weekday) // 7


def _epoch_seconds(at: datetime) -> int:
    return int(((at if at.tzinfo else at.replace(tzinfo=UTC)) - EPOCH).total_seconds() // 1)


_WRITERS: dict[str, Callable[[datetime], str]] = {
    "A": lambda at: _DAYS[at.weekday()],
    "a": lambda at: _DAYS[at.weekday()][:3],
    "B": lambda at: _MONTHS[at.month - 1],
    "b": lambda at: _MONTHS[at.month - 1][:3],
    "C": lambda at: f"{at.year // 100:02d}",
    "d": lambda at: f"{at.day:02d}",
    "e": lambda at: f"{at.day:2d}",
    "G": lambda at: f"{at.isocalendar().year:04d}",
    "g": lambda at: f"{at.isocalendar().year % 100:02d}",
    "H": lambda at: f"{at.hour:02d}",
    "I": lambda at: f"{at.hour % 12 or 12:02d}",
    "J": lambda at: str((at.date() - _iso_year_start(at.date())).days + 1),
    "j": lambda at: f"{at.timetuple().tm_yday:03d}",
    "k": lambda at: f"{at.hour:2d}",
    "l": lambda at: f"{at.hour % 12 or 12:2d}",
    "M": lambda at: f"{at.minute:02d}",
    "m": lambda at: f"{at.month:02d}",
    "n": lambda at: "\n",
    "P": lambda at: "am" if at.hour < 12 else "pm",
    "p": lambda at: "AM" if at.hour < 12 else "PM",
    "Q": lambda at: str((at.month + 2) // 3),
    "S": lambda at: f"{at.second:02d}",
    "s": lambda at: str(_epoch_seconds(at)),
    "t": lambda at: "\t",
    "U": lambda at: f"{_week(at, (at.weekday() + 1) % 7):02d}",
    "u": lambda at: str(at.isoweekday()),
    "V": lambda at: f"{at.isocalendar().week:02d}",
    "W": lambda at: f"{_week(at, at.weekday()):02d}",
    "w": lambda at: str(at.isoweekday() % 7),
    "Y": lambda at: str(at.year),
    "y": lambda at: f"{at.year % 100:02d}",
    "Z": lambda at: at.tzname() or "UTC",
    "z": lambda at: _offset(at, ""),
    "Ez": lambda at: _offset(at, ":"),
    "%": lambda at: "%",
}


def _iso_year_start(day: date) -> date:
    return date.fromisocalendar(day.isocalendar().year, 1, 1)


def _offset(at: datetime, separator: str) -> str:
    offset = at.utcoffset() or timedelta()
    minutes = int(offset.total_seconds() // 60)
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02d}{separator}{abs(minutes) % 60:02d}"


@runtime("bq_format_timestamp", "VARCHAR TIMESTAMPTZ VARCHAR", "VARCHAR")
def format_timestamp(pattern: str, moment: datetime, zone_name: str) -> str:
    return format_civil(pattern, moment.astimezone(zone(zone_name)))


@runtime("bq_format_datetime", "VARCHAR TIMESTAMP", "VARCHAR")
def format_datetime(pattern: str, moment: datetime) -> str:
    return format_civil(pattern, moment)


@runtime("bq_format_time", "VARCHAR TIME", "VARCHAR")
def format_time(pattern: str, moment: time) -> str:
    return format_civil(pattern, datetime.combine(date(1970, 1, 1), moment))


@lru_cache(maxsize=512)
def _reader(pattern: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """A pattern's regular expression, and the element each group holds."""
    out: list[str] = []
    codes: list[str] = []
    at = 0
    while at < len(pattern):
        match = ELEMENT.match(pattern, at)
        if match is None:
            character = pattern[at]
            out.append(r"\s*" if character.isspace() else re.escape(character))
            at += 1
            continue
        at = match.end()
        code = match[1]
        if code in EXPANSIONS:
            pattern = pattern[:at] + EXPANSIONS[code] + pattern[at:]
            continue
        if code in ("n", "t"):
            out.append(r"\s*")
        elif code == "%":
            out.append("%")
        else:
            out.append(_read_element(code))
            codes.append(code)
    return re.compile(r"\s*" + "".join(out) + r"\s*$", re.IGNORECASE), tuple(codes)


def _read_element(code: str) -> str:
    names = {
        "A": "|".join((*_DAYS, *(day[:3] for day in _DAYS))), "B": "|".join((*_MONTHS, *(m[:3] for m in _MONTHS))),
    }  # fmt: skip
    names["a"], names["b"] = names["A"], names["B"]
    if code in names:
        return f"({names[code]})"
    if code[0] == "E" and code.endswith("S"):
        return r"\s*(\d{1,2}+(?:\.\d+)?)" if code != "E0S" else r"\s*(\d{1,2}+)"
    simple = {
        "Y": r"([+-]?\d{1,4}+)", "E4Y": r"(\d{4})", "y": r"(\d{1,2}+)", "j": r"(\d{1,3}+)", "s": r"(-?\d+)",
        "Q": r"([1-4])", "p": "([AP]M)", "P": "([AP]M)", "z": r"(Z|[+-]\d{1,2}:?\d{0,2})",
        "Ez": r"(Z|[+-]\d{1,2}:?\d{0,2})",
        "Z": r"([A-Za-z][A-Za-z0-9_+/-]*)", "C": r"(\d{1,2}+)", "G": r"(\d{4})", "u": r"([1-7])", "w": r"([0-6])",
    }  # fmt: skip
    if code in simple:
        return r"\s*" + simple[code]
    if code in "deHIklMmSUVW" or (code[0] == "O" and len(code) == 2):
        return r"\s*(\d{1,2}+)"
    raise ValueError(f"Invalid format element: %{code}")


def read(pattern: str, text: str, default_zone: str) -> tuple[datetime, tzinfo]:
    """A civil time and its zone, missing parts taken from 1970-01-01 00:00:00."""
    expression, codes = _reader(pattern)
    match = expression.match(text)
    if match is None:
        raise ValueError(f'Failed to parse input string "{text}"')
    found = {code: match[index] for index, code in enumerate(codes, 1)}
    try:
        return _assemble(found, default_zone)
    except (ValueError, OverflowError) as error:
        if str(error).startswith("Invalid time zone"):
            raise
        raise ValueError(f'Failed to parse input string "{text}"') from None


def _assemble(found: dict[str, str], default_zone: str) -> tuple[datetime, tzinfo]:
    where = zone(default_zone)
    if "Z" in found:
        where = zone(found["Z"])
    for code in ("z", "Ez"):
        if code in found:
            where = zone(found[code])
    if "s" in found:
        return (EPOCH + timedelta(seconds=int(found["s"]))).replace(tzinfo=None), UTC
    year = 1970
    if "Y" in found or "E4Y" in found:
        year = int(found.get("Y") or found["E4Y"])
    elif "y" in found:
        short = int(found["y"])
        year = short + (2000 if short < 69 else 1900)
        if "C" in found:
            year = int(found["C"]) * 100 + short
    elif "C" in found:
        year = int(found["C"]) * 100
    month = 1
    if "m" in found:
        month = int(found["m"])
    for code in ("b", "B"):
        if code in found:
            month = next(index for index, name in enumerate(_MONTHS, 1) if name[:3].lower() == found[code][:3].lower())
    if "Q" in found and "m" not in found:
        month = int(found["Q"]) * 3 - 2
    day = int(found.get("d") or found.get("e") or 1)
    base = date(year, month, day)
    if "j" in found:
        base = date(year, 1, 1) + timedelta(days=int(found["j"]) - 1)
    if "G" in found and "V" in found:
        base = date.fromisocalendar(int(found["G"]), int(found["V"]), int(found.get("u") or 1))
    hour = int(found.get("H") or found.get("k") or 0)
    if "I" in found or "l" in found:
        hour = int(found.get("I") or found["l"]) % 12
        if (found.get("p") or found.get("P") or "").upper() == "PM":
            hour += 12
    seconds = found.get("S") or next(
        (value for code, value in found.items() if code[0] == "E" and code[-1] == "S"), "0"
    )
    whole, _, fraction = seconds.partition(".")
    clock = time(hour, int(found.get("M") or 0), min(int(whole), 59), micros(fraction))
    moment = datetime.combine(base, clock)
    return (moment + timedelta(seconds=1) if int(whole) == 60 else moment), where


@runtime("bq_parse_timestamp", "VARCHAR VARCHAR VARCHAR", "TIMESTAMPTZ")
def read_timestamp(pattern: str, text: str, zone_name: str) -> datetime:
    moment, where = read(pattern, text, zone_name)
    return moment.replace(tzinfo=where).astimezone(UTC)


@runtime("bq_parse_datetime", "VARCHAR VARCHAR", "TIMESTAMP")
def read_datetime(pattern: str, text: str) -> datetime:
    return read(pattern, text, "UTC")[0]


@runtime("bq_parse_date", "VARCHAR VARCHAR", "DATE")
def read_date(pattern: str, text: str) -> date:
    return read(pattern, text, "UTC")[0].date()


@runtime("bq_parse_time", "VARCHAR VARCHAR", "TIME")
def read_time(pattern: str, text: str) -> time:
    return read(pattern, text, "UTC")[0].time()


_INTERVAL = re.compile(r"\s*([+-]?)(\d+)-(\d+) ([+-]?\d+) ([+-]?)(\d+):(\d+):(\d+)(?:\.(\d{1,6}))?\s*$")


@runtime("bq_interval_parts", "VARCHAR", "BIGINT[]")
def interval_parts(text: str) -> list[int]:
    """Months, days and microseconds of `[sign]Y-M [sign]D [sign]H:M:S[.F]`."""
    match = _INTERVAL.match(text)
    if match is None:
        raise ValueError(f"Invalid INTERVAL value '{text}'")
    months = (int(match[2]) * 12 + int(match[3])) * (-1 if match[1] == "-" else 1)
    seconds = (int(match[6]) * 60 + int(match[7])) * 60 + int(match[8])
    whole = (seconds * 1_000_000 + micros(match[9])) * (-1 if match[5] == "-" else 1)
    return [months, int(match[4]), whole]


@runtime("bq_timestamp_in_zone", "TIMESTAMPTZ VARCHAR", "VARCHAR")
def timestamp_in_zone(moment: datetime, zone_name: str) -> str:
    """`2008-12-25 07:30:00-08`: minutes of the offset only when there are any."""
    local = moment.astimezone(zone(zone_name))
    fraction = f"{local.microsecond:06d}"
    fraction = "" if fraction == "000000" else "." + (fraction[:3] if fraction.endswith("000") else fraction)
    offset = _offset(local, ":").removesuffix(":00")
    return f"{local.year:04d}-{local:%m-%d %H:%M:%S}{fraction}{offset}"
