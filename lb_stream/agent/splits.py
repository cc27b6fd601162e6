"""Finds bundles that stay too large at the extensible manager's brokers, to request splits.

Source: docs/splitting.md "Splitting".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np

from lb_stream.agent.adapter import LimitedCutsAdapter, MeasuredBundles
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

log = logging.getLogger(__name__)


class SplitWatch:
    """Looks for bundles of one broker that are to be split.

    The balancer decides about these requests: it knows all bundles and pending splits.
    """

    def __init__(self, config: SplittingConfig, algorithms: Algorithms) -> None:
        self._config = config
        self._algorithms = algorithms
        self._memory = SplitMemory()
        self._can_look: bool | None = None

    @staticmethod
    def for_cluster(config: ClusterConfig) -> Callable[[], SplitWatch] | None:
        """Return a maker of watches for a cluster's brokers; None: its leader looks instead."""
        splits = config.splitting.split_enabled and not config.leaves_splits_to_plan
        if config.balancer.load_manager != "extensible" or not splits:
            return None
        return lambda: SplitWatch(config.splitting, config.split_algorithms)

    @property
    def interval_s(self) -> float:
        """Seconds between two looks."""
        return self._config.split_interval_ms / 1000

    def find_splits(self, broker: MeasuredBundles) -> list[SplitAsk]:
        """Return the splits to request now; none where pyarrow is not installed."""
        # The bundles' latest loads, in the order of their names.
        named = dict(sorted(broker.stats().items()))
        if not named or not self._has_arrow():
            self._memory = SplitMemory()
            return []
        import pyarrow as pa  # noqa: PLC0415

        bundles = list(named.values())
        loads = SplitLoads(
            topics=np.array([stats.topics for stats in bundles], np.int64),
            sessions=np.array(
                [stats.producer_count + stats.consumer_count for stats in bundles], np.int64
            ),
            rate=np.array(
                [stats.msg_rate_in + stats.msg_rate_out for stats in bundles], np.float64
            ),
            throughput=np.array(
                [stats.msg_throughput_in + stats.msg_throughput_out for stats in bundles],
                np.float64,
            ),
        )

        # The same strategy as the leader's, with this broker's bundles only.
        own = OwnBundles(
            pa.array(list(named), pa.string()),
            loads,
            np.ones(len(bundles), np.bool_),
            {},
            (),
            broker.topics,
        )
        found, self._memory = split_strategy(own, self._config, self._algorithms, self._memory)
        limits = ReasonLimits.from_config(self._config)
        rows = {name: row for row, name in enumerate(named)}
        algorithm = self._algorithms.named().name
        return [
            SplitAsk(
                bundle=choice.bundle,
                reason=choice.reason,
                boundaries=_limit_cut(broker, choice.bundle, choice.cut.boundaries),
                algorithm=algorithm,
                saw=loads.saw(rows[choice.bundle], REASONS.index(choice.reason)),
                limit=limits[REASONS.index(choice.reason)],
            )
            for choice in found.choices
        ]

    def _has_arrow(self) -> bool:
        """Return whether Arrow's library is there; the first time that it isn't is logged."""
        if self._can_look is None:
            try:
                import pyarrow  # noqa: F401, PLC0415

                self._can_look = True
            except ImportError as error:
                log.error(
                    "no splits are requested: the search for bundles that are too large needs "
                    "pyarrow; install it, or set split_enabled = false (%s)",
                    error,
                )
                self._can_look = False
        return self._can_look


def _limit_cut(broker: MeasuredBundles, bundle: str, boundaries: Sequence[int]) -> list[int]:
    """Return the boundaries, or where the broker can cut the bundle instead."""
    if isinstance(broker, LimitedCutsAdapter):
        return list(broker.feasible_cut(bundle, boundaries))
    return list(boundaries)
