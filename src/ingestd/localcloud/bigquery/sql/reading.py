"""Reading GoogleSQL for BigQuery: what is wrong with it comes in BigQuery's errors."""

from collections.abc import Callable
from functools import wraps
from typing import NoReturn, ParamSpec, TypeVar

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.googlesql import parser, types
from ingestd.googlesql.errors import SqlError, UnsupportedSql
from ingestd.googlesql.lexer import Source

_P = ParamSpec("_P")
_T = TypeVar("_T")


def mistake(source: Source, message: str, pos: int) -> BigQueryError:
    return BigQueryError("invalidQuery", f"{message} at {source.where(pos)}", "query")


def fail(source: Source, message: str, pos: int) -> NoReturn:
    raise mistake(source, message, pos)


def _for_bigquery(read: Callable[_P, _T]) -> Callable[_P, _T]:
    @wraps(read)
    def reading(*args: _P.args, **named: _P.kwargs) -> _T:
        try:
            return read(*args, **named)
        except SqlError as error:
            raise worded(error) from None

    return reading


def worded(error: SqlError) -> BigQueryError:
    if isinstance(error, UnsupportedSql):
        return not_implemented(error.feature)
    return BigQueryError("invalidQuery", str(error), "query")


parse_script = _for_bigquery(parser.parse_script)
parse_query = _for_bigquery(parser.parse_query)
parse_expression = _for_bigquery(parser.parse_expression)
from_node = _for_bigquery(types.from_node)
scalar_name = _for_bigquery(types.scalar_name)
