"""Shares: the loads of brokers as multiples of their even loads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lb_stream.core.least_moves.cpu import FULL, NOTICED
from lb_stream.core.least_moves.fleet import Fleet, load_of
from lb_stream.core.least_moves.targets import EvenLoads
from lb_stream.core.model.view import Bools, ClusterView, Floats, Rows


@dataclass(frozen=True, slots=True)
class Shares:
    """Each broker's load as a share of its even load: load ÷ (even load · capacity).

    Fixed use counts up to the even load: a broker is not hot by what can't move. So the share of a
    broker that fixed use alone fills beyond its even load is 1 plus the share of its movable load.
    """

    share: Floats  # (brokers, resources)
    per_unit: Floats  # (brokers, resources): the rise of the share by one unit of load
    even: Floats  # (brokers): even load, a ratio
    excess: Floats  # (brokers, resources): the share of fixed use that doesn't count
    unexplained: Floats  # (brokers): reported cpu usage beyond the expected one, a ratio
    of_one: Bools  # (brokers): one bundle alone sets the even load, so others have room
    group: Rows  # (brokers): number of the group that shares the even load; -1: no load to share

    @property
    def peak(self) -> Floats:
        """Return each broker's share of its scarcest resource."""
        found: Floats = self.share.max(axis=1)
        return found

    @property
    def is_overfull(self) -> Bools:
        """Return which brokers have more fixed use than their even load."""
        found: Bools = np.any(self.excess > 0, axis=1)
        return found

    @property
    def full(self) -> Floats:
        """Return the share of each broker at which a resource is full, by its own report, too."""
        found: Floats = (FULL - self.unexplained) / self.even - self.excess.max(axis=1)
        return found

    def has_no_room(self, share: float) -> Bools:
        """Return which brokers would be full at this share by their own reports.

        Their cpu is used by more than their load explains. That may be noise, so they are neither
        slow nor busy; but if it is none, a bundle that comes can fill them. So they take none until
        their reports agree with their load. A difference of up to NOTICED is what brokers use
        without traffic, and closes none: `full` alone leaves room for it.
        """
        found: Bools = (self.unexplained > NOTICED) & (self.full < share)
        return found

    def usage(self, share: Floats, brokers: Rows | None = None) -> Floats:
        """Return usages (ratios) instead of shares of these brokers, by default of all.

        They are usages of the resource that is scarcest for the broker, with all fixed use.
        """
        rows = np.arange(len(self.even)) if brokers is None else brokers
        scarcest = self.share[rows].argmax(axis=1)
        found: Floats = (share + self.excess[rows, scarcest]) * self.even[rows]
        return found


def compute_shares(view: ClusterView, fleet: Fleet, even: EvenLoads) -> Shares:
    """Return the shares of all brokers."""
    with np.errstate(divide="ignore"):
        per_unit = np.where(fleet.capacity > 0, 1.0 / (even.usage[:, None] * fleet.capacity), 0.0)
    # Contiguous columns make the maximum over resources four times as fast.
    per_unit = np.asfortranarray(per_unit)
    excess = np.maximum(even.fixed * per_unit - 1.0, 0.0)
    share = np.asfortranarray(load_of(view, fleet)) * per_unit - excess
    return Shares(share, per_unit, even.usage, excess, fleet.unexplained, even.of_one, even.group)
