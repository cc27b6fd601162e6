"""A cluster as it would be with bundles split: on it a plan shows what splits are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lb_stream.core.model.names import bundle_name, parse_bundle
from lb_stream.core.model.topic_shares import NO_TOPIC_SHARES
from lb_stream.core.model.view import Bundles, ClusterView, Floats, Ints, Rates, Rows
from lb_stream.core.shedding.base import Choosable, Config, Disruption, Remembered, ShedContext

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TrialSplit:
    """A bundle and the children that a split would make of it."""

    bundle: int  # row
    boundaries: tuple[int, ...]  # ascending, strictly inside of its range
    shares: tuple[float, ...]  # of the bundle's load: each child's, in the order of their ranges


def divide(
    context: ShedContext[Config, Remembered], divisions: Sequence[TrialSplit]
) -> ShedContext[Config, Remembered]:
    """Return the context with these bundles split; their children are at the same brokers.

    A child has its share of the loads, topics and clients. O(bundles).
    """
    # Old rows by new row, and the part of the old row's load that each has.
    count = len(context.view.bundles)
    pieces = np.ones(count, np.intp)
    for division in divisions:
        pieces[division.bundle] = len(division.shares)
    rows = np.repeat(np.arange(count), pieces)
    first = np.cumsum(pieces) - pieces
    part = np.ones(len(rows))
    for division in divisions:
        at = int(first[division.bundle])
        part[at : at + len(division.shares)] = division.shares

    # The columns by new row.
    names = _names(context.view.bundles, divisions)
    old, disruption = rows.tolist(), context.disruption
    eligible, movable, stays = (column[rows] for column in context.choosable())
    # Children have not moved, even if their parent has.
    choosable = Choosable(np.where(pieces[rows] > 1, movable, eligible), movable, stays)
    return replace(
        context,
        view=_divided_view(context.view, names, rows, part),
        reported=_divided_view(context.reported, names, rows, part),
        choosable=lambda: choosable,
        may_take=lambda bundle, broker: context.may_take(old[bundle], broker),
        takers=lambda bundle: context.takers(old[bundle]),
        disruption=Disruption(
            disruption.held[rows], disruption.weight[rows], disruption.budget[rows], disruption.left
        ),
        splittable=None,
    )


def child_names(parent: str, boundaries: Sequence[int]) -> list[str]:
    """Return the names of a bundle's children, in the order of their ranges."""
    namespace, lower, upper = parse_bundle(parent)
    edges = (lower, *boundaries, upper)
    return [bundle_name(namespace, low, high) for low, high in pairwise(edges)]


def _names(bundles: Bundles, divisions: Sequence[TrialSplit]) -> pa.StringArray:
    """Return the names with each parent's children in its place, which keeps them sorted."""
    import pyarrow as pa

    children: Mapping[int, list[str]] = {
        division.bundle: child_names(bundles.name(division.bundle), division.boundaries)
        for division in divisions
    }
    parts, begin = [], 0
    for row in sorted(children):
        parts += [bundles.names[begin:row], pa.array(children[row], bundles.names.type)]
        begin = row + 1
    return pa.concat_arrays([*parts, bundles.names[begin:]])


def _divided_view(
    view: ClusterView, names: pa.StringArray, rows: Rows, part: Floats
) -> ClusterView:
    """Return the view with the bundles' new rows."""
    bundles = view.bundles

    def counts(column: Ints) -> Ints:
        return np.rint(column[rows] * part).astype(column.dtype)

    def rates(of: Rates) -> Rates:
        return Rates(*(column[rows] * part for column in of.columns))

    return replace(
        view,
        bundles=replace(
            bundles,
            names=names,
            owner=bundles.owner[rows],
            owner_since_ms=bundles.owner_since_ms[rows],
            reported_ms=bundles.reported_ms[rows],
            gained=bundles.gained[rows],
            appeared=bundles.appeared[rows],
            in_flight=bundles.in_flight[rows],
            system=bundles.system[rows],
            topics=counts(bundles.topics),
            sessions=counts(bundles.sessions),
            cache_bytes=counts(bundles.cache_bytes),
            short_samples=bundles.short_samples[rows],
            long_samples=bundles.long_samples[rows],
            latest=rates(bundles.latest),
            short=rates(bundles.short),
            long=rates(bundles.long),
        ),
        quotas=None,
        topic_shares=NO_TOPIC_SHARES,
    )
