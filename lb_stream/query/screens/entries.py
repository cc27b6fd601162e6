"""What one row of the feed is: a whole move, another decision, or an operator's command.

A move is an unload or a transfer with the assignments that follow it. Lists, and the stream that
updates open pages, build their rows here.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from pydantic import ValidationError

from lb_stream.contracts.decisions import MOVES
from lb_stream.query.lake import Row
from lb_stream.query.wording import describe_state, explain_outcome, explain_rule

FOLLOWS = "kind = 'assign' AND rule IN ('released', 'repeated') AND reason <> 'Unowned'"
"""Condition of a decision (SQL): it assigns a bundle that a move has released."""
MAX_OPEN_MOVES = 10_000
"""Moves whose assignments the stream recognises."""
_PHASE = ("kind", "source", "destination", "expires_ms", "took_ms")


def follows_move(decision: Row) -> bool:
    """Return whether a decision assigns a bundle that a move has released; see FOLLOWS."""
    return (
        decision["kind"] == "assign"
        and decision["rule"] in ("released", "repeated")
        and decision["reason"] != "Unowned"
    )


def build_entry(decision: Row, follow_ups: Sequence[Row] = ()) -> Row:
    """Build the row of a decision, or of a move with its assignments, the oldest first.

    `why` is a text. `outcome` is that of the whole move; None: it is pending. `outcome_reason`: why
    it was not carried out, or why its last phase was not. `phases` are the decisions of a move.
    `times`: how often a dry run has decided it, since `first_ms`; 1 outside of dry runs.
    """
    moves = decision["kind"] in MOVES
    fields = {name: value for name, value in decision.items() if name not in ("explain", "log_seq")}
    row = (
        {"times": 1, "first_ms": decision["issued_ms"]}
        | fields
        | {
            "entry": "move" if moves else "decision",
            "id": decision["decision_id"],
            "at_ms": decision["issued_ms"],
            "why": explain_rule(decision["rule"], decision["source"], _read_explain(decision)),
            "outcome_reason": explain_outcome(decision),
            "phases": [],
        }
    )
    if not moves:
        return row
    last = follow_ups[-1] if follow_ups else decision
    row["phases"] = [_build_phase(phase) for phase in (decision, *follow_ups)]
    if follow_ups:
        row["phases"][0]["state"] = "released"
    row["destination"] = last["destination"] or decision["destination"]
    row["expires_ms"] = last["expires_ms"]
    if decision["outcome"] is None and last["outcome"] not in (None, "confirmed"):
        row["outcome_reason"] = f"{last['kind']} {last['outcome']}: {explain_outcome(last)}"
    return row


def _build_phase(decision: Row) -> Row:
    return {name: decision[name] for name in _PHASE} | {
        "id": decision["decision_id"],
        "at_ms": decision["issued_ms"],
        "reason": explain_outcome(decision),
        "state": describe_state(decision),
    }


def _read_explain(decision: Row) -> Row:
    """Return the figures of a decision, whose column holds JSON or a dict."""
    explain = decision["explain"] or {}
    return dict(json.loads(explain) if isinstance(explain, str) else explain)


def build_command_entry(row: Row) -> Row:
    """Build the row of a command: `arguments` from JSON, and `sentence`, such as ann drains b-3."""
    arguments = json.loads(row["arguments"] or "{}")
    sentence = describe_command(row["kind"], arguments, row["by"])
    return row | {"arguments": arguments, "sentence": sentence}


def describe_command(kind: str, arguments: Mapping[str, object], by: str | None) -> str:
    """Return a command as a sentence; its kind alone where its arguments aren't known."""
    from lb_stream.core.commands.base import make

    try:
        phrase = make(kind, **arguments).describe()
    except (KeyError, ValidationError):
        return f"{kind.replace('-', ' ')}{f' by {by}' if by else ''}"
    return f"{by or 'somebody'} {phrase}"


def group_moves(decisions: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the id of each move among some decisions → the assignments that follow it.

    An assignment follows the last move of its bundle before it.
    """
    found: dict[str, list[Row]] = {}
    current: dict[tuple[str, str], str] = {}
    for decision in sorted(decisions, key=lambda row: (row["seq"], row["issued_ms"])):
        bundle = decision["cluster"], decision["bundle"]
        if decision["kind"] in MOVES:
            current[bundle] = decision["decision_id"]
            found[decision["decision_id"]] = []
        elif follows_move(decision) and bundle in current:
            found[current[bundle]].append(decision)
    return found


class OpenMoves:
    """Rows of decisions that come one by one: an assignment updates the row of its move.

    Of a move that began earlier than the stream, the assignment is a row of its own, which the
    tables replace a few seconds later.
    """

    def __init__(self) -> None:
        self._moves: OrderedDict[tuple[str, str], tuple[Row, list[Row]]] = OrderedDict()

    def add(self, decision: Row) -> Row:
        """Return the row of a decision that has come, with all phases if it belongs to a move."""
        bundle = decision["cluster"], decision["bundle"]
        if follows_move(decision) and bundle in self._moves:
            move, follow_ups = self._moves[bundle]
            if all(decision["decision_id"] != known["decision_id"] for known in follow_ups):
                follow_ups.append(decision)
            return build_entry(move, follow_ups)
        if decision["kind"] in MOVES:
            self._moves[bundle] = decision, []
            self._moves.move_to_end(bundle)
            if len(self._moves) > MAX_OPEN_MOVES:
                self._moves.popitem(last=False)
        return build_entry(decision)
