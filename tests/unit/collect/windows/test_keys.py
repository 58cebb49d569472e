"""Which files share a window."""

from datetime import UTC, datetime

import pytest
from tests.support.rules import rule

from ingestd.collect.windows.model import window_of
from ingestd.model.objects import FileVersion, Generation, ObjectRef

TIME = datetime(2024, 3, 5, 21, 7, tzinfo=UTC)


@pytest.mark.parametrize(("told", "windows"), [(True, 2), (False, 1)])
def test_groups_of_the_pattern_are_told_apart_when_asked(told: bool, windows: int) -> None:
    taken = rule(Dest={"Table": "d.t", "Pattern": r"/in/(\w)\d\.json"}, Batch={"UsePatternHash": told})
    files = [
        FileVersion(ObjectRef("b", f"in/{name}.json"), Generation(1), event_time=TIME) for name in ("a1", "a2", "b1")
    ]
    assert len({window_of(taken, file, "d.t", 95) for file in files}) == windows
