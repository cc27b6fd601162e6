"""Findings and causes lead to what they are about, and to the command that ends them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from lb_stream.console.address import link
from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import Access
from lb_stream.console.command_forms import parse_form
from lb_stream.contracts.tables import ROUNDS
from lb_stream.core.model.memory import Memory, Pending, Suspension
from lb_stream.core.model.operator_state import OperatorState, RejectedProposal
from lb_stream.core.model.rollout import BrokerProgress
from tests.support.table_rows import NOW, fill
from tests.unit.console.site import (
    BROKER,
    BUNDLE,
    PASSWORD,
    Tags,
    add_rollout,
    client,
    fleet,
    log_in,
)

LATER = NOW + 3_600_000
REJECTION = RejectedProposal("eu-1:1:p0", "eu-1:1:p0", BUNDLE, True, LATER, "ann", "tonight")
MOVE = Pending("eu-1:1:0", "unload", BUNDLE, BROKER, "b-2:80", NOW, LATER, 1)
SUSPENDED = Suspension("mass_disappearance", NOW, LATER, (BROKER, "b-2:80"))
OVERVIEW, CLUSTER = "/", link("cluster", name="eu-1")
ABOUT_BROKER = link("broker", cluster="eu-1", name=BROKER)
ABOUT_BUNDLE = link("bundle", cluster="eu-1", name=BUNDLE)


def form(name: str, **on: str) -> str:
    return link(f"send/{name}", cluster="eu-1", **on)


def site_with(
    folder: Path, memory: Memory, settings: str = '{"mode": "act"}', error: str | None = None
) -> TestClient:
    """A console whose last round of eu-1 left this memory; ann is an admin, bob a viewer."""
    fleet(folder / "tables")
    row = {"cluster": "eu-1", "seq": 2, "log_seq": 2, "now_ms": NOW, "epoch": 1, "batch_id": 2}
    logged = {"outcomes": "[]", "inputs": f'{{"settings": {settings}}}', "error": error}
    fill(folder / "tables", ROUNDS, [row | logged | {"memory": memory.to_json()}])
    return with_users(folder)


def with_users(folder: Path) -> TestClient:
    users = folder / "users.toml"
    users.write_text(
        user_lines("ann", PASSWORD, "admin", {}) + user_lines("bob", PASSWORD, "viewer", {})
    )
    return client(folder / "tables", Access.load(users), lambda *_: None)


def links_of(site: TestClient, address: str) -> set[str]:
    answer = site.get(address)
    assert answer.status_code == 200, answer.text
    return {str(tag.get("href")) for tag in Tags(answer.text).all("a")}


def changed(**changes: Any) -> Memory:
    return Memory(operator_state=OperatorState(**changes))


@pytest.mark.parametrize(
    ("memory", "settings", "page", "leads_to", "ends"),
    [
        (changed(paused=True), {}, OVERVIEW, CLUSTER, [form("resume")]),
        (changed(paused=True), {}, CLUSTER, CLUSTER, [form("resume")]),
        (
            changed(drained=(BROKER,)),
            {},
            OVERVIEW,
            ABOUT_BROKER,
            [form("undrain", broker=BROKER)],
        ),
        (
            changed(drained=(BROKER,)),
            {},
            ABOUT_BROKER,
            ABOUT_BROKER,
            [form("undrain", broker=BROKER)],
        ),
        (Memory(), {"mode": "observe"}, OVERVIEW, CLUSTER, [form("publish"), form("ask-first")]),
        (Memory(), {"mode": "observe"}, CLUSTER, CLUSTER, [form("publish"), form("ask-first")]),
        (
            replace(Memory(), suspension=SUSPENDED),
            {},
            OVERVIEW,
            link("broker", cluster="eu-1", name="b-2:80"),
            [form("declare-dead", broker=BROKER), form("declare-dead", broker="b-2:80")],
        ),
        (
            replace(Memory(), suspension=SUSPENDED),
            {},
            CLUSTER,
            ABOUT_BROKER,
            [form("declare-dead", broker=BROKER), form("declare-dead", broker="b-2:80")],
        ),
        (changed(pins={BUNDLE: LATER}), {}, CLUSTER, ABOUT_BUNDLE, []),
        (
            changed(pins={BUNDLE: LATER}),
            {},
            ABOUT_BUNDLE,
            CLUSTER,
            [form("unpin", bundle=BUNDLE)],
        ),
        (
            changed(rejections=(REJECTION,)),
            {},
            ABOUT_BUNDLE,
            link("proposals", cluster="eu-1"),
            [],
        ),
        (
            replace(Memory(), pending=(MOVE,)),
            {"max_moves_in_flight": 1},
            CLUSTER,
            link("decision", id="eu-1:1:0"),
            [],
        ),
        (
            Memory(),
            {"enabled": False},
            CLUSTER,
            link("settings", cluster="eu-1"),
            [],
        ),
        (
            Memory(),
            {"freeze": "the year ends"},
            CLUSTER,
            link("settings", cluster="eu-1"),
            [],
        ),
    ],
)
def test_a_finding_leads_to_what_it_is_about_and_to_the_command_that_ends_it(
    tmp_path: Path,
    memory: Memory,
    settings: dict[str, Any],
    page: str,
    leads_to: str,
    ends: list[str],
) -> None:
    given = json.dumps({"mode": "act"} | settings)
    site = site_with(tmp_path, memory, given)
    found = links_of(site, page)
    assert leads_to in found and site.get(leads_to).status_code == 200
    assert not [address for address in found if address.startswith("/send/")]
    log_in(site, "bob")
    assert not [address for address in links_of(site, page) if address.startswith("/send/")]
    log_in(site, "ann")
    assert set(ends) <= links_of(site, page)
    for address in ends:
        assert site.get(address).status_code == 200, address


def test_a_failed_round_and_a_rollout_that_stands_still_are_one_click_away(tmp_path: Path) -> None:
    site = site_with(tmp_path, Memory(), error="ValueError: no")
    assert link("round", cluster="eu-1", seq=2) in links_of(site, OVERVIEW)
    assert link("round", cluster="eu-1", seq=2) in links_of(site, CLUSTER)
    folder = tmp_path / "rollout"
    fleet(folder / "tables")
    brokers = {BROKER: BrokerProgress("down", NOW - 60_000)}
    add_rollout(folder / "tables", brokers, (), still_ms=NOW)
    still = with_users(folder)
    log_in(still, "ann")
    wanted = {link("rollout", cluster="eu-1"), form("rollout-resume"), form("rollout-abort")}
    assert wanted <= links_of(still, OVERVIEW)


def test_an_ended_pin_is_no_cause_any_more(tmp_path: Path) -> None:
    site = site_with(tmp_path, changed(pins={BUNDLE: NOW - 1}))
    log_in(site, "ann")
    assert form("unpin", bundle=BUNDLE) not in links_of(site, ABOUT_BUNDLE)
    text = Tags(site.get(link("settings", cluster="eu-1")).text).text
    assert "no pause, drain, pin, rejection or policy is in force" in text


def test_settings_that_were_given_name_where_and_what_commands_have_set_can_be_ended(
    tmp_path: Path,
) -> None:
    memory = changed(
        settings={"max_moves_in_flight": 7},
        paused=True,
        drained=(BROKER,),
        pins={BUNDLE: LATER},
        rejections=(REJECTION,),
        anti_affinity={"shop/hot": "red"},
    )
    given = '{"mode": "act", "max_moves_in_flight": 9, "shedding_strategy": "LeastMoves"}'
    site = site_with(tmp_path, memory, given)
    log_in(site, "ann")
    page = link("settings", cluster="eu-1")
    ends = {form("undrain", broker=BROKER), form("unpin", bundle=BUNDLE), form("resume")}
    assert ends | {ABOUT_BROKER, ABOUT_BUNDLE, form("unset")} <= links_of(site, page)
    answer = site.get(f"/api/v1{page}").json()
    shown = {
        row["key"]: (row["value"], row["given_by"], row["job_value"]) for row in answer["settings"]
    }
    assert shown["max_moves_in_flight"] == (7, "a command", 9)
    assert shown["shedding_strategy"] == ("LeastMoves", "the job's settings", None)
    assert [row["what"] for row in answer["operator_state"]] == [
        "pause",
        "drain",
        "pin",
        "rejection",
        "anti-affinity group",
    ]


def test_the_form_says_when_no_job_will_answer_the_command(tmp_path: Path) -> None:
    site = site_with(tmp_path, changed(paused=True))
    log_in(site, "ann")
    text = Tags(site.get(form("resume")).text).text
    assert ("waits on its topic until the job runs" in text) == ("Not up to date." in text)
    assert "in eu-1" in text


def test_the_end_of_a_pin_is_sent_as_a_pin_of_no_time(tmp_path: Path) -> None:
    kind, fields = parse_form("unpin", {"bundle": BUNDLE})
    assert (kind, fields) == ("pin-bundles", {"bundles": [BUNDLE], "for_ms": 0})
