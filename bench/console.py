"""The console: how long its API and its page take with 10,000 open windows and 100,000 batches in the journal.

The daemon is the real one: its intake opened the windows, its HTTP face answers over loopback. Cloud Storage is a dict.
The 100,000 batches have their records in the journal, a third of them of one table; the daemon's memory holds the last
of them, so a file's story is measured twice: of one that memory knows, and of one that is gone from its bucket and has
to be looked for among all records of that table (without the time that a real bucket takes for a listing). The page is
measured in Chromium, where there is one: from opening it to the first rows of windows on the screen.

`python -m bench.console` prints a table and, last, one line of JSON. `--windows` and `--batches` change the sizes.
"""

import argparse
import asyncio
import json
import statistics
import time
from typing import Any

import httpx
from tests.support.e2e.browser import LAUNCH, chromium
from tests.support.e2e.populated import Populated, running

WINDOWS, BATCHES, TABLES = 10_000, 100_000, 20
ROUNDS = 15
TARGET = 200.0  # milliseconds


async def found(client: httpx.AsyncClient, path: str) -> bool:
    """Whether the journal has a story of the file at all: an empty answer would be a fast one."""
    answer = await client.get("/api/v1/explain", params={"path": path, "full": 1})
    return bool(answer.json()["history"])


async def measure(client: httpx.AsyncClient, path: str, parameters: dict[str, Any]) -> tuple[float, float, int]:
    """Milliseconds in the middle and at worst, and the size of the answer."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        answer = await client.get(f"/api/v1/{path}", params=parameters)
        times.append((time.perf_counter() - start) * 1000)
        answer.raise_for_status()
    return statistics.median(times), max(times), len(answer.content)


async def open_page(url: str) -> float | None:
    """Milliseconds until the first rows of windows are on the screen; None without a browser."""
    found = chromium()
    if found is None:
        return None
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=LAUNCH)
        times = []
        for _ in range(3):
            context = await browser.new_context(viewport={"width": 1280, "height": 900})
            page = await context.new_page()
            start = time.perf_counter()
            await page.goto(f"{url}/#windows")
            await page.wait_for_selector(".grid-row .count-down")
            times.append((time.perf_counter() - start) * 1000)
            await context.close()
        await browser.close()
        return min(times)


async def main(windows: int, batches: int) -> None:
    populated = Populated()
    async with running(populated):
        start = time.perf_counter()
        await populated.end_batches(batches, tables=TABLES)
        await populated.open_windows(windows)
        print(f"{windows:,} windows and {batches:,} batches, made in {time.perf_counter() - start:.0f} s\n")
        console = populated.app.console
        assert console is not None
        recent = next(iter(console.feed.history.recent()))
        first = populated.first_file
        questions: dict[str, tuple[str, dict[str, Any]]] = {
            "overview": ("overview", {}),
            "series of a day": ("series", {"minutes": 1_440}),
            "windows, first page": ("windows", {"limit": 100}),
            "windows, last page": ("windows", {"limit": 100, "offset": max(0, windows - 100)}),
            "windows by size": ("windows", {"limit": 500, "sort": "-size"}),
            "windows, filtered": ("windows", {"q": "shop-0777"}),
            "batches": ("batches", {"limit": 100}),
            "batches, filtered": ("batches", {"q": "shop.orders_7"}),
            "one batch": (f"batches/{recent.event_id}", {}),
            "errors": ("errors", {"limit": 100}),
            "rules": ("rules", {}),
            "quotas": ("quotas", {}),
            "a file, from memory": ("explain", {"path": recent.source}),
            "a file, from the journal": ("explain", {"path": first, "full": 1}),
        }
        figures: dict[str, float] = {}
        print(f"{'question':28}{'median ms':>11}{'worst ms':>11}{'KiB':>9}")
        async with httpx.AsyncClient(base_url=populated.url, trust_env=False, timeout=60) as client:
            assert await found(client, first), "the journal does not know the file"
            for name, (path, parameters) in questions.items():
                middle, worst, size = await measure(client, path, parameters)
                figures[name] = round(middle, 2)
                print(f"{name:28}{middle:>11.1f}{worst:>11.1f}{size / 1024:>9.1f}")
        page = await open_page(populated.url)
        print(f"{'page with windows':28}{page:>11.0f}" if page else "page: no Chromium here")
    slowest = max(figures.values())
    verdict = "met" if slowest < TARGET else "MISSED"
    print(f"\nslowest answer: {slowest:.0f} ms, target {TARGET:.0f} ms: {verdict}")
    print(
        json.dumps({"windows": windows, "batches": batches, "milliseconds": figures, "page_ms": page and round(page)})
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=WINDOWS)
    parser.add_argument("--batches", type=int, default=BATCHES)
    given = parser.parse_args()
    asyncio.run(main(given.windows, given.batches))
