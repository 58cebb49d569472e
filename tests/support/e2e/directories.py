"""Directories with success files, as producers leave them."""

import json
from typing import Any

from google.api_core.exceptions import NotFound
from tests.support.e2e.world import World

CSV = "1,a\n2,b\n"
LOADED = [(1, "a"), (2, "b")]
FIELDS = [{"name": "id", "type": "INTEGER"}, {"name": "name", "type": "STRING"}]


def settings(world: World, **convention: Any) -> dict[str, Any]:
    """The convention for the world's bucket; ordered batches wait for nobody unless a test says so."""
    return {"success": {"order_grace": "0s", "conventions": [{"bucket": world.trigger, **convention}]}}


def put(world: World, name: str, data: str | bytes | dict[str, Any] = "") -> int:
    blob = world.storage.bucket(world.trigger).blob(name)
    text = json.dumps(data) if isinstance(data, dict) else data
    blob.upload_from_string(text, content_type="application/octet-stream")
    return int(blob.generation)


def batch(world: World, folder: str, *contents: str | bytes, ending: str = "csv", success: str = "_SUCCESS") -> int:
    """Files, and then the success file; its generation."""
    for number, content in enumerate(contents or (CSV,)):
        put(world, f"{folder}/part-{number}.{ending}", content)
    return put(world, f"{folder}/{success}")


def records(world: World, folder: str = "Done") -> dict[str, dict[str, Any]]:
    """The records, by their success file's name."""
    found = {}
    for name in world.objects(f"journal/{folder}/"):
        try:
            one = world.document(name)
        except NotFound:
            continue  # it ended meanwhile
        if one["Success"]:
            found[one["Success"]["URL"].partition(f"{world.trigger}/")[2]] = one
    return found
