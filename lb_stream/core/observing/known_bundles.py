"""Bundles that no report names, or none any more, but that exist: commands made their namespace.

The view gets them as unowned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.core.averages import DEFAULT_RATES
from lb_stream.core.model.names import Overlaps, namespace_of, parse_bundle
from lb_stream.core.model.topics import Ring
from lb_stream.core.model.view import Bundles, ClusterView, Rates

MAX_INSERTED_SINGLY = 1_000
"""So many names are put in their places one by one: sorting a million takes a second."""

Namespaces = Mapping[str, int | list[int]]
"""Namespace → the number of its equal bundles, or its boundaries."""


def build_ring(namespace: str, cut: int | list[int]) -> Ring:
    """The ring of a namespace."""
    return (
        Ring.new(namespace, cut) if isinstance(cut, int) else Ring.from_boundaries(namespace, cut)
    )


def compact_boundaries(boundaries: Sequence[int]) -> int | list[int]:
    """Boundaries in the shortest form that `build_ring` reads."""
    count = len(boundaries) - 1
    return (
        count if Ring.new("", count).boundaries.tolist() == list(boundaries) else list(boundaries)
    )


def find_missing_bundles(view: ClusterView, namespaces: Namespaces) -> list[str]:
    """Their bundles that the view lacks, sorted.

    Where it has a bundle that overlaps, brokers have cut the namespace anew: that one counts.
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
    """The bundles of a namespace.

    Kept from round to round: writing 80 000 names takes a tenth of a second.
    """
    return tuple(build_ring(namespace, cut if isinstance(cut, int) else list(cut)).names)


def known_ranges(view: ClusterView, namespace: str) -> list[tuple[int, int]]:
    """(lower, upper) of each bundle of the namespace in the view."""
    return [
        parse_bundle(name)[1:]
        for name in view.bundles.names[view.bundles.rows_of_namespace(namespace)].to_pylist()
    ]


def _known_overlaps(view: ClusterView, namespace: str) -> Overlaps:
    return Overlaps(np.array([(*bounds, 0) for bounds in known_ranges(view, namespace)], np.int64))


def add_unassigned_bundles(view: ClusterView, names: Sequence[str]) -> ClusterView:
    """The view with these bundles added: unowned, with default averages.

    `names` are sorted, and none of them is in the view.
    """
    if not names:
        return view
    joined = pa.concat_arrays([view.bundles.names, pa.array(names, pa.string())])
    if len(names) > MAX_INSERTED_SINGLY:
        order = pc.sort_indices(joined).to_numpy()
    else:
        places = [view.bundles.first_after(name) for name in names]
        order = np.insert(
            np.arange(len(view.bundles)), places, np.arange(len(view.bundles), len(joined))
        )
    fills = {"owner": -1, "owner_since_ms": view.now_ms}

    def grown(column: NDArray[Any], fill: float) -> NDArray[Any]:
        every: NDArray[Any] = np.append(column, np.full(len(names), fill, column.dtype))[order]
        return every

    columns: dict[str, Any] = {"names": joined.take(pa.array(order))}
    for field in fields(Bundles):
        value = getattr(view.bundles, field.name)
        if isinstance(value, Rates):
            defaults = (
                DEFAULT_RATES if field.name in ("short", "long") else (0.0,) * len(DEFAULT_RATES)
            )
            columns[field.name] = Rates(
                *(grown(column, fill) for column, fill in zip(value.columns, defaults, strict=True))
            )
        elif field.name != "names":
            columns[field.name] = grown(value, fills.get(field.name, 0))
    return replace(view, bundles=Bundles(**columns))


def apply_splits(namespaces: Namespaces, view: ClusterView, parents: Sequence[str]) -> Namespaces:
    """The namespaces after the given bundles have been split: into the bundles that the view has in
    their place."""
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
    """The namespaces after each of the given bundles has become one with the bundle that
    follows."""
    changed = dict(namespaces)
    for first in firsts:
        namespace, _, upper = parse_bundle(first)
        if namespace in changed:
            changed[namespace] = compact_boundaries(
                [
                    bound
                    for bound in build_ring(namespace, changed[namespace]).boundaries.tolist()
                    if bound != upper
                ]
            )
    return changed
