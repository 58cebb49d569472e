"""DuckDB's errors in BigQuery's words."""

import re

import duckdb

from ingestd.formats.errors import BigQueryError

_PYTHON = re.compile(r"Python exception occurred while executing the UDF: \w+: (.*)", re.DOTALL)
_OVERFLOW = re.compile(r"Overflow in \w+ of (\w+) \((.*)\)")
_REQUIRED = re.compile(r"NOT NULL constraint failed: (?:\S+\.)?(\S+)")
_UNGROUPED = re.compile(r'column "?([^"]+?)"? must appear in the GROUP BY clause')
_NEGATED = re.compile(r"Overflow in negation of (\w+)")
_TOO_WIDE = re.compile(r"Type INT128 with value (\S+) can't be cast .* INT64")


def from_duckdb(error: duckdb.Error) -> BigQueryError:
    message = str(error)
    python = _PYTHON.search(message)
    if python:
        text = python[1].strip()
        reason = "notImplemented" if text.startswith("the local BigQuery does not support") else "invalidQuery"
        return BigQueryError(reason, text, "query")
    overflow = _OVERFLOW.search(message)
    if overflow:
        kind = "int64" if overflow[1].startswith("INT") else "numeric"
        return BigQueryError("invalidQuery", f"{kind} overflow: {overflow[2]}", "query")
    negated = _NEGATED.search(message)
    if negated:
        return BigQueryError("invalidQuery", "int64 overflow in negation", "query")
    wide = _TOO_WIDE.search(message)
    if wide:
        return BigQueryError("invalidQuery", f"int64 overflow: {wide[1]}", "query")
    required = _REQUIRED.search(message)
    if required:
        return BigQueryError("invalidQuery", f"Required field {required[1]} cannot be null", "query")
    ungrouped = _UNGROUPED.search(message)
    if ungrouped:
        return BigQueryError(
            "invalidQuery",
            f"SELECT list expression references column {ungrouped[1]} which is neither grouped nor aggregated",
            "query",
        )
    if isinstance(error, duckdb.InterruptException):
        return BigQueryError("stopped", "Job execution was cancelled: User requested cancellation", "query")
    if isinstance(error, duckdb.OutOfMemoryException):
        return BigQueryError("resourcesExceeded", "Resources exceeded during query execution", "query")
    return BigQueryError("invalidQuery", _plain(message), "query")


def is_conflict(error: duckdb.Error) -> bool:
    """Another transaction changed the same rows first: trying again may succeed."""
    return isinstance(error, duckdb.TransactionException) and "conflict" in str(error).lower()


_WORDS = (
    ("More than one row returned by a subquery", "Scalar subquery produced more than one element"),
    ("WHERE clause cannot contain aggregates", "Aggregate functions are not allowed in the WHERE clause"),
    ("WHERE clause cannot contain window functions", "Analytic functions are not allowed in the WHERE clause"),
    ("HAVING clause cannot contain window functions", "Analytic functions are not allowed in the HAVING clause"),
    ("aggregate function calls cannot be nested", "Aggregations of aggregations are not allowed"),
    ("GROUP BY clause cannot contain aggregates", "Aggregate functions are not allowed in GROUP BY"),
    ("nested window function", "Analytic functions cannot be arguments to other analytic functions"),
    ("needs at least one window function in the SELECT", "The QUALIFY clause requires analytic function to be present"),
    ("date/time field value out of range", "Invalid date or time value"),
    ("Date out of range", "Date value out of range"),
)


def _plain(message: str) -> str:
    for found, words in _WORDS:
        if found.lower() in message.lower():
            return words
    first = message.split("\n\n")[0].strip()
    return re.sub(r"^(?:[A-Z][A-Za-z]+ )+Error: ", "", first)
