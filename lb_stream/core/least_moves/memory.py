"""The memory of LeastMoves: costs of messages and bytes, brokers' speeds, the noise of samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from lb_stream.core.model.registry import read_memory, write_memory
from lb_stream.core.model.view import Floats
from lb_stream.core.shedding.base import PlanExpectation

SEARCHED_AGAIN_MS, ALIKE = 300_000, 0.02
"""A search that has found no move is not repeated within this time while all shares of brokers are
within this part of what they were."""
KEEP = 0.95
"""Weight of known sums against one new report of every broker."""
ENOUGH = 20
"""A broker has its own speed only after this number of reports: more than minutes of busy cpu."""
NOISE_STEP = 0.05
"""The known noise rises or falls by this part with each report, and so follows the median. One
report in which many bundles change at once has little effect."""
UNSERVED_MS, UNSERVED_STEP = 5_000.0, 0.05
"""The assumed time that a moving bundle is unassigned, until a move is confirmed; the part by which
the known time changes with each move."""
BELIEVED_MS = 300_000
"""After this time, half of a rise of bandwidth that no bundle uses counts as lasting."""
WAVE_MS = 900_000
"""Brokers that come and go within this time may belong to one wave of restarts."""
RETURN_MS = 120_000
"""The longest wait after the restart of a single broker. In a wave of restarts, the next broker has
restarted by then."""
AFTER_ANOTHER = 2.0
"""A later plan leaves at least as many moves for fine-tuning as it makes itself, up to this number:
a tenth of a few moves is less than one. It leaves more only where its extra moves are more."""
CONTINUED_MS = 60_000
"""A plan within this time after another one continues it: its brokers' reports come one by one."""
FLAPPING = 4
"""A broker that came or went this often is flapping, and belongs to no wave of restarts: in a wave
each broker goes and comes back once."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Sums over reports of brokers with the same limits, weighted by 1 / cpu² (relative errors).

    Of R², RB, B², R, B, 1, where R is messages/s and B is bytes/s.
    """

    sums: tuple[float, float, float, float, float, float]

    def speed(self, byte_cost: float) -> float:
        """Return the messages/s that use all of the cpu of such a broker."""
        rr, rb, bb, r, b, _ = self.sums
        return (rr + 2 * byte_cost * rb + byte_cost**2 * bb) / max(r + byte_cost * b, 1e-300)


class Host(NamedTuple):
    """What reports have shown of one broker's cpu, since its last jump.

    Loads are the cpu usage that they would cause at a broker of its kind.
    """

    load: float = 0.0  # mean
    used: float = 0.0  # mean usage
    spread: float = 0.0  # variance of the load
    joint: float = 0.0  # covariance of load and usage
    noise: float = 0.0  # variance of the logarithm of usage ÷ load
    reports: float = 0.0  # number of reports
    slope: float = 0.0  # usage ÷ load beyond background, as the jump suggests; 0: as its kind
    odd: float = 0.0  # reports in a row that are above (1, 2…) or below (-1, -2…) the expected
    last: float = 0.0  # load of the last report
    was: float = 0.0  # load before its last change
    was_ms: float = 0.0  # when that was; 0: never
    usage: float = 0.0  # usage of the last report


class Ceiling(NamedTuple):
    """What a broker carries at most, although it states more."""

    into: float  # bytes/s in
    out: float  # bytes/s out
    expected: float  # bytes/s that its bundles carried before they came to it
    since_ms: int  # the first sign
    seen_ms: int  # the last sign
    is_sure: bool  # reports have confirmed it; until then it takes no bundle
    tried_ms: int = 0  # when a plan last relieved it, or found no room

    def carried(self) -> Floats:
        """Return bytes/s, in and out."""
        return np.array([self.into, self.out])


@dataclass(frozen=True, slots=True)
class AskedSplit:
    """A split that a plan has asked for, and what its children are expected to carry."""

    asked_ms: int
    since_ms: int  # since when the parent had been larger than an even load
    measured: bool  # the shares are those of topics, as the owner has reported them
    boundaries: tuple[int, ...]  # ascending; empty: the owner finds them
    shares: tuple[float, ...]  # of each child, in the order of their ranges
    demand: tuple[float, ...]  # of the parent by resource


@dataclass(frozen=True, slots=True)
class LeastMovesMemory:
    """The memory of LeastMoves of one cluster. Times are ms since the epoch."""

    # Relative standard error of one sample of one bundle.
    noise: float | None = None
    # Broker → messages/s and number of bundles in its last report.
    last: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    # Broker → since when it has been hot.
    hot: Mapping[str, int] = field(default_factory=dict)
    # Brokers that were alive in the last round.
    serving: tuple[str, ...] = ()
    # (when, broker) of each broker that came or went within WAVE_MS.
    changes: tuple[tuple[int, str], ...] = ()
    # Bundle → the broker that it left, and when the move was planned.
    left: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    # Messages that cost as much cpu as one byte.
    byte_cost: float = 0.0
    # Relative error of a broker's cpu usage by these costs.
    misfit: float | None = None
    # Kind of broker → sums over its reports.
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    # Since when costs are known (ms); 0: they are not, or by an earlier release.
    kinds_ms: int = 0
    # Broker → what its reports have shown of its cpu.
    hosts: Mapping[str, Host] = field(default_factory=dict)
    # Broker → its kind.
    kind_of: Mapping[str, str] = field(default_factory=dict)
    # Sums of the regression of direct memory (d) on bytes/s in (I): n, I, I², d, Id.
    direct_sums: tuple[float, ...] = ()
    # Bytes of direct memory for each byte/s in.
    direct_slope: float = 0.0
    # Moves that fine-tuning may make.
    fine_tune_budget: float = 0.0
    # When moves were last planned, or fine-tuning was considered.
    planned_ms: int = 0
    # When the last plan was made.
    plan_ms: int = 0
    # How long that was after the plan before it.
    between_ms: int = 0
    # Broker → used bytes/s in and out beyond those of bundles, and when they were reported.
    beyond: Mapping[str, tuple[float, float, int]] = field(default_factory=dict)
    # Time that a moving bundle is unassigned (ms): about the median.
    unserved_ms: float | None = None
    # Broker → highest limits (in, out: bytes/s, direct memory: bytes) that it states and exceeds.
    refuted: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    # Bundle → since when it has been larger than an even load; later than now: it is not tried yet.
    too_large: Mapping[str, int] = field(default_factory=dict)
    # Parent → the split that was asked for, until its children are known.
    splits: Mapping[str, AskedSplit] = field(default_factory=dict)
    # Children of splits that left them nearly all of the load, sorted: they are not split again.
    indivisible: tuple[str, ...] = ()
    # (when, namespace) of each split asked for within the hour.
    split_times: tuple[tuple[int, str], ...] = ()
    # What the last plan with splits is expected to reach, and when it was made.
    expected: PlanExpectation | None = None
    expected_ms: int = 0
    # Broker → its share when a pass last searched a small cluster and found no move, and when.
    fruitless: Mapping[str, float] = field(default_factory=dict)
    fruitless_ms: int = 0
    # Broker → what it carries at most, where bundles came and brought no more load.
    ceilings: Mapping[str, Ceiling] = field(default_factory=dict)

    @staticmethod
    def read(data: Mapping[str, object]) -> LeastMovesMemory:
        """Read the JSON object of the last round, also of one that an earlier release has logged.

        That had `indivisible` as an object: child → when it was found.
        """
        if isinstance(indivisible := data.get("indivisible"), Mapping):
            data = {**data, "indivisible": sorted(indivisible)}
        return read_memory(data, LeastMovesMemory)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object that `read` takes. Some fields are left out while unset."""
        unset = {name for name in _LEFT_OUT if not getattr(self, name)}
        return {name: value for name, value in write_memory(self).items() if name not in unset}

    def without_forgotten(self, names: Sequence[str]) -> LeastMovesMemory:
        """Return the memory without brokers that are not in the view, and without their kinds.

        `names`: the brokers of the view.
        """
        known = max(len(self.hosts), len(self.last), len(self.kind_of), len(self.beyond))
        if known <= len(names) and len(self.kinds) <= len(set(self.kind_of.values())):
            return self
        kind_of = _only(self.kind_of, names)
        used = set(kind_of.values())
        return replace(
            self,
            hosts=_only(self.hosts, names),
            last=_only(self.last, names),
            beyond=_only(self.beyond, names),
            refuted=_only(self.refuted, names),
            ceilings=_only(self.ceilings, names),
            kind_of=kind_of,
            kinds={name: kind for name, kind in self.kinds.items() if name in used},
        )

    def until(self, now_ms: int) -> LeastMovesMemory:
        """Return the memory with `now_ms` instead of later times, which a clock set back leaves."""
        times_ms = [self.planned_ms, self.plan_ms, self.expected_ms, self.kinds_ms]
        times_ms += self.hot.values()
        times_ms += [split.asked_ms for split in self.splits.values()]
        times_ms += [when for when, _ in self.split_times]
        times_ms += [when for when, _ in self.changes]
        times_ms += [when for _, when in self.left.values()]
        times_ms += [when for _, _, when in self.beyond.values()]
        times_ms += [int(host.was_ms) for host in self.hosts.values()]
        times_ms += [ceiling.seen_ms for ceiling in self.ceilings.values()]
        if max(times_ms) <= now_ms:
            return self
        return replace(
            self,
            hot={name: min(when, now_ms) for name, when in self.hot.items()},
            changes=tuple((min(when, now_ms), name) for when, name in self.changes),
            left={name: (broker, min(when, now_ms)) for name, (broker, when) in self.left.items()},
            planned_ms=min(self.planned_ms, now_ms),
            plan_ms=min(self.plan_ms, now_ms),
            kinds_ms=min(self.kinds_ms, now_ms),
            expected_ms=min(self.expected_ms, now_ms),
            splits={
                name: replace(
                    split,
                    asked_ms=min(split.asked_ms, now_ms),
                    since_ms=min(split.since_ms, now_ms),
                )
                for name, split in self.splits.items()
            },
            split_times=tuple((min(when, now_ms), name) for when, name in self.split_times),
            hosts={
                name: host._replace(was_ms=min(host.was_ms, now_ms))
                for name, host in self.hosts.items()
            },
            ceilings={
                name: ceiling._replace(
                    since_ms=min(ceiling.since_ms, now_ms), seen_ms=min(ceiling.seen_ms, now_ms)
                )
                for name, ceiling in self.ceilings.items()
            },
            beyond={
                name: (into, out, min(when, now_ms))
                for name, (into, out, when) in self.beyond.items()
            },
        )

    def learn_fleet(self, alive: Sequence[str], now_ms: int) -> LeastMovesMemory:
        """Return the memory after a round in which these brokers are alive."""
        kept = tuple(change for change in self.changes if now_ms - change[0] < WAVE_MS)
        changed = sorted(set(alive) ^ set(self.serving)) if self.serving else []
        if not changed and len(kept) == len(self.changes) and self.serving:
            return self
        return replace(
            self, serving=tuple(alive), changes=kept + tuple((now_ms, name) for name in changed)
        )

    def calm_at(self) -> int:
        """Return the time (ms) at which a wave of restarts counts as over; 0: there is no wave.

        A wave is over when no broker has come or gone for 1.5 times its longest pause. After the
        restart of a single broker this takes RETURN_MS at most. Flapping brokers don't count.
        """
        often = Counter(name for _, name in self.changes)
        changes = [(when, name) for when, name in self.changes if often[name] < FLAPPING]
        moments = [when for when, _ in changes]
        if not moments or moments[-1] == moments[0]:
            return 0
        wait = max(later - earlier for earlier, later in pairwise(moments)) * 3 // 2
        alone = len({name for _, name in changes}) == 1
        return moments[-1] + (min(wait, RETURN_MS) if alone else wait)

    def learn_noise(
        self, names: Sequence[str], rate: Floats, bundles: Sequence[int], spread: Floats
    ) -> LeastMovesMemory:
        """Return the memory after reports with these message rates and numbers of bundles.

        Two reports of a broker with equal numbers of bundles differ mostly by noise. `spread`: the
        relative error of a broker's sum ÷ that of one bundle.
        """
        # Brokers with the same number of bundles as in their last report.
        before = [self.last.get(name, (0.0, -1)) for name in names]
        reported = zip(rate.tolist(), bundles, strict=True)
        last = {**self.last, **dict(zip(names, reported, strict=True))}
        was = np.array([rate_before for rate_before, _ in before])
        same = np.array([count for _, count in before]) == np.asarray(bundles)
        same &= (was > 0) & (rate > 0) & (spread > 0)
        if not same.any():
            return replace(self, last=last)

        # The median of their deviations is 0.6745 standard errors of a difference.
        off = np.abs(np.log(rate[same] / was[same])) / (spread[same] * 2**0.5 * 0.6745)
        found = float(np.median(off))
        if not self.noise:
            return replace(self, last=last, noise=found)
        step = 1.0 + NOISE_STEP if found > self.noise else 1.0 - NOISE_STEP
        return replace(self, last=last, noise=self.noise * step)

    def learn_direct(self, bytes_in: Floats, used: Floats) -> LeastMovesMemory:
        """Return the memory after reports of direct memory (`used`, bytes) and bytes/s in.

        The direct memory for each byte/s is the slope of a linear regression.
        """
        sums = np.array(
            [len(used), bytes_in.sum(), bytes_in @ bytes_in, used.sum(), bytes_in @ used]
        )
        known = sums
        if self.direct_sums:
            known = np.array(self.direct_sums) * KEEP + sums
        n, i, ii, d, id_ = known
        spread = ii - i * i / n
        slope = max((id_ - i * d / n) / spread, 0.0) if spread > 1e-6 * ii else 0.0
        return replace(self, direct_sums=tuple(known.tolist()), direct_slope=float(slope))

    def learn_beyond(self, names: Sequence[str], beyond: Floats, now_ms: int) -> LeastMovesMemory:
        """Return the memory after reports of used bandwidth beyond that of bundles.

        `beyond`: (brokers, in and out), bytes/s. A fall counts at once, a rise slowly: Pulsar's
        brokers measure usage once a minute, so reports include load that has just left.
        """
        found = dict(self.beyond)
        for name, now in zip(names, beyond.tolist(), strict=True):
            *known, when_ms = found.get(name, (*now, now_ms))
            rise = 1.0 - 0.5 ** ((now_ms - when_ms) / BELIEVED_MS)
            into, out = (
                old + (rise if new > old else 1.0) * (new - old)
                for new, old in zip(now, known, strict=True)
            )
            found[name] = into, out, now_ms
        return replace(self, beyond=found)

    def learn_refuted(self, names: Sequence[str], exceeded: Floats) -> LeastMovesMemory:
        """Return the memory after reports of brokers that exceed the limits that they state.

        `exceeded`: (brokers, in, out and direct memory), these limits; 0: none is exceeded.
        """
        if not exceeded.any():
            return self
        found = dict(self.refuted)
        for row in np.flatnonzero(exceeded.any(axis=1)).tolist():
            known = found.get(names[row], (0.0, 0.0, 0.0))
            into, out, direct = np.maximum(exceeded[row], known).tolist()
            found[names[row]] = into, out, direct
        return self if found == self.refuted else replace(self, refuted=found)

    def learn_unserved(self, times_ms: Sequence[int]) -> LeastMovesMemory:
        """Return the memory after moves whose bundles were unassigned for these times.

        The known time follows the median, so that a single long move has little effect.
        """
        found = max(float(np.median(times_ms)), 1.0)
        known = found if self.unserved_ms is None else self.unserved_ms
        return replace(
            self, unserved_ms=known * (1.0 + UNSERVED_STEP * float(np.sign(found - known)))
        )

    def after_plan(
        self, moves: int, fewest: int, extra_moves_ratio: float, now_ms: int
    ) -> LeastMovesMemory:
        """Return the memory after a plan. `fewest`: a lower bound of its moves.

        Extra moves that the plan does not use are left for fine-tuning. Budgets of several plans
        don't add up, as a plan may continue the one before. A later plan leaves at least as many
        moves as it makes, up to AFTER_ANOTHER, unless it continues the one before. One that moves
        children of a split continues none: their loads are what the split was expected to give.

        `now_ms` is never before the last plan: where a clock is set back, `until` has brought that
        forward. The first plan after that continues the one before.
        """
        if not moves:
            return self
        left = extra_moves_ratio * fewest - max(moves - fewest, 0)
        continues = now_ms - self.plan_ms < CONTINUED_MS and not any(
            now_ms - when < CONTINUED_MS for when, _ in self.split_times
        )
        if self.plan_ms and extra_moves_ratio and not continues:
            left = max(left, min(float(moves), AFTER_ANOTHER))
        return replace(
            self,
            fine_tune_budget=max(self.fine_tune_budget, left),
            planned_ms=now_ms,
            plan_ms=now_ms,
            between_ms=now_ms - self.plan_ms if self.plan_ms else 0,
        )

    def after_search(self, share: Mapping[str, float], moves: int, now_ms: int) -> LeastMovesMemory:
        """Return the memory after a pass that has searched with these shares of brokers."""
        found = {} if moves else {name: round(known, 4) for name, known in share.items()}
        if not found and not self.fruitless:
            return self
        return replace(self, fruitless=found, fruitless_ms=now_ms if found else 0)

    def was_fruitless(self, share: Mapping[str, float], now_ms: int) -> bool:
        """Return whether a search with nearly these shares of brokers has just found no move."""
        return (
            bool(self.fruitless)
            and self.fruitless.keys() == share.keys()
            and abs(now_ms - self.fruitless_ms) < SEARCHED_AGAIN_MS
            and all(
                abs(known - share[name]) <= ALIKE * max(known, share[name])
                for name, known in self.fruitless.items()
            )
        )

    def after_fine_tuning(self, moves: int, now_ms: int) -> LeastMovesMemory:
        """Return the memory after fine-tuning, which waits again, even if it made no move."""
        return replace(
            self, fine_tune_budget=max(self.fine_tune_budget - moves, 0.0), planned_ms=now_ms
        )


_LEFT_OUT = (
    "unserved_ms",
    "fine_tune_budget",
    "kinds_ms",
    "planned_ms",
    "plan_ms",
    "between_ms",
    "beyond",
    "refuted",
    "too_large",
    "splits",
    "indivisible",
    "split_times",
    "expected",
    "expected_ms",
    "fruitless",
    "fruitless_ms",
    "ceilings",
)
"""Fields that rounds don't log while they are unset."""

Known = TypeVar("Known")


def _only(known: Mapping[str, Known], names: Sequence[str]) -> dict[str, Known]:
    """Return the entries of these brokers."""
    return {name: known[name] for name in names if name in known}
