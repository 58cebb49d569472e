"""Expressions and queries: what was written, before names and types are known. `pos` is an offset in the text."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    pos: int


class Expression(Node):
    __slots__ = ()


class Statement(Node):
    __slots__ = ()


class TableExpression(Node):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class FieldNode(Node):
    name: str
    type: "TypeNode"
    not_null: bool = False
    default: Expression | None = None
    options: tuple[tuple[str, Expression], ...] = ()
    default_text: str = ""
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class TypeNode(Node):
    name: str  # upper case
    parameters: tuple[int, ...] = ()
    element: "TypeNode | None" = None
    fields: tuple[FieldNode, ...] = ()


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    kind: str  # INT64 FLOAT64 STRING BYTES BOOL NULL
    value: object


@dataclass(frozen=True, slots=True)
class TypedLiteral(Expression):
    kind: str  # DATE TIMESTAMP DATETIME TIME NUMERIC BIGNUMERIC JSON
    text: str


@dataclass(frozen=True, slots=True)
class RangeLiteral(Expression):
    element: str
    text: str


@dataclass(frozen=True, slots=True)
class IntervalValue(Expression):
    value: Expression
    part: str
    to_part: str = ""


@dataclass(frozen=True, slots=True)
class Param(Expression):
    name: str  # empty for a positional one
    index: int = 0


@dataclass(frozen=True, slots=True)
class SystemVariable(Expression):
    name: str


@dataclass(frozen=True, slots=True)
class Path(Expression):
    parts: tuple[str, ...]
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Dot(Expression):
    base: Expression
    name: str


@dataclass(frozen=True, slots=True)
class Index(Expression):
    base: Expression
    index: Expression
    mode: str = ""  # OFFSET ORDINAL SAFE_OFFSET SAFE_ORDINAL, or empty


@dataclass(frozen=True, slots=True)
class OrderItem(Node):
    value: Expression
    desc: bool = False
    nulls: str = ""  # FIRST LAST
    end: int = 0  # of the value


@dataclass(frozen=True, slots=True)
class FrameBound(Node):
    kind: str  # UNBOUNDED PRECEDING, UNBOUNDED FOLLOWING, CURRENT ROW, PRECEDING, FOLLOWING
    value: Expression | None = None


@dataclass(frozen=True, slots=True)
class Window(Node):
    base: str = ""
    partition_by: tuple[Expression, ...] = ()
    order_by: tuple[OrderItem, ...] = ()
    unit: str = ""  # ROWS RANGE
    start: FrameBound | None = None
    end: FrameBound | None = None


@dataclass(frozen=True, slots=True)
class Call(Expression):
    name: str  # upper case, with its prefix (NET.HOST); SAFE. is the flag
    args: tuple[Expression, ...] = ()
    named: tuple[tuple[str, Expression], ...] = ()
    safe: bool = False
    distinct: bool = False
    star: bool = False
    nulls: str = ""  # IGNORE RESPECT
    having: tuple[str, Expression] | None = None  # (MAX | MIN, value)
    order_by: tuple[OrderItem, ...] = ()
    limit: Expression | None = None
    over: Window | None = None
    written: str = ""


@dataclass(frozen=True, slots=True)
class Lambda(Expression):
    names: tuple[str, ...]
    body: Expression


@dataclass(frozen=True, slots=True)
class Cast(Expression):
    value: Expression
    type: TypeNode
    safe: bool = False
    format: Expression | None = None
    zone: Expression | None = None


@dataclass(frozen=True, slots=True)
class Extract(Expression):
    part: Expression
    value: Expression
    zone: Expression | None = None


@dataclass(frozen=True, slots=True)
class Unary(Expression):
    op: str  # - + ~ NOT
    value: Expression


@dataclass(frozen=True, slots=True)
class Binary(Expression):
    op: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Between(Expression):
    value: Expression
    low: Expression
    high: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class In(Expression):
    value: Expression
    items: tuple[Expression, ...] = ()
    array: Expression | None = None
    query: "Query | None" = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like(Expression):
    value: Expression
    patterns: tuple[Expression, ...]
    quantifier: str = ""  # ANY ALL
    negated: bool = False
    array: Expression | None = None


@dataclass(frozen=True, slots=True)
class Is(Expression):
    value: Expression
    what: str  # NULL TRUE FALSE UNKNOWN
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsDistinct(Expression):
    left: Expression
    right: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Case(Expression):
    operand: Expression | None
    whens: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None


@dataclass(frozen=True, slots=True)
class ArrayValue(Expression):
    items: tuple[Expression, ...]
    element: TypeNode | None = None


@dataclass(frozen=True, slots=True)
class ArrayQuery(Expression):
    query: "Query"


@dataclass(frozen=True, slots=True)
class StructValue(Expression):
    items: tuple[tuple[Expression, str], ...]
    type: TypeNode | None = None
    tuple_syntax: bool = False


@dataclass(frozen=True, slots=True)
class ScalarQuery(Expression):
    query: "Query"


@dataclass(frozen=True, slots=True)
class Exists(Expression):
    query: "Query"


@dataclass(frozen=True, slots=True)
class Default(Expression):
    pass


@dataclass(frozen=True, slots=True)
class SelectItem(Node):
    value: Expression
    alias: str = ""


@dataclass(frozen=True, slots=True)
class Star(Node):
    base: Expression | None = None
    excluded: tuple[str, ...] = ()
    replaced: tuple[SelectItem, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupBy(Node):
    """`sets` holds (kind, groups): ITEM, ROLLUP, CUBE or SETS; a group is a tuple of expressions."""

    items: tuple[tuple[str, tuple[tuple[Expression, ...], ...]], ...] = ()
    everything: bool = False


@dataclass(frozen=True, slots=True)
class TableName(TableExpression):
    parts: tuple[str, ...]
    alias: str = ""
    offset: str = ""
    system_time: Expression | None = None
    sample: Expression | None = None


@dataclass(frozen=True, slots=True)
class Unnest(TableExpression):
    array: Expression
    alias: str = ""
    offset: str = ""


@dataclass(frozen=True, slots=True)
class DerivedTable(TableExpression):
    query: "Query"
    alias: str = ""
    sample: Expression | None = None


@dataclass(frozen=True, slots=True)
class Join(TableExpression):
    left: TableExpression
    kind: str  # CROSS INNER LEFT RIGHT FULL
    right: TableExpression
    on: Expression | None = None
    using: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pivot(TableExpression):
    source: TableExpression
    aggregates: tuple[SelectItem, ...]
    column: Expression
    values: tuple[SelectItem, ...]
    alias: str = ""


@dataclass(frozen=True, slots=True)
class Unpivot(TableExpression):
    source: TableExpression
    values: tuple[str, ...]
    name: str
    columns: tuple[tuple[tuple[str, ...], Expression | None], ...]
    include_nulls: bool = False
    alias: str = ""


@dataclass(frozen=True, slots=True)
class Select(Node):
    items: tuple[SelectItem | Star, ...]
    distinct: bool = False
    as_kind: str = ""  # STRUCT VALUE
    source: TableExpression | None = None
    where: Expression | None = None
    group_by: GroupBy | None = None
    having: Expression | None = None
    qualify: Expression | None = None
    windows: tuple[tuple[str, Window], ...] = ()


@dataclass(frozen=True, slots=True)
class SetOperation(Node):
    op: str  # UNION EXCEPT INTERSECT
    every: bool
    left: "Select | SetOperation | Query"
    right: "Select | SetOperation | Query"


@dataclass(frozen=True, slots=True)
class Cte(Node):
    name: str
    query: "Query"


@dataclass(frozen=True, slots=True)
class Query(Node):
    body: "Select | SetOperation | Query"
    ctes: tuple[Cte, ...] = ()
    recursive: bool = False
    order_by: tuple[OrderItem, ...] = ()
    limit: Expression | None = None
    offset: Expression | None = None
