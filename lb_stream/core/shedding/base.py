"""What all shedders share: their context, result, traits, registry, and selection by load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lb_stream.contracts.keys import KeyModel, key
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.registry import Registry, Strategy
from lb_stream.core.model.rules import Refuses, Rule
from lb_stream.core.model.view import Bools, ClusterView, Floats, Ints, Rows

MB = 1024 * 1024
MIN_LOAD = 1.0
"""A bundle that carries less (msg/s or bytes/s) is idle: its move relieves no broker."""


class BundleRules(KeyModel):
    """How a shedder counts and chooses a broker's bundles: by default not as Pulsar's do."""

    count_system_bundles: bool = key(
        False,
        "Heartbeat and SLA-monitor bundles count when a broker is checked for having only one "
        "bundle, or none, as in the reference. They never move.",
    )
    unload_idle_bundles: bool = key(
        False,
        "Also unload bundles that carry less than 1 msg/s or 1 byte/s, as the reference does. "
        "That relieves no broker.",
    )


@dataclass(frozen=True, slots=True)
class Unload:
    """A proposal: this bundle should leave its broker.

    `saw`, `limit`, `average` and `expected_after` are in the rule's unit. `destination` counts for
    shedders that choose it (`chooses_destination`); None: placement finds one after the release.
    """

    bundle: int
    source: int
    reason: str
    rule: Rule
    saw: float
    limit: float
    average: float | None
    expected_after: float | None
    destination: int | None = None
    with_next: bool = False  # part of a swap with the next proposal: both are decided, or neither
    # Brokers considered as destinations, and their scores; the lowest is the best.
    considered: tuple[tuple[int, float], ...] = ()
    cost: float | None = None  # of the move; the average bundle's is 1
    client_seconds: float | None = None  # that the move takes from the bundle's clients
    # Before and after the move, the source's, then the destination's, in the rule's unit.
    usages: tuple[float, float, float, float] | None = None

    @property
    def gain(self) -> float | None:
        """Return by how much the source's usage falls, in the rule's unit."""
        return None if self.usages is None else self.usages[0] - self.usages[1]


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """Facts about a whole pass, from a shedder that plans.

    Columns have a row for each broker; usages are in the rules' unit.
    """

    fewest: int  # a lower bound of the moves that bring the sources down
    usage: Floats  # before the first move
    even: Floats  # each broker's even load
    trigger: float  # the shedder acts where usage ÷ even is above this
    unsure: str = ""  # what it does not know well yet, and what it assumes instead


@dataclass(frozen=True, slots=True)
class Unloads:
    """The proposals of one pass, brokers in the order of their rows, and the refusals."""

    proposals: tuple[Unload, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    plan: PlanFacts | None = None


NOTHING = Unloads()


@dataclass(frozen=True, slots=True)
class Disruption:
    """Limits of operators on the moves of bundles.

    All columns but `left` have a row for each bundle.
    """

    held: Bools  # may not move now; such a bundle is not eligible
    weight: Floats  # factor on what its move costs: its namespace's disruption_weight
    budget: NDArray[np.int32]  # row of `left`: its namespace's budget of moves; -1: it has none
    left: Ints  # how many moves each budget leaves now

    @staticmethod
    @lru_cache(maxsize=16)
    def none(bundles: int) -> Disruption:
        """Return no limits for so many bundles. O(1)."""
        held, weight = np.broadcast_to(np.False_, bundles), np.broadcast_to(np.float64(1), bundles)
        return Disruption(
            held, weight, np.broadcast_to(np.int32(-1), bundles), np.empty(0, np.int64)
        )

    def within(self, rows: Rows) -> Rows:
        """Return the first bundles of each budget, as many as it leaves moves. O(rows).

        The order of the bundles stays.
        """
        if not len(self.left):
            return rows
        budget = self.budget[rows]
        order = np.argsort(budget, kind="stable")  # those of one budget together
        grouped = budget[order]
        place = np.arange(len(rows)) - np.searchsorted(grouped, grouped)
        fits = np.empty(len(rows), np.bool_)
        fits[order] = (grouped < 0) | (place < self.left[grouped])
        kept: Rows = rows[fits]
        return kept

    def less(self, rows: Rows) -> Disruption:
        """Return the limits after moves of these bundles. O(rows + budgets)."""
        if not len(self.left):
            return self
        budget = self.budget[rows]
        return replace(
            self, left=self.left - np.bincount(budget[budget >= 0], minlength=len(self.left))
        )


Config = TypeVar("Config")
Remembered = TypeVar("Remembered")


@dataclass(frozen=True, slots=True)
class ShedContext(Generic[Config, Remembered]):
    """The input of a shedder."""

    # The cluster with pending moves carried out. Draining brokers do not count as alive.
    view: ClusterView
    config: Config  # the settings that the shedder was registered with
    memory: Remembered  # what its last pass returned
    eligible: Bools  # bundles that it may choose
    movable: Bools  # those, and the ones that were unloaded recently
    reported: ClusterView  # the view without pending moves
    may_take: Callable[[int, int], bool]  # (bundle, broker) → whether the filters allow it
    # Bundle → brokers that the rules allow; even distribution is a preference and no rule.
    takers: Callable[[int], Rows]
    unloaded: Mapping[str, int]  # broker → when a move out of it was last confirmed, ms
    unloading: tuple[str, ...]  # brokers with unconfirmed moves out of them, sorted
    disruption: Disruption  # limits of operators

    @staticmethod
    def build(
        view: ClusterView,
        config: Config,
        memory: Remembered,
        eligible: Bools | None = None,
        *,
        movable: Bools | None = None,
        reported: ClusterView | None = None,
        may_take: Callable[[int, int], bool] = lambda _bundle, _broker: True,
        takers: Callable[[int], Rows] | None = None,
        disruption: Disruption | None = None,
    ) -> ShedContext[Config, Remembered]:
        """Build a context without pending moves; by default every bundle may go to every broker."""
        chosen = np.ones(len(view.bundles), np.bool_) if eligible is None else eligible
        movable = chosen if movable is None else movable
        reported = reported or view
        allowed = disruption or Disruption.none(len(view.bundles))
        every_broker = np.flatnonzero(view.brokers.alive)
        return ShedContext(
            view,
            config,
            memory,
            chosen,
            movable,
            reported,
            may_take,
            takers or (lambda _: every_broker),
            {},
            (),
            allowed,
        )


class Shedder(Protocol):
    """A shedding strategy: which bundles should leave which broker."""

    def __call__(self, context: ShedContext[Any, Any], /) -> tuple[Unloads, Any]:
        """Return the proposals and the new memory."""
        ...


class MoveLearner(Protocol):
    """Called in every round in which moves were confirmed."""

    def __call__(self, unserved_ms: Sequence[int], memory: Any, /) -> Any:
        """What it remembers from now on.

        `unserved_ms`: how long each of their bundles had no owner.
        """
        ...


class PlanForgetter(Protocol):
    """Called after a pass whose moves wait for approval: the shedder runs again meanwhile."""

    def __call__(self, before: Any, after: Any, /) -> Any:
        """What it remembers from now on.

        `before`, `after`: what it remembered before the pass, and what that returned.
        """
        ...


class ReportObserver(Protocol):
    """Called in every round, also without a shedding pass, with the view as reported."""

    def __call__(self, view: ClusterView, config: Any, memory: Any, /) -> Any:
        """What it remembers from now on."""
        ...


@dataclass(frozen=True, slots=True)
class Traits:
    """How the round treats a shedder; the defaults are the modular manager's way."""

    manager: Literal["modular", "simple", "extensible", "any"] = (
        "modular"  # whose shedder it is; any: the modular or the extensible one
    )
    chooses_destination: bool = (
        False  # its proposals name their destination; else placement finds one
    )
    # its view has what this very round has decided carried out; else it decides on what was there
    # before
    sees_own_decisions: bool = False
    paces_itself: bool = False  # it is asked with every new report, whatever the shedding interval
    observe: ReportObserver | None = None
    learn_moves: MoveLearner | None = None
    forget_plan: PlanForgetter | None = None  # None: it remembers nothing of what it has decided
    loads: Callable[[Any], Mapping[str, float]] | None = (
        None  # its memory → broker's smoothed usage, for placement to go by
    )
    no_wait_settings: Mapping[str, Any] = field(
        default_factory=dict
    )  # settings by which it waits for nothing: for who asks it without a past


def traits_of(strategy: Strategy[Shedder]) -> Traits:
    """The traits of a registered shedder."""
    traits: Traits = strategy.traits or Traits()
    return traits


shedder: Registry[Shedder] = Registry("shedding", "lb_stream.shedders")


def rows_by_broker(view: ClusterView, brokers: Rows, eligible: Bools) -> dict[int, Rows]:
    """Map each of the brokers to its eligible bundles, in the order of their rows. O(bundles)."""
    wanted = np.zeros(len(view.brokers) + 1, np.bool_)  # the last stands for owner -1: none
    wanted[brokers] = True
    owner = view.bundles.owner
    rows = np.flatnonzero(wanted[owner] & eligible)
    rows = rows[np.argsort(owner[rows], kind="stable")]
    ends = np.searchsorted(owner[rows], brokers, side="right")
    starts = np.searchsorted(owner[rows], brokers, side="left")
    return {
        int(broker): rows[start:end]
        for broker, start, end in zip(brokers, starts, ends, strict=True)
    }


def heaviest_first(rows: Rows, load: Floats) -> Rows:
    """Sort the rows by load, the heaviest first; equal ones keep their order."""
    order: Rows = rows[np.argsort(-load[rows], kind="stable")]
    return order


def until_enough(rows: Rows, load: Floats, need: float) -> Rows:
    """Return the first rows whose loads together reach `need`; at least one if there is any."""
    if not len(rows):
        return rows
    before = np.append(0.0, np.cumsum(load[rows])[:-1])  # summed one by one, as the reference does
    taken = before < need
    taken[0] = True
    return rows[: int(np.argmin(taken))] if not taken.all() else rows


@dataclass(frozen=True, slots=True)
class Need:
    """A hot broker, the throughput (bytes/s) that should leave it, and the reason (ratios)."""

    broker: int
    bytes_per_s: float
    rule: Rule
    saw: float
    limit: float
    average: float | None


def too_few_bundles(view: ClusterView, broker: int, bundles: int) -> Refusal | None:
    """Refuse to unload a broker with at most one bundle; None: it has several.

    To move its only bundle would only move the overload.
    """
    if bundles > 1:
        return None
    rule = Refuses.SOLE_BUNDLE if bundles == 1 else Refuses.NO_BUNDLES
    return refusal(rule, view.brokers.names[broker], saw=[bundles], limit=2)


def carrying(rows: Rows, load: Floats, rules: BundleRules) -> Rows:
    """Return the bundles whose move relieves their broker: all but idle ones."""
    return rows if rules.unload_idle_bundles else rows[load[rows] >= MIN_LOAD]


def none_chosen(
    view: ClusterView, broker: int, rows: Rows, load: Floats, most: float, unit: str
) -> Refusal:
    """Explain why none of a broker's eligible bundles was chosen.

    There is none, all are idle, or each carries more than `most`. Loads are in `unit`.
    """
    name, busy = view.brokers.names[broker], rows[load[rows] >= MIN_LOAD]
    if not len(rows):
        return refusal(Refuses.NO_ELIGIBLE_BUNDLE, name, saw=[0], limit=1)
    if not len(busy):
        return refusal(Refuses.IDLE_BUNDLES, name, saw=load[rows], limit=MIN_LOAD, unit=unit)
    names = view.bundles.names.take(pa.array(busy)).to_pylist()
    return refusal(Refuses.NO_FITTING_BUNDLE, name, names, saw=load[busy], limit=most, unit=unit)


def shed_throughput(
    view: ClusterView,
    needs: Sequence[Need],
    eligible: Bools,
    disruption: Disruption | None = None,
    rules: BundleRules | None = None,
) -> tuple[list[Unload], list[Refusal]]:
    """Choose each broker's heaviest bundles by short-term throughput until its need is met.

    At least one bundle is chosen if any may move. All needs together keep within the budgets of
    `disruption`. A broker with at most one bundle keeps it. Idle bundles stay, unless `rules` say
    otherwise.
    """
    rules = rules or BundleRules()
    proposals: list[Unload] = []
    refusals: list[Refusal] = []
    if not needs:
        return proposals, refusals
    load = view.bundles.short.throughput
    counts = view.bundle_counts(system=rules.count_system_bundles)
    budgets = disruption or Disruption.none(len(view.bundles))
    rows = rows_by_broker(view, np.array([need.broker for need in needs], np.intp), eligible)
    for need in needs:
        if (too_few := too_few_bundles(view, need.broker, int(counts[need.broker]))) is not None:
            refusals.append(too_few)
            continue
        left_to_it = budgets.within(heaviest_first(rows[need.broker], load))
        chosen = until_enough(carrying(left_to_it, load, rules), load, need.bytes_per_s)
        if not len(chosen):
            why = none_chosen(view, need.broker, left_to_it, load, need.bytes_per_s, "bytes/s")
            refusals.append(why)
            continue
        budgets = budgets.less(chosen)
        throughput = float(view.brokers.latest.throughput[need.broker])
        left = max(0.0, 1.0 - float(np.sum(load[chosen])) / throughput) if throughput > 0 else 1.0
        for row in chosen.tolist():
            proposals.append(
                Unload(
                    row,
                    need.broker,
                    "Overloaded",
                    need.rule,
                    need.saw,
                    need.limit,
                    need.average,
                    need.saw * left,
                )
            )
    return proposals, refusals
