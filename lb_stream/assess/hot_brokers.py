"""The hottest brokers, and why each of them is hot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lb_stream.core.least_moves.capacities import RESOURCES, fullness, usage_ratio
from lb_stream.core.model.names import namespace_codes
from lb_stream.core.model.view import Bools, ClusterView, Floats, Rows

MOST_BROKERS = 10
MOST_BUNDLES = 3
LARGE = 0.5
"""A bundle with this part of its broker's load is the reason why the broker is hot."""
MANY = 1.3
"""A broker with this many times as much as the mean has much of it."""


@dataclass(frozen=True, slots=True)
class HotBroker:
    """One of the hottest brokers. `usage`: of its scarcest resource, None: no limit is known."""

    broker: str
    usage: float | None
    resource: str
    bytes_per_s: float
    over_mean: float  # usage ÷ mean usage; without known limits traffic ÷ mean traffic
    bundles: int
    heaviest: tuple[tuple[str, float], ...]  # bundles, and their parts of the broker's load
    why: str


def find_hot_brokers(view: ClusterView, believed: Bools) -> tuple[HotBroker, ...]:
    """Return the live brokers above the mean, at most MOST_BROKERS, the hottest first.

    `believed`: (brokers, RESOURCES), the limits that count.
    """
    brokers, bundles = view.brokers, view.bundles
    usage = fullness(brokers, believed)
    is_known = bool((usage > 0).any())
    heat = usage if is_known else brokers.latest.throughput
    mean = float(heat[brokers.alive].mean()) if brokers.alive.any() else 0.0
    if mean <= 0:
        return ()
    load: Floats = _combine(bundles.latest.rate, bundles.latest.throughput)
    codes, namespaces = namespace_codes(bundles.names)
    order = np.argsort(-np.where(brokers.alive, heat, -1.0), kind="stable")
    known_usages = np.where(
        believed, np.column_stack([usage_ratio(brokers, name) for name in RESOURCES]), -1.0
    )
    found = []
    above = int(np.count_nonzero(brokers.alive & (heat > mean)))
    for row in order[: min(MOST_BROKERS, above)].tolist():
        own = np.flatnonzero((bundles.owner == row) & ~bundles.system)
        ranked = own[np.argsort(-load[own], kind="stable")]
        total = float(load[own].sum())
        parts = tuple(
            (bundles.name(at), float(load[at]) / total)
            for at in ranked[:MOST_BUNDLES].tolist()
            if total > 0
        )
        scarce = int(np.argmax(known_usages[row]))
        by_namespace = np.bincount(codes[own], load[own], len(namespaces)).astype(np.float64)
        why = _explain(
            view, row, own, parts, RESOURCES[scarce] if is_known else "", by_namespace, namespaces
        )
        found.append(
            HotBroker(
                brokers.names[row],
                float(usage[row]) if is_known and believed[row].any() else None,
                RESOURCES[scarce].replace("_", " ") if is_known else "traffic",
                float(brokers.latest.throughput[row]),
                float(heat[row]) / mean,
                len(own),
                parts,
                why,
            )
        )
    return tuple(found)


def _combine(rate: Floats, throughput: Floats) -> Floats:
    """Return loads of which messages and bytes are half each, over all bundles."""
    parts = [column / column.sum() for column in (rate, throughput) if column.sum() > 0]
    total: Floats = sum(parts) / len(parts) if parts else np.zeros(len(rate))
    return total


def _explain(
    view: ClusterView,
    row: int,
    own: Rows,
    parts: tuple[tuple[str, float], ...],
    scarce: str,
    by_namespace: Floats,
    namespaces: list[str],
) -> str:
    """Say why a broker is hot, as far as its figures show it."""
    reasons = list(_explain_load(view, row, own, parts))
    if scarce == "cpu" and (times := _cpu_beyond_load(view, row)) > MANY:
        reasons.append(
            f"its cpu is {times:.1f} times as high for its load as the median broker's: a slower "
            "machine, or something else runs there"
        )
    if len(own) > 1 and by_namespace.sum() > 0:
        top = int(np.argmax(by_namespace))
        share = float(by_namespace[top] / by_namespace.sum())
        if share >= LARGE and not (parts and parts[0][1] >= LARGE):
            reasons.append(f"{share:.0%} of its load is {namespaces[top]}'s")
    return "; ".join(reasons) or "nothing stands out: it is near the mean in all of this"


def _explain_load(
    view: ClusterView, row: int, own: Rows, parts: tuple[tuple[str, float], ...]
) -> Iterator[str]:
    """Yield what is special about the bundles of a broker."""
    alive, served = view.brokers.alive, view.bundles.owner[~view.bundles.system]
    counts = np.bincount(served[served >= 0], minlength=len(view.brokers))
    mean = float(counts[alive].mean())
    if parts and parts[0][1] >= LARGE and len(own) > 1:
        yield f"one bundle is {parts[0][1]:.0%} of its load"
    elif len(own) > MOST_BUNDLES and sum(part for _, part in parts) >= LARGE:
        yield f"{len(parts)} bundles are {sum(part for _, part in parts):.0%} of its load"
    if len(own) > MANY * mean:
        yield f"it serves {len(own)} bundles, a broker serves {mean:.0f} on average"
    traffic = view.bundles.latest.throughput
    per_bundle = float(traffic[own].mean()) if len(own) else 0.0
    usual = float(traffic[view.bundles.owner >= 0].mean()) if (served >= 0).any() else 0.0
    if usual > 0 and per_bundle > MANY * usual:
        yield (
            f"its bundles carry {describe_traffic(per_bundle)} each, all bundles "
            f"{describe_traffic(usual)} on average"
        )


def _cpu_beyond_load(view: ClusterView, row: int) -> float:
    """Return a broker's cpu for its load, over that of the median broker; 1: not known."""
    brokers = view.brokers
    used = usage_ratio(brokers, "cpu")
    load = _combine(brokers.latest.rate, brokers.latest.throughput)
    rows = np.flatnonzero(brokers.alive & (load > 0) & (used > 0))
    if row not in rows or len(rows) <= 2:
        return 1.0
    costs = used[rows] / load[rows]
    return float(used[row] / load[row] / np.median(costs))


def describe_traffic(bytes_per_s: float) -> str:
    """Return a throughput as a text, in the unit that fits it."""
    unit, name = (1e6, "MB/s") if bytes_per_s >= 1e5 else (1e3, "kB/s")
    return f"{bytes_per_s / unit:.3g} {name}"
