from typing import Any

import pytest
from tests.support.loads import Loads, schema

from ingestd.formats.errors import ErrorProto
from ingestd.localcloud.bigquery.files.rows import insert_rows

COLUMNS = schema("id INT64 REQUIRED", "name STRING", "r STRUCT(x INT64)", "j JSON", "n NUMERIC")


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"id": 1, "foo": 2}, ErrorProto("invalid", "no such field: foo.", "foo")),
        ({"id": 1, "r": {"y": 2}}, ErrorProto("invalid", "no such field: y.", "r.y")),
        ({"id": "x"}, ErrorProto("invalid", "Cannot convert value to integer (bad value): x", "id")),
        ({"name": "x"}, ErrorProto("invalid", "Missing required field: id.")),
        ({"id": 1, "name": ["x"]}, ErrorProto("invalid", "Array specified for non-repeated field.", "name")),
        ({"id": 1, "name": {"a": 1}}, ErrorProto("invalid", "This field is not a record.", "name")),
    ],
)
def test_a_bad_row_is_reported_with_its_field_and_stops_the_others(
    loads: Loads, row: dict[str, Any], error: ErrorProto
) -> None:
    outcome = insert_rows(loads.conn, COLUMNS, [{"id": 1}, row], "staged")
    assert outcome.errors == {0: (ErrorProto("stopped", ""),), 1: (error,)}
    assert outcome.rows == 0
    assert loads.rows() == []


def test_good_rows_are_kept_when_invalid_ones_are_skipped(loads: Loads) -> None:
    outcome = insert_rows(loads.conn, COLUMNS, [{"id": 1}, {"id": "x"}, {"id": "3"}], "staged", skip_invalid_rows=True)
    assert list(outcome.errors) == [1]
    assert [row[0] for row in loads.rows()] == [1, 3]


def test_json_columns_take_json_text_and_numerics_take_numbers(loads: Loads) -> None:
    insert_rows(loads.conn, COLUMNS, [{"id": 1, "j": '{"a": 1}', "n": 1.25}], "staged")
    assert loads.conn.execute("SELECT j, n::VARCHAR FROM staged").fetchone() == ('{"a":1}', "1.250000000")


def test_unknown_values_are_ignored_when_asked(loads: Loads) -> None:
    outcome = insert_rows(loads.conn, COLUMNS, [{"id": 1, "foo": 2}], "staged", ignore_unknown_values=True)
    assert outcome.rows == 1
    assert not outcome.errors
