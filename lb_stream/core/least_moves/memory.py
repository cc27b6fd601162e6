"""What LeastMoves remembers from round to round: what messages and bytes cost, how fast brokers
are, how noisy samples are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from lb_stream.core.model.view import Floats

KEEP = 0.95
"""Weight of what was known of costs, against a report of every broker."""
KEEP_OWN = 0.9
"""Weight of what was known of one broker, against one more report of it."""
NOTABLE = 0.1
"""A broker this far from others of its kind, and this clearly, has a speed of its own."""
ENOUGH = 20
"""Reports before a broker can be found to be unlike others of its kind: what makes a cpu busy for
minutes is no lasting trait."""
NOISE_STEP = 0.05
"""By so much the noise known so far comes nearer to that of one more report: it is their median,
and a leap of many bundles no noise."""
BUSY = 0.2
"""From this part of its cpu on a broker tells a speed of its own: below, what its process does
without any traffic is most of it."""
OUTLIER = 4.5
"""And so many times as far from the median of its kind as half of it are: three standard
deviations."""
UNSERVED_MS, UNSERVED_STEP = 5_000.0, 0.05
"""How long a bundle that moves is taken to have no owner before any move was seen; by so much what
is known comes nearer to one more."""
SHARES = np.linspace(0.0, 1.0, 41)
"""Parts of the cpu that bytes are tried to explain, messages the rest."""
BELIEVED_MS = 300_000
"""In this time half of what a broker's bandwidth is in use for more than before, and no bundle
explains, is believed."""
WAVE_MS = 900_000
"""Brokers that come and go within this time may belong to one wave of restarts."""
RETURN_MS = 120_000
"""One broker that has restarted may be the first of a wave.

It isn't filled for so long at most: by then the next one restarts.
"""
AFTER_ANOTHER = 4.0
"""Moves that a later plan leaves for fine-tuning, at most: a tenth of few moves would be none."""
FLAPPING = 4
"""A broker that came and went so often is no restart of a wave: it goes twice."""
SURE = 0.1
"""Bytes are taken to explain half of the cpu, give or take this, as long as reports don't say
otherwise more clearly."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Sums over reports of brokers with the same limits, each weighted by 1 / cpu² (relative
    errors): of R², RB, B², R, B, 1."""

    sums: tuple[float, float, float, float, float, float]

    def speed(self, byte_cost: float) -> float:
        """Messages/s that are all of the cpu of such a broker."""
        rr, rb, bb, r, b, _ = self.sums
        return (rr + 2 * byte_cost * rb + byte_cost**2 * bb) / max(r + byte_cost * b, 1e-300)


@dataclass(frozen=True, slots=True)
class LeastMovesMemory:
    """All of it.

    `own`: broker → how far its speed is from its kind's (logarithm), the variance of that, reports.
    """

    noise: float | None = None  # relative standard error of one sample of one bundle
    last: Mapping[str, tuple[float, int]] = field(
        default_factory=dict
    )  # broker → messages/s and bundles of its last report
    hot: Mapping[str, int] = field(default_factory=dict)  # broker → since when it has been hot, ms
    serving: tuple[str, ...] = ()  # brokers that were alive in the last round
    changes: tuple[
        tuple[int, str], ...
    ] = ()  # when (ms) which broker came or went, the last quarter of an hour's
    left: Mapping[str, tuple[str, int]] = field(
        default_factory=dict
    )  # bundle → the broker that it was moved from, when (ms)
    byte_cost: float = 0.0  # messages that cost as much cpu as one byte
    misfit: float | None = None  # relative error of a broker's cpu by these costs
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    own: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    kind_of: Mapping[str, str] = field(default_factory=dict)
    direct_sums: tuple[
        float, ...
    ] = ()  # of the regression of direct memory on bytes coming in: n, I, I², d, Id
    direct_slope: float = 0.0  # direct memory that a byte/s coming in takes, bytes
    fine_tune_budget: float = 0.0  # moves that fine-tuning may make
    planned_ms: int = 0  # when moves were last planned, or fine-tuning was considered
    plan_ms: int = 0  # when the last plan was made
    between_ms: int = 0  # how long after the one before
    beyond: Mapping[str, tuple[float, float, int]] = field(
        default_factory=dict
    )  # broker → bytes/s in, out of no bundle; when (ms)
    unserved_ms: float | None = None  # how long a bundle that moves has no owner, about the median

    @staticmethod
    def read(data: Mapping[str, Any]) -> LeastMovesMemory:
        """From the JSON object of the last round."""
        given = dict(data)
        given["kinds"] = {
            name: Kind(tuple(one["sums"])) for name, one in given.get("kinds", {}).items()
        }
        given["own"] = {name: tuple(one) for name, one in given.get("own", {}).items()}
        given["last"] = {
            name: (float(one[0]), int(one[1])) for name, one in given.get("last", {}).items()
        }
        given["left"] = {
            name: (str(one[0]), int(one[1])) for name, one in given.get("left", {}).items()
        }
        given["beyond"] = {
            name: (float(one[0]), float(one[1]), int(one[2]))
            for name, one in given.get("beyond", {}).items()
        }
        given["serving"] = tuple(given.get("serving", ()))
        given["changes"] = tuple((int(one[0]), str(one[1])) for one in given.get("changes", ()))
        given["direct_sums"] = tuple(given.get("direct_sums", ()))
        return LeastMovesMemory(**given)

    def to_dict(self) -> dict[str, Any]:
        """As the JSON object that `read` takes."""
        unknown = {
            name
            for name in (
                "unserved_ms",
                "fine_tune_budget",
                "planned_ms",
                "plan_ms",
                "between_ms",
                "beyond",
            )
            if not getattr(self, name)
        }
        return {name: _plain(value) for name, value in asdict(self).items() if name not in unknown}

    def without_forgotten(self, names: Sequence[str]) -> LeastMovesMemory:
        """Without brokers that the view has forgotten, and kinds without a broker."""
        known = max(len(self.own), len(self.last), len(self.kind_of), len(self.beyond))
        if known <= len(names) and len(self.kinds) <= len(set(self.kind_of.values())):
            return self
        kind_of = _of(self.kind_of, names)
        kinds = {kind: one for kind, one in self.kinds.items() if kind in set(kind_of.values())}
        kept = replace(
            self,
            own=_of(self.own, names),
            last=_of(self.last, names),
            beyond=_of(self.beyond, names),
        )
        return replace(kept, kind_of=kind_of, kinds=kinds)

    def until(self, now_ms: int) -> LeastMovesMemory:
        """Without moments that are still to come: where the clock has been set back, they are taken
        to be now."""
        timed = (
            *self.hot.values(),
            *(change[0] for change in self.changes),
            *(one[1] for one in self.left.values()),
        )
        if (
            max(self.planned_ms, self.plan_ms, *timed, *(one[2] for one in self.beyond.values()))
            <= now_ms
        ):
            return self
        return replace(
            self,
            hot={name: min(when, now_ms) for name, when in self.hot.items()},
            changes=tuple((min(when, now_ms), name) for when, name in self.changes),
            left={name: (broker, min(when, now_ms)) for name, (broker, when) in self.left.items()},
            planned_ms=min(self.planned_ms, now_ms),
            plan_ms=min(self.plan_ms, now_ms),
            beyond={
                name: (into, out, min(when, now_ms))
                for name, (into, out, when) in self.beyond.items()
            },
        )

    def learn_fleet(self, alive: Sequence[str], now_ms: int) -> LeastMovesMemory:
        """Take the names of brokers that are alive."""
        kept = tuple(change for change in self.changes if now_ms - change[0] < WAVE_MS)
        changed = sorted(set(alive) ^ set(self.serving)) if self.serving else []
        if not changed and len(kept) == len(self.changes) and self.serving:
            return self
        return replace(
            self, serving=tuple(alive), changes=kept + tuple((now_ms, name) for name in changed)
        )

    def calm_at(self) -> int:
        """When (ms) restarts are over: no broker has come or gone for 1.5 times the
        longest pause between them; 0: there are none.

        Where only one broker has gone and come back, that is soon: after RETURN_MS at most. One
        that goes again and again doesn't count.
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
        """Take two reports of the same bundles, one after the other: what they differ by is noise,
        nearly all of it.

        `spread`: what a broker's sum is off, in errors of one bundle.
        """
        before = [self.last.get(name, (0.0, -1)) for name in names]
        last = {
            **self.last,
            **{
                name: (one, count)
                for name, one, count in zip(names, rate.tolist(), bundles, strict=True)
            },
        }
        was = np.array([one for one, _ in before])
        same = (
            (np.array([count for _, count in before]) == np.asarray(bundles))
            & (was > 0)
            & (rate > 0)
            & (spread > 0)
        )
        if not same.any():
            return replace(self, last=last)
        off = np.abs(np.log(rate[same] / was[same])) / (
            spread[same] * 2**0.5 * 0.6745
        )  # the median of a normal distribution's size
        found = float(np.median(off))
        if not self.noise:
            return replace(self, last=last, noise=found)
        return replace(
            self,
            last=last,
            noise=self.noise * (1.0 + NOISE_STEP if found > self.noise else 1.0 - NOISE_STEP),
        )

    def learn_cpu(
        self, names: Sequence[str], kinds: Sequence[str], rate: Floats, volume: Floats, cpu: Floats
    ) -> LeastMovesMemory:
        """Take reports of brokers that are neither idle nor full: messages/s, bytes/s, the part of
        the cpu in use."""
        if not len(names):
            return self
        r, b = rate / cpu, volume / cpu
        terms = np.stack([r * r, r * b, b * b, r, b, np.ones(len(r))])
        found = dict(self.kinds)
        for kind in dict.fromkeys(kinds):
            mine = np.array([one == kind for one in kinds])
            count = sum(1 for one in self.kind_of.values() if one == kind)
            known = (
                np.array(found[kind].sums) * KEEP ** (mine.sum() / max(count, mine.sum()))
                if kind in found
                else np.zeros(6)
            )
            found[kind] = Kind(tuple((known + terms[:, mine].sum(axis=1)).tolist()))
        byte_cost, misfit = fit(tuple(found.values()))
        own = dict(self.own)
        speeds = np.array([found[kind].speed(byte_cost) for kind in kinds])
        off = np.log((r + byte_cost * b) / speeds)
        for name, one in (
            (name, one)
            for name, one, part in zip(names, off.tolist(), cpu.tolist(), strict=True)
            if part >= BUSY
        ):
            mean, variance, reports = own.get(name, (0.0, 0.0, 0.0))
            share = max(1.0 - KEEP_OWN, 1.0 / (reports + 1.0))
            step = one - mean
            own[name] = (
                mean + share * step,
                (1.0 - share) * (variance + share * step * step),
                min(reports + 1.0, 1e6),
            )
        return replace(
            self,
            byte_cost=byte_cost,
            misfit=misfit,
            kinds=found,
            own=own,
            kind_of={**self.kind_of, **dict(zip(names, kinds, strict=True))},
        )

    def learn_direct(self, bytes_in: Floats, used: Floats) -> LeastMovesMemory:
        """Regress direct memory (bytes) on what comes in (bytes/s)."""
        sums = np.array(
            [len(used), bytes_in.sum(), bytes_in @ bytes_in, used.sum(), bytes_in @ used]
        )
        n, i, ii, d, id_ = known = (
            np.array(self.direct_sums) * KEEP if self.direct_sums else np.zeros(5)
        ) + sums
        spread = ii - i * i / n
        slope = max((id_ - i * d / n) / spread, 0.0) if spread > 1e-6 * ii else 0.0
        return replace(self, direct_sums=tuple(known.tolist()), direct_slope=float(slope))

    def learn_beyond(self, names: Sequence[str], beyond: Floats, now_ms: int) -> LeastMovesMemory:
        """Take what brokers' bandwidths are in use for beside their bundles, (brokers, in and out),
        bytes/s.

        Usage may be older than the rates beside it: Pulsar's brokers measure it once a minute, and
        report what has left meanwhile as in use. So less is believed at once, more by and by.
        """
        found = dict(self.beyond)
        for name, now in zip(names, beyond.tolist(), strict=True):
            *known, when_ms = found.get(name, (*now, now_ms))
            share = 1.0 - 0.5 ** ((now_ms - when_ms) / BELIEVED_MS)
            into, out = (
                old + (share if new > old else 1.0) * (new - old)
                for new, old in zip(now, known, strict=True)
            )
            found[name] = into, out, now_ms
        return replace(self, beyond=found)

    def learn_unserved(self, times_ms: Sequence[int]) -> LeastMovesMemory:
        """Take how long bundles had no owner while they moved: about the median is kept, so that a
        move that hangs changes little."""
        found = max(float(np.median(times_ms)), 1.0)
        known = found if self.unserved_ms is None else self.unserved_ms
        return replace(
            self, unserved_ms=known * (1.0 + UNSERVED_STEP * float(np.sign(found - known)))
        )

    def after_plan(
        self, moves: int, fewest: int, extra_moves_ratio: float, now_ms: int
    ) -> LeastMovesMemory:
        """Take that so many moves are planned, and how many there must be at least.

        What `extra_moves_ratio` allows and the plan does not use is left for fine-tuning. A
        plan that follows another adds nothing to that, because it may continue it. It leaves as many
        moves as it makes, up to AFTER_ANOTHER.
        """
        if not moves:
            return self
        left, between_ms = (
            extra_moves_ratio * fewest - max(moves - fewest, 0),
            now_ms - self.plan_ms if self.plan_ms else 0,
        )
        if self.plan_ms and extra_moves_ratio:
            left = max(left, min(float(moves), AFTER_ANOTHER))
        return replace(
            self,
            fine_tune_budget=max(self.fine_tune_budget, left),
            planned_ms=now_ms,
            plan_ms=now_ms,
            between_ms=between_ms,
        )

    def after_fine_tuning(self, moves: int, now_ms: int) -> LeastMovesMemory:
        """Return the memory after so many fine-tuning moves.

        After none, fine-tuning is considered again after the same time.
        """
        return replace(
            self, fine_tune_budget=max(self.fine_tune_budget - moves, 0.0), planned_ms=now_ms
        )

    def speeds(self, names: Sequence[str], kinds: Sequence[str]) -> Floats:
        """Messages/s that are all of each broker's cpu: its kind's, or its own if that is clearly
        another; else the typical one."""
        of_kind = {name: kind.speed(self.byte_cost) for name, kind in self.kinds.items()}
        typical = float(np.median(list(of_kind.values()))) if of_kind else 1.0
        found = np.array([of_kind.get(kind, typical) for kind in kinds])
        for kind in of_kind:
            known = {
                name: one
                for name, one in self.own.items()
                if one[2] >= ENOUGH and self.kind_of.get(name) == kind
            }
            offsets = np.array([mean for mean, _, _ in known.values()] or [0.0])
            usual = float(np.median(offsets))
            spread = float(np.median(np.abs(offsets - usual)))
            for row in [row for row, one in enumerate(kinds) if one == kind]:
                mean, variance, _ = known.get(names[row], (usual, 0.0, 0.0))
                unlike = abs(mean - usual) > max(NOTABLE, 3.0 * variance**0.5, OUTLIER * spread)
                found[row] *= np.exp(mean if unlike else usual)
        return found


Known = TypeVar("Known")


def _of(known: Mapping[str, Known], names: Sequence[str]) -> dict[str, Known]:
    """What is known of these brokers."""
    return {name: known[name] for name in names if name in known}


def _plain(value: Any) -> Any:
    """With lists in the place of tuples, as JSON has it."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value


def fit(kinds: Sequence[Kind]) -> tuple[float, float]:
    """What a byte costs, in messages, so that brokers of one kind do the same work with the same
    cpu; and the relative error left."""
    rr, rb, bb, r, b, n = np.array([kind.sums for kind in kinds]).T
    if not b.sum() > 0 or not r.sum() > 0:
        return 0.0, 0.0
    unit = (
        r.sum() / b.sum()
    )  # a byte costs that, if bytes and messages explain half of the cpu each
    with np.errstate(divide="ignore"):
        messages, volume = (1.0 - SHARES)[:, None], (SHARES * unit)[:, None]
    squares = messages**2 * rr + 2 * messages * volume * rb + volume**2 * bb
    linear = messages * r + volume * b
    left = (n - linear**2 / np.maximum(squares, 1e-300)).sum(axis=1) / n.sum()
    wanted = n.sum() * np.log(np.maximum(left, 1e-12)) + ((SHARES - 0.5) / SURE) ** 2
    best = int(np.argmin(wanted))
    share = min(SHARES[best], 0.999)
    return float(share * unit / (1.0 - share)), float(np.sqrt(max(left[best], 0.0)))
