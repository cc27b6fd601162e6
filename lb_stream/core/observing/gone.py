"""Bundles that are no load any more, although their averages are kept for a while.

A split or merged bundle is another one's range now; a deleted namespace has none; a broker's own
bundles end with it. Core and screens ask here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from lb_stream.core.filters.candidates import (
    NEVER_OLD_MS,
    find_superseded,
    newer_beside,
    superseded,
)
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.view import Bools, ClusterView, Rates, Rows


def find_gone_bundles(
    unowned: Mapping[str, int], served: Iterable[str], deleted: Collection[str]
) -> frozenset[str]:
    """Those of the bundles without an owner that no broker will serve again.

    `unowned`: bundle → when it lost its owner. `served`: the owned bundles of their namespaces.
    `deleted`: namespaces that a command has deleted.
    """
    gone = {name for name in unowned if namespace_of(name) in deleted}
    return frozenset(gone | find_superseded(unowned, served))


def clear_gone_bundles(
    known: ClusterView, view: ClusterView, deleted: Collection[str]
) -> ClusterView:
    """The view in which bundles that are gone carry nothing; their averages stay in the shards.

    `known`: the same view, with the bundles of dead brokers still theirs: what these leave behind
    is load that waits for another broker, but for their own system bundles.
    """
    bundles = view.bundles
    # A bundle without a report was made by a command, or has been forgotten on its way: what has no
    # owner either may be an earlier cut of its namespace, so only owned bundles take its place.
    unnamed = np.flatnonzero(known.bundles.owner < 0)
    newer = newer_beside(known, unnamed.tolist())
    rows = {
        row
        for row, named_ms in newer.items()
        if bundles.reported_ms[row] > 0 or named_ms == NEVER_OLD_MS
    }
    if deleted:
        names = zip(unnamed.tolist(), bundles.names.take(unnamed).to_pylist(), strict=True)
        rows |= {row for row, name in names if namespace_of(name) in deleted}
    gone = (bundles.owner < 0) & bundles.system
    gone[list(rows)] = True
    return _clear_loads(view, gone) if gone.any() else view


def _clear_loads(view: ClusterView, rows: Bools) -> ClusterView:
    bundles = view.bundles

    def cleared(rates: Rates) -> Rates:
        return Rates(*(np.where(rows, 0.0, column) for column in rates.columns))

    cleared_bundles = replace(
        bundles,
        topics=np.where(rows, 0, bundles.topics),
        sessions=np.where(rows, 0, bundles.sessions),
        cache_bytes=np.where(rows, 0, bundles.cache_bytes),
        latest=cleared(bundles.latest),
        short=cleared(bundles.short),
        long=cleared(bundles.long),
    )
    return replace(view, bundles=cleared_bundles)


def count_topics(view: ClusterView, rows: slice) -> int:
    """How many topics the bundles in these rows of a namespace have that are not gone."""
    topics = view.bundles.topics[rows].copy()
    unowned: Rows = rows.start + np.flatnonzero(view.bundles.owner[rows] < 0)
    topics[np.array(sorted(superseded(view, unowned.tolist())), np.intp) - rows.start] = 0
    return int(topics.sum())
