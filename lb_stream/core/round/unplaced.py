"""Unassigned bundles that wait for a broker: this round could give them to none.

The shards forget a bundle that no report names for the retention time. One that waits is known for
as long, counted from the last round in which it had to wait.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from lb_stream.core.filters.candidates import superseded
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.view import Bools, Bundles, Rows
from lb_stream.core.round.state import RoundState


def find_unplaced(state: RoundState) -> Mapping[str, int]:
    """Return each bundle that waits for a broker, or has lately → when it last had to.

    It waits while no broker may have it, while the limit of assignments holds it back, and while
    nothing is decided. A bundle whose assignment has failed has had its broker: it waits no more.
    Released bundles are remembered anyway. A dry run adds none: another balancer places bundles.
    """
    config, before, now_ms = state.config.balancer, state.memory.unplaced, state.now_ms
    if config.assign_unowned != "eager" or not config.bundle_retention_ms:
        return {}
    # Bundles that reports have named and no broker has, not even a dead one.
    bundles = state.ledger.reported.bundles
    earlier = _mark(bundles, bundles.rows_of(before))
    unassigned = (bundles.owner < 0) & ~bundles.system & ((bundles.reported_ms > 0) | earlier)
    if not unassigned.any():
        return {}
    unassigned[list(superseded(state.view, np.flatnonzero(unassigned).tolist()))] = False
    # Those that wait, and those that have waited within the retention time.
    waits = unassigned & _find_waiting(state, earlier)
    waiting = bundles.names.filter(pa.array(waits)).to_pylist()
    waited = bundles.names.filter(pa.array(unassigned & earlier & ~waits)).to_pylist()
    late_ms = now_ms - config.bundle_retention_ms
    times_ms = {name: before[name] for name in waited if before[name] > late_ms}
    times_ms |= dict.fromkeys(waiting, now_ms)
    deleted = state.responder.operator_state.deleted
    return {
        name: at_ms
        for name, at_ms in times_ms.items()
        if name not in state.inputs.released and namespace_of(name) not in deleted
    }


def _find_waiting(state: RoundState, earlier: Bools) -> Bools:
    """Return the bundles that get no broker in this round, or the first one after a wait.

    `earlier`: those that have waited before.
    """
    bundles, retries = state.view.bundles, state.inputs.retries
    if state.config.balancer.dry_run:
        return np.zeros(len(bundles), np.bool_)
    failed = [name for name, retry in retries.items() if retry.kind == "assign"]
    backing_off = (name for name in failed if state.now_ms < retries[name].not_before_ms)
    held = bundles.in_flight | _mark(bundles, bundles.rows_of(backing_off))
    decided = _mark(bundles, bundles.rows_of(decision.bundle for decision in state.decisions))
    first = earlier & ~_mark(bundles, bundles.rows_of(failed))
    return ~held & (~decided | first)


def _mark(bundles: Bundles, rows: Rows) -> Bools:
    """Return which bundles are in these rows; a row of -1 is none."""
    marked: Bools = np.zeros(len(bundles), np.bool_)
    marked[rows[rows >= 0]] = True
    return marked
