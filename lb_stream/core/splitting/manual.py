"""An operator's split: which bundle is meant, and whether it can be done as asked.

See docs/commands.md "Namespaces".

The thresholds and the namespace's maximum don't count here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lb_stream.core.model.names import BundleRange, is_system_bundle, parse_bundle
from lb_stream.core.model.view import Bools, Floats, Ints
from lb_stream.core.splitting.base import Algorithms, Topics
from lb_stream.core.splitting.config import SplittingConfig
from lb_stream.core.splitting.perform import SPECIFIED, Cut, SplitRejected, plan

REASON = "Admin"
LARGEST, HOT = "LARGEST", "HOT"
PRECONDITION_FAILED, NOT_FOUND, CONFLICT, BAD_REQUEST = 412, 404, 409, 400

Manager = Literal["modular", "simple", "extensible"]


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """An operator's request.

    `bundle` is `lower_upper`, LARGEST or HOT; `bundle_type` is LARGEST or HOT, given instead of it.
    """

    namespace: str
    bundle: str | None = None
    bundle_type: str | None = None
    algorithm: str | None = None
    boundaries: tuple[int, ...] = ()
    unload: bool = False


@dataclass(frozen=True, slots=True)
class NamespaceBundles:
    """The bundles of the namespace in order: persistent topics, long-term bytes/s in and out,
    whether they have an owner.

    `topics_of` names a bundle's topics; without it only halves and given positions can be found
    here.
    """

    names: Sequence[str]
    topics: Ints
    long_throughput: Floats
    owned: Bools
    topics_of: Callable[[str], Topics] | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """To be done: the cut, by which algorithm, and whether the children are unloaded afterwards."""

    cut: Cut
    algorithm: str
    unload: bool


@dataclass(frozen=True, slots=True)
class NoChange:
    """A success without anything to do."""

    detail: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """An error, with the status that the documented interface gives, and what to do instead."""

    status: int
    detail: str


def manual_split(
    request: SplitRequest,
    bundles: NamespaceBundles,
    config: SplittingConfig,
    algorithms: Algorithms,
    manager: Manager,
) -> Accepted | NoChange | Rejected:
    """Answer an operator's request to split a bundle."""
    if request.algorithm is not None and request.algorithm not in config.supported_split_algorithms:
        supported = ", ".join(config.supported_split_algorithms)
        return Rejected(
            PRECONDITION_FAILED,
            f"split algorithm {request.algorithm!r} is not supported; expected one of {supported}",
        )
    strategy = algorithms.named(request.algorithm)
    if strategy.name == SPECIFIED and not request.boundaries:
        return Rejected(PRECONDITION_FAILED, f"{SPECIFIED} needs the boundaries to split at")
    row = find_bundle(request, bundles, manager)
    if isinstance(row, Rejected):
        return row
    name = bundles.names[row]
    if is_system_bundle(name):
        return NoChange(f"{name} is a heartbeat or SLA-monitor bundle: ignored")
    if manager == "extensible" and not bundles.owned[row]:
        return Rejected(CONFLICT, f"{name} has no owner: split it when a broker serves it")
    topics = int(bundles.topics[row]) if bundles.topics_of is None else bundles.topics_of(name)
    positions = request.boundaries if strategy.name == SPECIFIED else ()
    result = plan(algorithms, strategy, parse_bundle(name), topics, positions)
    if isinstance(result, SplitRejected):
        return (
            NoChange(result.detail)
            if result.why == "no_boundary"
            else Rejected(PRECONDITION_FAILED, result.detail)
        )
    return Accepted(result, strategy.name, request.unload)


def find_bundle(
    request: SplitRequest, bundles: NamespaceBundles, manager: Manager
) -> int | Rejected:
    """The row of the bundle that is meant."""
    if (request.bundle is None) == (request.bundle_type is None):
        return Rejected(BAD_REQUEST, "name a bundle or a bundle type, one of them")
    if request.bundle_type not in (None, LARGEST, HOT):
        return Rejected(
            BAD_REQUEST, f"bundle type {request.bundle_type!r}: expected {LARGEST} or {HOT}"
        )
    wanted = request.bundle_type or str(request.bundle)
    if wanted in (LARGEST, HOT):
        by_traffic = wanted == HOT and manager == "modular"
        row = _greatest(
            bundles.long_throughput if by_traffic else bundles.topics, bundles.topics > 0
        )
        return (
            Rejected(NOT_FOUND, f"no bundle of {request.namespace} has a topic")
            if row is None
            else row
        )
    try:
        parsed: BundleRange = parse_bundle(f"{request.namespace}/{wanted}")
    except ValueError as error:
        return Rejected(PRECONDITION_FAILED, f"{error}, or {LARGEST}, or {HOT}")
    whole = f"{parsed.namespace}/{wanted}"
    if whole not in bundles.names:
        return Rejected(NOT_FOUND, f"{request.namespace} has no bundle {wanted}")
    return list(bundles.names).index(whole)


def _greatest(figures: Ints | Floats, eligible: Bools) -> int | None:
    """The eligible row with the greatest figure, the first among equals."""
    rows = np.flatnonzero(eligible)
    return int(rows[np.argmax(figures[rows])]) if len(rows) else None
