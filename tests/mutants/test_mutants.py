"""The tests can fail: every guard that is taken out is noticed, by the test that is named for it.

All of them on `make mutants`; here, a few that change from day to day, and that the table has not rotted.
"""

import ast
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.mutants.guards import GUARDS, Guard
from tests.mutants.run import SOON, run, source_of
from tests.support.places import ROOT

A_FEW = 3


def todays() -> list[Guard]:
    """Every guard gets its turn within some days, and all runs of a day look at the same ones."""
    first = datetime.now(UTC).toordinal() * A_FEW
    return [GUARDS[(first + number) % len(GUARDS)] for number in range(A_FEW)]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_is_where_the_table_says(guard: Guard) -> None:
    source = source_of(guard)
    assert source.count(guard.text) == 1, "the code has moved on: say in guards.py where the guard is now"
    ast.parse(source.replace(guard.text, guard.without))
    file, _, name = guard.test.partition("::")
    tests = ast.parse((ROOT / "tests" / file).read_text())
    assert name in {node.name for node in tests.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_guards_have_names_of_their_own() -> None:
    assert len({guard.name for guard in GUARDS}) == len(GUARDS) >= 24
    assert Path(ROOT / "src" / "ingestd").is_dir()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("guard", todays(), ids=lambda guard: guard.name)
def test_a_guard_that_is_taken_out_is_missed(guard: Guard) -> None:
    outcome = run(guard)
    assert outcome.caught, outcome.said
    assert outcome.seconds < SOON
