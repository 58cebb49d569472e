"""The console in a real Chromium, on a daemon with thousands of windows."""

import re
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.e2e.console.served import WINDOWS, Served

from ingestd.batch.phases import Phase
from ingestd.batch.wait import Wait
from ingestd.ops.history import Trouble, TroubleKind

pytestmark = pytest.mark.xdist_group("console")

# The contrast of every visible text with what is behind it, by WCAG's formula; half-transparent backgrounds are mixed.
CONTRAST = """() => {
  const parse = (text) => [...text.match(/[\\d.]+/g).map(Number), 1].slice(0, 4);
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const linear = (part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const light = (rgb) => 0.2126 * linear(rgb[0]) + 0.7152 * linear(rgb[1]) + 0.0722 * linear(rgb[2]);
  const behind = (element) => { const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]); };
  const poor = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest('svg, .unseen, .skip, noscript, :disabled')) continue;
    const back = behind(element), text = over(parse(getComputedStyle(element).color), back);
    const [a, b] = [light(text), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(`${element.className}: ${element.textContent.slice(0, 40)} ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


def open_section(page: Page, section: str) -> None:
    page.goto(f"/#{section}")
    expect(page.locator("#state")).to_have_text("ready")


def test_the_overview_shows_what_is_going_on(page: Page, served: Served) -> None:
    open_section(page, "overview")
    expect(page.locator(".tile", has_text="Open windows").locator(".value")).to_have_text(f"{WINDOWS:,}")
    expect(page.locator("#where")).to_contain_text("acme-data")
    expect(page.get_by_label("Files per second: ").first).to_be_visible()
    expect(page.locator("section[aria-label='Latest trouble'] tbody tr").first).to_contain_text("JSON parsing error")


def test_thousands_of_windows_are_a_page_of_rows_and_reach_the_last_one(page: Page) -> None:
    open_section(page, "windows")
    rows = page.locator(".grid-row")
    expect(rows.first).to_contain_text("gs://acme-landing/")
    assert rows.count() < 60, "only rows in sight exist"
    page.locator(".virtual").evaluate("element => { element.scrollTop = element.scrollHeight; }")
    last = page.locator(f"[aria-rowindex='{WINDOWS + 1}']")
    expect(last).to_contain_text("gs://acme-landing/")
    assert rows.count() < 60
    page.get_by_label("Filter by table, rule or folder").fill("shop-01777")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("gs://acme-landing/orders/shop-01777")


def test_a_window_counts_down_without_asking(page: Page) -> None:
    open_section(page, "windows")
    down = page.locator(".count-down").first
    before = down.inner_text()
    page.route("**/api/**", lambda route: route.abort())
    page.wait_for_function("before => document.querySelector('.count-down').textContent !== before", arg=before)
    page.unroute("**/api/**")


def test_where_is_my_file_tells_its_whole_story(page: Page, served: Served) -> None:
    record = served.daemon.record(1, 0)
    served.daemon.store.put(served.daemon.journal.done(record), record.to_json())
    assert served.daemon.app.console is not None
    served.run(served.daemon.app.console.feed.ended(record))
    page.goto("/")
    page.keyboard.press("/")  # straight to the search box
    page.keyboard.type(record.files[0].ref.url)
    page.keyboard.press("Enter")
    steps = page.locator(".steps li")
    expect(steps.filter(has_text="uploaded")).to_contain_text("48,000 bytes")
    expect(steps.filter(has_text="rule")).to_contain_text("orders")
    expect(steps.filter(has_text="load job")).to_contain_text(f"{record.rows:,} rows")
    expect(steps.last).to_contain_text("done")
    page.get_by_role("link", name=record.event_id).click()
    expect(page.locator("h1")).to_have_text(f"Batch {record.event_id}")
    expect(page.locator("td", has_text=record.files[0].ref.url)).to_be_visible()


def test_a_file_nobody_knows_is_said_to_be_unknown(page: Page) -> None:
    page.goto("/#file/" + "gs%3A%2F%2Fnowhere%2Fat%2Fall.json")
    expect(page.get_by_text("No batch has taken it.")).to_be_visible()
    expect(page.get_by_text("no rule matches")).to_be_visible()


def test_rules_show_their_counters_and_what_lint_says(page: Page) -> None:
    open_section(page, "rules")
    legacy = page.locator("tbody tr", has_text="legacy")
    expect(legacy).to_contain_text("disabled")
    expect(legacy).to_contain_text("paths start with '/'")
    orders = page.locator("tbody tr", has_text="shop.orders")
    assert int(orders.locator("td[data-label='Rows']").inner_text().replace(",", "")) > 10_000


def test_names_from_outside_never_become_markup(page: Page, served: Served, complaints: list[str]) -> None:
    evil = "gs://b/<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    history = served.daemon.app.console.feed.history  # type: ignore[union-attr]
    trouble = Trouble(served.daemon.clock.now(), TroubleKind.REFUSED, evil, "<b>bold</b> reason", rule="'\"><i>")
    served.call(lambda: history.trouble(trouble))
    open_section(page, "errors")
    row = page.locator("tbody tr").first
    expect(row).to_contain_text("<script>")
    expect(row).to_contain_text("<b>bold</b> reason")
    assert page.locator("main img, main script, main b, main i").count() == 0
    row.get_by_role("link").click()
    expect(page.locator("main")).to_contain_text("<img src=x")
    assert "owned" not in page.title()
    assert not complaints


def test_the_page_loads_nothing_from_elsewhere_and_allows_no_foreign_script(page: Page, served: Served) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    answer = page.goto("/")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    page.wait_for_load_state("networkidle")
    assert all(url.startswith(served.url) for url in asked)


def test_a_refresh_keeps_focus_selection_and_scroll(page: Page) -> None:
    open_section(page, "batches")
    page.set_viewport_size({"width": 1280, "height": 500})
    link = page.locator("tbody tr").nth(12).get_by_role("link").first
    link.focus()
    marked = link.evaluate("element => { element.dataset.mine = 'yes'; return scrollY; }")
    with page.expect_response(re.compile("api/v1/batches")):
        pass
    page.wait_for_timeout(100)
    assert page.evaluate("() => [document.activeElement.closest('tr') !== null, scrollY]") == [True, marked]


def test_a_daemon_that_is_gone_is_noticed_and_what_was_shown_stays(page: Page, complaints: list[str]) -> None:
    open_section(page, "batches")
    page.route("**/api/**", lambda route: route.abort())
    expect(page.locator("#lost")).to_contain_text("No answer from the daemon")
    assert page.locator("tbody tr").count() > 10
    page.unroute("**/api/**")
    expect(page.locator("#lost")).to_be_hidden(timeout=15_000)
    complaints.clear()  # the browser reports the requests that were cut


def test_everything_is_reached_with_the_keyboard_in_reading_order(page: Page) -> None:
    page.goto("/")
    expect(page.locator("#state")).to_have_text("ready")
    expect(page.locator("h1")).to_have_count(1)  # readers of screens go from heading to heading
    seen: list[str] = []
    for _ in range(16):
        page.keyboard.press("Tab")
        where: dict[str, Any] = page.evaluate(
            """() => { const one = document.activeElement, style = getComputedStyle(one);
            return { name: (one.getAttribute('aria-label') || one.textContent || one.id).trim().split(/\\s+/)[0],
                     outline: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2 }; }"""
        )
        assert where["outline"], f"{where['name']} shows no focus"
        seen.append(where["name"])
    order = ["Skip", "path", "Find", "Switch", "Overview", "Windows", "Running", "Batches", "Errors", "Rules", "Quotas"]
    assert [name for name in seen if name in order][: len(order)] == order
    page.keyboard.press("Shift+Tab")
    page.locator("#nav a", has_text="Rules").focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Rules")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_colour_schemes(browser: Browser, served: Served, scheme: Any) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme, base_url=served.url)
    page = context.new_page()
    backs = set()
    for section in ("overview", "errors", "rules"):
        open_section(page, section)
        page.wait_for_timeout(150)
        assert page.evaluate(CONTRAST) == []
        backs.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backs) == 1
    page.get_by_label("Switch between light and dark").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") not in backs
    page.reload()
    expect(page.locator("#state")).to_have_text("ready")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") not in backs, "the choice is kept"
    context.close()


def test_nothing_is_cut_off_on_a_phone(browser: Browser, served: Served) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, base_url=served.url, has_touch=True)
    page = context.new_page()
    for section in ("overview", "windows", "batches", "errors", "rules", "settings"):
        open_section(page, section)
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, section
    context.close()


def test_a_batch_on_a_phone_has_its_words_beside_their_labels(browser: Browser, served: Served) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, base_url=served.url, has_touch=True)
    page = context.new_page()
    open_section(page, "batches")
    page.get_by_label("Kind").or_(page.locator("section select")).first.select_option("failed")
    error = page.locator("td[data-label='First file'] .error-text").first
    expect(error).to_be_visible()
    box, badge = error.bounding_box(), page.locator("td[data-label='End'] .badge").first.bounding_box()
    assert box is not None
    assert badge is not None
    assert box["x"] > 100, "not squeezed into the column of the labels"
    assert box["width"] > 200
    assert badge["width"] < 100, "a badge is as wide as its word"
    context.close()


AXES = """async ([most, times, seconds]) => {
  const { Plot, TIMES } = await import("/page/plot.js");
  const { exact, duration } = await import("/page/dom.js");
  const plot = new Plot({ title: "t", keys: ["k"], format: times ? duration : exact, steps: times ? TIMES : null });
  document.querySelector("main").append(plot.element);
  plot.show([1700000000 + 7, 1700000000 + 7 + seconds], [[0, most]]);
  const of = (kind) => [...plot.svg.querySelectorAll(kind)];
  const left = plot.svg.getBoundingClientRect().left;
  const words = (kind) => of(kind).map((one) => one.textContent);
  const found = { values: words(".tick"), moments: words(".moment"),
    cut: of("text").filter((one) => one.getBoundingClientRect().left < left).length };
  plot.element.remove();
  return found;
}"""


@pytest.mark.parametrize(
    ("most", "times", "expected"),
    [
        (0.9, False, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (0.004, False, ["0", "0.001", "0.002", "0.003", "0.004"]),
        (2.5, False, ["0", "0.5", "1", "1.5", "2", "2.5"]),
        (31_000, False, ["0", "10K", "20K", "30K", "40K"]),
        (100, True, ["0 s", "30 s", "1 m", "1 m 30 s", "2 m"]),
        (5000, True, ["0 s", "15 m", "30 m", "45 m", "1 h", "1 h 15 m", "1 h 30 m"]),
    ],
)
def test_the_labels_of_an_axis_are_what_its_lines_are(
    page: Page, most: float, times: bool, expected: list[str]
) -> None:
    open_section(page, "overview")
    found = page.evaluate(AXES, [most, times, 3600])
    assert found["values"] == expected
    assert found["cut"] == 0
    assert all(re.fullmatch(r"\d\d:\d[05]", one) for one in found["moments"]), "round moments"
    brief = page.evaluate(AXES, [most, times, 10])["moments"]
    assert len(set(brief)) == len(brief) > 1, "no moment twice"


def test_a_token_is_asked_for_once_and_its_change_ends_the_session(browser: Browser, tmp_path: Any) -> None:
    secret = tmp_path / "token"
    secret.write_text("first-token\n")
    guarded = Served(http={"host": "127.0.0.1", "port": 0, "token_file": str(secret)})
    try:
        context = browser.new_context(base_url=guarded.url)
        page = context.new_page()
        page.goto("/")
        page.get_by_label("Console token").fill("a guess")
        page.get_by_role("button").click()
        expect(page.get_by_role("alert")).to_have_text("That is not the token.")
        page.get_by_label("Console token").fill("first-token")
        page.get_by_role("button").click()
        expect(page.locator("#state")).to_have_text("ready")
        (cookie,) = context.cookies()
        assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and "first-token" not in cookie["value"]
        secret.unlink()
        time.sleep(0.01)
        secret.write_text("second-token\n")
        expect(page.get_by_label("Console token")).to_be_visible(timeout=10_000)
        context.close()
    finally:
        guarded.close()


def test_a_batch_that_waits_is_shown_with_its_reason(page: Page, served: Served) -> None:
    waiting = replace(
        served.daemon.record(3, 0),
        phase=Phase.ACCEPTED,
        error="dataset shop does not exist",
        wait=Wait(until=served.daemon.clock.now() + timedelta(minutes=5)),
    )
    served.call(lambda: served.daemon.let_go(waiting))
    open_section(page, "running")
    row = page.locator("tbody tr", has_text=waiting.event_id)
    expect(row).to_contain_text("blocked")
    expect(row).to_contain_text("dataset shop does not exist")
