"""Rows through Google's client: streamed in, read back in pages, every type as it was."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import httpx
import pytest
from google.api_core import exceptions
from google.cloud import bigquery
from tests.integration.bigquery.local import LocalBigQuery
from tests.support.google import PROJECT

ALL_TYPES = [
    bigquery.SchemaField("s", "STRING"),
    bigquery.SchemaField("b", "BYTES"),
    bigquery.SchemaField("i", "INTEGER"),
    bigquery.SchemaField("f", "FLOAT"),
    bigquery.SchemaField("n", "NUMERIC"),
    bigquery.SchemaField("ok", "BOOLEAN"),
    bigquery.SchemaField("ts", "TIMESTAMP"),
    bigquery.SchemaField("d", "DATE"),
    bigquery.SchemaField("t", "TIME"),
    bigquery.SchemaField("dt", "DATETIME"),
    bigquery.SchemaField("tags", "STRING", mode="REPEATED"),
    bigquery.SchemaField(
        "r",
        "RECORD",
        mode="REPEATED",
        fields=[bigquery.SchemaField("x", "INTEGER"), bigquery.SchemaField("at", "TIMESTAMP")],
    ),
]
ROW: dict[str, Any] = {
    "s": "naïve ☃",
    "b": "AAH/",
    "i": "9007199254740993",
    "f": 0.1,
    "n": "123456789.123456789",
    "ok": True,
    "ts": "2024-02-29T23:59:59.999999Z",
    "d": "0001-01-01",
    "t": "12:34:56.000001",
    "dt": "9999-12-31T23:59:59.999999",
    "tags": ["a", "b"],
    "r": [{"x": 1, "at": "1969-12-31T23:59:59.5Z"}, {"x": None, "at": None}],
}


@pytest.fixture
def table(client: bigquery.Client, dataset: str) -> str:
    client.create_table(bigquery.Table(f"{PROJECT}.{dataset}.t", ALL_TYPES))
    return f"{PROJECT}.{dataset}.t"


def test_every_type_survives_the_round_trip(client: bigquery.Client, table: str) -> None:
    assert client.insert_rows_json(table, [ROW, {}]) == []
    first, second = client.list_rows(table)
    assert first["s"] == "naïve ☃"
    assert first["b"] == b"\x00\x01\xff"
    assert first["i"] == 9007199254740993
    assert first["f"] == 0.1
    assert first["n"] == Decimal("123456789.123456789")
    assert first["ok"] is True
    assert first["ts"] == datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC)
    assert first["d"] == date(1, 1, 1)
    assert first["t"] == time(12, 34, 56, 1)
    assert first["dt"].isoformat() == "9999-12-31T23:59:59.999999"
    assert first["tags"] == ["a", "b"]
    assert first["r"] == [
        {"x": 1, "at": datetime(1969, 12, 31, 23, 59, 59, 500000, tzinfo=UTC)},
        {"x": None, "at": None},
    ]
    assert second["s"] is None
    assert second["tags"] == []
    assert second["r"] == []


def test_timestamps_are_float_seconds_unless_int64_is_asked_for(
    client: bigquery.Client, table: str, local: LocalBigQuery
) -> None:
    client.insert_rows_json(table, [{"ts": "2024-01-01T00:00:00.5Z"}])
    project, dataset, name = table.split(".")
    url = f"{local.endpoint}/bigquery/v2/projects/{project}/datasets/{dataset}/tables/{name}/data"
    as_float = httpx.get(url, params={"selectedFields": "ts"}).json()
    as_int = httpx.get(url, params={"selectedFields": "ts", "formatOptions.useInt64Timestamp": "true"}).json()
    assert as_float["rows"] == [{"f": [{"v": "1.7040672005E9"}]}]
    assert as_int["rows"] == [{"f": [{"v": "1704067200500000"}]}]


def test_rows_are_read_in_pages_from_an_index_with_selected_fields(client: bigquery.Client, table: str) -> None:
    client.insert_rows_json(table, [{"i": number, "r": [{"x": number}]} for number in range(10)])
    fields = [ALL_TYPES[2], bigquery.SchemaField("r", "RECORD", mode="REPEATED", fields=[ALL_TYPES[2]])]
    found = list(client.list_rows(table, page_size=3, start_index=2, selected_fields=fields[:1]))
    assert [row["i"] for row in found] == list(range(2, 10))
    assert [row["i"] for row in client.list_rows(table, max_results=4)] == [0, 1, 2, 3]


def test_a_repeated_insert_id_is_one_row(client: bigquery.Client, table: str) -> None:
    client.insert_rows_json(table, [{"i": 1}, {"i": 2}], row_ids=["a", "b"])
    client.insert_rows_json(table, [{"i": 1}, {"i": 3}], row_ids=["a", "c"])
    assert sorted(row["i"] for row in client.list_rows(table)) == [1, 2, 3]


def test_one_bad_row_stops_the_others_unless_told_to_skip(client: bigquery.Client, table: str) -> None:
    errors = client.insert_rows_json(table, [{"i": 1}, {"i": "x"}, {"unknown": 1}])
    reasons = {entry["index"]: entry["errors"][0]["reason"] for entry in errors}
    assert reasons == {0: "stopped", 1: "invalid", 2: "invalid"}
    assert client.get_table(table).num_rows == 0
    errors = client.insert_rows_json(
        table, [{"i": 1}, {"i": "x"}, {"i": 2, "unknown": 1}], skip_invalid_rows=True, ignore_unknown_values=True
    )
    assert [entry["index"] for entry in errors] == [1]
    assert sorted(row["i"] for row in client.list_rows(table)) == [1, 2]


def test_a_template_suffix_makes_a_table_like_the_template(client: bigquery.Client, table: str) -> None:
    assert client.insert_rows_json(table, [{"i": 1}], template_suffix="_eu") == []
    assert [row["i"] for row in client.list_rows(f"{table}_eu")] == [1]
    assert client.get_table(table).num_rows == 0


def test_rows_of_a_missing_table_answer_404(client: bigquery.Client, dataset: str) -> None:
    with pytest.raises(exceptions.NotFound, match=f"Not found: Table {PROJECT}:{dataset}.none"):
        client.insert_rows_json(f"{PROJECT}.{dataset}.none", [{"i": 1}])


def test_an_unknown_path_is_an_honest_404(local: LocalBigQuery) -> None:
    answer = httpx.get(f"{local.endpoint}/bigquery/v2/projects/p/nonsense")
    assert answer.status_code == 404
    assert answer.json()["error"]["errors"][0]["reason"] == "notFound"
