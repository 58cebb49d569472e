"""Schemas: what a table is made like, which columns it may get, and how a load is told about new ones.

Pure functions. A table only ever becomes wider: columns are added (NULLABLE or REPEATED) and
REQUIRED ones relaxed, never dropped, renamed or given another type.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from ingestd.googlesql.words import named_in
from ingestd.model.errors import BadInput
from ingestd.model.preparation import Drift
from ingestd.model.schema import Field, Mode, Schema, Type, by_name
from ingestd.rules.schema import Dest
from ingestd.rules.shaping import absent_policy, expressions_of
from ingestd.warehouse.columns import words

SELF_DESCRIBING = frozenset({"AVRO", "PARQUET", "ORC"})
"""Formats whose files bring their schema."""

_UPDATES = ["ALLOW_FIELD_ADDITION", "ALLOW_FIELD_RELAXATION"]


class LandedLike(StrEnum):
    """What a batch's own (transient) table is made like."""

    TEMPLATE = "template"  # the table that `Transient.Template` names
    LOAD = "load"  # the load makes it from its own schema: given, detected, or brought by the files
    DESTINATION = "destination"  # the destination


def landed_like(dest: Dest, load: Mapping[str, Any]) -> LandedLike:
    """What the batch's own table is made like. `load` is the batch's load configuration.

    Files that describe themselves keep their own columns where expressions may use ones the destination has not;
    everything else is held to the destination's schema while it is loaded.
    """
    if dest.staging is not None and dest.staging.template:
        return LandedLike.TEMPLATE
    if load.get("schema") or load.get("autodetect"):
        return LandedLike.LOAD
    open_to_more = dest.transforms or dest.drift in {Drift.EVOLVE, Drift.DISCARD_VALUE}
    if load.get("sourceFormat") in SELF_DESCRIBING and open_to_more:
        return LandedLike.LOAD
    return LandedLike.DESTINATION


@dataclass(frozen=True, slots=True)
class Evolution:
    """A table's columns, made wide enough."""

    fields: Schema
    added: tuple[str, ...] = ()  # dotted names
    relaxed: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        return bool(self.added or self.relaxed)


def evolve(table: Schema, data: Schema, *, complete: bool = True) -> Evolution:
    """`table` with every column of `data`. Raises `BadInput` when a column has another type in the data.

    `complete`: the data's columns are all it has, so REQUIRED columns it leaves out (or may leave empty) are relaxed.
    """
    return _merged(table, data, "", complete=complete)


def with_new_columns(table: Schema, data: Schema) -> Evolution:
    """`table` with the columns that only `data` has; those both have stay as they are, whatever their types."""
    return _merged(table, data, "", complete=False, lenient=True)


def patched(table: Schema, template: Schema) -> Evolution | None:
    """`table` with the columns that a template has besides; None when they contradict, and the table stays as it is.

    As in bqtail: a template with fewer columns, or with other types, changes nothing.
    """
    try:
        found = evolve(table, template, complete=False)
    except BadInput:
        return None
    return found if _covers(template, table) else None


def _merged(table: Schema, data: Schema, inside: str, *, complete: bool, lenient: bool = False) -> Evolution:
    known, brought = by_name(table), by_name(data)
    fields: list[Field] = []
    added: list[str] = []
    relaxed: list[str] = []
    for column in table:
        name, other = f"{inside}{column.name}", brought.get(column.key)
        differs = other is not None and (other.type, other.repeated) != (column.type, column.repeated)
        if other is not None and differs and not lenient:
            raise BadInput(f"column {name} is {words(other)} in the data and {words(column)} in the table")
        if column.required and (complete if other is None else not other.required and not lenient):
            column = replace(column, mode=Mode.NULLABLE)
            relaxed.append(name)
        if other is not None and column.type is Type.STRUCT and not differs:
            inner = _merged(column.fields, other.fields, f"{name}.", complete=complete, lenient=lenient)
            column = replace(column, fields=inner.fields)
            added += inner.added
            relaxed += inner.relaxed
        fields.append(column)
    for column in data:
        if column.key not in known:
            fields.append(_optional(column))
            added.append(f"{inside}{column.name}")
    return Evolution(tuple(fields), tuple(added), tuple(relaxed))


def _optional(column: Field) -> Field:
    """A column as it may be added to a table that has rows: nothing in it is REQUIRED."""
    fields = tuple(_optional(one) for one in column.fields)
    if column.repeated:
        return replace(column, fields=fields)
    return replace(column, mode=Mode.NULLABLE, tacit=True, fields=fields)


def keeps_columns(dest: Dest) -> bool:
    """Whether every column that lands is to reach the table; of a split, each target says for itself."""
    return absent_policy(dest) is Drift.FREEZE and dest.schema_options.split is None


def lost_columns(dest: Dest, declared: Schema, table: Schema) -> list[str]:
    """Columns (dotted names) of a landing template that would get lost on their way to the table, against the rule."""
    if not keeps_columns(dest):
        return []
    absent = {name: name.partition(".")[0] for name in with_new_columns(table, declared).added}
    used = named_in((text for _, text in expressions_of(dest)), absent.values())
    computed = {name.lower() for name in dest.transform}
    return [name for name, column in absent.items() if column not in used and column.lower() not in computed]


def _covers(wide: Schema, narrow: Schema) -> bool:
    """Whether `wide` has every column of `narrow`, nested ones included."""
    known = by_name(wide)
    return all(
        (other := known.get(column.key)) is not None and _covers(other.fields, column.fields) for column in narrow
    )


def drift_options(dest: Dest, load: Mapping[str, Any], *, whole_table: bool = True) -> dict[str, Any]:
    """What a load job that reads the files itself is told about columns the table has not.

    `Drift.EVOLVE` lets BigQuery add them: text formats need its detection for that, and only a load that appends (or
    replaces one partition, `whole_table=False`) may add columns; one that replaces the table brings its own schema.
    Options that the rule gives itself stay.
    """
    found: dict[str, Any] = {}
    if dest.drift is Drift.DISCARD_VALUE:
        found["ignoreUnknownValues"] = True
    if dest.drift is Drift.EVOLVE:
        text = load.get("sourceFormat") not in SELF_DESCRIBING
        if text and not load.get("schema"):
            found["autodetect"] = True
        if not (whole_table and str(load.get("writeDisposition", "")).startswith("WRITE_TRUNCATE")):
            found["schemaUpdateOptions"] = _UPDATES
    return {key: value for key, value in found.items() if load.get(key) is None}


def expiration_time(expiry: timedelta, start: datetime) -> str:
    """A table's `expirationTime`: that long after the batch began, in milliseconds as the REST API writes them."""
    return str(int((start + expiry).timestamp() * 1000))
