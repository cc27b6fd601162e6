"""Bundles of namespaces that commands created, which no report names: the view gets them too.

They are unassigned in the view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.core.model.names import Overlaps, namespace_of, parse_bundle
from lb_stream.core.model.rates import DEFAULT_RATES
from lb_stream.core.model.topics import Ring
from lb_stream.core.model.view import Bundles, ClusterView, Rates

T = TypeVar("T", bound=np.generic)
MAX_INSERTED_SINGLY = 1_000
"""Up to so many names are inserted one by one: sorting a million takes a second."""

Namespaces = Mapping[str, int | list[int]]
"""Namespace → the number of its equal bundles, or its boundaries."""


def build_ring(namespace: str, cut: int | list[int]) -> Ring:
    """Return the ring of a namespace that is cut into so many equal bundles, or at boundaries."""
    return (
        Ring.new(namespace, cut) if isinstance(cut, int) else Ring.from_boundaries(namespace, cut)
    )


def compact_boundaries(boundaries: Sequence[int]) -> int | list[int]:
    """Return boundaries in the shortest form that `build_ring` reads."""
    count = len(boundaries) - 1
    is_equal = Ring.new("", count).boundaries.tolist() == list(boundaries)
    return count if is_equal else list(boundaries)


def find_missing_bundles(view: ClusterView, namespaces: Namespaces) -> list[str]:
    """Return the bundles of these namespaces that the view lacks, sorted.

    A bundle is not missing if the view has one that overlaps it: brokers have split or merged the
    namespace's bundles.
    """
    if not namespaces:
        return []
    names = [
        name
        for namespace, cut in namespaces.items()
        for name in _bundle_names(namespace, cut if isinstance(cut, int) else tuple(cut))
    ]
    lacking = [names[at] for at in np.flatnonzero(view.bundles.rows_of(names) < 0).tolist()]
    known = {
        namespace: _known_overlaps(view, namespace)
        for namespace in {namespace_of(name) for name in lacking}
    }
    return sorted(
        name for name in lacking if known[namespace_of(name)].newest(*parse_bundle(name)[1:]) < 0
    )


@lru_cache(maxsize=1 << 16)
def _bundle_names(namespace: str, cut: int | tuple[int, ...]) -> tuple[str, ...]:
    """Return the names of a namespace's bundles.

    Cached from round to round: writing 80,000 names takes a tenth of a second.
    """
    return tuple(build_ring(namespace, cut if isinstance(cut, int) else list(cut)).names)


def known_ranges(view: ClusterView, namespace: str) -> list[tuple[int, int]]:
    """Return (lower, upper) of each bundle that the view has of a namespace."""
    return [
        parse_bundle(name)[1:]
        for name in view.bundles.names[view.bundles.rows_of_namespace(namespace)].to_pylist()
    ]


def _known_overlaps(view: ClusterView, namespace: str) -> Overlaps:
    """Return the ranges that the view has of a namespace, to find overlaps with them."""
    return Overlaps(np.array([(*bounds, 0) for bounds in known_ranges(view, namespace)], np.int64))


def add_unassigned_bundles(view: ClusterView, names: Sequence[str]) -> ClusterView:
    """Return the view with these bundles added: unassigned, with default averages.

    `names` are sorted, and none of them is in the view.
    """
    if not names:
        return view
    # Where each row of the new columns comes from: the view's rows, then the added ones.
    joined = pa.concat_arrays([view.bundles.names, pa.array(names, pa.string())])
    if len(names) > MAX_INSERTED_SINGLY:
        order = pc.sort_indices(joined).to_numpy()
    else:
        known, places = len(view.bundles), [view.bundles.first_after(name) for name in names]
        order = np.insert(np.arange(known), places, np.arange(known, len(joined)))
    # The columns, with the values of added bundles.
    fills = {"owner": -1, "owner_since_ms": view.now_ms}

    def grown(column: NDArray[T], fill: float) -> NDArray[T]:
        every: NDArray[T] = np.append(column, np.full(len(names), fill, column.dtype))[order]
        return every

    columns: dict[str, Any] = {"names": joined.take(pa.array(order))}
    for field in fields(Bundles):
        value = getattr(view.bundles, field.name)
        if isinstance(value, Rates):
            averaged = field.name in ("short", "long")
            defaults = DEFAULT_RATES if averaged else (0.0,) * len(DEFAULT_RATES)
            pairs = zip(value.columns, defaults, strict=True)
            columns[field.name] = Rates(*(grown(column, fill) for column, fill in pairs))
        elif field.name != "names":
            columns[field.name] = grown(value, fills.get(field.name, 0))
    topic_shares = view.topic_shares
    if len(topic_shares):
        topic_shares = topic_shares.renumbered(np.argsort(order, kind="stable"))
    return replace(view, bundles=Bundles(**columns), topic_shares=topic_shares)


def apply_splits(namespaces: Namespaces, view: ClusterView, parents: Sequence[str]) -> Namespaces:
    """Return the namespaces after these bundles were split into those that the view has instead."""
    changed = dict(namespaces)
    for parent in parents:
        namespace, lower, upper = parse_bundle(parent)
        if namespace in changed:
            before = set(build_ring(namespace, changed[namespace]).boundaries.tolist())
            inside = {
                bound
                for low, high in known_ranges(view, namespace)
                if lower <= low and high <= upper
                for bound in (low, high)
            }
            if inside and {lower, upper} <= before:
                changed[namespace] = compact_boundaries(sorted(before | inside))
    return changed


def apply_merges(namespaces: Namespaces, firsts: Sequence[str]) -> Namespaces:
    """Return the namespaces after each of these bundles was merged with its neighbour."""
    changed = dict(namespaces)
    for first in firsts:
        namespace, _, upper = parse_bundle(first)
        if namespace in changed:
            bounds = build_ring(namespace, changed[namespace]).boundaries.tolist()
            changed[namespace] = compact_boundaries([bound for bound in bounds if bound != upper])
    return changed
