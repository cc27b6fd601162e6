"""Whether a move pays back: what it takes from its bundle's clients against what it saves those of
the broker that it relieves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lb_stream.core.model.view import Bools, Floats, Rows

ABOVE_FULL = 10.0
"""How many times what a broker can't carry at all counts: it piles up."""


@dataclass(frozen=True, slots=True)
class Payback:
    """Clients' time, in client-seconds.

    A client is taken to lose, of each second, the part by which its broker's usage is above an even
    load: at 60 % where 50 % is even, a tenth of it. What is above 100 % counts ABOVE_FULL times.
    Shares and weights are usage ÷ even load; their last axis is resources.
    """

    clients: Floats  # of each broker
    even: Floats  # usage that each broker has when load is spread evenly
    client_seconds: Floats  # that moving each bundle takes from its clients
    disruption_weight: Floats  # factor on that, set for its namespace
    within_s: float  # in which a move must save what it costs

    def pays(self, broker: int, share: Floats, weight: Floats, bundle: int) -> bool:
        """Whether a bundle is worth moving out of a broker.

        `weight`: by how much it lowers the broker's share.
        """
        cost = float(self.client_seconds[bundle]) * float(self.disruption_weight[bundle])
        return cost <= self.within_s * float(self._saved(broker, share, share - weight))

    def pay_together(self, broker: int, before: Floats, after: Floats, bundles: Rows) -> bool:
        """Whether moves of these bundles, wherever they leave, are worth that one broker comes down
        from one share to another."""
        return bool(self._cost(bundles).sum() <= self.within_s * self._saved(broker, before, after))

    def pay_each(self, broker: int, share: Floats, weight: Floats, bundles: Rows) -> Bools:
        """The same of many bundles, for each as if it were the only one."""
        worth: Bools = self._cost(bundles) <= self.within_s * self._saved(
            broker, share, share - weight
        )
        return worth

    def after_s(self, broker: int, share: Floats, weight: Floats, bundles: Rows) -> Floats:
        """In what time moving each of these bundles out of a broker saves what it costs; infinite
        if it saves nothing."""
        saved = self._saved(broker, share, share - weight)
        found: Floats = np.divide(
            self._cost(bundles), saved, out=np.full(len(bundles), np.inf), where=saved > 0
        )
        return found

    def _cost(self, bundles: Rows) -> Floats:
        cost: Floats = self.client_seconds[bundles] * self.disruption_weight[bundles]
        return cost

    def _saved(self, broker: int, before: Floats, after: Floats) -> Floats:
        """Client-seconds that a broker's clients save in each second when it is brought down."""
        saved: Floats = self.clients[broker] * (
            self._lost(broker, before) - self._lost(broker, after)
        )
        return saved

    def _lost(self, broker: int, share: Floats) -> Floats:
        """What one client of a broker loses of a second."""
        even = float(self.even[broker])
        lost: Floats = np.maximum(share - 1.0, 0.0).sum(axis=-1) * even
        if share.max(initial=0.0) * even > 1.0:
            lost = lost + np.maximum(even * share - 1.0, 0.0).sum(axis=-1) * (ABOVE_FULL - 1.0)
        return lost
