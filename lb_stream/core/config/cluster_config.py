"""The configuration of one cluster's rounds: strategies, and the settings in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lb_stream.contracts.balancer import BalancerConfig, NamespaceConfig
from lb_stream.contracts.keys import KeyModel
from lb_stream.core.model.rates import FoldConfig
from lb_stream.core.model.registry import Strategy
from lb_stream.core.placement.base import Placement
from lb_stream.core.shedding.base import Shedder, traits_of
from lb_stream.core.splitting import Algorithms, SplittingConfig


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The strategies and settings in force, overrides included. `settings.resolve` builds it."""

    balancer: BalancerConfig
    shedder: Strategy[Shedder]
    shedder_config: KeyModel
    placement: Strategy[Placement]
    placement_config: KeyModel
    splitting: SplittingConfig
    split_algorithms: Algorithms
    namespaces: Mapping[str, NamespaceConfig] = field(default_factory=dict)  # with own settings

    @property
    def plans_splits(self) -> bool:
        """Return whether the shedder itself proposes the splits that an even load needs."""
        plans = traits_of(self.shedder).plans_splits
        return self.balancer.shedding_enabled and plans(self.shedder_config)

    @property
    def leaves_splits_to_plan(self) -> bool:
        """Return whether limits such as `bundle_max_topics` split no bundle, as a plan does."""
        return self.splitting.split_by_limits == "unless_planned" and self.plans_splits

    @property
    def fold(self) -> FoldConfig:
        """Return the settings of the averages."""
        own = self.balancer
        return FoldConfig(
            own.short_samples,
            own.long_samples,
            own.bundle_retention_ms,
            own.broker_retention_ms,
            own.sample_mode,
            own.pulsar_names,
        )
