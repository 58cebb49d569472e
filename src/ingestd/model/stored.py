"""What is read back from a bucket is untrusted, our own folders included.

People create folders there, tools leave their files, a newer ingestd writes what this one does not know, and somebody
restores half a backup. So a reader says which object it reads (`reading`), and gets `UnreadableObject` (`NewerVersion`)
for whatever is wrong with it, never anything else. What a listing tells in labels is a hint: nonsense counts as absent.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import orjson

from ingestd.model.errors import NewerVersion, UnreadableObject
from ingestd.model.objects import ObjectInfo, ObjectRef

LARGEST = 64 << 20  # bytes of an object of ours; the largest, records and shards of 2,500 files, have some megabytes
LARGEST_LIST = 1 << 30  # of a batch's list of files: a million have some hundred megabytes
_INT64 = 1 << 63
_DIGITS = (str, int)  # a union would be made anew, and notifications ask often
_WRONG = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError, AssertionError)


@contextmanager
def reading(ref: ObjectRef) -> Iterator[None]:
    """Whatever goes wrong while making sense of the object is the object's fault."""
    try:
        yield
    except NewerVersion as error:
        raise NewerVersion(f"{ref}: {error}") from None
    except _WRONG as error:
        raise UnreadableObject(f"{ref}: {type(error).__name__}: {error}"[:500]) from error


def document(data: bytes, *, version: int = 0) -> dict[str, Any]:
    """A JSON object; with `version`, one whose schema_version is at most that."""
    found = orjson.loads(data)
    if not isinstance(found, dict):
        raise TypeError(f"a JSON {type(found).__name__}, not an object")
    if version:
        check_version(found, version)
    return found


def check_version(found: Mapping[str, Any], version: int) -> None:
    own = found.get("schema_version")
    if isinstance(own, bool) or not isinstance(own, int) or own < 1:
        raise ValueError(f"schema_version is {own!r}")
    if own > version:
        raise NewerVersion(f"schema_version {own} is of a newer ingestd; this one reads up to {version}")


def number(text: object, default: int = 0) -> int:
    """A count in a label, bounded to 64 bits."""
    try:
        found = int(text) if isinstance(text, _DIGITS) else default
    except ValueError:
        return default
    return found if -_INT64 <= found < _INT64 else default


def instant(text: object) -> datetime | None:
    """A moment in a label; None when there is none that can be reckoned with."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) and text else None
    except ValueError:
        return None
    if found is None:
        return None
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    return aware if 1 < aware.year < 9990 else None


def placeholder(info: ObjectInfo) -> bool:
    """A folder as consoles, mounts and copying tools leave it: an object whose name ends in a slash."""
    return info.ref.name.endswith("/")


def refuse_larger(info: ObjectInfo, largest: int | None) -> None:
    if largest is not None and info.size > largest:
        raise UnreadableObject(f"{info.ref}: {info.size} bytes, and at most {largest} are read")
