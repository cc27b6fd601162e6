"""What load reports leave out, and where they contradict themselves or each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from pydantic.alias_generators import to_camel

from lb_stream.core.least_moves.capacities import (
    ABSURD,
    BYTES_PER_KBIT,
    LIMITED,
    RESOURCES,
    USAGE,
    find_exceeded,
    read_limits,
)
from lb_stream.core.model.followed_profile import (
    FollowedProfile,
    count_versions,
    describe_doubts,
)
from lb_stream.core.model.names import is_system_bundle
from lb_stream.core.model.view import Bools, Brokers
from lb_stream.io.local.report_lines import Report
from lb_stream.io.messages.shown import figure
from lb_stream.query.doubtful_limits import MBIT, MIB

MOST_NAMED = 3
IDLE_CPU = 1e-4
"""A cpu usage below this, of a broker that carries messages, is taken for unknown."""
UNSEEN = 0.5
"""A use of bandwidth below this part of the bundles' traffic is not all of it."""
_UNITS = {
    "bandwidth_in": (MBIT, "Mbit/s"),
    "bandwidth_out": (MBIT, "Mbit/s"),
    "direct_memory": (MIB, "MiB"),
}


@dataclass(frozen=True, slots=True)
class Doubt:
    """What the reports of some brokers don't say, or can't be right about, and what follows.

    `kind`: its name for programs.
    """

    kind: str
    brokers: tuple[str, ...]
    description: str
    consequence: str


class _Figure(msgspec.Struct):
    limit: float | None = None


class _Report(msgspec.Struct):
    """The parts of a report that are looked at as they were written."""

    cpu: _Figure | None = None
    bandwidthIn: _Figure | None = None
    bandwidthOut: _Figure | None = None
    directMemory: _Figure | None = None
    lastStats: dict[str, msgspec.Raw] | None = None
    bundles: list[str] | None = None


_decoder = msgspec.json.Decoder(_Report)


def find_doubts(
    brokers: Brokers,
    believed: Bools,
    last_reports: Mapping[str, Report],
    silent: Mapping[str, str],
    departed: Sequence[str],
) -> tuple[Doubt, ...]:
    """Find all doubts about a cluster.

    `believed`: (brokers, RESOURCES), as `find_believed` returns it. `last_reports`: broker → its
    last report. `silent`: brokers that gave none → why. `departed`: those that have stopped.
    """
    written = {name: _read(report) for name, report in last_reports.items()}
    return (
        *_find_silent(silent, departed),
        *_find_unknown_limits(brokers, written),
        *_find_wrong_limits(brokers, believed),
        *_find_unknown_cpu(brokers),
        *_find_unseen_traffic(brokers),
        *_find_shared_bundles(written),
        *_find_versions(brokers),
    )


def _read(report: Report) -> _Report:
    try:
        return _decoder.decode(report.value)
    except (
        msgspec.DecodeError,
        ValueError,
    ):  # fields of other types, which the decoder of reports has accepted
        return _Report()


def _find_silent(silent: Mapping[str, str], departed: Sequence[str]) -> Iterator[Doubt]:
    if silent:
        why = next(iter(silent.values()))
        yield Doubt(
            "no_report",
            tuple(silent),
            f"{_name(tuple(silent))} gave no load report: {why}",
            "they are in no figure of this page, and the bundles that they serve are not either",
        )
    if departed:
        yield Doubt(
            "stopped",
            tuple(departed),
            f"{_name(departed)} stopped reporting before the end",
            "they count as down from then on",
        )


def _find_unknown_limits(brokers: Brokers, written: Mapping[str, _Report]) -> Iterator[Doubt]:
    """Yield resources of which brokers state no limit: none at all, 0, or a negative number."""
    for name in RESOURCES:
        unknown = np.flatnonzero(brokers.resources[name][1] <= 0).tolist()
        if not unknown:
            continue
        names = tuple(brokers.names[row] for row in unknown)
        stated = Counter(_describe_limit(written.get(broker), name) for broker in names)
        how = ", ".join(f"{text} ({count})" for text, count in stated.most_common())
        yield Doubt(
            "no_limit",
            names,
            f"{_name(names)} state{_s(names)} no limit of {_word(name)}: {how}",
            f"{_word(name)} makes none of them hot; the simulations assume a limit",
        )


def _describe_limit(report: _Report | None, resource: str) -> str:
    stated: _Figure | None = getattr(report, to_camel(resource), None)
    if stated is None or stated.limit is None:
        return "the field is absent"
    return f"the limit is {stated.limit:g}"


def _find_wrong_limits(brokers: Brokers, believed: Bools) -> Iterator[Doubt]:
    """Yield limits that are stated and can't be right."""
    limits, exceeded = read_limits(brokers), find_exceeded(brokers)
    for at, column in enumerate(LIMITED):
        name = RESOURCES[column]
        unit, text = _UNITS[name]
        doubted = (limits[:, at] > 0) & ~believed[:, column]
        unused = np.zeros_like(doubted)
        if name == "direct_memory":
            unused = doubted & ~exceeded[:, at] & (brokers.resources[name][USAGE] <= 0)
        cases = {
            "exceeded": (doubted & exceeded[:, at], "they carry more"),
            "implausible": (
                doubted & ~exceeded[:, at] & ~unused,
                "others with that figure carry more, or hardly any bundle fits into it",
            ),
            "no_use": (unused, "no use of it is reported"),
        }
        for kind, (rows, why) in cases.items():
            names = tuple(brokers.names[row] for row in np.flatnonzero(rows).tolist())
            if not names:
                continue
            figures = sorted({f"{limit / unit:.4g}" for limit in limits[rows, at].tolist()})
            yield Doubt(
                kind,
                names,
                f"{_name(names)} state{_s(names)} {' or '.join(figures[:MOST_NAMED])} {text} as "
                f"limit of {_word(name)}: {why}",
                "the limit is not believed: it makes none of them hot. State the true one in "
                "broker_capacities, or in Pulsar by loadBalancerOverrideBrokerNicSpeedGbps"
                if name != "direct_memory"
                else "the limit is not believed: it makes none of them hot",
            )


def _find_unknown_cpu(brokers: Brokers) -> Iterator[Doubt]:
    used, limit = brokers.resources["cpu"]
    busy = brokers.latest.rate + brokers.latest.throughput > 0
    has_limit = limit > 0
    cases = {
        "cpu_unknown": (
            busy & has_limit & (used < IDLE_CPU * limit),
            "carry messages and report no use of cpu",
            "cpu makes none of them hot. A broker that has just started reports 0 once",
        ),
        "cpu_exceeded": (
            has_limit & (used > limit),
            "report more cpu than their limit",
            "a container's quota, or the number of processors that Java sees, may be wrong"
            f"; above {ABSURD:g} times the limit the figure is not believed",
        ),
    }
    for kind, (rows, why, consequence) in cases.items():
        names = tuple(brokers.names[row] for row in np.flatnonzero(rows).tolist())
        if names:
            peak = figure(float((used[rows] / limit[rows]).max()), "ratio")
            yield Doubt(kind, names, f"{_name(names)} {why} (at most {peak})", consequence)


def _find_unseen_traffic(brokers: Brokers) -> Iterator[Doubt]:
    """Yield brokers whose network, by its stated use, carries less than their bundles do."""
    carried = brokers.latest.throughput_in, brokers.latest.throughput_out
    for name, traffic in zip(("bandwidth_in", "bandwidth_out"), carried, strict=True):
        used, limit = brokers.resources[name]
        unseen = (traffic > 0) & (limit > 0) & (used * BYTES_PER_KBIT < UNSEEN * traffic)
        rows = np.flatnonzero(unseen).tolist()
        names = tuple(brokers.names[row] for row in rows)
        if names:
            yield Doubt(
                "traffic_unseen",
                names,
                f"{_name(names)} report{_s(names)} less than half of what {_its(names)} bundles "
                f"carry as use of {_word(name)}",
                "the traffic passes an interface that Pulsar does not measure "
                f"(loadBalancerOverrideBrokerNics), so {_word(name)} says little about them",
            )


def _find_shared_bundles(written: Mapping[str, _Report]) -> Iterator[Doubt]:
    """Yield bundles that the last reports of several brokers name."""
    owners: dict[str, list[str]] = {}
    for broker, report in written.items():
        for bundle in {*(report.lastStats or ()), *(report.bundles or ())}:
            owners.setdefault(bundle, []).append(broker)
    shared = {
        bundle: names
        for bundle, names in owners.items()
        if len(names) > 1 and not is_system_bundle(bundle)
    }
    if shared:
        names = tuple(sorted({name for own in shared.values() for name in own}))
        bundles = sorted(shared)
        yield Doubt(
            "two_owners",
            names,
            f"{bundles[0]} is named by {' and '.join(sorted(shared[bundles[0]]))}"
            + (f", and {len(bundles) - 1} more by several brokers" if bundles[1:] else ""),
            "the later report counts. Reports are up to a minute old: bundles that have just moved "
            "are named twice",
        )


def _find_versions(brokers: Brokers) -> Iterator[Doubt]:
    followed = FollowedProfile(versions=count_versions(brokers.versions))
    for text in describe_doubts(followed, None):
        yield Doubt("versions", (), text, "defaults of settings may be another release's")


def _name(names: Sequence[str]) -> str:
    """Name some brokers, or their number and the first of them."""
    if len(names) <= MOST_NAMED:
        return " and ".join(names)
    return f"{len(names)} brokers ({', '.join(names[:MOST_NAMED])} …)"


def _s(names: Sequence[str]) -> str:
    return "s" if len(names) == 1 else ""


def _its(names: Sequence[str]) -> str:
    return "its" if len(names) == 1 else "their"


def _word(resource: str) -> str:
    return resource.replace("_", " ")
