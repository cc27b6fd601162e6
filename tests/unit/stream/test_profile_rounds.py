"""A change of the brokers' version through the deciding stage: when it counts, what the log has,
and that its rounds are decided again bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lb_stream.core.model.followed_profile import FollowedProfile
from lb_stream.core.model.memory import Memory
from lb_stream.io.tables.replay import RoundFilter, replay
from lb_stream.query.cluster_state import load_cluster_states
from lb_stream.query.profiles import build_profile_facts
from lb_stream.store import Store
from tests.support.round_stage import Stage
from tests.support.upgraded_cluster import DELAY_MINUTES, run_upgraded


def followed(row: dict[str, Any]) -> FollowedProfile:
    return Memory.from_json(row["memory"]).followed


def test_a_restart_within_the_delay_keeps_it_and_all_rounds_are_replayed(tmp_path: Path) -> None:
    stage = run_upgraded(tmp_path)
    for _ in range(DELAY_MINUTES - 1):
        stage.restart()
        assert followed(stage.run()).profile == "pulsar-4.0"
    stage.restart()
    assert followed(stage.run()) == FollowedProfile("pulsar-5.0", "5.0.1", {"5.0.1": 3})
    stage.run()
    (state,) = load_cluster_states(Store.at(stage.job.tables))
    assert state.config.shedder.name == "AvgShedder"
    results = [round_.result for round_ in replay(stage.settings.stream, RoundFilter())[1]]
    assert results == ["equal"] * len(results) and len(results) == DELAY_MINUTES + 5


def test_the_tables_show_the_change_before_it_counts(tmp_path: Path) -> None:
    stage = run_upgraded(tmp_path)
    (state,) = load_cluster_states(Store.at(stage.job.tables))
    facts = build_profile_facts(state)
    assert (facts.name, facts.version) == ("pulsar-4.0", "4.0.7")
    assert facts.next == "pulsar-5.0" and facts.next_ms == state.now_ms + DELAY_MINUTES * 60_000
    assert "shedding_strategy: ThresholdShedder → AvgShedder" in [
        change.text for change in facts.changes
    ]


def test_brokers_without_a_version_leave_no_trace_in_the_log(tmp_path: Path) -> None:
    row = Stage(tmp_path, shadows={}).run()
    assert "followed" not in row["memory"]
