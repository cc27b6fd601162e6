"""Who may take a bundle at all, before any strategy ranks them. See docs/placement.md "Filters"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

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
from lb_stream.core.model.names import BOUND_LENGTH, RANGE_LENGTH, Overlaps, namespace_of
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Rule
from lb_stream.core.model.view import ClusterView, Rows
from lb_stream.core.placement.base import Targets

NEVER_OLD_MS = 2**63 - 1

Steps = tuple[tuple[str, Rows, Rows], ...]
"""Filter, the brokers (rows) before and after it, for each filter that removed a broker."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Who may take a bundle: rows of brokers in order."""

    kept: Rows  # what all filters leave
    allowed: Rows  # all that policies allow
    steps: Steps  # the way to `kept`
    policy_steps: Steps  # the way to `allowed`


@dataclass(slots=True)
class Candidates:
    """The filter pipeline of one round.

    What filters need to know is found out when the first bundle is placed.
    """

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
        """The candidates for a bundle, in the order of its manager's filters."""
        asked = self._asked(bundle, targets)
        rows = asked.rows
        match self.config.load_manager:
            case "extensible":
                return self._extensible(rows, asked)
            case "simple":
                return self._simple(rows, asked)
            case _:
                return self._modular(rows, asked)

    def allowed_by_rules(self, bundle: int, targets: Targets) -> tuple[Rows, Steps]:
        """The brokers that the rules allow for a bundle.

        All filters are rules except even distribution, which is a wish.

        A filter that fails or leaves no broker doesn't count, but policies do. A bundle that has a
        broker goes to none that serves more of its anti-affinity group's other namespaces than that
        one.
        """
        asked = self._asked(bundle, targets)
        rows, steps = _filtered(self._policies, asked.rows, asked)
        for other in self._others:
            if isinstance(other, EvenDistribution):
                continue
            try:
                kept, more = _filtered((other,), rows, asked)
            except FilterError as error:
                self._note(error.rule, error.brokers)
                continue
            rows, steps = (kept, steps + more) if len(kept) else (rows, steps)
        others, owner = self.census.of_others(asked.namespace), int(self.view.bundles.owner[bundle])
        if others is None or owner < 0:
            return rows, steps
        apart = rows[others[rows] <= others[owner]]
        return apart, steps if len(apart) == len(rows) else (
            *steps,
            (AntiAffinity.rule.name, rows, apart),
        )

    def prefer_even(self, bundle: int, rows: Rows, targets: Targets) -> tuple[Rows, Steps]:
        """Those of the given brokers that even distribution prefers."""
        asked = self._asked(bundle, targets)
        return _filtered(
            [other for other in self._others if isinstance(other, EvenDistribution)], rows, asked
        )

    def allowed(self, bundle: int, targets: Targets) -> Rows:
        """All brokers that policies allow."""
        asked = self._asked(bundle, targets)  # makes the filters when it is the first
        return _filtered(self._policies, asked.rows, asked)[0]

    def matches_none(self, bundle: int) -> bool:
        """Whether the bundle's isolation policy matches no broker that lives and speaks."""
        namespace = namespace_of(self.view.bundles.name(bundle))
        return Isolation(self.view).matches_none(namespace, self._reachable())

    def refused_by(self, bundle: int, broker: int, targets: Targets) -> str | None:
        """The policy that doesn't allow a broker to have a bundle, if any."""
        asked = self._asked(bundle, targets)
        _, steps = _filtered(self._policies, asked.rows, asked)
        return next(
            (
                name
                for name, before, after in steps
                if (before == broker).any() and not (after == broker).any()
            ),
            None,
        )

    def unload_helps(self, bundle: int, current: int, allowed: Rows) -> bool:
        """Whether an unload of the bundle leaves its anti-affinity group no closer together.

        True for a bundle without a group.
        """
        namespace = namespace_of(self.view.bundles.name(bundle))
        if self.census.own_counts:
            return unload_helps(self.census.of_group(namespace), allowed, current)
        return stays_apart(self.census.of_others(namespace), allowed, current)

    def add(self, bundle: int, destination: int) -> None:
        """Count a bundle at its destination from now on, and at its source no more."""
        self.census.add(bundle, destination)

    def _reachable(self) -> Rows:
        rows: Rows = np.flatnonzero(self.view.brokers.reachable)
        return rows

    def _asked(self, bundle: int, targets: Targets) -> FilterContext:
        if not self._policies:
            self._policies, self._others = self._pipeline()
        return FilterContext(
            self._reachable(), bundle, namespace_of(self.view.bundles.name(bundle)), targets.topics
        )

    def _pipeline(self) -> tuple[tuple[Filter, ...], tuple[Filter, ...]]:
        """The filters for policies and the others, each in the manager's order."""
        view, config, census = self.view, self.config, self.census
        isolation = Isolation(view)
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

    def _modular(self, rows: Rows, asked: FilterContext) -> Pool:
        """Policies, then the others.

        When the step for topics leaves no broker, it is undone. When the last step leaves none or
        fails, all are undone.
        """
        allowed, policy_steps = _filtered(self._policies, rows, asked)
        first, *rest = self._others
        few_topics, topics_step = _filtered((first,), allowed, asked)
        if not len(few_topics):
            few_topics, topics_step = allowed, ()
        try:
            kept, steps = _filtered(rest, few_topics, asked)
        except FilterError as error:
            self._note(error.rule, error.brokers)
            kept, steps = allowed[:0], ()
        if not len(kept):
            return Pool(allowed, allowed, policy_steps, policy_steps)
        return Pool(kept, allowed, policy_steps + topics_step + steps, policy_steps)

    def _simple(self, rows: Rows, asked: FilterContext) -> Pool:
        allowed, policy_steps = _filtered(self._policies, rows, asked)
        kept, steps = _filtered(self._others, allowed, asked)
        return Pool(kept, allowed, policy_steps + steps, policy_steps)

    def _extensible(self, rows: Rows, asked: FilterContext) -> Pool:
        """A filter that fails removes no broker; an empty result stays empty.

        Policies come after what brokers say of themselves: a full primary isn't available. They
        come before anti-affinity, whose favourite could be one that they forbid; last in the
        reference.
        """
        steps: Steps = ()
        kept = rows
        drained, *policies = self._policies
        others, apart = list(self._others), list[Filter]()
        if not self.census.own_counts:
            apart = [other for other in others if isinstance(other, AntiAffinity | FailureDomain)]
            others = [other for other in others if other not in apart]
        for other in (drained, *others, *policies, *apart):
            try:
                kept, more = _filtered((other,), kept, asked)
            except FilterError as error:
                self._note(error.rule, error.brokers)
                continue
            steps += more
        return Pool(kept, rows, steps, ())

    def _note(self, rule: Rule, brokers: Rows) -> None:
        """A filter that failed is a refusal row, once in a round."""
        if not any(earlier.rule == rule.name for earlier in self.refusals) and len(brokers):
            self.refusals.append(
                refusal(rule, None, [self.view.brokers.names[row] for row in brokers.tolist()])
            )


def _filtered(filters: Iterable[Filter], rows: Rows, asked: FilterContext) -> tuple[Rows, Steps]:
    """What the filters leave one after another, and the steps on the way."""
    steps = []
    if rows is not asked.rows:
        asked = replace(asked, rows=rows)
    for filter_ in filters:
        kept = filter_.keep(asked)
        if len(kept) < len(asked.rows):
            steps.append((filter_.rule.name, asked.rows, kept))
            asked = replace(asked, rows=kept)
    return asked.rows, tuple(steps)


def superseded(view: ClusterView, rows: Iterable[int]) -> set[int]:
    """Those of the given unowned bundles that were split or merged, not orphaned.

    That is, whose range overlaps a bundle of the namespace that has an owner, or one that a later
    report has named, or is that of smaller ones which the same report has named: the children of a
    split may have lost their owner as well.
    """
    return set(newer_beside(view, rows))


def newer_beside(view: ClusterView, rows: Iterable[int]) -> dict[int, int]:
    """Find the superseded among unowned bundles → when the newest that overlaps it was named last.

    Times are in ms since the epoch; NEVER_OLD_MS: that one has an owner.
    """
    found: dict[int, int] = {}
    current: dict[str, Overlaps] = {}
    for row in rows:
        name = view.bundles.name(row)
        namespace = namespace_of(name)
        if namespace not in current:
            current[namespace] = Overlaps(np.array(list(ranges(view, namespace)), np.int64))
        ends, at_ms = _bounds(name), int(view.bundles.reported_ms[row])
        if current[namespace].is_replaced(*ends, at_ms):
            found[row] = current[namespace].newest(*ends)
    return found


def find_superseded(unowned: Mapping[str, int], served: Iterable[str]) -> set[str]:
    """The same of names. `unowned`: bundle → when it lost its owner; `served`: the owned ones."""
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
    """(lower, upper, when last named) of each bundle of the namespace; an owned one counts as named
    for ever."""
    bundles = view.bundles
    mine = bundles.rows_of_namespace(namespace)
    named_ms = np.where(bundles.owner[mine] >= 0, NEVER_OLD_MS, bundles.reported_ms[mine]).tolist()
    for name, at_ms in zip(bundles.names[mine].to_pylist(), named_ms, strict=True):
        yield *_bounds(name), at_ms


def _bounds(name: str) -> tuple[int, int]:
    return int(name[1 - RANGE_LENGTH : -1 - BOUND_LENGTH], 16), int(name[-BOUND_LENGTH:], 16)
