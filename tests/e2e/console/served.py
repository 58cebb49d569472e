"""A populated daemon beside the browser."""

from collections.abc import Callable
from typing import Any

from tests.support.background import Background
from tests.support.e2e.populated import Populated, running

WINDOWS = 2_000  # the benchmark has 10,000; what the page does with them does not depend on it


class Served:
    """A populated daemon on an event loop in a thread, so that the browser's blocking calls leave it alone."""

    def __init__(self, **settings: Any) -> None:
        self._beside = Background("daemon")
        self.daemon = self.run(self._make(settings))
        self._context = running(self.daemon)
        self.run(self._context.__aenter__())

    async def _make(self, settings: dict[str, Any]) -> Populated:
        return Populated(**settings)

    def run(self, work: Any) -> Any:
        return self._beside.run(work)

    def call(self, function: Callable[[], Any]) -> Any:
        async def called() -> Any:
            return function()

        return self.run(called())

    @property
    def url(self) -> str:
        return self.daemon.url

    def close(self) -> None:
        self.run(self._context.__aexit__(None, None, None))
        self._beside.close()
