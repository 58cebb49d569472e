"""What a living Spark session must offer, whether a JVM of our own stands behind it or a Connect server."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Work:
    """What is running right now."""

    jobs: int = 0
    stages: int = 0
    tasks: int = 0
    tasks_done: int = 0
    tasks_failed: int = 0


class Engine(Protocol):
    """One session. Every method may block, and is called in a thread; none is used after it is closed or killed."""

    @property
    def session(self) -> "SparkSession": ...

    @property
    def application(self) -> str:
        """Its name for logs and for Spark's own web pages."""
        ...

    @property
    def alive(self) -> bool:
        """Cheap: whether the process is there. A hung one is; `beat` tells."""
        ...

    def last_words(self) -> str:
        """What it printed last, for the log after its death."""
        ...

    def tagged(self, tag: str, pool: str) -> AbstractContextManager["SparkSession"]:
        """Jobs started in this thread carry the tag and run in that pool; the session given is this thread's own."""
        ...

    def cancel(self, tag: str) -> None:
        """Stop the jobs with that tag that run now."""
        ...

    def beat(self) -> None:
        """Returns when the session answers."""
        ...

    def work(self) -> Work: ...

    def close(self) -> None:
        """End it in an orderly way. Whoever has waited too long for that calls `kill`, from another thread."""
        ...

    def kill(self) -> None:
        """End it now; calls that wait for it fail."""
        ...
