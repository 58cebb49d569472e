"""Loose ceilings that only a change of kind would break: the measured figures are several times better."""

import json
import time

import pytest
from tests.unit.localcloud.bigquery.files.support import Loads, schema

COLUMNS = schema("id INT64", "name STRING", "at TIMESTAMP", "tags STRING REPEATED")
JSON = {"sourceFormat": "NEWLINE_DELIMITED_JSON"}


def line(number: int) -> str:
    row = {"id": number, "name": f"name {number}", "at": "2024-01-01T00:00:00Z", "tags": ["a", "b"]}
    return json.dumps(row)


def best_of(runs: int, action: object) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        action()  # type: ignore[operator]
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.parametrize(("content", "format_"), [(line(1), "NEWLINE_DELIMITED_JSON"), ("1,x,,\n", "CSV")])
def test_one_row_loads_within_five_milliseconds(loads: Loads, content: str, format_: str) -> None:
    columns = COLUMNS if format_ != "CSV" else schema("a INT64", "b STRING", "c DATE", "d BOOL")
    loads.put("gs://b/f", content)
    assert best_of(20, lambda: loads.load("gs://b/f", columns, sourceFormat=format_)) < 0.005


def test_ten_thousand_small_files_load_within_seconds(loads: Loads) -> None:
    for number in range(10_000):
        loads.put(f"gs://b/{number}.json", line(number))
    start = time.perf_counter()
    outcome = loads.load("gs://b/*.json", COLUMNS, **JSON)
    assert time.perf_counter() - start < 10
    assert (outcome.rows, outcome.input_files) == (10_000, 10_000)


def test_large_json_loads_at_tens_of_megabytes_a_second(loads: Loads) -> None:
    data = "\n".join(map(line, range(100_000)))
    loads.put("gs://b/f", data)
    seconds = best_of(2, lambda: loads.load("gs://b/f", COLUMNS, **JSON))
    assert len(data) / seconds > 10_000_000
