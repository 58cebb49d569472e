"""Hive partitioning: columns whose values are in the path, `…/dt=2024-01-01/country=NL/part.json`."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from ingestd.formats.convert import text_reader
from ingestd.formats.detect import hive_type
from ingestd.formats.errors import BigQueryError
from ingestd.formats.options import HiveMode, HiveOptions
from ingestd.formats.schemas import schema_from_rest
from ingestd.formats.temporal import UnreadableError
from ingestd.model.schema import Field, Mode, Schema, Type

_NULL = "__HIVE_DEFAULT_PARTITION__"
_CUSTOM = re.compile(r"\{([^:{}/]+):([A-Za-z0-9]+)\}")


def partition_columns(
    hive: HiveOptions, uris: Sequence[str], schema: Schema | None
) -> tuple[Schema, dict[str, tuple[Any, ...]]]:
    """The key columns, and their values for each file."""
    written = ({"name": name, "type": kind} for name, kind in _CUSTOM.findall(hive.prefix))
    typed = [item for resource in written for item in schema_from_rest({"fields": [resource]})]
    prefix = _CUSTOM.split(hive.prefix)[0].rstrip("/")
    found = {uri: _keys(prefix, uri) for uri in uris}
    layouts = {tuple(name for name, _ in keys) for keys in found.values()}
    if len(layouts) > 1:
        shown = ", ".join("/".join(layout) or "(none)" for layout in sorted(layouts))
        raise BigQueryError(
            "invalid", f"Partition keys should be invariant from table creation across all partitions. Found: {shown}"
        )
    names = layouts.pop() if layouts else ()
    if hive.mode is HiveMode.CUSTOM:
        if found and [item.name for item in typed] != list(names):
            raise BigQueryError(
                "invalid", f"Partition keys {list(names)} do not match the sourceUriPrefix {hive.prefix}"
            )
        fields = typed
    else:
        given = {item.name.lower(): item for item in schema or ()}
        fields = [_column(name, hive, given, [keys[i][1] for keys in found.values()]) for i, name in enumerate(names)]
    values = {
        uri: tuple(_value(item, text) for item, (_, text) in zip(fields, keys, strict=True))
        for uri, keys in found.items()
    }
    return tuple(fields), values


def _keys(prefix: str, uri: str) -> list[tuple[str, str]]:
    if not uri.startswith(prefix + "/"):
        raise BigQueryError("invalid", f"Source URI {uri} does not begin with the hive partitioning prefix {prefix}")
    keys = []
    for folder in uri[len(prefix) + 1 :].split("/")[:-1]:
        name, equals, text = folder.partition("=")
        if not equals or not name:
            break
        keys.append((name, unquote(text)))
    return keys


def _column(name: str, hive: HiveOptions, given: dict[str, Field], texts: list[str]) -> Field:
    if known := given.get(name.lower()):
        return replace(known, mode=Mode.NULLABLE)
    if hive.mode is HiveMode.STRINGS:
        return Field(name, Type.STRING)
    return Field(name, hive_type(text for text in texts if text != _NULL))


def _value(field: Field, text: str) -> Any:
    if text == _NULL:
        return None
    try:
        return text_reader(field, csv=True)(text)
    except UnreadableError:
        raise BigQueryError(
            "invalid", f"Partition key '{field.name}' has value '{text}', which is not of type {field.type}"
        ) from None
