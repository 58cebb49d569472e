"""Statements: DML, DDL, and the procedural language around them."""

from dataclasses import dataclass

from ingestd.googlesql.ast.queries import (
    Expression,
    FieldNode,
    Node,
    Query,
    Statement,
    TableExpression,
    TypeNode,
)


@dataclass(frozen=True, slots=True)
class QueryStatement(Statement):
    query: Query


@dataclass(frozen=True, slots=True)
class Insert(Statement):
    target: tuple[str, ...]
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Expression, ...], ...] = ()
    query: Query | None = None


@dataclass(frozen=True, slots=True)
class Assignment(Node):
    path: tuple[str, ...]
    value: Expression


@dataclass(frozen=True, slots=True)
class Update(Statement):
    target: tuple[str, ...]
    alias: str
    assignments: tuple[Assignment, ...]
    source: TableExpression | None
    where: Expression | None


@dataclass(frozen=True, slots=True)
class Delete(Statement):
    target: tuple[str, ...]
    alias: str
    where: Expression | None


@dataclass(frozen=True, slots=True)
class MergeClause(Node):
    when: str  # MATCHED, NOT MATCHED, NOT MATCHED BY SOURCE
    condition: Expression | None
    action: str  # UPDATE DELETE INSERT
    assignments: tuple[Assignment, ...] = ()
    columns: tuple[str, ...] = ()
    values: tuple[Expression, ...] = ()
    row: bool = False


@dataclass(frozen=True, slots=True)
class Merge(Statement):
    target: tuple[str, ...]
    alias: str
    source: TableExpression
    on: Expression
    clauses: tuple[MergeClause, ...]


@dataclass(frozen=True, slots=True)
class Truncate(Statement):
    target: tuple[str, ...]


Options = tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class CreateTable(Statement):
    target: tuple[str, ...]
    replace: bool = False
    temp: bool = False
    if_not_exists: bool = False
    external: bool = False
    columns: tuple[FieldNode, ...] | None = None
    partition_by: Expression | None = None
    partition_columns: tuple[FieldNode, ...] | None = None
    cluster_by: tuple[str, ...] = ()
    options: Options = ()
    query: Query | None = None
    like: tuple[str, ...] = ()
    copy_of: tuple[str, ...] = ()
    snapshot: bool = False


@dataclass(frozen=True, slots=True)
class CreateView(Statement):
    target: tuple[str, ...]
    query: Query
    text: str
    replace: bool = False
    if_not_exists: bool = False
    columns: tuple[str, ...] = ()
    options: Options = ()
    materialized: bool = False


@dataclass(frozen=True, slots=True)
class CreateSchema(Statement):
    target: tuple[str, ...]
    if_not_exists: bool = False
    options: Options = ()


@dataclass(frozen=True, slots=True)
class CreateFunction(Statement):
    target: tuple[str, ...]
    parameters: tuple[tuple[str, TypeNode | None], ...]
    returns: TypeNode | None
    body: Expression | None
    temp: bool = False
    replace: bool = False
    if_not_exists: bool = False
    language: str = "SQL"


@dataclass(frozen=True, slots=True)
class Drop(Statement):
    kind: str  # TABLE VIEW SCHEMA EXTERNAL TABLE SNAPSHOT TABLE FUNCTION ...
    target: tuple[str, ...]
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class AlterAction(Node):
    kind: (
        str  # ADD DROP RENAME_COLUMN RENAME SET_OPTIONS DROP_NOT_NULL SET_TYPE SET_DEFAULT DROP_DEFAULT COLUMN_OPTIONS
    )
    name: str = ""
    new_name: str = ""
    field: FieldNode | None = None
    type: TypeNode | None = None
    options: Options = ()
    if_exists: bool = False
    value: Expression | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Alter(Statement):
    kind: str  # TABLE VIEW SCHEMA
    target: tuple[str, ...]
    actions: tuple[AlterAction, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ExportData(Statement):
    options: Options
    query: Query


@dataclass(frozen=True, slots=True)
class LoadData(Statement):
    target: tuple[str, ...]
    overwrite: bool
    files: Options
    columns: tuple[FieldNode, ...] | None = None
    partition_by: Expression | None = None
    cluster_by: tuple[str, ...] = ()
    options: Options = ()
    partition_columns: tuple[FieldNode, ...] | None = None


@dataclass(frozen=True, slots=True)
class Assert(Statement):
    condition: Expression
    message: str


@dataclass(frozen=True, slots=True)
class Located:
    """A statement with the text it came from."""

    statement: Statement
    start: int
    end: int


Block = tuple[Located, ...]


@dataclass(frozen=True, slots=True)
class Declare(Statement):
    names: tuple[str, ...]
    type: TypeNode | None
    default: Expression | None


@dataclass(frozen=True, slots=True)
class SetVariable(Statement):
    names: tuple[str, ...]
    values: tuple[Expression, ...]
    system: bool = False


@dataclass(frozen=True, slots=True)
class If(Statement):
    branches: tuple[tuple[Expression, Block], ...]
    otherwise: Block


@dataclass(frozen=True, slots=True)
class CaseStatement(Statement):
    operand: Expression | None
    branches: tuple[tuple[Expression, Block], ...]
    otherwise: Block


@dataclass(frozen=True, slots=True)
class Loop(Statement):
    kind: str  # LOOP WHILE REPEAT
    body: Block
    condition: Expression | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class ForIn(Statement):
    name: str
    query: Query
    body: Block
    label: str = ""


@dataclass(frozen=True, slots=True)
class Jump(Statement):
    kind: str  # BREAK CONTINUE RETURN
    label: str = ""


@dataclass(frozen=True, slots=True)
class BeginBlock(Statement):
    body: Block
    handler: Block | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Transaction(Statement):
    kind: str  # BEGIN COMMIT ROLLBACK


@dataclass(frozen=True, slots=True)
class Raise(Statement):
    message: Expression | None


@dataclass(frozen=True, slots=True)
class ExecuteImmediate(Statement):
    sql: Expression
    into: tuple[str, ...]
    using: tuple[tuple[Expression, str], ...]


@dataclass(frozen=True, slots=True)
class Unsupported(Statement):
    """Syntax that is recognised but not done here; running it answers 501."""

    feature: str
