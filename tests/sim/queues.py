"""The queues of ordered tables as somebody sees them who sees every write: nobody is chosen over one who waits."""

from collections import defaultdict
from dataclasses import dataclass, field

import orjson

_FOLDER = "journal/ordered/"
_SLACK = 30.0  # seconds between looking into the queue and writing down what is next, with every call being repeated


@dataclass(slots=True)
class Queued:
    """One table's."""

    waiting: dict[str, float] = field(default_factory=dict)
    current: str = ""
    held: bool = False


class QueueWatch:
    def __init__(self, standing_still: float = 0.0) -> None:
        """`standing_still`: for so long a request may hang that writes down what was next when it was sent."""
        self._slack = _SLACK + standing_still
        self.queues: dict[str, Queued] = defaultdict(Queued)
        self.overtaken: list[str] = []
        self.left_out: set[str] = set()  # success files below their tables, by people

    def saw(self, name: str, data: bytes | None, now: float) -> None:
        """An object was written, or deleted (no data)."""
        if not name.startswith(_FOLDER):
            return
        key, _, rest = name.removeprefix(_FOLDER).partition("/")
        queue = self.queues[key]
        if rest.startswith("queue/"):
            if data is None:
                queue.waiting.pop(rest.removeprefix("queue/"), None)
            else:
                queue.waiting.setdefault(rest.removeprefix("queue/"), now)
        elif data is not None:
            state = orjson.loads(data)
            self._chosen(queue, state["Current"], now)
            queue.held = bool(state["Hold"])
            self.left_out |= {f"{key.rpartition('-')[0]}/{one.rpartition('@')[0]}" for one in state["Skipped"]}

    def _chosen(self, queue: Queued, current: str, now: float) -> None:
        if current and current != queue.current:
            passed = [one for one, since in queue.waiting.items() if one < current and since < now - self._slack]
            self.overtaken += [f"G6: {current} was chosen while {one} was waiting" for one in passed]
        queue.current = current
