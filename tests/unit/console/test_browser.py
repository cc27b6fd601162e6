"""The console in a real browser: it logs no error, asks nobody else, fits every width, and
lives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from lb_stream.console.address import link
from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import Access
from lb_stream.console.keys import KEYS
from lb_stream.console.serve import ConsoleServer
from lb_stream.console.sources.reader import Reader
from lb_stream.contracts.commands import Command
from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.tables import BROKER_LOADS
from lb_stream.core.model.rollout import BrokerPhase, BrokerProgress
from lb_stream.query.screens.entries import OpenMoves
from lb_stream.store import Store
from tests.support.browser import PASSWORD, PATIENCE_MS, SHOTS, launched, needs_chromium, shoot
from tests.support.recorded_proposals import record_proposals
from tests.support.table_rows import NOW, fill, load
from tests.unit.console.site import BROKER, BUNDLE, add_rollout, addresses, fleet, settings_of

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    tables = tmp_path_factory.mktemp("browser") / "tables"
    fleet(
        tables,
        bundle="shop/a-namespace-with-a-rather-long-name-that-wraps/0x00000000_0x10000000",
        more=60,
    )
    phases: tuple[BrokerPhase, ...] = ("done", "draining", "waiting", "waiting")
    brokers = {
        f"more-{number:03}:80": BrokerProgress(phase, NOW - 60_000, note="the fewest second moves")
        for number, phase in enumerate(phases)
    }
    add_rollout(tables, brokers, tuple(brokers)[2:])
    made = ConsoleServer(
        "127.0.0.1:0",
        Reader(Store.at(tables), settings_of(tables), None, clock=lambda: 0.0),
        (),
        None,
    )
    yield made
    made.stop()


@dataclass
class Acting:
    """A console with users, and what they have sent."""

    served: ConsoleServer
    sent: list[tuple[str, Command]]


@pytest.fixture
def acting(tmp_path: Path) -> Iterator[Acting]:
    fleet(tmp_path / "tables")
    users, sent = tmp_path / "users.toml", list[tuple[str, Command]]()
    users.write_text(
        user_lines("alice", PASSWORD, "operator", {})
        + user_lines("eve", PASSWORD, "viewer", {})
        + user_lines("root", PASSWORD, "admin", {})
    )
    reader = Reader(
        Store.at(tmp_path / "tables"), settings_of(tmp_path / "tables"), None, clock=lambda: 0.0
    )
    made = ConsoleServer(
        "127.0.0.1:0",
        reader,
        (),
        None,
        Access.load(users),
        lambda cluster, command: sent.append((cluster, command)),
    )
    yield Acting(made, sent)
    made.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        started = launched(driver)
        yield started
        started.close()


@pytest.fixture
def troubles() -> list[str]:
    """Errors that the pages of a test logged, and addresses elsewhere that they requested."""
    return []


def opened(
    browser: Browser,
    served: ConsoleServer,
    troubles: list[str],
    width: int = 1440,
    scheme: Any = "light",
) -> tuple[BrowserContext, Page]:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, base_url=served.url
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.on(
        "console",
        lambda message: (
            troubles.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None if request.url.startswith(served.url) else troubles.append(request.url)
        ),
    )
    return context, page


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(1440, "light"), (820, "light"), (400, "light"), (1440, "dark"), (400, "dark")],
)
def test_every_page_fits_its_width_in_both_themes_without_an_error(
    browser: Browser, served: ConsoleServer, troubles: list[str], width: int, scheme: str
) -> None:
    context, page = opened(browser, served, troubles, width, scheme)
    bundle = "shop/a-namespace-with-a-rather-long-name-that-wraps/0x00000000_0x10000000"
    wide = []
    for number, address in enumerate(addresses(BROKER, bundle)):
        page.goto(address)
        if page.locator("[data-chart]").count():
            page.locator(".uplot").wait_for()
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wide.append(address)
        if SHOTS:
            page.screenshot(path=Path(SHOTS) / f"{number:02}-{width}-{scheme}.png", full_page=True)
    context.close()
    assert (wide, troubles) == ([], [])


def test_a_long_broker_name_takes_two_lines_of_a_table_that_fits_a_small_screen(
    browser: Browser, tmp_path: Path, troubles: list[str]
) -> None:
    tables = tmp_path / "tables"
    fleet(tables, broker="pulsar-broker-27.eu-west-1.example.com:8080")
    reader = Reader(Store.at(tables), settings_of(tables), None, clock=lambda: 0.0)
    server = ConsoleServer("127.0.0.1:0", reader, (), None)
    context, page = opened(browser, server, troubles, 1280)
    page.goto(link("cluster", name="eu-1", text="pulsar"))
    row = page.locator("#brokers tbody tr").first.bounding_box()
    overflow_px = page.locator("#brokers .scroll").evaluate("it => it.scrollWidth - it.clientWidth")
    context.close()
    server.stop()
    assert row is not None and row["height"] < 60
    assert (overflow_px, troubles) == (0, [])


@pytest.mark.parametrize(
    ("zone", "hours"),
    [("UTC", 0), ("Asia/Kolkata", 5.5), ("America/New_York", None), ("-03:30", -3.5)],
)
def test_a_charts_axis_has_times_in_the_servers_zone_and_names_it(
    browser: Browser,
    served: ConsoleServer,
    troubles: list[str],
    monkeypatch: pytest.MonkeyPatch,
    zone: str,
    hours: float | None,
) -> None:
    monkeypatch.setattr("lb_stream.console.page.local_zone", lambda: zone)
    context = browser.new_context(base_url=served.url, timezone_id="Asia/Tokyo")
    page = context.new_page()
    page.goto(link("cluster", name="eu-1", find=zone))  # a page that no other test has made
    page.locator(".uplot").wait_for()
    axis = "document.querySelector('[data-chart]').plot.axes[0]"
    labels, ticks = page.evaluate(f"[{axis}._values, {axis}._splits]")
    named = page.evaluate(f"{axis}.label")
    context.close()
    there = ZoneInfo(zone) if hours is None else timezone(timedelta(hours=hours))
    assert len(ticks) > 1 and named == zone
    times = [f"{datetime.fromtimestamp(tick, there):%H:%M}" for tick in ticks]
    assert [text.partition("\n")[0][:5] for text in labels] == times
    assert troubles == []


def test_a_browser_in_another_zone_shows_the_same_times(
    browser: Browser, served: ConsoleServer
) -> None:
    shown = []
    for zone in ("Asia/Tokyo", "America/Los_Angeles"):
        context = browser.new_context(base_url=served.url, timezone_id=zone)
        page = context.new_page()
        texts = []
        for address in addresses():
            page.goto(address)
            times = page.locator("time:not([data-until])")
            texts.append(times.evaluate_all("them => them.map(it => [it.innerText, it.title])"))
        shown.append([[pair for pair in pairs if "ago" not in pair[0]] for pairs in texts])
        context.close()
    assert shown[0] == shown[1] and any(shown[0])


def test_a_published_decision_appears_on_the_page_and_the_keys_and_the_theme_work(
    browser: Browser, served: ConsoleServer, troubles: list[str]
) -> None:
    context, page = opened(browser, served, troubles)
    page.goto(link("cluster", name="eu-1"))
    expect(page.locator("#feed .entry")).to_have_count(2)
    about = {"bundle": "<b>shop</b>/new/0x0_0x1"}
    moves, rows = OpenMoves(), []
    for number, later in enumerate(({}, {"kind": "assign", "rule": "released"})):
        made = example_decision(
            decision_id=f"eu-1:{2 + number}:0", seq=2 + number, **about, **later
        )
        unended = dict.fromkeys(("outcome", "detail", "took_ms"))
        rows.append(moves.add(made.model_dump(mode="json") | unended))
    row, updated = rows
    page.wait_for_function("performance.getEntriesByType('resource').length > 3")
    for _ in range(100):  # until its stream is open
        served.publish(row)
        page.wait_for_timeout(200)
        if page.locator("#feed .entry.new").count():
            break
    expect(page.locator("#feed .entry")).to_have_count(3)
    expect(page.locator("#feed .entry").first).to_contain_text("<b>shop</b>/new")
    served.publish(updated)
    expect(page.locator("#feed .entry").first.locator(".phases")).to_contain_text("assign")
    expect(page.locator("#feed .entry")).to_have_count(3)
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.keyboard.press("/")
    page.keyboard.type("hot")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=hot")
    context.close()
    assert troubles == []


def test_keys_open_their_list_and_lead_from_round_to_round(
    browser: Browser, served: ConsoleServer, troubles: list[str]
) -> None:
    context, page = opened(browser, served, troubles, 400)
    page.goto(link("round", cluster="eu-1", seq=1))
    named = set(page.evaluate("Object.keys(KEY_ACTIONS)"))
    on_charts = {"←", "→", "Home", "End"}
    assert named | on_charts | {"Esc"} == {name for names, _ in KEYS for name in names}
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_be_visible()
    assert serious(page) == []
    for _ in range(3):  # the focus stays in the dialog, or goes to the browser's own bars
        page.keyboard.press("Tab")
        assert page.evaluate(
            "document.activeElement === document.body || "
            "document.activeElement.closest('dialog') !== null"
        )
    shoot(page, "keys-400")
    page.keyboard.press("]")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert "seq=1" in page.url, "a key does nothing behind the list"
    page.keyboard.press("]")
    page.wait_for_url("**/round?*seq=2")
    page.keyboard.press("[")
    page.wait_for_url("**/round?*seq=1")
    page.get_by_role("button", name="Keys").click()
    page.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    context.close()
    assert troubles == []


@pytest.fixture(scope="module")
def charted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    """Ten minutes of two brokers, with a gap of four; a move of each outcome."""
    tables = tmp_path_factory.mktemp("charted") / "tables"
    fleet(tables)
    times_ms = [NOW - 600_000 + at for at in range(0, 600_000, 10_000)]
    rows = [
        load("eu-1", 1, name, 1.0) | {"now_ms": at, "usage_ratio": usage}
        for at in times_ms
        for name, usage in ((BROKER, 0.7), ("b-2:80", 0.3))
        if not 200_000 <= at - times_ms[0] < 440_000
    ]
    fill(tables, BROKER_LOADS, rows)
    reader = Reader(Store.at(tables), settings_of(tables), None, clock=lambda: 0.0)
    made = ConsoleServer("127.0.0.1:0", reader, (), None)
    yield made
    made.stop()


def test_keys_move_through_a_chart_whose_gaps_have_no_line(
    browser: Browser, charted: ConsoleServer, troubles: list[str]
) -> None:
    context, page = opened(browser, charted, troubles, 1280)
    page.goto(link("cluster", name="eu-1"))
    chart = page.get_by_role("slider", name="Usage over time")
    chart.focus()
    page.keyboard.press("Home")
    text = chart.get_attribute("aria-valuetext") or ""
    assert text[:10] == f"{datetime.fromtimestamp(NOW / 1000 - 600):%Y-%m-%d}"
    labels = [part.rsplit(" ", 2)[0] for part in text.split(", ")[1:]]
    assert labels == ["max", BROKER, "limit: mean + 10.0%", "mean", "min", "b-2:80"]
    expect(page.locator(".tooltip")).to_contain_text("70.0 %")
    texts = []
    for _ in range(30):
        page.keyboard.press("ArrowRight")
        texts.append((chart.get_attribute("aria-valuetext") or "").split(", ")[1])
    assert texts[0] == "max 70.0 %" and texts[-1] == "no data"
    drawn = page.evaluate("document.querySelector('[data-chart]').plot.data[1]")
    assert None in drawn and drawn[0] == 0.7 and drawn[-1] is not None
    page.keyboard.press("Escape")
    expect(page.locator(".tooltip")).to_be_hidden()
    page.locator(".legend .key").first.focus()
    plot = "document.querySelector('[data-chart]').plot"
    shown = page.evaluate(f"{plot}.series.slice(1).map((line) => line.alpha)")
    assert shown[0] == 1 and set(shown[1:]) == {0.2}
    shoot(page, "chart-1280")
    context.close()
    assert troubles == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_keys_move_through_the_heat_map_and_a_row_leads_to_its_broker(
    browser: Browser, charted: ConsoleServer, troubles: list[str], width: int, scheme: str
) -> None:
    context, page = opened(browser, charted, troubles, width, scheme)
    page.goto(link("heat", cluster="eu-1", span="15m"))
    assert serious(page) == []
    names = page.locator(".heat tbody th").all_inner_texts()
    assert names == [BROKER, "b-2:80"], "the hottest first"
    page.get_by_role("group", name="Heat map").focus()
    page.keyboard.press("ArrowRight")
    value = page.locator("#heat-value")
    expect(value).to_contain_text(f"{BROKER}, {datetime.fromtimestamp(NOW / 1000 - 600):%Y-%m-%d}")
    expect(value).to_contain_text(", 70 %")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(value).to_contain_text("b-2:80")
    expect(value).to_contain_text(", 30 %")
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    expect(value).to_contain_text("no data")
    moved = page.locator(f".heat tr:has-text('{BROKER}') .cell.moved").first
    moved.hover()
    expect(value).to_contain_text("1 move")
    shoot(page, f"heat-{width}-{scheme}")
    moved.click()
    page.wait_for_url("**/broker?**")
    assert parse_qs(urlsplit(page.url).query) == {
        "cluster": ["eu-1"],
        "name": [BROKER],
        "span": ["15m"],
    }
    context.close()
    assert troubles == []


def test_dragging_on_a_chart_shows_that_range_and_the_browser_goes_back(
    browser: Browser, charted: ConsoleServer, troubles: list[str]
) -> None:
    context, page = opened(browser, charted, troubles, 1280)
    page.goto(link("cluster", name="eu-1", sort="traffic"))
    page.locator(".uplot").wait_for()
    box = page.locator(".u-over").bounding_box()
    assert box is not None
    at_y = box["y"] + 40
    page.mouse.move(box["x"] + 0.7 * box["width"], at_y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.8 * box["width"], at_y, steps=4)
    page.mouse.move(box["x"] + 0.9 * box["width"], at_y, steps=4)
    page.mouse.up()
    page.wait_for_url("**/cluster?*from=*")
    given = parse_qs(urlsplit(page.url).query)
    assert given["sort"] == ["traffic"] and "span" not in given
    begin, end = int(given["from"][0]), int(given["to"][0])
    assert end - begin == pytest.approx(120_000, rel=0.1)
    page.locator(".uplot").wait_for()
    axis = page.evaluate("document.querySelector('[data-chart]').plot.data[0]")
    assert [axis[0], axis[-1]] == pytest.approx([begin / 1000, end / 1000], abs=10)
    page.go_back()
    page.wait_for_url("**/cluster?name=eu-1&sort=traffic")
    context.close()
    assert troubles == []


def test_a_range_is_chosen_without_scripts_and_keeps_the_rest_of_the_address(
    browser: Browser, charted: ConsoleServer
) -> None:
    context = browser.new_context(java_script_enabled=False, base_url=charted.url)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(link("cluster", name="eu-1", sort="traffic", text="b-"))
    form = page.locator("form.range")
    begin = form.get_by_label("From").input_value()
    form.get_by_label("To", exact=False).last.fill("2026-01-05T00:00:00")
    form.get_by_label("From").fill("2026-01-04T00:00:00")
    form.get_by_role("button", name="Show").click()
    page.wait_for_url("**/cluster?*from=2026-01-04T00*to=2026-01-05T00*")
    assert "sort=traffic" in page.url and "text=b-" in page.url
    assert "No loads from 2026-01-04 00:00:00 to" in page.inner_text("#range-note")
    form.get_by_label("To", exact=False).last.fill("2026-01-03T00:00:00")
    form.get_by_role("button", name="Show").click()
    assert "to is not after from" in page.inner_text("main")
    context.close()
    assert begin


def test_an_operator_logs_in_drains_a_broker_and_a_viewer_may_not(
    browser: Browser, acting: Acting, troubles: list[str]
) -> None:
    context, page = opened(browser, acting.served, troubles, 400)
    page.goto(link("broker", cluster="eu-1", name=BROKER))
    assert page.locator(".command").count() == 0
    for name, acts in (("eve", 0), ("alice", 1)):
        page.get_by_role("link", name="Log in").click()
        page.get_by_role("textbox", name="Name").fill(name)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/broker?**")
        expect(page.locator(".command")).to_have_count(acts)
        if not acts:
            page.get_by_role("button", name="Log out").click()
            page.goto(link("broker", cluster="eu-1", name=BROKER))
    page.get_by_role("link", name="Drain…").click()
    expect(page.locator("main")).to_contain_text(f"Unload all bundles of {BROKER}")
    shoot(page, "drain")
    page.get_by_role("button", name="Drain").click()
    page.wait_for_url("**/command?**")
    expect(page.locator("main")).to_contain_text("The next round answers it")
    shoot(page, "command")
    context.close()
    assert [(cluster, command.kind, command.by) for cluster, command in acting.sent] == [
        ("eu-1", "drain-broker", "alice")
    ]
    assert troubles == []


def test_an_address_names_what_is_open(
    browser: Browser, acting: Acting, troubles: list[str]
) -> None:
    context, page = opened(browser, acting.served, troubles, 400)
    page.goto("/login")
    page.get_by_role("textbox", name="Name").fill("root")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/")
    page.goto(link("cluster", name="eu-1", sort="traffic"))
    hidden = page.get_by_role("link", name="New namespace")
    expect(hidden).to_be_hidden()
    page.get_by_text("More commands").click()
    page.wait_for_url("**/cluster?name=eu-1&sort=traffic&open=more")
    page.reload()
    expect(hidden).to_be_visible()
    page.get_by_text("More commands").click()
    page.wait_for_url("**/cluster?name=eu-1&sort=traffic")
    context.close()
    assert troubles == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_no_page_has_a_serious_fault_of_accessibility(
    browser: Browser, acting: Acting, troubles: list[str], scheme: str, width: int
) -> None:
    context, page = opened(browser, acting.served, troubles, width, scheme)
    page.goto("/login")
    faults = {"/login": serious(page)}
    page.get_by_role("textbox", name="Name").fill("alice")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/")
    forms = [
        link("send/drain", cluster="eu-1", broker=BROKER),
        link("send/unload", cluster="eu-1", bundle=BUNDLE),
    ]
    for address in [*addresses(BROKER, BUNDLE), *forms, link("command", cluster="eu-1", id="none")]:
        page.goto(address)
        faults[address] = serious(page)
    context.close()
    assert {address: found for address, found in faults.items() if found} == {}


def serious(page: Page) -> list[tuple[str, str, list[str]]]:
    """Rule, what it asks for, and where it is broken; those that keep somebody from using the
    page."""
    found = [
        violation
        for violation in Axe().run(page).response["violations"]
        if violation["impact"] in ("serious", "critical")
    ]
    return [
        (
            violation["id"],
            violation["help"],
            [node["html"][:120] for node in violation["nodes"][:3]],
        )
        for violation in found
    ]


def test_a_page_shows_its_figures_without_its_script(
    browser: Browser, served: ConsoleServer
) -> None:
    context = browser.new_context(java_script_enabled=False, base_url=served.url)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(link("cluster", name="eu-1", text="b-1"))
    assert "b-1:80" in page.inner_text("#brokers") and "move" in page.inner_text("#feed")
    context.close()


def test_the_moves_of_a_plan_are_counted_as_they_are_chosen(
    browser: Browser, tmp_path: Path, troubles: list[str]
) -> None:
    played = record_proposals(tmp_path / "tables")
    users = tmp_path / "users.toml"
    users.write_text(user_lines("alice", PASSWORD, "operator", {}))
    tables = Path(played.root)
    reader = Reader(Store.at(tables), settings_of(tables), None, clock=lambda: 0.0)
    server = ConsoleServer("127.0.0.1:0", reader, (), None, Access.load(users), lambda *_: None)
    context, page = opened(browser, server, troubles)
    page.goto(link("login", next=link("proposals", cluster="demo")))
    page.get_by_role("textbox", name="Name").fill("alice")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    boxes = page.locator("#waiting input[type=checkbox]")
    number = boxes.count()
    expect(page.locator("[data-verb]")).to_have_text(f"Approve {number} moves…")
    shoot(page, "plan-of-proposals")
    boxes.first.uncheck()
    expect(page.locator("[data-verb]")).to_have_text(f"Approve {number - 1} moves…")
    page.evaluate("refreshPage()")
    page.wait_for_timeout(300)
    expect(boxes.first).not_to_be_checked()
    page.locator("[data-verb]").click()
    page.wait_for_url("**/send/approve?**")
    expect(page.locator("main li")).to_have_count(number - 1)
    shoot(page, "approve-plan")
    context.close()
    server.stop()
    assert number > 1 and troubles == []
