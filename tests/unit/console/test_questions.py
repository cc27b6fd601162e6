"""Twelve questions of an operator are answered at most two clicks from a cluster's page."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lb_stream.console.address import link
from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.tables import COMMANDS, DECISIONS, OUTCOMES, ROUNDS
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.query.cluster_state import ClusterState, read_cluster_states
from lb_stream.query.drain_estimate import estimate_drain
from lb_stream.query.health import ClusterFacts
from lb_stream.query.lake import open_lake
from lb_stream.query.status_facts import load_cluster_facts
from lb_stream.store import Store
from tests.support.table_rows import NOW, decided, fill
from tests.unit.console.long_names import BROKER, CLUSTER, write_long_names
from tests.unit.console.site import Tags, client, fleet

QUESTIONS = {
    "why-moved": 0,
    "who": 0,
    "what-waits": 0,
    "healthy": 0,
    "why-hot": 1,
    "what-if": 1,
    "what-changed": 1,
    "cost": 1,
    "which-tenant": 1,
    "drain-end": 1,
    "undo": 1,
    "next": 1,
}
"""Question → the clicks that its answer takes."""
MAX_CLICKS = 2


class Answers(HTMLParser):
    """The questions that a page answers, with the text of each answer."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self._open: list[tuple[str, str | None]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("input", "meta", "link", "wbr", "br", "hr", "img"):
            self._open.append((tag, dict(attrs).get("data-answer")))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        for _, question in self._open:
            if question:
                self.found[question] = self.found.get(question, "") + data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    tables = tmp_path_factory.mktemp("questions") / "tables"
    write_long_names(tables)
    row = {"cluster": CLUSTER, "kind": "drain-broker", "id": "c-7", "outcome": "accepted"}
    more = {"arguments": f'{{"broker": "{BROKER}"}}', "text": "it gives up its bundles"}
    fill(tables, COMMANDS, [row | more | {"by": "ann", "at_ms": NOW, "log_seq": 9}])
    return client(tables)


def walk(site: TestClient, begin: str, clicks: int) -> dict[str, tuple[int, str]]:
    """Return question → after how many clicks it is answered, and the answer."""
    found: dict[str, tuple[int, str]] = {}
    seen, now = {begin}, [begin]
    for depth in range(clicks + 1):
        following: list[str] = []
        for address in now:
            answer = site.get(address)
            assert answer.status_code == 200, address
            for question, text in Answers(answer.text).found.items():
                found.setdefault(question, (depth, " ".join(text.split())))
            links = [str(tag.get("href")) for tag in Tags(answer.text).all("a")]
            following += [to for to in links if to.startswith("/") and to not in seen]
            seen |= set(links)
        if found.keys() >= QUESTIONS.keys():
            break
        now = list(dict.fromkeys(following))
    return found


def test_each_question_is_answered_within_two_clicks(site: TestClient) -> None:
    found = walk(site, link("cluster", name=CLUSTER), MAX_CLICKS)
    assert {question: depth for question, (depth, _) in found.items()} == QUESTIONS
    texts = {question: text for question, (_, text) in found.items()}
    assert all(texts.values())
    assert "ann drains" in texts["what-changed"] and "lbctl undo c-7" in texts["undo"]
    assert "smoothed usage" in texts["why-moved"]
    assert "SUSPENDED" in texts["healthy"], "the tables of this site are those of a bad day"


def test_a_change_of_settings_and_a_broker_that_went_are_listed_with_their_time(
    tmp_path: Path,
) -> None:
    write_long_names(tmp_path / "tables")
    site = client(tmp_path / "tables")
    changes = site.get(link("api/v1/changes", cluster=CLUSTER, span="1h")).json()["changes"]
    texts = {change["what"]: change["text"] for change in changes}
    assert "mode: default → approve" in texts["settings"]
    assert {"command", "job", "restart", "settings"} <= texts.keys()
    early = link("api/v1/changes", cluster=CLUSTER, to=NOW - 7_200_000, **{"from": NOW - 9_000_000})
    assert site.get(early).json()["changes"] == []


def read_drained(tables: Path, mode: str, moved: int) -> tuple[ClusterFacts, ClusterState]:
    """Return facts and state of a cluster whose broker BROKER is being drained."""
    fleet(tables, BROKER)
    memory = Memory(operator_state=OperatorState(drained=(BROKER,))).to_json()
    row = {"cluster": CLUSTER, "seq": 2, "log_seq": 2, "now_ms": NOW, "epoch": 1, "batch_id": 2}
    logged = {"outcomes": "[]", "inputs": f'{{"settings": {{"mode": "{mode}"}}}}'}
    fill(tables, ROUNDS, [row | logged | {"memory": memory}])
    for number in range(moved):
        name = f"eu-1:7:{number}"
        at_ms = NOW - 60_000 * (number + 1)
        made = example_decision(decision_id=name, seq=7, source=BROKER, issued_ms=at_ms)
        fill(tables, DECISIONS, [decided(made)])
        ended = {"decision_id": name, "cluster": CLUSTER, "outcome": "confirmed", "seq": 8}
        fill(tables, OUTCOMES, [ended | {"at_ms": at_ms + 1_000, "took_ms": 1_000}])
    with open_lake(Store.at(tables)) as lake:
        (facts,) = load_cluster_facts(lake)
        (state,) = read_cluster_states(lake, CLUSTER)
    return facts, state


@pytest.mark.parametrize(
    ("mode", "moved", "sentence"),
    [
        ("act", 0, "none has left it in the last 10 min"),
        ("act", 5, "a minute"),
        ("observe", 0, "in a dry run no decision is published"),
    ],
)
def test_the_end_of_a_drain_is_foreseen_only_where_bundles_leave(
    tmp_path: Path, mode: str, moved: int, sentence: str
) -> None:
    facts, state = read_drained(tmp_path / "tables", mode, moved)
    with open_lake(Store.at(tmp_path / "tables")) as lake:
        found = estimate_drain(lake, state, facts, BROKER, None)
        dead = estimate_drain(lake, state, facts, BROKER, "the job is not running")
        done = estimate_drain(lake, state, facts, "b-9:80", None)
    assert sentence in found["sentence"] and found["left"] == 1
    assert (found["until_ms"] is not None) == (moved > 0)
    assert dead["until_ms"] is None and "the job is not running" in dead["sentence"]
    assert "the drain is done" in done["sentence"]
