"""Pages say things once, in their units, and as they are while the job is dead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from lb_stream.console.address import link
from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import Access
from lb_stream.console.sources.computations import Computation
from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.tables import BROKER_LOADS, DECISIONS, LEADERS, ROUNDS
from lb_stream.core.model.memory import Memory
from lb_stream.io.leadership.leader import this_host
from lb_stream.query.cluster_state import read_cluster_states
from lb_stream.query.lake import open_lake
from lb_stream.query.present.plans import load_plan_effect
from lb_stream.store import Store
from tests.support.table_rows import NOW, decided, fill, load
from tests.unit.console.site import BROKER, BUNDLE, PASSWORD, Tags, client, fleet, log_in

CLUSTER = link("cluster", name="eu-1")
NO_PROCESS = 2**22 + 1
"""No machine gives a process this number."""


def text_of(site: TestClient, address: str) -> str:
    answer = site.get(address)
    assert answer.status_code == 200, answer.text
    return " ".join(Tags(answer.text).text.split())


def add_round(tables: Path, memory: Memory | None = None, **settings: Any) -> None:
    """Add a round of eu-1 with these settings, and without an error."""
    row = {"cluster": "eu-1", "seq": 2, "log_seq": 2, "now_ms": NOW, "epoch": 1, "batch_id": 2}
    inputs = json.dumps({"settings": settings})
    logged = {"outcomes": "[]", "inputs": inputs, "memory": (memory or Memory()).to_json()}
    fill(tables, ROUNDS, [row | logged])


def kill_job(tables: Path) -> None:
    leader = {"pipeline": "lb", "epoch": 9, "host": this_host(), "pid": NO_PROCESS}
    fill(tables, LEADERS, [leader | {"since_ms": NOW - 60_000}])


def test_no_page_calls_a_cluster_live_while_the_job_is_dead(tmp_path: Path) -> None:
    fleet(tmp_path)
    add_round(tmp_path, Memory(last_shed_ms=NOW - 1_000), mode="act")
    kill_job(tmp_path)
    site = client(tmp_path)
    for address in ("/", CLUSTER):
        states = [tag for tag in Tags(site.get(address).text).all("span") if tag.get("class")]
        assert "state live" not in {tag["class"] for tag in states}
        assert "not up to date" in text_of(site, address)
    answer = site.get(f"/api/v1{CLUSTER}").json()
    assert answer["overview"]["state"] == "not up to date"
    checks = {check["name"]: check["description"] for check in answer["explanation"]["checks"]}
    assert checks["shedding pass"].endswith("; none is known since")


def test_the_fleets_page_says_each_finding_once(tmp_path: Path) -> None:
    fleet(tmp_path)
    kill_job(tmp_path)
    site = client(tmp_path)
    verdict = site.get("/api/v1/clusters").json()["verdict"]
    text = text_of(site, "/")
    assert len(verdict["findings"]) > 1
    for finding in verdict["findings"]:
        assert text.count(finding["description"]) == 1, finding
    assert "Not up to date. the figures are" in text
    assert "the job is not running" in text_of(site, CLUSTER).partition("eu-1 ")[2]


def test_repeats_of_a_dry_run_are_one_entry_with_their_number(tmp_path: Path) -> None:
    fleet(tmp_path)
    rows = [
        example_decision(
            decision_id=f"eu-1:{seq}:0",
            seq=seq,
            issued_ms=NOW + seq,
            bundle=BUNDLE,
            source=BROKER,
            dry_run=True,
        )
        for seq in range(10, 22)
    ]
    fill(tmp_path, DECISIONS, [decided(row) for row in rows])
    site = client(tmp_path)
    assert "decided 12 times since" in text_of(site, link("history", cluster="eu-1"))
    entries = site.get(link("api/v1/history", cluster="eu-1", kinds="moves")).json()["entries"]
    assert [(row["id"], row["times"]) for row in entries] == [("eu-1:21:0", 12), ("eu-1:1:0", 1)]
    assert entries[0]["first_ms"] == NOW + 10


def test_a_move_is_called_move_and_a_mode_by_its_state(tmp_path: Path) -> None:
    fleet(tmp_path)
    add_round(tmp_path, mode="act")
    site = client(tmp_path)
    assert f"Move of {BUNDLE}" in text_of(site, link("decision", id="eu-1:1:0"))
    assert "mode act live" in text_of(site, link("settings", cluster="eu-1"))
    assert "The cluster is live (mode act)" in text_of(site, link("proposals", cluster="eu-1"))


def test_a_range_of_time_is_typed_in_one_format(tmp_path: Path) -> None:
    fleet(tmp_path)
    site = client(tmp_path)
    inputs = {tag["id"]: tag for tag in Tags(site.get(CLUSTER).text).all("input") if "id" in tag}
    given = {name: inputs[name]["value"] for name in ("from", "to")}
    assert all("type" not in inputs[name] for name in given)
    again = Tags(site.get(link("cluster", name="eu-1", **given)).text)
    shown = {tag.get("id"): tag.get("value") for tag in again.all("input")}
    assert {name: shown[name] for name in given} == given
    wrong = site.get(link("cluster", name="eu-1", **(given | {"to": "28.11.2026"})))
    assert wrong.status_code == 400 and "such as 2026-11-28T19:30" in wrong.text


def test_a_forecast_that_is_computed_reloads_itself_without_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet(tmp_path)
    site = client(tmp_path)
    computation: Computation[Any] = Computation()
    monkeypatch.setattr("lb_stream.console.what_if._compute", lambda *_: computation)
    for address in (
        link("plan", cluster="eu-1"),
        link("what-if", cluster="eu-1", drain=BROKER),
    ):
        page = site.get(address).text
        assert '<noscript><meta http-equiv="refresh"' in page and 'data-refresh="1000"' in page
    computation.error = "no broker"
    computation.ended.set()
    page = site.get(link("plan", cluster="eu-1")).text
    assert "http-equiv" not in page and "data-refresh" not in page


def test_the_form_of_a_rollout_asks_in_words(tmp_path: Path) -> None:
    fleet(tmp_path / "tables")
    users = tmp_path / "users.toml"
    users.write_text(user_lines("ann", PASSWORD, "admin", {}))
    site = client(tmp_path / "tables", Access.load(users), lambda *_: None)
    log_in(site, "ann")
    text = text_of(site, link("send/rollout-start", cluster="eu-1"))
    for label in ("Only brokers whose name matches", "Brokers in their order", "First broker"):
        assert label in text
    assert "Brokers away at the same time" in text and " At most " not in text


@pytest.mark.parametrize(
    ("strategy", "limit", "note"),
    [
        ("ThresholdShedder", "limit: mean + 10.0%", ""),
        ("TransferShedder", "mean + allowed deviation of 25.0%", ""),
        ("UniformLoadShedder", None, "UniformLoadShedder compares the message rates"),
        ("AvgShedder", None, "AvgShedder compares the usages"),
    ],
)
def test_a_chart_has_the_limit_or_says_that_there_is_none(
    tmp_path: Path, strategy: str, limit: str | None, note: str
) -> None:
    fleet(tmp_path)
    extensible = {"load_manager": "extensible"} if strategy == "TransferShedder" else {}
    add_round(tmp_path, shedding_strategy=strategy, **extensible)
    chart = client(tmp_path).get(link("api/v1/chart", cluster="eu-1")).json()
    limits = [line["name"] for line in chart["lines"] if line["kind"] == "limit"]
    assert limits == ([] if limit is None else [limit])
    assert chart["note"].startswith(note) and bool(chart["note"]) == bool(note)


def test_silent_and_drained_brokers_do_not_count_in_a_plans_mean(tmp_path: Path) -> None:
    rows = [
        load("eu-1", 2, "b-1:80", 5.0) | {"cpu_ratio": 0.9, "active": True},
        load("eu-1", 2, "b-2:80", 1.0) | {"cpu_ratio": 0.3, "active": True},
        load("eu-1", 2, "b-3:80", 1.0) | {"cpu_ratio": 0.0, "active": False},  # silent
    ]
    fill(tmp_path, BROKER_LOADS, rows)
    add_round(tmp_path)
    move = {"kind": "unload", "bundle": BUNDLE, "source": "b-1:80", "destination": "b-2:80"}
    with open_lake(Store.at(tmp_path)) as lake:
        (state,) = read_cluster_states(lake, "eu-1")
        effect = load_plan_effect(lake, state, [move])
    assert effect["max_before"] == pytest.approx(0.9)
    assert effect["mean_before"] == pytest.approx(0.6)
