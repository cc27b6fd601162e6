"""Times without an owner, and what a trace's moves were worth: those undone, those too many, those
above a budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lb_stream.sim.measures.rules import Rules
from lb_stream.sim.measures.state import TOLERANCE, ticks_of
from lb_stream.sim.measures.trace import ACQUIRED, LOST, RELEASED, Changes
from lb_stream.sim.scenario.scenario import Bools, Floats, Ints, Scenario

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Gaps:
    """Times in which a bundle had no owner, as columns, in order of their beginning.

    A move is one that began by a release.
    """

    bundle: Ints
    since_s: Floats
    until_s: Floats  # the scenario's end, if nobody took it
    source: Ints
    destination: Ints  # -1: nobody took it
    moved: Bools  # else its broker went down
    drained: Bools  # moved out of a broker that was being drained

    def __len__(self) -> int:
        return len(self.bundle)

    @property
    def length_s(self) -> Floats:
        """How long each lasted."""
        return self.until_s - self.since_s

    def of(self, chosen: Bools) -> Gaps:
        """Some of them."""
        return Gaps(*(getattr(self, name)[chosen] for name in self.__slots__))


def gaps_of(changes: Changes, end_s: float) -> Gaps:
    """Every time without an owner that a release or a loss began."""
    order = np.argsort(changes.bundle, kind="stable")  # each bundle's changes, one after another
    bundle = changes.bundle[order]
    taken = np.append(
        bundle[1:] == bundle[:-1], False
    )  # what leaves nobody the owner is followed by who takes it
    following = np.minimum(np.arange(len(order)) + 1, max(len(order) - 1, 0))
    until = np.where(taken, changes.t_s[order][following], end_s)
    destination = np.where(taken, changes.new[order][following], -1)
    left = np.argsort(order)[changes.cause != ACQUIRED]  # places, in the order of happening
    at = order[left]
    return Gaps(
        bundle[left],
        changes.t_s[at],
        until[left],
        changes.old[at],
        destination[left],
        changes.cause[at] == RELEASED,
        changes.drained[at],
    )


def throughput_of(scenario: Scenario, gaps: Gaps) -> Floats:
    """Bytes/s, in and out, of each gap's bundle when the gap began."""
    step = ticks_of(scenario, gaps.since_s) // scenario.load_step_ticks
    bytes_in, bytes_out = (
        scenario.loads[row, gaps.bundle, step].astype(np.float64) for row in (2, 3)
    )
    throughput: Floats = bytes_in + bytes_out
    return throughput


def clients_of(scenario: Scenario, gaps: Gaps) -> Ints:
    """Producers and consumers of each gap's bundle."""
    clients: Ints = (scenario.bundles.producers + scenario.bundles.consumers)[gaps.bundle]
    return clients


def undone(moves: Gaps) -> int:
    """Moves whose bundle came back by a move, within an hour, to where it left from; not those out
    of drained brokers."""
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
    return int(np.count_nonzero(back & ~gaps.drained))


def redundant(changes: Changes) -> int:
    """Moves less one for each bundle that ends elsewhere than it began.

    When its broker goes down it ends, and begins anew.
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
    began = np.where(cause[first] == ACQUIRED, new[first], old[first])
    ended = np.where(cause[last] == LOST, old[last], new[last])
    made = np.add.reduceat((cause == RELEASED).astype(np.int64), first)
    return int((made - ((made > 0) & (began != ended))).sum())


def above_budget(rules: Rules, moves: Gaps) -> Bools:
    """Of each move, whether with it there were more than its namespace's budget in an hour.

    Out of drained brokers they are free.
    """
    namespace, above = rules.namespace[moves.bundle], np.zeros(len(moves), np.bool_)
    counted = ~moves.drained & (rules.budget[namespace] >= 0)
    for number in np.unique(namespace[counted]).tolist():
        rows = np.flatnonzero(counted & (namespace == number))
        above[rows] = moves_within_hour(moves.since_s[rows]) > rules.budget[number]
    return above


def moves_within_hour(t_s: Floats) -> Ints:
    """Of each move, how many there were in the hour that ends with it, itself included.

    Times ascend.
    """
    within: Ints = np.arange(1, len(t_s) + 1) - np.searchsorted(
        t_s, t_s - HOUR_S + TOLERANCE, side="right"
    )
    return within


def drain_seconds(scenario: Scenario, changes: Changes) -> float | None:
    """The longest time from a drain until its broker was empty, or until undrain, loss or the end
    if it never was. None: no drain."""
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
        known = int(
            np.searchsorted(changes.t_s, drain.t_s + TOLERANCE, side="right")
        )  # changes up to the drain
        empty = np.flatnonzero(count[known:] == 0)
        if len(empty) and empty[0] == 0:
            took.append(0.0)
        else:
            emptied = changes.t_s[known + empty[0] - 1] if len(empty) else stop
            took.append(float(min(emptied, stop)) - drain.t_s)
    return max(took, default=None)
