"""What would come of a change: a cluster's present played twice, as it is and changed, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lb_stream.core.commands.settings import in_force
from lb_stream.core.model.memory import Memory
from lb_stream.sim.measures import Measured, measured
from lb_stream.sim.measures.moves import clients_of, throughput_of
from lb_stream.sim.play.player import OnProgress, play
from lb_stream.sim.play.policy import Policy
from lb_stream.sim.scenario.from_history import History
from lb_stream.sim.scenario.present import present_scenario

AS_IT_IS, CHANGED = "as it is", "changed"
FIGURES = {
    "moves": "moves",
    "clients_disturbed": "clients disturbed",
    "client_seconds_lost": "seconds lost by clients, summed",
    "moved_bytes_per_s": "traffic moved, bytes/s",
    "usage_max_now": "greatest usage now",
    "usage_max_after": "greatest usage at the end",
    "max_over_mean_now": "greatest ÷ mean now",
    "max_over_mean_after": "greatest ÷ mean at the end",
    "drain_s": "seconds until drained brokers are empty",
    "violation_count": "rules broken",
}
"""Those that people are shown, by what they are."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What comes of one policy: figures, its moves, and the greatest usage (ratio of capacity) at each of the times (s from now)."""

    figures: dict[str, Any]
    moves: list[dict[str, Any]]
    t_s: tuple[float, ...]
    greatest: tuple[float, ...]


def outlook(
    history: History, changes: Mapping[str, Any], drained: Sequence[str], minutes: float, on_progress: OnProgress | None = None
) -> tuple[dict[str, Outlook], tuple[str, ...]]:
    """Play the present with the settings in force, and with `changes` over them and these brokers drained; and what was assumed.

    `history` begins at its last slot. Bundles that were unloaded lately may be unloaded again: the played balancer begins without memory.
    Raises SettingError and ScenarioError.
    """
    commanded = Memory.from_json(history.memory).orders.settings if history.memory else {}
    settings = in_force(history.settings, commanded)
    plans = {AS_IT_IS: (settings, ()), CHANGED: (in_force(settings, changes), drained)}
    made = {name: present_scenario(history, minutes, empties) for name, (_, empties) in plans.items()}
    policies = {name: Policy(name, wanted) for name, (wanted, _) in plans.items()}
    for policy in policies.values():
        policy.config()  # before the long part
    found: dict[str, Outlook] = {}
    for number, (name, (_, empties)) in enumerate(plans.items()):
        told = None if on_progress is None else partial(_told, on_progress, number, len(plans))
        scenario = made[name].scenario
        found[name] = _outlook(measured(scenario, play(scenario, policies[name], told).lines), empties)
    return found, made[CHANGED].notes


def _told(on_progress: OnProgress, number: int, count: int, part: float) -> None:
    on_progress((number + part) / count)


def _outlook(seen: Measured, drained: Sequence[str]) -> Outlook:
    scenario, series = seen.scenario, seen.series
    moves = seen.gaps.of(seen.gaps.moved)
    names, clients = scenario.brokers.names, clients_of(scenario, moves)
    figures = {name: seen.figures[name] for name in ("moves", "client_seconds_lost", "time_to_balance_s", "drain_s", "violation_count")}
    left = np.isin(seen.history.last_owner, [names.index(broker) for broker in drained])
    figures |= {
        "clients_disturbed": int(clients.sum()),
        "moved_bytes_per_s": float(throughput_of(scenario, moves).sum()),
        "usage_max_now": round(float(series.greatest[0]), 4),
        "usage_max_after": round(float(series.greatest[-1]), 4),
        "max_over_mean_now": round(float(series.max_over_mean[0]), 4),
        "max_over_mean_after": round(float(series.max_over_mean[-1]), 4),
        "fits": bool(series.greatest[-1] <= 1.0 and not left.any()),
    }
    columns = (moves.since_s, moves.bundle, moves.source, moves.destination, clients)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    told = [
        {"t_s": t_s, "bundle": scenario.bundles.names[row], "from": names[source], "to": names[to] if to >= 0 else None, "clients": count}
        for t_s, row, source, to, count in rows
    ]
    return Outlook(figures, told, tuple(series.t_s.tolist()), tuple(series.greatest.tolist()))


def figure_told(value: float | None) -> str:
    """One of them for people."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:.3f}"
