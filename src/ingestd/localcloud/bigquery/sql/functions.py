"""Registers, once per database, everything translated SQL may call."""

import duckdb
from duckdb.func import FunctionNullHandling

from ingestd.localcloud.bigquery.sql.runtime import civil, jsons, numbers, strings
from ingestd.localcloud.bigquery.sql.runtime.macros import MACROS
from ingestd.localcloud.bigquery.sql.runtime.registry import FUNCTIONS

_MODULES = (civil, jsons, numbers, strings)  # importing them fills the registry


def register(conn: duckdb.DuckDBPyConnection) -> None:
    """Python functions are visible to every cursor of the database; macros live in its main schema."""
    for item in FUNCTIONS.values():
        conn.create_function(
            item.name,
            item.call,
            list(item.parameters),
            item.returns,
            null_handling=FunctionNullHandling.SPECIAL if item.nulls else FunctionNullHandling.DEFAULT,
        )
    conn.begin()  # written to the disk together: each by itself takes its own turn there
    for head, body in MACROS.items():
        conn.execute(f"CREATE OR REPLACE MACRO {head} AS {body}")
    conn.commit()
