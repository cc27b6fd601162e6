"""The common parts of shedders: context, result, traits, registry, and the selection by load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from lb_stream.contracts.keys import KeyModel, key
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.registry import Registry, Strategy
from lb_stream.core.model.rules import Refuses, Rule
from lb_stream.core.model.view import Bools, ClusterView, Floats, Ints, Rows

MB = 1024 * 1024
MIN_LOAD = 1.0
"""A bundle with less load than this (msg/s or bytes/s) is idle: its move relieves no broker."""


class BundleRules(KeyModel):
    """Settings of how a shedder counts and chooses bundles; the defaults differ from Pulsar's."""

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


class Unload(msgspec.Struct, frozen=True):
    """A shedder's wish that a bundle leaves its broker. Bundles and brokers are rows of the view.

    `saw`, `limit`, `average` and `expected_after` are in the rule's unit. `destination` is set by
    shedders that choose it (`chooses_destination`); None: placement chooses one after the release.
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
    with_next: bool = False  # a swap with the next proposal: both are decided, or neither
    # Brokers considered as destinations, and their scores; the lowest is the best.
    considered: tuple[tuple[int, float], ...] = ()
    cost: float | None = None  # of the move; the average bundle's is 1
    client_seconds: float | None = None  # time that the move takes from the bundle's clients
    # Usages in the rule's unit: source before, source after, destination before, destination after.
    usages: tuple[float, float, float, float] | None = None

    @property
    def gain(self) -> float | None:
        """Return how far the source's usage falls, in the rule's unit; None: not known."""
        return None if self.usages is None else self.usages[0] - self.usages[1]


@dataclass(frozen=True, slots=True)
class SplitProposal:
    """A shedder's wish that a bundle is split at its broker. Rows are those of the view.

    `saw`, `limit` and `average` are in the rule's unit.
    """

    bundle: int
    source: int
    algorithm: str
    boundaries: tuple[int, ...]  # ascending; empty: the owner finds them by the algorithm
    reason: str  # Pulsar's name of the reason
    rule: Rule
    saw: float
    limit: float
    average: float


@dataclass(frozen=True, slots=True)
class PlanExpectation:
    """What a plan with splits is expected to reach: max usages, in the rules' unit."""

    plan: str  # its id: cluster and number of the round that made it
    before: float
    unsplit: float  # with the best moves, but without its splits
    split: float  # after its splits alone
    after: float  # after its moves


@dataclass(frozen=True, slots=True)
class PlanProblem:
    """What a planning shedder chooses from.

    Rows are those of the view; a share is load ÷ even load.
    """

    share: Floats  # (brokers, resources): before the first move
    per_unit: Floats  # (brokers, resources): the rise of the share by one unit of load
    demand: Floats  # (bundles, resources)
    limit: Floats  # the highest share of each destination; -inf: it takes no bundle
    rows: Callable[[], dict[int, Rows]]  # returns broker → its bundles that may move
    may_take: Callable[[int], Bools]  # bundle → brokers that may take it
    disruption: Disruption
    intake_left: Rows  # bundles that each broker may take


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """Facts about a whole pass, from a shedder that plans its moves.

    Columns have a row for each broker; usages are in the rules' unit.
    """

    fewest: int  # a lower bound of the number of moves that relieve the sources
    usage: Floats  # of each broker before the first move
    even: Floats  # the even load of each broker
    trigger: float  # the shedder acts where usage ÷ even load is above this
    unsure: str = ""  # text about figures that are not well known yet, and assumed values
    expected: PlanExpectation | None = None  # of a plan with splits
    problem: PlanProblem | None = None  # None: no moves were sought


@dataclass(frozen=True, slots=True)
class Unloads:
    """The result of one pass: proposals, brokers in the order of their rows, and refusals."""

    proposals: tuple[Unload, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    plan: PlanFacts | None = None
    splits: tuple[SplitProposal, ...] = ()


NOTHING = Unloads()


@dataclass(frozen=True, slots=True)
class Disruption:
    """Operators' limits on moves. All columns but `left` have a row for each bundle."""

    held: Bools  # the bundle may not move now, and is not eligible
    weight: Floats  # factor on the cost of its move: disruption_weight of its namespace
    budget: NDArray[np.int32]  # row of its namespace's budget in `left`; -1: no budget
    left: Ints  # moves left in each budget

    @staticmethod
    @lru_cache(maxsize=16)
    def none(bundles: int) -> Disruption:
        """Return the absence of limits for this number of bundles. O(1)."""
        return Disruption(
            held=np.broadcast_to(np.False_, bundles),
            weight=np.broadcast_to(np.float64(1), bundles),
            budget=np.broadcast_to(np.int32(-1), bundles),
            left=np.empty(0, np.int64),
        )

    def within(self, rows: Rows) -> Rows:
        """Return the bundles that fit into the budgets, the first ones first. O(rows log rows)."""
        if not len(self.left):
            return rows
        budget = self.budget[rows]
        order = np.argsort(budget, kind="stable")  # bundles of one budget follow one another
        grouped = budget[order]
        place = np.arange(len(rows)) - np.searchsorted(grouped, grouped)
        fits = np.empty(len(rows), np.bool_)
        fits[order] = (grouped < 0) | (place < self.left[grouped])
        kept: Rows = rows[fits]
        return kept

    def after_moves(self, rows: Rows) -> Disruption:
        """Return the limits after moves of these bundles. O(rows + budgets)."""
        if not len(self.left):
            return self
        budget = self.budget[rows]
        spent = np.bincount(budget[budget >= 0], minlength=len(self.left))
        return replace(self, left=self.left - spent)


@dataclass(frozen=True, slots=True)
class Splittable:
    """The splits that a shedder may propose, by settings, limits and operators' decisions."""

    bundles: Bools  # the bundles that may be split now
    left: int  # splits that may be decided in this round
    room: Callable[[int], int]  # bundle → bundles that its namespace may have in addition
    several: bool  # whether a bundle may be cut at several boundaries at once
    algorithms: frozenset[str]  # that a split may name
    # Messages/s and bytes/s above which flow_or_qps_equally_divide cuts; None: it is not possible.
    flow_limits: tuple[float, float] | None = None
    waiting: frozenset[str] = frozenset()  # bundles whose splits wait for approval


Config = TypeVar("Config")
Remembered = TypeVar("Remembered")


class Choosable(NamedTuple):
    """The bundles that a shedder may choose, and those that it may not.

    A row for each bundle of the view; the properties of `ShedContext` say what the columns mean.
    """

    eligible: Bools
    movable: Bools
    stays: Bools


@dataclass(frozen=True, slots=True)
class ShedContext(Generic[Config, Remembered]):
    """The input of a shedder."""

    # The cluster with pending moves applied. Draining brokers do not count as alive.
    view: ClusterView
    config: Config  # settings, of the model that the shedder was registered with
    memory: Remembered  # the memory after the last pass
    choosable: Callable[[], Choosable]  # finds it once a shedder asks: in most passes none does
    reported: ClusterView  # the view without pending moves
    may_take: Callable[[int, int], bool]  # (bundle, broker) → whether the filters allow it
    # Bundle → brokers that the rules allow. Even distribution is only a preference.
    takers: Callable[[int], Rows]
    unloaded: Mapping[str, int]  # broker → when a move out of it was last confirmed, ms
    unloading: tuple[str, ...]  # brokers with pending moves out of them, sorted
    disruption: Disruption  # operators' limits
    number: int = 0  # of the round
    splittable: Splittable | None = None  # None: it may propose no splits

    @property
    def eligible(self) -> Bools:
        """The bundles that may be chosen."""
        return self.choosable().eligible

    @property
    def movable(self) -> Bools:
        """The eligible bundles, and recently unloaded ones."""
        return self.choosable().movable

    @property
    def stays(self) -> Bools:
        """The bundles that may not move for long: excluded, system bundles, held by operators."""
        return self.choosable().stays

    @staticmethod
    def build(
        view: ClusterView,
        config: Config,
        memory: Remembered,
        eligible: Bools | None = None,
        *,
        movable: Bools | None = None,
        stays: Bools | None = None,
        reported: ClusterView | None = None,
        may_take: Callable[[int, int], bool] = lambda _bundle, _broker: True,
        takers: Callable[[int], Rows] | None = None,
        disruption: Disruption | None = None,
    ) -> ShedContext[Config, Remembered]:
        """Build a context without pending moves; by default every bundle may go to every broker."""
        chosen = np.ones(len(view.bundles), np.bool_) if eligible is None else eligible
        choosable = Choosable(
            chosen,
            chosen if movable is None else movable,
            np.zeros(len(view.bundles), np.bool_) if stays is None else stays,
        )
        every_broker = np.flatnonzero(view.brokers.alive)
        return ShedContext(
            view=view,
            config=config,
            memory=memory,
            choosable=lambda: choosable,
            reported=reported or view,
            may_take=may_take,
            takers=takers or (lambda _: every_broker),
            unloaded={},
            unloading=(),
            disruption=disruption or Disruption.none(len(view.bundles)),
        )


class Shedder(Protocol):
    """A shedding strategy, which chooses the bundles that should leave brokers."""

    def __call__(self, context: ShedContext[Any, Any], /) -> tuple[Unloads, object]:
        """Return the proposals and the new memory."""
        ...


class MoveLearner(Protocol):
    """A function that is called in every round in which moves were confirmed."""

    def __call__(self, unserved_ms: Sequence[int], memory: Any, /) -> object:
        """Return the new memory. `unserved_ms`: the time that each moved bundle was unassigned."""
        ...


class PlanForgetter(Protocol):
    """A function that is called after a pass whose moves wait for approval.

    The shedder runs again in the meantime.
    """

    def __call__(self, before: Any, after: Any, /) -> object:
        """Return the new memory. `before`, `after`: the memory before the pass and after it."""
        ...


class PassEnder(Protocol):
    """A function that is called after each pass, once its moves have been decided."""

    def __call__(self, config: Any, memory: Any, /) -> object:
        """Return the new memory, without what counts in the pass only."""
        ...


class ReportObserver(Protocol):
    """A function that is called in every round, with the view as reported."""

    def __call__(self, view: ClusterView, config: Any, memory: Any, /) -> object:
        """Return the new memory."""
        ...


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of a shedder, for the round. The defaults fit those of the modular manager."""

    # The load manager that the shedder belongs to; any: the modular and the extensible one.
    manager: Literal["modular", "simple", "extensible", "any"] = "modular"
    # Its proposals have destinations; else placement chooses them.
    chooses_destination: bool = False
    # Its view includes the decisions of the same round; else only those of earlier rounds.
    sees_own_decisions: bool = False
    # A pass runs with every new report, whatever the shedding interval.
    paces_itself: bool = False
    observe: ReportObserver | None = None
    learn_moves: MoveLearner | None = None
    end_pass: PassEnder | None = None  # None: nothing of the memory counts in a pass only
    forget_plan: PlanForgetter | None = None  # None: the memory holds nothing of decisions
    # Memory → smoothed usage of each broker, which placement reads.
    loads: Callable[[Any], Mapping[str, float]] | None = None
    # Config → whether the shedder itself proposes the splits that an even load needs.
    plans_splits: Callable[[Any], bool] = lambda _config: False
    # Settings with which the shedder acts in a single pass, without the memory of earlier ones.
    no_wait_settings: Mapping[str, object] = field(default_factory=dict)


def traits_of(strategy: Strategy[Shedder]) -> Traits:
    """Return the traits of a registered shedder."""
    return strategy.traits if isinstance(strategy.traits, Traits) else Traits()


shedder: Registry[Shedder] = Registry("shedding", "lb_stream.shedders")


def rows_by_broker(view: ClusterView, brokers: Rows, eligible: Bools) -> dict[int, Rows]:
    """Map each of the brokers to its eligible bundles, in the order of their rows. O(bundles)."""
    owner = view.bundles.owner
    rows = np.flatnonzero(_owned_by(owner, brokers, len(view.brokers)) & eligible)
    # numpy sorts numbers of 16 bits by radix: ten times as fast.
    number = owner[rows].astype(np.int16 if len(view.brokers) < 2**15 else np.int32, copy=False)
    order = np.argsort(number, kind="stable")
    rows, number = rows[order], number[order]
    ends = np.searchsorted(number, brokers, side="right").tolist()
    starts = np.searchsorted(number, brokers, side="left").tolist()
    return {
        broker: rows[start:end]
        for broker, start, end in zip(brokers.tolist(), starts, ends, strict=True)
    }


def _owned_by(owner: NDArray[np.int32], brokers: Rows, count: int) -> Bools:
    """Return which bundles belong to one of these brokers, of `count` in all."""
    if len(brokers) <= FEW_BROKERS:
        found = np.zeros(len(owner), np.bool_)
        for broker in brokers.tolist():
            found |= owner == broker
        return found
    wanted = np.zeros(count + 1, np.bool_)  # the last row stands for owner -1
    wanted[brokers] = True
    return wanted.take(owner, mode="wrap")  # half the time of wanted[owner]


FEW_BROKERS = 8
"""The bundles of so many brokers are found by comparing owners with each; else by look-up."""


def heaviest_first(rows: Rows, load: Floats) -> Rows:
    """Sort the rows by load, the heaviest first; equal ones keep their order."""
    order: Rows = rows[np.argsort(-load[rows], kind="stable")]
    return order


def until_enough(rows: Rows, load: Floats, need: float) -> Rows:
    """Return the first rows whose loads together reach `need`; at least one, if there are rows."""
    if not len(rows):
        return rows
    # The loads of earlier rows, added in their order, as in the reference.
    before = np.append(0.0, np.cumsum(load[rows])[:-1])
    taken = before < need
    taken[0] = True
    return rows[: int(np.argmin(taken))] if not taken.all() else rows


@dataclass(frozen=True, slots=True)
class Need:
    """A hot broker, the throughput (bytes/s) that should leave it, and the rule with its ratios."""

    broker: int
    bytes_per_s: float
    rule: Rule
    saw: float
    limit: float
    average: float | None


def too_few_bundles(view: ClusterView, broker: int, bundles: int) -> Refusal | None:
    """Refuse to unload a broker with at most one bundle; None: it has several.

    The overload of a broker with one bundle would move with the bundle.
    """
    if bundles > 1:
        return None
    rule = Refuses.SOLE_BUNDLE if bundles == 1 else Refuses.NO_BUNDLES
    return refusal(rule, view.brokers.names[broker], saw=[bundles], limit=2)


def without_idle(rows: Rows, load: Floats, rules: BundleRules) -> Rows:
    """Return the bundles that are not idle, or all with `unload_idle_bundles`."""
    return rows if rules.unload_idle_bundles else rows[load[rows] >= MIN_LOAD]


def explain_none_chosen(
    view: ClusterView, broker: int, rows: Rows, load: Floats, most: float, unit: str
) -> Refusal:
    """Explain why none of a broker's eligible bundles (`rows`) was chosen.

    The broker has none, all are idle, or each carries more than `most`. Loads are in `unit`.
    """
    name, busy = view.brokers.names[broker], rows[load[rows] >= MIN_LOAD]
    if not len(rows):
        return refusal(Refuses.NO_ELIGIBLE_BUNDLE, name, saw=[0], limit=1)
    if not len(busy):
        return refusal(Refuses.IDLE_BUNDLES, name, saw=load[rows], limit=MIN_LOAD, unit=unit)
    names = view.bundles.names.take(busy).to_pylist()
    return refusal(Refuses.NO_FITTING_BUNDLE, name, names, saw=load[busy], limit=most, unit=unit)


def shed_throughput(
    view: ClusterView,
    needs: Sequence[Need],
    eligible: Bools,
    disruption: Disruption | None = None,
    rules: BundleRules | None = None,
) -> tuple[list[Unload], list[Refusal]]:
    """Choose each broker's heaviest bundles by short-term throughput until its need is met.

    At least one bundle of a need is chosen if any may move. All moves together stay within the
    budgets of `disruption`. A broker with one bundle keeps it. Idle bundles stay, unless `rules`
    unload them.
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
        # The broker's heaviest bundles within the budgets, or a refusal.
        if (too_few := too_few_bundles(view, need.broker, int(counts[need.broker]))) is not None:
            refusals.append(too_few)
            continue
        within_budget = budgets.within(heaviest_first(rows[need.broker], load))
        busy = without_idle(within_budget, load, rules)
        chosen = until_enough(busy, load, need.bytes_per_s)
        if not len(chosen):
            refusals.append(
                explain_none_chosen(
                    view, need.broker, within_budget, load, need.bytes_per_s, "bytes/s"
                )
            )
            continue
        budgets = budgets.after_moves(chosen)

        # Usage is expected to fall by the same part as throughput.
        throughput = float(view.brokers.latest.throughput[need.broker])
        left = max(0.0, 1.0 - float(np.sum(load[chosen])) / throughput) if throughput > 0 else 1.0
        proposals += [
            Unload(
                bundle=row,
                source=need.broker,
                reason="Overloaded",
                rule=need.rule,
                saw=need.saw,
                limit=need.limit,
                average=need.average,
                expected_after=need.saw * left,
            )
            for row in chosen.tolist()
        ]
    return proposals, refusals
