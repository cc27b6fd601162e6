"""The one thing to write for a new kind of broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.splitting import Topics


class BrokerError(Exception):
    """A trouble with a broker.

    The text explains it in full: it is logged as one line, and the decision fails.
    """


class Refused(BrokerError):
    """What a broker will not do; the text says why.

    Told to the balancer as a refusal: nothing has changed.
    """


Report = Mapping[str, Any] | bytes
"""A load report: a JSON object, or the bytes of one, which are sent as they are."""


class BrokerAdapter(Protocol):
    """One broker, as its agent sees it.

    All methods are called from the agent's own thread, one at a time (`alive` from another one).

    `release` and `acquire` return when it is done: the next `report` must show it. What they raise
    is told to the balancer as a failed decision (`Refused`: as a refused one), and the agent goes
    on.
    """

    @property
    def name(self) -> str:
        """The broker's id, `host:port` of its web service: what decisions call it."""
        ...

    def report(self) -> Report | Sequence[Report]:
        """The load report now, in one of the documented forms, naming every bundle that is served.

        Several records where the form needs several; none when there is nothing new.
        """
        ...

    def owns(self, bundle: str) -> bool:
        """Whether the broker serves this bundle now."""
        ...

    def release(self, bundle: str) -> None:
        """Stop serving a bundle that is owned."""
        ...

    def acquire(self, bundle: str) -> None:
        """Serve a bundle from now on. Does nothing when it is owned already."""
        ...


@runtime_checkable
class SplittingAdapter(BrokerAdapter, Protocol):
    """A broker that can split its bundles.

    For one that can't the agent refuses, and they stay as they are.
    """

    def split(
        self, bundle: str, boundaries: Sequence[int], algorithm: str, unload_children: bool = False
    ) -> None:
        """Serve a bundle's children instead of it: cut at the boundaries, or where there are none
        at those that the algorithm finds.

        The next report names the children and not the bundle; with `unload_children` it may name
        none, where the broker can do that.
        """
        ...


@runtime_checkable
class MergingAdapter(BrokerAdapter, Protocol):
    """A broker that can make one bundle of two.

    Its heartbeats say so: nobody else is sent a decision to merge.
    """

    def merge(self, bundles: Sequence[str], merged: str) -> None:
        """Serve `merged` instead of these bundles, which are owned and whose ranges together are
        its own. The next report shows it."""
        ...


@runtime_checkable
class TransferringAdapter(BrokerAdapter, Protocol):
    """A broker that hands a bundle over by itself: an unload that names a destination needs no help
    on the other side."""

    def transfer(self, bundle: str, destination: str) -> None:
        """Stop serving a bundle that is owned, and see to it that the destination serves it."""
        ...


@runtime_checkable
class ProbingAdapter(BrokerAdapter, Protocol):
    """A broker that is another process than its agent: heartbeats are sent only while it lives."""

    def alive(self) -> bool:
        """Whether the broker answers now.

        Comes back within a few seconds; called from a thread of its own, while other calls go on.
        """
        ...


@runtime_checkable
class MeasuringAdapter(BrokerAdapter, Protocol):
    """A broker that tells what its agent needs to look for bundles that are too large, as the
    extensible manager's brokers do."""

    def stats(self) -> Mapping[str, BundleStats]:
        """Latest statistics of every bundle that is served."""
        ...

    def topics(self, bundle: str) -> Topics:
        """The topics of one of these bundles; asked only for those that are about to be split."""
        ...


@runtime_checkable
class BalancedAdapter(BrokerAdapter, Protocol):
    """A broker whose own cluster may balance beside the balancer.

    Its heartbeats say so, and the balancer warns.
    """

    def balances(self) -> Sequence[str]:
        """The settings by which its cluster balances by itself now; none: it doesn't."""
        ...


@runtime_checkable
class YieldingAdapter(BrokerAdapter, Protocol):
    """A broker that follows the balancer's ownership records.

    When one says that another broker owns a bundle that this one serves still (it was taken for
    dead meanwhile), it gives the bundle up.
    """

    def give_up(self, bundle: str) -> None:
        """Stop serving a bundle that another broker owns now."""
        ...
