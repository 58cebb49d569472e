"""Where a process stands with a window: four states, and no other steps between them than these."""

import pytest
from tests.unit.collect.windows.many import DUE, files, head, window

from ingestd.collect.windows.pending import IllegalWindowStep, OpenWindow, Pending, WindowState

STEPS = {
    (WindowState.ACQUIRING, WindowState.MEMBER),
    (WindowState.ACQUIRING, WindowState.OWNER),
    (WindowState.MEMBER, WindowState.CLOSING),
    (WindowState.MEMBER, WindowState.ACQUIRING),
    (WindowState.OWNER, WindowState.CLOSING),
    (WindowState.OWNER, WindowState.ACQUIRING),
    (WindowState.CLOSING, WindowState.ACQUIRING),
}


@pytest.mark.parametrize("before", WindowState)
@pytest.mark.parametrize("after", WindowState)
def test_a_window_takes_these_steps_and_no_others(before: WindowState, after: WindowState) -> None:
    one = OpenWindow(window(0), head(0), DUE, before)
    if before is after or (before, after) in STEPS:
        one.become(after)
        assert one.state is after
    else:
        with pytest.raises(IllegalWindowStep):
            one.become(after)
        assert one.state is before


def test_files_that_are_hurried_wait_no_more_and_those_after_them_do() -> None:
    one = OpenWindow(window(0), head(0), DUE)
    one.hurry()
    assert not one.wake.is_set(), "nothing is pending"
    first, second = [Pending.of(file, None) for file in files(2)]
    one.add(first, 100.0)
    one.hurry()
    assert one.wake.is_set() and one.oldest < 0
    one.take(1)
    one.add(second, 200.0)
    assert one.oldest == 200.0
