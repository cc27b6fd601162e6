"""Finds the move that each decision and outcome of a round belongs to, from its row of the log.

A move is two decisions: the second one, an assignment, has no field that names the first. The log's
row has both where it matters, so that a batch that runs again gives the same traces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class _Move(msgspec.Struct):
    decision_id: str


class _Memory(msgspec.Struct):
    moves: dict[str, _Move] = {}


_read_memory = msgspec.json.Decoder(_Memory).decode


def find_move_ids(
    memory: str, decisions: Iterable[Mapping[str, Any]], outcomes: Iterable[Mapping[str, Any]] = ()
) -> dict[str, str]:
    """Return decision id → id of the decision that began the move, or the decision's own id.

    `memory`: after the round, JSON; empty for a forgotten cluster.
    """
    decisions, outcomes = list(decisions), list(outcomes)
    found = {entry["decision_id"]: str(entry["decision_id"]) for entry in (*decisions, *outcomes)}
    assigned = [decision for decision in decisions if decision["kind"] == "assign"]
    if not assigned and not outcomes:
        return found
    moves = _read_memory(memory).moves if memory else {}
    # Assignments that bring released bundles to their destinations.
    for entry in (*assigned, *outcomes):
        if (move := moves.get(entry["bundle"])) is not None:
            found[entry["decision_id"]] = move.decision_id
    # A move and its assignment that have ended together: the move was decided in an earlier round.
    ended: dict[str, list[str]] = {}
    for outcome in outcomes:
        ended.setdefault(outcome["bundle"], []).append(outcome["decision_id"])
    for bundle, ids in ended.items():
        if len(ids) > 1 and bundle not in moves:
            found |= dict.fromkeys(ids, min(ids, key=_seq))
    return found


def _seq(decision_id: str) -> tuple[int, ...]:
    """Return round and ordinal of a decision's id, <cluster>:<seq>:<ordinal>, for ordering."""
    return tuple(int(part) for part in decision_id.split(":")[1:] if part.isdecimal())
