"""Proposals on pages: waiting and past ones, with reasons, and who may approve them."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lb_stream.console.address import link
from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import Access
from lb_stream.console.templates import percent
from lb_stream.contracts.commands import Command
from lb_stream.query.present.plans import add_partners
from tests.support.recorded_proposals import BY, ids, record_proposals, told
from tests.support.recorded_tables import Recorder
from tests.unit.console.site import PASSWORD, Tags, client, log_in

PAGE = link("proposals", cluster="demo")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    return record_proposals(tmp_path_factory.mktemp("approvals") / "tables")


@pytest.fixture(scope="module")
def sent() -> list[Command]:
    return []


@pytest.fixture(scope="module")
def site(
    played: Recorder, sent: list[Command], tmp_path_factory: pytest.TempPathFactory
) -> TestClient:
    """Where ann is an operator."""
    users = tmp_path_factory.mktemp("users") / "users.toml"
    users.write_text(user_lines("ann", PASSWORD, "operator", {}))
    made = client(Path(played.root), Access.load(users), lambda _, command: sent.append(command))
    log_in(made, "ann")
    return made


def form_on(site: TestClient, name: str, proposals: str) -> dict[str, str]:
    answer = site.get(link(f"send/{name}", cluster="demo", proposals=proposals))
    assert answer.status_code == 200, answer.text
    return {
        tag["name"]: tag.get("value") or ""
        for tag in Tags(answer.text).all("input")
        if tag.get("type") == "hidden"
    }


def chosen(page: Tags) -> list[str]:
    """The proposals with a check box that is checked."""
    boxes = [tag for tag in page.all("input") if tag.get("type") == "checkbox"]
    assert all("checked" in tag for tag in boxes)
    return [tag["value"] for tag in boxes]


def test_the_page_has_waiting_proposals_with_reasons_and_past_ones_with_their_operators(
    played: Recorder, site: TestClient
) -> None:
    waiting, ended = told(played)
    page = Tags(site.get(PAGE).text)
    assert all(proposal["explanation"] in page.text for proposal in waiting) and waiting
    assert "its topics go tonight" in page.text and BY in page.text
    decided = [proposal["decision_id"] for proposal in ended if proposal["decision_id"]]
    assert [tag["href"] for tag in page.all("a") if tag["href"].startswith("/decision?")] == [
        link("decision", id=decision_id) for decision_id in decided
    ]
    assert PAGE in site.get(link("cluster", name="demo")).text


def test_a_plan_shows_its_effect_on_each_broker_it_touches(
    played: Recorder, site: TestClient
) -> None:
    waiting, _ = told(played)
    (plan,) = site.get(f"/api/v1{PAGE}").json()["plans"]
    touched = {row[end] for row in waiting for end in ("source", "destination")}
    assert {row["broker"] for row in plan["brokers"]} == touched
    # the same figures as those that the balancer noted
    assert plan["max_before"] == pytest.approx(waiting[0]["max_usage"], abs=1e-3)
    assert plan["max_after"] == pytest.approx(waiting[-1]["usage_in_order"], abs=1e-3)
    source = next(row for row in plan["brokers"] if row["broker"] == waiting[0]["source"])
    assert source["before"] == pytest.approx(waiting[0]["source_usage"], abs=1e-3)
    text = " ".join(Tags(site.get(PAGE).text).text.split())
    assert f"Max usage {percent(plan['max_before'])} → {percent(plan['max_after'])}" in text
    assert f"{plan['moves']} moves of" in text


def test_the_checked_moves_of_a_plan_are_approved_together(
    played: Recorder, site: TestClient, sent: list[Command]
) -> None:
    page = Tags(site.get(PAGE).text)
    names = ids(played)
    assert chosen(page) == names and len(names) > 1
    buttons = [tag["formaction"] for tag in page.all("button") if tag.get("formaction")]
    assert buttons == ["/send/approve", "/send/reject"]
    # what a browser without JavaScript requests
    address = "/send/approve?cluster=demo" + "".join(f"&proposals={name}" for name in names)
    form = Tags(site.get(address).text)
    given = {tag["name"]: tag.get("value") or "" for tag in form.all("input") if tag.get("name")}
    assert given["proposals"] == " ".join(names) and "Max usage" in form.text
    assert site.post("/send/approve", data=given).status_code == 303
    form = form_on(site, "reject", names[0]) | {"why": " tonight ", "hours": "6"}
    assert site.post("/send/reject", data=form).status_code == 303
    assert [(command.kind, command.by, command.arguments) for command in sent] == [
        ("approve-proposals", "ann", {"proposals": names}),
        (
            "reject-proposals",
            "ann",
            {"proposals": [names[0]], "why": "tonight", "for_ms": 6 * 3_600_000},
        ),
    ]


def test_a_move_is_chosen_with_those_that_belong_to_it(played: Recorder) -> None:
    waiting, _ = told(played)
    first, second, third, *_ = waiting
    pair = [first, second | {"together": first["together"]}, third]
    names = [row["proposal_id"] for row in pair]
    assert [row["proposal_id"] for row in add_partners(pair, [names[1]])] == names[:2]
    assert [row["proposal_id"] for row in add_partners(pair, [names[2]])] == names[2:]


def test_a_plan_that_no_round_checks_any_more_says_so(played: Recorder, site: TestClient) -> None:
    text = Tags(site.get(PAGE).text).text
    assert "Expired." in text, "the run was long ago"


def test_a_rejection_needs_a_reason_and_a_past_proposal_is_not_approved(
    played: Recorder, site: TestClient
) -> None:
    name = ids(played)[0]
    answer = site.post(
        "/send/reject", data=form_on(site, "reject", name) | {"why": " ", "hours": "1"}
    )
    assert (
        answer.status_code == 400
        and "why: 0 characters: expected 1 to 300" in Tags(answer.text).text
    )
    gone = site.get(link("send/approve", cluster="demo", proposals=f"{name} demo:1:p99"))
    assert (
        gone.status_code == 409
        and "demo:1:p99: no longer waits for approval" in Tags(gone.text).text
    )


def test_an_anonymous_visitor_sees_proposals_without_commands(played: Recorder) -> None:
    page = Tags(client(Path(played.root)).get(PAGE).text)
    assert ids(played) and not chosen(page)
    assert not [tag for tag in page.all("button") if tag.get("formaction")]
