"""What moves have cost, beside what the simulator knows of the time in which nobody served their
bundles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from lb_stream.contracts.tables import BUNDLE_HISTORY, DECISIONS, OUTCOMES
from lb_stream.core.model.memory import Memory
from lb_stream.core.round.decide import Round
from lb_stream.query.costs import _in_zone, load_move_costs
from lb_stream.query.explanations import build_explanation, load_decisions_about
from lb_stream.query.lake import open_lake
from lb_stream.query.past.tables import _TOOK, build_lake_query
from lb_stream.sim.measures.figures import measure_trace
from lb_stream.sim.measures.moves import Gaps
from lb_stream.sim.scenario.scenario import Event, MoveTimes, Scenario
from lb_stream.sim.simulation import read_policy
from lb_stream.sim.simulation.runner import Simulation
from lb_stream.store import Store
from tests.support.small_scenario import event, small_scenario
from tests.support.table_rows import decided, fill

TIMES = MoveTimes(release_s=2.0, acquire_s=3.9, reconnect_s=1.0)


def play(folder: Path, scenario: Scenario, policy: str, settings: Mapping[str, Any]) -> Gaps:
    """Play a scenario, and fill the tables of its decisions. Returns what really happened."""
    chosen = read_policy(policy)
    game = Simulation(scenario, replace(chosen, settings={**chosen.settings, **settings}))
    rounds, decide = list[Round](), game.balancer.decide

    def remembered(*given: Any) -> Round:
        rounds.append(decide(*given))
        text = rounds[-1].memory.to_json()
        assert Memory.from_json(text).to_json() == text
        return rounds[-1]

    game.balancer.decide = remembered
    game.run(scenario.end_s, lambda _part: None)
    fill(folder, DECISIONS, [decided(decision) for made in rounds for decision in made.decisions])
    of = {"cluster": scenario.name}
    fill(folder, OUTCOMES, [of | outcome.to_dict() for made in rounds for outcome in made.outcomes])
    fill(
        folder,
        BUNDLE_HISTORY,
        [of | {"bundle": name, "slot_ms": 0} for name in scenario.bundles.names],
    )
    return measure_trace(scenario, game.lines).gaps


def found_costs(folder: Path, scenario: Scenario) -> dict[str, float]:
    with open_lake(Store.at(folder), require_columns=False) as lake:
        rows = load_move_costs(lake, scenario.name, 0, "bundle", "total")
    return {row["whose"]: row["unserved_s"] for row in rows}


def true_costs(scenario: Scenario, gaps: Gaps) -> dict[str, float]:
    """Bundle → how long it was without an owner, by what began with a release."""
    found: dict[str, float] = {}
    moved = gaps.where(gaps.moved)
    for row, length_s in zip(moved.bundle.tolist(), moved.length_s.tolist(), strict=True):
        name = scenario.bundles.names[row]
        found[name] = found.get(name, 0.0) + length_s
    return found


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("LeastMoves", {"load_manager": "modular"}),
        ("LeastMoves", {"load_manager": "extensible"}),
        ("ThresholdShedder+LeastLongTermMessageRate", {"min_throughput_mb": 0}),
        ("TransferShedder+LeastResourceUsageWithWeight", {"load_manager": "extensible"}),
    ],
)
@pytest.mark.parametrize("events", [(), (event(100.0, 1, "drain"),)], ids=["calm", "drain"])
def test_moves_cost_the_time_in_which_nobody_served_their_bundles(
    tmp_path: Path, policy: str, settings: Mapping[str, Any], events: tuple[Event, ...]
) -> None:
    scenario = replace(small_scenario([0] * 8 + [1]), move=TIMES, events=events)
    gaps = play(tmp_path, scenario, policy, settings)
    assert gaps.moved.any()
    assert found_costs(tmp_path, scenario) == pytest.approx(true_costs(scenario, gaps), abs=0.05)


def test_a_failover_costs_the_time_from_its_broker_s_last_sign_of_life(tmp_path: Path) -> None:
    scenario = replace(small_scenario([0, 0, 1, 2]), move=TIMES, events=(event(105.0, 0, "crash"),))
    gaps = play(tmp_path, scenario, "LeastMoves", {})
    lost = gaps.where(~gaps.moved)
    assert len(lost) == 2
    with open_lake(Store.at(tmp_path), require_columns=False) as lake:
        for row, length_s in zip(lost.bundle.tolist(), lost.length_s.tolist(), strict=True):
            (assigned,) = load_decisions_about(lake, "bundle", scenario.bundles.names[row], None, 1)
            cost = build_explanation(lake, assigned).cost
            assert cost is not None
            assert length_s <= cost["unserved_s"] <= length_s + scenario.tick_s
        assert load_move_costs(lake, scenario.name, 0, "total", "total") == [], "a death is no move"


def test_a_first_assignment_costs_nobody_anything(tmp_path: Path) -> None:
    scenario = small_scenario([0, 1, 2, -1])
    names = (*scenario.bundles.names[:3], "acme/new/0x00000000_0xffffffff")
    scenario = replace(scenario, bundles=replace(scenario.bundles, names=names))
    play(tmp_path, scenario, "LeastMoves", {})
    with open_lake(Store.at(tmp_path), require_columns=False) as lake:
        (assigned,) = load_decisions_about(lake, "bundle", scenario.bundles.names[3], None, 1)
        assert assigned["outcome"] == "confirmed" and build_explanation(lake, assigned).cost is None


def test_a_destination_that_dies_costs_the_move_until_another_broker_serves_the_bundle(
    tmp_path: Path,
) -> None:
    slow = MoveTimes(release_s=2.0, acquire_s=30.0, reconnect_s=1.0)
    scenario = replace(small_scenario([0] * 4 + [1]), move=slow)
    first = play(tmp_path / "first", scenario, "LeastMoves", {})
    moved = first.where(first.moved)
    dies = event(float(moved.since_s[0]) + 5.0, int(moved.destination[0]), "crash")
    scenario = replace(scenario, events=(dies,))
    gaps = play(tmp_path / "dies", scenario, "LeastMoves", {})
    found = found_costs(tmp_path / "dies", scenario)
    bundle = scenario.bundles.names[int(moved.bundle[0])]
    assert (
        found[bundle] == pytest.approx(true_costs(scenario, gaps)[bundle], abs=0.05)
        and found[bundle] > 50
    )


def test_what_if_plays_with_the_times_that_moves_have_taken(tmp_path: Path) -> None:
    """However long ago they were."""
    scenario = replace(small_scenario([0] * 9), move=TIMES)
    play(tmp_path, scenario, "LeastMoves", {})
    with open_lake(Store.at(tmp_path), require_columns=False) as lake:
        (took,) = build_lake_query(lake)(
            _TOOK, {"cluster": scenario.name, "to_ms": 2**60}
        ).to_pylist()
    delay_ms = scenario.report_delay_s * 1000
    assert (took["release_ms"], took["acquire_ms"]) == (2_000 + delay_ms, 3_900 + delay_ms)


@pytest.mark.parametrize(
    ("zone", "day"),
    [("UTC", "2026-03-31"), ("+05:30", "2026-04-01"), ("America/New_York", "2026-03-31")],
)
def test_a_day_begins_in_the_zone_that_is_asked_for(zone: str, day: str) -> None:
    at_ms = int(datetime(2026, 3, 31, 22, 0, tzinfo=UTC).timestamp() * 1000)
    query = f"SELECT strftime({_in_zone(str(at_ms), zone)}, '%Y-%m-%d') AS day"
    assert duckdb.sql(query).fetchall() == [(day,)]
