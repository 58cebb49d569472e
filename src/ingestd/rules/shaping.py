"""From a rule's `Dest` to what shall happen to the rows, with the batch's variables filled in.

Both engines start from the same `Shaping`, so both are asked for the same. Values reach it only as named parameters,
or by position inside the author's own strings and names: no object's name ever becomes SQL.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ingestd.googlesql.words import named_in, paths_in
from ingestd.model.errors import BadInput
from ingestd.model.preparation import Branch, Drift, Shaping, SideInput
from ingestd.model.tables import InvalidTableName, TableName, parse_table
from ingestd.rules.expansion import Scope, render, unknown_variables
from ingestd.rules.references import find_references
from ingestd.rules.rule import plain
from ingestd.rules.schema import Dest, Engine, RuleSpec, SplitMatch
from ingestd.rules.schema import SideInput as SideInputRule
from ingestd.rules.sql import IDENTIFIER_VARIABLES, expand_sql

_SEPARATORS = frozenset(".:`[]$")


def shaping_of(dest: Dest, values: Mapping[str, Any] | Scope) -> Shaping:
    """What the rule asks for, for a batch with these variables. Raises `BadInput` naming the field at fault."""
    scope = values if isinstance(values, Scope) else Scope(values)
    filler = _Filler(scope)
    staging = dest.staging
    shaping = Shaping(
        alias=dest.alias,
        side_inputs=tuple(filler.side_input(index, one) for index, one in enumerate(dest.side_inputs)),
        transform={name: filler.sql(f"Dest.Transform.{name}", text) for name, text in dest.transform.items()},
        criteria=filler.sql("Dest.Transient.Criteria", (staging and staging.criteria) or ""),
        unique_columns=dest.unique_keys,
        keep_keyless=dest.merge is not None,
        order_by=tuple(filler.sql("Dest.OrderBy", text) for text in dest.order_by),
        conditions=tuple(filter(None, upsert_conditions(dest, scope, filler.parameters))),
        parameters=filler.parameters,
    )
    split = dest.schema_options.split
    if split is None:
        return shaping
    conditions = [filler.sql("Dest.Schema.Split", one.when) for one in split.mapping]
    return replace(
        shaping,
        branches=tuple(Branch(lifted(condition, split.cluster_columns, dest.alias)) for condition in conditions),
        every_branch=split.match is SplitMatch.ALL,
        unmatched=split.unmatched,
    )


def expressions_of(dest: Dest) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every expression of the block, and where it stands."""
    for name, text in dest.transform.items():
        yield ("Dest", "Transform", name), text
    for index, side in enumerate(dest.side_inputs):
        yield ("Dest", "SideInputs", index, "On"), side.on
        if side.from_:
            yield ("Dest", "SideInputs", index, "From"), side.from_
    if dest.staging is not None and dest.staging.criteria:
        yield ("Dest", "Transient", "Criteria"), dest.staging.criteria
    for index, text in enumerate(dest.unique_columns):
        yield ("Dest", "UniqueColumns", index), text
    for index, text in enumerate(dest.order_by):
        yield ("Dest", "OrderBy", index), text
    if split := dest.schema_options.split:
        for index, mapping in enumerate(split.mapping):
            yield ("Dest", "Schema", "Split", "Mapping", index, "When"), mapping.when
    if dest.merge is not None:
        for key, condition in (("UpdateWhen", dest.merge.update_when), ("DeleteWhen", dest.merge.delete_when)):
            if condition:
                yield ("Dest", "Merge", key), condition


def upsert_conditions(dest: Dest, values: Mapping[str, Any] | Scope, parameters: dict[str, Any]) -> tuple[str, str]:
    """`UpdateWhen` and `DeleteWhen` of `Dest.Merge`, filled in; their values are added to `parameters`."""
    if dest.merge is None:
        return "", ""
    filler = _Filler(values if isinstance(values, Scope) else Scope(values), parameters)
    update = filler.sql("Dest.Merge.UpdateWhen", dest.merge.update_when or "")
    return update, filler.sql("Dest.Merge.DeleteWhen", dest.merge.delete_when or "")


def reads_landed_rows(spec: RuleSpec) -> bool:
    """Whether something of the rule names `$TempTable`, which has other rows by each engine.

    As in bqtail, statements shape rows on their way out of the transient table: it has them as they were loaded. Spark
    shapes them before they get there, and those of a split get a table for each mapping.
    """
    dest = spec.dest
    return dest.staging is not None and dest.shapes and "$TempTable" in unknown_variables(plain(spec), frozenset())


def engine_asked(spec: RuleSpec) -> Engine | None:
    """Who prepares the rule's rows; None: that makes no difference to what it says, so the settings choose."""
    if spec.engine is not None:
        return spec.engine
    if spec.needs_spark:
        return Engine.SPARK
    return Engine.BIGQUERY if reads_landed_rows(spec) else None


def absent_policy(dest: Dest) -> Drift:
    """What becomes of columns that a transient table has and the destination has not.

    As in bqtail, where the rule does not say: with `Schema.Template` beside a landing template the author has written
    down both sides, and columns of the latter alone are dropped. A landing template by itself promises that its
    columns arrive: what the table has not is refused, unless an expression uses it. Without one, data that is
    transformed may have columns for the expressions only.
    """
    if dest.schema_options.drift is not None or dest.allow_field_addition or dest.ignore_unknown_values:
        return dest.drift
    templated = dest.staging is not None and dest.staging.template is not None
    input_only = dest.schema_options.template is not None if templated else dest.transforms
    return Drift.DISCARD_VALUE if input_only else dest.drift


def mentioned(shaping: Shaping, names: Collection[str], conditions: Sequence[str] = ()) -> set[str]:
    """Those of the columns that some expression may use: input that need not be in the destination."""
    texts = [
        *shaping.transform.values(),
        *(side.on for side in shaping.side_inputs),
        *(branch.condition for branch in shaping.branches),
        *shaping.order_by,
        *shaping.unique_columns,
        shaping.criteria,
        *conditions,
    ]
    return named_in(texts, names)


def lifted(condition: str, columns: Sequence[str], alias: str) -> str:
    """`condition` where the last name of a nested `ClusterColumns` entry stands for the whole.

    bqtail copies such a column to the top level, so its rules may call `info.key` just `key`.
    """
    nested = {column.rpartition(".")[2].lower(): column for column in columns if "." in column}
    if not nested:
        return condition

    out, at = "", 0
    for start, end, parts in paths_in(condition):
        names = parts[1:] if len(parts) > 1 and parts[0].lower() == alias.lower() else parts
        column = nested.get(names[0].lower()) if len(names) == 1 else None
        if column:
            out += f"{condition[at:start]}{alias}.{column}"
            at = end
    return out + condition[at:]


class _Filler:
    def __init__(self, scope: Scope, parameters: dict[str, Any] | None = None) -> None:
        self._scope = scope
        self.parameters: dict[str, Any] = {} if parameters is None else parameters

    def sql(self, where: str, text: str) -> str:
        try:
            return expand_sql(text, self._scope, parameters=self.parameters)
        except ValueError as error:
            raise BadInput(f"{where}: {error}") from error

    def side_input(self, index: int, one: SideInputRule) -> SideInput:
        where = f"Dest.SideInputs[{index}]"
        on = self.sql(f"{where}.On", one.on)
        if one.table:
            return SideInput(one.alias, on, table=self._table(f"{where}.Table", one.table), inner=one.inner)
        return SideInput(one.alias, on, select=self.sql(f"{where}.From", one.from_ or ""), inner=one.inner)

    def _table(self, where: str, text: str) -> TableName:
        for reference in find_references(text):
            resolved = self._scope.resolve(text, reference)
            if resolved is None:
                continue
            value = resolved.value
            ours = reference.name in IDENTIFIER_VARIABLES or isinstance(value, TableName)
            if not ours and not _SEPARATORS.isdisjoint(render(value)):
                raise BadInput(f"{where}: {reference.label} is {render(value)!r}, which would name another table")
        try:
            return parse_table(render(self._scope.expand_text(text)))
        except InvalidTableName as error:
            raise BadInput(f"{where}: {error}") from error
