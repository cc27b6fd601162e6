"""What holds of the measures of any trace, in any small scenario."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lb_stream.sim.measures import TraceError, measure_trace
from lb_stream.sim.measures.bound import lower_bound
from lb_stream.sim.measures.rules import Rules
from lb_stream.sim.measures.state import BrokerState, Demand, broker_usage
from lb_stream.sim.scenario.bundle_tree import BundleTree
from lb_stream.sim.scenario.scenario import (
    Scenario,
    ScenarioAntiAffinity,
    ScenarioIsolation,
    ScenarioPolicies,
)
from tests.support.small_scenario import event, small_scenario
from tests.support.trace_maker import random_trace

KINDS = ("crash", "leave", "up", "drain", "undrain", "slow")


@st.composite
def scenarios(draw: st.DrawFn, events: bool = True) -> Scenario:
    """Up to five unlike brokers, a dozen bundles of four namespaces, rules for some of them,
    events."""
    brokers, bundles = draw(st.integers(2, 5)), draw(st.integers(1, 12))
    row = st.integers(0, brokers - 1)
    names = [f"acme/n{draw(st.integers(0, 3))}" for _ in range(bundles)]
    some = st.lists(row, min_size=1, max_size=brokers, unique=True).map(tuple)
    isolation = ScenarioIsolation(
        "walls", ("acme/n0",), draw(some), draw(some), draw(st.integers(0, 2))
    )
    event_tuples = st.tuples(
        st.integers(0, 599), row, st.sampled_from(KINDS), st.sampled_from((0.25, 0.5, 1.0))
    )
    return small_scenario(
        draw(st.lists(row, min_size=bundles, max_size=bundles)),
        brokers,
        capacities=draw(
            st.lists(st.sampled_from((500.0, 1000.0, 3000.0)), min_size=brokers, max_size=brokers)
        ),
        loads=draw(st.lists(st.integers(0, 900), min_size=bundles, max_size=bundles)),
        namespaces=names,
        events=tuple(event(*one) for one in sorted(draw(st.lists(event_tuples, max_size=6))))
        if events
        else (),
        policies=ScenarioPolicies(
            (isolation,) if draw(st.booleans()) else (),
            (ScenarioAntiAffinity("apart", ("acme/n1", "acme/n2")),),
            ("acme/n3",),
            {"acme/n1": 2},
        ),
    )


@given(scenario=scenarios(events=False), data=st.data())
def test_no_allowed_assignment_has_a_greatest_usage_below_the_bound(
    scenario: Scenario, data: Any
) -> None:
    rules, state, demand = (
        Rules.from_scenario(scenario),
        BrokerState.at_start(scenario),
        Demand.at_tick(BundleTree(scenario), 0),
    )
    state.drained[data.draw(st.integers(0, len(scenario.brokers) - 1))] = data.draw(st.booleans())
    state.factor[:] = data.draw(st.sampled_from((0.5, 1.0)))
    allowed, owner = rules.allowed(state.up) & state.available, scenario.bundles.start_owner.copy()
    for row, policy in enumerate(rules.policy.tolist()):
        stays = rules.pinned[row] and not state.drained[owner[row]]
        assume(
            allowed[policy, owner[row]] if stays else allowed[policy].any()
        )  # rules that can't be kept bind nobody
        if not stays:
            owner[row] = data.draw(st.sampled_from(np.flatnonzero(allowed[policy]).tolist()))
    usage = broker_usage(scenario.brokers, owner, demand, state.factor)[state.available].max()
    assert lower_bound(scenario, rules, demand, state) <= usage * (1 + 1e-9)


@given(scenario=scenarios(), seed=st.integers(0, 10_000))
def test_what_can_have_happened_is_measured_and_adds_up(scenario: Scenario, seed: int) -> None:
    done = measure_trace(scenario, random_trace(scenario, seed, moves=20))
    figures, gaps, series = done.figures, done.gaps, done.series
    assert figures["moves"] == int(series.moves.sum()) == int(gaps.moved.sum())
    assert (
        figures["undone"] <= figures["moves"] - figures["moves_drain"]
        and 0 <= figures["redundant"] <= figures["moves"]
    )
    assert figures["violation_count"] == sum(
        value for name, value in figures["violations"].items() if not name.endswith("_s")
    )
    assert 0.0 <= figures["balanced_share"] <= 1.0 and figures["thrash"] >= -1e-9
    assert (gaps.length_s >= 0).all() and figures["orphans_at_end"] == int(
        (gaps.destination < 0).sum()
    )
    assert np.isnan(series.usage).sum() == sum(not up for up in _up(scenario).ravel())
    assert series.orphaned.max() <= series.unserved.max() <= len(scenario.bundles)


def _up(scenario: Scenario) -> np.ndarray:
    state, rows = BrokerState.at_start(scenario), []
    for tick in range(scenario.ticks):
        state.until(tick * scenario.tick_s)
        rows.append(state.up.copy())
    return np.array(rows)


@given(scenario=scenarios(), seed=st.integers(0, 10_000), data=st.data())
def test_an_effect_of_its_own_decision_cannot_come_twice_or_from_nowhere(
    scenario: Scenario, seed: int, data: Any
) -> None:
    lines = random_trace(scenario, seed, moves=20)
    effects = [at for at, line in enumerate(lines) if line["event"] != "decision"]
    assume(effects)
    at = data.draw(st.sampled_from(effects))
    decision = next(
        place for place, line in enumerate(lines) if line.get("id") == lines[at]["decision"]
    )
    for spoiled in ([*lines[: at + 1], *lines[at:]], lines[:decision] + lines[decision + 1 :]):
        with pytest.raises(TraceError):
            measure_trace(scenario, spoiled)


@given(scenario=scenarios(), seed=st.integers(0, 10_000))
def test_the_names_of_brokers_and_bundles_make_no_difference(scenario: Scenario, seed: int) -> None:
    lines = random_trace(scenario, seed, moves=10)
    other = replace(
        scenario,
        brokers=replace(
            scenario.brokers, names=tuple(f"x-{name}" for name in scenario.brokers.names)
        ),
    )
    renamed = [
        {
            key: f"x-{value}" if key in ("source", "destination", "broker") and value else value
            for key, value in line.items()
        }
        for line in lines
    ]
    assert measure_trace(scenario, lines).figures == measure_trace(other, renamed).figures
