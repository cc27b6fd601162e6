"""The extensible manager's brokers look at their own bundles, and ask for splits of those that stay
too large.

See docs/splitting.md "Splitting".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from lb_stream.agent.adapter import MeasuringAdapter
from lb_stream.contracts.reports import SplitAsk
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.splitting import (
    Algorithms,
    OwnBundles,
    SplitLoads,
    SplitMemory,
    SplittingConfig,
    split_strategy,
)
from lb_stream.core.splitting.trigger import REASONS, ReasonLimits


class SplitWatch:
    """Looks at one broker's bundles again and again.

    The balancer decides: it knows the other bundles and splits under way.
    """

    def __init__(self, config: SplittingConfig, algorithms: Algorithms) -> None:
        self._config, self._algorithms, self._memory = config, algorithms, SplitMemory()

    @staticmethod
    def for_cluster(config: ClusterConfig) -> Callable[[], SplitWatch] | None:
        """Makes one for each broker of a cluster whose brokers do this; None: its leader looks."""
        if config.balancer.load_manager != "extensible" or not config.splitting.split_enabled:
            return None
        return lambda: SplitWatch(config.splitting, config.split_algorithms)

    @property
    def interval_s(self) -> float:
        """Time between two looks."""
        return self._config.split_interval_ms / 1000

    def look(self, broker: MeasuringAdapter) -> list[SplitAsk]:
        """The splits to ask for now."""
        stats = dict(sorted(broker.stats().items()))
        every = list(stats.values())
        loads = SplitLoads(
            topics=np.array([stats.topics for stats in every], np.int64),
            sessions=np.array([one.producer_count + one.consumer_count for one in every], np.int64),
            rate=np.array([stats.msg_rate_in + stats.msg_rate_out for stats in every], np.float64),
            throughput=np.array(
                [stats.msg_throughput_in + stats.msg_throughput_out for stats in every], np.float64
            ),
        )
        own = OwnBundles(
            pa.array(list(stats), pa.string()),
            loads,
            np.ones(len(every), np.bool_),
            {},
            (),
            broker.topics,
        )
        found, self._memory = split_strategy(own, self._config, self._algorithms, self._memory)
        limits, rows = (
            ReasonLimits.from_config(self._config),
            {name: row for row, name in enumerate(stats)},
        )
        algorithm = self._algorithms.named().name
        return [
            SplitAsk(
                bundle=choice.bundle,
                reason=choice.reason,
                boundaries=list(choice.cut.boundaries),
                algorithm=algorithm,
                saw=loads.saw(rows[choice.bundle], REASONS.index(choice.reason)),
                limit=limits[REASONS.index(choice.reason)],
            )
            for choice in found.choices
        ]
