"""An operator's split: which bundle the command names, and whether it can be split.

The limits of split triggers and the namespace's maximum of bundles don't count here.
See docs/commands.md "Namespaces".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lb_stream.core.model.names import BundleRange, parse_bundle
from lb_stream.core.model.registry import Strategy
from lb_stream.core.model.view import Bools, Floats, Ints
from lb_stream.core.splitting.base import Algorithms, SplitAlgorithm, Topics
from lb_stream.core.splitting.config import SplittingConfig
from lb_stream.core.splitting.perform import SPECIFIED, Cut, SplitRejected, plan

FLOW = "flow_or_qps_equally_divide"
"""The algorithm that needs the rates of topics, and the limits of a bundle."""
REASON = "Admin"
"""Pulsar's word for the reason of an operator's split."""
LARGEST, HOT = "LARGEST", "HOT"
PRECONDITION_FAILED, NOT_FOUND, CONFLICT, BAD_REQUEST = 412, 404, 409, 400
"""Status codes of Pulsar's documented interface."""

Manager = Literal["modular", "simple", "extensible"]


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """The fields of an operator's split. Either `bundle` or `bundle_type` is given."""

    namespace: str
    bundle: str | None = None  # 0xLLLLLLLL_0xHHHHHHHH, LARGEST or HOT
    bundle_type: str | None = None  # LARGEST or HOT
    algorithm: str | None = None
    boundaries: tuple[int, ...] = ()
    unload: bool = False


@dataclass(frozen=True, slots=True)
class NamespaceBundles:
    """The bundles of a namespace, in the order of their ranges."""

    names: Sequence[str]
    topics: Ints  # number of persistent topics
    long_throughput: Floats  # long-term bytes/s, in and out
    owned: Bools  # whether the bundle has an owner
    system: Bools  # whether it is a system bundle
    # Bundle → its topics. None: the owner finds the boundaries of algorithms that need topics.
    topics_of: Callable[[str], Topics] | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The split can be made."""

    cut: Cut
    algorithm: str
    unload: bool  # the children are unloaded afterwards


@dataclass(frozen=True, slots=True)
class NoChange:
    """There is nothing to do: the command succeeds without a split."""

    detail: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """The split can't be made: the status of Pulsar's interface, and why or what to do instead."""

    status: int
    detail: str


def manual_split(
    request: SplitRequest,
    bundles: NamespaceBundles,
    config: SplittingConfig,
    algorithms: Algorithms,
    manager: Manager,
) -> Accepted | NoChange | Rejected:
    """Return what becomes of an operator's split."""
    # The algorithm.
    if request.algorithm is not None and request.algorithm not in config.supported_split_algorithms:
        supported = ", ".join(config.supported_split_algorithms)
        return Rejected(
            PRECONDITION_FAILED,
            f"split algorithm {request.algorithm!r} is not supported; expected one of {supported}",
        )
    strategy = find_algorithm(request.algorithm, config, algorithms)
    if isinstance(strategy, Rejected):
        return strategy
    if strategy.name == SPECIFIED and not request.boundaries:
        return Rejected(PRECONDITION_FAILED, f"{SPECIFIED} needs the boundaries to split at")

    # The bundle.
    row = find_bundle(request, bundles, manager)
    if isinstance(row, Rejected):
        return row
    name = bundles.names[row]
    if bundles.system[row]:
        return NoChange(f"{name} is a heartbeat or SLA-monitor bundle, which is never split")
    if manager == "extensible" and not bundles.owned[row]:
        return Rejected(CONFLICT, f"{name} has no owner: split it when a broker serves it")

    # The cut.
    topics = int(bundles.topics[row]) if bundles.topics_of is None else bundles.topics_of(name)
    positions = request.boundaries if strategy.name == SPECIFIED else ()
    result = plan(algorithms, strategy, parse_bundle(name), topics, positions)
    if isinstance(result, SplitRejected):
        if result.why == "no_boundary":
            return NoChange(result.detail)
        return Rejected(PRECONDITION_FAILED, result.detail)
    return Accepted(result, strategy.name, request.unload)


def find_algorithm(
    asked: str | None, config: SplittingConfig, algorithms: Algorithms
) -> Strategy[SplitAlgorithm] | Rejected:
    """Return the algorithm of that name, else the default; or why it can't be asked for.

    Before Pulsar 5.0 an algorithm is given what the default needs (`split_options`), and
    flow_or_qps_equally_divide needs more than the others.
    """
    strategy, default = algorithms.named(asked), algorithms.named()
    if config.split_options == "asked_for" or FLOW not in (strategy.name, default.name):
        return strategy
    if strategy.name == FLOW and default.name != FLOW:
        return Rejected(
            PRECONDITION_FAILED,
            f"split algorithm {FLOW!r} needs split_algorithm = {FLOW!r}, which is "
            f"{default.name!r}, or split_options = 'asked_for'",
        )
    return strategy


def find_bundle(
    request: SplitRequest, bundles: NamespaceBundles, manager: Manager
) -> int | Rejected:
    """Return the row of the bundle that the command names."""
    if (request.bundle is None) == (request.bundle_type is None):
        return Rejected(BAD_REQUEST, "expected either a bundle or a bundle type")
    if request.bundle_type not in (None, LARGEST, HOT):
        return Rejected(
            BAD_REQUEST, f"bundle type {request.bundle_type!r}: expected {LARGEST} or {HOT}"
        )
    wanted = request.bundle_type or str(request.bundle)
    if wanted in (LARGEST, HOT):
        by_throughput = wanted == HOT and manager == "modular"
        figures = bundles.long_throughput if by_throughput else bundles.topics
        row = _highest(figures, bundles.topics > 0)
        if row is None:
            return Rejected(NOT_FOUND, f"no bundle of {request.namespace} has a topic")
        return row
    try:
        parsed: BundleRange = parse_bundle(f"{request.namespace}/{wanted}")
    except ValueError as error:
        return Rejected(PRECONDITION_FAILED, f"{error}, or {LARGEST}, or {HOT}")
    whole = f"{parsed.namespace}/{wanted}"
    if whole not in bundles.names:
        return Rejected(NOT_FOUND, f"{request.namespace} has no bundle {wanted}")
    return list(bundles.names).index(whole)


def _highest(figures: Ints | Floats, eligible: Bools) -> int | None:
    """Return the eligible row with the highest figure, the first among equals; None: no row."""
    rows = np.flatnonzero(eligible)
    return int(rows[np.argmax(figures[rows])]) if len(rows) else None
