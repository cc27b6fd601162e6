"""Times in which bundles are unassigned, and measures of moves: undone, redundant, above budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lb_stream.sim.measures.rules import Rules
from lb_stream.sim.measures.state import TOLERANCE, ticks_at
from lb_stream.sim.measures.trace import ACQUIRED, BORN, LOST, RELEASED, SPLIT, Changes
from lb_stream.sim.scenario.bundle_tree import BundleTree
from lb_stream.sim.scenario.scenario import Bools, Floats, Ints, Scenario

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Gaps:
    """Times in which a bundle is unassigned, as columns, ordered by their beginning.

    A gap that begins with a release is a move.
    """

    bundle: Ints
    since_s: Floats
    until_s: Floats  # the scenario's end, if no broker took it
    source: Ints
    destination: Ints  # -1: no broker took it
    moved: Bools  # False: its broker went down
    drained: Bools  # moved from a broker that was being drained
    leaving: Bools  # moved from a broker that had yet to be restarted in the rollout

    def __len__(self) -> int:
        return len(self.bundle)

    @property
    def length_s(self) -> Floats:
        """Return the seconds that each lasted."""
        return self.until_s - self.since_s

    def where(self, chosen: Bools) -> Gaps:
        """Return the chosen ones."""
        return Gaps(*(getattr(self, name)[chosen] for name in self.__slots__))


def find_gaps(changes: Changes, end_s: float) -> Gaps:
    """Find every gap that a release or a loss began. It ends with the bundle's next change."""
    order = np.argsort(changes.bundle, kind="stable")  # each bundle's changes, one after another
    bundle = changes.bundle[order]
    taken = np.append(bundle[1:] == bundle[:-1], False)
    following = np.minimum(np.arange(len(order)) + 1, max(len(order) - 1, 0))
    until = np.where(taken, changes.t_s[order][following], end_s)
    destination = np.where(taken, changes.new[order][following], -1)
    begins = (changes.cause == RELEASED) | (changes.cause == LOST)
    left = np.argsort(order)[begins]  # places within `order`, ordered by time
    at = order[left]
    return Gaps(
        bundle[left],
        changes.t_s[at],
        until[left],
        changes.old[at],
        destination[left],
        changes.cause[at] == RELEASED,
        changes.drained[at],
        changes.leaving[at],
    )


def gap_throughputs(tree: BundleTree, gaps: Gaps) -> Floats:
    """Return the throughput of each gap's bundle when the gap began, in and out, bytes/s."""
    scenario = tree.scenario
    step = ticks_at(scenario, gaps.since_s) // scenario.load_step_ticks
    root, part = tree.root[gaps.bundle], tree.part[gaps.bundle]
    bytes_in, bytes_out = (scenario.loads[row, root, step].astype(np.float64) for row in (2, 3))
    throughput: Floats = (bytes_in + bytes_out) * part
    return throughput


def gap_clients(tree: BundleTree, gaps: Gaps) -> Floats:
    """Return the number of producers and consumers of each gap's bundle."""
    bundles = tree.scenario.bundles
    return tree.spread_by_topics(bundles.producers + bundles.consumers)[gaps.bundle]


def count_undone(moves: Gaps) -> int:
    """Count moves whose bundle moved back to their source within an hour.

    Moves from drained brokers, and from those to be restarted, don't count.
    """
    order = np.argsort(moves.bundle, kind="stable")
    gaps = Gaps(*(getattr(moves, name)[order] for name in moves.__slots__))
    back = np.zeros(len(gaps), np.bool_)
    for lag in range(int(np.bincount(gaps.bundle).max(initial=0))):
        first, later = slice(0, len(gaps) - lag), slice(lag, None)
        back[first] |= (
            (gaps.bundle[later] == gaps.bundle[first])
            & (gaps.destination[later] == gaps.source[first])
            & (gaps.until_s[later] <= gaps.since_s[first] + HOUR_S + TOLERANCE)
        )
    return int(np.count_nonzero(back & ~gaps.drained & ~gaps.leaving))


def count_redundant(changes: Changes) -> int:
    """Count the moves beyond those that the bundles' final owners need.

    A bundle that ends at another broker than it began at needs one move. It begins anew when its
    broker goes down; a split ends it, and begins its children.
    """
    if not len(changes):
        return 0
    order = np.argsort(changes.bundle, kind="stable")
    bundle, old, new, cause = (
        column[order] for column in (changes.bundle, changes.old, changes.new, changes.cause)
    )
    begins = np.append(True, (bundle[1:] != bundle[:-1]) | (cause[:-1] == LOST))
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(order)) - 1
    gains, loses = np.isin(cause, (ACQUIRED, BORN)), np.isin(cause, (LOST, SPLIT))
    began = np.where(gains[first], new[first], old[first])
    ended = np.where(loses[last], old[last], new[last])
    made = np.add.reduceat((cause == RELEASED).astype(np.int64), first)
    return int((made - ((made > 0) & (began != ended))).sum())


def is_above_budget(rules: Rules, moves: Gaps) -> Bools:
    """Return, for each move, whether it exceeds its namespace's budget of moves in an hour.

    Moves from drained brokers, and from those to be restarted, don't count.
    """
    namespace, above = rules.namespace[moves.bundle], np.zeros(len(moves), np.bool_)
    counted = ~moves.drained & ~moves.leaving & (rules.budget[namespace] >= 0)
    for number in np.unique(namespace[counted]).tolist():
        rows = np.flatnonzero(counted & (namespace == number))
        above[rows] = moves_within_hour(moves.since_s[rows]) > rules.budget[number]
    return above


def moves_within_hour(t_s: Floats) -> Ints:
    """Count, for each move, the moves in the hour that ends with it, itself included.

    `t_s`: ascending.
    """
    within: Ints = np.arange(1, len(t_s) + 1) - np.searchsorted(
        t_s, t_s - HOUR_S + TOLERANCE, side="right"
    )
    return within


def drain_seconds(scenario: Scenario, changes: Changes) -> float | None:
    """Return the longest time from a drain until its broker was empty. None: there is no drain.

    For a broker that never was empty it ends with the undrain, the broker's loss or the scenario.
    """
    took = []
    for drain in scenario.events:
        if drain.kind != "drain":
            continue
        ends = (
            event.t_s
            for event in scenario.events
            if event.broker == drain.broker
            and event.t_s > drain.t_s
            and event.kind in ("undrain", "crash", "leave")
        )
        stop = next(ends, scenario.end_s)
        change = (changes.new == drain.broker).astype(np.int64) - (changes.old == drain.broker)
        count = np.count_nonzero(scenario.bundles.start_owner == drain.broker) + np.append(
            0, np.cumsum(change)
        )
        before = int(np.searchsorted(changes.t_s, drain.t_s + TOLERANCE, side="right"))
        empty = np.flatnonzero(count[before:] == 0)
        if len(empty) and empty[0] == 0:
            took.append(0.0)
        else:
            emptied = changes.t_s[before + empty[0] - 1] if len(empty) else stop
            took.append(float(min(emptied, stop)) - drain.t_s)
    return max(took, default=None)
