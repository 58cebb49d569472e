"""The two engines behind one question: what is the type of this expression, and what its value?"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import duckdb
from tests.support.local_sql import local_cursor

from ingestd.formats.errors import BigQueryError
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.names import Scope as Names
from ingestd.localcloud.bigquery.catalog import Catalog
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.context import Collected, Session
from ingestd.localcloud.bigquery.sql.engine import Surroundings
from ingestd.localcloud.bigquery.sql.queries import Compiler
from ingestd.localcloud.bigquery.sql.reading import parse_expression
from ingestd.model.clock import SystemClock
from ingestd.spark.sql import farmhash
from ingestd.spark.sql.expressions import Scope, translate
from ingestd.spark.sql.types import spark_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression in an engine's own SQL, with its GoogleSQL type."""

    sql: str
    type: Any


class Engine(Protocol):
    def compile(self, expression: str) -> Compiled:
        """Raises `RefusedError`."""

    def answers(self, compiled: Sequence[Compiled]) -> "list[Any | FailedError]":
        """The value of each, or why it has none; as few queries as possible."""


class RefusedError(Exception):
    """The front end takes the expression for none, or for none that this engine can compute."""


class FailedError(Exception):
    """It was computed, and failed."""


class LocalBigQuery:
    """The local BigQuery's front end, and the DuckDB that it writes for."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor
        clock = SystemClock()
        catalog = Catalog(cursor, project="p", clock=clock)
        self._session = Session(catalog, "p", "p", "", (), {}, Surroundings(), clock.now())

    def compile(self, expression: str) -> Compiled:
        try:
            source, node = parse_expression(f"{expression}\n")
            collected = Collected()
            value = Compiler(self._session, source, collected).expr(node, Names())
        except BigQueryError as error:
            raise RefusedError(f"{error.reason}: {error.message}") from None
        assert not collected.bound
        return Compiled(f"CAST({value.sql} AS {duckdb_type(value.type)})", value.type)

    def answers(self, compiled: Sequence[Compiled]) -> "list[Any | FailedError]":
        """One query for all; when it fails, halves of it, until what fails is alone."""
        try:
            row = self._cursor.execute(f"SELECT {_columns(compiled)}").fetchone()
        except duckdb.Error as error:
            if len(compiled) == 1:
                return [FailedError(str(error))]
            middle = len(compiled) // 2
            return self.answers(compiled[:middle]) + self.answers(compiled[middle:])
        assert row is not None
        return list(row)


@contextmanager
def local_bigquery() -> Iterator[LocalBigQuery]:
    with local_cursor() as cursor:
        yield LocalBigQuery(cursor)


class Spark:
    """The translation for Spark, and a session that computes it. Without a session it only translates."""

    def __init__(self, session: "SparkSession | None" = None) -> None:
        self._session = session
        if session is not None:
            # Compiling thousands of expressions takes minutes; the interpreter gives the same answers.
            session.conf.set("spark.sql.codegen.wholeStage", "false")
            session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
            farmhash.register(session)

    def compile(self, expression: str) -> Compiled:
        try:
            value = translate(expression, Scope())
        except SqlError as error:
            raise RefusedError(str(error)) from None
        return Compiled(_collectable(value.sql, value.type), value.type)

    def answers(self, compiled: Sequence[Compiled]) -> "list[Any | FailedError]":
        """One query for all; when it fails, what fails is found without it: a job for each would take minutes."""
        try:
            return self._values(compiled)
        except FailedError:
            found: list[Any | FailedError] = [_failure(item) for item in self._plan(compiled)]
        sound = [index for index, failure in enumerate(found) if failure is None]
        if sound:
            for index, value in zip(sound, self._each([compiled[index] for index in sound]), strict=True):
                found[index] = value
        return found

    def _each(self, compiled: Sequence[Compiled]) -> "list[Any | FailedError]":
        """What seemed to be sound, together or in halves."""
        try:
            return self._values(compiled)
        except FailedError as error:
            if len(compiled) == 1:
                return [error]
            middle = len(compiled) // 2
            return self._each(compiled[:middle]) + self._each(compiled[middle:])

    def _values(self, compiled: Sequence[Compiled]) -> list[Any]:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        assert self._session is not None
        try:
            return list(self._session.sql(f"SELECT {_columns(compiled)}").collect()[0])
        except (PySparkException, Py4JJavaError) as error:
            raise FailedError(type(error).__name__) from None

    def _plan(self, compiled: Sequence[Compiled]) -> list[Any]:
        """Spark's own expressions, ready to be evaluated one by one."""
        assert self._session is not None
        session = self._session.newSession()
        session.conf.set("spark.sql.optimizer.excludedRules", ",".join(_EVALUATING))
        farmhash.register(session)
        frame: Any = session.sql(f"SELECT {_columns(compiled)}")
        listed = frame._jdf.queryExecution().optimizedPlan().expressions()
        return [listed.apply(index) for index in range(len(compiled))]


def _columns(compiled: Sequence[Compiled]) -> str:
    return ", ".join(f"{item.sql} AS c{index}" for index, item in enumerate(compiled))


# Rules of the optimizer that compute what is constant, and so fail with it.
_EVALUATING = tuple(
    f"org.apache.spark.sql.catalyst.optimizer.{name}"
    for name in ("ConstantFolding", "ConvertToLocalRelation", "ConstantPropagation", "NullPropagation")
)


def _failure(expression: Any) -> FailedError | None:
    """Why Spark's expression fails; what only a job can compute is none of them."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        expression.eval(None)
    except Py4JJavaError as error:
        return FailedError(str(error.java_exception))
    except PySparkException as error:
        if type(error).__name__ == "IllegalArgumentException" or "INTERNAL_ERROR" in str(error.getCondition()):
            return None
        return FailedError(error.getCondition() or type(error).__name__)
    return None


def _collectable(sql: str, kind: Any) -> str:
    """A TIMESTAMP comes back as UTC's, whatever the zone of this process is, and years that Python has not as text."""
    if kind.kind in ("DATE", "DATETIME", "TIMESTAMP"):
        return f"CAST({sql} AS STRING)"
    spark = spark_sql(kind)
    return f"CAST({sql} AS {re.sub('TIMESTAMP(?!_NTZ)', 'TIMESTAMP_NTZ', spark)})" if "TIMESTAMP" in spark else sql


def text(value: Any, kind: Any) -> str:
    """A value as the table of cases writes it."""
    if value is None:
        return "NULL"
    if kind.kind == "ARRAY":
        return f"[{', '.join(text(item, kind.element) for item in value)}]"
    if kind.kind == "STRUCT":
        members = value.values() if isinstance(value, Mapping) else value
        return f"({', '.join(text(item, inner) for item, (_, inner) in zip(members, kind.fields, strict=True))})"
    if kind.kind == "JSON":
        with suppress(ValueError):
            return json.dumps(json.loads(value), ensure_ascii=False, sort_keys=True)
    match value:
        case bool():
            return str(value).lower()
        case float():
            return repr(value)
        case bytes() | bytearray() | memoryview():
            return f"x{bytes(value).hex()}"
        case Decimal():
            return _plain(f"{value:f}")
        case datetime():
            moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            return f"{moment.date()} {_trimmed(moment.time())}{'+00' if kind.kind == 'TIMESTAMP' else ''}"
        case date():
            return value.isoformat()
        case time():
            return _trimmed(value)
        case timedelta():
            return f"{value.total_seconds()} seconds"
        case str() if kind.kind == "TIMESTAMP":
            return f"{value}+00"
        case str() if kind.kind in ("DATE", "DATETIME", "TIME"):
            return _plain(value)
        case str() if kind.kind == "BIGNUMERIC":
            return _plain(f"{Decimal(value):f}")
        case str():
            return json.dumps(value, ensure_ascii=False)
    return str(value)


def _plain(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _trimmed(value: time) -> str:
    return _plain(value.isoformat()) if value.microsecond else value.isoformat()
