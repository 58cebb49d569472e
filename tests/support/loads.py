"""Short spellings for the tests of the file readers."""

import json
from typing import Any

import duckdb
from tests.support.memory_objects import MemoryObjects

from ingestd.formats.options import LoadOptions
from ingestd.localcloud.bigquery.files.load import LoadOutcome, load_files
from ingestd.model.schema import Field, Schema


def connect() -> duckdb.DuckDBPyConnection:
    conn = duckdb.connect()
    conn.execute("SET TimeZone = 'UTC'")
    return conn


def schema(*columns: str) -> Schema:
    """`"id INT64"`, `"tags STRING REPEATED"`, `"r STRUCT(x INT64, y STRING REPEATED)"`."""
    return tuple(_field(column) for column in columns)


def _field(text: str) -> Field:
    name, rest = text.strip().split(" ", 1)
    resource: dict[str, Any] = {"name": name}
    if rest.startswith("STRUCT("):
        inner, _, mode = rest[len("STRUCT(") :].rpartition(")")
        members = [_field(part).rest() for part in _split(inner)]
        return Field.from_rest(resource | {"type": "RECORD", "fields": members, "mode": mode.strip() or None})
    kind, _, mode = rest.partition(" ")
    if kind.startswith("RANGE<"):
        resource["rangeElementType"] = {"type": kind[6:-1]}
        kind = "RANGE"
    kind, _, limits = kind.rstrip(")").partition("(")
    if limits:
        sizes = limits.split("/")
        resource |= {"precision": sizes[0], "scale": sizes[1]} if len(sizes) == 2 else {"maxLength": sizes[0]}
    return Field.from_rest(resource | {"type": kind, "mode": mode or None})


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def shape(found: Schema) -> list[str]:
    """The other way round: a schema as `schema` reads it, without modes but REPEATED."""
    out = []
    for item in found:
        kind = f"STRUCT({', '.join(shape(item.fields))})" if item.fields else item.type.value
        out.append(f"{item.name} {kind}{' REPEATED' if item.mode == 'REPEATED' else ''}")
    return out


class Loads:
    """Loads from memory into a private database and reads the rows back."""

    def __init__(self) -> None:
        self.conn = connect()
        self.objects = MemoryObjects()

    def put(self, uri: str, content: bytes | str | list[Any]) -> str:
        if isinstance(content, list):
            content = "\n".join(json.dumps(row) for row in content)
        self.objects.write(uri, content.encode() if isinstance(content, str) else content, "")
        return uri

    def load(self, uris: str | list[str], columns: Schema | None = None, /, **options: Any) -> LoadOutcome:
        wanted = [uris] if isinstance(uris, str) else uris
        return load_files(self.conn, self.objects, LoadOptions.from_rest(options), wanted, columns, "staged")

    def rows(self, order: str = "ALL") -> list[tuple[Any, ...]]:
        return self.conn.execute(f"SELECT * FROM staged ORDER BY {order}").fetchall()

    def json(self, content: Any, columns: Schema | None, /, **options: Any) -> list[tuple[Any, ...]]:
        self.put("gs://b/f.json", content)
        self.load("gs://b/f.json", columns, sourceFormat="NEWLINE_DELIMITED_JSON", **options)
        return self.conn.execute("SELECT * FROM staged").fetchall()

    def csv(self, content: bytes | str, columns: Schema | None, /, **options: Any) -> list[tuple[Any, ...]]:
        self.put("gs://b/f.csv", content)
        self.load("gs://b/f.csv", columns, sourceFormat="CSV", **options)
        return self.conn.execute("SELECT * FROM staged").fetchall()
