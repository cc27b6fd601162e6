"""Ceilings: what a broker carries at most, learned where bundles came and brought no more load.

A limit that is stated too high can't be seen in reports: a broker that is asked for more than it
can carry just delivers less of all its bundles. But then bundles carry less than before as soon as
they come to it, and those that were there before fall as well. And they rise once others leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lb_stream.core.least_moves.capacities import IN, OUT
from lb_stream.core.least_moves.memory import Ceiling, LeastMovesMemory
from lb_stream.core.model.view import Bools, ClusterView, Floats, Rows

# Most of these figures are chosen by the reasons beside them. Decision 0044 has what they reach
# together; none has been tuned by itself.

ARRIVED_MS = 180_000
"""Bundles that came within this time are compared with those that were there before. After six
reports, one each half minute, about half of a short-term average of 10 samples is of the time since
they came, and hides the fall."""
SURE, LIKELY, AGAIN = 4.0, 2.0, 1.0
"""Standard errors beyond which a fall is no noise. Bundles that were there are many and show it
surely, or no broker has a ceiling (SURE). Those that came are few: they only have to agree (LIKELY),
and less so in a report that confirms a first sign (AGAIN)."""
NOTABLE = 0.02
"""A fall by less than this part is none, however certain it is. With many bundles the standard
error is near 0, and the least drift of load would be a sign. Fine-tuning takes such a change for
calm load, too."""
MOST = 0.5
"""A full broker holds all of its bundles back alike. So the typical bundle, and those that came,
fall by this part of what all do at least. Where a few bundles cause the fall, it is their own."""
MEDIAN_ERROR = 1.25
"""The standard error of a median ÷ that of a mean: √(π ÷ 2) for normal errors."""
RELEASED, RISEN_MS = 0.9, 90_000
"""A broker that carries less than RELEASED of its ceiling, within RISEN_MS after the first plan that
relieves it, delivers all that its bundles are asked for. If they don't rise, it has no ceiling. Less
than a tenth could be noise. RISEN_MS is three reports, one each half minute: later the bundles'
averages have risen, too, and hide it."""
FEWEST, SIBLINGS = 4, 3
"""A fall of fewer bundles is no sign; fewer bundles of a namespace show no trend of it. The median
of fewer follows a single bundle."""
CONFIRMED_MS = 20_000
"""A sign counts once a report this much later shows it, too. Until then no bundle comes. It is less
than the usual half minute between two reports, so that the next one confirms it."""
SURPASSED = 1.1
"""A broker that carries this many times as much has no such ceiling. By as much a broker exceeds a
stated limit that is not believed."""
RETRIED_MS = 600_000
"""A plan relieves such a broker again after this time. Elsewhere there may be no room for more, as
its cpu counts in the even load, and it can't use it all. By default this is as long as a bundle
that has moved stays."""
FORGOTTEN_MS = 4 * 3_600_000
"""After this time without another sign, the stated limit is tried again: a network may have been
repaired. If it has not been, the bundles that come show it again."""


def learn_ceilings(
    memory: LeastMovesMemory, view: ClusterView, rows: Rows, explained: Bools
) -> LeastMovesMemory:
    """Return the memory after new reports of these brokers. O(bundles) while bundles come.

    `explained`: brokers that are nearly full by a limit that is known.
    """
    arrived = _find_arrived(view)
    if not memory.ceilings and not arrived.any():
        return memory
    changes, noise, now_ms = _Changes.of(view, arrived), memory.noise, view.now_ms
    latest = view.brokers.latest
    found = dict(memory.ceilings)
    for row in rows.tolist():
        name = view.brokers.names[row]
        known = found.pop(name, None)
        carries = np.array([latest.throughput_in[row], latest.throughput_out[row]])
        sure = known if known is not None and known.is_sure else None
        if sure is not None and (
            (carries > SURPASSED * sure.carried()).any()
            or _is_refuted(memory, view, changes, row, sure)
        ):
            known = sure = None
        if (
            noise is not None
            and not explained[row]
            and _is_held_back(view, changes, row, noise, LIKELY if known is None else AGAIN)
        ):
            expected = changes.usual * float(changes.mean[changes.of_broker(row)].sum())
            since_ms = now_ms if known is None else known.since_ms
            is_sure = sure is not None or now_ms - since_ms >= CONFIRMED_MS
            most = carries if known is None else np.maximum(carries, known.carried())
            into, out = most.tolist()
            tried_ms = 0 if known is None else known.tried_ms
            found[name] = Ceiling(into, out, expected, since_ms, now_ms, is_sure, tried_ms)
        elif sure is not None and now_ms - sure.seen_ms < FORGOTTEN_MS:
            found[name] = sure
    return memory if found == memory.ceilings else replace(memory, ceilings=found)


def lower_to_ceilings(
    capacity: Floats, names: Sequence[str], ceilings: Mapping[str, Ceiling]
) -> Floats:
    """Return the capacities, (brokers, resources), with bandwidths lowered to sure ceilings."""
    sure = {name: ceiling for name, ceiling in ceilings.items() if ceiling.is_sure}
    rows = [row for row, name in enumerate(names) if name in sure]
    found = capacity.copy()
    for row in rows:
        # A network is as fast in one direction as in the other.
        most = max(*sure[names[row]].carried().tolist(), 1.0)
        stated = capacity[row, [IN, OUT]]
        found[row, [IN, OUT]] = np.where(stated > 0, np.minimum(stated, most), most)
    return found


def find_doubted(ceilings: Mapping[str, Ceiling], names: Sequence[str]) -> Bools:
    """Return which brokers take no bundle until the next report shows whether they carry more."""
    return np.array([name in ceilings and not ceilings[name].is_sure for name in names], np.bool_)


def find_tried(memory: LeastMovesMemory, names: Sequence[str], now_ms: int) -> Bools:
    """Return which brokers with a ceiling a plan has relieved lately, but not enough."""
    tried_ms = [memory.ceilings[name].tried_ms if name in memory.ceilings else 0 for name in names]
    return np.array([when > 0 and abs(now_ms - when) < RETRIED_MS for when in tried_ms], np.bool_)


def mark_tried(memory: LeastMovesMemory, names: Sequence[str], now_ms: int) -> LeastMovesMemory:
    """Return the memory after a plan that relieves these brokers."""
    tried = {
        name: memory.ceilings[name]._replace(tried_ms=now_ms)
        for name in names
        if name in memory.ceilings
    }
    return replace(memory, ceilings={**memory.ceilings, **tried}) if tried else memory


def _find_arrived(view: ClusterView) -> Bools:
    """Return which bundles have come to their brokers lately, after others were there."""
    owner, since_ms = view.bundles.owner, view.bundles.owner_since_ms
    arrived: Bools = (owner >= 0) & (view.now_ms - since_ms < ARRIVED_MS)
    if arrived.any():
        first_ms = np.full(len(view.brokers), np.iinfo(np.int64).max)
        np.minimum.at(first_ms, owner[owner >= 0], since_ms[owner >= 0])
        arrived[arrived] = since_ms[arrived] > first_ms[owner[arrived]]
    return arrived


@dataclass(frozen=True, slots=True)
class _Changes:
    """What bundles carry by their last reports, beside their short-term averages."""

    rank: Rows  # row of each bundle's broker + 1; 0: unassigned
    latest: Floats  # bytes/s
    mean: Floats  # bytes/s
    change: Floats  # latest ÷ mean
    known: Bools  # its owner has measured it
    arrived: Bools  # it came lately
    usual: float  # median change of the others, at most 1

    @staticmethod
    def of(view: ClusterView, arrived: Bools) -> _Changes:
        """Return the changes. A bundle whose new owner has not measured it yet says nothing."""
        bundles = view.bundles
        rank = bundles.owner.astype(np.intp) + 1
        latest, mean = bundles.latest.throughput, bundles.short.throughput
        known = (rank > 0) & (mean > 0) & (latest > 0)
        known &= ~arrived | (bundles.reported_ms >= bundles.owner_since_ms)
        change = np.divide(latest, mean, out=np.ones(len(mean)), where=known)
        steady = change[known & ~arrived]
        usual = min(float(np.median(steady)), 1.0) if len(steady) else 1.0
        return _Changes(rank, latest, mean, change, known, arrived, usual)

    def of_broker(self, row: int) -> Rows:
        """Return the bundles that a broker has measured."""
        return np.flatnonzero(self.known & (self.rank == row + 1))

    def find_trends(self, view: ClusterView, row: int, rows: Rows) -> Floats:
        """Return the change that each of these bundles would show at any broker, at most 1.

        It is the median of its namespace's bundles at brokers other than `row`; without enough of
        them, that of all bundles.
        """
        elsewhere = self.known & ~self.arrived & (self.rank != row + 1)
        found, at = np.full(len(rows), self.usual), 0
        while at < len(rows):
            namespace = view.bundles.name(int(rows[at])).rpartition("/")[0]
            same = view.bundles.rows_of_namespace(namespace)
            end = max(int(np.searchsorted(rows, same.stop)), at + 1)
            siblings = self.change[same][elsewhere[same]]
            if len(siblings) >= SIBLINGS:
                found[at:end] = min(float(np.median(siblings)), 1.0)
            at = end
        return found


def _is_held_back(
    view: ClusterView, changes: _Changes, row: int, noise: float, errors: float
) -> bool:
    """Return whether a broker delivers less of all its bundles since some of them came.

    A fall that most bundles see, or those of the same namespaces elsewhere, is none. `noise`:
    relative error of one sample. `errors`: by so many the bundles that came have fallen, at least.
    """
    mine = changes.of_broker(row)
    came = changes.arrived[mine]
    if not came.any() or np.count_nonzero(~came) < FEWEST:
        return False
    # Most brokers show no fall: these need no look at namespaces.
    latest, expected = changes.latest[mine], changes.mean[mine]
    if latest[came].sum() >= expected[came].sum() or latest[~came].sum() >= expected[~came].sum():
        return False

    # Those that came and those that were there fall, beyond noise.
    expected = expected * changes.find_trends(view, row, mine)
    fall = _fall(latest[~came], expected[~came])
    fall_of_came = _fall(latest[came], expected[came])
    if fall <= max(NOTABLE, SURE * _error(expected[~came], noise)):
        return False
    if fall_of_came <= max(NOTABLE, MOST * fall, errors * _error(expected[came], noise)):
        return False

    # A full broker holds back all of its bundles, not a few.
    typical = 1.0 - float(np.median(latest[~came] / expected[~came]))
    error = noise * MEDIAN_ERROR / np.count_nonzero(~came) ** 0.5
    return typical > max(MOST * fall, LIKELY * error)


def _is_refuted(
    memory: LeastMovesMemory, view: ClusterView, changes: _Changes, row: int, ceiling: Ceiling
) -> bool:
    """Return whether bundles have left a broker with a ceiling, and the others carry no more.

    Those of a full broker would rise by as much as they were held back, at least.
    """
    name, now_ms = view.brokers.names[row], view.now_ms
    most = float(ceiling.carried().sum())
    # Later plans relieve a broker that delivers all already.
    moved_ms = [when for source, when in memory.left.values() if source == name]
    first_ms = min((when for when in moved_ms if when >= ceiling.seen_ms), default=0)
    relieved = 0 <= now_ms - first_ms < RISEN_MS
    mine = changes.of_broker(row)
    stayed = mine[~changes.arrived[mine]]
    carries = float(changes.latest[mine].sum())
    if not relieved or memory.noise is None or len(stayed) < FEWEST or carries >= RELEASED * most:
        return False
    expected = changes.mean[stayed] * changes.find_trends(view, row, stayed)
    rise = -_fall(changes.latest[stayed], expected)
    return rise + LIKELY * _error(expected, memory.noise) < MOST * (ceiling.expected / most - 1.0)


def _fall(latest: Floats, expected: Floats) -> float:
    """Return the part by which bundles together carry less than expected."""
    return 1.0 - float(latest.sum() / expected.sum())


def _error(expected: Floats, noise: float) -> float:
    """Return the relative standard error of the sum of single samples."""
    return noise * float(np.sqrt((expected**2).sum()) / expected.sum())
