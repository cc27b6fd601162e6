"""Estimates when the drain of a broker will be done: bundles left, pace, and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lb_stream.contracts.decisions import MOVES
from lb_stream.io.messages.times import clock
from lb_stream.query.health import ClusterFacts, describe_duration
from lb_stream.query.lake import Row, records, run

if TYPE_CHECKING:
    from lb_stream.query.cluster_state import ClusterState
    from lb_stream.query.lake import Lake

PACE_MS = 600_000
"""The pace is that of moves that were confirmed this long before the last round."""
MINUTE_MS = 60_000

_BUNDLES = "SELECT bundle FROM bundle_averages WHERE cluster = $1 AND owner = $2"
_MOVED = f"""
    SELECT count(*) AS n, min(decisions.issued_ms) AS first_ms
    FROM decisions JOIN outcomes USING (decision_id)
    WHERE decisions.cluster = $1 AND source = $2 AND kind IN {MOVES} AND NOT dry_run
      AND outcome IN ('confirmed', 'superseded') AND outcomes.at_ms >= $3
"""


def estimate_drain(
    lake: Lake, state: ClusterState, facts: ClusterFacts, broker: str, stale: str | None
) -> Row:
    """Return when a broker that is being drained is empty.

    `left`: its bundles. `moved`: those that left it in the last minutes. `until_ms`: the estimate;
    None: there is none. `sentence`: all of it. `stale`: why the tables are not up to date.
    """
    from lb_stream.core.model.names import is_system_bundle

    names = [row["bundle"] for row in records(run(lake, _BUNDLES, [state.cluster, broker]))]
    left = sum(not is_system_bundle(name) for name in names)
    since_ms = state.now_ms - PACE_MS
    (moved,) = records(run(lake, _MOVED, [state.cluster, broker, since_ms]))
    until_ms, sentence = _describe(state, facts, left, moved, stale)
    return {"left": left, "moved": moved["n"], "until_ms": until_ms, "sentence": sentence}


def _describe(
    state: ClusterState, facts: ClusterFacts, left: int, moved: Row, stale: str | None
) -> tuple[int | None, str]:
    if not left:
        return None, "It has no bundle any more: the drain is done."
    begin = f"{left:,} bundle{'s are' if left > 1 else ' is'} left"
    if stale is not None:
        return None, f"{begin}. No end can be foreseen: {stale}."
    if facts.dry_run:
        return None, f"{begin}, and stay: in a dry run no decision is published."
    if facts.suspended:
        return None, f"{begin}, and stay until decisions are no longer suspended."
    most = state.config.balancer.max_moves_per_minute
    if not moved["n"]:
        earliest_ms = state.now_ms + round(left / most * MINUTE_MS) if most else None
        text = f"{begin}; none has left it in the last {describe_duration(PACE_MS)}"
        if earliest_ms is None:
            return None, f"{text}, and no move is allowed."
        return None, (
            f"{text}. The limit of {most} moves a minute allows the end at "
            f"{clock(earliest_ms)} at the earliest."
        )
    took_ms = max(state.now_ms - max(moved["first_ms"], state.now_ms - PACE_MS), MINUTE_MS)
    pace = min(moved["n"] / took_ms * MINUTE_MS, float(most))
    until_ms = state.now_ms + round(left / pace * MINUTE_MS)
    return until_ms, (
        f"{begin}; at the pace of the last minutes ({pace:.1f} a minute, {most} are allowed) it is "
        f"empty in about {describe_duration(until_ms - state.now_ms)}, at {clock(until_ms)}."
    )
