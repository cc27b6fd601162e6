"""What the extensible manager's simulated brokers ask for: splits of bundles that stay too large.

The leaders of the other managers look for such bundles themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from lb_stream.agent.splits import SplitWatch
from lb_stream.contracts.reports import BundleStats, SplitAsk
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.splitting import Topics
from lb_stream.sim.model import BrokerMeasurements
from lb_stream.sim.simulation.splits import SplittableModel


@dataclass(frozen=True, slots=True)
class _OwnBundles:
    """The bundles of one broker, as it measures them."""

    model: SplittableModel
    broker: int
    measured: BrokerMeasurements

    def stats(self) -> dict[str, BundleStats]:
        """Return the latest statistics of every bundle."""
        model = self.model
        return {
            model.names[row]: BundleStats(
                msg_rate_in=rate_in,
                msg_rate_out=rate_out,
                msg_throughput_in=bytes_in,
                msg_throughput_out=bytes_out,
                topics=int(model.topics[row]),
                producer_count=int(model.producers[row]),
                consumer_count=int(model.consumers[row]),
            )
            for row in np.flatnonzero(model.owner == self.broker).tolist()
            for rate_in, rate_out, bytes_in, bytes_out in (self.measured.loads[:, row].tolist(),)
        }

    def topics(self, bundle: str) -> Topics:
        """Return the topics of one bundle."""
        row = self.model.names.index(bundle)
        hashes, parts = self.model.tree.topics_of(row)
        share = parts / max(parts.sum(), 1e-300)
        rate_in, rate_out, bytes_in, bytes_out = self.measured.loads[:, row].tolist()
        known = np.ones(len(hashes), np.bool_)
        return Topics(hashes, share * (rate_in + rate_out), share * (bytes_in + bytes_out), known)


@dataclass(slots=True)
class SplitRequests:
    """The agents' watches over all brokers, each with its memory of earlier looks."""

    model: SplittableModel
    config: ClusterConfig
    _watches: dict[int, SplitWatch] = field(default_factory=dict)

    @property
    def interval_s(self) -> float:
        """Return the seconds between two looks; 0: brokers ask for no splits."""
        make_watch = SplitWatch.for_cluster(self.config)
        if make_watch is None or self.model.scenario.topics is None:
            return 0.0
        return make_watch().interval_s

    def look(self, t_s: float) -> Iterator[tuple[str, SplitAsk]]:
        """Yield the splits that brokers ask for now, with the broker's name."""
        make_watch, measured = SplitWatch.for_cluster(self.config), self.model.measure(t_s)
        if make_watch is None:
            return
        for broker, name in enumerate(self.model.scenario.brokers.names):
            if not self.model.up[broker]:
                self._watches.pop(broker, None)
                continue
            watch = self._watches.setdefault(broker, make_watch())
            for ask in watch.find_splits(_OwnBundles(self.model, broker, measured)):
                yield name, ask
