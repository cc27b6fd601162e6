"""The one thing to write for a new kind of broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


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
