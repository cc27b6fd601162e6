"""A rollout restarts every broker, empty, while each bundle is served and rules hold: with every
strategy, whatever loads and order are, and though the job is killed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lb_stream.core.model.memory import Memory
from lb_stream.sim.measures import measure_figures
from lb_stream.sim.scenario.scenario import (
    Event,
    ScenarioAntiAffinity,
    ScenarioPolicies,
    ScenarioRollout,
)
from lb_stream.sim.simulation.policy import Policy
from lb_stream.sim.simulation.runner import Simulation
from tests.support.small_scenario import small_scenario

STRATEGIES: dict[str, dict[str, Any]] = {
    "LeastMoves": {"shedding_strategy": "LeastMoves"},
    "ThresholdShedder": {"shedding_strategy": "ThresholdShedder"},
    "TransferShedder": {"shedding_strategy": "TransferShedder", "load_manager": "extensible"},
    "none": {"enabled": False},
}
NAMESPACES = ("acme/a", "acme/b", "acme/shop")
TICKS = 150  # of ten seconds
APART = ScenarioPolicies((), (ScenarioAntiAffinity("apart", ("acme/a", "acme/b")),))


@settings(max_examples=settings.default.max_examples // 4, deadline=None)
@given(
    strategy=st.sampled_from(sorted(STRATEGIES)),
    loads=st.lists(st.floats(1, 60), min_size=6, max_size=18),
    owners=st.lists(st.integers(0, 3), min_size=18, max_size=18),
    brokers=st.permutations(range(4)),
    count=st.integers(1, 4),
    in_order=st.booleans(),
    at_most=st.integers(1, 2),
    killed=st.integers(45, 400),
    crash=st.none() | st.tuples(st.integers(5, 60), st.integers(0, 3)),
)
def test_every_broker_is_restarted_and_no_bundle_is_lost(
    strategy: str,
    loads: list[float],
    owners: list[int],
    brokers: list[int],
    count: int,
    in_order: bool,
    at_most: int,
    killed: int,
    crash: tuple[int, int] | None,
) -> None:
    # Namespaces that are kept apart begin at different brokers.
    namespaces = sorted(NAMESPACES[min(at % 6, 2)] for at in range(len(loads)))
    own = {"acme/a": 0, "acme/b": 1}
    start = [own.get(name, owner) for name, owner in zip(namespaces, owners, strict=False)]
    events: tuple[Event, ...] = ()
    if crash is not None:
        tick, broker = crash
        events = (Event(10.0 * tick, broker, "crash"), Event(10.0 * tick + 200.0, broker, "up"))
    scenario = replace(
        small_scenario(
            start,
            4,
            TICKS,
            loads=loads,
            namespaces=namespaces,
            policies=APART,
            events=events,
        ),
        format=2,
        rollout=ScenarioRollout(40.0, 30.0, at_most, tuple(brokers[:count]), in_order),
    )
    game = Simulation(scenario, Policy(strategy, STRATEGIES[strategy]))
    game.run(float(killed), lambda _part: None)
    game.balancer.memory = replace(Memory.from_json(game.balancer.memory.to_json()), epoch=2)
    game.run(scenario.end_s, lambda _part: None)
    figures = measure_figures(scenario, game.lines)
    assert figures["orphans_at_end"] == 0
    broken = {rule for rule, count in figures["violations"].items() if count}
    if crash is not None:
        # While two brokers are away, bundles of a group may have no broker apart. Then placement
        # does its best, as after any death.
        broken.discard("anti_affinity_placements")
    assert not broken
    if crash is None:
        assert figures["rollout_share"] == 1.0
        assert figures["orphan_s"] == 0.0
        assert game.balancer.memory.operator_state.rollout is None
