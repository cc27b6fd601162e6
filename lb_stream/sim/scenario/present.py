"""A cluster's present as a scenario: what it carries now goes on, and something may be done to it at once."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from lb_stream.sim.scenario.errors import ScenarioError
from lb_stream.sim.scenario.from_history import History, MadeScenario, scenario_of
from lb_stream.sim.scenario.scenario import Event

TICK_S = 10.0
"""Shorter where the history's resolution is no multiple of it."""
SETTLED = 0.75
"""From this part of the time on a policy should have done what it can."""


def present_scenario(history: History, minutes: float, drained: Collection[str] = ()) -> MadeScenario:
    """The loads of the history's last slot for so many minutes. `drained`: brokers that an operator drains at the beginning.

    `history` begins at its last slot. Raises ScenarioError for a broker that there isn't.
    """
    tick_s = math.gcd(round(TICK_S * 1000), history.resolution_ms) / 1000
    made = scenario_of(history, tick_s)
    now, ticks = made.scenario, max(round(minutes * 60 / tick_s), 1)
    for broker in drained:
        if broker not in now.brokers.names:
            raise ScenarioError(f"history of {history.cluster}", "broker", broker, f"one of {', '.join(now.brokers.names)}")
    already = [event for event in now.events if event.t_s == 0.0]
    drains = [Event(0.0, now.brokers.names.index(broker), "drain") for broker in drained]
    scenario = replace(
        now, why=f"What {history.cluster} carries now goes on.", ticks=ticks, load_step_ticks=ticks, noise_step_ticks=ticks,
        settled_from_s=SETTLED * ticks * tick_s, loads=now.loads[:, :, -1:],
        events=(*already, *(drain for drain in drains if drain not in already)),
    )  # fmt: skip
    return MadeScenario(scenario, made.notes)
