"""What four policies reach in the public scenarios, and rollouts in generated ones, stays what it
was, within tolerances.

A change of a strategy may change it: look at the difference, then run this again with REWRITE=1.
Scenarios that the project has no copy of are played by `make test-long`, where they are given
(SCENARIOS, or a folder scenarios/public beside the project's).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lb_stream.sim.families import build_from_file
from lb_stream.sim.measures import measure_figures
from lb_stream.sim.scenario.reading import read_scenario
from lb_stream.sim.scenario.scenario import Scenario
from lb_stream.sim.simulation import read_policy, run_simulation
from tests.support.sampling import sampled

PROJECT = Path(__file__).parents[4]
COPIED = PROJECT / "tests/data/scenarios"
RECORDED = PROJECT / "tests/data/scenario_measures.json"
POLICIES = ("none", "ThresholdShedder+LeastLongTermMessageRate", "AvgShedder", "LeastMoves")
TOLERANCES: dict[str, dict[str, float]] = {
    "max_over_bound_median": {"abs": 0.02},
    "max_over_bound_p95": {"abs": 0.04},
    "balanced_share": {"abs": 0.05},
    "moves": {"rel": 0.1, "abs": 2},
    "client_seconds_lost": {"rel": 0.1, "abs": 3_000},
    "orphan_s": {"rel": 0.05, "abs": 60},
    "violation_count": {"abs": 0},
}
ROLLOUTS = ("rollout_3", "rollout_10", "rollout_spare")
"""Families of scenarios, each with the seed of its preset."""
ROLLOUT_TOLERANCES: dict[str, dict[str, float]] = {
    "rollout_share": {"abs": 0},
    "rollout_moves_per_bundle": {"abs": 0.03},
    "rollout_moved_twice": {"abs": 0.03},
    "rollout_s": {"abs": 20},
    "rollout_worst": {"abs": 0.01},
    "rollout_even": {"abs": 0.02},
    "orphan_s": {"abs": 0},
    "violation_count": {"abs": 0},
}


def given_folder() -> Path | None:
    """The folder with all public scenarios, if it is there."""
    named = os.environ.get("SCENARIOS")
    folders = [Path(named)] if named else sorted(PROJECT.parent.glob("*/scenarios/public"))
    return next((folder for folder in folders if folder.is_dir()), None)


def recorded() -> dict[str, Any]:
    return dict(json.loads(RECORDED.read_text())) if RECORDED.exists() else {}


def compare(scenario: Scenario, policy: str, tolerances: dict[str, dict[str, float]]) -> None:
    found = measure_figures(scenario, run_simulation(scenario, read_policy(policy)).lines)
    kept = {name: found[name] for name in tolerances}
    if os.environ.get("REWRITE") == "1":
        known = recorded()
        known.setdefault(scenario.name, {})[policy] = kept
        RECORDED.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    expected = recorded()[scenario.name][policy]
    assert kept == {
        name: pytest.approx(expected[name], **tolerance) for name, tolerance in tolerances.items()
    }


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", sampled(sorted(path.name for path in COPIED.iterdir())))
def test_a_copied_scenario(name: str, policy: str) -> None:
    compare(read_scenario(COPIED / name), policy, TOLERANCES)


@pytest.mark.parametrize("family", sampled(ROLLOUTS))
def test_a_rollout(family: str) -> None:
    compare(build_from_file(None, family), "LeastMoves", ROLLOUT_TOLERANCES)


@pytest.mark.long
@pytest.mark.skipif(
    given_folder() is None, reason="the other scenarios are not given: SCENARIOS=FOLDER"
)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "name",
    sorted(recorded().keys() - {path.name for path in COPIED.iterdir()} - {*ROLLOUTS}),
)
def test_a_scenario_that_is_given(name: str, policy: str) -> None:
    folder = given_folder()
    assert folder is not None
    compare(read_scenario(folder / name), policy, TOLERANCES)
