"""The page of a rollout: its brokers in their order, what is next, and the commands it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lb_stream.console.address import link
from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import Access
from lb_stream.contracts.commands import Command
from lb_stream.core.model.rollout import BrokerProgress
from tests.support.table_rows import NOW
from tests.unit.console.site import PASSWORD, Tags, add_rollout, client, fleet, log_in

PAGE = link("rollout", cluster="eu-1")
DONE = BrokerProgress("done", NOW - 100_000, moves=4, note="it has the fewest bundles")
DRAINING = BrokerProgress("draining", NOW - 9_000, moves=2, note="it fits")
BROKERS = {
    "b-1:80": BrokerProgress(),
    "b-2:80": DRAINING,
    "b-3:80": DONE,
    "b-4:80": BrokerProgress(),
}


def page_of(
    tables: Path, brokers: dict[str, BrokerProgress] | None = None, **order: Any
) -> tuple[Tags, list[str]]:
    """The page as an operator sees it, and the commands that it offers."""
    fleet(tables)
    if brokers:
        waiting = tuple(name for name in brokers if brokers[name].phase == "waiting")
        add_rollout(tables, brokers, waiting[::-1], **order)
    users = tables.parent / "users.toml"
    users.write_text(user_lines("ann", PASSWORD, "operator", {}))
    sent = list[Command]()
    site = client(tables, Access.load(users), lambda _, command: sent.append(command))
    log_in(site, "ann")
    answer = site.get(PAGE)
    assert answer.status_code == 200, answer.text
    page = Tags(answer.text)
    hrefs = [tag["href"] for tag in page.all("a") if tag["href"].startswith("/send/")]
    for href in hrefs:
        assert site.get(href).status_code == 200
    return page, [href.removeprefix("/send/").partition("?")[0] for href in hrefs]


def rows_of(page: Tags, head: str, tail: str) -> list[str]:
    """The words of a part of the page, each broker's row as one text."""
    return " ".join(page.text.partition(head)[2].partition(tail)[0].split()).split(" b-")[1:]


def test_brokers_are_in_their_order_done_now_and_next(tmp_path: Path) -> None:
    page, offered = page_of(tmp_path / "tables", BROKERS, canary="b-3:80", at_most=2)
    rows = rows_of(page, "Brokers in order", "What has happened")
    assert [row.split()[:2] for row in rows] == [
        ["3:80", "done"],
        ["2:80", "draining"],
        ["4:80", "waiting"],
        ["1:80", "waiting"],
    ]
    text = " ".join(page.text.split())
    assert "Brokers restarted1/4" in text.replace(" 1", "1") and "Moves6" in text
    assert "71.2% so far, 73.4% expected" in text
    assert text.count("waiting next") == 1 and "it has the fewest bundles" in text
    assert offered == ["rollout-next", "rollout-pause", "rollout-abort"]


@pytest.mark.parametrize(
    ("brokers", "order", "offered"),
    [
        (BROKERS, {"at_most": 1}, ["rollout-pause", "rollout-abort"]),
        (BROKERS, {"paused": True}, ["rollout-resume", "rollout-abort"]),
        ({"b-3:80": DONE, "b-2:80": DRAINING}, {}, ["rollout-pause", "rollout-abort"]),
        (
            {"b-1:80": BrokerProgress(), "b-2:80": BrokerProgress("down", NOW - 3_600_000)},
            {"still_ms": NOW - 9_000},
            ["rollout-resume", "rollout-pause", "rollout-abort", "rollout-settle"],
        ),
        (
            {
                "b-1:80": BrokerProgress("empty", NOW - 9_000),
                "b-2:80": BrokerProgress("empty", NOW - 9_000, start_ms=5),
            },
            {},
            ["rollout-pause", "rollout-abort", "rollout-settle"],
        ),
        (None, {}, ["rollout-start"]),
    ],
)
def test_the_page_offers_the_commands_that_the_rollout_takes(
    tmp_path: Path, brokers: Any, order: dict[str, Any], offered: list[str]
) -> None:
    page, found = page_of(tmp_path / "tables", brokers, **order)
    assert found == offered
    assert ("No rollout is on" in page.text) is (brokers is None)


def test_a_viewer_sees_all_and_gets_no_command_and_the_clusters_page_leads_there(
    tmp_path: Path,
) -> None:
    tables = tmp_path / "tables"
    fleet(tables)
    add_rollout(tables, BROKERS, ("b-4:80", "b-1:80"))
    site = client(tables)
    page = Tags(site.get(PAGE).text)
    assert "draining" in page.text and "Past rollouts" in page.text
    assert not [tag for tag in page.all("a") if tag["href"].startswith("/send/")]
    cluster = Tags(site.get(link("cluster", name="eu-1")).text)
    assert PAGE in [tag["href"] for tag in cluster.all("a")]
    assert "1 of 4 brokers restarted, b-2:80 draining since" in cluster.text
