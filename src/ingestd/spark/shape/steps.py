"""What happens to a batch's rows on Spark, in this order: join, transform, criteria, one row per key, split.

The reader hands over the good rows of a batch in one frame: the files' columns, typed as `sql.types` says, and the
bookkeeping columns `FILE` and `LINE`. `shape` answers with one frame as well, so that every target is written in one
pass: the destination's columns in its order and, when the rows are split, the column `BRANCH` (the branch's number, or
-1 for the destination itself), by which the writer partitions. Nothing runs here: the caller's write does it all, and
`Shaped.left_out` then tells how many rows each step dropped.

Every call into Spark costs a small batch a few milliseconds, and every observation costs a large one a copy of each
row: steps are SQL text, one call each, and rows are counted only where the numbers of those read and written do not
tell.

Names mean what they mean in the statements of the BigQuery engine: `Transform`, `Criteria` and `On` see the files'
columns and the side inputs; keys, their order and the conditions of a split see the rows that came out of it.
"""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ingestd.googlesql import words
from ingestd.googlesql.columns import to_field
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.functions import CHANGEFUL
from ingestd.googlesql.names import Column
from ingestd.googlesql.types import FLOAT64, INT64, SqlType, array_of, holds, is_wide
from ingestd.googlesql.values import Value
from ingestd.googlesql.words import named_in
from ingestd.model.errors import BadInput, Fatal
from ingestd.model.preparation import Shaping, Unmatched
from ingestd.model.schema import Field, Schema, by_name
from ingestd.spark.files.reserved import BRANCH, FILE, HOME, LINE, RESERVED
from ingestd.spark.sql import farmhash
from ingestd.spark.sql.expressions import Rows, Scope, columns_of, condition, translate
from ingestd.spark.sql.operators import check_comparable, check_ordered
from ingestd.spark.sql.types import from_field, quote, spark_sql
from ingestd.spark.sql.values import cast, coerce, fill, fresh, struct_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

_PLACE = f"{RESERVED}place"


@dataclass(frozen=True, slots=True)
class SideFrame:
    """The rows of one side input and their columns."""

    frame: "DataFrame"
    schema: Schema


@dataclass(frozen=True, slots=True)
class Shaped:
    """One frame for all targets. `left_out`, after the write: rows dropped by reason, given those read and written."""

    frame: "DataFrame"
    schema: Schema  # the columns of the frame that belong to the destination
    branches: bool  # whether the frame has the column BRANCH
    left_out: Callable[[int, int], dict[str, int]]  # criteria, duplicate, unmatched
    made: Callable[[int], int]  # after the write: rows before they were split, given those written


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the shaped rows; computed ones take wider types on their way into a table."""

    name: str
    type: SqlType
    field: Field | None = None  # as the files have it, when nothing computes it


def shape(
    frame: "DataFrame",
    shaping: Shaping,
    *,
    source: Schema,
    destination: Schema,
    sides: Mapping[str, SideFrame] | None = None,
    file_order: Sequence[int] = (),
    evolve: bool = False,
    late: Collection[str] = (),
    number: str = "",
) -> Shaped:
    """The shaped rows of `frame`, whose columns are `source`, but for those that come `late`; `number` is one more.

    `destination` is empty when the table is made from the rows; with `evolve`, columns that are computed and that it
    has not come after its own. `sides` has a frame for every side input, by alias.
    `file_order[i]` ranks file `i`: event time, then name (empty: by index); the highest is the newest.
    Raises `BadInput` for what cannot work, by name.
    """
    _check_session(frame)
    if any("FARM_FINGERPRINT" in text.upper() for text in _texts(shaping)):
        farmhash.register(frame.sparkSession)
    made = _Shaping(frame, shaping, source, sides or {}, file_order, frozenset(late), number)
    made.join()
    made.transform()
    if shaping.unique_columns:
        made.unique()
    if shaping.branches:
        made.split()
    return made.finish(destination, evolve=evolve)


def _texts(shaping: Shaping) -> list[str]:
    on, split = [side.on for side in shaping.side_inputs], [one.condition for one in shaping.branches]
    return [*shaping.transform.values(), *on, shaping.criteria, *shaping.unique_columns, *shaping.order_by, *split]


def check(shaping: Shaping, source: Schema, destination: Schema) -> None:
    """Whether a shaping without side inputs can work on these columns, without Spark; raises `BadInput`."""
    scope = Scope({shaping.alias.lower(): Rows.of(source)}, shaping.parameters)
    columns, _ = _columns(shaping, source, scope)
    _projection(shaping, columns, destination)


def uses_others(shaping: Shaping, known: Collection[str]) -> bool:
    """Whether an expression names a column of the batch that is not among these."""
    names = {name.lower() for name in known}
    sides = {side.alias.lower() for side in shaping.side_inputs}
    early = [*shaping.transform.values(), *(side.on for side in shaping.side_inputs)]
    early += [shaping.criteria] if shaping.criteria else []
    late = [*shaping.unique_columns, *map(_plain, shaping.order_by), *(one.condition for one in shaping.branches)]
    computed = {name.lower() for name in shaping.transform}
    try:
        return any(
            own not in names and not (late_text and own in computed)
            for late_text, texts in ((False, early), (True, late))
            for text in texts
            for own in _own_names(text, shaping.alias.lower(), sides)
        )
    except (SqlError, BadInput):
        return False  # told by whoever translates it


def looked_at(shaping: Shaping) -> set[str]:
    """The names, in lower case, of all columns that an expression may look at."""
    try:
        texts = [_plain(text) for text in _texts(shaping) if text]
        return {name.lower() for text in texts for parts in columns_of(text) for name in parts[:2]}
    except (SqlError, BadInput):
        return set()  # told by whoever translates it


def late_columns(shaping: Shaping, source: Schema, destination: Schema) -> dict[str, str]:
    """The destination's columns that are the files' own, unchanged and not looked at, and their names there."""
    try:
        paths = [path for text in _texts(shaping) if text for path in columns_of(_plain(text))]
    except (SqlError, BadInput):
        return {}  # told by whoever translates it
    if shaping.alias.lower() in {path[0].lower() for path in paths if len(path) == 1}:
        return {}  # the row as a whole
    seen = {name.lower() for path in paths for name in path[:2]} | {name.lower() for name in shaping.transform}
    own = {one.key: _Column(one.name, from_field(one), one) for one in source}
    unseen = {key: one for key, one in own.items() if key not in seen}
    if not destination:
        return {one.name: one.name for one in unseen.values()}
    found = {}
    for field in destination:
        one = unseen.get(field.key)
        if one is not None and _fitted(one, field, from_field(field)) == quote(one.name):
            found[field.name] = one.name
    return found


def for_keys(shaping: Shaping) -> Shaping:
    """What of it keys and their order depend on, where neither side inputs nor criteria come before them."""
    used = looked_at(replace(shaping, transform={}, side_inputs=(), criteria="", branches=()))
    whole = shaping.alias.lower() in used  # the row, perhaps
    transform = {name: text for name, text in shaping.transform.items() if whole or name.lower() in used}
    return replace(shaping, transform=transform, branches=())


def answers_alike(shaping: Shaping) -> bool:
    """Whether rows that have the same in what is looked at become the same, and nobody counts them on their way."""
    dropped = bool(shaping.branches) and shaping.unmatched is Unmatched.DROP
    counted = shaping.every_branch or dropped or bool(shaping.criteria and shaping.side_inputs)
    return not (counted or shaping.unique_columns or named_in(filter(None, _texts(shaping)), CHANGEFUL))


def _own_names(text: str, alias: str, sides: Collection[str]) -> set[str]:
    """The batch's columns that an expression names; a bare name may be a side input's as well."""
    found = set()
    for first, *rest in columns_of(text):
        if first.lower() == alias and rest:
            found.add(rest[0].lower())
        elif first.lower() not in sides and not sides:
            found.add(first.lower())
    return found


@dataclass(frozen=True, slots=True)
class Keyed:
    """Rows by what makes their key and orders them: columns `k0`, `k1`, … and `o0`, `o1`, …, and their numbers."""

    frame: "DataFrame"
    keys: tuple[SqlType, ...]
    order: tuple[tuple[SqlType, bool, bool], ...]  # whether it descends, whether NULLs come last


def keyed(frame: "DataFrame", shaping: Shaping, source: Schema, late: Collection[str], number: str) -> Keyed:
    """The keys of the rows of `frame`, computed, where neither side inputs nor criteria come before them."""
    _check_session(frame)
    if any("FARM_FINGERPRINT" in text.upper() for text in _texts(shaping)):
        farmhash.register(frame.sparkSession)
    plain = replace(shaping, unique_columns=(), order_by=(), branches=())
    made = _Shaping(frame, plain, source, {}, (), frozenset(late), number)
    made.transform()
    keys = [_translated(text, made.output, "UniqueColumns") for text in shaping.unique_columns]
    order = []
    for text in shaping.order_by:
        expression, descending, nulls_last = split_order(text)
        order.append((_translated(expression, made.output, "OrderBy"), descending, nulls_last))
    listed = [f"{key.sql} AS k{place}" for place, key in enumerate(keys)]
    listed += [f"{value.sql} AS o{place}" for place, (value, _, _) in enumerate(order)]
    return Keyed(
        made.frame.selectExpr(*listed, number),
        tuple(key.type for key in keys),
        tuple((value.type, descending, nulls_last) for value, descending, nulls_last in order),
    )


def _check_session(frame: "DataFrame") -> None:
    """Expressions are translated for a session that fails on overflow and whose zone is UTC."""
    conf = frame.sparkSession.conf
    if conf.get("spark.sql.ansi.enabled") != "true" or conf.get("spark.sql.session.timeZone") not in ("UTC", "Etc/UTC"):
        raise Fatal("Spark has to run with spark.sql.ansi.enabled=true and spark.sql.session.timeZone=UTC")


class _Shaping:
    """The frame on its way through the steps."""

    def __init__(
        self,
        frame: "DataFrame",
        shaping: Shaping,
        source: Schema,
        sides: Mapping[str, SideFrame],
        file_order: Sequence[int],
        late: frozenset[str],
        number: str,
    ) -> None:
        self.late = late
        self.number = [number] if number else []
        self.frame = frame
        self.shaping = shaping
        self.source = source
        self.sides = {alias.lower(): side for alias, side in sides.items()}
        self.file_order = file_order
        self.columns: list[_Column] = []
        self.counts: dict[str, Observation] = {}
        self.input = Scope({shaping.alias.lower(): Rows.of(source)}, shaping.parameters)
        self.output = Scope(parameters=shaping.parameters)

    def join(self) -> None:
        """Each side's columns travel in one struct, so no name can meet another."""
        from pyspark.sql import functions as sql

        for number, side in enumerate(self.shaping.side_inputs):
            alias = side.alias.lower()
            found = self.sides.get(alias)
            if found is None:
                raise BadInput(f"side input {side.alias}: its rows are not there")
            packed = f"{RESERVED}side{number}"
            rows = found.frame.select(sql.struct(*(quote(one.name) for one in found.schema)).alias(packed))
            self.input.ranges.append(replace(Rows.of(found.schema, f"{quote(packed)}."), alias=alias))
            on = _condition(side.on, self.input, f"side input {side.alias}: On")
            self.frame = self.frame.join(rows, sql.expr(on), "inner" if side.inner else "left")

    def transform(self) -> None:
        if self.shaping.criteria:
            kept = _condition(self.shaping.criteria, self.input, "Criteria")
            if self.shaping.side_inputs:
                self.count("joined")
            self.frame = self.frame.where(kept)
        self.columns, values = _columns(self.shaping, self.source, self.input)
        if self.shaping.transform or self.shaping.side_inputs:
            listed = [
                f"{value.sql} AS {quote(one.name)}"
                for one, value in zip(self.columns, values, strict=True)
                if one.name not in self.late
            ]
            places = [FILE, LINE] if self.shaping.unique_columns else []
            self.frame = self.frame.selectExpr(*listed, *places, *self.number)
        rows = Rows("", [Column(one.name, one.type, quote(one.name), simple=True) for one in self.columns])
        self.output = Scope({self.shaping.alias.lower(): rows}, self.shaping.parameters)

    def unique(self) -> None:
        """One whole row per key: the first in the order asked for, and of equals the one that came last.

        On a cluster Spark knows that only the first row of a window is wanted, and each task passes on one row per
        key; on one machine (see `masters`) it sorts once instead. Either costs no more than `dropDuplicates`.
        """
        keys = [_key(text, self.output) for text in self.shaping.unique_columns]
        order = [_order(text, self.output) for text in self.shaping.order_by]
        order += [f"{_ranked(self.file_order)} DESC", f"{LINE} DESC"]
        if self.shaping.criteria or self.shaping.side_inputs:
            self.count("kept")
        place = f"row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY {', '.join(order)})"
        kept = [f"{_PLACE} = 1", *(f"{key} IS NULL" for key in keys if self.shaping.keep_keyless)]
        self.frame = self.frame.selectExpr("*", f"{place} AS {_PLACE}").where(" OR ".join(kept))

    def split(self) -> None:
        tests = [
            f"coalesce({_condition(one.condition, self.output, f'Split[{number}].When')}, FALSE)"
            for number, one in enumerate(self.shaping.branches)
        ]
        unmatched = self.shaping.unmatched
        home = {
            Unmatched.KEEP: f"{HOME}",
            Unmatched.DROP: "CAST(NULL AS INT)",
            Unmatched.REFUSE: "raise_error('a row fits no mapping of the split, and the rule refuses such rows')",
        }[unmatched]
        if self.shaping.every_branch:
            self.count("shaped")  # a row may come out several times
            matched = ", ".join(f"IF({test}, {number}, NULL)" for number, test in enumerate(tests))
            fits = f"array_compact(array({matched}))"
            chosen = f"explode({fill(f'IF(size(@0) = 0, array({home}), @0)', Value(fits, array_of(INT64)))})"
        else:
            whens = " ".join(f"WHEN {test} THEN {number}" for number, test in enumerate(tests))
            chosen = f"CASE {whens} ELSE {home} END"
        self.frame = self.frame.selectExpr("*", f"{chosen} AS {BRANCH}")
        if unmatched is Unmatched.DROP:
            self.count("unmatched", f"count_if({BRANCH} IS NULL)")
            self.frame = self.frame.where(f"{BRANCH} IS NOT NULL")

    def finish(self, destination: Schema, *, evolve: bool) -> Shaped:
        projected = _projection(self.shaping, self.columns, destination, evolve=evolve)
        late = {quote(name) for name in self.late}
        listed = [f"{value} AS {quote(field.name)}" for field, value in projected if value not in late]
        branches = bool(self.shaping.branches)
        # Whoever takes rows by their number takes columns by their names: these may be there already.
        as_they_are = self.number and all(value == quote(field.name) for field, value in projected)
        frame = self.frame
        if not as_they_are:
            frame = frame.selectExpr(*listed, *([BRANCH] if branches else []), *self.number)
        return Shaped(frame, tuple(field for field, _ in projected), branches, self._left_out, self._made)

    def count(self, step: str, what: str = "count(1)") -> None:
        """Counts rows as they go by."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as sql

        self.counts[step] = Observation(f"{step}-{uuid.uuid4().hex[:8]}")
        self.frame = self.frame.observe(self.counts[step], sql.expr(f"{what} AS rows"))

    def _seen(self) -> dict[str, int]:
        return {step: int(found.get["rows"] or 0) for step, found in self.counts.items()}

    def _made(self, written: int) -> int:
        seen = self._seen()
        return seen.get("shaped", written + seen.get("unmatched", 0))

    def _left_out(self, read: int, written: int) -> dict[str, int]:
        seen = self._seen()
        unmatched, shaped = seen.get("unmatched", 0), self._made(written)
        kept = seen.get("kept", read) if self.shaping.unique_columns else shaped
        left = {"duplicate": kept - shaped, "unmatched": unmatched}
        if self.shaping.criteria:
            left["criteria"] = seen.get("joined", read) - kept
        return {reason: rows for reason, rows in left.items() if rows}


def _columns(shaping: Shaping, source: Schema, scope: Scope) -> tuple[list[_Column], list[Value]]:
    """The shaped rows' columns: the files' own in their order, then those that are only computed, by name."""
    computed = {name.lower(): (name, text) for name, text in shaping.transform.items()}
    columns: list[_Column] = []
    values: list[Value] = []
    own = by_name(source)
    for (key, one), column in zip(own.items(), scope.ranges[0].columns, strict=True):
        if key in computed:
            value = _translated(computed[key][1], scope, f"Transform.{computed[key][0]}")
            columns.append(_Column(one.name, value.type))
        else:
            value = column.expr
            columns.append(_Column(one.name, value.type, one))
        values.append(value)
    for name, text in sorted(item for key, item in computed.items() if key not in own):
        value = _translated(text, scope, f"Transform.{name}")
        columns.append(_Column(name, value.type))
        values.append(value)
    return columns, values


def _projection(
    shaping: Shaping, columns: Sequence[_Column], destination: Schema, *, evolve: bool = False
) -> list[tuple[Field, str]]:
    """The destination's columns, and what each is computed from; all shaped columns where there is no table yet."""
    if not destination:
        return [_unchanged(one) for one in columns]
    wanted = {field.key for field in destination}
    absent = [one for one in columns if one.name.lower() not in wanted]
    carried = named_in(shaping.conditions, [one.name for one in absent])
    lost = [one.name for one in absent if one.field is None and one.name not in carried]
    unused = _unused(shaping, lost) if lost else []
    if unused and not evolve:
        raise BadInput(f"Transform: the destination has no column {', '.join(unused)}; add it, or let it evolve")
    known = {one.name.lower(): one for one in columns}
    found: list[tuple[Field, str]] = []
    for field in destination:
        one = known.get(field.key)
        kind = from_field(field)
        if one is not None:
            found.append((field, _fitted(one, field, kind)))
        elif not field.default:  # a column that is left out gets its default
            found.append((field, f"CAST(NULL AS {spark_sql(kind)})"))
    found += [_unchanged(one) for one in absent if one.name in carried or one.name in unused]
    return found


def _unchanged(column: _Column) -> tuple[Field, str]:
    return column.field or to_field(column.name, column.type), quote(column.name)


def _unused(shaping: Shaping, names: Sequence[str]) -> list[str]:
    """Those computed columns that neither keys nor order nor a split look at."""
    later = (*shaping.unique_columns, *shaping.order_by, *(one.condition for one in shaping.branches))
    words = {part.lower() for text in later for path in columns_of(_plain(text)) for part in path}
    return [name for name in names if name.lower() not in words]


def _plain(text: str) -> str:
    """An ORDER BY expression without its direction."""
    return split_order(text)[0]


def _fitted(column: _Column, field: Field, want: SqlType) -> str:
    value = Value(quote(column.name), column.type, simple=True)
    # GoogleSQL coerces members of a STRUCT by their position: that is for what an expression makes, not for files.
    found = None if column.field is not None and _nested(want) else coerce(value, want)
    if found is None and column.field is None and is_wide(want.kind) and want.element is None:
        found = _cast(value, want)
    if found is None:
        found = _converted(value, want)
    if found is None:
        raise BadInput(
            f"column {field.name} is {column.type} in the data and {want} in the destination;"
            " say with Transform how the one becomes the other"
        )
    if column.field is None and want.element is not None:
        return _without_nulls(found.sql, field.name)
    return found.sql


def _nested(kind: SqlType) -> bool:
    return kind.kind == "STRUCT" or (kind.element is not None and _nested(kind.element))


def _without_nulls(array: str, name: str) -> str:
    """BigQuery stores no NULL in an array; the files' own have none."""
    told = f"column {name}: an array of a table has no NULL elements".replace("'", "\\'")
    return f"IF(exists({array}, one -> one IS NULL), raise_error('{told}'), {array})"


def _cast(value: Value, want: SqlType) -> Value | None:
    try:
        return cast(value, want)
    except SqlError:
        return None


def _converted(value: Value, want: SqlType) -> Value | None:
    """The value as the wanted type, members by name; None when something would be lost."""
    have = value.type
    if have == want:
        return value
    if have.element is not None and want.element is not None:
        item = fresh("e")
        inner = _converted(Value(item, have.element, simple=True), want.element)
        return None if inner is None else Value(f"transform({value.sql}, {item} -> {inner.sql})", want)
    if have.kind == want.kind == "STRUCT":
        members = []
        for name, kind in want.fields:
            own = have.member(name)
            if own is None:
                members.append(Value(f"CAST(NULL AS {spark_sql(kind)})", kind))
                continue
            one = _converted(Value(f"{value.sql}.{quote(own[0])}", own[1], simple=value.simple), kind)
            if one is None:
                return None
            members.append(one)
        return Value(f"IF({value.sql} IS NULL, NULL, {struct_value(want, members).sql})", want)
    return _cast(value, want) if holds(want.kind, have.kind) else None


def _translated(text: str, scope: Scope, what: str) -> Value:
    try:
        value = translate(text, scope)
    except SqlError as error:
        raise BadInput(f"{what}: {error}") from None
    return Value(f"CAST(NULL AS {spark_sql(value.type)})", value.type) if value.null else value


def _condition(text: str, scope: Scope, what: str) -> str:
    try:
        return condition(text, scope, what)
    except SqlError as error:
        raise BadInput(str(error) if str(error).startswith(what) else f"{what}: {error}") from None


def _key(text: str, scope: Scope) -> str:
    value = _translated(text, scope, "UniqueColumns")
    try:
        check_comparable(value.type, f"UniqueColumns: {text}")
    except SqlError:
        if value.type.kind not in ("ARRAY", "BIGNUMERIC"):
            raise BadInput(f"UniqueColumns: {text} is {value.type}, which has no equality") from None
    return value.sql


def _order(text: str, scope: Scope) -> str:
    """`expr [ASC|DESC] [NULLS FIRST|LAST]`; NULLs are the smallest unless said otherwise."""
    expression, descending, nulls_last = split_order(text)
    value = _translated(expression, scope, "OrderBy")
    try:
        check_ordered(value.type, f"OrderBy: {text}")
    except SqlError as error:
        raise BadInput(str(error)) from None
    written = value.sql
    if value.type is FLOAT64:
        # NaN comes after NULL and before every number; to Spark it is the largest.
        rank = "CASE WHEN @0 IS NULL THEN NULL WHEN isnan(@0) THEN 0 ELSE 1 END"
        written = fill(f"IF(@0 IS NULL, NULL, named_struct('r', {rank}, 'v', IF(isnan(@0), NULL, @0)))", value)
    return f"{written} {'DESC' if descending else 'ASC'} NULLS {'LAST' if nulls_last else 'FIRST'}"


def split_order(text: str) -> tuple[str, bool, bool]:
    """The expression, whether it descends, and whether NULLs come last."""
    try:
        return words.split_order(text)
    except SqlError:
        raise BadInput(f"OrderBy: {text!r} is not one expression with ASC or DESC") from None


def _ranked(file_order: Sequence[int]) -> str:
    """A row's file by age, the newest highest."""
    if not file_order or list(file_order) == list(range(len(file_order))):
        return FILE
    return f"element_at(array({', '.join(map(str, file_order))}), {FILE} + 1)"


__all__ = [
    "Shaped",
    "SideFrame",
    "answers_alike",
    "check",
    "for_keys",
    "late_columns",
    "shape",
    "split_order",
    "uses_others",
]
