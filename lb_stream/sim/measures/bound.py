"""A lower bound of the greatest usage: no allowed assignment of all bundles to the available
brokers has a smaller one."""

from __future__ import annotations

import numpy as np

from lb_stream.sim.measures.rules import Rules
from lb_stream.sim.measures.state import BrokerState, Demand, usage_of
from lb_stream.sim.scenario.scenario import Bools, Floats, Scenario


def lower_bound(scenario: Scenario, rules: Rules, demand: Demand, state: BrokerState) -> float:
    """The greatest of what sums, single bundles and pinned bundles ask for at least.

    0 where no broker is available.
    """
    available = state.available
    if not available.any():
        return 0.0
    everyone = np.ones(len(rules.policy), np.bool_)
    bound = _shared(scenario, demand, state, everyone, available)
    for policy, allowed in enumerate(rules.allowed(state.up)):
        mine = rules.policy == (policy if policy < len(rules.isolation) else -1)
        may = allowed & available
        if mine.any():
            may = may if may.any() else available
            bound = max(bound, _shared(scenario, demand, state, mine, may))
            bound = _alone(scenario, demand, state, mine, may, bound)
    start = scenario.bundles.start_owner
    stays = np.where(rules.pinned, start, -1)
    if (stays >= 0).any():
        bound = max(
            bound, float(usage_of(scenario.brokers, stays, demand, state.factor)[available].max())
        )
    return bound


def _shared(
    scenario: Scenario, demand: Demand, state: BrokerState, mine: Bools, may: Bools
) -> float:
    """These bundles spread evenly over these brokers, as if they were sand.

    Cpu is counted in units of the first available broker.
    """
    brokers, first = scenario.brokers, int(np.argmax(state.available))
    msgs, size = brokers.cpu_msgs_per_s, brokers.cpu_bytes_per_s
    rate, bytes_in, bytes_out = (
        float(column[mine].sum()) for column in (demand.rate, demand.bytes_in, demand.bytes_out)
    )
    scale = np.maximum(msgs / msgs[first], size / size[first]) * state.factor
    return max(
        float((rate / msgs[first] + (bytes_in + bytes_out) / size[first]) / scale[may].sum()),
        bytes_in / float(brokers.bandwidth_in_bytes_per_s[may].sum()),
        bytes_out / float(brokers.bandwidth_out_bytes_per_s[may].sum()),
    )


def _alone(
    scenario: Scenario, demand: Demand, state: BrokerState, mine: Bools, may: Bools, bound: float
) -> float:
    """The bound, raised to what the bundle asks for that is the worst even alone at the broker that
    suits it best."""
    brokers = scenario.brokers
    columns = (
        brokers.cpu_msgs_per_s * state.factor,
        brokers.cpu_bytes_per_s * state.factor,
        brokers.bandwidth_in_bytes_per_s,
        brokers.bandwidth_out_bytes_per_s,
    )
    rate, bytes_in, bytes_out = demand.rate[mine], demand.bytes_in[mine], demand.bytes_out[mine]
    least: Floats = np.full(len(rate), np.inf)
    for msgs, size, into, out in np.unique(np.column_stack(columns)[may], axis=0)[::-1]:
        usage = np.maximum.reduce(
            [rate / msgs + (bytes_in + bytes_out) / size, bytes_in / into, bytes_out / out]
        )
        least = np.minimum(least, usage)
        worse = (
            least > bound
            # a bundle that some broker can carry below the bound doesn't raise it: few are left to
            # look at
        )
        rate, bytes_in, bytes_out, least = (
            rate[worse],
            bytes_in[worse],
            bytes_out[worse],
            least[worse],
        )
    return max(bound, float(least.max(initial=0.0)))
