"""The pages of forecasts: the next moves, and what if."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lb_stream.console.address import link
from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import Access
from tests.support.plan_tables import SMALL, told, write
from tests.support.present_tables import BROKERS, write_present
from tests.unit.console.site import PASSWORD, Tags, client, log_in


@pytest.fixture(scope="module")
def present(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return client(write_present(tmp_path_factory.mktemp("present")))


def whole(site: TestClient, address: str) -> Tags:
    """Return the page once it has its answer."""
    for _ in range(60):
        answer = site.get(address)
        assert answer.status_code == 200, answer.text
        page = Tags(answer.text)
        if not page.all("body")[0].get("data-refresh"):
            return page
    raise AssertionError(page.text)


def words(page: Tags) -> str:
    return " ".join(page.text.split())


def test_the_next_moves_are_those_of_lbctl_plan(tmp_path: Path) -> None:
    site = client(write(tmp_path, SMALL))
    page = whole(site, link("plan", cluster="eu"))
    assert "4 of 4 moves; at least 4 are needed. Max usage ÷ even load: 2.00 → 1.00" in words(page)
    assert "66.7 % → 58.3 %" in words(page) and "25.0 % with the bundle" in words(page)
    assert "the cluster's own strategy is ThresholdShedder" in words(page)
    plan = told(tmp_path)
    bundles = [tag["href"] for tag in page.all("a") if tag["href"].startswith("/bundle?")]
    assert bundles == [link("bundle", cluster="eu", name=move["bundle"]) for move in plan["moves"]]
    assert not [tag for tag in page.all("a") if tag["href"].startswith("/send/")]


def test_a_user_who_may_unload_can_send_each_move_with_its_destination(tmp_path: Path) -> None:
    tables = write(tmp_path, SMALL)
    users = tmp_path / "users.toml"
    users.write_text(user_lines("alice", PASSWORD, "operator", {}))
    site = client(tables, Access.load(users), lambda *_: None)
    log_in(site, "alice")
    page = whole(site, link("plan", cluster="eu"))
    first, *others = [
        tag["href"] for tag in page.all("a") if tag["href"].startswith("/send/unload")
    ]
    move = told(tables)["moves"][0]
    assert (
        first == link("send/unload", cluster="eu", bundle=move["bundle"], destination=move["to"])
        and len(others) == 3
    )
    assert site.get(first).text.count(f"<option selected>{move['to']}</option>") == 1


def test_another_strategy_is_simulated_beside_the_present(present: TestClient) -> None:
    address = link(
        "what-if",
        cluster="eu",
        strategy="LeastMoves",
        changes="shedding_enabled=true\nbalancer.dry_run = false",
    )
    page = whole(present, address)
    assert (
        "Fits: the busiest broker would be at 33.3 % instead of 66.7 %" in words(page)
        and "Max usage at the end" in words(page)
        and "Moves of the changed cluster" in words(page)
    )
    chart = present.get(address.replace("/what-if?", "/api/v1/what-if/chart?")).json()
    as_it_is, changed = chart["lines"]
    assert [as_it_is["name"], changed["name"]] == ["as it is", "changed"] and len(
        chart["times_ms"]
    ) == len(changed["values"]) > 100
    assert (
        changed["values"][0]
        == as_it_is["values"][0]
        == as_it_is["values"][-1]
        > changed["values"][-1]
    )


def test_a_drain_is_simulated_from_its_brokers_page(present: TestClient) -> None:
    page = Tags(present.get(link("broker", cluster="eu", name=BROKERS[0])).text)
    (address,) = [tag["href"] for tag in page.all("a") if tag["href"].startswith("/what-if")]
    assert address == link("what-if", cluster="eu", drain=BROKERS[0])
    assert "Time until drained brokers are empty" in words(whole(present, address))


def test_without_a_change_there_is_only_the_form(present: TestClient) -> None:
    page = whole(present, link("what-if", cluster="eu"))
    assert {tag["name"] for kind in ("select", "textarea") for tag in page.all(kind)} == {
        "strategy",
        "drain",
        "minutes",
        "changes",
    }
    assert "Fits:" not in words(page)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"strategy": "NoSuch"}, "shedding_strategy = 'NoSuch': expected"),
        ({"drain": "z:8080"}, "broker = 'z:8080': expected one of a:8080"),
        (
            {"changes": "overloaded_threshold_percent=many"},
            "overloaded_threshold_percent = 'many': expected",
        ),
    ],
)
def test_an_invalid_change_is_explained_below_the_form(
    present: TestClient, given: dict[str, str], message: str
) -> None:
    page = whole(present, link("what-if", cluster="eu", **given))
    assert message in words(page) and page.all("textarea")


def test_lines_that_are_no_settings_and_charts_without_a_simulation_are_refused(
    present: TestClient,
) -> None:
    answer = present.get(link("what-if", cluster="eu", changes="shed more"))
    assert answer.status_code == 400 and "shed more: expected KEY=VALUE" in Tags(answer.text).text
    assert (
        present.get(link("api/v1/what-if/chart", cluster="eu", drain="c:8080")).status_code == 404
    )
