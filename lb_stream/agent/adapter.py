"""The one thing to write for a new kind of broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


class BrokerAdapter(Protocol):
    """One broker, as its agent sees it. All methods are called from the agent's own thread, one at a time.

    `release` and `acquire` return when it is done: the next `report` must show it. What they raise is told to the balancer as a
    failed decision, and the agent goes on.
    """

    @property
    def name(self) -> str:
        """The broker's id, `host:port` of its web service: what decisions call it."""
        ...

    def report(self) -> Mapping[str, Any]:
        """The load report now: a JSON object in one of the documented forms, naming every bundle that is served."""
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
    """A broker that can split its bundles. For one that can't the agent refuses, and they stay as they are."""

    def split(self, bundle: str, boundaries: Sequence[int], algorithm: str) -> None:
        """Serve a bundle's children instead of it: cut at the boundaries, or where there are none at those that the algorithm finds.

        The next report names the children and not the bundle.
        """
        ...
