"""What an extensible manager's broker reports: its smoothed load, load data and top bundles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lb_stream.contracts.base import RESOURCES
from lb_stream.contracts.reports import (
    BrokerLoadReport,
    BundleStats,
    ModularLoadReport,
    TopBundle,
    TopBundlesReport,
)
from lb_stream.core.model.names import is_system_bundle
from lb_stream.core.model.resources import max_weighted_usage
from lb_stream.core.model.view import Rates
from lb_stream.core.shedding.broker_loads import ASSUMED_FULL, UNWEIGHTED, BrokerLoads
from lb_stream.core.shedding.top_bundles import reported_top

FOUR = ("msg_throughput_in", "msg_throughput_out", "msg_rate_in", "msg_rate_out")


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The smoothed load of one broker."""

    max_usage: float = ASSUMED_FULL  # of the last sample, without weights
    load: float = ASSUMED_FULL
    throughput: float = 0.0
    updated_ms: int = 0  # 0: no sample yet

    def updated(
        self,
        resources: Mapping[str, tuple[float, float]],
        throughput: float,
        weights: Mapping[str, float],
        history: float,
        at_ms: int,
    ) -> BrokerLoad:
        """Return the load with one more sample; `throughput` is in bytes/s.

        `resources` maps all five to (usage, limit), `weights` the counted ones to their weights,
        `history` is the weight of the past (0..1).
        """
        columns = {
            name: (np.array([usage], float), np.array([limit], float))
            for name, (usage, limit) in resources.items()
        }
        before = BrokerLoads(
            np.array([self.load]), np.array([self.throughput]), np.array([self.updated_ms != 0])
        )
        after = before.updated(
            max_weighted_usage(columns, weights),
            np.array([throughput], float),
            history,
            np.ones(1, np.bool_),
        )
        return BrokerLoad(
            float(max_weighted_usage(columns, UNWEIGHTED)[0]),
            float(after.load[0]),
            float(after.throughput[0]),
            at_ms,
        )

    def cleared(self) -> BrokerLoad:
        """Return a load without samples: the broker has gained, released or split a bundle."""
        return BrokerLoad()


def build_load_data(local: ModularLoadReport, load: BrokerLoad, now_ms: int) -> BrokerLoadReport:
    """Return a broker's load data, with the names of all its bundles."""
    return BrokerLoadReport(
        **{name: getattr(local, name) for name in (*RESOURCES, *FOUR)},
        bundle_count=local.num_bundles,
        topics=local.num_topics,
        max_resource_usage=load.max_usage,
        weighted_max_ema=load.load,
        msg_throughput_ema=load.throughput,
        updated_at=load.updated_ms,
        reported_at=now_ms,
        start_timestamp=local.start_timestamp,
        broker_version_string=local.broker_version_string,
        bundles=sorted({*local.bundles, *local.last_stats}),
    )


def smooth_load(
    local: ModularLoadReport,
    before: BrokerLoad,
    weights: Mapping[str, float],
    history_ratio: float,
    now_ms: int,
) -> BrokerLoad:
    """Return the smoothed load with one more report; `history_ratio` is the past's weight, 0..1."""
    resources = {
        name: (getattr(local, name).usage, getattr(local, name).limit) for name in RESOURCES
    }
    return before.updated(
        resources,
        local.msg_throughput_in + local.msg_throughput_out,
        weights,
        history_ratio,
        now_ms,
    )


def build_top_bundles(stats: Mapping[str, BundleStats], most: int) -> TopBundlesReport:
    """Return the `most` busiest bundles of a broker, the least busy of them first.

    System bundles and idle bundles are left out.
    """
    names = sorted(stats)
    columns = {
        field: np.array([getattr(stats[name], field) for name in names], np.float64)
        for field in FOUR
    }
    connections = np.array(
        [
            stats[name].topics + stats[name].consumer_count + stats[name].producer_count
            for name in names
        ],
        np.int64,
    )
    cache_bytes = np.array([stats[name].cache_size for name in names], np.int64)
    allowed = np.array([not is_system_bundle(name) for name in names], np.bool_)
    rows = reported_top(Rates(*columns.values()), connections, cache_bytes, allowed, most)
    return TopBundlesReport(
        top_bundles_load_data=[
            TopBundle(bundle_name=names[row], stats=stats[names[row]]) for row in rows.tolist()
        ]
    )
