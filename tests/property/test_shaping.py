"""Random rows, random shapings: BigQuery's engine and plain Python agree."""

import json
from typing import Any

import pytest
from tests.property.shaping_reference import COLUMNS, SCHEMA, sample
from tests.support.tables import Tables

from ingestd.rules.schema import CopyMethod
from ingestd.warehouse.statements import Publication

ROUNDS, EACH = 6, 10


def text(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps({name: row[name] for name in COLUMNS}) for row in rows)


@pytest.mark.parametrize("start", range(0, ROUNDS * EACH, EACH))
def test_statements_do_what_plain_python_does(start: int) -> None:
    tables = Tables()
    for seed in range(start, start + EACH):
        one = sample(seed)
        landed = tables.make(f"temp.t{seed}", SCHEMA, one.rows)
        target = tables.make(f"d.t{seed}", SCHEMA)
        branches = tuple(tables.make(f"d.t{seed}_{number}", SCHEMA) for number in range(one.branches))
        method = (CopyMethod.QUERY, CopyMethod.DML)[seed % 2]
        unmatched = tables.publish(Publication(landed, target, one.shaping, branches, method=method))
        found = {number: tables.rows(f"d.t{seed}" + ("" if number < 0 else f"_{number}")) for number in one.expected}
        assert {number: text(rows) for number, rows in found.items()} == {
            number: text(rows) for number, rows in one.expected.items()
        }, (seed, one.shaping)
        assert unmatched == one.unmatched
    tables.core.close()
