"""How rows get from a landed (transient) table to where they belong: one typed job per target.

Everything here is a function of the landed columns, the targets' columns and the `Shaping` that both engines share, so
whoever continues a batch makes the same jobs again. Rows are shaped in one order: join, transform, criteria, one row
per key, split. Each job is atomic by itself: a query with a destination, an INSERT, a MERGE or a copy.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingestd.googlesql.words import named_in, parameters_in, qualifies
from ingestd.model.errors import BadInput
from ingestd.model.jobs import JobKind
from ingestd.model.preparation import DRIFT_REMEDY, Drift, Shaping, SideInput, Unmatched
from ingestd.model.schema import Field, Schema, by_name
from ingestd.model.tables import TableName
from ingestd.rules.schema import DESTINATION_ALIAS, CopyMethod, Upsert, UpsertMode
from ingestd.rules.shaping import mentioned
from ingestd.warehouse.columns import alike, converted, fields_of, groupable, null_of, orderable, quoted, widened

HOME = -1  # the destination itself, where a split has no say

_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_LAYOUT = ("timePartitioning", "rangePartitioning", "clustering")


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table and what is known of it: no columns when it does not exist yet."""

    name: TableName  # with its partition, when only that is written
    fields: Schema = ()
    layout: Mapping[str, Any] = field(default_factory=dict)  # partitioning and clustering, REST form

    @classmethod
    def of(cls, name: TableName, resource: Mapping[str, Any] | None) -> "TableShape":
        if resource is None:
            return cls(name)
        return cls(name, fields_of(resource), {key: resource[key] for key in _LAYOUT if resource.get(key)})

    @property
    def exists(self) -> bool:
        return bool(self.fields)


@dataclass(frozen=True, slots=True)
class UpsertPlan:
    """`Dest.Merge` with its conditions filled in (see `rules.shaping.upsert_conditions`)."""

    spec: Upsert
    update_when: str = ""
    delete_when: str = ""


@dataclass(frozen=True, slots=True)
class Publication:
    """Everything that decides how a landed batch is published."""

    landed: TableShape
    target: TableShape
    shaping: Shaping = field(default_factory=Shaping)
    branches: tuple[TableShape, ...] = ()  # one per branch of the shaping
    append: bool = True
    method: CopyMethod | None = None
    absent: Drift = Drift.FREEZE  # see `rules.shaping.absent_policy`
    upsert: UpsertPlan | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """One job: `configuration` is BigQuery's own block for its `kind`."""

    kind: JobKind
    target: TableName | None  # what it writes; None: it only reads
    configuration: Mapping[str, Any]
    branch: int = HOME

    @property
    def sql(self) -> str:
        return str(self.configuration.get("query", ""))

    @property
    def dml(self) -> bool:
        """Whether the statement writes by itself and reports `dmlStats`."""
        return self.kind is JobKind.QUERY and self.target is not None and "destinationTable" not in self.configuration


def publish_statement(plan: Publication, branch: int = HOME) -> Statement:
    """The job for one target alone; nothing has to be known of the others."""
    if len(plan.branches) != len(plan.shaping.branches):
        raise ValueError("a table is needed for each branch")
    return _publish(plan, plan.target if branch == HOME else plan.branches[branch], branch)


def unmatched_statement(plan: Publication) -> Statement | None:
    """A query whose one value, `unmatched`, is the number of rows that fit no branch; None when nobody needs it."""
    if not plan.shaping.branches or plan.shaping.unmatched is Unmatched.KEEP:
        return None
    rows = _Rows(plan)
    sql = f"SELECT COUNT(*) AS unmatched\nFROM {rows.unique()}\nWHERE {rows.condition(HOME)}"
    return Statement(JobKind.QUERY, None, _query(sql, plan.shaping))


def _publish(plan: Publication, target: TableShape, branch: int) -> Statement:
    if plan.upsert is not None:
        return _merge(plan, target, branch, plan.upsert)
    method = _method(plan, target)
    if method is CopyMethod.COPY:
        return _copy(plan, target)
    rows = _Rows(plan)
    # A query that replaces rows must name every column; one that adds leaves the others to their defaults.
    columns = rows.columns(target, every=not plan.append and target.exists)
    select = rows.select(columns, branch)
    if method is CopyMethod.DML:
        sql = _insert(target, columns, select) if plan.append else _replace(plan, target, columns, select)
        return Statement(JobKind.QUERY, target.name, _query(sql, plan.shaping), branch)
    configuration = _query(select, plan.shaping) | {
        "destinationTable": target.name.rest,
        "writeDisposition": _disposition(plan, target),
        "createDisposition": "CREATE_IF_NEEDED",
    }
    if plan.absent is Drift.EVOLVE and plan.append and target.exists:
        configuration["schemaUpdateOptions"] = ["ALLOW_FIELD_ADDITION", "ALLOW_FIELD_RELAXATION"]
    return Statement(JobKind.QUERY, target.name, configuration, branch)


def _method(plan: Publication, target: TableShape) -> CopyMethod:
    """The rule's own choice where it can do the job; a copy can only copy, and only a query replaces or partitions."""
    if plan.method in {None, CopyMethod.COPY} and _copyable(plan, target):
        return CopyMethod.COPY
    if target.name.decorator:
        return CopyMethod.QUERY
    if plan.method is CopyMethod.DML and target.exists and plan.append:
        return CopyMethod.DML
    # A query's result has no REQUIRED columns, and a table that has some would refuse it.
    return CopyMethod.DML if any(column.required for column in target.fields) else CopyMethod.QUERY


def _copyable(plan: Publication, target: TableShape) -> bool:
    if plan.shaping.asked or target.name.decorator:
        return False
    if not target.exists:
        return True
    return alike(plan.landed.fields, target.fields) and dict(plan.landed.layout) == dict(target.layout)


def _copy(plan: Publication, target: TableShape) -> Statement:
    configuration = {
        "sourceTables": [plan.landed.name.rest],
        "destinationTable": target.name.rest,
        "writeDisposition": "WRITE_APPEND" if plan.append else "WRITE_TRUNCATE",
        "createDisposition": "CREATE_IF_NEEDED",
    }
    return Statement(JobKind.COPY, target.name, configuration)


def _insert(target: TableShape, columns: Sequence[tuple[str, str]], select: str) -> str:
    listed = ", ".join(quoted(name) for name, _ in columns)
    return f"INSERT INTO {target.name.sql} ({listed})\n{select}"


def _replace(plan: Publication, target: TableShape, columns: Sequence[tuple[str, str]], select: str) -> str:
    """Every row of the table for every row of the batch, in one statement: a MERGE in which nothing matches."""
    alias = plan.shaping.alias
    listed = ", ".join(quoted(name) for name, _ in columns)
    values = ", ".join(f"{alias}.{quoted(name)}" for name, _ in columns)
    return "\n".join(
        [
            f"MERGE INTO {target.name.sql} AS {DESTINATION_ALIAS}",
            f"USING (\n{select}\n) AS {alias}",
            "ON FALSE",
            "WHEN NOT MATCHED BY SOURCE THEN DELETE",
            f"WHEN NOT MATCHED BY TARGET THEN INSERT ({listed}) VALUES ({values})",  # noqa: S608 - quoted
        ]
    )


def _disposition(plan: Publication, target: TableShape) -> str:
    if plan.append:
        return "WRITE_APPEND"
    # The rows of an existing table are replaced; its columns, their modes and descriptions stay.
    return "WRITE_TRUNCATE_DATA" if target.exists and not target.name.decorator else "WRITE_TRUNCATE"


def _merge(plan: Publication, target: TableShape, branch: int, upsert: UpsertPlan) -> Statement:
    if not target.exists:
        raise BadInput(f"Merge needs its table: {target.name} does not exist; create it or give Schema.Template")
    spec, alias, rows = upsert.spec, plan.shaping.alias, _Rows(plan)
    columns = rows.columns(target)
    names = {name.lower(): name for name, _ in columns}
    keys = [_known(names, key, "Merge.Keys") for key in spec.keys]
    updated = [_known(names, column, "Merge.Update") for column in spec.update] or [
        name for name, _ in columns if name not in keys
    ]
    source = rows.select([*columns, *rows.leftovers(target)], branch)
    matched = " AND ".join(f"{DESTINATION_ALIAS}.{quoted(key)} = {alias}.{quoted(key)}" for key in keys)
    lines = [
        f"MERGE INTO {target.name.sql} AS {DESTINATION_ALIAS}",
        "USING (",
        source,
        f") AS {alias}",
        f"ON {matched}",
    ]
    if upsert.delete_when:
        lines.append(f"WHEN MATCHED AND ({_text(upsert.delete_when)}) THEN DELETE")
    if spec.mode is not UpsertMode.INSERT and updated:
        condition = f" AND ({_text(upsert.update_when)})" if upsert.update_when else ""
        settings = ", ".join(f"{quoted(name)} = {alias}.{quoted(name)}" for name in updated)
        lines.append(f"WHEN MATCHED{condition} THEN UPDATE SET {settings}")
    if spec.mode is not UpsertMode.UPDATE:
        unwanted = upsert.delete_when and not qualifies(DESTINATION_ALIAS, upsert.delete_when)
        condition = f" AND ({_text(upsert.delete_when)}) IS NOT TRUE" if unwanted else ""
        listed = ", ".join(quoted(name) for name, _ in columns)
        values = ", ".join(f"{alias}.{quoted(name)}" for name, _ in columns)
        lines.append(f"WHEN NOT MATCHED{condition} THEN INSERT ({listed}) VALUES ({values})")  # noqa: S608 - quoted
    if len(lines) == 5:
        raise BadInput("Merge has nothing to do: there is no column to update besides the keys")
    return Statement(JobKind.QUERY, target.name, _query("\n".join(lines), plan.shaping), branch)


def _known(names: Mapping[str, str], name: str, where: str) -> str:
    found = names.get(name.lower())
    if found is None:
        raise BadInput(f"{where}: there is no column {name!r}; there are {', '.join(names.values())}")
    return found


class _Rows:
    """The shaped rows of one batch, as SQL."""

    def __init__(self, plan: Publication) -> None:
        self._plan = plan
        self._shaping = plan.shaping
        self._alias = plan.shaping.alias
        self._landed = by_name(plan.landed.fields)
        self._transform = {name.lower(): (name, text) for name, text in plan.shaping.transform.items()}
        self._layers = bool(plan.shaping.unique_columns or plan.shaping.branches)

    def columns(self, target: TableShape, *, every: bool = False) -> list[tuple[str, str]]:
        """The target's columns that the batch has (or `every` one) and the expression of each."""
        if not target.exists:
            return [(name, self._value(name, None)) for name in self._names()]
        self._refuse_absent(target)
        found = []
        for one in target.fields:
            if one.key in self._landed or one.key in self._transform:
                found.append((one.name, self._value(one.name, one)))
            elif every:
                found.append((one.name, null_of(one)))
        if self._plan.absent is Drift.EVOLVE:
            known = by_name(target.fields)
            found += [(name, self._value(name, None)) for name in self._names() if name.lower() not in known]
        if not found:
            raise BadInput(f"the batch has no column of {target.name}")
        return found

    def leftovers(self, target: TableShape) -> list[tuple[str, str]]:
        """The batch's columns that the target has not: conditions may still use them."""
        known = by_name(target.fields)
        return [(name, self._value(name, None)) for name in self._names() if name.lower() not in known]

    def select(self, columns: Sequence[tuple[str, str]], branch: int) -> str:
        listed = ",\n  ".join(f"{expression} AS {quoted(name)}" for name, expression in columns)
        if not self._layers:
            return f"SELECT\n  {listed}\n{self._source()}"
        where = f"\nWHERE {self.condition(branch)}" if self._shaping.branches else ""
        return f"SELECT\n  {listed}\nFROM {self.unique()}{where}"

    def condition(self, branch: int) -> str:
        """Which rows belong to a branch, or to none of them."""
        tests = [f"({_text(one.condition)})" for one in self._shaping.branches]
        if branch == HOME:
            return " AND ".join(f"{test} IS NOT TRUE" for test in tests)
        before = [] if self._shaping.every_branch else [f"{test} IS NOT TRUE" for test in tests[:branch]]
        return " AND ".join([f"{tests[branch]} IS TRUE", *before])

    def unique(self) -> str:
        """The shaped rows, one per key if asked, as a relation under the batch's alias."""
        listed = ",\n  ".join(f"{self._shaped(name)} AS {quoted(name)}" for name in self._names())
        shaped = f"(\n{_indented(f'SELECT{chr(10)}  {listed}{chr(10)}{self._source()}')}\n) AS {self._alias}"
        if not self._shaping.unique_columns:
            return shaped
        keys = self._keys()
        groups = ", ".join(key if comparable else f"TO_JSON_STRING({key})" for key, comparable in keys)
        window = f"PARTITION BY {groups}\n  ORDER BY {', '.join(self._order())}"
        keyless = "".join(f" OR {key} IS NULL" for key, _ in keys if self._shaping.keep_keyless)
        select = f"SELECT *\nFROM {shaped}\nWHERE TRUE\nQUALIFY ROW_NUMBER() OVER (\n  {window}\n) = 1{keyless}"
        return f"(\n{_indented(select)}\n) AS {self._alias}"

    def _source(self) -> str:
        lines = [f"FROM {self._plan.landed.name.sql} AS {self._alias}"]
        lines += [_join(side) for side in self._shaping.side_inputs]
        if self._shaping.criteria:
            lines.append(f"WHERE ({_text(self._shaping.criteria)})")
        return "\n".join(lines)

    def _names(self) -> list[str]:
        """Every column of the shaped rows: the landed ones in their order, then those that are only computed."""
        own = [one.name for one in self._plan.landed.fields]
        return own + sorted(name for key, (name, _) in self._transform.items() if key not in self._landed)

    def _shaped(self, name: str) -> str:
        transformed = self._transform.get(name.lower())
        return f"({_text(transformed[1])})" if transformed else f"{self._alias}.{quoted(name)}"

    def _value(self, name: str, want: Field | None) -> str:
        """A column of the rows as the target's column, at the outermost level."""
        key = name.lower()
        own = self._landed[key].name if key in self._landed else self._transform[key][0]
        if key in self._transform:
            value = f"{self._alias}.{quoted(own)}" if self._layers else self._shaped(own)
            return value if want is None else widened(value, want)
        path = f"{self._alias}.{quoted(own)}"
        if want is None:
            return path
        return converted(path, self._landed[key], want, strict=self._plan.absent is Drift.FREEZE)

    def _refuse_absent(self, target: TableShape) -> None:
        known = by_name(target.fields)
        computed = [name for key, (name, _) in self._transform.items() if key not in known]
        if computed and self._plan.absent is not Drift.EVOLVE and not self._is_input(computed):
            raise BadInput(f"Transform: {target.name} has no column {', '.join(computed)}; add it, or let it evolve")
        if self._plan.absent is not Drift.FREEZE:
            return
        absent = [one.name for key, one in self._landed.items() if key not in known]
        unused = set(absent) - mentioned(self._shaping, absent, self._conditions())
        if unused:
            names = ", ".join(sorted(unused))
            raise BadInput(f"{target.name} has no column {names}, and the rule's Drift is freeze: {DRIFT_REMEDY}")

    def _is_input(self, computed: Sequence[str]) -> bool:
        """Whether these computed columns serve the rows' fate (keys, order, split), not the table."""
        later = (
            *self._shaping.unique_columns,
            *self._shaping.order_by,
            *(one.condition for one in self._shaping.branches),
            *self._conditions(),
        )
        return named_in(later, computed) == set(computed)

    def _conditions(self) -> tuple[str, ...]:
        upsert = self._plan.upsert
        return (upsert.update_when, upsert.delete_when) if upsert else ()

    def _keys(self) -> list[tuple[str, bool]]:
        """What makes the key, and whether BigQuery can group by it."""
        found = []
        for key in self._shaping.unique_columns:
            path = key.removeprefix(f"{self._alias}.")
            if not _PATH.fullmatch(path):
                found.append((f"({_text(key)})", True))
                continue
            first, *rest = path.split(".")
            names = {name.lower(): name for name in self._names()}
            column = _known(names, first, "UniqueColumns")
            expression = ".".join([f"{self._alias}.{quoted(column)}", *(quoted(name) for name in rest)])
            landed = self._landed.get(column.lower()) if not rest and column.lower() not in self._transform else None
            found.append((expression, landed is None or groupable(landed)))
        return found

    def _order(self) -> list[str]:
        """The author's order, then every column: rows that are still equal are equal."""
        keys = {key.lower().removeprefix(f"{self._alias.lower()}.") for key in self._shaping.unique_columns}
        rest = []
        for name in self._names():
            if name.lower() in keys:
                continue
            column, landed = f"{self._alias}.{quoted(name)}", self._landed.get(name.lower())
            plain = landed is not None and name.lower() not in self._transform and orderable(landed)
            rest.append(f"{column} DESC" if plain else f"TO_JSON_STRING({column}) DESC")
        return [*(_text(one) for one in self._shaping.order_by), *rest] or ["1"]


def _join(side: SideInput) -> str:
    rows = side.table.sql if side.table else f"(\n{_indented(_text(side.select))}\n)"
    return f"{'JOIN' if side.inner else 'LEFT JOIN'} {rows} AS {quoted(side.alias)} ON ({_text(side.on)})"


def _text(expression: str) -> str:
    """An author's expression, so that a comment at its end does not swallow what follows."""
    text = expression.strip().rstrip(";").rstrip()
    return f"{text}\n" if "--" in text or "#" in text else text


def _indented(text: str) -> str:
    """Easier to read in a job's history; not where a string may span lines, which would change."""
    if "'''" in text or '"""' in text:
        return text
    return "\n".join(f"  {line}".rstrip() for line in text.split("\n"))


def _query(sql: str, shaping: Shaping) -> dict[str, Any]:
    configuration: dict[str, Any] = {"query": sql, "useLegacySql": False}
    used = parameters_in(sql, shaping.parameters)
    parameters = [rest_parameter(name, value) for name, value in shaping.parameters.items() if name in used]
    if parameters:
        configuration |= {"parameterMode": "NAMED", "queryParameters": parameters}
    return configuration


def rest_parameter(name: str, value: Any) -> dict[str, Any]:
    """A named query parameter in REST form."""
    if isinstance(value, (list, tuple)):
        element = _parameter_type(value[0]) if value else "STRING"
        return {
            "name": name,
            "parameterType": {"type": "ARRAY", "arrayType": {"type": element}},
            "parameterValue": {"arrayValues": [{"value": _parameter_text(item)} for item in value]},
        }
    return {
        "name": name,
        "parameterType": {"type": _parameter_type(value)},
        "parameterValue": {"value": _parameter_text(value)},
    }


def _parameter_type(value: Any) -> str:
    if isinstance(value, bool):
        return "BOOL"
    if isinstance(value, int):
        return "INT64"
    return "FLOAT64" if isinstance(value, float) else "STRING"


def _parameter_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
