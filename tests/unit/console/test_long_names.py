"""Every page of the table of routes, with the longest and oddest names, in a real browser.

Nothing is wider than the screen or cut without a title, axe finds no serious fault, and a keyboard
reaches everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import Access
from lb_stream.console.serve import ConsoleServer
from lb_stream.console.sources.reader import Reader
from lb_stream.store import Store
from tests.support.browser import PASSWORD, PATIENCE_MS, SHOTS, launched, needs_chromium
from tests.unit.console.long_names import list_pages, write_long_names
from tests.unit.console.site import settings_of

pytestmark = needs_chromium

FIND_WIDE = "document.documentElement.scrollWidth > innerWidth"
# What is cut off and has no title; what is beside the page and in nothing that scrolls.
FIND_CUT = """() => {
  const found = [];
  for (const it of document.querySelectorAll("body *")) {
    if (it.closest(".unseen, .uplot, svg, input, select, textarea, .skip")) continue;
    if (!it.checkVisibility()) continue;
    const { overflowX, overflowY } = getComputedStyle(it);
    const clips = (overflow) => overflow === "hidden" || overflow === "clip";
    const cutX = clips(overflowX) && it.scrollWidth > it.clientWidth + 1;
    const cutY = clips(overflowY) && it.scrollHeight > it.clientHeight + 1;
    const box = it.getBoundingClientRect();
    const isBeside = box.right > innerWidth + 1 || box.left < -1;
    const beside = isBeside && !it.closest(".scroll, [title]");
    if (((cutX || cutY) && !it.title) || beside) found.push(it.outerHTML.slice(0, 120));
  }
  return found;
}"""
# Names from right to left that are not set apart from the text around them.
FIND_MIXED = """() => {
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const it = texts.currentNode;
    if (!/[\\u0590-\\u08ff]/.test(it.data) || it.parentElement.closest("svg, option")) continue;
    if (!it.parentElement.closest("bdi, [dir=auto]")) found.push(it.data.trim().slice(0, 80));
  }
  return found;
}"""
FOCUSABLE = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']"
# Numbers what can have the focus, and returns how many there are.
NUMBER_FOCUSABLE = f"""() => {{
  const all = [...document.querySelectorAll("{FOCUSABLE}")];
  const seen = all.filter((it) => it.checkVisibility() && !it.disabled);
  seen.forEach((it, number) => {{ it.dataset.number = number; }});
  return seen.length;
}}"""
# Whether each chart has its lines and its buttons, or says why it has none.
ALL_DRAWN = """() => [...document.querySelectorAll("[data-chart]")].every(
  (it) => it.querySelector(".uplot, .dim")
)"""
# The number of what has the focus, and whether it shows.
FOCUSED = """() => {
  const it = document.activeElement;
  const { outlineStyle, outlineWidth } = getComputedStyle(it);
  const shows = outlineStyle !== "none" && parseFloat(outlineWidth) > 0;
  return [it.dataset.number ?? "", shows];
}"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    """A console with users, of whom ann is an admin."""
    folder = tmp_path_factory.mktemp("long")
    tables, users = folder / "tables", folder / "users.toml"
    write_long_names(tables)
    users.write_text(user_lines("ann", PASSWORD, "admin", {}))
    reader = Reader(Store.at(tables), settings_of(tables), None, clock=lambda: 0.0)
    made = ConsoleServer("127.0.0.1:0", reader, (), None, Access.load(users), lambda *_: None)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        started = launched(driver)
        yield started
        started.close()


@pytest.fixture(scope="module")
def cookies(browser: Browser, served: ConsoleServer) -> Any:
    context = browser.new_context(base_url=served.url)
    page = context.new_page()
    page.goto("/login")
    page.get_by_role("textbox", name="Name").fill("ann")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/")
    state = context.storage_state()
    context.close()
    return state


def open_page(
    browser: Browser, served: ConsoleServer, cookies: Any, width: int, scheme: Any = "light"
) -> Page:
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        base_url=served.url,
        storage_state=cookies,
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_MS)
    return context.new_page()


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1280, "light"),
        (400, "dark"),
        pytest.param(1280, "dark", marks=pytest.mark.slow),
        pytest.param(400, "light", marks=pytest.mark.slow),
    ],
)
def test_no_page_is_cut_or_has_a_serious_fault(
    browser: Browser, served: ConsoleServer, cookies: Any, width: int, scheme: str
) -> None:
    page = open_page(browser, served, cookies, width, scheme)
    faults: dict[str, list[Any]] = {}
    for number, address in enumerate(["/login", *list_pages()]):
        answer = page.goto(address)
        assert answer is not None and answer.status < 500, address
        if page.locator("[data-chart]").count():
            page.locator(".uplot, .chart .dim").first.wait_for()
        found = page.evaluate(FIND_CUT) + page.evaluate(FIND_MIXED) + find_serious(page)
        if page.evaluate(FIND_WIDE):
            found.append("wider than the screen")
        if found:
            faults[address[:60]] = found[:4]
        if SHOTS:
            page.screenshot(path=Path(SHOTS) / f"long-{number:02}-{width}-{scheme}.png")
    page.context.close()
    assert not faults, "\n".join(f"{at}: {found}" for at, found in faults.items())


@pytest.mark.slow
def test_a_keyboard_reaches_everything_and_shows_where_it_is(
    browser: Browser, served: ConsoleServer, cookies: Any
) -> None:
    page = open_page(browser, served, cookies, 1280)
    missed: dict[str, list[str]] = {}
    for address in list_pages():
        page.goto(address)
        page.wait_for_function(ALL_DRAWN)
        count = page.evaluate(NUMBER_FOCUSABLE)
        reached, unseen = set[str](), set[str]()
        for _ in range(count + 2):
            page.keyboard.press("Tab")
            number, shows = page.evaluate(FOCUSED)
            reached.add(number)
            if number and not shows:
                unseen.add(number)
        left = {str(number) for number in range(count)} - reached
        if left or unseen:
            missed[address[:60]] = [describe(page, number) for number in sorted(left | unseen)][:4]
    page.context.close()
    assert not missed, "\n".join(f"{at}: {left}" for at, left in missed.items())


def describe(page: Page, number: str) -> str:
    return str(page.locator(f"[data-number='{number}']").first.evaluate("it => it.outerHTML"))[:120]


def find_serious(page: Page) -> list[str]:
    """Faults that keep somebody from using a page."""
    found = Axe().run(page).response["violations"]
    return [
        f"{violation['id']}: {violation['nodes'][0]['html'][:120]}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
    ]
