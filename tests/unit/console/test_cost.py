"""The page of what moves have cost: by whom, in which span; the filter and the order stay in the
address."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from lb_stream.console.address import link
from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.tables import BUNDLE_HISTORY, DECISIONS, OUTCOMES
from tests.support.table_rows import NOW, decided, fill
from tests.unit.console.site import Tags, client, fleet

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Two transfers of shop's bundle, one of pay's, and one of shop's too long ago."""
    folder = tmp_path_factory.mktemp("cost") / "tables"
    fleet(folder)
    for number, (bundle, ago) in enumerate(
        (("shop/a", 2), ("shop/a", 2), ("pay/b", 2), ("shop/a", 40))
    ):
        name, issued_ms, whole = (
            f"eu-1:7:{number}",
            NOW - ago * DAY_MS,
            f"{bundle}/0x00000000_0xffffffff",
        )
        decision = example_decision(
            decision_id=name,
            seq=7,
            bundle=whole,
            kind="transfer",
            issued_ms=issued_ms,
            source="b-1:80",
            destination="b-2:80",
        )
        ended = {"decision_id": name, "cluster": "eu-1", "outcome": "confirmed", "seq": 8}
        ended |= {"released_ms": issued_ms + 500, "at_ms": issued_ms + 2000, "took_ms": 2000}
        fill(folder, DECISIONS, [decided(decision)])
        fill(folder, OUTCOMES, [ended])
    slot = {
        "cluster": "eu-1",
        "bundle": "shop/a/0x00000000_0xffffffff",
        "slot_ms": NOW - 3 * DAY_MS,
        "producers": 4,
        "consumers": 6,
    }
    fill(
        folder,
        BUNDLE_HISTORY,
        [slot | {"throughput_in_bytes_per_s": 1e6, "throughput_out_bytes_per_s": 1e6}],
    )
    return client(folder)


def rows(site: TestClient, **given: object) -> list[list[str]]:
    """Return the cells of the page's table."""
    answer = site.get(link("cost", cluster="eu-1", **given))
    assert answer.status_code == 200, answer.text
    lines = answer.text.partition("<tbody>")[2].partition("</tbody>")[0].split("</tr>")
    return [
        [Tags(cell).text.strip() for cell in line.split("</td>")[:-1]]
        for line in lines
        if "<td" in line
    ]


def test_moves_of_the_last_weeks_are_added_up_the_costliest_first(site: TestClient) -> None:
    assert rows(site, each="total") == [
        ["shop", "2", "3.0 s", "20", "30.0", "4 MB/s", "2/2"],
        ["pay", "1", "1.5 s", "–", "–", "–", "0/1"],
    ]
    assert [row[0] for row in rows(site, by="namespace", each="total", sort="whose")] == [
        "pay/b",
        "shop/a",
    ]
    assert [row[1] for row in rows(site, each="day", text="pay")] == ["pay"]
    assert [row[0][4:6] for row in rows(site, each="week")] == ["-W", "-W"]


def test_the_clusters_page_links_to_costs_and_each_row_to_its_tenant(site: TestClient) -> None:
    cluster = Tags(site.get(link("cluster", name="eu-1")).text)
    assert link("cost", cluster="eu-1") in {tag.get("href") for tag in cluster.all("a")}
    links = {
        tag.get("href")
        for tag in Tags(site.get(link("cost", cluster="eu-1", each="total")).text).all("a")
    }
    assert link("tenant", cluster="eu-1", name="shop") in links
    assert link("cost", cluster="eu-1", each="total", by="namespace") in links


def test_a_decisions_page_has_the_cost_of_its_move(site: TestClient) -> None:
    html = site.get(link("decision", id="eu-1:7:0")).text
    figures = (
        ("Without a broker", "1.5 s"),
        ("Clients disturbed", "10"),
        ("Client-seconds", "15.0"),
        ("Traffic of the moved bundles", "2 MB/s"),
    )
    assert [f"<dt>{name}</dt><dd>{value}</dd>" in html for name, value in figures] == [True] * 4


def test_a_wrong_word_is_answered_with_what_was_expected(site: TestClient) -> None:
    answer = site.get(link("cost", cluster="eu-1", by="bundle"))
    assert (
        answer.status_code == 400
        and "by = bundle: expected one of tenant, namespace" in Tags(answer.text).text
    )
