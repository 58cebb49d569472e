"""What a failed script leaves behind."""

import pytest

from ingestd.batch.stages.query import Statement, committed

SCRIPT = "INSERT a;\nBEGIN TRANSACTION;\nINSERT b;\nCOMMIT TRANSACTION;\nINSERT c;"


def ran(*kinds: str, line: int = 0) -> list[Statement]:
    return [
        Statement(number, kind.rstrip("!"), 1, kind.endswith("!"), kind.rstrip("!") in ("INSERT", "CREATE_TABLE"), line)
        for number, kind in enumerate(kinds, 1)
    ]


@pytest.mark.parametrize(
    ("kinds", "kept"),
    [
        (("INSERT", "INSERT!"), [1]),
        (("SELECT", "INSERT!"), []),
        (("CREATE_TABLE", "INSERT", "SELECT!"), [1, 2]),
        (("INSERT", "BEGIN_TRANSACTION", "INSERT", "INSERT!"), [1]),
        (("BEGIN_TRANSACTION", "INSERT", "COMMIT_TRANSACTION", "INSERT!"), [2]),
        (("BEGIN_TRANSACTION", "INSERT", "COMMIT_TRANSACTION!"), []),
        (("BEGIN_TRANSACTION", "INSERT", "ROLLBACK_TRANSACTION", "INSERT", "INSERT!"), [4]),
    ],
)
def test_what_was_committed_before_a_script_failed(kinds: tuple[str, ...], kept: list[int]) -> None:
    assert [one.number for one in committed(ran(*kinds))] == kept


def test_the_scripts_lines_tell_of_a_transaction_that_no_statement_does() -> None:
    first, second, third = (ran("INSERT", line=line)[0] for line in (1, 3, 5))
    assert committed([first, second], SCRIPT) == (first,)
    assert committed([first, second, third], SCRIPT) == (first, second, third)  # it got past the commit
