"""One browser and one populated daemon for all tests of the page; a daemon of its own for those that change it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, expect, sync_playwright
from tests.e2e.console.served import WINDOWS, Served
from tests.support.e2e.browser import LAUNCH, MISSING, chromium

expect.set_options(timeout=30_000)  # for what never happens; a busy machine is slow, not wrong


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
