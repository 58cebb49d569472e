"""The manifest of a preparation as JSON: written last, created once, and the answer to every later question."""

from typing import Any

import orjson

from ingestd.model.errors import Fatal
from ingestd.model.preparation import BadFile, Output, Prepared
from ingestd.model.schema import Field

NAME = "manifest.json"
VERSION = 1


def encode(prepared: Prepared) -> bytes:
    document = {
        "schema_version": VERSION,
        "attempt": prepared.attempt,
        "format": prepared.format,
        "schema": [column.rest() for column in prepared.schema],
        "outputs": [
            {"branch": item.branch, "uris": list(item.uris), "rows": item.rows, "size": item.size}
            for item in prepared.outputs
        ],
        "bad": [
            {
                "index": item.index,
                "why": item.why,
                "schema": item.schema,
                "line": item.line,
                "column": item.column,
                "rows": item.rows,
                "missing": item.missing,
                "loaded": item.loaded,
            }
            for item in prepared.bad
        ],
        "added": [column.rest() for column in prepared.added],
        "relaxed": list(prepared.relaxed),
        "rows_read": prepared.rows_read,
        "rows_left_out": dict(prepared.rows_left_out),
        "rows_per_file": {str(index): rows for index, rows in prepared.rows_per_file.items()},
        "rejected": list(prepared.rejected),
        "load_options": dict(prepared.load_options),
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def decode(data: bytes) -> Prepared:
    document: dict[str, Any] = orjson.loads(data)
    if document["schema_version"] != VERSION:
        raise Fatal(f"a manifest of version {document['schema_version']}: this daemon knows version {VERSION}")
    return Prepared(
        attempt=document["attempt"],
        format=document["format"],
        schema=tuple(map(Field.from_rest, document["schema"])),
        outputs=tuple(
            Output(item["branch"], tuple(item["uris"]), item["rows"], item["size"]) for item in document["outputs"]
        ),
        bad=tuple(BadFile(**item) for item in document["bad"]),
        added=tuple(map(Field.from_rest, document["added"])),
        relaxed=tuple(document["relaxed"]),
        rows_read=document["rows_read"],
        rows_left_out=document["rows_left_out"],
        rows_per_file={int(index): rows for index, rows in document["rows_per_file"].items()},
        rejected=tuple(document["rejected"]),
        load_options=document["load_options"],
    )
