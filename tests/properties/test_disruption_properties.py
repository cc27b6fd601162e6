"""No strategy ever moves more of a namespace than its budget allows, whatever happens to its
brokers, and whenever the job is restarted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lb_stream.core.model.memory import Memory
from lb_stream.sim.measures import measure_figures
from lb_stream.sim.scenario.scenario import Event, Fault, ScenarioPolicies
from lb_stream.sim.simulation.policy import Policy
from lb_stream.sim.simulation.runner import Simulation
from tests.support.small_scenario import small_scenario

EAGER = {
    "shedding_interval_ms": 10_000,
    "shedding_grace_period_ms": 0,
    "threshold_percent": 1,
    "min_throughput_mb": 0,
    "history_ratio": 0,
    "overloaded_threshold_percent": 20,
    "unloading_timeout_ms": 20_000,
}
STRATEGIES: dict[str, dict[str, Any]] = {
    "ThresholdShedder": {},
    "OverloadShedder": {},
    "UniformLoadShedder": {"min_unload_msgs_per_s": 0},
    "AvgShedder": {
        "placement_strategy": "AvgShedder",
        "hit_count_low": 1,
        "hit_count_high": 1,
        "min_unload_msgs_per_s": 0,
    },
    "TransferShedder": {
        "load_manager": "extensible",
        "hit_count_threshold": 0,
        "target_std": 0.01,
        "unload_delay_ms": 0,
    },
}
NAMESPACES = ("acme/shop", "acme/web")
TICKS = 420  # of ten seconds: more than an hour


@settings(max_examples=settings.default.max_examples // 4, deadline=None)
@given(
    strategy=st.sampled_from(sorted(STRATEGIES)),
    loads=st.lists(st.floats(1, 400), min_size=4, max_size=10),
    most=st.tuples(st.integers(0, 2), st.integers(0, 4)),
    slow=st.lists(
        st.tuples(st.integers(1, 400), st.integers(0, 2), st.sampled_from((0.3, 1.0, 3.0))),
        max_size=6,
    ),
    drained=st.lists(
        st.tuples(st.integers(1, 200), st.integers(1, 200), st.integers(0, 2)), max_size=2
    ),
    fault=st.sampled_from((None, "lost_acks", "lost_decisions", "stale_reports")),
    restart=st.integers(10, 4_000),
)
def test_no_strategy_ever_breaks_a_budget(
    strategy: str,
    loads: list[float],
    most: tuple[int, int],
    slow: list[tuple[int, int, float]],
    drained: list[tuple[int, int, int]],
    fault: Any,
    restart: int,
) -> None:
    events = [Event(10.0 * tick, broker, "slow", factor) for tick, broker, factor in slow]
    for tick, length, broker in drained:
        events += [
            Event(10.0 * tick, broker, "drain", 1.0),
            Event(10.0 * (tick + length), broker, "undrain", 1.0),
        ]
    scenario = small_scenario(
        [0] * len(loads),
        ticks=TICKS,
        loads=loads,
        namespaces=sorted(NAMESPACES[at % 2] for at in range(len(loads))),
        policies=ScenarioPolicies(budgets=dict(zip(NAMESPACES, most, strict=True))),
        events=tuple(sorted(events, key=lambda event: event.t_s)),
        faults=() if fault is None else (Fault(fault, (0, 1), 100.0, 2_000.0, 60.0),),
    )
    game = Simulation(
        scenario, Policy(strategy, {**EAGER, "shedding_strategy": strategy, **STRATEGIES[strategy]})
    )
    game.run(float(restart), lambda _part: None)
    game.balancer.memory = replace(Memory.from_json(game.balancer.memory.to_json()), epoch=2)
    game.run(scenario.end_s, lambda _part: None)
    assert measure_figures(scenario, game.lines)["budget_breaches"] == 0
