"""What a real browser lets other sites do with the console: nothing. And a login by a provider."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from lb_stream.console.address import link
from lb_stream.console.auth.oidc import OidcLogins
from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import Access
from lb_stream.console.serve import ConsoleServer
from lb_stream.console.sources.reader import Reader
from lb_stream.contracts.commands import Command
from lb_stream.contracts.servers import OidcSettings
from lb_stream.store import Store
from tests.support.browser import PASSWORD, PATIENCE_MS, launched, needs_chromium, shoot
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider, oidc_provider
from tests.unit.console.site import fleet, settings_of

pytestmark = needs_chromium


@dataclass
class Site:
    """Another site. `pages`: path → its HTML; `asked`: path and header Referer of each request."""

    port: int
    pages: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@contextmanager
def other_site() -> Iterator[Site]:
    """A server that is another origin, and as `localhost` also another site than 127.0.0.1."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append((self.path, self.headers.get("Referer")))
            content = site.pages.get(self.path, "<title>elsewhere</title>").encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site = Site(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield site
    server.shutdown()
    server.server_close()
    thread.join()


@dataclass
class Acting:
    """A console with users and a provider, and what they have sent."""

    server: ConsoleServer
    provider: Provider
    sent: list[tuple[str, Command]]


@pytest.fixture(scope="module")
def acting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Acting]:
    folder = tmp_path_factory.mktemp("security")
    fleet(folder / "tables")
    users, sent = folder / "users.toml", list[tuple[str, Command]]()
    users.write_text(user_lines("alice", PASSWORD, "operator", {}))
    with oidc_provider() as provider:
        given = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET, "issuer": provider.url}
        server = ConsoleServer(
            "127.0.0.1:0",
            _reader(folder / "tables"),
            (),
            None,
            replace(Access.load(users), oidc=OidcLogins(OidcSettings.model_validate(given))),
            lambda cluster, command: sent.append((cluster, command)),
        )
        yield Acting(server, provider, sent)
        server.stop()


def _reader(tables: Path) -> Reader:
    return Reader(Store.at(tables), settings_of(tables), None, clock=lambda: 0.0)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        started = launched(driver)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser, acting: Acting) -> Iterator[Page]:
    """A page of alice, who has logged in."""
    context = browser.new_context(base_url=acting.server.url)
    context.set_default_timeout(PATIENCE_MS)
    made = context.new_page()
    made.goto("/login")
    made.fill("#name", "alice")
    made.fill("#password", PASSWORD)
    made.click("button.main")
    expect(made.get_by_role("button", name="Log out")).to_be_visible()
    yield made
    context.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_page_elsewhere_can_neither_post_nor_frame_nor_read(
    page: Page, acting: Acting, host: str
) -> None:
    console = acting.server.url
    page.goto(link("send/pause", cluster="eu-1"))
    hidden = page.locator("main form input[type=hidden]")
    fields = {  # as if the page elsewhere knew them
        hidden.nth(number).get_attribute("name"): hidden.nth(number).get_attribute("value")
        for number in range(hidden.count())
    }
    assert fields["csrf_token"]
    inputs = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
    with other_site() as site:
        elsewhere = f"http://{host}:{site.port}"
        # it posts
        for path in ("/send/pause", "/logout", "/login"):
            form = f'<form action="{console}{path}" method="post">{inputs}<button>go</button>'
            site.pages["/post"] = form
            page.goto(f"{elsewhere}/post")
            with page.expect_navigation() as navigation:
                page.click("button")
            assert navigation.value.status == 403
        # it frames
        site.pages["/frame"] = f'<iframe src="{console}/"></iframe>'
        page.goto(f"{elsewhere}/frame")
        page.wait_for_function("frames.length == 1")
        assert [frame.url for frame in page.frames[1:]] == ["chrome-error://chromewebdata/"]
        # it reads
        page.goto(f"{elsewhere}/read")
        tried = page.evaluate(
            """async url => {
              const refused = promise => promise.then(() => "read", () => "refused")
              const loaded = tag => new Promise((resolve, reject) => {
                const made = document.createElement(tag)
                made.onload = resolve
                made.onerror = reject
                made.src = url
                document.head.append(made)
              })
              const opened = open(url)
              while (!opened.closed) await new Promise(done => setTimeout(done, 20))
              return [
                await refused(fetch(url, {credentials: "include"})),
                await refused(fetch(url, {mode: "no-cors", credentials: "include"})),
                await refused(loaded("script")),
                await refused(loaded("img")),
              ]
            }""",
            f"{console}/api/v1/clusters",
        )
    assert tried == ["refused"] * 4
    assert acting.sent == []
    page.goto("/")
    expect(page.get_by_role("button", name="Log out")).to_be_visible()


def test_a_page_of_the_console_runs_no_inline_script_and_fetches_nothing_elsewhere(
    page: Page,
) -> None:
    page.goto("/")
    with other_site() as site:
        page.evaluate(
            """elsewhere => {
              window.blocked = new Set()
              document.addEventListener(
                "securitypolicyviolation", event => blocked.add(event.effectiveDirective))
              const add = (tag, values) =>
                document.body.append(Object.assign(document.createElement(tag), values))
              add("script", {textContent: "window.ran = 'inline'"})
              add("script", {src: elsewhere})
              add("style", {textContent: "body { display: none }"})
              add("img", {src: elsewhere})
              add("iframe", {src: elsewhere})
              add("object", {data: elsewhere})
              add("base", {href: elsewhere})
              add("div", {innerHTML: "<p id=trap onclick=\\"window.ran = 'attribute'\\">x</p>"})
              document.getElementById("trap").click()
              fetch(elsewhere).catch(() => {})
              const form = Object.assign(
                document.createElement("form"), {action: elsewhere, method: "post"})
              document.body.append(form)
              form.submit()
            }""",
            f"http://localhost:{site.port}/x",
        )
        wanted = {
            "script-src-elem",
            "script-src-attr",
            "style-src-elem",
            "img-src",
            "frame-src",
            "object-src",
            "base-uri",
            "connect-src",
            "form-action",
        }
        page.wait_for_function("wanted => wanted.every(name => blocked.has(name))", arg=[*wanted])
        assert page.evaluate("window.ran") is None
        assert page.evaluate("getComputedStyle(document.body).display") != "none"
        assert site.asked == []


def test_a_link_elsewhere_tells_nothing_about_the_page_that_has_it(page: Page) -> None:
    page.goto(link("cluster", name="eu-1"))
    with other_site() as site:
        page.evaluate(
            """elsewhere => {
              const made = Object.assign(
                document.createElement("a"), {href: elsewhere, textContent: "away", id: "away"})
              document.getElementById("main").prepend(made)
            }""",
            f"http://localhost:{site.port}/away",
        )
        page.click("#away")
        page.wait_for_url("**/away")
        assert ("/away", None) in site.asked


def test_a_login_at_a_provider_leads_back_to_the_page_and_to_its_commands(
    browser: Browser, acting: Acting
) -> None:
    context = browser.new_context(base_url=acting.server.url)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(link("cluster", name="eu-1"))
    page.get_by_role("link", name="Log in").click()
    shoot(page, "login-with-a-provider")
    page.get_by_role("link", name="Log in at").click()
    page.wait_for_url("**/cluster?name=eu-1")
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    assert page.locator("header .name").inner_text() == "alice"
    page.goto(link("send/pause", cluster="eu-1"))
    page.click("main form button")
    page.wait_for_url("**/command?*")
    assert [command.by for _, command in acting.sent] == ["alice"]
    acting.sent.clear()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("link", name="Log out there")).to_be_visible()
    shoot(page, "logged-out")
    context.close()
