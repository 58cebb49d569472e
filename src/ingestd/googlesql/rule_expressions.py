"""Expressions of rules as trees, and words for their authors when they are none."""

from ingestd.googlesql import ast, parser, references
from ingestd.googlesql.errors import SqlError, UnexpectedToken, UnsupportedSql
from ingestd.googlesql.lexer import RESERVED

_LONG = 20_000
_SHOWN = 40  # characters before a mistake


def problem(text: str) -> str:
    """Why nobody can run the expression, or nothing."""
    try:
        read(text)
    except UnsupportedSql:
        return ""  # by BigQuery alone
    except SqlError as error:
        return str(error)
    return ""


def read(text: str) -> ast.Expression:
    """The expression's tree; raises `UnsupportedSql` when only BigQuery reads it, `SqlError` when nobody does."""
    if len(text) > _LONG:
        raise SqlError(f"an expression of {len(text)} characters is too long")
    try:
        return parser.parse_column(text) or parser.parse_expression(text, loose=True)[1]
    except UnsupportedSql:
        raise
    except (SqlError, RecursionError) as error:
        raise SqlError(f"not a GoogleSQL expression: {_complaint(text, error)}") from None


def _complaint(text: str, error: Exception) -> str:
    """What is wrong with the text, in its own words."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if not isinstance(error, UnexpectedToken):
        message = str(error).removeprefix("Syntax error: ")
        return "it cannot be read; is a quote missing?" if message.startswith("Unclosed") else message
    if error.wanted == "end of input":  # all before it is an expression: `a DESCC`
        return f"unexpected {error.found!r} at its end"
    before = text[: error.pos].strip()[-_SHOWN:]
    what = f"unexpected {error.found!r} after {before!r}" if error.found else "it ends too early"
    if error.found.upper() in RESERVED and not error.wanted:
        return f"{what} (a reserved word: as a name it needs back-ticks)"
    return what + (f" (expecting {error.wanted})" if error.wanted else "")


def columns_of(text: str) -> list[tuple[str, ...]]:
    """The dotted names of columns that the expression uses; none where only BigQuery can read it."""
    try:
        return references.columns_of(read(text))
    except UnsupportedSql:
        return []
