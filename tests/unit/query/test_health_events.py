"""What people should be told of, out of facts and small tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.decisions import Decision, example_decision
from lb_stream.contracts.settings import NotifySettings, Settings
from lb_stream.contracts.tables import BROKER_LOADS, DECISIONS, OUTCOMES, REFUSALS, ROUNDS
from lb_stream.query import QueryError
from lb_stream.query.health import ClusterFacts, Facts
from lb_stream.query.lake import open_lake
from lb_stream.query.screens.health_events import (
    HealthEvents,
    find_health_events,
    read_health_events,
)
from lb_stream.store import Store
from tests.support.job_facts import JOB
from tests.support.recorded_tables import record
from tests.support.table_rows import NOW, decided, fill, load
from tests.support.wordings import check_wording

MINUTE_MS = 60_000
RULES = NotifySettings()
WELL = Facts(
    NOW,
    replace(JOB, since_ms=NOW - 60 * MINUTE_MS, last_batch_ms=NOW - 2_000),
    (ClusterFacts("eu", NOW, 2, brokers=3),),
)


def seen(folder: Path, facts: Facts = WELL, rules: NotifySettings = RULES) -> HealthEvents:
    fill(
        folder,
        ROUNDS,
        [{"cluster": "eu", "seq": 2, "log_seq": 2, "now_ms": NOW, "inputs": '{"settings": {}}'}],
    )
    with open_lake(Store.at(folder)) as lake:
        return find_health_events(lake, facts, rules)


def told(found: HealthEvents) -> list[tuple[str, str, str]]:
    return [trouble.key for trouble in found.events]


def test_nothing_is_wrong_where_nothing_is(tmp_path: Path) -> None:
    assert seen(tmp_path) == HealthEvents(NOW, ())


def test_what_status_finds_is_told_in_its_words_and_each_silent_broker_is_one(
    tmp_path: Path,
) -> None:
    cluster = replace(
        WELL.clusters[0], silent=("b-1", "b-2"), gone=("b-9",), error="Traceback\nKeyError: 'x'"
    )
    found = seen(tmp_path, replace(WELL, clusters=(cluster,), disk_free=1, disk_size=100 << 30))
    assert sorted(told(found)) == [
        ("broker_dead", "eu", "b-1"),
        ("broker_dead", "eu", "b-2"),
        ("cluster_failing", "eu", ""),
        ("disk_low", "", ""),
    ]
    assert {trouble.description for trouble in found.events} >= {
        "eu: b-1 is silent",
        "eu's last round failed (KeyError: 'x')",
    }
    assert all(trouble.advice for trouble in found.events) and found.endings.keys() == {
        ("broker_dead", "eu", "b-9")
    }


def test_each_proposal_that_waits_is_told_with_the_commands_that_answer_it(tmp_path: Path) -> None:
    made = record(tmp_path / "tables", 12, settings={"mode": "approve"})
    waiting = [proposal.proposal_id for proposal in made.loop.memory.proposals]
    with open_lake(Store.at(made.root)) as lake:
        found = find_health_events(lake, WELL, NotifySettings(imbalance_points=100))
    assert (
        sorted(told(found)) == sorted(("approval_wanted", "demo", name) for name in waiting)
        and waiting
    )
    first = next(trouble for trouble in found.events if trouble.subject == waiting[0])
    assert (
        "demo: move " in first.description
        and "usage" in first.description
        and first.advice.startswith(f"lbctl approve {waiting[0]}, or lbctl reject")
    )


def test_a_dead_job_makes_the_look_stale_and_a_suspended_cluster_is_named(tmp_path: Path) -> None:
    found = seen(tmp_path, replace(WELL, job=replace(WELL.job, running=False)))
    assert (told(found), found.is_stale) == ([("job_down", "", "")], True)
    cluster = replace(WELL.clusters[0], suspended_by="everything_silent", silent=("b-1",))
    found = seen(tmp_path, replace(WELL, clusters=(cluster,)))
    assert (told(found), found.suspended, found.is_stale) == (
        [("cluster_suspended", "eu", "")],
        {"eu"},
        False,
    )


@pytest.mark.parametrize(("highest", "uneven"), [(0.74, False), (0.76, False), (0.95, True)])
def test_a_cluster_is_uneven_when_one_living_broker_is_far_above_the_mean(
    tmp_path: Path, highest: float, uneven: bool
) -> None:
    usages = {"b-1:80": highest, "b-2:80": 0.45, "b-3:80": 0.45}
    rows = [load("eu", 2, name, 1.0) | {"usage_ratio": usage} for name, usage in usages.items()]
    fill(
        tmp_path,
        BROKER_LOADS,
        [*rows, load("eu", 2, "b-4:80", 1.0, alive=False) | {"usage_ratio": 9.0}],
    )
    found = seen(tmp_path)
    assert told(found) == ([("imbalance", "eu", "")] if uneven else [])
    if uneven:
        check_wording(found.events[0].description)
        assert told(seen(tmp_path, rules=RULES.model_copy(update={"imbalance_points": 34.0}))) == []


def test_drained_brokers_and_forgotten_clusters_make_no_cluster_uneven(tmp_path: Path) -> None:
    usages = (
        ("eu", "b-1", 0.9),
        ("eu", "b-2", 0.1),
        ("eu", "b-3", 0.85),
        ("old", "b-1", 0.9),
        ("old", "b-2", 0.1),
    )
    fill(
        tmp_path,
        BROKER_LOADS,
        [load(cluster, 2, name, 1.0) | {"usage_ratio": usage} for cluster, name, usage in usages],
    )
    assert told(seen(tmp_path)) == [("imbalance", "eu", "")]
    assert (
        told(seen(tmp_path, replace(WELL, clusters=(replace(WELL.clusters[0], drained=("b-2",)),))))
        == []
    )


def moves(folder: Path, bundle: str, *ends: tuple[str, float], kind: str = "unload") -> None:
    """Decisions about a bundle, and how and how many minutes ago they ended."""
    made: list[Decision] = [
        example_decision(
            decision_id=f"eu:{bundle}:{number}", cluster="eu", bundle=bundle, kind=kind
        )
        for number in range(len(ends))
    ]
    fill(folder, DECISIONS, [decided(one) for one in made])
    rows: list[dict[str, Any]] = [
        {
            "decision_id": one.decision_id,
            "cluster": "eu",
            "bundle": bundle,
            "outcome": outcome,
            "detail": f"by {outcome}",
            "at_ms": round(NOW - minutes * MINUTE_MS),
        }
        for one, (outcome, minutes) in zip(made, ends, strict=True)
    ]
    fill(folder, OUTCOMES, rows)


def test_moves_that_fail_again_and_again_are_told_until_one_succeeds(tmp_path: Path) -> None:
    moves(tmp_path, "t/n/a", ("refused", 9), ("expired", 5), ("failed", 1))
    moves(tmp_path, "t/n/b", ("refused", 9), ("refused", 5), ("refused", 3), ("confirmed", 1))
    moves(tmp_path, "t/n/c", ("confirmed", 9), ("refused", 5), ("refused", 3))
    moves(tmp_path, "t/n/d", ("refused", 90), ("refused", 5), ("refused", 3))
    moves(tmp_path, "t/n/e", ("refused", 9), ("refused", 5), ("refused", 3), kind="split")
    moves(
        tmp_path,
        "t/n/f",
        ("refused", 9),
        ("refused", 5),
        ("refused", 3),
        ("refused", 1),
        kind="assign",
    )
    found = seen(tmp_path)
    assert told(found) == [("moves_failing", "eu", "t/n/a"), ("moves_failing", "eu", "t/n/f")]
    assert [trouble.description for trouble in found.events] == [
        "eu: the last 3 decisions to move t/n/a failed (by failed)",
        "eu: the last 4 decisions to move t/n/f failed (by refused)",
    ]


def test_a_budget_is_exhausted_until_it_has_room_again(tmp_path: Path) -> None:
    row = {
        "cluster": "eu",
        "rule": "moves_per_hour",
        "count": 1,
        "limit": 4.0,
        "subjects": ["t/n/a"],
    }
    fill(
        tmp_path,
        REFUSALS,
        [
            row
            | {"namespace": "t/waits", "now_ms": NOW - 20 * MINUTE_MS, "until_ms": NOW + MINUTE_MS},
            row
            | {
                "namespace": "t/has-room",
                "now_ms": NOW - 20 * MINUTE_MS,
                "until_ms": NOW - MINUTE_MS,
            },
            row | {"namespace": "t/never", "now_ms": NOW - MINUTE_MS, "until_ms": None},
            row
            | {"namespace": "t/never-long-ago", "now_ms": NOW - 50 * MINUTE_MS, "until_ms": None},
            row
            | {
                "namespace": "t/other-rule",
                "rule": "frozen",
                "now_ms": NOW,
                "until_ms": NOW + MINUTE_MS,
            },
        ],
    )
    found = seen(tmp_path)
    assert told(found) == [
        ("budget_exhausted", "eu", "t/never"),
        ("budget_exhausted", "eu", "t/waits"),
    ]
    check_wording(found.events[0].description)


def test_without_tables_and_kafka_both_are_told(tmp_path: Path) -> None:
    found = read_health_events(Store.at(tmp_path), Settings(), "127.0.0.1:1")
    assert [event.name for event in found.events][:2] == [
        "kafka_down",
        "job_down",
    ] and found.is_stale


def test_damaged_tables_are_no_word_about_the_job(tmp_path: Path) -> None:
    fill(tmp_path, BROKER_LOADS, [load("eu", 2, "b-1", 1.0)])
    next((tmp_path / "broker_loads" / "_delta_log").glob("*.json")).write_text("{")
    with pytest.raises(QueryError) as error:
        read_health_events(Store.at(tmp_path), Settings(), "127.0.0.1:1")
    check_wording(error.value)
