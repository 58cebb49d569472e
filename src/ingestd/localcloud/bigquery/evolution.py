"""How a table's schema may change: which differences BigQuery accepts, and its words for those it refuses."""

from dataclasses import replace

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery.resources import TableRef
from ingestd.model.schema import Mode, Schema, Type, by_name

# https://cloud.google.com/bigquery/docs/reference/standard-sql/data-definition-language#details_22
_WIDER = {
    Type.INT64: (Type.NUMERIC, Type.BIGNUMERIC, Type.FLOAT64),
    Type.NUMERIC: (Type.BIGNUMERIC, Type.FLOAT64),
}


def check_change(
    ref: TableRef, old: Schema, new: Schema, *, widen: bool = False, add: bool = True, relax: bool = True
) -> None:
    """Refuse `new` unless it only adds columns, relaxes REQUIRED, or (when allowed) widens types."""
    _check(ref, old, new, "", widen=widen, add=add, relax=relax)


def _check(ref: TableRef, old: Schema, new: Schema, prefix: str, *, widen: bool, add: bool, relax: bool) -> None:
    after = by_name(new)
    before = {item.key for item in old}
    for item in old:
        path = prefix + item.name
        changed = after.get(item.key)
        if changed is None:
            raise _mismatch(ref, f"Field {path} is missing in new schema")
        if changed.type is not item.type and not (widen and changed.type in _WIDER.get(item.type, ())):
            raise _mismatch(ref, f"Field {path} has changed type from {item.type.rest} to {changed.type.rest}")
        if changed.mode is not item.mode:
            relaxed = (item.mode, changed.mode) == (Mode.REQUIRED, Mode.NULLABLE)
            if not relaxed or not relax:
                raise _mismatch(ref, f"Field {path} has changed mode from {item.mode} to {changed.mode}")
        if item.type is Type.STRUCT:
            _check(ref, item.fields, changed.fields, path + ".", widen=widen, add=add, relax=relax)
    for item in new:
        if item.key in before:
            continue
        if not add:
            raise _mismatch(ref, f"Cannot add fields (field: {prefix}{item.name})")
        if item.required:
            raise _mismatch(ref, f"Cannot add required fields to an existing schema. (field: {prefix}{item.name})")


def merge(old: Schema, new: Schema) -> Schema:
    """Old columns in their order with the modes and types of `new`, then the added ones: a job's schema update."""
    after = by_name(new)
    merged = []
    for item in old:
        changed = after.get(item.key)
        if changed is None:
            merged.append(item)
        else:
            merged.append(
                replace(item, mode=changed.mode, type=changed.type, fields=merge(item.fields, changed.fields))
            )
    before = {item.key for item in old}
    merged.extend(item for item in new if item.key not in before)
    return tuple(merged)


def _mismatch(ref: TableRef, what: str) -> BigQueryError:
    return BigQueryError("invalid", f"Provided Schema does not match Table {ref}. {what}")
