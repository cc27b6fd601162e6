"""Measures of a rollout: how long it took, what it cost clients, how full and even brokers were."""

from __future__ import annotations

import numpy as np

from lb_stream.sim.measures.moves import HOUR_S, Gaps, gap_clients
from lb_stream.sim.measures.series import Series, quantile
from lb_stream.sim.measures.state import TOLERANCE
from lb_stream.sim.measures.trace import OwnershipHistory
from lb_stream.sim.scenario.scenario import Bools

AFTER_S = 600.0
"""Seconds after the last broker has come back that still belong to the rollout."""
EVEN_FROM_S = 300.0
"""Seconds of these after which the cluster should be even again."""
NAMES = (
    "rollout_s",
    "rollout_share",
    "rollout_moves_per_bundle",
    "rollout_moved_twice",
    "rollout_client_s",
    "rollout_orphan_s",
    "rollout_worst",
    "rollout_even",
    "rollout_moves_after_per_hour",
)


def measure_rollout(
    history: OwnershipHistory, series: Series, gaps: Gaps
) -> dict[str, float | None]:
    """Compute the measures of a trace's rollout; all are None without one."""
    scenario = history.tree.scenario
    rollout, end_s, away = scenario.rollout, scenario.end_s, series.away
    if rollout is None or away is None:
        return dict.fromkeys(NAMES)
    # when the last broker has come back, and the rollout's aftermath is over
    back_s = [stopped_s + rollout.restart_s for stopped_s in history.restarts.values()]
    back_s = [t_s for t_s in back_s if t_s < end_s - TOLERANCE]
    done = len(back_s) == len(rollout.brokers)
    last_s = max(back_s) if done else end_s
    until_s = min(last_s + AFTER_S, end_s) if done else end_s

    def ticks(after_s: float, to_s: float) -> Bools:
        return (series.t_s > after_s + TOLERANCE) & (series.t_s <= to_s + TOLERANCE)

    # its gaps and ticks
    begun = (gaps.since_s >= rollout.t_s - TOLERANCE) & (gaps.since_s < until_s - TOLERANCE)
    own = gaps.where(begun)
    during = (series.t_s >= rollout.t_s - TOLERANCE) & (series.t_s <= last_s + TOLERANCE)
    after = ticks(last_s + EVEN_FROM_S, last_s + AFTER_S)
    over_away = series.max_usage / np.where(away > 0, away, 1.0)
    late = np.count_nonzero(gaps.moved & (gaps.since_s >= until_s - TOLERANCE))
    left_s, roots = end_s - until_s, history.tree.roots
    clients = gap_clients(history.tree, own) * (own.length_s + scenario.move.reconnect_s)
    values = (
        last_s - rollout.t_s if done else None,
        len(back_s) / len(rollout.brokers),
        len(own) / roots,
        np.count_nonzero(np.bincount(own.bundle) >= 2) / roots,
        float(clients.sum()),
        float(own.length_s[~own.moved].sum()),
        float(over_away[during].max()) if during.any() else None,  # it may begin with the end
        quantile(series.max_over_bound[after], 0.5) if done else None,
        late * HOUR_S / left_s if done and left_s > 0 else None,
    )
    return dict(zip(NAMES, values, strict=True))
