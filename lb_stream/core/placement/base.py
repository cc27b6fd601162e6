"""The parts of all placement strategies: context, working columns, result, registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from lb_stream.core.model.chance import draw, draw_number
from lb_stream.core.model.registry import Registry
from lb_stream.core.model.resources import max_weighted_usage
from lb_stream.core.model.view import ClusterView, Floats, Ints, Rows, average_broker


@dataclass(slots=True)
class Targets:
    """The brokers' loads while one round places bundles: each choice counts in the next ones.

    Columns have a row for each broker. Mutable: it lives within one `decide`.
    """

    view: ClusterView
    seed: int | None  # of the round; None: no chance, the first candidate is drawn
    usage: Floats  # ratio
    load: Floats  # smoothed usage, which the extensible manager follows; NaN: not known
    long_rate: Floats  # long-term messages/s
    topics: Ints
    placed: list[tuple[int, int]] = field(default_factory=list)  # (bundle, destination), in order
    _arrived: dict[str, Floats] = field(default_factory=dict)  # resource → what choices add
    _left: dict[str, Floats] = field(default_factory=dict)  # resource → what choices take away
    _own_bundles: Ints | None = None  # computed when it is first needed
    # The average broker's throughput and use of each resource, computed when it is first needed.
    _average: tuple[float, dict[str, float]] | None = None

    @staticmethod
    def from_view(view: ClusterView, seed: int | None = 0) -> Targets:
        """Return the loads before the round's first choice. The view has pending moves applied."""
        brokers = view.brokers
        loads = (
            brokers.usage.copy(),
            brokers.load_ema.copy(),
            brokers.long.rate.copy(),
            brokers.topics.copy(),
        )
        return Targets(view, seed, *loads)

    def reported_own_bundles(self) -> Ints:
        """Return how many bundles each broker has reported, without system bundles it owns.

        The first call takes O(bundles).
        """
        if self._own_bundles is None:
            view = self.view
            system = view.bundle_counts() - view.bundle_counts(system=False)
            self._own_bundles = np.maximum(view.brokers.bundles - system, 0)
        return self._own_bundles

    def draw(self, subject: str, candidates: Rows) -> int:
        """Draw one of the candidates by the round's seed and the subject's name."""
        return int(candidates[0]) if self.seed is None else draw(self.seed, subject, candidates)

    def number(self, subject: str, below: int) -> int:
        """Draw a number 0..below-1 by the round's seed and the subject's name."""
        return 0 if self.seed is None else draw_number(self.seed, subject, below)

    def add(self, bundle: int, destination: int) -> None:
        """Count a bundle at its destination from now on."""
        view, at = self.view, np.array([destination])
        self.placed.append((bundle, destination))
        self.long_rate[destination] += view.bundles.long.take(np.array([bundle])).rate[0]
        self.topics[destination] += view.bundles.topics[bundle]
        source = int(view.bundles.owner[bundle])
        more = float(self.with_bundle(bundle, at)[0] - self.usage[destination])
        self.usage[destination] += more
        self.load[destination] += more
        for name, amount in self._amounts(bundle).items():
            self._arrived.setdefault(name, np.zeros(len(view.brokers)))[destination] += amount
            if source >= 0:
                self._left.setdefault(name, np.zeros(len(view.brokers)))[source] += amount

    def with_bundle(self, bundle: int, rows: Rows) -> Floats:
        """Return the usage that the given brokers would have with the bundle, never less than now.

        This round's choices count.
        """
        return np.maximum(self.usage[rows], self._usage(rows, {}, self._amounts(bundle)))

    def without_bundle(self, bundle: int) -> float:
        """Return the usage of the bundle's broker without it, and without this round's moves."""
        gone = {name: -amount for name, amount in self._amounts(bundle).items()}
        return float(
            self._usage(self.view.bundles.owner[[bundle]].astype(np.intp), self._left, gone)[0]
        )

    def _usage(self, rows: Rows, left: Mapping[str, Floats], more: Mapping[str, float]) -> Floats:
        resources = {}
        for name in self.view.brokers.weights:
            usage, limit = (column[rows] for column in self.view.brokers.resources[name])
            changed: Floats | float = self._arrived[name][rows] if name in self._arrived else 0.0
            if name in left:
                changed = changed - left[name][rows]
            resources[name] = (usage + (changed + more.get(name, 0.0)), limit)
        return max_weighted_usage(resources, self.view.brokers.weights)

    def _amounts(self, bundle: int) -> dict[str, float]:
        """Return what the bundle uses of each resource, by the rule of `resources_used`."""
        brokers, source = self.view.brokers, int(self.view.bundles.owner[bundle])
        if source >= 0:
            carried = sum(brokers.latest.row(source)[:2])
            used = {
                name: max(float(usage[source]), 0.0)
                for name, (usage, _) in brokers.resources.items()
            }
        else:
            self._average = self._average or average_broker(brokers)
            carried, used = self._average
        throughput = sum(self.view.bundles.latest.row(bundle)[:2])
        share = min(throughput / carried, 1.0) if carried > 0 else 0.0
        return {name: share * amount for name, amount in used.items()}


@dataclass(frozen=True, slots=True)
class Best:
    """The result of a placement: the best brokers, among which chance decides, and all scores."""

    rows: Rows  # the best candidates
    scores: Floats  # of each candidate; lower is better, infinite: the strategy refuses it
    unit: str  # of the scores


Config = TypeVar("Config")
Remembered = TypeVar("Remembered")


@dataclass(frozen=True, slots=True)
class PlacementContext(Generic[Config, Remembered]):
    """The input of a placement strategy: one bundle and its candidates."""

    targets: Targets  # the brokers' loads, this round's choices included
    candidates: Rows  # the brokers that the filters leave, in order
    bundle: int  # its row in `targets.view`
    config: Config  # settings, of the model that the strategy was registered with
    memory: Remembered  # result of the last choice


class Placement(Protocol):
    """A placement strategy: which of the candidates are best."""

    def __call__(self, context: PlacementContext[Any, Any], /) -> tuple[Best, object]:
        """Return the best candidates and the new memory."""
        ...


placement: Registry[Placement] = Registry("placement", "lb_stream.placements")
"""Strategies of the modular manager; `placement_strategy` names one."""

simple_placement: Registry[Placement] = Registry("simple placement", "lb_stream.simple_placements")
"""Strategies of the simple manager; `simple_placement_strategy` names one."""

extensible_placement: Registry[Placement] = Registry(
    "extensible placement", "lb_stream.extensible_placements"
)
"""Strategies of the extensible manager. It has a single one, LeastResourceUsageWithWeight."""
