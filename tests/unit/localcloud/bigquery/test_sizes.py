"""Logical bytes: the same whether DuckDB counts stored rows or Python counts the values of a few."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from ingestd.localcloud.bigquery.database import Database
from ingestd.localcloud.bigquery.files.staging import Staging
from ingestd.localcloud.bigquery.sizes import logical_bytes, measure
from ingestd.model.schema import Field, Mode, Type

STRUCT = Field("s", Type.STRUCT, fields=(Field("a", Type.STRING), Field("b", Type.INT64)))


@pytest.mark.parametrize(
    ("field", "values", "expected"),
    [
        (Field("v", Type.INT64), [1, None], 8),
        (Field("v", Type.STRING), ["aé", "", None], 5 + 2),
        (Field("v", Type.BYTES), [b"abc", None], 5),
        (Field("v", Type.NUMERIC), [Decimal("1.5")], 16),
        (Field("v", Type.TIMESTAMP), [datetime(2024, 1, 1, tzinfo=UTC), None], 8),
        (Field("v", Type.JSON), ['{"a": 1}', None], 10),
        (Field("v", Type.STRING, Mode.REPEATED), [["a", "bc"], []], 7),
        (Field("v", Type.INT64, Mode.REPEATED), [[1, 2, 3]], 24),
        (STRUCT, [{"a": "x", "b": 1}, {"a": None, "b": None}, None], 11),
    ],
    ids=str,
)
def test_a_few_values_weigh_what_their_stored_rows_weigh(field: Field, values: list[Any], expected: int) -> None:
    database = Database(None)
    cursor = database.cursor()
    rows = [{field.name: value} for value in values]
    with Staging(cursor, "weighed", (field,)).open() as staging:
        staging.append_rows(rows)
    assert measure(cursor, "weighed", (field,)) == (len(values), expected)
    assert logical_bytes(rows, (field,)) == expected
    database.close()
