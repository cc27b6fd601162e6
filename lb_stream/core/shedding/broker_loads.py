"""The extensible manager's figures of brokers: smoothed load and smoothed throughput.

See docs/strategies.md "TransferShedder".

Loads are ratios (1.0 = 100 %), throughputs bytes/s. Before its first sample a broker counts as
fully loaded. The first sample counts in full; each later one gives
history * old + (1 - history) * new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lb_stream.core.model.view import Bools, Floats

ASSUMED_FULL = 1.0
"""The load of a broker before its first sample."""
UNWEIGHTED = {"cpu": 1.0, "direct_memory": 1.0, "bandwidth_in": 1.0, "bandwidth_out": 1.0}
"""Weights of the plain maximum: heap memory does not count."""


def five_weights(weights: Mapping[str, float], memory_weight: float | None) -> dict[str, float]:
    """Return the weights of a broker's usage, and that of heap memory (None: 0)."""
    return {"memory": 0.0 if memory_weight is None else memory_weight, **weights}


@dataclass(frozen=True, slots=True)
class BrokerLoads:
    """Smoothed figures, with a row for each broker."""

    load: Floats  # Pulsar's weightedMaxEMA: smoothed maximum over the five weighted resources
    throughput: Floats  # Pulsar's msgThroughputEMA
    known: Bools  # whether there was a sample

    @staticmethod
    def unknown(brokers: int) -> BrokerLoads:
        """Return the figures of brokers before their first sample."""
        return BrokerLoads(
            np.full(brokers, ASSUMED_FULL), np.zeros(brokers), np.zeros(brokers, np.bool_)
        )

    def updated(
        self, usage: Floats, throughput: Floats, history: float, rows: Bools
    ) -> BrokerLoads:
        """Return the figures after one more sample of the given rows.

        `usage` is the weighted maximum, `history` the weight of the old value, 0..1.
        """
        load = np.where(self.known, self.load * history + (1 - history) * usage, usage)
        smoothed = np.where(
            self.known, self.throughput * history + (1 - history) * throughput, throughput
        )
        return BrokerLoads(
            np.where(rows, load, self.load),
            np.where(rows, smoothed, self.throughput),
            self.known | rows,
        )

    def reported(self, load: Floats, throughput: Floats) -> BrokerLoads:
        """Return the figures, replaced where brokers report smoothed ones (NaN: they don't)."""
        has_report = ~np.isnan(load)
        return BrokerLoads(
            np.where(has_report, load, self.load),
            np.where(has_report, throughput, self.throughput),
            self.known | has_report,
        )

    def cleared(self, rows: Bools) -> BrokerLoads:
        """Return the figures without the past of the given rows, whose bundles have changed."""
        return BrokerLoads(
            np.where(rows, ASSUMED_FULL, self.load),
            np.where(rows, 0.0, self.throughput),
            self.known & ~rows,
        )
