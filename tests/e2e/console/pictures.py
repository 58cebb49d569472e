"""The pictures of docs/console.md, of a daemon with a busy hour behind it: `python -m tests.e2e.console.pictures`."""

import asyncio
import math
import random
from dataclasses import replace
from datetime import timedelta
from urllib.parse import quote

from playwright.async_api import async_playwright
from tests.support.e2e.browser import LAUNCH, chromium
from tests.support.e2e.populated import Populated, running
from tests.support.places import ROOT

from ingestd.batch.content import Chunk, Progress
from ingestd.batch.phases import Phase
from ingestd.batch.wait import Wait
from ingestd.ops.history import Level, Trouble, TroubleKind

FOLDER = ROOT / "docs" / "images"
PICTURES = {
    "console-overview": ("overview", "light", (1280, 900)),
    "console-overview-dark": ("overview", "dark", (1280, 900)),
    "console-windows-dark": ("windows", "dark", (1280, 620)),
    "console-rules": ("rules", "light", (1280, 560)),
    "console-file": ("", "light", (1280, 760)),
    "console-phone": ("overview", "light", (390, 844)),
    "console-phone-windows": ("windows", "dark", (390, 844)),
}


async def live_an_hour(populated: Populated) -> str:
    """An hour's samples, batches and troubles; the answer is a file that was set aside."""
    assert populated.app.console is not None
    feed, chance = populated.app.console.feed, random.Random(4)
    began = populated.clock.now() - timedelta(hours=1)
    bad = ""
    for step in range(719):
        at = began + timedelta(seconds=5 * step)
        busy = 0 if step % 41 == 7 else int(9 + 6 * math.sin(step / 60) + chance.random() * 5)
        for _ in range(busy):
            record = populated.record(chance.randrange(4_000), (populated.clock.now() - at).total_seconds())
            populated.store.put(populated.journal.done(record), record.to_json())
            wait = 5 + 2.5 * math.sin(step / 90) + chance.random() * 4
            ended = replace(feed.describe(record), created=at - timedelta(seconds=wait), ended=at)
            feed.history.ended(ended, record.sources, [wait, wait * 1.7])
            for index, aside in record.progress.aside.items():
                bad = record.files[index].ref.url
                feed.history.trouble(
                    Trouble(
                        at,
                        TroubleKind.QUARANTINED,
                        bad,
                        f"{aside.fate}: {aside.why}",
                        record.rule.name,
                        record.dest,
                        record.event_id,
                    )
                )
        feed.history.tick(at, Level(windows=320, waiting=52_000, active=busy // 4))
    now = populated.clock.now()
    for number in range(3):
        record = populated.record(number, 0)
        pending = Progress(chunks=(Chunk(1, tuple(range(len(record.files)))),), jobs=1)
        populated.let_go(replace(record, phase=Phase.ACCEPTED, progress=pending, rows=None))
    missing = "Not found: Dataset acme-data:web_archive was not found in location US"
    record = replace(populated.record(7, 0), phase=Phase.ACCEPTED, dest="web_archive.clicks", error=missing, rows=None)
    populated.let_go(replace(record, wait=Wait(until=now + timedelta(minutes=4))))
    return bad


async def take() -> None:
    FOLDER.mkdir(exist_ok=True)
    populated = Populated()
    bad = await live_an_hour(populated)
    async with running(populated), async_playwright() as playwright:
        await populated.open_windows(320, files=40)
        browser = await playwright.chromium.launch(executable_path=chromium(), args=LAUNCH)
        for name, (section, scheme, (width, height)) in PICTURES.items():
            context = await browser.new_context(
                viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
            )
            page = await context.new_page()
            await page.goto(f"{populated.url}/#{section or 'file/' + quote(bad, safe='')}")
            await page.wait_for_timeout(1_200)
            await page.screenshot(path=FOLDER / f"{name}.png")
            await context.close()
        await browser.close()


if __name__ == "__main__":
    asyncio.run(take())
