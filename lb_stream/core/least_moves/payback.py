"""The payback of moves: the time that they take from clients against the time that they save.

A move takes time from the bundle's clients, and saves time for clients of the relieved broker.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lb_stream.core.model.view import Bools, Floats, Rows

ABOVE_FULL = 10.0
"""Factor on usage above 100 %, as load that a broker can't carry piles up."""


@dataclass(frozen=True, slots=True)
class Payback:
    """Clients' time that moves take and save, in client-seconds.

    Of each second, a client loses the part by which its broker's usage is above the even load:
    0.1 s where usage is 60 % and the even load 50 %. Usage above 100 % counts ABOVE_FULL times.
    Shares and weights are usage ÷ even load; their last axis is resources.
    """

    clients: Floats  # number of clients of each broker
    even: Floats  # even load of each broker, a ratio
    client_seconds: Floats  # that a move of each bundle takes from its clients
    disruption_weight: Floats  # factor on `client_seconds`, set for the bundle's namespace
    within_s: float  # time within which a move must save as much as it takes

    def pays(self, broker: int, share: Floats, weight: Floats, bundle: int) -> bool:
        """Return whether a move of the bundle out of the broker pays back.

        `share`: the broker's; `weight`: by how much the move lowers it.
        """
        # Floats of Python: for the resources of a single broker NumPy takes ten times as long.
        cost = float(self.client_seconds[bundle]) * float(self.disruption_weight[bundle])
        even, lost = float(self.even[broker]), 0.0
        for before, less in zip(share.tolist(), weight.tolist(), strict=True):
            after = before - less
            lost += even * (max(before - 1.0, 0.0) - max(after - 1.0, 0.0))
            lost += (ABOVE_FULL - 1.0) * (
                max(even * before - 1.0, 0.0) - max(even * after - 1.0, 0.0)
            )
        return cost <= self.within_s * float(self.clients[broker]) * lost

    def pay_together(self, broker: int, before: Floats, after: Floats, bundles: Rows) -> bool:
        """Return whether moves of these bundles together pay back, as one broker's share falls.

        The bundles may leave any brokers. `before`, `after`: that broker's shares.
        """
        return bool(self._cost(bundles).sum() <= self.within_s * self._saved(broker, before, after))

    def pay_in_all(self, before: Floats, after: Floats, bundles: Rows) -> bool:
        """Return whether moves of these bundles together pay back, as all brokers' shares change.

        `before`, `after`: (brokers, resources).
        """
        saved = self._saved(np.arange(len(before)), before, after).sum()
        return bool(self._cost(bundles).sum() <= self.within_s * saved)

    def pay_each(self, broker: int | Rows, share: Floats, weight: Floats, bundles: Rows) -> Bools:
        """Return for each bundle whether its move, alone, out of the broker pays back.

        `broker`: the broker of all of them, or of each.
        """
        worth: Bools = self._cost(bundles) <= self.within_s * self._saved(
            broker, share, share - weight
        )
        return worth

    def after_s(self, broker: int, share: Floats, weight: Floats, bundles: Rows) -> Floats:
        """Return the payback time of each bundle's move out of a broker, s; infinite: none."""
        saved = self._saved(broker, share, share - weight)
        found: Floats = np.divide(
            self._cost(bundles), saved, out=np.full(len(bundles), np.inf), where=saved > 0
        )
        return found

    def _cost(self, bundles: Rows) -> Floats:
        """Return the weighted client-seconds that a move of each bundle takes."""
        cost: Floats = self.client_seconds[bundles] * self.disruption_weight[bundles]
        return cost

    def _saved(self, broker: int | Rows, before: Floats, after: Floats) -> Floats:
        """Return the client-seconds that a lower share saves a broker's clients in each second."""
        saved: Floats = self.clients[broker] * (
            self._lost(broker, before) - self._lost(broker, after)
        )
        return saved

    def _lost(self, broker: int | Rows, share: Floats) -> Floats:
        """Return the part of each second that one client of a broker loses."""
        even = self.even[broker]
        lost: Floats = np.maximum(share - 1.0, 0.0).sum(axis=-1) * even
        if np.max(share.max(axis=-1, initial=0.0) * even, initial=0.0) > 1.0:
            usage = share * even[..., None]
            lost = lost + np.maximum(usage - 1.0, 0.0).sum(axis=-1) * (ABOVE_FULL - 1.0)
        return lost
