"""What happens later: lease expiries and backoffs, in order of their time."""

import heapq
from typing import Protocol


class Due(Protocol):
    """Something scheduled. `live` 0 means nothing is left to do, so it need not wake anyone."""

    live: int

    def fire(self, when: float) -> None: ...


class Schedule:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Due]] = []
        self._sequence = 0

    def push(self, when: float, due: Due) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (when, self._sequence, due))

    def next_time(self) -> float | None:
        heap = self._heap
        while heap and heap[0][2].live <= 0:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def run_due(self, now: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= now:
            when, _, due = heapq.heappop(heap)
            if due.live > 0:
                due.fire(when)  # not `now`: what follows from it must not depend on how late anyone looked
