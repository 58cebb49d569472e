"""How long files are known, and how long batches are tried: settings that promise more than is kept are refused."""

import pytest

from ingestd.documents import DocumentError
from ingestd.settings import Settings
from ingestd.settings_loader import load_settings


def recovery(**given: str) -> Settings:
    environ = {f"INGESTD_RECOVERY__{key.upper()}": value for key, value in given.items()}
    return load_settings(Settings, None, {"INGESTD_PROJECT": "p", **environ})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"horizon": "44d"}, "45 days"),
        ({"give_up_after": "151d"}, "150 days"),
        ({"horizon": "100d", "give_up_after": "70d"}, "horizon is 100 days, yet .* 101 days .*: raise horizon"),
    ],
)
def test_a_horizon_shorter_than_a_file_may_come_again_is_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        recovery(**given)


@pytest.mark.parametrize(
    ("horizon", "give_up_after", "days"),
    [("45d", "14d", (45, 14)), ("101d", "70d", (101, 70)), ("400d", "150d", (400, 150))],
)
def test_the_longest_that_is_kept_is_taken(horizon: str, give_up_after: str, days: tuple[int, int]) -> None:
    found = recovery(horizon=horizon, give_up_after=give_up_after).recovery
    assert (found.horizon.days, found.give_up_after.days) == days
