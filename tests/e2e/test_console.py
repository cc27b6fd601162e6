"""The console in a real browser beside a live job of two clusters: watch, explain, approve, drain,
undo, try; and who may not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from lb_stream.agent import Agent, AgentConfig
from lb_stream.console.address import link
from lb_stream.console.auth.users import user_lines
from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.sim import SimBroker, SimCluster, build_cluster
from lb_stream.sim.brokers import wall_clock_ms
from tests.e2e.pipeline import Pipeline, wait_until
from tests.support.browser import PASSWORD, PATIENCE_MS, launched, needs_chromium, shoot

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.loop, needs_chromium]

ACTS, ASKS = "eu-1", "us-1"
"""What the modes of the two are about: the one moves bundles by itself, the other asks first."""
DRAINED = "broker-3:8080"
SETTINGS = {
    "shedding_strategy": "LeastMoves",
    "split_enabled": "false",
    "stream.tick_interval_ms": 500,
    "stream.keep_views": 2_000,
    "stream.history_resolution_ms": 2_000,
    f"cluster.{ACTS}.mode": "act",
    f"cluster.{ASKS}.mode": "approve",
}


@dataclass
class Scene:
    """A running job, its simulated clusters, and where its console is."""

    run: Pipeline
    clusters: dict[str, SimCluster]
    url: str


@pytest.fixture
def scene(kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path) -> Iterator[Scene]:
    run = Pipeline(kafka.bootstrap, topic_names, tmp_path, SETTINGS)
    run.create_topics(reports=2, decisions=2, ownership=2)
    clusters = {
        ACTS: build_cluster(3, 12, "steady", start_ms=wall_clock_ms()),
        ASKS: build_cluster(3, 12, "hot_spot", start_ms=wall_clock_ms()),
    }
    users = tmp_path / "users.toml"
    users.write_text(
        user_lines("ann", PASSWORD, "operator", {}) + user_lines("eve", PASSWORD, "viewer", {})
    )
    with ExitStack() as stack:
        stack.enter_context(run.running())
        for name, cluster in clusters.items():
            config = AgentConfig(
                kafka.bootstrap,
                name,
                topic_names.reports,
                topic_names.decisions,
                topic_names.ownership,
                1.0,
                heartbeat_interval_s=2.0,
            )
            agent = Agent(config, [SimBroker(cluster, broker) for broker in cluster.brokers])
            agent.start()
            stack.callback(agent.stop)
        wait_until(lambda: run.table("broker_loads").num_rows >= 6, "the first rounds")
        yield Scene(run, clusters, stack.enter_context(console_of(run, users)))


@contextmanager
def console_of(run: Pipeline, users: Path) -> Iterator[str]:
    """`lbctl console` as operators start it: its address."""
    given = {
        "kafka.bootstrap_servers": run.bootstrap,
        "stream.tables": run.folder / "tables",
        "stream.checkpoint": run.folder / "checkpoint",
    }
    given |= {
        f"topics.{name}": getattr(run.topics, name)
        for name in ("reports", "commands", "results", "decisions", "ownership")
    }
    more = [part for name, value in given.items() for part in ("--set", f"{name}={value}")]
    command = [
        Path(sys.executable).parent / "lbctl",
        "console",
        "--address",
        "127.0.0.1:0",
        "--users",
        users,
        "--json",
        *more,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=run.folder, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        assert process.poll() is None
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture
def page(scene: Scene) -> Iterator[Page]:
    """A browser that asks nobody but the console, and logs no error."""
    troubles: list[str] = []
    with sync_playwright() as driver:
        browser = launched(driver)
        context = browser.new_context(viewport={"width": 1440, "height": 900}, base_url=scene.url)
        context.set_default_timeout(PATIENCE_MS)
        made = context.new_page()
        made.on(
            "console",
            lambda said: troubles.append(said.text) if said.type in ("error", "warning") else None,
        )
        made.on("pageerror", lambda error: troubles.append(str(error)))
        made.on(
            "request",
            lambda asked: None if asked.url.startswith(scene.url) else troubles.append(asked.url),
        )
        expect.set_options(timeout=PATIENCE_MS)
        yield made
        browser.close()
    assert troubles == []


def test_an_operator_watches_explains_approves_drains_takes_back_and_tries_and_a_viewer_may_not(
    scene: Scene, page: Page
) -> None:
    page.goto("/")
    for name in scene.clusters:
        expect(page.locator("#clusters")).to_contain_text(name)
    log_in(page, "eve")
    assert (
        offered(page, link("cluster", name=ACTS)) == []
        and offered(page, link("proposals", cluster=ASKS)) == []
    )
    page.get_by_role("button", name="Log out").click()
    log_in(page, "ann")
    approve(scene, page)
    explain_and_take_back(scene, page)
    drain(scene, page)
    what_if(page)


def log_in(page: Page, name: str) -> None:
    page.goto("/login")
    page.get_by_role("textbox", name="Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/")


def offered(page: Page, address: str) -> list[str]:
    page.goto(address)
    return page.locator(".command").all_inner_texts()


def approve(scene: Scene, page: Page) -> None:
    """What waits comes to the page by itself; one is approved there, and is done."""
    page.goto(link("proposals", cluster=ASKS))
    boxes = page.locator("#waiting [data-together]")
    expect(boxes.first).to_be_visible()
    shoot(page, "live-proposals")
    bundle = bundle_in(page, "#waiting [data-proposals] tbody tr a.name")
    before = owner(scene, ASKS, bundle)
    assert [
        decision
        for decision in scene.run.decisions()
        if decision.cluster == ASKS and decision.source
    ] == []
    for box in boxes.all():
        box.uncheck()
    boxes.first.check()
    page.locator("#waiting [data-verb]:enabled").first.click()
    page.get_by_role("button", name="Approve").click()
    page.wait_for_url("**/command?**")
    expect(page.locator("#feed .outcome").first).to_have_text("done")
    assert owner(scene, ASKS, bundle) != before
    page.goto(link("proposals", cluster=ASKS))
    expect(page.locator("#ended")).to_contain_text("ann")


def explain_and_take_back(scene: Scene, page: Page) -> None:
    """The decision that followed says why and who approved it; undone, its bundle is where it
    was."""
    page.locator("#ended tbody a", has_text="approved").first.click()
    expect(page.locator("main")).to_contain_text("ann approved it")
    shoot(page, "live-decision")
    bundle = bundle_in(page, "h1 a.name")
    now = owner(scene, ASKS, bundle)
    page.get_by_role("link", name="Undo…").click()
    expect(page.locator("main")).to_contain_text("Moves back")
    page.get_by_role("button", name="Undo").click()
    page.wait_for_url("**/command?**")
    wait_until(lambda: owner(scene, ASKS, bundle) not in (None, now), "the bundle to go back")


def drain(scene: Scene, page: Page) -> None:
    """The page of the command counts the bundles that are left until there is none."""
    page.goto(link("broker", cluster=ACTS, name=DRAINED))
    page.get_by_role("link", name="Drain…").click()
    expect(page.locator("main")).to_contain_text("Simulate the drain")
    page.get_by_role("button", name="Drain").click()
    page.wait_for_url("**/command?**")
    expect(page.locator("#command")).to_contain_text("has 0 bundles left")
    shoot(page, "live-drained")
    assert not scene.clusters[ACTS].owned(DRAINED)


def what_if(page: Page) -> None:
    """Another strategy played beside the present, with its picture."""
    page.goto(link("cluster", name=ACTS))
    page.get_by_role("link", name="What if").click()
    page.get_by_label("Shedding strategy").select_option("ThresholdShedder")
    page.get_by_role("button", name="Run simulation").click()
    played_ms = 5 * PATIENCE_MS  # the console lets everything else on this machine go first
    expect(page.locator("#outcome")).to_contain_text("In the next 30 minutes", timeout=played_ms)
    page.locator("#outcome .uplot").wait_for()
    shoot(page, "live-what-if")


def bundle_in(page: Page, place: str) -> str:
    address = page.locator(place).first.get_attribute("href") or ""
    return parse_qs(urlsplit(address).query)["name"][0]


def owner(scene: Scene, cluster: str, bundle: str) -> str | None:
    there = scene.clusters[cluster]
    return next((broker for broker in there.brokers if there.owns(broker, bundle)), None)
