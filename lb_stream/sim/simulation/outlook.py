"""What would come of a change: a cluster's present played twice, as it is and changed, side by
side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from lb_stream.contracts.commands import Command
from lb_stream.core.commands.base import WhatIf
from lb_stream.core.commands.responder import CommandAnswer
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.settings.names import our_name
from lb_stream.settings.resolve import in_force, resolve
from lb_stream.settings.spelling import DRY_RUN
from lb_stream.sim.measures import TraceMeasures, measure_trace
from lb_stream.sim.measures.moves import clients_of, throughput_of
from lb_stream.sim.scenario.errors import ScenarioError
from lb_stream.sim.scenario.from_history import LoadHistory
from lb_stream.sim.scenario.present import PresentEvents, present_scenario
from lb_stream.sim.simulation.policy import Policy
from lb_stream.sim.simulation.runner import OnProgress, run_simulation

AS_IT_IS, CHANGED = "as it is", "changed"
FIGURES = {
    "moves": "moves",
    "clients_disturbed": "clients disturbed",
    "client_seconds_lost": "seconds lost by clients, summed",
    "moved_bytes_per_s": "traffic moved, bytes/s",
    "usage_max_now": "max usage now",
    "usage_max_after": "max usage at the end",
    "max_over_mean_now": "max ÷ mean now",
    "max_over_mean_after": "max ÷ mean at the end",
    "failovers": "bundles of dead brokers that others took",
    "drain_s": "seconds until drained brokers are empty",
    "violation_count": "rules broken",
}
"""Those that people are shown, by what they are."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What comes of one policy: figures, its moves, and the greatest usage (ratio of capacity) at
    each of the times (s from now).

    `answers`: the balancer's last one to each order of the change.
    """

    figures: dict[str, Any]
    moves: list[dict[str, Any]]
    t_s: tuple[float, ...]
    greatest: tuple[float, ...]
    answers: tuple[CommandAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class _Simulated:
    """One of the two that are played."""

    settings: Mapping[str, Any]
    happening: PresentEvents
    orders: tuple[Command, ...] = ()


def outlook(
    history: LoadHistory, change: WhatIf, minutes: float, on_progress: OnProgress | None = None
) -> tuple[dict[str, Outlook], tuple[str, ...]]:
    """Play the present with the settings in force, and with the change; and what was assumed.

    `history` begins at its last slot. Bundles that were unloaded lately may be unloaded again: the
    played balancer begins without memory. Both are played as if decisions were published, unless
    the change is about just that. Raises SettingError and ScenarioError.
    """
    plans = _both(history, change)
    made = {
        name: present_scenario(history, minutes, plan.happening) for name, plan in plans.items()
    }
    policies = {name: Policy(name, plan.settings) for name, plan in plans.items()}
    for policy in policies.values():
        policy.resolve()  # before the long part
    found: dict[str, Outlook] = {}
    for number, (name, plan) in enumerate(plans.items()):
        told = (
            None
            if on_progress is None
            else partial(_report_progress, on_progress, number, len(plans))
        )
        scenario = made[name].scenario
        played = run_simulation(scenario, policies[name], told, plan.orders)
        answers = tuple(
            played.answers[order.id] for order in plan.orders if order.id in played.answers
        )
        found[name] = replace(
            _outlook(measure_trace(scenario, played.lines), plan.happening.drained), answers=answers
        )
    paused = (
        ("it is paused: nothing is shed or split",)
        if _orders(history).paused and not change.resumes
        else ()
    )
    return found, (*paused, *made[CHANGED].notes)


def _orders(history: LoadHistory) -> OperatorState:
    """What operators have laid down by now."""
    return (Memory.from_json(history.memory) if history.memory else Memory()).orders


def _both(history: LoadHistory, change: WhatIf) -> dict[str, _Simulated]:
    orders = _orders(history)
    commanded, paused = orders.settings, orders.paused
    before = in_force(history.settings, commanded)
    after = in_force(history.settings, _commanded(commanded, change.settings))
    modes = [resolve(values).config.balancer.mode for values in (before, after)]
    if modes[0] != modes[1] and modes[1] == "approve":
        wanted = (
            f"observe or act: in {modes[1]} nothing that balancing wants moves until somebody "
            "approves it (lbctl proposals)"
        )
        raise ScenarioError(f"history of {history.cluster}", "mode", modes[1], wanted)
    if modes[0] == modes[1] and _is_about_the_mode(change):
        raise ScenarioError(
            f"history of {history.cluster}",
            "mode",
            modes[1],
            "another one: this is its mode already",
        )
    still = [modes[0] != modes[1] and mode != "act" for mode in modes]
    pauses = (paused, paused and not change.resumes)
    off = {"enabled": False}
    return {
        AS_IT_IS: _Simulated(
            before | (off if still[0] or pauses[0] or change.waits else {}),
            PresentEvents(silent=change.silent),
        ),
        CHANGED: _Simulated(
            after | (off if still[1] or pauses[1] or change.waits else {}),
            PresentEvents(change.drained, change.undrained, dead=change.silent),
            tuple(change.orders),
        ),
    }


def _is_about_the_mode(change: WhatIf) -> bool:
    """Whether it is nothing but another mode."""
    happens = any((change.drained, change.undrained, change.silent, change.orders))
    return not happens and {our_name(name, value) for name, value in change.settings.items()} == {
        "mode"
    }


def _commanded(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """What commands have set, with changes over it.

    The end of a dry run lifts no need for approval. Raises SettingError.
    """
    ours = {our_name(name, value) for name, value in changes.items()}
    kept = {name for name, value in before.items() if our_name(name, value) not in ours}
    if DRY_RUN in changes:
        kept |= before.keys() & {"mode"}
    return {name: value for name, value in before.items() if name in kept} | dict(changes)


def _report_progress(on_progress: OnProgress, number: int, count: int, part: float) -> None:
    on_progress((number + part) / count)


def _outlook(seen: TraceMeasures, drained: Sequence[str]) -> Outlook:
    scenario, series = seen.scenario, seen.series
    over_mean = series.available_max_over_mean
    moves = seen.gaps.of(seen.gaps.moved)
    names, clients = scenario.brokers.names, clients_of(scenario, moves)
    figures = {
        name: seen.figures[name]
        for name in (
            "moves",
            "client_seconds_lost",
            "time_to_balance_s",
            "drain_s",
            "violation_count",
        )
    }
    vanish = any(event.kind in ("crash", "leave") for event in scenario.events)
    left = np.isin(seen.history.last_owner, [names.index(broker) for broker in drained])
    figures |= {
        "failovers": seen.figures["failovers"] if vanish else None,
        "clients_disturbed": int(clients.sum()),
        "moved_bytes_per_s": float(throughput_of(scenario, moves).sum()),
        "usage_max_now": round(float(series.greatest[0]), 4),
        "usage_max_after": round(float(series.greatest[-1]), 4),
        "max_over_mean_now": round(float(over_mean[0]), 4),
        "max_over_mean_after": round(float(over_mean[-1]), 4),
        "fits": bool(series.greatest[-1] <= 1.0 and not left.any()),
    }
    columns = (moves.since_s, moves.bundle, moves.source, moves.destination, clients)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    parts = [
        {
            "t_s": t_s,
            "bundle": scenario.bundles.names[row],
            "from": names[source],
            "to": names[to] if to >= 0 else None,
            "clients": count,
        }
        for t_s, row, source, to, count in rows
    ]
    return Outlook(figures, parts, tuple(series.t_s.tolist()), tuple(series.greatest.tolist()))


def format_figure(value: float | None) -> str:
    """One of them for people."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:.3f}"
