"""Scenarios that LeastMoves plays in a closed loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lb_stream.sim.measures import measure_figures
from lb_stream.sim.scenario.scenario import Scenario
from lb_stream.sim.simulation import read_policy, run_simulation

LEAST_MOVES = read_policy("LeastMoves")


def played(scenario: Scenario, **settings: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The moves that it decides, and the measures."""
    lines = list(
        run_simulation(
            scenario, replace(LEAST_MOVES, settings={**LEAST_MOVES.settings, **settings})
        ).lines
    )
    moves = [
        line
        for line in lines
        if line["event"] == "decision" and line["kind"] in ("unload", "transfer")
    ]
    return moves, measure_figures(scenario, lines)
