"""Engines without Spark."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ingestd.spark.session.engine import Work


class Fake:
    application = "fake"

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.killed = False

    @property
    def session(self) -> Any:
        return self

    @property
    def alive(self) -> bool:
        return not self.ended.is_set()

    @contextmanager
    def tagged(self, tag: str, pool: str) -> Iterator[Any]:
        yield self

    def cancel(self, tag: str) -> None: ...

    def beat(self) -> None: ...

    def work(self) -> Work:
        return Work()

    def last_words(self) -> str:
        return "so it goes"

    def close(self) -> None:
        self.ended.set()

    def kill(self) -> None:
        self.killed = True
        self.ended.set()
