"""What commands print fits 80 columns, and what they read is understood."""

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from ingestd.cli.backfill import moment
from ingestd.cli.errors import CommandError
from ingestd.cli.tables import LinedUp, ago, fitted, span

LONG = "project.dataset.a_table_with_a_name_that_is_much_longer_than_anybody_would_like"


def shown(width: int, *rows: tuple[str, ...]) -> list[str]:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), force_terminal=False)  # noqa: SIM115, PTH123
    with console.file:
        console.print(LinedUp("Title", ("batch", "<table", ">files"), rows))
    return console.export_text().splitlines()


def test_names_give_way_and_ids_and_numbers_do_not() -> None:
    lines = shown(60, ("4297566144507445812", LONG, "1,234,567"))
    assert max(map(len, lines)) <= 60
    assert "4297566144507445812" in lines[-2]
    assert "1,234,567" in lines[-2]
    assert "…" in lines[-2]


def test_a_table_that_fits_is_left_alone() -> None:
    assert fitted([10, 20], [False, True], 80) == [10, 20]
    assert fitted([10, 60, 40], [False, True, True], 80) == [10, 30, 31]
    assert fitted([100, 3], [False, True], 20) == [100, 3], "what cannot give way does not"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.4, "59s"), (61, "1m01s"), (3720, "1h02m"), (-4, "-4s"), (200_000, "2d07h")]
)
def test_spans_are_short(seconds: float, text: str) -> None:
    assert span(timedelta(seconds=seconds)) == text


def test_moments_are_dates_or_so_long_ago() -> None:
    now = datetime.now(UTC)
    assert moment("") is None
    assert moment("2024-05-01") == datetime(2024, 5, 1, tzinfo=UTC)
    assert moment("2024-05-01T12:00:00+02:00") == datetime(2024, 5, 1, 10, tzinfo=UTC)
    week = moment("7d")
    assert week is not None
    assert timedelta(days=7) - (now - week) < timedelta(seconds=5)
    with pytest.raises(CommandError, match="yesterday"):
        moment("yesterday")
    assert ago(None, now) == "never"
    assert ago(now + timedelta(seconds=5), now) == "0s ago", "clocks differ"
