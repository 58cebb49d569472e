"""The conformance table: each GoogleSQL query of `sql_cases.yaml` answers what the language's reference says."""

import math
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from ingestd.formats.errors import BigQueryError
from ingestd.model.schema import Mode

CASES = yaml.safe_load((Path(__file__).parent / "sql_cases.yaml").read_text())
FLAT = [
    pytest.param(case, id=f"{family}-{index}") for family, cases in CASES.items() for index, case in enumerate(cases)
]


def printed(value: Any) -> Any:
    """A value the way the table writes it."""
    if isinstance(value, datetime):
        fraction = f"{value.microsecond:06d}"
        shown = "" if value.microsecond == 0 else "." + (fraction[:3] if fraction.endswith("000") else fraction)
        return f"{value:%Y-%m-%d %H:%M:%S}{shown}" + ("+00" if value.tzinfo else "")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, bytes):
        return repr(value)
    if isinstance(value, dict):
        return {key: printed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [printed(item) for item in value]
    return value


def same(actual: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(actual, float):
        return math.isclose(actual, expected, rel_tol=1e-12, abs_tol=1e-12)
    if isinstance(expected, list) and isinstance(actual, list):
        return len(actual) == len(expected) and all(map(same, actual, expected))
    return type(actual) is type(expected) and actual == expected


@pytest.mark.parametrize("case", FLAT)
def test_a_query_answers_what_the_reference_says(case: dict[str, Any], warehouse: Any) -> None:
    if "error" in case:
        with pytest.raises(BigQueryError) as caught:
            warehouse.rows(case["sql"])
        assert case["error"] in caught.value.message
        assert caught.value.reason == case.get("reason", "invalidQuery")
        return
    result = warehouse.run(case["sql"]).last_rows
    rows = [printed(row) for row in warehouse.read(result.relation)]
    assert same(rows, case["rows"]), rows
    if "types" in case:
        shown = [f"ARRAY<{f.type}>" if f.mode is Mode.REPEATED else str(f.type) for f in result.schema]
        assert shown == case["types"]


def test_the_table_is_large_enough_to_mean_something() -> None:
    assert len(FLAT) >= 250
