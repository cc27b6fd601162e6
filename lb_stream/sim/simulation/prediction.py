"""Predicts the effects of a change: simulates a cluster's present without and with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lb_stream.contracts.commands import Command
from lb_stream.contracts.keys import GivenSettings
from lb_stream.core.commands.base import WhatIf
from lb_stream.core.commands.responder import CommandAnswer
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.settings.move_limits import resolve_move_limits
from lb_stream.settings.names import to_our_name
from lb_stream.settings.resolve import NONE, apply_overrides
from lb_stream.settings.spelling import DRY_RUN
from lb_stream.sim.measures import TraceMeasures, measure_trace
from lb_stream.sim.measures.figures import Figures
from lb_stream.sim.measures.moves import gap_clients, gap_throughputs
from lb_stream.sim.scenario.errors import ScenarioError
from lb_stream.sim.scenario.from_history import LoadHistory
from lb_stream.sim.scenario.present import PresentEvents, build_present_scenario
from lb_stream.sim.simulation.policy import Policy
from lb_stream.sim.simulation.runner import OnProgress, run_simulation

AS_IT_IS, CHANGED = "as it is", "changed"


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted effects: figures, moves, and max usage (ratio) at each time (s from now).

    `answers`: the balancer's last answer to each command of the change.
    """

    figures: Figures
    moves: list[dict[str, object]]
    t_s: tuple[float, ...]
    max_usage: tuple[float, ...]
    answers: tuple[CommandAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class _Variant:
    """What one of the two simulations runs with."""

    settings: GivenSettings
    events: PresentEvents
    commands: tuple[Command, ...] = ()


def predict_change(
    history: LoadHistory, change: WhatIf, minutes: float, on_progress: OnProgress | None = None
) -> tuple[dict[str, Prediction], tuple[str, ...]]:
    """Simulate the present with the settings in force, and with the change. Also returns notes.

    `history` begins at its last slot. The simulated balancer begins without memory, so recently
    unloaded bundles may be unloaded again. Both simulations carry decisions out, unless the change
    is one of the mode. Raises SettingError and ScenarioError.
    """
    variants = _build_variants(history, change)
    made = {
        name: build_present_scenario(history, minutes, variant.events)
        for name, variant in variants.items()
    }
    policies = {name: Policy(name, variant.settings) for name, variant in variants.items()}
    for policy in policies.values():
        policy.resolve()  # before the long part
    found: dict[str, Prediction] = {}
    for number, (name, variant) in enumerate(variants.items()):
        report_progress = (
            None
            if on_progress is None
            else partial(_report_progress, on_progress, number, len(variants))
        )
        scenario = made[name].scenario
        result = run_simulation(scenario, policies[name], report_progress, variant.commands)
        answers = tuple(
            result.answers[command.id]
            for command in variant.commands
            if command.id in result.answers
        )
        measured = measure_trace(scenario, result.lines)
        found[name] = replace(_build_prediction(measured, variant.events.drained), answers=answers)
    paused = (
        ("it is paused: nothing is shed or split",)
        if _load_operator_state(history).paused and not change.resumes
        else ()
    )
    return found, (*paused, *made[CHANGED].notes)


def _load_operator_state(history: LoadHistory) -> OperatorState:
    """Return the operators' state now."""
    return _load_memory(history).operator_state


def _load_memory(history: LoadHistory) -> Memory:
    return Memory.from_json(history.memory) if history.memory else Memory()


def list_present_settings(history: LoadHistory) -> GivenSettings:
    """Return the settings in force now, whatever the mode is; balancing is off while it is paused.

    Raises SettingError.
    """
    return _build_variants(history, WhatIf())[AS_IT_IS].settings


def _build_variants(history: LoadHistory, change: WhatIf) -> dict[str, _Variant]:
    # settings without and with the change
    operator_state = _load_operator_state(history)
    overrides, paused = operator_state.settings, operator_state.paused
    # Simulated brokers have no version: the profile of the real ones is set.
    followed: dict[str, object] = {"profile": _load_memory(history).followed.profile}
    before = followed | apply_overrides(history.settings, overrides)
    changed = _change_overrides(overrides, change.settings)
    after = followed | apply_overrides(history.settings, changed)
    # changes that can't be simulated
    modes = [resolve_move_limits(values, NONE).mode for values in (before, after)]
    if modes[0] != modes[1] and modes[1] == "approve":
        wanted = (
            f"observe or act: in {modes[1]} no bundle moves before an operator approves it (lbctl "
            "proposals)"
        )
        raise ScenarioError(f"history of {history.cluster}", "mode", modes[1], wanted)
    if modes[0] == modes[1] and _changes_only_mode(change):
        raise ScenarioError(
            f"history of {history.cluster}",
            "mode",
            modes[1],
            "another one: this is its mode already",
        )
    # whether the balancer of each decides
    dry_run = [modes[0] != modes[1] and mode != "act" for mode in modes]
    pauses = (paused, paused and not change.resumes)
    off = {"enabled": False}
    return {
        AS_IT_IS: _Variant(
            before | (off if dry_run[0] or pauses[0] or change.waits else {}),
            PresentEvents(silent=change.silent),
        ),
        CHANGED: _Variant(
            after | (off if dry_run[1] or pauses[1] or change.waits else {}),
            PresentEvents(change.drained, change.undrained, dead=change.silent),
            tuple(change.commands),
        ),
    }


def _changes_only_mode(change: WhatIf) -> bool:
    """Return whether a change is just another mode."""
    acts = any((change.drained, change.undrained, change.silent, change.commands))
    names = {to_our_name(name, value) for name, value in change.settings.items()}
    return not acts and names == {"mode"}


def _change_overrides(before: GivenSettings, changes: GivenSettings) -> dict[str, object]:
    """Put changes over the overrides that commands have set.

    The end of a dry run leaves the mode `approve` as it is. Raises SettingError.
    """
    ours = {to_our_name(name, value) for name, value in changes.items()}
    kept = {name for name, value in before.items() if to_our_name(name, value) not in ours}
    if DRY_RUN in changes:
        kept |= before.keys() & {"mode"}
    return {name: value for name, value in before.items() if name in kept} | dict(changes)


def _report_progress(on_progress: OnProgress, number: int, count: int, part: float) -> None:
    on_progress((number + part) / count)


def _build_prediction(measured: TraceMeasures, drained: Sequence[str]) -> Prediction:
    scenario, series = measured.scenario, measured.series
    over_mean = series.available_max_over_mean
    moves = measured.gaps.where(measured.gaps.moved)
    names, clients = scenario.brokers.names, gap_clients(measured.history.tree, moves)
    figures = {
        name: measured.figures[name]
        for name in (
            "moves",
            "client_seconds_lost",
            "time_to_balance_s",
            "drain_s",
            "violation_count",
        )
    }
    vanish = any(event.kind in ("crash", "leave") for event in scenario.events)
    left = np.isin(measured.history.last_owner, [names.index(broker) for broker in drained])
    figures |= {
        "failovers": measured.figures["failovers"] if vanish else None,
        "clients_disturbed": int(clients.sum()),
        "moved_bytes_per_s": float(gap_throughputs(measured.history.tree, moves).sum()),
        "usage_max_now": round(float(series.max_usage[0]), 4),
        "usage_max_after": round(float(series.max_usage[-1]), 4),
        "max_over_mean_now": round(float(over_mean[0]), 4),
        "max_over_mean_after": round(float(over_mean[-1]), 4),
        "left_bundles": int(left.sum()) if drained else None,
        "fits": bool(series.max_usage[-1] <= 1.0 and not left.any()),
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
    return Prediction(figures, parts, tuple(series.t_s.tolist()), tuple(series.max_usage.tolist()))
