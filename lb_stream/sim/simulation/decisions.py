"""Decisions in a simulation: what the trace says of them, and when they take effect."""

from __future__ import annotations

from lb_stream.contracts.decisions import Decision
from lb_stream.sim.scenario.bundle_tree import SPLIT_ALGORITHMS
from lb_stream.sim.scenario.scenario import Scenario


def can_be_carried_out(scenario: Scenario, decision: Decision) -> bool:
    """Return whether the scenario's brokers know such a decision; they refuse all others.

    A trace has no line of those.
    """
    if decision.kind == "split":
        return scenario.topics is not None and decision.algorithm in SPLIT_ALGORITHMS
    return decision.kind != "merge"


def trace_decision(decision: Decision) -> dict[str, object]:
    """Return what the trace says of a decision beside its time."""
    if decision.kind == "split":
        given = decision.algorithm == "specified_positions_divide"
        named: dict[str, object] = {
            "kind": "split",
            "bundle": decision.bundle,
            "broker": decision.source,
            "algorithm": decision.algorithm,
            "boundaries": decision.boundaries if given else None,
        }
    else:
        named = {
            "kind": "assign" if decision.kind == "assign" else "unload",
            "bundle": decision.bundle,
            "source": decision.source,
            "destination": decision.destination,
        }
    return (
        {"id": decision.decision_id}
        | {name: value for name, value in named.items() if value is not None}
        | {"reason": decision.reason, "rule": decision.rule}
    )


def effect_delay_s(scenario: Scenario, decision: Decision) -> float:
    """Return the seconds from a decision to its effect at its broker."""
    if decision.kind == "split" and scenario.splits is not None:
        return scenario.splits.split_s
    return scenario.move.acquire_s if decision.kind == "assign" else scenario.move.release_s
