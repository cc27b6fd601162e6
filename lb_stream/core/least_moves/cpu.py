"""Each broker's cpu: how much load it could carry now, and what no bundle causes.

A broker's cpu usage is `slope` · (the usage that its load causes at a broker of its kind) + `base`.
For a broker as its kind these are 1 and 0. A slow broker has a higher slope, a busy host a base:
background that another process causes. Reports of one moment show only the sum, so a broker whose
usage jumps gets a likely pair, and later reports with more or fewer bundles settle it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lb_stream.core.least_moves.memory import (
    ENOUGH,
    Host,
    Kind,
    LeastMovesMemory,
)
from lb_stream.core.model.view import Bools, Floats

FULL_CPU = 0.97
"""At this reported usage a broker counts as full, whatever the noise of its report."""
BUSY = 0.2
"""A broker's own speed is learned above this cpu usage. Below it, most of the cpu is used without
traffic."""
IDLE, FULL = 0.02, 0.99
"""The speed of a kind is learned from brokers whose cpu usage is between these."""
IDLE_LOAD = 0.1
"""Usage beyond a load below this is background: so little load shows no speed."""
KEEP = 0.98
"""Weight of the known costs against one new report of every broker."""
KEEP_OWN = 0.9
"""Weight of a broker's known figures against one new report of it."""
NOTABLE = 0.1
"""A broker has its own speed only if that differs by this from others of its kind."""
OUTLIER = 4.5
"""A broker has its own speed only if that is this many median deviations from the median of its
kind, which are three standard deviations."""
JUMP = float(np.log(1.3))
"""A usage that differs from the expected one by less than this factor is no jump."""
RARE_JUMP = 4.5
"""A jump differs by this many standard errors of reported usage. Errors last for minutes, so many
reports in a row say little more than one."""
NOTICED = 0.08
"""A difference of usage below this is no jump: what a broker does without traffic."""
REPORTS_TO_JUMP, REPORTS_TO_SPEED_UP = 2, 5
"""A jump counts once it is in this number of reports in a row; at a full broker in one report. A
broker that seems faster than its kind needs more of them, as it would be given load."""
LATE_MS, MOSTLY_NEW_MS = 150_000, 90_000
"""For LATE_MS after a change of a broker's load its usage may be that of before; MOSTLY_NEW_MS after
it, it is mostly that of the new load. Pulsar's brokers measure usage once a minute, as an average
over the minute."""
CHANGED = 0.15
"""A change of load by this part may be followed by late usage."""
WARM_UP_MS = 180_000
"""For this time after its start, a broker's usage says nothing: its code is being compiled."""
SLOWNESS = 1.0 / 3.0
"""The part of a rise of usage (of its logarithm) that counts as slowness, before other loads show
how much is. It errs little, whichever it is: background that is taken for slowness leaves a broker
too full, slowness that is taken for background takes more moves than needed."""
FLATTEST, STEEPEST = 0.7, 1.15
"""Two reports are of a line, with the same slope and base, if its slope is at least that of the
kind, and at most that without background: with these factors, as reports have noise."""
LEAST_SLOPE = 0.01
VARIED = 0.04
"""Relative variation of a broker's load that is no more than noise, and shows no slope."""
USAGE_NOISE, SLOPE_DOUBT = 0.03, 0.5
"""Assumed relative error of one reported usage, and of the slope that a jump suggests."""
ASSUMED_NOISE, ASSUMED_FROM = 0.08, 20.0
"""Assumed noise of reported usage, and the number of reports that it stands for."""
CROWD, NARROW = 1.0 / 3.0, 2.0
"""Where a kind is new, its speed is that of the closest CROWD of its brokers. Groups of at most
NARROW times the least width (and a half of NOTABLE) are as good; the fastest of them is chosen, as
most that a host may do makes a broker slower."""
MOST = 2.0 / 3.0
"""If more than this part of a kind's brokers jump, the kind has changed, not its brokers."""
DIGITS = 8
"""Decimals of the figures that are remembered."""
SHARES = np.linspace(0.0, 1.0, 41)
"""Parts of the cpu that are tried for bytes; messages use the rest."""
SURE = 0.1
"""Standard error of the assumption that bytes use half of the cpu. Reports replace the assumption
once they clearly show another part."""
NEVER_EXACT = 2.0
"""Reports with ASSUMED_NOISE that are added when the cost of bytes is learned: a few reports that a
cost explains by chance prove nothing."""
INDEPENDENT = 4.0
"""The most reports of a broker that count when the cost of bytes is learned, as errors of reported
usage last for minutes."""


class CpuReports(NamedTuple):
    """New reports, with a row for each broker."""

    names: Sequence[str]
    kinds: Sequence[str]
    rate: Floats  # messages/s
    volume: Floats  # bytes/s
    usage: Floats  # of the cpu, a ratio
    warming: Bools  # it has just started
    loaded: Bools  # it carries a notable load

    def take(self, rows: Bools) -> CpuReports:
        """Return these rows."""
        at = np.flatnonzero(rows).tolist()
        return CpuReports(
            [self.names[row] for row in at],
            [self.kinds[row] for row in at],
            self.rate[rows],
            self.volume[rows],
            self.usage[rows],
            self.warming[rows],
            self.loaded[rows],
        )


@dataclass(frozen=True, slots=True)
class CpuModel:
    """What is known of brokers' cpu, with a row for each."""

    speed: Floats  # messages/s that use all of the cpu at a broker of its kind
    slope: Floats  # its usage by load ÷ that of its kind
    base: Floats  # usage that no bundle causes, a ratio
    own: Bools  # it is unlike its kind since a jump
    slowed: Bools  # that jump is recent, and was upwards

    @property
    def capacity(self) -> Floats:
        """Return the messages/s that would use all of each broker's cpu, without background."""
        found: Floats = self.speed / self.slope
        return found

    def expected(self, load: Floats) -> Floats:
        """Return the usage of brokers with this load in messages/s, bytes included."""
        found: Floats = self.slope * load / self.speed + self.base
        return found


def model_cpu(memory: LeastMovesMemory, names: Sequence[str], kinds: Sequence[str]) -> CpuModel:
    """Return what is known of these brokers' cpu.

    A broker of an unknown kind has the median speed of all kinds.
    """
    speed = _speeds_of_kinds(memory, kinds, memory.byte_cost)
    hosts = _columns(memory, names)
    unlike = _slowly_learned(memory)
    slope = np.array([unlike.get(name, 1.0) for name in names])
    base = np.zeros(len(names))
    own = hosts.slope > 0
    slope[own], base[own] = _fitted(hosts, own)
    slowed = own & (hosts.reports < ENOUGH) & (hosts.used > hosts.load + NOTICED)
    return CpuModel(speed, slope, base, own, slowed)


def learn_cpu(memory: LeastMovesMemory, reports: CpuReports, now_ms: int) -> LeastMovesMemory:
    """Return the memory after reports: costs, speeds of kinds, and each broker's own figures."""
    if not len(reports.names):
        return memory
    memory = _learn_kinds(memory, reports)
    if not memory.kinds:
        return memory
    return _forget_changed_kinds(_learn_hosts(memory, reports.take(~reports.warming), now_ms))


def _learn_kinds(memory: LeastMovesMemory, reports: CpuReports) -> LeastMovesMemory:
    """Return the memory with the costs of messages and bytes, and the speed of each kind.

    Brokers that are idle, full or unlike their kind don't count, by this report or earlier ones,
    and neither do those that carry hardly anything: another process may use their cpu. But full
    brokers of a new kind count if they carry more than others could.
    """
    known = np.array([kind in memory.kinds for kind in reports.kinds])
    usable = (reports.usage > IDLE) & (reports.rate > 0) & reports.loaded
    usable &= (reports.usage < FULL) | (~known & _carry_more(memory, reports))
    usable &= ~(reports.warming & known)
    usable &= ~_stand_out(memory, reports)
    reports = reports.take(usable)
    if not len(reports.names):
        return memory

    # The costs of messages and bytes, by the reports of each kind.
    r, b = reports.rate / reports.usage, reports.volume / reports.usage
    terms = np.stack([r * r, r * b, b * b, r, b, np.ones(len(r))])
    byte_cost = memory.byte_cost or float(r.sum() / max(b.sum(), 1e-300))
    found = dict(memory.kinds)
    left_out = np.zeros(len(r), np.bool_)
    known_kinds = Counter(memory.kind_of.values())
    for kind, each in _rows_of_kinds(reports.kinds).items():
        is_new = kind not in found
        rows = each[_crowd(np.log(r[each] + byte_cost * b[each]))] if is_new else each
        sums = terms[:, rows].sum(axis=1)
        left_out[np.setdiff1d(each, rows)] = True
        if not is_new:
            keep = KEEP ** (len(rows) / max(known_kinds[kind], len(rows)))
            sums = np.array(found[kind].sums) * keep + sums
        found[kind] = Kind(tuple(sums.tolist()))
    if left_out.any():
        # A broker outside the crowd may only have other messages than its kind's others.
        rest = np.flatnonzero(left_out & ~_stand_out(_fit(memory, found), reports))
        for row in rest.tolist():
            sums = np.array(found[reports.kinds[row]].sums) + terms[:, row]
            found[reports.kinds[row]] = Kind(tuple(sums.tolist()))
    return replace(
        _fit(memory, found),
        kind_of={**memory.kind_of, **dict(zip(reports.names, reports.kinds, strict=True))},
    )


def _fit(memory: LeastMovesMemory, kinds: dict[str, Kind]) -> LeastMovesMemory:
    """Return the memory with these sums of kinds, and the costs that they show."""
    fit = fit_byte_cost(tuple(kinds.values()), len(memory.kind_of))
    return replace(memory, byte_cost=fit.cost, misfit=fit.misfit, kinds=kinds)


def _stand_out(memory: LeastMovesMemory, reports: CpuReports) -> Bools:
    """Return which brokers of known kinds are, or now seem to be, unlike their kind."""
    model = model_cpu(memory, reports.names, reports.kinds)
    least, most = (model.expected(load * model.speed) for load in _possible_loads(memory, reports))
    off = _log(reports.usage, most, reports.usage > most)
    off -= _log(reports.usage, least, reports.usage < least)
    known = np.array([kind in memory.kinds for kind in reports.kinds])
    odd = np.array([name in memory.hosts and memory.hosts[name].odd != 0 for name in reports.names])
    found: Bools = known & (model.own | odd | (off > jump_limit(memory)))
    return found


def _carry_more(memory: LeastMovesMemory, reports: CpuReports) -> Bools:
    """Return which brokers carry more than what is known says that they can, whatever bytes cost."""
    if not memory.kinds:
        return np.zeros(len(reports.names), np.bool_)
    found: Bools = _possible_loads(memory, reports)[0] > 1.0
    return found


def _possible_loads(memory: LeastMovesMemory, reports: CpuReports) -> tuple[Floats, Floats]:
    """Return the least and the greatest usage that the rates may cause at brokers of their kinds.

    How much of it bytes cause, reports show only where brokers' messages differ. So usage that a
    possible cost of bytes explains is no sign of a slow, fast or busy broker.
    """
    costs = np.zeros(1)
    if memory.kinds:
        costs = fit_byte_cost(tuple(memory.kinds.values()), len(memory.kind_of)).possible
    speeds = np.stack([_speeds_of_kinds(memory, reports.kinds, cost) for cost in costs.tolist()])
    loads = (reports.rate + costs[:, None] * reports.volume) / speeds
    return loads.min(axis=0), loads.max(axis=0)


def _crowd(speeds: Floats) -> Bools:
    """Return which brokers of a new kind show its speed: the closest ones, and those near them.

    `speeds`: logarithms.
    """
    ordered = np.sort(speeds)
    size = max(int(np.ceil(CROWD * len(ordered))), min(2, len(ordered)))
    width = ordered[size - 1 :] - ordered[: len(ordered) - size + 1]
    last = int(np.flatnonzero(width <= NARROW * width.min() + NOTABLE / 2)[-1])
    middle = float(np.median(ordered[last : last + size]))
    near: Bools = np.abs(speeds - middle) <= max(NOTABLE, 2.0 * float(width[last]))
    return near


class _Hosts(NamedTuple):
    """The columns of hosts, with a row for each broker."""

    load: Floats
    used: Floats
    spread: Floats
    joint: Floats
    noise: Floats
    reports: Floats
    slope: Floats
    odd: Floats
    last: Floats
    was: Floats
    was_ms: Floats
    usage: Floats


def _columns(memory: LeastMovesMemory, names: Sequence[str]) -> _Hosts:
    """Return the figures of these brokers; those of a broker that is not known are 0."""
    nothing = Host()
    rows = np.array([memory.hosts.get(name, nothing) for name in names], np.float64)
    return _Hosts(*rows.reshape(len(names), len(Host._fields)).T)


def _level(hosts: _Hosts) -> Floats:
    """Return the logarithm of each broker's usage ÷ that of its kind with the same load."""
    known = (hosts.load > 0) & (hosts.used > 0)
    level: Floats = np.log(np.divide(hosts.used, hosts.load, out=np.ones(len(known)), where=known))
    return level


def _slowly_learned(memory: LeastMovesMemory) -> dict[str, float]:
    """Map brokers that have not jumped, but are unlike their kind for long, to their slope."""
    names = [name for name, host in memory.hosts.items() if host.reports >= ENOUGH]
    hosts = _columns(memory, names)
    level, unlike = _level(hosts), dict[str, float]()
    for rows in _rows_of_kinds([memory.kind_of.get(name, "") for name in names]).values():
        known = rows[hosts.slope[rows] == 0]
        if len(known):
            off = np.abs(level[known] - np.median(level[known]))
            least = max(NOTABLE, OUTLIER * float(np.median(off)))
            apart = known[off > np.maximum(least, 3.0 * hosts.noise[known] ** 0.5)]
            unlike |= {names[row]: float(np.exp(level[row])) for row in apart.tolist()}
    return unlike


def _fitted(hosts: _Hosts, rows: Bools) -> tuple[Floats, Floats]:
    """Return slope and base of brokers that have jumped.

    The slope is the one that the jump suggests, until reports with other loads show another. It is
    between that of the kind (all else is background) and that without background.
    """
    load, used, spread, joint, guess = (
        column[rows] for column in (hosts.load, hosts.used, hosts.spread, hosts.joint, hosts.slope)
    )
    # The weight of the guess against the variation of the load.
    reports = np.maximum(hosts.reports[rows], 1.0)
    prior = (VARIED * load) ** 2 + (USAGE_NOISE * used / SLOPE_DOUBT) ** 2 / reports
    slope = np.divide(joint + prior * guess, spread + prior, out=guess.copy(), where=prior > 0)
    whole = np.divide(used, load, out=guess.copy(), where=load > 0)
    slope = np.where(whole > 1.0, np.clip(slope, 1.0, np.maximum(whole, 1.0)), whole)
    slope = np.maximum(slope, LEAST_SLOPE)
    return slope, np.maximum(used - slope * load, 0.0)


def _learn_hosts(memory: LeastMovesMemory, reports: CpuReports, now_ms: int) -> LeastMovesMemory:
    """Return the memory with each broker's own figures after its new report."""
    if not len(reports.names):
        return memory
    model = model_cpu(memory, reports.names, reports.kinds)
    hosts = _columns(memory, reports.names)
    load = (reports.rate + memory.byte_cost * reports.volume) / model.speed
    usage = reports.usage

    # Usage may be that of the load before its last change.
    changed = (hosts.reports > 0) & (
        np.abs(load - hosts.last) > CHANGED * np.maximum(load, hosts.last)
    )
    was = np.where(changed, hosts.last, hosts.was)
    was_ms = np.where(changed, now_ms, hosts.was_ms)
    late = (was_ms > 0) & (now_ms - was_ms < LATE_MS)
    least, most = _possible_loads(memory, reports)
    lowest = model.expected(np.where(late, np.minimum(least, was), least) * model.speed)
    highest = model.expected(np.where(late, np.maximum(most, was), most) * model.speed)
    off = _log(usage, highest, usage > highest) + _log(usage, lowest, usage < lowest)
    beyond = np.maximum(usage - highest, 0.0) + np.maximum(lowest - usage, 0.0)

    # Reports in a row that are too far off in one direction. Usage that stays the same to the last
    # digit while load changes has been measured once: it is no second sign that a broker, which
    # has much room, is unlike its kind.
    limit = jump_limit(memory)
    sign = np.sign(off) * ((np.abs(off) > limit) & (beyond > NOTICED))
    odd = np.where(sign == 0, 0.0, np.where(sign == np.sign(hosts.odd), hosts.odd, 0.0) + sign)
    is_same = (np.round(usage, DIGITS) == hosts.usage) & (np.round(load, DIGITS) != hosts.last)
    odd = np.where(is_same & (usage < BUSY), hosts.odd, odd)
    level = _log(usage, load, load > 0)
    faster = (sign < 0) & (level < -limit)
    enough = np.where(faster, REPORTS_TO_SPEED_UP, REPORTS_TO_JUMP)
    jumped = (np.abs(odd) >= enough) | ((sign > 0) & (usage >= FULL_CPU))

    # A jump begins anew. Other reports add to what is known, except where usage may be late.
    near = (np.abs(level) < max(NOTABLE, limit / 2)) | (np.abs(usage - load) < NOTICED)
    moved = jumped & (hosts.slope > 0) & _is_line(hosts, load, usage)
    as_kind = jumped & near & ~moved
    fresh = (jumped & ~moved) | (hosts.reports == 0)
    new = now_ms - was_ms >= MOSTLY_NEW_MS
    counts = fresh | moved | ((sign == 0) & np.where(model.own, new, usage >= BUSY))
    folded = _fold(hosts, load, usage, fresh, moved)
    slope = np.where(jumped & ~moved, _guess(load, usage), hosts.slope)
    slope = np.where(as_kind | _is_settled(folded, slope), 0.0, slope)
    known = [np.where(counts, new, old) for new, old in zip(folded, hosts[:6], strict=True)]
    result = [*known, slope, np.where(jumped, 0.0, odd), load, was, was_ms, usage]
    rows = np.round(np.stack(result, axis=1), DIGITS).tolist()
    found = {name: Host(*row) for name, row in zip(reports.names, rows, strict=True)}
    return replace(
        memory,
        hosts={**memory.hosts, **found},
        kind_of={**memory.kind_of, **dict(zip(reports.names, reports.kinds, strict=True))},
    )


def _log(value: Floats, other: Floats, where: Bools) -> Floats:
    """Return the logarithm of value ÷ other, both at least 0.001; 0 elsewhere than `where`."""
    found: Floats = np.where(where, np.log(np.maximum(value, 1e-3) / np.maximum(other, 1e-3)), 0.0)
    return found


def jump_limit(memory: LeastMovesMemory) -> float:
    """Return the least difference, as a logarithm, that is no noise of reported usage."""
    count = sum(kind.sums[-1] for kind in memory.kinds.values())
    squares = count * (memory.misfit or 0.0) ** 2 + ASSUMED_FROM * ASSUMED_NOISE**2
    noise: float = (squares / (count + ASSUMED_FROM)) ** 0.5
    return max(JUMP, RARE_JUMP * noise)


def _guess(load: Floats, usage: Floats) -> Floats:
    """Return the slope that a jump to this usage suggests.

    What a full broker carries is what it can carry. Else SLOWNESS of the rise counts as slowness,
    and the rest as background. With hardly any load all of it is background.
    """
    whole = np.divide(usage, load, out=np.ones(len(load)), where=load > 0)
    part = np.where(usage >= FULL_CPU, 1.0, np.where(load < IDLE_LOAD, 0.0, SLOWNESS))
    return np.maximum(np.where(whole > 1.0, whole**part, whole), LEAST_SLOPE)


def _is_line(hosts: _Hosts, load: Floats, usage: Floats) -> Bools:
    """Return whether another load explains a new usage: with a slope that was possible before."""
    apart = hosts.load - load
    steep = np.divide(hosts.used - usage, apart, out=np.zeros(len(load)), where=apart != 0)
    whole = np.divide(hosts.used, hosts.load, out=np.zeros(len(load)), where=hosts.load > 0)
    found: Bools = (np.abs(apart) > CHANGED * hosts.load) & (steep >= FLATTEST)
    return found & (steep <= STEEPEST * whole)


def _fold(hosts: _Hosts, load: Floats, usage: Floats, fresh: Bools, moved: Bools) -> list[Floats]:
    """Return the first six columns of the hosts after reports. `fresh`: they begin anew."""
    reports = np.where(fresh, 0.0, hosts.reports) + 1.0
    weight = np.where(moved, 0.5, np.maximum(1.0 - KEEP_OWN, 1.0 / reports))
    by_load, by_usage = load - hosts.load, usage - hosts.used
    off = _log(usage, load, load > 0) - np.where(fresh, 0.0, _level(hosts))
    kept = np.where(fresh, 0.0, 1.0 - weight)
    return [
        hosts.load + weight * by_load,
        hosts.used + weight * by_usage,
        kept * (hosts.spread + weight * by_load**2),
        kept * (hosts.joint + weight * by_load * by_usage),
        kept * (hosts.noise + weight * off**2),
        np.minimum(reports, 1e6),
    ]


def _is_settled(folded: list[Floats], slope: Floats) -> Bools:
    """Return which brokers that have jumped are as their kind again, by all that is known."""
    load, used, *_, reports = folded
    found: Bools = (slope > 0) & (reports >= ENOUGH)
    return found & (np.abs(_log(used, load, load > 0)) < NOTABLE)


def _forget_changed_kinds(memory: LeastMovesMemory) -> LeastMovesMemory:
    """Return the memory without kinds most of whose brokers have jumped: the kind has changed."""
    brokers, jumped = Counter(memory.kind_of.values()), Counter[str]()
    for name, host in memory.hosts.items():
        if host.slope > 0:
            jumped[memory.kind_of.get(name, "")] += 1
    changed = {kind for kind, count in jumped.items() if count > max(MOST * brokers[kind], 1)}
    if not changed:
        return memory
    gone = {name for name, kind in memory.kind_of.items() if kind in changed}
    return replace(
        memory,
        kinds={name: kind for name, kind in memory.kinds.items() if name not in changed},
        hosts={name: host for name, host in memory.hosts.items() if name not in gone},
    )


def _speeds_of_kinds(memory: LeastMovesMemory, kinds: Sequence[str], byte_cost: float) -> Floats:
    """Return the messages/s that use all of the cpu of brokers of these kinds."""
    of_kind = {name: kind.speed(byte_cost) for name, kind in memory.kinds.items()}
    typical = float(np.median(list(of_kind.values()))) if of_kind else 1.0
    return np.array([of_kind.get(kind, typical) for kind in kinds])


def _rows_of_kinds(kinds: Sequence[str]) -> dict[str, NDArray[np.intp]]:
    """Return kind → its rows."""
    rows = dict[str, list[int]]()
    for row, kind in enumerate(kinds):
        rows.setdefault(kind, []).append(row)
    return {kind: np.array(found, np.intp) for kind, found in rows.items()}


class ByteCost(NamedTuple):
    """The cost of a byte, in messages."""

    cost: float  # the likeliest
    misfit: float  # relative error of cpu usages with it
    possible: Floats  # all costs that reports leave possible, ascending


def fit_byte_cost(kinds: Sequence[Kind], brokers: int) -> ByteCost:
    """Return the cost with which brokers of a kind do the same work with the same cpu usage.

    `brokers`: the number of brokers that had been learned from before, of all kinds.
    """
    rr, rb, bb, r, b, n = np.array([kind.sums for kind in kinds]).T
    if not b.sum() > 0 or not r.sum() > 0:
        return ByteCost(0.0, 0.0, np.zeros(1))
    unit = r.sum() / b.sum()  # the cost if bytes and messages explain half of the cpu each

    # The squared error for each part of the cpu that bytes may use.
    messages: NDArray[np.float64] = (1.0 - SHARES)[:, None]
    volume: NDArray[np.float64] = (SHARES * unit)[:, None]
    squares = messages**2 * rr + 2 * messages * volume * rb + volume**2 * bb
    linear = messages * r + volume * b
    left = (n - linear**2 / np.maximum(squares, 1e-300)).sum(axis=1)

    # The likeliest part, with the assumption that bytes use half of the cpu.
    count = min(n.sum(), INDEPENDENT * brokers) if brokers else n.sum()
    error = (np.maximum(left, 0.0) + NEVER_EXACT * ASSUMED_NOISE**2) / (n.sum() + NEVER_EXACT)
    wanted = (count + NEVER_EXACT) * np.log(error) + ((SHARES - 0.5) / SURE) ** 2
    best = int(np.argmin(wanted))
    part = np.minimum(SHARES, 0.999)
    costs: Floats = part * unit / (1.0 - part)
    possible: Floats = costs[wanted <= wanted[best] + RARE_JUMP**2]
    misfit = float(np.sqrt(max(left[best], 0.0) / n.sum()))
    return ByteCost(float(costs[best]), misfit, possible)
