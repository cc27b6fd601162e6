"""The extensible manager's load figures of brokers: smoothed usage and throughput.

See docs/strategies.md "TransferShedder".

Usages are ratios (1.0 = 100 %), throughputs bytes/s, times ms since the epoch. Before its first
sample a broker counts as fully loaded; the first sample is taken as it is, every later one smooths:
history * old + (1 - history) * new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ASSUMED_FULL = 1.0
UNWEIGHTED = {"cpu": 1.0, "direct_memory": 1.0, "bandwidth_in": 1.0, "bandwidth_out": 1.0}
"""What the plain maximum is taken over: heap memory is left out."""


def five_weights(weights: Mapping[str, float], memory_weight: float | None) -> dict[str, float]:
    """The weights of the extensible manager's load: those of a broker's usage and heap memory's
    (unset: 0)."""
    return {"memory": 0.0 if memory_weight is None else memory_weight, **weights}


@dataclass(frozen=True, slots=True)
class BrokerLoads:
    """One row for each broker."""

    load: Floats  # weightedMaxEMA: smoothed maximum over the five weighted resources
    throughput: Floats  # msgThroughputEMA
    known: Bools  # there was a sample

    @staticmethod
    def unknown(brokers: int) -> BrokerLoads:
        """Before the first sample."""
        return BrokerLoads(
            np.full(brokers, ASSUMED_FULL), np.zeros(brokers), np.zeros(brokers, np.bool_)
        )

    def updated(
        self, usage: Floats, throughput: Floats, history: float, rows: Bools
    ) -> BrokerLoads:
        """Return the loads with one more sample in the given rows.

        `usage` is the weighted maximum, `history` 0..1.
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
        """Return the loads with the brokers' own smoothed figures where they report any."""
        has_report = ~np.isnan(load)
        return BrokerLoads(
            np.where(has_report, load, self.load),
            np.where(has_report, throughput, self.throughput),
            self.known | has_report,
        )

    def cleared(self, rows: Bools) -> BrokerLoads:
        """Return the loads without the past of the given rows: their bundles have changed."""
        return BrokerLoads(
            np.where(rows, ASSUMED_FULL, self.load),
            np.where(rows, 0.0, self.throughput),
            self.known & ~rows,
        )
