"""The pages of the console: all there, all from its own origin, names as text, and an error that
says what to do."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from lb_stream.console import routes
from lb_stream.console.address import link
from lb_stream.console.page import Page, Shown
from lb_stream.console.queries import SearchQuery
from lb_stream.console.templates import end_after
from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.tables import BROKER_LOADS, COMMANDS, DECISIONS, ROUNDS
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.rollout import BrokerProgress
from lb_stream.io.messages.shown import shown
from lb_stream.query import status_facts
from lb_stream.query.health import judge
from lb_stream.query.lake import open_lake
from lb_stream.query.status_facts import gather_table_facts
from lb_stream.store import Store
from tests.support.shown_tables import obeyed
from tests.support.table_rows import NOW, decided, fill, load
from tests.unit.console.site import (
    BROKER,
    BUNDLE,
    Tags,
    add_rollout,
    addresses,
    client,
    fleet,
    settings_of,
)

HOSTILE = (
    "<script>alert(1)</script>\"'&[/]\x1b[31m\u202e\x00:80",
    "<img src=x onerror=y>/\"'{{7*7}}\u2028/0x00000000_0xffffffff",
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("console") / "tables"
    fleet(folder, more=120)
    return folder


@pytest.fixture(scope="module")
def site(tables: Path) -> TestClient:
    return client(tables)


@pytest.mark.parametrize("address", addresses())
def test_every_page_is_there_and_loads_nothing_from_elsewhere_and_nothing_inline(
    site: TestClient, address: str
) -> None:
    answer = site.get(address)
    assert answer.status_code == 200, answer.text
    page = Tags(answer.text)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert all(tag.get("src", "").startswith("/static/") for tag in page.all("script"))
    links = [
        tag[name] for _, tag in page.tags for name in ("href", "src", "action") if tag.get(name)
    ]
    assert links and all(
        address is not None and address[0] in "/#" and not address.startswith("//")
        for address in links
    )
    assert not [
        name for _, tag in page.tags for name in tag if name == "style" or name.startswith("on")
    ]
    assert page.all("style") == []


def test_a_hostile_name_is_text_on_every_page(tmp_path: Path) -> None:
    broker, bundle = HOSTILE
    fleet(tmp_path / "tables", broker, bundle)
    hostile = client(tmp_path / "tables")
    fleet(tmp_path / "plain")
    plain = client(tmp_path / "plain")
    for address, same in zip(addresses(broker, bundle), addresses(), strict=True):
        answer = hostile.get(address)
        assert answer.status_code == 200, (address, answer.text)
        page = Tags(answer.text)
        assert obeyed(answer.text) == [], address
        assert {name for name, _ in page.tags} <= {
            name for name, _ in Tags(plain.get(same).text).tags
        }, address
    page = Tags(hostile.get(link("broker", cluster="eu-1", name=broker)).text)
    assert shown(broker) in page.text


def test_the_overview_says_what_lbctl_status_says(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_facts, "_now_ms", lambda: NOW + 90_000)
    text = Tags(client(tables).get("/").text).text
    with open_lake(Store.at(tables)) as lake:
        sentence = judge(gather_table_facts(lake, Store.at(tables), settings_of(tables))).sentence
    assert sentence.partition(": ")[2] in text


def test_a_long_list_has_pages_and_its_links_keep_the_filter(site: TestClient) -> None:
    answer = site.get(link("cluster", name="eu-1", text="more-", sort="broker", page=3))
    page = Tags(answer.text)
    names = [tag for tag in page.all("a") if tag.get("class") == "name" and "more-" in tag["href"]]
    assert len(names) == 20 and "page 3 of 3" in page.text and "120 brokers" in page.text
    (before,) = [tag["href"] for tag in page.all("a") if tag.get("rel") == "prev"]
    assert before == link("cluster", name="eu-1", text="more-", sort="broker", page=2)


def test_a_round_and_a_decision_lead_to_those_before_and_after_them(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    fleet(tables)
    logged = {"outcomes": "[]", "inputs": '{"settings": {}}', "memory": Memory().to_json()}
    at = {"epoch": 1, "batch_id": 1, "now_ms": NOW}
    rounds = [("eu-1", 4), ("us-1", 2), ("eu-1", 7)]
    rows = [{"cluster": name, "seq": seq, "log_seq": seq} | at | logged for name, seq in rounds]
    fill(tables, ROUNDS, rows)
    made = [("eu-1", 1, 10), ("eu-1", 1, 9), ("us-1", 1, 1)]
    rows = [
        decided(example_decision(decision_id=f"{name}:{seq}:{ordinal}", cluster=name, seq=seq))
        for name, seq, ordinal in made
    ]
    fill(tables, DECISIONS, rows)
    console = client(tables)

    def beside(address: str) -> list[str | None]:
        page = Tags(console.get(address).text)
        links = {tag["rel"]: tag["href"] for tag in page.all("a") if "rel" in tag}
        return [links.get("prev"), links.get("next")]

    first, middle, last = (link("round", cluster="eu-1", seq=seq) for seq in (1, 4, 7))
    assert beside(first) == [None, middle]
    assert beside(middle) == [first, last]
    assert beside(last) == beside(link("round", cluster="eu-1")) == [middle, None]
    ids = ("eu-1:1:0", "eu-1:1:9", "eu-1:1:10")
    first, middle, last = (link("decision", id=name) for name in ids)
    assert [beside(first), beside(middle), beside(last)] == [
        [None, middle],
        [first, last],
        [middle, None],
    ]
    found = console.get(f"/api/v1{middle}").json()
    assert (found["previous"], found["next"]) == (ids[0], ids[2])


@pytest.mark.parametrize(
    ("address", "status", "text"),
    [
        ("/cluster", 400, "name is missing"),
        ("/cluster?name=nowhere", 404, "there is no cluster nowhere: there are eu-1"),
        ("/broker?cluster=eu-1&name=b-9", 404, "no round of eu-1 has seen a broker b-9"),
        ("/bundle?cluster=eu-1&name=t/n/x", 404, "no report of eu-1 names a bundle t/n/x"),
        ("/decision?id=nowhere", 404, "there is no decision nowhere"),
        ("/round?cluster=eu-1&seq=77", 404, "round 77 of eu-1 is not in the log"),
        ("/cluster?name=eu-1&sort=colour", 400, "sort = colour: expected one of usage, broker"),
        ("/cluster?name=eu-1&page=-1", 400, "page = -1: expected a whole number"),
        ("/cluster?name=eu-1&span=1y", 400, "span = 1y: expected one of 1h"),
        (
            "/cluster?name=eu-1&from=yesterday",
            400,
            "from = yesterday: expected a time of the years",
        ),
        ("/cluster?name=eu-1&to=0001-01-01T00:00", 400, "expected a time of the years 1971 to"),
        ("/cluster?name=eu-1&from=20&to=9", 400, "from = 20: expected a time of the years"),
        (
            "/cluster?name=eu-1&from=2026-11-02T10:00&to=2026-11-02T09:59",
            400,
            "to is not after from",
        ),
        ("/broker?cluster=eu-1&name=b-1:80&from=1790000000000&end=9", 400, "end is not after from"),
        (f"/search?q={'x' * 2001}", 400, "2001 characters: expected 2000 at most"),
        ("/nothing", 404, "Not Found"),
        ("/static/../app.py", 404, "Not Found"),
    ],
)
def test_a_wrong_address_is_answered_with_what_was_expected(
    site: TestClient, address: str, status: int, text: str
) -> None:
    answer = site.get(address)
    assert (answer.status_code, text in Tags(answer.text).text) == (status, True), answer.text


HOSTILE_VALUES = ("x" * 10_000, "\x00\x1b[31m", "\u202e\u2066", "-1", "1e308", "NaN", "9" * 400)


PATHS = ("cluster?name=eu-1", "broker?cluster=eu-1&name=b-1:80", "heat?cluster=eu-1")


@pytest.mark.parametrize("name", ["from", "to", "end", "span", "sort", "page", "text"])
def test_a_hostile_value_of_any_parameter_is_refused_or_shown_as_text(
    site: TestClient, name: str
) -> None:
    for value in HOSTILE_VALUES:
        for path in PATHS:
            for begin in ("/", "/api/v1/"):
                answer = site.get(f"{begin}{path}&{urlencode({name: value})}")
                expected = (200, 422) if begin != "/" else (200, 400)
                assert answer.status_code in expected, (path, value)
                if begin == "/":
                    assert obeyed(answer.text) == []


@pytest.mark.parametrize("name", ["by", "tenant", "namespace", "broker", "bundle", "from"])
def test_a_hostile_value_of_a_charts_parameter_is_refused_or_has_a_chart(
    site: TestClient, name: str
) -> None:
    for value in HOSTILE_VALUES:
        given = {"cluster": "eu-1", "by": "namespace", name: value}
        answer = site.get(f"/api/v1/chart?{urlencode(given)}")
        assert answer.status_code in (200, 422), (value, answer.text)


def test_a_large_clusters_chart_of_traffic_waits_until_somebody_asks_for_it(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = client(tables)  # one that has made no page yet
    monkeypatch.setattr("lb_stream.console.ranges.MAX_BUNDLES", 1)
    for given in ({"cluster": "eu-1", "by": "tenant"}, {"cluster": "eu-1", "tenant": "shop"}):
        page = Tags(site.get(link("groups", **given)).text)
        assert not [tag for tag in page.all("figure") if "data-chart" in tag]
        (shows,) = [tag["href"] for tag in page.all("a") if "open=chart" in tag["href"]]
        page = Tags(site.get(shows).text)
        assert [tag for tag in page.all("figure") if "data-chart" in tag]


def test_a_wrong_time_of_the_api_names_its_field(site: TestClient) -> None:
    for given, field in (({"from": "soon"}, "from"), ({"from": "2e12"}, "from")):
        answer = site.get(link("api/v1/chart", cluster="eu-1", **given))
        assert (answer.status_code, answer.json()["field"]) == (422, field)
    late = {"from": "2026-11-02T10:00:00Z", "to": "2026-11-02T10:00:00Z"}
    answer = site.get(link("api/v1/chart", cluster="eu-1", **late))
    assert (answer.status_code, answer.json()["field"]) == (422, "to")


def test_a_page_says_that_the_last_loads_are_old(tmp_path: Path) -> None:
    tables, long_ago_ms = tmp_path / "tables", NOW - 3 * 3_600_000
    at = {"cluster": "eu-1", "seq": 1, "log_seq": 1, "now_ms": long_ago_ms}
    logged = {"outcomes": "[]", "inputs": '{"settings": {}}', "memory": Memory().to_json()}
    fill(tables, ROUNDS, [at | {"epoch": 1, "batch_id": 1} | logged])
    fill(tables, BROKER_LOADS, [load("eu-1", 1, BROKER, 1.0) | at])
    console = client(tables)
    page = Tags(console.get("/cluster?name=eu-1").text)
    assert "The last loads are of" in page.text and "3 h ago." in page.text
    chart = console.get("/api/v1/chart?cluster=eu-1").json()
    assert chart["lines"][0]["values"][-1] == 0.5 and chart["gaps"] == []


def test_without_tables_the_page_says_how_to_make_them(tmp_path: Path) -> None:
    empty = client(tmp_path / "none")
    assert "Not up to date." in Tags(empty.get("/").text).text
    answer = empty.get("/cluster?name=eu-1")
    assert (
        answer.status_code == 503
        and "run `lbctl demo` or `lbctl balance`" in Tags(answer.text).text
    )


def test_it_answers_to_its_own_host_names_only_and_to_reads_only(site: TestClient) -> None:
    assert site.get("/", headers={"Host": "evil.example:8090"}).status_code == 421
    assert site.get("/", headers={"Host": "127.0.0.1:8090"}).status_code == 200
    assert site.get("/", headers={"Host": "[::1]:8090"}).status_code == 200
    assert [
        site.request(method, "/cluster?name=eu-1").status_code
        for method in ("POST", "PUT", "DELETE")
    ] == [405] * 3


def test_a_chart_has_a_value_or_none_for_each_of_its_times(site: TestClient) -> None:
    for given in ({}, {"broker": "b-1:80"}, {"bundle": BUNDLE}):
        chart = site.get(link("api/v1/chart", cluster="eu-1", span="15m", **given)).json()
        assert chart["times_ms"] == sorted(chart["times_ms"]) and len(chart["times_ms"]) > 5
        assert {len(line["values"]) for line in chart["lines"]} == {len(chart["times_ms"])}
        assert [mark["decision_id"] for mark in chart["marks"]] == ["eu-1:1:0"]
    assert chart["lines"][0]["values"][-1] == 3e6


def test_an_entry_of_a_feed_names_its_cluster(site: TestClient) -> None:
    for address in ("/", "/history"):
        (feed,) = Tags(site.get(address).text).all("ol")
        assert "one-cluster" not in feed["class"]
        shown = [
            tag["href"]
            for tag in Tags(site.get(address).text).all("a")
            if tag.get("class") == "cluster-name"
        ]
        assert set(shown) == {link("cluster", name="eu-1")}
    (feed,) = Tags(site.get(link("cluster", name="eu-1")).text).all("ol")
    assert feed["class"] == "feed one-cluster", "a page of one cluster hides what it says already"


def test_every_page_names_the_zone_of_its_times(
    site: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lb_stream.console.page.local_zone", lambda: "Europe/Berlin")
    page = Tags(site.get("/history?find=zone").text)
    assert "all times in Europe/Berlin" in page.text
    assert page.all("body")[0]["data-zone"] == "Europe/Berlin"


TIME = re.compile(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d(:\d\d)?")


@pytest.fixture
def kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[timezone]:
    """The machine's zone is five and a half hours ahead of UTC."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield timezone(timedelta(hours=5, minutes=30))
    monkeypatch.undo()
    time.tzset()


def test_all_times_of_all_pages_are_in_one_zone_with_dates_where_they_are_not_of_today(
    tmp_path: Path, kolkata: timezone
) -> None:
    fleet(tmp_path / "tables")
    day_before = {"cluster": "eu-1", "kind": "pause-cluster", "id": "c-2", "outcome": "done"}
    more = {"arguments": "{}", "text": "", "by": "ann", "log_seq": 2}
    fill(tmp_path / "tables", COMMANDS, [day_before | more | {"at_ms": NOW - 86_400_000}])
    add_rollout(tmp_path / "tables", {BROKER: BrokerProgress("draining", NOW)}, ())
    site = client(tmp_path / "tables")
    today = datetime.now(kolkata).date()
    dated = []
    for address in addresses():
        for tag, text in Tags(site.get(address).text).times():
            at = datetime.fromisoformat(tag["datetime"])
            assert datetime.fromisoformat(tag["title"]) == at, address
            assert tag["title"].endswith("+05:30"), address
            if TIME.fullmatch(text):
                there = at.astimezone(kolkata)
                dated.append(there.date() != today)
                assert text == f"{there:%Y-%m-%d %H:%M:%S}"[0 if dated[-1] else 11 :], address
    assert set(dated) == {False, True}


def test_a_choice_of_hours_names_their_end_with_its_date(kolkata: timezone) -> None:
    now = datetime.now(kolkata)
    assert end_after(24) == f"{now + timedelta(hours=24):%Y-%m-%d %H:%M}"
    assert end_after(0) == f"{now:%H:%M}"


def test_the_chosen_theme_is_in_the_first_byte_of_the_page(site: TestClient) -> None:
    (chosen,) = Tags(site.get("/", headers={"Cookie": "theme=dark"}).text).all("html")
    (made_up,) = Tags(site.get("/", headers={"Cookie": 'theme="><b>'}).text).all("html")
    assert chosen.get("data-theme") == "dark" and "data-theme" not in made_up


def test_a_page_is_made_once_for_all_anonymous_visitors(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    (search,) = (screen for screen in routes.SCREENS if screen.path == "/search")

    def counted(page: Page, query: SearchQuery) -> Shown:
        made.append(page.request.url.query)
        return search.show(page, query)

    monkeypatch.setattr(routes, "SCREENS", (replace(search, show=counted),))
    site = client(tables)
    first, again = (site.get("/search?q=b-1") for _ in range(2))
    assert (
        Tags(first.text).text == Tags(again.text).text
        and first.headers["ETag"] == again.headers["ETag"]
    )
    site.get("/search?q=b-1", headers={"Cookie": "theme=dark"})
    site.get("/search?q=b-2")
    assert made == ["q=b-1", "q=b-1", "q=b-2"]


def test_a_visitor_who_has_the_page_gets_status_304(site: TestClient) -> None:
    for address in (link("cluster", name="eu-1"), link("api/v1/chart", cluster="eu-1")):
        first = site.get(address)
        again = site.get(address, headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.content, again.headers["Cache-Control"]) == (
            304,
            b"",
            "no-store",
        )
        assert again.headers["ETag"] == first.headers["ETag"]
        assert site.get(address, headers={"If-None-Match": '"another"'}).content


def test_a_cached_page_has_the_time_at_which_it_is_sent(
    site: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = []
    for at in (1_000_000_000_000, 1_000_000_009_000):
        monkeypatch.setattr("lb_stream.console.page.now_ms", lambda at=at: at)
        (body,) = Tags(site.get(link("tenant", cluster="eu-1", name="shop")).text).all("body")
        times.append(int(body["data-now"]))
    assert times == [1_000_000_000_000, 1_000_000_009_000]


def test_the_banner_of_an_ended_demo_is_calm(tmp_path: Path) -> None:
    fleet(tmp_path / "tables")
    end = {"at_ms": int(time.time() * 1000) + 60_000, "how": "balanced"}
    (tmp_path / "ended.json").write_text(json.dumps(end))
    page = Tags(client(tmp_path / "tables").get("/").text)
    (banner,) = [tag for tag in page.all("p") if "banner" in tag.get("class", "")]
    assert banner["class"] == "banner calm"
    assert "The demo has ended." in page.text and "Not up to date" not in page.text
    assert "lbctl demo --keep" in page.text


def test_a_command_is_a_sentence_with_its_result_and_its_json_beside_it(tmp_path: Path) -> None:
    fleet(tmp_path / "tables")
    row = {"cluster": "eu-1", "kind": "drain-broker", "id": "c-9", "outcome": "accepted"}
    given = {"arguments": '{"broker": "b-3:80"}', "text": "it gives up 4 bundles", "by": "alice"}
    fill(tmp_path / "tables", COMMANDS, [row | given | {"at_ms": NOW, "log_seq": 9}])
    site = client(tmp_path / "tables")
    for address in ("/history", link("command", cluster="eu-1", id="c-9")):
        text = site.get(address).text
        page = " ".join(Tags(text).text.split())
        assert "alice drains b-3:80" in page and "it gives up 4 bundles" in page
        assert '"broker": "b-3:80"' in page and "<summary>JSON</summary>" in text
    answer = site.get(link("api/v1/command", cluster="eu-1", id="c-9")).json()
    assert answer["results"][0]["sentence"] == "alice drains b-3:80"
