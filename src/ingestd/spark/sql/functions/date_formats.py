"""FORMAT_* and PARSE_*: GoogleSQL's format elements, one by one, as Spark SQL.

Spark's own formatter has other elements, and its parser is stricter (`%m` takes one digit in GoogleSQL). A text is
therefore read with a regular expression whose groups are put together, and written piece by piece.
"""

import re
from functools import lru_cache

from ingestd.googlesql.civil import ELEMENT, EXPANSIONS, escape_format
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.types import DATE, DATETIME, TIME, TIMESTAMP
from ingestd.googlesql.values import Value
from ingestd.spark.sql.functions.dates import in_zone
from ingestd.spark.sql.functions.registry import Call, writes
from ingestd.spark.sql.types import spark_sql
from ingestd.spark.sql.values import cast, fill, text_sql


def _expand(pattern: str) -> str:
    while True:
        expanded = ELEMENT.sub(lambda found: EXPANSIONS.get(found[1], found[0]), pattern)
        if expanded == pattern:
            return pattern
        pattern = expanded


# What Java's formatter writes the same way.
_JAVA = {
    "A": "EEEE", "a": "EEE", "B": "MMMM", "b": "MMM", "d": "dd", "H": "HH", "I": "hh", "j": "DDD", "M": "mm",
    "m": "MM", "p": "a", "S": "ss", "y": "yy", "E4Y": "yyyy",
}  # fmt: skip
_PIECES = {
    "C": "lpad(CAST(year(@0) div 100 AS STRING), 2, '0')",
    "e": "lpad(CAST(day(@0) AS STRING), 2, ' ')",
    "G": "lpad(CAST(extract(YEAROFWEEK FROM @0) AS STRING), 4, '0')",
    "g": "lpad(CAST(extract(YEAROFWEEK FROM @0) % 100 AS STRING), 2, '0')",
    "k": "lpad(CAST(hour(@0) AS STRING), 2, ' ')",
    "l": "lpad(CAST(IF(hour(@0) % 12 = 0, 12, hour(@0) % 12) AS STRING), 2, ' ')",
    "P": "IF(hour(@0) < 12, 'am', 'pm')",
    "Q": "CAST(quarter(@0) AS STRING)",
    "s": "CAST(unix_seconds(CAST(@0 AS TIMESTAMP)) AS STRING)",
    "U": "lpad(CAST((dayofyear(@0) + 6 - (dayofweek(@0) - 1)) div 7 AS STRING), 2, '0')",
    "u": "CAST(weekday(@0) + 1 AS STRING)",
    "V": "lpad(CAST(weekofyear(@0) AS STRING), 2, '0')",
    "W": "lpad(CAST((dayofyear(@0) + 6 - weekday(@0)) div 7 AS STRING), 2, '0')",
    "w": "CAST(dayofweek(@0) - 1 AS STRING)",
    "Y": "CAST(year(@0) AS STRING)",
    "E*S": "regexp_replace(regexp_replace(date_format(@0, 'ss.SSSSSS'), '0+$', ''), '[.]$', '')",
}  # fmt: skip
_FIXED = {"n": "\n", "t": "\t", "%": "%"}
_UTC = {"Z": "UTC", "z": "+0000", "Ez": "+00:00"}


@writes("FORMAT_DATE FORMAT_DATETIME FORMAT_TIMESTAMP FORMAT_TIME", safe=True, texts=[0])
def format_(call: Call, written: Value, value: Value, zone: Value | None = None) -> str:
    pattern = str(written.constant)
    utc = zone is None or zone.constant == "UTC"
    if not utc and "s" in ELEMENT.findall(pattern):
        raise SqlError(f"{call.name}: %s with a time zone is not available on Spark")
    if value.type is TIME:
        local = Value(f"CAST(concat('1970-01-01 ', {value.sql}) AS TIMESTAMP_NTZ)", DATETIME)
    else:
        local = Value(in_zone(value, None if utc else zone), value.type, simple=value.simple and utc)
    family = call.name.removeprefix("FORMAT_") if value.type is DATE else value.type.kind
    return fill(_written(call, escape_format(pattern, family), utc=utc), local)


def _written(call: Call, pattern: str, *, utc: bool) -> str:
    """A template that writes `@0`: runs of what Java writes, and single pieces between them."""
    pieces: list[str] = []
    java = ""

    def flush() -> None:
        nonlocal java
        if java:
            pieces.append(f"date_format(@0, {text_sql(java)})")
            java = ""

    pattern, at = _expand(pattern.replace("%F", "%E4Y-%m-%d")), 0
    while at < len(pattern):
        found = ELEMENT.match(pattern, at)
        if found is None or found[1] in _FIXED:
            character = pattern[at] if found is None else _FIXED[found[1]]
            at = at + 1 if found is None else found.end()
            flush()
            pieces.append(text_sql(character))
            continue
        at = found.end()
        code = found[1]
        if code in _JAVA:
            java += _JAVA[code]
            flush()
        elif code in _PIECES:
            pieces.append(_PIECES[code])
        elif re.fullmatch(r"E[0-9]S", code):
            digits = int(code[1])
            if digits > 6:
                raise SqlError(f"%{code} has more than six digits")
            pieces.append(f"date_format(@0, 'ss{'.' + 'S' * digits if digits else ''}')")
        elif code in _UTC and utc:
            pieces.append(text_sql(_UTC[code]))
        else:
            raise SqlError(f"{call.name}: the format element %{code} is not available on Spark")
    return f"concat({', '.join(_joined(pieces)) or chr(39) * 2})"


def _joined(pieces: list[str]) -> list[str]:
    """Neighbouring constants as one."""
    out: list[str] = []
    for piece in pieces:
        if out and piece.startswith("'") and out[-1].startswith("'"):
            out[-1] = out[-1][:-1] + piece[1:]
        else:
            out.append(piece)
    return out


_NAMES = {
    "months": "January|February|March|April|May|June|July|August|September|October|November|December",
    "days": "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
}
_READ = {
    "Y": r"([+-]?\d{1,4}+)", "E4Y": r"(\d{4})", "y": r"(\d{1,2}+)", "j": r"(\d{1,3}+)", "s": r"(-?\d+)",
    "p": "([AaPp][Mm])", "P": "([AaPp][Mm])", "z": r"([Zz]|[+-]\d{1,2}:?\d{0,2})", "Ez": r"([Zz]|[+-]\d{1,2}:?\d{0,2})",
    "E*S": r"(\d{1,2}+(?:\.\d+)?)", **dict.fromkeys("deHIklMmS", r"(\d{1,2}+)"),
}  # fmt: skip

_SAME = {"E4Y": "Y", "e": "d", "k": "H", "l": "I", "P": "p", "Ez": "z"}


@lru_cache(maxsize=256)
def _reader(pattern: str) -> tuple[str, tuple[str, ...]]:
    """A pattern's regular expression, and the element that each group holds."""
    out, codes, at = [], [], 0
    pattern = _expand(pattern)
    while at < len(pattern):
        found = ELEMENT.match(pattern, at)
        if found is None:
            character = pattern[at]
            out.append(r"\s*" if character.isspace() else re.sub(r"([^A-Za-z0-9])", r"\\\1", character))
            at += 1
            continue
        at = found.end()
        code = found[1]
        if code in "nt":
            out.append(r"\s*")
        elif code == "%":
            out.append("%")
        elif code in "AaBb":
            kind = "days" if code in "Aa" else "months"
            short = "|".join(name[:3] for name in _NAMES[kind].split("|"))
            out.append(f"({_NAMES[kind]}|{short})")
            codes.append(code.lower())
        elif code in _READ or re.fullmatch(r"E[0-9]S", code):
            out.append(r"\s*" + _READ.get(code, _READ["E*S"]))
            codes.append(
                {"E4Y": "Y", "e": "d", "k": "H", "l": "I", "P": "p", "Ez": "z"}.get(
                    code, "S" if code[-1] == "S" else code
                )
            )
        else:
            raise SqlError(f"the format element %{code} is not available on Spark for reading")
    if len(set(codes)) != len(codes):
        raise SqlError(f"format {pattern!r} names an element twice")
    return r"(?i)^\s*" + "".join(out) + r"\s*\z", tuple(codes)


def _civil(codes: tuple[str, ...], expression: str) -> str:
    """The civil time of `@0`, missing parts taken from 1970-01-01 00:00:00."""

    def group(code: str) -> str:
        return f"regexp_extract(@0, {expression}, {codes.index(code) + 1})"

    def number(code: str, missing: int) -> str:
        return f"CAST({group(code)} AS INT)" if code in codes else str(missing)

    year = number("Y", 1970)
    if "y" in codes and "Y" not in codes:
        year = f"(IF({number('y', 0)} < 69, 2000, 1900) + {number('y', 0)})"
    month, day = number("m", 1), number("d", 1)
    if "b" in codes:
        names = ", ".join(f"'{name[:3].lower()}'" for name in _NAMES["months"].split("|"))
        month = f"CAST(array_position(array({names}), lower(left({group('b')}, 3))) AS INT)"
    hour = number("H", 0)
    if "I" in codes:
        late = f" + IF(lower({group('p')}) = 'pm', 12, 0)" if "p" in codes else ""
        hour = f"({number('I', 0)} % 12{late})"
    second = "0"
    if "S" in codes:
        # Digits past the sixth are cut, not rounded.
        second = f"CAST(regexp_extract({group('S')}, '^([0-9]+([.][0-9]{{1,6}})?)', 1) AS DECIMAL(8,6))"
    minute = number("M", 0)
    made = f"make_timestamp_ntz({year}, {month}, {day}, {hour}, {minute}, {second})"
    if "j" in codes:
        clock = f"make_timestamp_ntz({year}, 1, 1, {hour}, {minute}, {second})"
        made = f"timestampadd(DAY, {number('j', 1)} - 1, {clock})"
    if "s" in codes:
        made = f"CAST(timestamp_seconds(CAST({group('s')} AS BIGINT)) AS TIMESTAMP_NTZ)"
    return made


@writes("PARSE_DATE PARSE_DATETIME PARSE_TIMESTAMP PARSE_TIME", safe=True, texts=[0])
def parse(call: Call, written: Value, text: Value, zone: Value | None = None) -> str:
    pattern, codes = _reader(str(written.constant))
    expression = text_sql(pattern)
    civil = _civil(codes, expression)
    if "z" in codes and call.returns is not TIMESTAMP:
        raise SqlError(f"{call.name} does not take %z")
    if call.safe:
        civil = civil.replace("make_timestamp_ntz(", "try_make_timestamp_ntz(")
        failing = "NULL"
    else:
        failing = "raise_error(concat('Failed to parse input string \"', @0, '\"'))"
    if call.returns is TIMESTAMP:
        civil = _zoned(zone, civil, codes, expression)
    kind = DATETIME if call.returns is TIME else call.returns
    read = f"IF(regexp_like(@0, {expression}), CAST({civil} AS {spark_sql(kind)}), {failing})"
    return cast(Value(fill(f"IF(@0 IS NULL, NULL, {read})", text), kind), call.returns).sql


def _zoned(zone: Value | None, civil: str, codes: tuple[str, ...], expression: str) -> str:
    if "z" in codes:
        offset = f"regexp_extract(@0, {expression}, {codes.index('z') + 1})"
        hours = f"regexp_extract({offset}, '^([+-]?[0-9]{{1,2}})', 1)"
        minutes = f"regexp_extract({offset}, '^[+-][0-9]{{2}}:?([0-9]{{2}})$', 1)"
        total = (
            f"(coalesce(try_cast({hours} AS INT), 0) * 60 + "
            f"IF(startswith({offset}, '-'), -1, 1) * coalesce(try_cast({minutes} AS INT), 0))"
        )
        return f"timestampadd(MINUTE, - {total}, {civil})"
    if zone is not None and "s" not in codes:
        return f"to_utc_timestamp(CAST({civil} AS TIMESTAMP), {zone.sql})"
    return civil
