"""From a matched file to its batch: the pinned record, and the load configuration.

The configuration is a function of the rule and the file alone, so that every attempt and every replica submits the
same job. What needs asking is asked by `destinations`.
"""

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ingestd.batch.phases import Phase
from ingestd.batch.placement import Placement
from ingestd.batch.record import Kind, Record
from ingestd.batch.rule import PinnedRule
from ingestd.batch.stamp import Stamp
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput
from ingestd.model.objects import FileVersion, Generation
from ingestd.model.tables import TableName
from ingestd.rules.destination import Destination
from ingestd.rules.rule import Rule
from ingestd.rules.schema import Dest
from ingestd.warehouse.schemas import SELF_DESCRIBING

_FORMATS = {
    ".csv": "CSV",
    ".json": "NEWLINE_DELIMITED_JSON",
    ".ndjson": "NEWLINE_DELIMITED_JSON",
    ".jsonl": "NEWLINE_DELIMITED_JSON",
    ".avro": "AVRO",
    ".parquet": "PARQUET",
    ".orc": "ORC",
}
_PACKED = (".gz", ".gzip", ".bz2", ".zst")
# What writers of parts put behind the extension: `-00000-of-00010`, `.2024-05-01T12`, `_3`.
_NUMBERED = re.compile(rf".*({'|'.join(map(re.escape, _FORMATS))})[-_.]\d[-_.:\dtz]*(?:-of-\d+)?")


def source_format(name: str) -> str | None:
    """The format an object's name tells: its last extension, looking through compression and the numbers of parts."""
    return _format_of(name.rpartition("/")[2].partition(".")[2])


@lru_cache(maxsize=1_000)
def _format_of(extensions: str) -> str | None:
    """Files of a batch mostly have the same."""
    base = f".{extensions.lower()}"
    for packed in _PACKED:
        base = base.removesuffix(packed)
    told = next((kind for extension, kind in _FORMATS.items() if base.endswith(extension)), None)
    if told is None and (numbered := _NUMBERED.fullmatch(base)):
        return _FORMATS[numbered[1]]
    return told


def new_record(
    rule: Rule,
    file: FileVersion,
    destination: Destination,
    *,
    project: str,
    clock: Clock,
    overwrote: Generation | None = None,
) -> Record:
    """The batch of one file, with everything about it pinned."""
    table = destination.target.in_project(project)
    now = clock.now()
    return Record(
        event_id=file.event_id,
        kind=Kind.LOAD,
        phase=Phase.ACCEPTED,
        dest=str(destination.table),
        files=(replace(file, overwrote=overwrote or file.overwrote),),
        rule=PinnedRule.of(rule),
        created=now,
        stamp=Stamp(now),
        asynchronous=rule.spec.async_,
        placement=Placement(project),
        load=load_configuration(rule.spec.dest, table, [file.ref.url]),
        values=dict(destination.params),
    )


def load_configuration(dest: Dest, table: TableName, uris: list[str]) -> dict[str, Any]:
    """BigQuery's `JobConfigurationLoad` for these files."""
    for uri in uris:
        refuse_misread(uri)
    configuration = dest.load_configuration()
    configuration.setdefault("sourceFormat", source_format(uris[0]) or "CSV")
    configuration.setdefault("createDisposition", "CREATE_IF_NEEDED")
    configuration.setdefault("writeDisposition", "WRITE_APPEND" if dest.append else "WRITE_TRUNCATE")
    if dest.schema_options.autodetect:
        configuration["autodetect"] = True
    if configuration["sourceFormat"] == "AVRO":
        configuration.setdefault("useAvroLogicalTypes", True)
    configuration["sourceUris"] = uris
    configuration["destinationTable"] = table.rest
    return configuration


def misread(uri: str) -> str:
    """Why the object of this name cannot be loaded: jobs would read others for it. Empty if they do not.

    BigQuery knows no way to escape either. Files that Spark prepares are no exception: a cluster joins slashes, too.
    """
    if "*" in uri:
        return f"{uri} holds a '*', which BigQuery reads as a wildcard; rename the file"
    if "//" in uri.removeprefix("gs://"):
        return f"{uri} holds several slashes in a row, which BigQuery reads as one: as another file; rename the file"
    return ""


def refuse_misread(uri: str) -> None:
    if why := misread(uri):
        raise BadInput(why, (uri,))


def creatable(load: dict[str, Any]) -> bool:
    """Whether BigQuery can create the table from the load alone."""
    if load.get("createDisposition") == "CREATE_NEVER":
        return False
    return bool(load.get("schema") or load.get("autodetect")) or load["sourceFormat"] in SELF_DESCRIBING
