"""Builds a scenario of a cluster's present: its load goes on, and events happen at the start."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lb_stream.sim.scenario.errors import ScenarioError
from lb_stream.sim.scenario.from_history import LoadHistory, ScenarioWithNotes, build_from_history
from lb_stream.sim.scenario.scenario import Event, EventKind

TICK_S = 10.0
"""Length of a tick; shorter where the history's resolution is no multiple of it."""
SETTLED = 0.75
"""Share of the time after which a policy should be done."""


@dataclass(frozen=True, slots=True)
class PresentEvents:
    """Brokers with an event at the beginning.

    `drained`, `undrained`: by an operator. `silent`: they crash. `dead`: they are down and the
    balancer knows it at once.
    """

    drained: Sequence[str] = ()
    undrained: Sequence[str] = ()
    silent: Sequence[str] = ()
    dead: Sequence[str] = ()


def build_present_scenario(
    history: LoadHistory, minutes: float, events: PresentEvents = PresentEvents()
) -> ScenarioWithNotes:
    """Build a scenario in which the loads of the history's last slot go on for `minutes`.

    `history` begins at its last slot. Raises ScenarioError for an unknown broker, and for one to
    undrain that isn't drained.
    """
    tick_s = math.gcd(round(TICK_S * 1000), history.resolution_ms) / 1000
    made = build_from_history(history, tick_s, from_end=True)
    now, ticks = made.scenario, max(round(minutes * 60 / tick_s), 1)
    names, where = now.brokers.names, f"history of {history.cluster}"
    already = now.events
    drained = [names[event.broker] for event in already]
    for broker in (*events.drained, *events.undrained, *events.silent, *events.dead):
        if broker not in names:
            raise ScenarioError(where, "broker", broker, f"one of {', '.join(names)}")
    for broker in events.undrained:
        if broker not in drained:
            raise ScenarioError(
                where,
                "broker",
                broker,
                f"one that is being drained: {', '.join(drained) or 'none is'}",
            )
    already = tuple(event for event in already if names[event.broker] not in events.undrained)
    begun = [event for event in _events(events, names, tick_s) if event not in already]
    scenario = replace(
        now,
        why=f"What {history.cluster} carries now goes on.",
        ticks=ticks,
        load_step_ticks=ticks,
        noise_step_ticks=ticks,
        settled_from_s=SETTLED * ticks * tick_s,
        loads=now.loads[:, :, -1:],
        events=(*already, *begun),
    )
    return replace(made, scenario=scenario)


def _events(events: PresentEvents, names: Sequence[str], tick_s: float) -> Iterator[Event]:
    """Yield the events ordered by time.

    Brokers go down after their first report, so that the balancer knows what they had.
    """
    kinds: tuple[tuple[EventKind, float, Sequence[str]], ...] = (
        ("drain", 0.0, events.drained),
        ("crash", tick_s, events.silent),
        ("leave", tick_s, events.dead),
    )
    for kind, t_s, brokers in kinds:
        yield from (Event(t_s, names.index(broker), kind) for broker in brokers)
