"""Brokers that join the cluster while `lbctl run` runs: they get an agent at its next start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from lb_stream.agent.adapter import BrokerError
from lb_stream.cli.shared.output import note

LOOK_INTERVAL_S = 30.0


class JoinedBrokers:
    """Looks from time to time for brokers that have joined, and names each of them once."""

    def __init__(self, known: Iterable[str], list_brokers: Callable[[], Iterable[str]]) -> None:
        """Know the brokers with an agent. `list_brokers` may raise BrokerError."""
        self._known = set(known)
        self._list_brokers = list_brokers
        self._due_s = time.monotonic() + LOOK_INTERVAL_S

    def warn_if_due(self) -> None:
        """Look, if the last look is long enough ago, and write a note about those that joined."""
        if time.monotonic() < self._due_s:
            return
        joined = self.find()
        self._due_s = time.monotonic() + LOOK_INTERVAL_S
        if joined:
            they = "it has no agent and gets" if len(joined) == 1 else "they have no agents and get"
            note(
                f"{', '.join(joined)} joined the cluster: {they} no bundles from here. End this "
                "with Ctrl-C and start lbctl run again"
            )

    def find(self) -> list[str]:
        """Return the brokers that have joined since the last look; none if no broker answers."""
        try:
            joined = sorted(set(self._list_brokers()) - self._known)
        except BrokerError:
            return []
        self._known |= set(joined)
        return joined
