"""String and byte functions that DuckDB lacks or answers differently. Regular expressions are RE2, as in BigQuery."""

import base64
import hashlib
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import farmhash
import re2

from ingestd.localcloud.bigquery.sql.runtime.registry import runtime

_INITCAP_DELIMITERS = ' \t\n\r\f\v[](){}/|<>!?@"^#$&~_,.:;*%+-'


@lru_cache(maxsize=512)
def pattern(text: str) -> "re2._Regexp":
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        message = reason.decode() if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"Cannot parse regular expression: {message}") from None


def group_count(text: str) -> int:
    return int(pattern(text).groups)


def one_group(text: str) -> int:
    groups = group_count(text)
    if groups > 1:
        raise ValueError(f"Regular expression has more than one capturing group: {text}")
    return groups


@runtime("bq_regexp_contains", "VARCHAR VARCHAR", "BOOLEAN")
def regexp_contains(value: str, regexp: str) -> bool:
    return pattern(regexp).search(value) is not None


@runtime("bq_regexp_extract", "VARCHAR VARCHAR BIGINT BIGINT", "VARCHAR")
def regexp_extract(value: str, regexp: str, position: int, occurrence: int) -> str | None:
    if position <= 0:
        raise ValueError("Position must be positive in REGEXP_EXTRACT")
    if occurrence <= 0:
        raise ValueError("Occurrence must be positive in REGEXP_EXTRACT")
    group = one_group(regexp)
    if position > len(value) + 1:
        return None
    for count, match in enumerate(pattern(regexp).finditer(value, position - 1), 1):
        if count == occurrence:
            return str(match.group(group)) if match.group(group) is not None else None
    return None


@runtime("bq_regexp_extract_all", "VARCHAR VARCHAR", "VARCHAR[]")
def regexp_extract_all(value: str, regexp: str) -> list[str]:
    group = one_group(regexp)
    if not value:
        return [match.group(group) or "" for match in pattern(regexp).finditer(value)]
    found = pattern(regexp).finditer(value)  # but for the empty text at its end
    return [match.group(group) or "" for match in found if match.start() < len(value) or match.group()]


@runtime("bq_regexp_instr", "VARCHAR VARCHAR BIGINT BIGINT BIGINT", "BIGINT")
def regexp_instr(value: str, regexp: str, position: int, occurrence: int, after: int) -> int:
    group = one_group(regexp)
    for count, match in enumerate(pattern(regexp).finditer(value, max(position - 1, 0)), 1):
        if count == occurrence:
            return int(match.end(group) if after else match.start(group)) + 1
    return 0


@runtime("bq_regexp_replace", "VARCHAR VARCHAR VARCHAR", "VARCHAR")
def regexp_replace(value: str, regexp: str, new: str) -> str:
    compiled = pattern(regexp)
    parts = replacement(new, compiled.groups)
    out: list[str] = []
    end = 0
    for match in compiled.finditer(value):
        out.append(value[end : match.start()])
        out.extend(part if isinstance(part, str) else (match.group(part) or "") for part in parts)
        end = match.end()
    out.append(value[end:])
    return "".join(out)


@lru_cache(maxsize=256)
def replacement(text: str, groups: int) -> tuple[str | int, ...]:
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            parts.append(text[at])
            at += 1
            continue
        following = text[at + 1 : at + 2]
        if following.isdigit():
            if int(following) > groups:
                raise ValueError(f"Invalid REGEXP_REPLACE pattern: rewrite has group {following}, too many")
            parts.append(int(following))
        elif following == "\\":
            parts.append("\\")
        else:
            raise ValueError("Invalid REGEXP_REPLACE pattern")
        at += 2
    return tuple(parts)


@runtime("bq_upper", "VARCHAR", "VARCHAR")
def upper(value: str) -> str:
    return value.upper()


@runtime("bq_lower", "VARCHAR", "VARCHAR")
def lower(value: str) -> str:
    return value.lower()


@runtime("bq_initcap", "VARCHAR VARCHAR", "VARCHAR", nulls=True)
def initcap(value: str | None, delimiters: str | None) -> str | None:
    if value is None or delimiters is None:
        return None
    out, start = [], True
    for character in value:
        out.append(character.upper() if start else character.lower())
        start = character in delimiters
    return "".join(out)


def default_delimiters() -> str:
    return _INITCAP_DELIMITERS


@runtime("bq_normalize", "VARCHAR VARCHAR BOOLEAN", "VARCHAR")
def normalize(value: str, form: str, casefold: bool) -> str:
    if form not in ("NFC", "NFD", "NFKC", "NFKD"):
        raise ValueError(f"Invalid normalization mode: {form}")
    return unicodedata.normalize(form, value.casefold() if casefold else value)  # type: ignore[arg-type]


@runtime("bq_contains_substr", "VARCHAR VARCHAR", "BOOLEAN")
def contains_substr(value: str, wanted: str) -> bool:
    def fold(text: str) -> str:
        return unicodedata.normalize("NFKC", text).casefold()

    return fold(wanted) in fold(value)


@runtime("bq_soundex", "VARCHAR", "VARCHAR")
def soundex(value: str) -> str:
    codes = {**dict.fromkeys("BFPV", "1"), **dict.fromkeys("CGJKQSXZ", "2"), **dict.fromkeys("DT", "3"), "L": "4"}
    codes |= {**dict.fromkeys("MN", "5"), "R": "6"}
    letters = [character for character in value.upper() if "A" <= character <= "Z"]
    if not letters:
        return ""
    out, previous = letters[0], codes.get(letters[0], "")
    for letter in letters[1:]:
        code = codes.get(letter, "")
        if code and code != previous:
            out += code
        if letter not in "HW":
            previous = code
        if len(out) == 4:
            break
    return out.ljust(4, "0")


@runtime("bq_farm_fingerprint", "VARCHAR", "BIGINT")
def farm_fingerprint(value: str) -> int:
    unsigned = int(farmhash.fingerprint64(value))
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned


@runtime("bq_farm_fingerprint_bytes", "BLOB", "BIGINT")
def farm_fingerprint_bytes(value: bytes) -> int:
    unsigned = int(farmhash.fingerprint64(bytes(value)))
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned


@runtime("bq_hash", "VARCHAR BLOB", "BLOB")
def digest(algorithm: str, value: bytes) -> bytes:
    return hashlib.new(algorithm, bytes(value), usedforsecurity=False).digest()


@runtime("bq_instr", "VARCHAR VARCHAR BIGINT BIGINT", "BIGINT")
def instr(value: str, wanted: str, position: int, occurrence: int) -> int:
    if position == 0:
        raise ValueError("Position cannot be zero in INSTR")
    if occurrence <= 0:
        raise ValueError("Occurrence must be positive in INSTR")
    at = position - 1 if position > 0 else len(value) + position
    if at < 0:
        return 0
    for count in range(occurrence):
        if position > 0:
            found = value.find(wanted, at)
            at = found + 1
        else:
            found = value.rfind(wanted, 0, at + len(wanted))
            at = found - 1
        if found < 0:
            return 0
        if count == occurrence - 1:
            return found + 1
    return 0


@runtime("bq_translate", "VARCHAR VARCHAR VARCHAR", "VARCHAR")
def translate(value: str, source: str, target: str) -> str:
    if len(set(source)) != len(source):
        raise ValueError("Duplicate character in TRANSLATE source characters")
    table = {ord(old): target[index] if index < len(target) else None for index, old in enumerate(source)}
    return value.translate(table)


@runtime("bq_safe_convert", "BLOB", "VARCHAR")
def safe_convert(value: bytes) -> str:
    return bytes(value).decode("utf-8", "replace")


@runtime("bq_edit_distance", "VARCHAR VARCHAR", "BIGINT")
def edit_distance(one: str, other: str) -> int:
    return _distance(one, other)


@runtime("bq_edit_distance_bytes", "BLOB BLOB", "BIGINT")
def edit_distance_bytes(one: bytes, other: bytes) -> int:
    return _distance(bytes(one), bytes(other))


def _distance(one: Sequence[object], other: Sequence[object]) -> int:
    """Levenshtein's, a row at a time."""
    row = list(range(len(other) + 1))
    for place, own in enumerate(one, 1):
        diagonal, row[0] = row[0], place
        for column, its in enumerate(other, 1):
            changed = diagonal + (own != its)
            diagonal = row[column]
            row[column] = min(changed, row[column] + 1, row[column - 1] + 1)
    return row[-1]


@runtime("bq_to_code_points", "VARCHAR", "BIGINT[]")
def code_points(value: str) -> list[int]:
    return [ord(character) for character in value]


@runtime("bq_to_code_points_bytes", "BLOB", "BIGINT[]")
def byte_points(value: bytes) -> list[int]:
    return list(bytes(value))


@runtime("bq_code_points_to_bytes", "BIGINT[]", "BLOB")
def points_to_bytes(points: list[int | None]) -> bytes | None:
    if any(point is None for point in points):
        return None
    if any(not 0 <= point <= 255 for point in points if point is not None):
        raise ValueError("Invalid extended ASCII value: CODE_POINTS_TO_BYTES takes values from 0 to 255")
    return bytes(point for point in points if point is not None)


@runtime("bq_code_points_to_string", "BIGINT[]", "VARCHAR")
def points_to_string(points: list[int | None]) -> str | None:
    if any(point is None for point in points):
        return None
    try:
        return "".join(chr(point) for point in points if point is not None)
    except (ValueError, OverflowError):
        raise ValueError("Invalid codepoint in CODE_POINTS_TO_STRING") from None


@runtime("bq_substr_bytes", "BLOB BIGINT BIGINT", "BLOB", nulls=True)
def substr_bytes(value: bytes | None, position: int | None, length: int | None) -> bytes | None:
    """Length -1 means to the end."""
    if value is None or position is None or length is None:
        return None
    start = max(position - 1, 0) if position >= 0 else max(len(value) + position, 0)
    return bytes(value)[start:] if length < 0 else bytes(value)[start : start + length]


@runtime("bq_bytes_pad", "BLOB BIGINT BLOB BOOLEAN", "BLOB")
def pad_bytes(value: bytes, length: int, filler: bytes, left: bool) -> bytes:
    missing = length - len(value)
    if missing <= 0:
        return bytes(value)[:length]
    padding = (bytes(filler) * (missing // len(filler) + 1))[:missing]
    return padding + bytes(value) if left else bytes(value) + padding


@runtime("bq_reverse_bytes", "BLOB", "BLOB")
def reverse_bytes(value: bytes) -> bytes:
    return bytes(value)[::-1]


@runtime("bq_base32", "BLOB", "VARCHAR")
def to_base32(value: bytes) -> str:
    return base64.b32encode(bytes(value)).decode()


@runtime("bq_from_base32", "VARCHAR", "BLOB")
def from_base32(value: str) -> bytes:
    try:
        return base64.b32decode(value)
    except ValueError:
        raise ValueError(f"Failed to decode invalid base32 string: {value}") from None


@runtime("bq_from_hex", "VARCHAR", "BLOB")
def from_hex(value: str) -> bytes:
    try:
        return bytes.fromhex(value if len(value) % 2 == 0 else "0" + value)
    except ValueError:
        raise ValueError(f"Failed to decode invalid hexadecimal string: {value}") from None
