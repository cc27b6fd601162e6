"""Performing a split: the boundaries and the children of a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from lb_stream.core.model.names import BundleRange, bundle_name
from lb_stream.core.model.registry import Strategy
from lb_stream.core.model.rules import Refuses, Rule
from lb_stream.core.splitting.base import FALLBACK, Algorithms, Range, SplitAlgorithm, Topics

SPECIFIED = "specified_positions_divide"
WITHOUT_TOPICS = (FALLBACK, SPECIFIED)
"""Algorithms that need no topics."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A split that can be performed.

    Boundaries and children are empty when the owner finds them, because only it knows the topics.
    """

    parent: BundleRange
    boundaries: tuple[int, ...]  # ascending, strictly inside the parent
    children: tuple[str, ...]  # names, in the order of their ranges


@dataclass(frozen=True, slots=True)
class SplitRejected:
    """A split that can't be performed. With `no_boundary` there is nothing to split."""

    rule: Rule
    detail: str

    @property
    def why(self) -> str:
        """Return the rule's name."""
        return self.rule.name


def can_be_cut(lower: int, upper: int) -> bool:
    """Return whether a range has room for a boundary strictly inside."""
    return upper - lower > 1


def cut(parent: BundleRange, positions: Sequence[int] | None) -> Cut | SplitRejected:
    """Cut a bundle at the positions, which must be distinct and strictly inside it.

    Every hash of the bundle is in one child.
    """
    name = bundle_name(*parent)
    if not positions:
        return SplitRejected(Refuses.NO_BOUNDARY, f"no boundary was found in {name}")
    if not can_be_cut(parent.lower, parent.upper):
        return SplitRejected(
            Refuses.RANGE_TOO_NARROW,
            f"{name} can't be split further: its range has a single hash",
        )
    boundaries = tuple(sorted(positions))
    if not parent.lower < boundaries[0] <= boundaries[-1] < parent.upper:
        return SplitRejected(
            Refuses.BOUNDARY_OUTSIDE, f"the boundaries must lie strictly inside {name}"
        )
    edges = (parent.lower, *boundaries, parent.upper)
    if any(low == high for low, high in pairwise(edges)):
        return SplitRejected(
            Refuses.EMPTY_CHILD,
            f"a boundary of {name} is given twice: a child would be empty",
        )
    return Cut(
        parent,
        boundaries,
        tuple(bundle_name(parent.namespace, low, high) for low, high in pairwise(edges)),
    )


def plan(
    algorithms: Algorithms,
    strategy: Strategy[SplitAlgorithm],
    parent: BundleRange,
    topics: Topics | int,
    positions: Sequence[int] = (),
) -> Cut | SplitRejected:
    """Return the cut at the boundaries that the algorithm finds.

    `topics` may be just their number: then an algorithm that needs topics leaves the boundaries to
    the owner.
    """
    known = None if isinstance(topics, int) else topics
    if known is None and strategy.name not in WITHOUT_TOPICS:
        if can_be_cut(parent.lower, parent.upper):
            return Cut(parent, (), ())
        return cut(parent, (parent.lower,))
    force = isinstance(topics, int) and topics > 1
    found = algorithms.boundaries(
        strategy, Range.from_bundle(bundle_name(*parent), known, positions, force)
    )
    result = cut(parent, found.positions)
    if isinstance(result, SplitRejected) and result.why == "no_boundary" and found.why is not None:
        return SplitRejected(Refuses.NO_BOUNDARY, f"{result.detail}: {found.why.replace('_', ' ')}")
    return result
