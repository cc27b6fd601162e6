"""A cluster's present as a scenario: what it carries now goes on, and something may be done to it
at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lb_stream.sim.scenario.errors import ScenarioError
from lb_stream.sim.scenario.from_history import LoadHistory, ScenarioWithNotes, build_scenario
from lb_stream.sim.scenario.scenario import Event, EventKind

TICK_S = 10.0
"""Shorter where the history's resolution is no multiple of it."""
SETTLED = 0.75
"""From this part of the time on a policy should have done what it can."""


@dataclass(frozen=True, slots=True)
class PresentEvents:
    """What happens to brokers at the beginning.

    `drained`, `undrained`: by an operator; `silent`: nobody hears of them any more; `dead`: nobody
    does, and the balancer knows it at once.
    """

    drained: Sequence[str] = ()
    undrained: Sequence[str] = ()
    silent: Sequence[str] = ()
    dead: Sequence[str] = ()


def present_scenario(
    history: LoadHistory, minutes: float, happening: PresentEvents = PresentEvents()
) -> ScenarioWithNotes:
    """The loads of the history's last slot for so many minutes.

    `history` begins at its last slot. Raises ScenarioError for a broker that there isn't, or that
    isn't drained and should be no longer.
    """
    tick_s = math.gcd(round(TICK_S * 1000), history.resolution_ms) / 1000
    made = build_scenario(history, tick_s)
    now, ticks = made.scenario, max(round(minutes * 60 / tick_s), 1)
    names, where = now.brokers.names, f"history of {history.cluster}"
    already = [event for event in now.events if event.t_s == 0.0]
    drained = [names[event.broker] for event in already if event.kind == "drain"]
    for broker in (*happening.drained, *happening.undrained, *happening.silent, *happening.dead):
        if broker not in names:
            raise ScenarioError(where, "broker", broker, f"one of {', '.join(names)}")
    for broker in happening.undrained:
        if broker not in drained:
            raise ScenarioError(
                where,
                "broker",
                broker,
                f"one that is being drained: {', '.join(drained) or 'none is'}",
            )
    already = [
        event
        for event in already
        if event.kind != "drain" or names[event.broker] not in happening.undrained
    ]
    begun = [event for event in _events(happening, names, tick_s) if event not in already]
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
    return ScenarioWithNotes(scenario, made.notes)


def _events(happening: PresentEvents, names: Sequence[str], tick_s: float) -> Iterator[Event]:
    """In order of time. Who vanishes has reported once: the balancer knows what it had."""
    kinds: tuple[tuple[EventKind, float, Sequence[str]], ...] = (
        ("drain", 0.0, happening.drained),
        ("crash", tick_s, happening.silent),
        ("leave", tick_s, happening.dead),
    )
    for kind, t_s, brokers in kinds:
        yield from (Event(t_s, names.index(broker), kind) for broker in brokers)
