"""Rule expressions: GoogleSQL in, Spark SQL out, typed on the way.

sqlglot reads the text; what it says in Spark is decided here and in `functions`, because a translation that looks right
is not enough: INT64 `/` is a FLOAT64, a CAST to INT64 rounds half away from zero, NUMERIC keeps nine digits. Every
function is in one table, tested against the local BigQuery; anything else is refused by its name. Nothing here needs
Spark, so a rule can be checked before it runs (`unsupported`).

A parameter (`@name`) becomes a typed literal; no text of a rule or of a file's name is ever pasted into SQL.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, ClassVar

from sqlglot import exp

from ingestd.prepare import operators, subselects
from ingestd.prepare.functions import REGISTRY, Call, unknown_function
from ingestd.prepare.grammar import columns_of, google_sql, parse, plain_name
from ingestd.prepare.guesses import ANYTHING, Guesses
from ingestd.prepare.sqltypes import (
    ANY_STRUCT,
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT64,
    INT64,
    JSON,
    NUMERIC,
    SCALARS,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
    array_of,
    from_field,
    quote,
    struct_of,
)
from ingestd.prepare.values import (
    INT64_MAX,
    INT64_MIN,
    NULL,
    ExpressionError,
    Value,
    array_value,
    cast,
    coerce,
    fill,
    literal,
    parse_text,
    struct_value,
    supertype,
    text_sql,
)


@dataclass(frozen=True, slots=True)
class Rows:
    """The columns an alias stands for. `sql` is the alias's own text when it stands for a struct."""

    columns: Mapping[str, Value]  # by lower-cased name

    @classmethod
    def of(cls, schema: Sequence[Mapping[str, Any]], prefix: str = "") -> "Rows":
        """Columns of a frame, or with a prefix, members of a struct column in it."""
        return cls(
            {
                str(item["name"]).lower(): Value(prefix + quote(str(item["name"])), from_field(item), simple=True)
                for item in schema
            }
        )


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean: `aliases` by lower-cased alias; a bare name is a column of exactly one of them."""

    aliases: Mapping[str, Rows] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)  # variables of lambdas and elements of UNNEST

    def inside(self, values: Mapping[str, Value]) -> "Scope":
        return Scope(self.aliases, self.parameters, {**self.values, **values})

    def lookup(self, name: str, *, alone: bool = True) -> "Value | Rows | None":
        """What a name means; before a dot an alias is meant rather than a column of that name, as in BigQuery."""
        lowered = name.lower()
        if lowered in self.values:
            return self.values[lowered]
        if not alone and lowered in self.aliases:
            return self.aliases[lowered]
        found = [rows.columns[lowered] for rows in self.aliases.values() if lowered in rows.columns]
        if len(found) > 1:
            raise ExpressionError(f"column {name} is ambiguous: write its alias before it")
        if found:
            return found[0]
        return self.aliases.get(lowered)


def translate(text: str, scope: Scope) -> Value:
    """The expression in Spark SQL, with its type."""
    return Compiler().compile(parse(text), scope)


def condition(text: str, scope: Scope, what: str) -> str:
    """A BOOL expression in Spark SQL."""
    value = coerce(translate(text, scope), BOOL)
    if value is None:
        raise ExpressionError(f"{what} must be a BOOL")
    return value.sql


def unsupported(text: str) -> list[str]:
    """What of the expression cannot run on Spark, whatever its columns are; empty when nothing is known to fail."""
    checker = Checker()
    try:
        checker.compile(parse(text), Scope())
    except ExpressionError as error:
        return [str(error)]
    except RecursionError:
        return []
    return list(checker.found)


_NULLABLE = frozenset(["AND", "OR", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])

# The parts of each kind of node that its method reads.
_PLAIN = frozenset(["this", "expression", "expressions"])
_READ: dict[type[exp.Expr], frozenset[str]] = {
    exp.Literal: _PLAIN | {"is_string"},
    exp.Cast: _PLAIN | {"to", "format"},
    exp.TryCast: _PLAIN | {"to", "format", "safe"},
    exp.If: _PLAIN | {"true", "false"},
    exp.Case: _PLAIN | {"ifs", "default"},
    exp.Column: _PLAIN | {"table", "db", "catalog"},
    exp.Identifier: _PLAIN | {"quoted"},
    exp.Bracket: _PLAIN | {"offset", "safe"},
    exp.Like: _PLAIN | {"negate"},
    exp.Array: _PLAIN | {"value_constructor", "struct_name_inheritance", "bracket_notation"},
    exp.DPipe: _PLAIN | {"safe"},
    exp.Between: _PLAIN | {"low", "high"},
    exp.In: _PLAIN | {"unnest", "query"},
    exp.ByteString: _PLAIN | {"is_bytes"},
    exp.HexString: _PLAIN | {"is_integer"},
    exp.ParseJSON: _PLAIN | {"is_literal"},
    exp.Window: _PLAIN | {"over", "order", "partition_by", "spec"},
}


def parameter_value(name: str, value: Any) -> Value:
    """A named parameter as a typed literal, by its Python type."""
    kinds: tuple[tuple[type, SqlType], ...] = (
        (bool, BOOL), (int, INT64), (float, FLOAT64), (Decimal, NUMERIC), (str, STRING), (bytes, BYTES),
        (datetime, TIMESTAMP), (date, DATE), (time, TIME),
    )  # fmt: skip
    if value is None:
        return NULL
    if isinstance(value, list | tuple):
        items = [parameter_value(name, item) for item in value]
        kind = supertype(items) if items else STRING
        if kind is None:
            raise ExpressionError(f"the values of parameter @{name} have no common type")
        return array_value([item for item in (coerce(item, kind) for item in items) if item is not None], kind)
    for python, kind in kinds:
        if isinstance(value, python):
            civil = isinstance(value, datetime) and value.tzinfo is None
            return literal(value, DATETIME if civil else kind)
    raise ExpressionError(f"parameter @{name} is a {type(value).__name__}: give text, a number, a date or a list")


_KINDS = {
    "BIGINT": INT64, "INT": INT64, "SMALLINT": INT64, "TINYINT": INT64, "DOUBLE": FLOAT64, "FLOAT": FLOAT64,
    "DECIMAL": NUMERIC, "BIGDECIMAL": SCALARS["BIGNUMERIC"], "BOOLEAN": BOOL, "TEXT": STRING, "VARCHAR": STRING,
    "BINARY": BYTES, "VARBINARY": BYTES, "DATE": DATE, "TIME": TIME, "TIMESTAMP": DATETIME, "DATETIME": DATETIME,
    "TIMESTAMPTZ": TIMESTAMP, "JSON": JSON, "INTERVAL": SCALARS["INTERVAL"], "GEOGRAPHY": SCALARS["GEOGRAPHY"],
}  # fmt: skip


def type_of(node: exp.Expr) -> SqlType:
    """A type as it is written in a CAST."""
    name = node.this.value if isinstance(node, exp.DataType) and hasattr(node.this, "value") else str(node.this)
    if name == "ARRAY":
        return array_of(type_of(node.expressions[0]))
    if name == "STRUCT":
        members = []
        for item in node.expressions:
            named = isinstance(item, exp.ColumnDef)
            members.append((item.name if named else "", type_of(item.args["kind"] if named else item)))
        return struct_of(members)
    if name not in _KINDS:
        raise ExpressionError(f"type {name} is not available on Spark")
    if node.expressions:
        raise ExpressionError(f"type {_KINDS[name]} with parameters is not available on Spark")
    return _KINDS[name]


def _no_constant(name: str) -> None:
    raise ValueError(name)


class Compiler:
    """One method per kind of node. Every value it answers is Spark SQL with its GoogleSQL type."""

    NODES: ClassVar[dict[type[exp.Expr], Callable[["Compiler", Any, Scope], Value]]] = {}

    def compile(self, node: exp.Expr, scope: Scope) -> Value:
        handler = self.NODES.get(type(node))
        if handler is None:
            raise ExpressionError(f"{plain_name(node)} is not available on Spark")
        if not isinstance(node, exp.Select):
            unread = [key for key, value in node.args.items() if value and key not in _READ.get(type(node), _PLAIN)]
            if unread:  # a part of the grammar that is not looked at here must not be left out in silence
                raise ExpressionError(f"{node.sql('bigquery')} is not available on Spark")
        return handler(self, node, scope)

    def typed(self, node: exp.Expr, scope: Scope, kind: SqlType, what: str) -> Value:
        value = coerce(self.compile(node, scope), kind)
        if value is None:
            raise ExpressionError(f"{what} must be {kind}")
        return value

    def common(self, values: Sequence[Value], what: str) -> tuple[SqlType, list[Value]]:
        kind = supertype(values)
        converted = [coerce(value, kind) for value in values] if kind is not None else []
        found = [value for value in converted if value is not None]
        if kind is None or len(found) != len(values):
            raise ExpressionError(f"{what} has no common type of {', '.join(str(value.type) for value in values)}")
        return kind, found

    def member(self, value: Value, name: str) -> Value:
        if value.type is JSON:
            raise ExpressionError(f"field {name} of a JSON value: use JSON_VALUE or JSON_QUERY")
        found = value.type.member(name) if value.type.kind == "STRUCT" else None
        if found is None:
            raise ExpressionError(f"{value.type} has no field {name}")
        return Value(f"{value.sql}.{quote(found[0])}", found[1], simple=value.simple)

    def _path(self, parts: Sequence[str], scope: Scope) -> Value:
        first, *rest = parts
        found = scope.lookup(first, alone=not rest)
        if isinstance(found, Rows):
            if not rest:
                raise ExpressionError(f"{first} is an alias: name one of its columns")
            value = found.columns.get(rest[0].lower())
            if value is None:
                raise ExpressionError(f"{first} has no column {rest[0]}")
            rest = rest[1:]
        elif found is None:
            if not rest and first.upper() in REGISTRY and first.upper().startswith("CURRENT_"):
                return REGISTRY[first.upper()].handler(Call(self, first.upper(), (), scope))
            raise ExpressionError(f"there is no column {first}")
        else:
            value = found
        for name in rest:
            value = self.member(value, name)
        return value

    def column(self, node: exp.Column, scope: Scope) -> Value:
        if isinstance(node.this, exp.Star):
            raise ExpressionError("* is not an expression")
        return self._path([part.name for part in node.parts], scope)

    def identifier(self, node: exp.Identifier, scope: Scope) -> Value:
        return self._path([node.name], scope)

    def dot(self, node: exp.Dot, scope: Scope) -> Value:
        if not isinstance(node.expression, exp.Identifier):
            raise ExpressionError(f"{node.sql('bigquery')} is not available on Spark")
        return self.member(self.compile(node.this, scope), node.expression.name)

    def literal(self, node: exp.Literal, scope: Scope) -> Value:
        if node.is_string:
            return literal(node.this, STRING)
        text = str(node.this)
        if re.fullmatch(r"\d+", text):
            if int(text) > INT64_MAX:
                raise ExpressionError(f"{text} is no INT64")
            return literal(int(text), INT64)
        return literal(float(text), FLOAT64)

    def concat_literals(self, node: exp.Concat, scope: Scope) -> Value:
        parts = [self.compile(item, scope) for item in node.expressions]
        return literal("".join(str(part.constant) for part in parts), STRING)

    def hexadecimal(self, node: exp.HexString, scope: Scope) -> Value:
        return literal(int(str(node.this), 16), INT64)

    def raw_string(self, node: exp.RawString, scope: Scope) -> Value:
        return literal(str(node.this), STRING)

    def bytes_(self, node: exp.ByteString, scope: Scope) -> Value:
        try:
            return literal(str(node.this).encode("latin-1"), BYTES)
        except UnicodeEncodeError:
            raise ExpressionError("a BYTES literal holds bytes: write others as \\x..") from None

    def boolean(self, node: exp.Boolean, scope: Scope) -> Value:
        return literal(bool(node.this), BOOL)

    def null(self, node: exp.Null, scope: Scope) -> Value:
        return NULL

    def parameter(self, node: exp.Parameter, scope: Scope) -> Value:
        name = node.this.name
        by_name = {key.lower(): value for key, value in scope.parameters.items()}
        if isinstance(node.this, exp.Parameter) or name.lower() not in by_name:
            raise ExpressionError(f"there is no parameter @{name}")
        return parameter_value(name, by_name[name.lower()])

    def parenthesis(self, node: exp.Paren, scope: Scope) -> Value:
        value = self.compile(node.this, scope)
        return Value(f"({value.sql})", value.type, value.simple, value.literal, value.constant, value.null)

    def negative(self, node: exp.Neg, scope: Scope) -> Value:
        written = node.this
        if isinstance(written, exp.Literal) and not written.is_string and str(written.this) == str(-INT64_MIN):
            return literal(INT64_MIN, INT64)
        value = self.compile(written, scope)
        if not value.type.numeric or value.type.kind == "BIGNUMERIC":
            raise ExpressionError(f"operator - does not take {value.type}")
        if value.literal and isinstance(value.constant, int | float):
            return literal(-value.constant, value.type)
        return Value(f"(- {value.sql})", value.type)

    def negation(self, node: exp.Not, scope: Scope) -> Value:
        if isinstance(node.this, exp.Null):
            raise ExpressionError("the operand of NOT cannot be a literal NULL")
        return Value(f"(NOT {self.typed(node.this, scope, BOOL, 'the operand of NOT').sql})", BOOL)

    def bitwise_not(self, node: exp.BitwiseNot, scope: Scope) -> Value:
        return Value(f"(~ {self.typed(node.this, scope, INT64, 'the operand of ~').sql})", INT64)

    def binary(self, node: exp.Binary, scope: Scope) -> Value:
        # Chains lean left and may be long (x = 1 OR x = 2 OR …): walk them instead of recursing.
        spine = [node]
        while isinstance(spine[-1].this, exp.Binary) and type(spine[-1].this) in operators.OPERATORS:
            spine.append(spine[-1].this)
        value = self.compile(spine[-1].this, scope)
        for item in reversed(spine):
            symbol = operators.OPERATORS[type(item)]
            if symbol not in _NULLABLE and isinstance(item.this, exp.Null) | isinstance(item.expression, exp.Null):
                raise ExpressionError(f"the operands of {symbol} cannot be a literal NULL")
            if isinstance(item.expression, exp.Interval):
                value = self._moved(item, value, scope)
                continue
            right = self.compile(item.expression, scope)
            value = operators.binary(self, symbol, value, right)
        return value

    def _moved(self, node: exp.Binary, value: Value, scope: Scope) -> Value:
        """A date or time plus or minus an INTERVAL; of a DATE this makes a DATETIME."""
        direction = {exp.Add: "ADD", exp.Sub: "SUB"}.get(type(node))
        if direction is None or value.type not in (DATE, DATETIME, TIMESTAMP):
            raise ExpressionError(f"an INTERVAL can only be added to a date or time, not to {value.type}")
        name = "TIMESTAMP" if value.type is TIMESTAMP else "DATETIME"
        start = value if value.type is not DATE else cast(value, DATETIME)
        inside = scope.inside({"_start": start})
        args = (exp.Identifier(this="_start"), node.expression)
        return REGISTRY[f"{name}_{direction}"].handler(Call(self, f"{name}_{direction}", args, inside))

    def like(self, node: exp.Like, scope: Scope) -> Value:
        if isinstance(node.this, exp.Null) or isinstance(node.expression, exp.Null):
            raise ExpressionError("the operands of LIKE cannot be a literal NULL")
        value = self.typed(node.this, scope, STRING, "the left side of LIKE")
        quantified = isinstance(node.expression, exp.Any | exp.All)
        written = node.expression.this if quantified else node.expression
        items = written.expressions if isinstance(written, exp.Tuple) else [written]
        if isinstance(written, exp.Paren):
            items = [written.this]
        patterns = [self.typed(item, scope, STRING, "a pattern of LIKE") for item in items]
        # NOT LIKE ANY holds when one of the patterns does not match.
        word = "NOT LIKE" if node.args.get("negate") else "LIKE"
        parts = [fill(rf"(@0 {word} @1 ESCAPE '\\')", value, pattern) for pattern in patterns]
        return Value(f"({(' AND ' if isinstance(node.expression, exp.All) else ' OR ').join(parts)})", BOOL)

    def between(self, node: exp.Between, scope: Scope) -> Value:
        written = [self.compile(item, scope) for item in (node.this, node.args["low"], node.args["high"])]
        kind, (value, low, high) = self.common(written, "BETWEEN")
        operators.check_ordered(kind, "BETWEEN")
        return operators.between(value, low, high)

    def in_(self, node: exp.In, scope: Scope) -> Value:
        if node.args.get("query") is not None:
            raise ExpressionError("IN with a sub-select is not available on Spark: use a side input")
        value = self.compile(node.this, scope)
        unnest = node.args.get("unnest")
        if unnest is not None:
            array = self.compile(unnest.expressions[0], scope)
            if array.type.element is None:
                raise ExpressionError("IN UNNEST takes an array")
            kind, (left, _) = self.common([value, Value("", array.type.element)], "IN UNNEST")
            right = coerce(array, array_of(kind)) or cast(array, array_of(kind))
            found = operators.contains("@1", "@0", kind)
            return Value(fill(f"IF(@1 IS NULL, FALSE, IF(size(@1) = 0, FALSE, {found}))", left, right), BOOL)
        items = [self.compile(item, scope) for item in node.expressions]
        kind, (first, *rest) = self.common([value, *items], "IN")
        operators.check_comparable(kind, "IN")
        return operators.among(first, rest)

    def is_(self, node: exp.Is, scope: Scope) -> Value:
        what = "NULL" if isinstance(node.expression, exp.Null) else str(node.expression.this).upper()
        value = self.compile(node.this, scope)
        if what != "NULL":
            value = self.typed(node.this, scope, BOOL, f"the operand of IS {what}")
        return Value(f"({value.sql} IS {what})", BOOL)

    def case(self, node: exp.Case, scope: Scope) -> Value:
        results = [self.compile(item.args["true"], scope) for item in node.args["ifs"]]
        otherwise = node.args.get("default")
        results.append(self.compile(otherwise, scope) if otherwise is not None else NULL)
        kind, converted = self.common(results, "CASE")
        subject = self.compile(node.this, scope) if node.this is not None else None
        whens = []
        for item, result in zip(node.args["ifs"], converted, strict=False):
            if subject is None:
                test = self.typed(item.this, scope, BOOL, "a condition of CASE").sql
            else:
                test = operators.binary(self, "=", subject, self.compile(item.this, scope)).sql
            whens.append(f"WHEN {test} THEN {result.sql}")
        return Value(f"(CASE {' '.join(whens)} ELSE {converted[-1].sql} END)", kind)

    def if_(self, node: exp.If, scope: Scope) -> Value:
        test = self.typed(node.this, scope, BOOL, "the condition of IF")
        otherwise = node.args.get("false")
        branches = [self.compile(node.args["true"], scope), self.compile(otherwise, scope) if otherwise else NULL]
        kind, (then, rest) = self.common(branches, "IF")
        return Value(f"IF({test.sql}, {then.sql}, {rest.sql})", kind)

    def array(self, node: exp.Array, scope: Scope) -> Value:
        kind, items = self.common([self.compile(item, scope) for item in node.expressions], "an array")
        if kind.kind == "ARRAY":
            raise ExpressionError("an array of arrays does not exist")
        return array_value(items, kind)

    def struct(self, node: exp.Expr, scope: Scope) -> Value:
        members = []
        for item in node.expressions:
            written = item.this if isinstance(item, exp.Alias) else item
            value = self.compile(written, scope)
            name = item.alias if isinstance(item, exp.Alias) else ""
            if not name and isinstance(written, exp.Column):
                name = written.name
            members.append((name, value))
        return struct_value(struct_of((name, value.type) for name, value in members), [value for _, value in members])

    def cast(self, node: exp.Cast, scope: Scope) -> Value:
        if node.args.get("format") is not None:
            raise ExpressionError("CAST … FORMAT is not available on Spark: use FORMAT_DATE, PARSE_DATE …")
        value, target = self.compile(node.this, scope), type_of(node.args["to"])
        safe = isinstance(node, exp.TryCast)
        if value.literal and isinstance(value.constant, str) and target in (DATE, DATETIME, TIME, TIMESTAMP, NUMERIC):
            parsed = parse_text(value.constant, target)
            if parsed is None and not safe:
                raise ExpressionError(f"{value.constant!r} is no {target}")
            return parsed or literal(None, target)
        return cast(value, target, safe=safe)

    def json_literal(self, node: exp.ParseJSON, scope: Scope) -> Value:
        try:
            value = json.loads(str(node.this.this), parse_constant=_no_constant)
        except ValueError:
            raise ExpressionError(f"{str(node.this.this)!r} is no JSON") from None
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        return Value(text_sql(text), JSON, simple=True)

    def bracket(self, node: exp.Bracket, scope: Scope) -> Value:
        base = self.compile(node.this, scope)
        if base.type.element is None:
            raise ExpressionError(f"[] does not take {base.type}")
        index = self.typed(node.expressions[0], scope, INT64, "an array's position")
        shift = "" if node.args.get("offset") == 1 else " + 1"
        if node.args.get("safe"):
            template = f"IF(@1{shift} > 0, try_element_at(@0, CAST(@1{shift} AS INT)), NULL)"
        else:
            error = "raise_error(concat('Array index ', @1, ' is out of bounds'))"
            template = (
                f"CASE WHEN @1{shift} > 0 AND @1{shift} <= size(@0) THEN element_at(@0, CAST(@1{shift} AS INT)) "
                f"WHEN @0 IS NULL OR @1 IS NULL THEN NULL ELSE {error} END"
            )
        return Value(fill(template, base, index), base.type.element)

    def extract(self, node: exp.Extract, scope: Scope) -> Value:
        zone = None
        written = node.expression
        if isinstance(written, exp.AtTimeZone):
            zone, written = written.args["zone"], written.this
        args = (node.this, written) if zone is None else (node.this, written, zone)
        return REGISTRY["EXTRACT"].handler(Call(self, "EXTRACT", args, scope))

    def call(self, node: exp.Anonymous, scope: Scope, *, safe: bool = False) -> Value:
        name = str(node.this).upper()
        if name == "STRUCT":
            return self.struct(node, scope)
        found = REGISTRY.get(name)
        if found is None:
            raise ExpressionError(unknown_function(name))
        if safe and not found.safe:
            raise ExpressionError(f"SAFE.{name} is not available on Spark")
        return found.handler(Call(self, name, tuple(node.expressions), scope, safe))

    def safe_call(self, node: exp.SafeFunc, scope: Scope) -> Value:
        if isinstance(node.this, exp.Anonymous):
            return self.call(node.this, scope, safe=True)
        return self.compile(node.this, scope)

    def net_call(self, node: exp.NetFunc, scope: Scope) -> Value:
        raise ExpressionError(unknown_function(f"NET.{node.this.name.upper()}"))

    def window(self, node: exp.Window, scope: Scope) -> Value:
        self.compile(node.this, scope)  # its function is not available either, and says so by its name
        raise ExpressionError("OVER is not available on Spark")


Compiler.NODES = {
    exp.Column: Compiler.column, exp.Identifier: Compiler.identifier, exp.Dot: Compiler.dot,
    exp.Literal: Compiler.literal, exp.Concat: Compiler.concat_literals, exp.HexString: Compiler.hexadecimal,
    exp.RawString: Compiler.raw_string, exp.ByteString: Compiler.bytes_, exp.Boolean: Compiler.boolean,
    exp.Null: Compiler.null, exp.Parameter: Compiler.parameter, exp.Paren: Compiler.parenthesis,
    exp.Neg: Compiler.negative, exp.Not: Compiler.negation, exp.BitwiseNot: Compiler.bitwise_not,
    exp.Like: Compiler.like, exp.Between: Compiler.between, exp.In: Compiler.in_, exp.Is: Compiler.is_,
    exp.Case: Compiler.case, exp.If: Compiler.if_, exp.Array: Compiler.array, exp.Struct: Compiler.struct,
    exp.Cast: Compiler.cast, exp.TryCast: Compiler.cast, exp.ParseJSON: Compiler.json_literal,
    exp.Bracket: Compiler.bracket, exp.Extract: Compiler.extract, exp.Anonymous: Compiler.call,
    exp.SafeFunc: Compiler.safe_call, exp.Exists: subselects.exists, exp.Subquery: subselects.subquery,
    exp.Select: subselects.array, exp.NetFunc: Compiler.net_call, exp.Window: Compiler.window,
    **dict.fromkeys(operators.OPERATORS, Compiler.binary),
}  # fmt: skip

_ENOUGH = 100  # combinations that are tried though one was found that works
_MOST = 2_000  # combinations that are tried


class Checker(Compiler):
    """The compiler itself, run on columns that are not known: what it refuses for every type is `found`.

    Each node is tried with all that its parts may be. Where there is too much to try, nothing is said against it.
    """

    def __init__(self) -> None:
        self.found: dict[str, None] = {}
        self._judged: dict[Any, tuple[exp.Expr, Sequence[Value] | ExpressionError]] = {}
        self._refused: set[int] = set()
        self._guesses = [Guesses()]  # of the node that is tried, within those of the nodes around it

    def compile(self, node: exp.Expr, scope: Scope) -> Value:
        guesses = self._guesses[-1]
        guesses.steps += 1
        key = id(node), tuple((name, value.type, value.null) for name, value in scope.values.items())
        if key not in self._judged:
            self._judged[key] = node, self._judge(node, scope)  # the node is kept: its id stays its own
        answers = self._judged[key][1]
        if isinstance(answers, ExpressionError):
            raise answers
        guesses.unsure |= id(node) in self._refused or isinstance(_written(node), exp.Parameter)
        return guesses.pick(answers)

    def member(self, value: Value, name: str) -> Value:
        return self._guesses[-1].pick(ANYTHING) if value.type == ANY_STRUCT else super().member(value, name)

    def _judge(self, node: exp.Expr, scope: Scope) -> Sequence[Value] | ExpressionError:
        """What the node may answer, or why it answers nothing."""
        if isinstance(node, exp.Parameter) or _is_unknown(node, scope):
            return ANYTHING
        self._guesses.append(Guesses())
        try:
            return self._tried(node, scope, self._guesses[-1])
        finally:
            self._guesses.pop()

    def _tried(self, node: exp.Expr, scope: Scope, guesses: Guesses) -> Sequence[Value] | ExpressionError:
        answers: dict[Any, Value] = {}
        problem, reached = ExpressionError(), -1
        for _ in range(_MOST):
            try:
                value = super().compile(node, scope)
            except ExpressionError as error:
                if guesses.steps > reached:  # the guess that got furthest says best what is wrong
                    problem, reached = error, guesses.steps
            else:
                answers.setdefault((value.type, value.null, value.literal), replace(value, sql="x", simple=True))
                if guesses.combinations > _ENOUGH:
                    return ANYTHING
            if not guesses.change():
                break
        else:
            return ANYTHING
        if answers:
            return tuple(answers.values())
        if guesses.unsure:
            return ANYTHING
        if scope.values:  # names that are a guess themselves: another one may do
            return problem
        self.found[str(problem)] = None
        self._refused.add(id(node))
        return ANYTHING


def _is_unknown(node: exp.Expr, scope: Scope) -> bool:
    """Whether it is a column, and not a name that the expression itself gives."""
    if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
        return node.parts[0].name.lower() not in scope.values
    return isinstance(node, exp.Identifier) and node.name.lower() not in scope.values


def _written(node: exp.Expr) -> exp.Expr:
    """The node within parentheses and behind a sign: it is still a constant."""
    while isinstance(node, exp.Paren | exp.Neg):
        node = node.this
    return node


__all__ = [
    "Checker",
    "Compiler",
    "Rows",
    "Scope",
    "columns_of",
    "condition",
    "google_sql",
    "parse",
    "translate",
    "unsupported",
]
