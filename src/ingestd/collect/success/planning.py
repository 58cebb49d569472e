"""From a success file to its batch's record: the destination, the pinned files, and how they are loaded.

A pure function of what was found: the same findings make the same record, on every replica. `resolve` gathers them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ingestd.batch.load_config import refuse_misread, source_format
from ingestd.batch.marks import SuccessMark
from ingestd.batch.phases import Phase
from ingestd.batch.placement import Placement
from ingestd.batch.record import UNRESOLVED, Kind, Record
from ingestd.batch.rule import PinnedRule
from ingestd.batch.stamp import Stamp
from ingestd.collect.success.configuration import BadConfig, Configured, Levels, Transform, load_options
from ingestd.collect.success.conventions import Conventions
from ingestd.collect.success.destination import Destination, NoDestination, Overrides, allowed, infer
from ingestd.collect.success.labels import job_labels, label_value
from ingestd.collect.success.listing import Listed, look
from ingestd.collect.success.lookup import PARSED_ASIDE, ConfigLookup
from ingestd.collect.success.transform import external_definition, filled, hive_prefix, spark_reading
from ingestd.model.aside import aside
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput
from ingestd.model.objects import FileVersion, ObjectRef, event_id
from ingestd.model.tables import TableName
from ingestd.ports import ObjectStore
from ingestd.settings import Convention

RULE_NAME = "_SUCCESS"
_MANY_FILES = 20_000  # of a directory: pinning them takes a while
_TRUNCATE = "WRITE_TRUNCATE"
_REPLACES = frozenset({_TRUNCATE, "WRITE_EMPTY"})
_OF_THE_TABLE = frozenset(
    {
        "writeDisposition",
        "createDisposition",
        "schemaUpdateOptions",
        "timePartitioning",
        "rangePartitioning",
        "clustering",
        "destinationTable",
        "destinationEncryptionConfiguration",
        "destinationTableProperties",
    }
)


def unresolved(success: FileVersion, *, project: str, clock: Clock, order: str = "") -> Record:
    """The record of a directory of which only the success file is known."""
    now = clock.now()
    mark = SuccessMark(success.ref.url, success.generation, order=order)
    record = Record(
        event_id="",
        kind=Kind.LOAD,
        phase=Phase.ACCEPTED,
        dest=UNRESOLVED,
        files=(),
        rule=PinnedRule({}, success.ref.url, RULE_NAME),
        created=now,
        stamp=Stamp(now),
        placement=Placement(project),
        trigger=mark,
    )
    return replace(record, event_id=event_id(record.identity))


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything a batch is made of."""

    convention: Convention
    configured: Configured
    listed: Listed


class Resolver:
    """Looks at the directory and at the `_config/` folders above it, and fills the record in."""

    def __init__(self, store: ObjectStore, conventions: Conventions, lookup: ConfigLookup, *, project: str) -> None:
        self._store = store
        self._conventions = conventions
        self._lookup = lookup
        self._project = project

    async def resolve(self, record: Record, levels: Levels | None = None) -> Record:
        """The record, complete and pinned, or ended when there is nothing to load.

        Raises `BadConfig` for what mending `_config/` would mend, `BadInput` for what only another path would.
        """
        assert record.success is not None
        ref = ObjectRef.parse(record.success.url)
        convention = self._conventions.of(ref)
        if convention is None:
            raise BadConfig(f"no convention of the settings covers {ref} any more")
        listed = await look(self._store, ref, convention)
        ended = nothing_to_load(record, listed)
        if ended is not None:
            return ended
        if levels is None:
            levels = await self._lookup.levels(ref.name, ref.bucket, convention)
        found = await self._lookup.read(levels)
        heavy = found.size > PARSED_ASIDE or len(listed.files) > _MANY_FILES
        return await aside(heavy, resolved, record, Findings(convention, found, listed), project=self._project)


def nothing_to_load(record: Record, listed: Listed) -> Record | None:
    assert record.success is not None
    url = record.success.url
    if listed.success is None:
        return record.enter(Phase.MISSING, error=f"{url} was deleted before its directory was loaded")
    if listed.success != record.success.generation:
        why = f"{url} was uploaded again: generation {listed.success} loads the directory"
        return record.enter(Phase.SUPERSEDED, error=why)
    if not listed.files:
        passed = f"; {len(listed.left_out) - 1} objects are no data" if len(listed.left_out) > 1 else ""
        return record.enter(Phase.MISSING, error=f"there are no files to load beside {url}{passed}")
    return None


def resolved(record: Record, found: Findings, *, project: str) -> Record:
    """The record with destination, files and load."""
    assert record.success is not None
    convention, configured, listed = found.convention, found.configured, found.listed
    ref = ObjectRef.parse(record.success.url)
    job_project = convention.job_project or project
    destination = destination_of(ref, convention, configured.overrides, project=project)
    table = destination.table
    source = f"{label_value(configured.source_name)}-" if configured.source_name else ""
    mark = replace(
        record.success,
        resolved=True,
        table_prefix=f"gs://{ref.bucket}/{destination.prefix}",
        job_prefix=f"{convention.job_prefix}{source}",
        labels=job_labels(
            configured.labels, bucket=ref.bucket, batch=destination.batch, function=convention.function_name
        ),
        zero_rows_fail=convention.fail_on_zero_dml_rows,
        config=configured.files,
    )
    load = load_configuration(configured, table, listed.files, ref)
    if configured.transform is not None:
        if not convention.transform_sql:
            raise BadConfig(f"{configured.transform.source}: transformations are switched off (success.transform_sql)")
        mark = replace(
            mark,
            sql=filled(configured.transform.sql, table),
            spark=configured.transform.spark,
            external=_temp_ext(configured.transform, load, listed, ref, convention),
        )
        if mark.spark:
            load = {key: value for key, value in load.items() if key in _OF_THE_TABLE}
            load |= {"sourceFormat": "PARQUET", "sourceUris": []}  # what the query selects
    own = table.project == job_project
    whole = table.partition(None)
    return replace(
        record,
        dest=f"{whole.dataset}.{whole.table}" if own else str(whole),
        files=listed.files,
        # What post-actions and destinations read of a rule: there is none but this.
        rule=replace(record.rule, document={"Dest": {"Table": str(whole), "SourceFormat": load["sourceFormat"]}}),
        placement=replace(record.placement, project=job_project),
        load=load,
        values={"Batch": destination.batch} if destination.batch else {},
        trigger=mark,
    )


def destination_of(success: ObjectRef, convention: Convention, overrides: Overrides, *, project: str) -> Destination:
    """Where the directory goes; refuses what the settings do not allow."""
    home = convention.storage_project or convention.job_project or project
    given = bool(overrides.regex or overrides.table)
    if given and not convention.destination_overrides:
        raise BadConfig("load.json names a destination, which is switched off (success.destination_overrides)")
    try:
        destination = infer(
            success.name, root=convention.root, regex=convention.destination_regex, overrides=overrides, project=home
        )
    except NoDestination as error:
        # What load.json says can be mended there; a path cannot.
        raise (BadConfig if given else BadInput)(f"{success}: {error}") from None
    if not allowed(destination.table, convention.allowed_datasets, home):
        raise BadConfig(f"{success}: batches may not go to {destination.table} (success.allowed_datasets)")
    return destination


def load_configuration(
    configured: Configured, table: TableName, files: tuple[FileVersion, ...], success: ObjectRef
) -> dict[str, Any]:
    """BigQuery's `JobConfigurationLoad` for these files."""
    options = load_options(configured)
    for file in files:
        refuse_misread(file.ref.url)
    if configured.transform is not None and configured.transform.described:
        options["sourceFormat"] = configured.transform.external["sourceFormat"]  # they are read as external.json says
    elif "sourceFormat" not in options:
        options["sourceFormat"] = _format(files, success)
    if hive := options.get("hivePartitioningOptions"):
        options["hivePartitioningOptions"] = _hive(hive, files)
    if configured.transform is None or configured.transform.spark:
        _refuse_lost_columns(options, configured, table)
    return {**options, "sourceUris": [file.ref.url for file in files], "destinationTable": table.rest}


def _format(files: tuple[FileVersion, ...], success: ObjectRef) -> str:
    """What the files' names tell where load.json does not; CSV where nothing does."""
    formats = {source_format(file.ref.name) or "CSV" for file in files}
    if len(formats) > 1:
        raise BadConfig(
            f"{success}: its directory has files of {' and '.join(sorted(formats))}: say in load.json which "
            "sourceFormat is meant, and keep the others apart"
        )
    return formats.pop()


def _refuse_lost_columns(options: Mapping[str, Any], configured: Configured, table: TableName) -> None:
    """BigQuery lets a load widen the schema of a table that stays; one that is replaced gets the load's own."""
    how = options.get("writeDisposition")
    if not options.get("schemaUpdateOptions") or how not in _REPLACES or (how == _TRUNCATE and table.decorator):
        return
    files = dict.fromkeys(configured.origins.get(key, "") for key in ("schemaUpdateOptions", "writeDisposition"))
    raise BadConfig(
        f"{' and '.join(filter(None, files))}: BigQuery takes schemaUpdateOptions with WRITE_APPEND, or with "
        f"WRITE_TRUNCATE of one partition, and this is {how} of all of {table}: name the partition in the path, or "
        'set "schemaUpdateOptions": [] for this table'
    )


def _temp_ext(
    transform: Transform, load: Mapping[str, Any], listed: Listed, success: ObjectRef, convention: Convention
) -> dict[str, Any]:
    """How `temp_ext` reads the files: as external.json says; on Spark, where there is none, as load.json says."""
    if not transform.spark:
        folder = ObjectRef(success.bucket, success.name[: len(success.name) - len(convention.success_filename)])
        return external_definition(transform.external, listed, folder)
    if transform.described:
        return spark_reading(transform.external, listed.files)
    return {key: value for key, value in load.items() if key not in {*_OF_THE_TABLE, "sourceUris"}}


def _hive(hive: Mapping[str, Any], files: tuple[FileVersion, ...]) -> dict[str, Any]:
    return {**hive, "sourceUriPrefix": hive.get("sourceUriPrefix") or hive_prefix(files)}
