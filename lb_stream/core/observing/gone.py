"""Bundles that are gone: they carry no load any more, though their averages are kept for a while.

A bundle is gone when it was split or merged, when its namespace is deleted, and when it is a system
bundle of a dead broker. The core and the screens decide it here.
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
    """Return the unassigned bundles that no broker will serve again.

    `unowned`: unassigned bundle → when it lost its owner. `served`: the owned bundles of their
    namespaces. `deleted`: namespaces that a command has deleted.
    """
    gone = {name for name in unowned if namespace_of(name) in deleted}
    return frozenset(gone | find_superseded(unowned, served))


def clear_gone_bundles(
    known: ClusterView, view: ClusterView, deleted: Collection[str]
) -> ClusterView:
    """Return the view in which bundles that are gone carry no load; the shards keep their averages.

    `known`: the view in which dead brokers still have their bundles. Those are load that waits for
    another broker, except system bundles.
    """
    bundles = view.bundles
    # Split and merged bundles. One that no report has named was created by a command, or has been
    # forgotten while it moved. An unassigned bundle of the same range may be of an earlier cut of
    # the namespace, so only owned bundles replace it.
    unnamed = np.flatnonzero(known.bundles.owner < 0)
    newer = newer_beside(known, unnamed.tolist())
    rows = {
        row
        for row, named_ms in newer.items()
        if bundles.reported_ms[row] > 0 or named_ms == NEVER_OLD_MS
    }
    # Bundles of deleted namespaces.
    if deleted:
        names = zip(unnamed.tolist(), bundles.names.take(unnamed).to_pylist(), strict=True)
        rows |= {row for row, name in names if namespace_of(name) in deleted}
    # System bundles of dead brokers.
    gone = (bundles.owner < 0) & bundles.system
    gone[list(rows)] = True
    return _clear_loads(view, gone) if gone.any() else view


def _clear_loads(view: ClusterView, rows: Bools) -> ClusterView:
    """Return the view with 0 for all figures of these bundles."""
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
    """Return how many topics a namespace's bundles have that are not gone; `rows`: its bundles."""
    topics = view.bundles.topics[rows].copy()
    unowned: Rows = rows.start + np.flatnonzero(view.bundles.owner[rows] < 0)
    topics[np.array(sorted(superseded(view, unowned.tolist())), np.intp) - rows.start] = 0
    return int(topics.sum())
