"""Warnings about how rows are shaped: expressions that do not parse, names nobody knows, and choices left open."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ingestd.googlesql import rule_expressions
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.functions import CHANGEFUL
from ingestd.googlesql.words import named_in, qualifies, split_order
from ingestd.model.tables import TableName
from ingestd.rules.catalogue import Context, names
from ingestd.rules.expansion import Scope, unknown_variables
from ingestd.rules.references import find_references
from ingestd.rules.schema import Dest, Engine, RuleSpec
from ingestd.rules.shaping import engine_asked, expressions_of, lifted, reads_landed_rows
from ingestd.rules.sql import IDENTIFIER_VARIABLES, expand_sql

Path = tuple[str | int, ...]
Warning_ = tuple[Path, str]


@dataclass(frozen=True, slots=True)
class ExpressionChecks:
    """What is known about an expression, of which a part only Spark's package knows."""

    spark: Callable[[str], list[str]]  # what of it Spark does not have
    parse: Callable[[str], str] = rule_expressions.problem  # what is wrong with it, or nothing
    columns: Callable[[str], list[tuple[str, ...]]] = rule_expressions.columns_of  # the dotted names it uses


def dest_warnings(
    spec: RuleSpec, checks: ExpressionChecks | None, default: Engine = Engine.SPARK
) -> Iterator[Warning_]:
    yield from _open_choices(spec.dest)
    yield from _unknown_variables(spec.dest)
    if checks is None or spec.dest.schema_options.split is None:  # else it is an error
        yield from _landed_rows(spec)
    if checks is not None:
        yield from _expressions(spec, checks, default)


def dest_errors(spec: RuleSpec, checks: ExpressionChecks) -> Iterator[Warning_]:
    """Expressions that nobody can run, and a table that nobody makes."""
    if spec.dest.schema_options.split is not None:
        yield from _landed_rows(spec)
    for path, _, problem in _read(spec.dest, checks):
        if problem:
            yield path, problem


def _open_choices(dest: Dest) -> Iterator[Warning_]:
    split = dest.schema_options.split
    if dest.unique_keys and not dest.order_by:
        where = ("Dest", "UniqueColumns") if dest.unique_columns else ("Dest", "Merge")
        yield where, "there is no OrderBy: which of several rows with one key is kept depends on the engine"
    if split is not None:
        if "unmatched" not in split.model_fields_set:
            message = (
                "rows that fit no mapping are left out and counted; say so with Unmatched: drop, or keep or refuse"
            )
            yield ("Dest", "Schema", "Split"), message
        for index, mapping in enumerate(split.mapping):
            for found in sorted(named_in([mapping.when], CHANGEFUL))[:1]:
                message = f"{found} changes from one look to the next: a row may end in no table, or in two"
                yield ("Dest", "Schema", "Split", "Mapping", index, "When"), message
    for index, side in enumerate(dest.side_inputs):
        for alias in (side.alias, dest.alias):
            if "$" not in side.on and not qualifies(alias, side.on):
                yield ("Dest", "SideInputs", index, "On"), f"the condition does not mention {alias}: is it a join?"


def _landed_rows(spec: RuleSpec) -> Iterator[Warning_]:
    """`$TempTable` where Spark fills it: not with the rows as they were loaded, and not with those of a split."""
    if not reads_landed_rows(spec) or engine_asked(spec) is not Engine.SPARK:
        return
    found = "is not there, or lacks rows: those of Schema.Split lie in a table per mapping"
    if spec.dest.schema_options.split is None:
        found = "has the rows as they were shaped, and in bqtail as they were loaded"
    if spec.engine is not None:
        yield ("Engine",), f"with Engine: spark, $TempTable {found}; leave Engine out, and they all lie there as loaded"
        return
    message = (
        f"$TempTable {found}, since the rule asks for what only Spark can do: Merge, OnBadData: quarantine rows, "
        "Schema.Drift: discard_row, or files as a side input; do without it, or without $TempTable"
    )
    yield ("Dest", "Transient"), message


def _unknown_variables(dest: Dest) -> Iterator[Warning_]:
    known = names(Context.ACTION, Context.GROUP) | {parameter.name for parameter in dest.parameters}
    for path, text in expressions_of(dest):
        for variable in unknown_variables(text, known):
            yield path, f"{variable} is no variable known here; it would be left as it is"


def _expressions(spec: RuleSpec, checks: ExpressionChecks, default: Engine) -> Iterator[Warning_]:
    dest = spec.dest
    on_spark = (engine_asked(spec) or default) is Engine.SPARK
    for path, text, problem in _read(dest, checks):
        if problem:
            continue
        expression, other = (_filled(dest, path, text, value) for value in _VALUES)
        if on_spark and path[1] != "Merge":
            found = checks.spark(expression)
            # What is said of one value alone is about that value, which is not the batch's.
            same = set(found if expression == other else checks.spark(other))
            yield from ((path, message) for message in found if message in same)
        yield from ((path, message) for message in _unknown_columns(dest, checks.columns(expression)))


def _read(dest: Dest, checks: ExpressionChecks) -> Iterator[tuple[Path, str, str]]:
    """Every expression with its place, and what keeps it from being one."""
    for path, text in expressions_of(dest):
        if path[-1] != "From":  # a whole query: BigQuery itself runs it
            yield path, text, checks.parse(_filled(dest, path, text, _VALUES[0]))


def _unknown_columns(dest: Dest, used: list[tuple[str, ...]]) -> Iterator[str]:
    """Columns that cannot be, where the rule itself says what columns there are."""
    if dest.table_schema is None:
        return
    aliases = {side.alias.lower() for side in dest.side_inputs} | ({"dest"} if dest.merge else set())
    known = {column.name.lower() for column in dest.table_schema.fields_} | {name.lower() for name in dest.transform}
    for parts in dict.fromkeys(used):
        own = parts[0].lower() == dest.alias.lower() and len(parts) > 1
        name = parts[1] if own else parts[0]
        if name.lower() in known or (not own and (parts[0].lower() in aliases or dest.side_inputs)):
            continue
        yield f"there is no column {name}; 'schema' has {', '.join(sorted(known))}"


_VALUES = ("v", "2000-01-01")


def _filled(dest: Dest, path: Path, text: str, value: str) -> str:
    """The expression with something in every variable's place."""
    values = {
        reference.name: TableName(None, "d", "t") if reference.name in IDENTIFIER_VARIABLES else value
        for reference in find_references(text)
        if reference.name
    }
    try:
        filled = expand_sql(text, Scope(values), parameters={})
    except ValueError:
        return text
    split = dest.schema_options.split
    if split is not None and path[-1] == "When":
        return lifted(filled, split.cluster_columns, dest.alias)
    try:
        return split_order(filled)[0] if "OrderBy" in path else filled
    except SqlError:
        return filled
