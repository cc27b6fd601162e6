"""Candidates: the brokers that may take a bundle. See docs/placement.md "Filters"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.core.filters import (
    AntiAffinity,
    Census,
    Drained,
    EvenDistribution,
    FailureDomain,
    Filter,
    FilterContext,
    FilterError,
    Isolation,
    LaterVersion,
    LoadManagerClass,
    MaxTopics,
    TopicKind,
    stays_apart,
    unload_helps,
)
from lb_stream.core.filters.census import Counted
from lb_stream.core.model.names import (
    BOUND_LENGTH,
    RANGE_LENGTH,
    Overlaps,
    namespace_of,
    parse_hex,
    read_bounds,
)
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Rule
from lb_stream.core.model.view import ClusterView, Rows
from lb_stream.core.placement.base import Targets

NEVER_OLD_MS = 2**63 - 1
"""Stands for the time of the last report of a bundle that has an owner."""

Steps = tuple[tuple[str, Rows, Rows], ...]
"""(rule, brokers before, brokers after) of each filter that removed a broker."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates for one bundle: rows of brokers in order."""

    kept: Rows  # the brokers that all filters leave
    allowed: Rows  # all brokers that policies allow
    steps: Steps  # from all reachable brokers to `kept`
    policy_steps: Steps  # from all reachable brokers to `allowed`


@dataclass(slots=True)
class Candidates:
    """The filters of one round, in their load manager's order. The first bundle builds them."""

    view: ClusterView
    config: BalancerConfig
    refusals: list[Refusal] = field(default_factory=list)
    census: Census = field(init=False)
    _policies: tuple[Filter, ...] = ()
    _others: tuple[Filter, ...] = ()

    def __post_init__(self) -> None:
        counted: Counted = "bundles" if self.config.load_manager == "extensible" else "namespaces"
        self.census = Census(self.view, counted, self.config.anti_affinity_counts == "group")

    def pool_for(self, bundle: int, targets: Targets) -> Pool:
        """Return the candidates for a bundle, by the filters of the cluster's load manager."""
        context = self._context(bundle, targets)
        match self.config.load_manager:
            case "extensible":
                return self._extensible(context)
            case "simple":
                return self._simple(context)
            case _:
                return self._modular(context)

    def allowed_by_rules(self, bundle: int, targets: Targets) -> tuple[Rows, Steps]:
        """Return the brokers that the rules allow for a bundle.

        Every filter is a rule, except even distribution, which is a preference. A filter that fails
        or leaves no broker is skipped; policies are not. An owned bundle goes to no broker that
        serves more of its anti-affinity group's other namespaces than its owner does.
        """
        # Policies, then the other rules.
        context = self._context(bundle, targets)
        rows, steps = _apply(self._policies, context.rows, context)
        for filter_ in self._others:
            if isinstance(filter_, EvenDistribution):
                continue
            try:
                kept, more = _apply((filter_,), rows, context)
            except FilterError as error:
                self._refuse_once(error.rule, error.brokers)
                continue
            if len(kept):
                rows = kept
                steps += more

        # The group is not brought closer together.
        others = self.census.of_others(context.namespace)
        owner = int(self.view.bundles.owner[bundle])
        if others is None or owner < 0:
            return rows, steps
        apart = rows[others[rows] <= others[owner]]
        if len(apart) < len(rows):
            steps = (*steps, (AntiAffinity.rule.name, rows, apart))
        return apart, steps

    def prefer_even(self, bundle: int, rows: Rows, targets: Targets) -> tuple[Rows, Steps]:
        """Return those of the given brokers that even distribution prefers."""
        context = self._context(bundle, targets)
        even = [filter_ for filter_ in self._others if isinstance(filter_, EvenDistribution)]
        return _apply(even, rows, context)

    def allowed(self, bundle: int, targets: Targets) -> Rows:
        """Return all brokers that policies allow."""
        context = self._context(bundle, targets)
        return _apply(self._policies, context.rows, context)[0]

    def matches_none(self, bundle: int) -> bool:
        """Return whether the bundle's isolation policy matches no reachable broker."""
        namespace = namespace_of(self.view.bundles.name(bundle))
        isolation = Isolation(self.view, self.config.isolation_by_port)
        return isolation.matches_none(namespace, self._reachable())

    def find_refusing_policy(self, bundle: int, broker: int, targets: Targets) -> str | None:
        """Return the rule of the policy that keeps a broker from a bundle; None: it may have it."""
        context = self._context(bundle, targets)
        _, steps = _apply(self._policies, context.rows, context)
        for rule, before, after in steps:
            if (before == broker).any() and not (after == broker).any():
                return rule
        return None

    def unload_helps(self, bundle: int, current: int, allowed: Rows) -> bool:
        """Return whether an unload of the bundle brings its anti-affinity group no closer together.

        True for a bundle without a group.
        """
        namespace = namespace_of(self.view.bundles.name(bundle))
        if self.census.own_counts:
            return unload_helps(self.census.of_group(namespace), allowed, current)
        return stays_apart(self.census.of_others(namespace), allowed, current)

    def use_policies(self, view: ClusterView) -> None:
        """Filter by the policies of this view from now on; else it is as the one before."""
        self.view, self._policies, self._others = view, (), ()

    def add(self, bundle: int, destination: int) -> None:
        """Count a bundle at its destination from now on, and no longer at its source."""
        self.census.add(bundle, destination)

    def _reachable(self) -> Rows:
        rows: Rows = np.flatnonzero(self.view.brokers.reachable)
        return rows

    def _context(self, bundle: int, targets: Targets) -> FilterContext:
        """Return the input of the first filter for a bundle. Builds the filters the first time."""
        if not self._policies:
            self._policies, self._others = self._build_filters()
        namespace = namespace_of(self.view.bundles.name(bundle))
        return FilterContext(self._reachable(), bundle, namespace, targets.topics)

    def _build_filters(self) -> tuple[tuple[Filter, ...], tuple[Filter, ...]]:
        """Return the filters for policies and the other filters, in the manager's order."""
        view, config, census = self.view, self.config, self.census
        isolation = Isolation(view, config.isolation_by_port)
        policies: tuple[Filter, ...] = (Drained(view), TopicKind(view, isolation), isolation)
        if config.load_manager == "simple":
            return policies, (EvenDistribution(census, everywhere=True),)
        group: tuple[Filter, ...] = (AntiAffinity(census),)
        if config.failure_domains_enabled:
            group = (FailureDomain(view, census), *group)
        own_class = LoadManagerClass(view, config.load_manager)
        version = (LaterVersion(view),) if config.prefer_later_versions else ()
        if config.load_manager == "extensible":
            return policies, (
                own_class,
                MaxTopics(config.broker_max_topics, strict=True),
                *version,
                *group,
            )
        even = EvenDistribution(census, everywhere=config.distribute_bundles_evenly)
        return policies, (
            MaxTopics(config.broker_max_topics, strict=False),
            *group,
            even,
            own_class,
            *version,
        )

    def _modular(self, context: FilterContext) -> Pool:
        """Apply the policies, the limit of topics, then the other filters.

        If the limit of topics leaves no broker, it is skipped. If the other filters leave none, or
        one fails, all but the policies are skipped.
        """
        allowed, policy_steps = _apply(self._policies, context.rows, context)
        max_topics, *rest = self._others
        few_topics, topics_step = _apply((max_topics,), allowed, context)
        if not len(few_topics):
            few_topics, topics_step = allowed, ()
        try:
            kept, steps = _apply(rest, few_topics, context)
        except FilterError as error:
            self._refuse_once(error.rule, error.brokers)
            kept, steps = allowed[:0], ()
        if not len(kept):
            return Pool(allowed, allowed, policy_steps, policy_steps)
        return Pool(kept, allowed, policy_steps + topics_step + steps, policy_steps)

    def _simple(self, context: FilterContext) -> Pool:
        """Apply the policies, then the other filters."""
        allowed, policy_steps = _apply(self._policies, context.rows, context)
        kept, steps = _apply(self._others, allowed, context)
        return Pool(kept, allowed, policy_steps + steps, policy_steps)

    def _extensible(self, context: FilterContext) -> Pool:
        """Apply all filters; one that fails is skipped, and an empty result stays empty.

        Policies follow the filters by what brokers report: a full primary is not available.
        Anti-affinity follows the policies, which may forbid the broker that it prefers. In the
        reference it comes before them.
        """
        steps: Steps = ()
        kept = context.rows
        drained, *policies = self._policies
        others, apart = list(self._others), list[Filter]()
        if not self.census.own_counts:
            apart = [other for other in others if isinstance(other, AntiAffinity | FailureDomain)]
            others = [other for other in others if other not in apart]
        for filter_ in (drained, *others, *policies, *apart):
            try:
                kept, more = _apply((filter_,), kept, context)
            except FilterError as error:
                self._refuse_once(error.rule, error.brokers)
                continue
            steps += more
        return Pool(kept, context.rows, steps, ())

    def _refuse_once(self, rule: Rule, brokers: Rows) -> None:
        """Add a refusal about a filter that failed, once in a round."""
        if not any(earlier.rule == rule.name for earlier in self.refusals) and len(brokers):
            names = [self.view.brokers.names[row] for row in brokers.tolist()]
            self.refusals.append(refusal(rule, None, names))


def _apply(filters: Iterable[Filter], rows: Rows, context: FilterContext) -> tuple[Rows, Steps]:
    """Apply filters in order; return the brokers that are left, and the steps."""
    steps = []
    if rows is not context.rows:
        context = replace(context, rows=rows)
    for filter_ in filters:
        kept = filter_.keep(context)
        if len(kept) < len(context.rows):
            steps.append((filter_.rule.name, context.rows, kept))
            context = replace(context, rows=kept)
    return context.rows, tuple(steps)


def superseded(view: ClusterView, rows: Iterable[int]) -> set[int]:
    """Return those of the given unassigned bundles that were split or merged.

    The range of such a bundle overlaps an owned bundle, or a bundle that a later report names, or
    it equals smaller bundles that the same report names: a split's children may have lost their
    owner too.
    """
    return set(newer_beside(view, rows))


def newer_beside(view: ClusterView, rows: Iterable[int]) -> dict[int, int]:
    """Map superseded bundles (of `rows`) to when the newest overlapping bundle was last named.

    Times are ms since the epoch; NEVER_OLD_MS: the overlapping bundle has an owner.
    """
    found: dict[int, int] = {}
    names = {row: view.bundles.name(row) for row in rows}
    current = _overlaps_of(view, map(namespace_of, names.values()))
    for row, name in names.items():
        beside = current[namespace_of(name)]
        ends, at_ms = _bounds(name), int(view.bundles.reported_ms[row])
        if beside.is_replaced(*ends, at_ms):
            found[row] = beside.newest(*ends)
    return found


def _overlaps_of(view: ClusterView, namespaces: Iterable[str]) -> dict[str, Overlaps]:
    """Return the ranges of the bundles of each of these namespaces, with times as in `ranges`."""
    bundles = view.bundles
    rows_of = {name: bundles.rows_of_namespace(name) for name in dict.fromkeys(namespaces)}
    if not rows_of:
        return {}
    rows = np.concatenate([np.arange(mine.start, mine.stop) for mine in rows_of.values()])
    lower, upper = map(parse_hex, read_bounds(bundles.names, rows))
    named_ms = np.where(bundles.owner[rows] >= 0, NEVER_OLD_MS, bundles.reported_ms[rows])
    sizes = [mine.stop - mine.start for mine in rows_of.values()]
    each = np.split(np.stack([lower, upper, named_ms], 1), np.cumsum(sizes[:-1]))
    return {name: Overlaps(own) for name, own in zip(rows_of, each, strict=True)}


def find_superseded(unowned: Mapping[str, int], served: Iterable[str]) -> set[str]:
    """Return the names of unassigned bundles that were split or merged, as `superseded` does.

    `unowned`: bundle → when it lost its owner, ms; `served`: owned bundles.
    """
    named: dict[str, list[tuple[int, int, int]]] = {namespace_of(name): [] for name in unowned}
    for name in served:
        if (namespace := namespace_of(name)) in named:
            named[namespace].append((*_bounds(name), NEVER_OLD_MS))
    for name, at_ms in unowned.items():
        named[namespace_of(name)].append((*_bounds(name), at_ms))
    current = {name: Overlaps(np.array(sorted(rows), np.int64)) for name, rows in named.items()}
    return {
        name
        for name, at_ms in unowned.items()
        if current[namespace_of(name)].is_replaced(*_bounds(name), at_ms)
    }


def ranges(view: ClusterView, namespace: str) -> Iterator[tuple[int, int, int]]:
    """Yield (lower, upper, when last named) of each bundle of a namespace.

    The time of an owned bundle is NEVER_OLD_MS.
    """
    bundles = view.bundles
    mine = bundles.rows_of_namespace(namespace)
    named_ms = np.where(bundles.owner[mine] >= 0, NEVER_OLD_MS, bundles.reported_ms[mine]).tolist()
    for name, at_ms in zip(bundles.names[mine].to_pylist(), named_ms, strict=True):
        yield *_bounds(name), at_ms


@lru_cache(maxsize=1 << 14)
def _bounds(name: str) -> tuple[int, int]:
    return int(name[1 - RANGE_LENGTH : -1 - BOUND_LENGTH], 16), int(name[-BOUND_LENGTH:], 16)
