"""Transformation SQL: placeholders filled with names that were checked, and the definition of `temp_ext`.

Only two placeholders exist. Names are BigQuery's own characters by construction (`TableName`), and quoted where they
are no plain identifiers; nothing else of a path reaches the SQL.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ingestd.collect.success.configuration import BadConfig
from ingestd.collect.success.listing import Listed
from ingestd.model.errors import BadInput
from ingestd.model.objects import FileVersion, ObjectRef
from ingestd.model.tables import TableName

TEMP_EXT = "temp_ext"
MAX_URIS = 10_000  # of an external table

_SECTIONS = frozenset({"csvOptions", "jsonOptions", "avroOptions"})
_BEYOND_FILES = frozenset({"sourceUris", "compression", "connectionId", "metadataCacheMode", "objectMetadata"})
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HIVE = re.compile(r"[^=/]+=[^/]*")


def filled(sql: str, table: TableName) -> str:
    """`{dest_dataset}` and `{dest_table}` replaced; every other brace stays as it is."""
    dataset = f"`{table.project}`.{_identifier(table.dataset)}" if table.project else _identifier(table.dataset)
    return sql.replace("{dest_dataset}", dataset).replace("{dest_table}", _identifier(table.table))


def _identifier(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name}`"


def external_definition(external: Mapping[str, Any], listed: Listed, folder: ObjectRef) -> dict[str, Any]:
    """`temp_ext` over exactly the batch's files."""
    definition = {**external, "sourceUris": source_uris(listed, folder)}
    if hive := external.get("hivePartitioningOptions"):
        if not isinstance(hive, dict):
            raise BadConfig("external.json: hivePartitioningOptions has to be an object")
        definition["hivePartitioningOptions"] = {
            "mode": "AUTO",
            **hive,
            "sourceUriPrefix": hive.get("sourceUriPrefix") or hive_prefix(listed.files),
        }
    return definition


def spark_reading(external: Mapping[str, Any], files: Sequence[FileVersion]) -> dict[str, Any]:
    """The same definition as the options of a load, which is what the Spark pipeline reads files by."""
    flat: dict[str, Any] = {}
    for key, value in external.items():
        if key in _SECTIONS and isinstance(value, dict):
            flat |= value
        elif key not in _BEYOND_FILES:
            flat[key] = value
    if hive := flat.get("hivePartitioningOptions"):
        prefix = hive.get("sourceUriPrefix") or hive_prefix(files)
        flat["hivePartitioningOptions"] = {"mode": "AUTO", **hive, "sourceUriPrefix": prefix}
    return flat


def source_uris(listed: Listed, folder: ObjectRef) -> list[str]:
    """The files one by one; too many of them as one wildcard, if it stands for the very same files."""
    if len(listed.files) <= MAX_URIS:
        return [file.ref.url for file in listed.files]
    names = {file.ref.name for file in listed.files}
    endings = {name.rpartition("/")[2].rpartition(".")[2] for name in names}
    if len(endings) == 1:
        ending = f".{endings.pop()}"
        if {name for name in (*names, *listed.left_out) if name.endswith(ending)} == names:
            return [f"{folder.url}*{ending}"]
    raise BadInput(
        f"{len(names)} files are more than the {MAX_URIS} that a query over them may name, and no wildcard stands for "
        "exactly these; keep other files out of the directory, or split it"
    )


def hive_prefix(files: Sequence[FileVersion]) -> str:
    """What comes before the first `key=value` folder; raises `BadConfig` when the files disagree."""
    found = set()
    for file in files:
        parts = file.ref.name.split("/")[:-1]
        at = next((index for index, part in enumerate(parts) if _HIVE.fullmatch(part)), None)
        if at is None:
            raise BadConfig(f"hivePartitioningOptions: {file.ref} lies in no key=value folder")
        found.add(ObjectRef(file.ref.bucket, "".join(f"{part}/" for part in parts[:at])).url)
    if len(found) > 1:
        raise BadConfig(f"hivePartitioningOptions: key=value folders begin at {' and at '.join(sorted(found)[:2])}")
    return found.pop()
