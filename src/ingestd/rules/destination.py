"""From a rule and a file to the table its rows go to.

A pure function of the rule, the file and a few given values, so a redelivered notification always finds the same
destination. A name that comes out of an object's path is checked like one written by hand, and it can never move the
rows into another dataset or project than the rule's author wrote.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from ingestd.model.objects import ABSENT, FileVersion, ObjectRef
from ingestd.model.tables import InvalidTableName, TableName, parse_table
from ingestd.rules.expansion import Scope, format_instant, render
from ingestd.rules.functions import ExpressionError, parse_expression
from ingestd.rules.matching import path_of
from ingestd.rules.references import Reference, find_references
from ingestd.rules.rule import Rule
from ingestd.rules.shaping import expressions_of

_SEPARATORS = str.maketrans(dict.fromkeys(".:`[]$", "_"))


class DestinationError(ValueError):
    """The file's destination cannot be named; the message says which rule and variable."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where rows go, and the rule's parameters for this file."""

    table: TableName
    partition: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    branches: tuple[TableName, ...] = ()
    """The tables of `Schema.Split`, one per mapping, with their partition."""

    @property
    def target(self) -> TableName:
        """The table with its partition, as a load job writes it."""
        return self.table.partition(self.partition) if self.partition else self.table


def file_values(file: FileVersion) -> dict[str, Any]:
    """The variables that every file brings."""
    time, ref = file.event_time.astimezone(UTC), file.ref
    return {
        "Date": f"{time:%Y%m%d}",
        "Hour": f"{time:%H}",
        "TriggerBucket": ref.bucket,
        "Source": {"URL": ref.url, "Time": format_instant(time), "Bucket": ref.bucket, "Name": ref.name},
        "SourceURI": ref.url,
    }


def expand_destination(rule: Rule, file: FileVersion, values: Mapping[str, Any] | None = None) -> Destination:
    """The destination of a file. `values` adds what the caller knows (`EventID`, `ProjectID`…)."""
    groups = rule.matcher.groups(path_of(file.ref.name))
    values = values or {}
    if _shared(rule) and values.keys() <= _GIVEN:
        # Most rules name the same table for a whole folder and hour: that is worked out once.
        hour = int(file.event_time.timestamp() // 3600)
        return _expand_shared(rule, groups, file.ref.bucket, hour, values.get("ProjectID"))
    known = {"RuleURL": rule.url, **file_values(file), **_group_values(rule, file), **values}
    return _checked(rule, file, known, groups)


_GIVEN = frozenset({"EventID", "ProjectID"})
_SHARED = ("RuleURL", "TriggerBucket", "ProjectID")  # what the files of a folder have in common, besides the hour


@lru_cache(maxsize=4096)
def _shared(rule: Rule) -> bool:
    """Whether nothing in the destination's names tells one file of a folder from another of the same hour."""
    dest = rule.spec.dest
    if dest.parameters:
        return False  # expressions may use anything
    split = dest.schema_options.split
    texts = [dest.table, dest.partition or "", *(mapping.then for mapping in (split.mapping if split else ()))]
    return all(
        not one.modulus and (one.group or one.name in _SHARED or one.name.startswith(("Date", "Hour")))
        for text in texts
        for one in find_references(text)
    )


@lru_cache(maxsize=4096)
def _expand_shared(rule: Rule, groups: tuple[str, ...], bucket: str, hour: int, project: str | None) -> Destination:
    """The destination of every file with these groups: that of a nameless one."""
    file = FileVersion(ObjectRef(bucket, ""), ABSENT, event_time=datetime.fromtimestamp(hour * 3600, UTC))
    given = {} if project is None else {"ProjectID": project}
    return _checked(rule, file, {"RuleURL": rule.url, **file_values(file), **given}, groups)


def _checked(rule: Rule, file: FileVersion, known: Mapping[str, Any], groups: tuple[str, ...]) -> Destination:
    destination = _expand(rule, file, known, groups)
    tame = tuple(group.translate(_SEPARATORS) for group in groups)
    if tame != groups:
        # The path holds separators. Harmless if the rule replaces or ignores them; otherwise they would have moved a
        # name's borders, which shows as another number of parts.
        _refuse_moved_borders(rule, destination, lambda: _expand(rule, file, known, tame), groups)
    return destination


def group_number(rule: Rule, moment: int, seconds: int) -> int | None:
    """`$GroupID` of a window that lasts so long and holds that moment: the Unix time its group's stretch begins."""
    batch = rule.spec.batch
    if batch is None or batch.group is None:
        return None
    start = moment - moment % seconds
    return start - start % (batch.group.duration_in_sec or seconds)


@lru_cache(maxsize=4096)
def named_after_group(rule: Rule) -> bool:
    """Whether `Dest` has `$GroupID`: such a rule's windows keep their own length, which the name follows from."""
    dest = rule.spec.dest
    texts = [dest.table, dest.partition or "", *(parameter.expression for parameter in dest.parameters)]
    return any(reference.name == "GroupID" for text in texts for reference in find_references(text))


def _group_values(rule: Rule, file: FileVersion) -> dict[str, int]:
    if rule.spec.batch is None or rule.spec.batch.group is None:
        return {}
    number = group_number(rule, int(file.event_time.timestamp()), rule.spec.batch.seconds)
    return {} if number is None else {"GroupID": number}


def told_apart(rule: Rule, file: FileVersion) -> str:
    """What the file's path says about its rows: values that expressions use, and the tables of a split.

    Files of one batch are shaped by one set of values, so only those with the same text belong together.
    """
    names, tables = _said_by_paths(rule)
    if not names and not tables:
        return ""
    groups = rule.matcher.groups(path_of(file.ref.name))
    known = {"RuleURL": rule.url, **file_values(file)}
    params = parameters(rule, file, known, groups)
    scope = Scope({**known, **params}, groups, file.ref.url, prefixes=("Date", "Hour"))
    return "\n".join([*(render(params[name]) for name in names), *(render(scope.expand_text(text)) for text in tables)])


@lru_cache(maxsize=4096)
def _said_by_paths(rule: Rule) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The parameters that expressions use, and the names of a split's tables that hold variables."""
    dest = rule.spec.dest
    used = {reference.name for _, text in expressions_of(dest) for reference in find_references(text)}
    split = dest.schema_options.split
    tables = tuple(mapping.then for mapping in split.mapping if "$" in mapping.then) if split else ()
    return tuple(one.name for one in dest.parameters if one.name in used), tables


def parameters(rule: Rule, file: FileVersion, values: Mapping[str, Any], groups: Sequence[str]) -> dict[str, Any]:
    """The rule's named parameters; each may use the groups and the parameters before it."""
    known = dict(values)
    found: dict[str, Any] = {}
    for parameter in rule.spec.dest.parameters:
        scope = Scope(known, groups, file.ref.url, prefixes=("Date", "Hour"))
        try:
            value = parse_expression(parameter.expression).evaluate(scope, file.event_time)
        except ExpressionError as error:
            raise DestinationError(f"rule {rule.name}: parameter {parameter.name}: {error}") from error
        found[parameter.name] = known[parameter.name] = value
    return found


def _expand(rule: Rule, file: FileVersion, known: Mapping[str, Any], groups: Sequence[str]) -> Destination:
    params = parameters(rule, file, known, groups)
    scope = Scope({**known, **params}, groups, file.ref.url, prefixes=("Date", "Hour"))
    dest = rule.spec.dest
    name = _filled(rule, "Dest.Table", dest.table, scope)
    try:
        table = parse_table(name)
    except InvalidTableName as error:
        raise DestinationError(f"rule {rule.name}: Dest.Table {dest.table!r} becomes {name!r}: {error}") from error
    partition = table.decorator
    if dest.partition:
        partition = _filled(rule, "Dest.Partition", dest.partition, scope)
        if not partition:
            raise DestinationError(f"rule {rule.name}: Dest.Partition {dest.partition!r} becomes empty")
    try:
        table.partition(partition)
    except InvalidTableName as error:
        raise DestinationError(f"rule {rule.name}: Dest.Partition {dest.partition!r}: {error}") from error
    return Destination(table.partition(None), partition, params, _branches(rule, scope, partition))


def _branches(rule: Rule, scope: Scope, partition: str | None) -> tuple[TableName, ...]:
    split = rule.spec.dest.schema_options.split
    found = []
    for mapping in split.mapping if split else ():
        name = _filled(rule, "Split.Then", mapping.then, scope)
        try:
            table = parse_table(name)
        except InvalidTableName as error:
            raise DestinationError(
                f"rule {rule.name}: Split.Then {mapping.then!r} becomes {name!r}: {error}"
            ) from error
        found.append(table if table.decorator else table.partition(partition))
    return tuple(found)


def _filled(rule: Rule, where: str, text: str, scope: Scope) -> str:
    for reference in find_references(text):
        if not _is_decorator(reference) and scope.resolve(text, reference) is None:
            raise DestinationError(f"rule {rule.name}: {where} {text!r}: {reference.label} has no value for this file")
    return render(scope.expand_text(text))


def _is_decorator(reference: Reference) -> bool:
    return len(reference.group) > 3


def _refuse_moved_borders(
    rule: Rule, actual: Destination, expand_tame: Callable[[], Destination], groups: Sequence[str]
) -> None:
    try:
        tame = expand_tame()
        tables, tame_tables = (actual.target, *actual.branches), (tame.target, *tame.branches)
        moved = any(
            one.project != two.project
            or one.dataset != two.dataset
            or (one.decorator is None) != (two.decorator is None)
            for one, two in zip(tables, tame_tables, strict=True)
        )
    except DestinationError:
        # A function needs the separators (a time's colons, say); then they must not show up in the name as they are.
        names = [str(table) for table in (actual.target, *actual.branches)]
        moved = any(group in name for name in names for group in groups if group.translate(_SEPARATORS) != group)
    if moved:
        raise DestinationError(
            f"rule {rule.name}: the object's name would change the destination to {actual.target};"
            " make Dest.Pattern capture no '.', ':' or '$'"
        )
