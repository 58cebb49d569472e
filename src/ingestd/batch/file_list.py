"""A batch's list of files as JSON: in its record when it is short, in an object of its own when it is long.

The record is rewritten with every renewal of its lease; the list never changes, so a long one is written once. Its name
has the hash of its content: whatever happens to whoever else makes a list for the same batch, the record says which one
is meant.
"""

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

import orjson

from ingestd.model.objects import ABSENT, FileVersion, Generation, ObjectRef

INLINE = 2500  # files that still fit into the record: some hundred kilobytes, and one object less


def file_json(file: FileVersion) -> dict[str, Any]:
    document = {
        "URL": file.ref.url,
        "Generation": str(file.generation),
        "Size": file.size,
        "Time": file.event_time,
        "CRC32C": file.crc32c,
    }
    return {**document, "Overwrote": str(file.overwrote)} if file.overwrote else document


def file_from_json(item: dict[str, Any], overwrote: str | None = None) -> FileVersion:
    return FileVersion(
        ObjectRef.parse(item["URL"]),
        Generation(int(item["Generation"])),
        item["Size"],
        datetime.fromisoformat(item["Time"]),
        item["CRC32C"],
        Generation(int(item.get("Overwrote") or overwrote or ABSENT)),
    )


def to_manifest(files: Sequence[FileVersion]) -> tuple[bytes, str]:
    """The list of files, and the hash that names it."""
    rows = [
        [one.ref.url, one.generation, one.size, one.event_time, one.crc32c, *([one.overwrote] if one.overwrote else [])]
        for one in files
    ]
    data = orjson.dumps({"Files": rows})
    return data, sha256(data).hexdigest()[:16]


def from_manifest(data: bytes) -> tuple[FileVersion, ...]:
    return tuple(
        FileVersion(
            ObjectRef.parse(url), Generation(generation), size, datetime.fromisoformat(time), crc32c,
            Generation(*overwrote) if overwrote else ABSENT,
        )
        for url, generation, size, time, crc32c, *overwrote in orjson.loads(data)["Files"]
    )  # fmt: skip
