"""A shedding pass over an uneven cluster says something: a decision, or a refusal with figures that
says why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.core.model.rules import REFUSES
from lb_stream.core.round.decide import Round
from lb_stream.core.round.shed import UNEVEN
from lb_stream.core.shedding import shedder
from lb_stream.core.shedding.base import traits_of
from lb_stream.query.strategy_numbers import StrategyNumbers, describe_numbers
from lb_stream.settings.resolve import cluster_config
from tests.properties.lives import EVERY_ROUND, Step, lives, played

OF_ITSELF = ("OverloadShedder", "SimpleLoadManager", "ThresholdShedder", "UniformLoadShedder")
"""Strategies that judge every broker by itself: each that is beyond the limit sheds, or is refused
by name.

A lower boundary takes a second sample of usages after that, and only one broker then sheds.
"""

settings = st.fixed_dictionaries(
    {},
    optional={
        "profile": st.sampled_from(["default", "pulsar-4.0", "documented"]),
        "shedding_grace_period_ms": st.sampled_from([0, 60_000, 1_800_000]),
        "loadBalancerBundleUnloadMinThroughputThreshold": st.sampled_from([0, 10]),
        "loadBalancerBrokerThresholdShedderPercentage": st.sampled_from([0, 10]),
        "loadBalancerHistoryResourcePercentage": st.sampled_from([0, 0.9]),
        "loadBalancerBrokerOverloadedThresholdPercentage": st.sampled_from([30, 85]),
        "lowerBoundarySheddingEnabled": st.booleans(),
        "minUnloadMessage": st.sampled_from([0, 1000]),
        "minUnloadMessageThroughput": st.sampled_from([0, 1_048_576]),
        "maxUnloadPercentage": st.sampled_from([0, 0.2, 1]),
        "maxUnloadBundleNumPerShedding": st.sampled_from([-1, 0, 1]),
        "loadBalancerMsgRateDifferenceShedderThreshold": st.sampled_from([0, 50]),
        "loadBalancerAvgShedderHitCountHighThreshold": st.sampled_from([0, 1, 2]),
        "loadBalancerAvgShedderHitCountLowThreshold": st.sampled_from([1, 8]),
        "loadBalancerAvgShedderLowThreshold": st.sampled_from([0, 15]),
        "loadBalancerSheddingConditionHitCountThreshold": st.sampled_from([0, 3]),
        "loadBalancerMaxNumberOfBrokerSheddingPerCycle": st.sampled_from([0, 1, 3]),
        "loadBalancerTransferEnabled": st.booleans(),
        "max_moves_in_flight": st.sampled_from([0, 1, 5_000]),
        "distribute_bundles_evenly": st.booleans(),
        "least_moves_hot_for_ms": st.sampled_from([0, 60_000]),
    },
)


def said_of(done: Round, broker: str) -> bool:
    """Whether a decision or refusal of the round is about the broker, or a refusal about the whole
    cluster."""
    return any(decision.source == broker for decision in done.decisions) or any(
        refusal.broker in (None, broker) for refusal in done.refusals
    )


def numbers_of(name: str, config: Any, done: Round) -> dict[str, StrategyNumbers]:
    """What `lbctl explain --why-not` would say of each living broker's figures after the pass."""
    brokers = done.view.brokers
    columns = (
        brokers.names,
        brokers.usage,
        brokers.latest.throughput,
        brokers.latest.rate,
        brokers.alive,
    )
    loads = [
        {
            "broker": broker,
            "usage_ratio": float(usage),
            "active": True,
            "bytes_per_s": float(flow),
            "msgs_per_s": float(rate),
        }
        for broker, usage, flow, rate, alive in zip(*columns, strict=True)
        if alive
    ]
    remembered = done.memory.strategies.get(name, {})
    found = {
        load["broker"]: describe_numbers(name, config, remembered, loads, load["broker"])
        for load in loads
    }
    return {broker: figures for broker, figures in found.items() if figures is not None}


@pytest.mark.parametrize("name", shedder.names)
@given(steps=lives(), chosen=settings)
def test_a_pass_over_an_uneven_cluster_leaves_a_decision_or_a_refusal(
    name: str, steps: list[Step], chosen: Mapping[str, Any]
) -> None:
    manager = traits_of(shedder[name]).manager
    own = {
        "shedding_strategy": name,
        "load_manager": "modular" if manager == "any" else manager,
        "shedding_interval_ms": 0,
    }
    config = cluster_config({**EVERY_ROUND, **chosen, **own})
    for _, _, done in played(steps, config):
        if done.memory.last_shed_ms != done.now_ms or not done.view.brokers.sampled.any():
            continue  # no pass was due
        for refusal in done.refusals:
            assert refusal.rule in REFUSES
        alive, usage = done.view.brokers.alive, done.view.brokers.usage
        sampled = done.view.brokers.sampled if traits_of(config.shedder).paces_itself else alive
        if alive.any() and (usage >= usage[alive].mean() + UNEVEN)[alive & sampled].any():
            assert done.decisions or done.refusals
        beyond = [
            broker
            for broker, figures in numbers_of(name, config.shedder_config, done).items()
            if figures.exceeds_limit
        ]
        if traits_of(config.shedder).paces_itself:
            # its numbers are learned: what keeps a broker hot is refused by name, as below for the
            # others
            continue
        assert not beyond or done.decisions or done.refusals, beyond
        lower_boundary = getattr(config.shedder_config, "lower_boundary", False)
        for broker in beyond if name in OF_ITSELF and not lower_boundary else ():
            assert said_of(done, broker), (broker, done.refusals)


def test_a_strategy_that_says_nothing_is_refused_in_figures() -> None:
    rule = REFUSES["nothing_proposed"]
    assert rule.unit == "ratio" and not rule.place, (
        "the strategy's own numbers say more of what keeps a bundle"
    )
    assert np.isclose(UNEVEN, 0.1)
