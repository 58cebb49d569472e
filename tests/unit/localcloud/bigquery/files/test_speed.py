"""What a load costs grows with its files and rows and no faster: each measured against the other in one run.

CPU time of this very process is compared with itself, so a slow or busy machine changes nothing.
"""

import json
import time
from collections.abc import Callable

from tests.support.loads import Loads, schema

COLUMNS = schema("id INT64", "name STRING", "at TIMESTAMP", "tags STRING REPEATED")
JSON = {"sourceFormat": "NEWLINE_DELIMITED_JSON"}


def line(number: int) -> str:
    row = {"id": number, "name": f"name {number}", "at": "2024-01-01T00:00:00Z", "tags": ["a", "b"]}
    return json.dumps(row)


def cost(action: Callable[[], object], runs: int = 3) -> float:
    """CPU seconds of its cheapest run."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def test_sixteen_times_the_files_cost_at_most_forty_times_as_much(loads: Loads) -> None:
    for number in range(4_000):
        loads.put(f"gs://b/all/{number}.json", line(number))
    for number in range(250):
        loads.put(f"gs://b/few/{number}.json", line(number))
    few = cost(lambda: loads.load("gs://b/few/*.json", COLUMNS, **JSON))
    outcome = loads.load("gs://b/all/*.json", COLUMNS, **JSON)
    assert (outcome.rows, outcome.input_files) == (4_000, 4_000)
    assert cost(lambda: loads.load("gs://b/all/*.json", COLUMNS, **JSON), 2) < 40 * few


def test_sixteen_times_the_rows_cost_at_most_forty_times_as_much(loads: Loads) -> None:
    loads.put("gs://b/few", "\n".join(map(line, range(5_000))))
    loads.put("gs://b/all", "\n".join(map(line, range(80_000))))
    few = cost(lambda: loads.load("gs://b/few", COLUMNS, **JSON))
    assert cost(lambda: loads.load("gs://b/all", COLUMNS, **JSON), 2) < 40 * few


def test_one_row_costs_less_than_ten_thousand(loads: Loads) -> None:
    """Nothing is set up anew for a load: of small files there are many."""
    loads.put("gs://b/one", line(1))
    loads.put("gs://b/all", "\n".join(map(line, range(10_000))))
    one = cost(lambda: loads.load("gs://b/one", COLUMNS, **JSON), 10)
    assert one < cost(lambda: loads.load("gs://b/all", COLUMNS, **JSON))
