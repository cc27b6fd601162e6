"""Proposals on pages: waiting and past ones, with reasons, and who may approve them."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lb_stream.console.address import link
from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import Access
from lb_stream.contracts.commands import Command
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


def acts(page: Tags, name: str) -> list[str]:
    return [tag["href"] for tag in page.all("a") if tag["href"].startswith(f"/send/{name}?")]


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


def test_proposals_are_approved_one_by_one_or_all_at_once(
    played: Recorder, site: TestClient, sent: list[Command]
) -> None:
    page = Tags(site.get(PAGE).text)
    names = ids(played)
    everything, *each = acts(page, "approve")
    assert (
        everything == link("send/approve", cluster="demo", proposals=" ".join(names))
        and len(each) == len(names) > 1
    )
    assert (
        site.post("/send/approve", data=form_on(site, "approve", " ".join(names))).status_code
        == 303
    )
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
    assert ids(played) and not acts(page, "approve") and not acts(page, "reject")
