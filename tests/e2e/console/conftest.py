"""One browser and one populated daemon for all tests of the page; a daemon of its own for those that change it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, expect, sync_playwright
from tests.e2e.console.browser import LAUNCH, MISSING, chromium
from tests.e2e.console.populated import Populated, running

WINDOWS = 2_000  # the benchmark has 10,000; what the page does with them does not depend on it


expect.set_options(timeout=30_000)  # for what never happens; a busy machine is slow, not wrong


class Served:
    """A populated daemon on an event loop in a thread, so that the browser's blocking calls leave it alone."""

    def __init__(self, **settings: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="daemon")
        self._thread.start()
        self.daemon = self.run(self._make(settings))
        self._context = running(self.daemon)
        self.run(self._context.__aenter__())

    async def _make(self, settings: dict[str, Any]) -> Populated:
        return Populated(**settings)

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def call(self, function: Callable[[], Any]) -> Any:
        async def called() -> Any:
            return function()

        return self.run(called())

    @property
    def url(self) -> str:
        return self.daemon.url

    def close(self) -> None:
        self.run(self._context.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    one = Served()
    one.run(one.daemon.open_windows(WINDOWS))
    one.run(one.daemon.end_batches(200))
    yield one
    one.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = chromium()
    if found is None:
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        try:
            launched = playwright.chromium.launch(executable_path=found, args=LAUNCH)
        except Error as error:
            pytest.skip(f"{found} does not start: {missing_library(error)}; `make browser` says more")
        yield launched
        launched.close()


def missing_library(error: Error) -> str:
    """The line that says why, of the page that Playwright prints."""
    lines = [line.strip() for line in str(error).splitlines() if "error while loading" in line or "cannot open" in line]
    return lines[0] if lines else str(error).partition("\n")[0]


@pytest.fixture
def complaints() -> list[str]:
    """What the browser objected to: script errors, blocked loads."""
    return []


@pytest.fixture
def context(browser: Browser, served: Served, complaints: list[str]) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1280, "height": 900}, base_url=served.url)
    made.set_default_timeout(30_000)
    made.on("weberror", lambda error: complaints.append(str(error.error)))
    made.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    yield made
    made.close()
    assert not complaints


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()
