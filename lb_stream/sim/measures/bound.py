"""A lower bound of max usage.

No allowed assignment of all bundles to the available brokers has a lower max usage.
"""

from __future__ import annotations

import numpy as np

from lb_stream.sim.measures.rules import Rules
from lb_stream.sim.measures.state import BrokerState, Demand, broker_usage
from lb_stream.sim.scenario.scenario import Bools, Floats, Scenario


def lower_bound(
    scenario: Scenario,
    rules: Rules,
    demand: Demand,
    state: BrokerState,
    whole: Floats | None = None,
) -> float:
    """Return the lower bound of max usage (ratio); 0 where no broker is available.

    It is the max of four bounds: cpu that no bundle causes, an even spread of sums, single bundles,
    pinned bundles. `whole`: the part of each bundle that can't be divided; by default all of it.
    """
    available = state.available
    if not available.any():
        return 0.0
    # all bundles, spread evenly over all available brokers
    everyone = np.ones(len(rules.policy), np.bool_)
    bound = _shared(scenario, demand, state, everyone, available)
    if demand.background is not None:
        bound = max(bound, float(demand.background[state.up].max()))
    single = demand if whole is None else demand.times(whole)
    # each isolation policy's bundles within its brokers, and the others within the remaining ones
    for policy, allowed in enumerate(rules.allowed(state.up)):
        mine = rules.policy == (policy if policy < len(rules.isolation) else -1)
        may = allowed & available
        if mine.any():
            may = may if may.any() else available
            bound = max(bound, _shared(scenario, demand, state, mine, may))
            bound = _alone(scenario, single, state, mine, may, bound)
    # pinned bundles at their brokers
    stays = rules.pinned_at
    if (stays >= 0).any():
        bound = max(
            bound,
            float(broker_usage(scenario.brokers, stays, demand, state.factor)[available].max()),
        )
    return bound


def _shared(
    scenario: Scenario, demand: Demand, state: BrokerState, mine: Bools, may: Bools
) -> float:
    """Return the usage when these bundles' load is spread evenly over these brokers.

    Bundles count as divisible. Cpu is counted in units of the first available broker.
    """
    brokers, first = scenario.brokers, int(np.argmax(state.available))
    msgs, size = brokers.cpu_msgs_per_s, brokers.cpu_bytes_per_s
    rate, bytes_in, bytes_out = (
        float(column[mine].sum()) for column in (demand.rate, demand.bytes_in, demand.bytes_out)
    )
    scale = np.maximum(msgs / msgs[first], size / size[first]) * state.factor
    need = rate / msgs[first] + (bytes_in + bytes_out) / size[first]
    background = None if demand.background is None else demand.background[may]
    return max(
        _level(need, scale[may], background),
        bytes_in / float(brokers.bandwidth_in_bytes_per_s[may].sum()),
        bytes_out / float(brokers.bandwidth_out_bytes_per_s[may].sum()),
    )


def _level(need: float, scale: Floats, background: Floats | None) -> float:
    """Return the usage that an evenly spread need reaches on top of the brokers' background."""
    if background is None:
        return float(need / scale.sum())
    # Brokers are filled in the order of their background, up to that of the next one.
    order = np.argsort(background, kind="stable")
    level, size = background[order], scale[order]
    sums = np.cumsum(size)
    heights = (need + np.cumsum(size * level)) / sums
    reached = np.flatnonzero(heights >= level)
    return float(heights[reached[-1] if len(reached) else 0])


def _alone(
    scenario: Scenario, demand: Demand, state: BrokerState, mine: Bools, may: Bools, bound: float
) -> float:
    """Raise the bound to the usage of the largest bundle alone at the broker that suits it best."""
    brokers, none = scenario.brokers, np.zeros(len(scenario.brokers))
    columns = (
        brokers.cpu_msgs_per_s * state.factor,
        brokers.cpu_bytes_per_s * state.factor,
        brokers.bandwidth_in_bytes_per_s,
        brokers.bandwidth_out_bytes_per_s,
        none if demand.background is None else demand.background,
    )
    rate, bytes_in, bytes_out = demand.rate[mine], demand.bytes_in[mine], demand.bytes_out[mine]
    least: Floats = np.full(len(rate), np.inf)
    for msgs, size, into, out, busy in np.unique(np.column_stack(columns)[may], axis=0)[::-1]:
        cpu = rate / msgs + (bytes_in + bytes_out) / size + busy
        usage = np.maximum.reduce([cpu, bytes_in / into, bytes_out / out])
        least = np.minimum(least, usage)
        # A bundle that some broker carries below the bound doesn't raise it. Few others are left.
        above = least > bound
        rate, bytes_in, bytes_out = rate[above], bytes_in[above], bytes_out[above]
        least = least[above]
    return max(bound, float(least.max(initial=0.0)))
