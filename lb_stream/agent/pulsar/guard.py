"""Makes sure that Pulsar's own balancing is off before the agent acts: two balancers on one cluster
undo each other's work."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from lb_stream.agent.adapter import Refused
from lb_stream.agent.pulsar.admin import AdminClient, AdminError

RUNTIME = "/admin/v2/brokers/configuration/runtime"
LEADER = "/admin/v2/brokers/leaderBroker"

OWN_BALANCING = {
    "loadBalancerSheddingEnabled": "shedding",
    "loadBalancerAutoBundleSplitEnabled": "splitting",
}
"""Keys that must be false; both are dynamic, and true where nobody has set them."""

CHECKED_FOR_S = 10.0
"""How long an answer about settings holds."""


def find_active_balancers(runtime: Mapping[str, Any]) -> list[str]:
    """The keys by which a broker with this runtime configuration balances by itself."""
    if _is(runtime, "loadBalancerEnabled", False):
        return []
    return [key for key in OWN_BALANCING if not _is(runtime, key, False)]


def _is(runtime: Mapping[str, Any], key: str, value: bool) -> bool:
    return str(runtime.get(key, True)).strip().lower() == str(value).lower()


def describe_turn_off(key: str) -> str:
    """The command that turns one of Pulsar's own balancers off, in all brokers at once and without
    a restart."""
    return f"pulsar-admin brokers update-dynamic-config --config {key} --value false"


class SettingsGuard:
    """Reads the settings in force, of the broker and of the leader: it is the leader that sheds,
    each broker's file may differ.

    `forget` may come from another thread at any time, when a heartbeat finds the broker dead.
    """

    def __init__(self, admin: AdminClient, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._admin, self._clock = admin, clock
        self._runtime: dict[str, Any] | None = None
        self._read_at = 0.0
        self._found: dict[str, str] | None = None  # key → the broker where it is on
        self._checked_at = 0.0

    def runtime(self) -> dict[str, Any]:
        """The broker's settings in force, at most CHECKED_FOR_S old. Raises AdminError."""
        runtime = self._runtime
        if runtime is None or self._clock() - self._read_at >= CHECKED_FOR_S:
            self._runtime = runtime = _object(self._admin, RUNTIME)
            self._read_at = self._clock()
        return runtime

    def forget(self) -> None:
        """Read everything anew at the next question: the broker may have been restarted."""
        self._runtime = self._found = None

    def active_balancers(self) -> dict[str, str]:
        """The settings that must be changed before the agent acts, and a broker where each is on.

        Raises AdminError.
        """
        found = self._found
        if found is None or self._clock() - self._checked_at >= CHECKED_FOR_S:
            self._found = found = self._look()
            self._checked_at = self._clock()
        return found

    def explain_conflicts(self) -> list[str]:
        """One line for each of them. Raises AdminError when it can't be known."""
        return [
            f"Pulsar's own {OWN_BALANCING[key]} is on at {where} ({key} = true): turn it off: "
            f"{describe_turn_off(key)}"
            for key, where in self.active_balancers().items()
        ]

    def check(self) -> None:
        """Raises Refused while Pulsar's own balancing is on, naming keys and commands."""
        if found := self.explain_conflicts():
            raise Refused("; ".join(found))

    def _look(self) -> dict[str, str]:
        broker = self._admin.settings.broker
        found = {key: broker for key in find_active_balancers(self.runtime())}
        leader = self._leader()
        if leader is not None:
            found |= {
                key: leader.settings.broker
                for key in find_active_balancers(_object(leader, RUNTIME))
                if key not in found
            }
        return found

    def _leader(self) -> AdminClient | None:
        """The leader's admin API; None when this broker leads, or names an address that is less
        safe than ours: then our settings count."""
        settings = self._admin.settings
        address = str(_object(self._admin, LEADER).get("serviceUrl", ""))
        if not address.startswith(("http:", "https:")) or (
            settings.url.startswith("https:") and address.startswith("http:")
        ):
            return None
        try:
            parts = urlsplit(address)
            other = replace(settings, url=f"{parts.scheme}://{parts.netloc}")
        except ValueError:
            raise AdminError(
                f"GET {settings.url}{LEADER}: serviceUrl = {address!r} is no address"
            ) from None
        return None if other.broker == settings.broker else AdminClient(other)


def _object(admin: AdminClient, path: str) -> dict[str, Any]:
    value = admin.get_json(path)
    if not isinstance(value, dict):
        raise AdminError(
            f"GET {admin.settings.url}{path}: expected a JSON object, got {type(value).__name__}"
        )
    return value
