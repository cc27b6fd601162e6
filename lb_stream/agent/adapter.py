"""The adapter: the class to write for a new kind of broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.splitting import Topics


class BrokerError(Exception):
    """A broker did not carry out a request, or did not answer it.

    The text explains it in full: it is logged as one line, and the decision fails.
    """


class Refused(BrokerError):
    """A broker will not carry out a decision; the text says why.

    The balancer gets a refusal: nothing has changed.
    """


JsonReport = Mapping[str, Any]
"""A load report as a JSON object."""
Report = JsonReport | bytes
"""A load report, as a JSON object or as its bytes, which are sent unchanged."""


class BrokerAdapter(Protocol):
    """One broker, as its agent sees it.

    The agent's thread calls all methods, one at a time (the heartbeats' thread calls `alive`).

    `release` and `acquire` return when they are done: the next `report` must show it. If they raise
    an error, the decision has failed (`Refused`: is refused), and the agent goes on.
    """

    @property
    def name(self) -> str:
        """The broker's id in decisions: `host:port` of its web service."""
        ...

    def report(self) -> Report | Sequence[Report]:
        """Return the load report now, in a documented form, with every bundle that is served.

        Returns several records where the form needs several, and none when nothing is new.
        """
        ...

    def owns(self, bundle: str) -> bool:
        """Return whether the broker serves this bundle now."""
        ...

    def release(self, bundle: str) -> None:
        """Stop serving a bundle that the broker owns."""
        ...

    def acquire(self, bundle: str) -> None:
        """Serve a bundle from now on; do nothing if the broker owns it already."""
        ...


@runtime_checkable
class SplittingAdapter(BrokerAdapter, Protocol):
    """A broker that can split its bundles. For others the agent refuses decisions to split."""

    def split(
        self, bundle: str, boundaries: Sequence[int], algorithm: str, unload_children: bool = False
    ) -> None:
        """Cut a bundle at the boundaries, and serve its children instead of it.

        Without boundaries the algorithm finds them. The next report names the children and not the
        bundle. With `unload_children` it may name neither, where the broker can unload them.
        """
        ...


@runtime_checkable
class MergingAdapter(BrokerAdapter, Protocol):
    """A broker that can make one bundle of two.

    Its heartbeats say so: other brokers get no decision to merge.
    """

    def merge(self, bundles: Sequence[str], merged: str) -> None:
        """Serve `merged` instead of these bundles, which the broker owns.

        The ranges of `bundles` together are that of `merged`. The next report shows it.
        """
        ...


@runtime_checkable
class TransferringAdapter(BrokerAdapter, Protocol):
    """A broker that hands a bundle over to its destination, without an assign."""

    def transfer(self, bundle: str, destination: str) -> str:
        """Stop serving a bundle that the broker owns, and have the destination serve it.

        Returns the detour that the bundle made, as acknowledgement and outcome give it; "": none.
        """
        ...


@runtime_checkable
class ProbingAdapter(BrokerAdapter, Protocol):
    """A broker in another process than its agent. Heartbeats are sent only while it is alive."""

    def alive(self) -> bool:
        """Return, within a few seconds, whether the broker answers now.

        The heartbeats' thread calls this while other calls go on.
        """
        ...


@runtime_checkable
class MeasuredBundles(Protocol):
    """The bundles of a broker, as it measures them."""

    def stats(self) -> Mapping[str, BundleStats]:
        """Return the latest statistics of every bundle that the broker serves."""
        ...

    def topics(self, bundle: str) -> Topics:
        """Return the topics of one of these bundles; called only for bundles to be split."""
        ...


@runtime_checkable
class MeasuringAdapter(BrokerAdapter, MeasuredBundles, Protocol):
    """A broker whose agent looks for bundles that are too large, as the extensible manager's do."""


@runtime_checkable
class LimitedCutsAdapter(Protocol):
    """A broker that can't cut every bundle at every position."""

    def feasible_cut(self, bundle: str, positions: Sequence[int]) -> Sequence[int]:
        """Return the positions if the broker can cut there, else where it can instead."""
        ...


@runtime_checkable
class ComparedAdapter(Protocol):
    """A broker with settings of its own, which may differ from the balancer's."""

    def differing(self) -> Sequence[str]:
        """Return the broker's keys that have other values than the agent was given."""
        ...


@runtime_checkable
class BalancedAdapter(BrokerAdapter, Protocol):
    """A broker whose own cluster may balance beside the balancer.

    Its heartbeats say so, and the balancer warns.
    """

    def balances(self) -> Sequence[str]:
        """Return the settings with which its own load manager balances now; none: it doesn't."""
        ...


@runtime_checkable
class YieldingAdapter(BrokerAdapter, Protocol):
    """A broker that follows the balancer's ownership records.

    It gives a bundle up when a record says that another broker owns it, or that it was split or
    merged. This happens to a broker that counted as dead for a while.
    """

    def give_up(self, bundle: str) -> None:
        """Stop serving a bundle that another broker owns now, or that no longer exists."""
        ...
