"""Performing a split: which children a bundle falls into, and what the namespace's ring becomes."""

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
"""Algorithms that can tell without seeing the topics."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A split that can be performed: the boundaries, ascending and strictly inside the parent, and
    the children's names in order.

    Both are empty when the owner must find the boundaries, because only it knows the topics.
    """

    parent: BundleRange
    boundaries: tuple[int, ...]
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SplitRejected:
    """A split that can't be performed. `no_boundary` is no fault: there is nothing to do."""

    rule: Rule
    detail: str

    @property
    def why(self) -> str:
        """The rule's name."""
        return self.rule.name


def can_be_cut(lower: int, upper: int) -> bool:
    """Whether a range has room for a boundary strictly inside."""
    return upper - lower > 1


def cut(parent: BundleRange, positions: Sequence[int] | None) -> Cut | SplitRejected:
    """Cut a bundle at the positions, each strictly inside it and none twice.

    The pieces share no hash and leave none out.
    """
    name = bundle_name(*parent)
    if not positions:
        return SplitRejected(Refuses.NO_BOUNDARY, f"no boundary was found in {name}")
    if not can_be_cut(parent.lower, parent.upper):
        return SplitRejected(
            Refuses.RANGE_TOO_NARROW,
            f"{name} can't be split further: its range is not larger than 1",
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
            f"a boundary of {name} is given twice: the child between would be empty",
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
    """Ask the algorithm for boundaries and cut there.

    `topics` may be just their number: then only halves and given positions can be found, anything
    else is left open.
    """
    known = None if isinstance(topics, int) else topics
    if known is None and strategy.name not in WITHOUT_TOPICS:
        return (
            Cut(parent, (), ())
            if can_be_cut(parent.lower, parent.upper)
            else cut(parent, (parent.lower,))
        )
    force = isinstance(topics, int) and topics > 1
    found = algorithms.boundaries(
        strategy, Range.from_bundle(bundle_name(*parent), known, positions, force)
    )
    result = cut(parent, found.positions)
    if isinstance(result, SplitRejected) and result.why == "no_boundary" and found.why is not None:
        return SplitRejected(Refuses.NO_BOUNDARY, f"{result.detail}: {found.why.replace('_', ' ')}")
    return result
