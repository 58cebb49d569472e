"""What of an expression cannot run on Spark, before its columns have types: for lint."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ingestd.googlesql import ast
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.names import Scope
from ingestd.googlesql.types import ANY_STRUCT
from ingestd.googlesql.values import Value
from ingestd.spark.sql.expressions import Compiler, parse
from ingestd.spark.sql.guesses import ANYTHING, Guesses

_ENOUGH = 100  # combinations that are tried though one was found that works
_MOST = 2_000  # combinations that are tried


def unsupported(text: str) -> list[str]:
    """What of the expression cannot run on Spark, whatever its columns are; empty when nothing is known to fail."""
    checker = Checker()
    try:
        checker.expr(parse(text), Scope())
    except SqlError as error:
        return [str(error)]
    except RecursionError:
        return []
    return list(checker.found)


class Checker(Compiler):
    """The compiler itself, run on columns that are not known: what it refuses for every type is `found`.

    Each node is tried with all that its parts may be. Where there is too much to try, nothing is said against it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, None] = {}
        self._judged: dict[Any, tuple[ast.Expression, Sequence[Value] | SqlError]] = {}
        self._refused: set[int] = set()
        self._guesses = [Guesses()]  # of the node that is tried, within those of the nodes around it

    def expr(self, node: ast.Expression, scope: Scope) -> Value:
        guesses = self._guesses[-1]
        guesses.steps += 1
        key = id(node), tuple((name, value.type, value.null) for name, value in scope.known().items())
        if key not in self._judged:
            self._judged[key] = node, self._judge(node, scope)  # the node is kept: its id stays its own
        answers = self._judged[key][1]
        if isinstance(answers, SqlError):
            raise answers
        guesses.unsure |= id(node) in self._refused or isinstance(_written(node), ast.Param)
        return guesses.pick(answers)

    def member(self, value: Value, name: str, node: ast.Node) -> Value:
        return self._guesses[-1].pick(ANYTHING) if value.type == ANY_STRUCT else super().member(value, name, node)

    def _judge(self, node: ast.Expression, scope: Scope) -> Sequence[Value] | SqlError:
        """What the node may answer, or why it answers nothing."""
        if isinstance(node, ast.Param) or _is_unknown(node, scope):
            return ANYTHING
        self._guesses.append(Guesses())
        try:
            return self._tried(node, scope, self._guesses[-1])
        finally:
            self._guesses.pop()

    def _tried(self, node: ast.Expression, scope: Scope, guesses: Guesses) -> Sequence[Value] | SqlError:
        answers: dict[Any, Value] = {}
        problem, reached = SqlError(), -1
        for _ in range(_MOST):
            try:
                value = super().expr(node, scope)
            except SqlError as error:
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
        if scope.known():  # names that are a guess themselves: another one may do
            return problem
        self.found[str(problem)] = None
        self._refused.add(id(node))
        return ANYTHING


def _is_unknown(node: ast.Expression, scope: Scope) -> bool:
    """Whether it is a column, and not a name that the expression itself gives."""
    return isinstance(node, ast.Path) and node.parts[0].lower() not in scope.known()


def _written(node: ast.Expression) -> ast.Expression:
    """The node behind a sign: it is still a constant."""
    while isinstance(node, ast.Unary) and node.op == "-":
        node = node.value
    return node
