"""Checks that Pulsar's own balancing is off: two balancers undo each other's work."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from lb_stream.agent.adapter import Refused
from lb_stream.agent.pulsar.admin import AdminClient, AdminError

RUNTIME = "/admin/v2/brokers/configuration/runtime"
DYNAMIC_VALUES = "/admin/v2/brokers/configuration/values"
DYNAMIC = "/admin/v2/brokers/configuration"
LEADER = "/admin/v2/brokers/leaderBroker"

OWN_BALANCING = {
    "loadBalancerSheddingEnabled": "shedding",
    "loadBalancerAutoBundleSplitEnabled": "splitting",
}
"""Keys that must be false. Both are dynamic, and true by default."""

MAX_AGE_S = 10.0
"""How long settings that were read are used."""
SETTLE_S, STEP_S = 10.0, 0.2
"""How long a broker may take to learn a dynamic setting; the pause between two looks."""


def find_active_balancers(runtime: Mapping[str, object]) -> list[str]:
    """Return the keys with which a broker's own load manager balances, of settings in force."""
    if _is(runtime, "loadBalancerEnabled", False):
        return []
    return [key for key in OWN_BALANCING if not _is(runtime, key, False)]


def _is(runtime: Mapping[str, object], key: str, value: bool) -> bool:
    return str(runtime.get(key, True)).strip().lower() == str(value).lower()


def read_own_balancing(admin: AdminClient) -> tuple[str, dict[str, bool]]:
    """Return the cluster, and the keys of Pulsar's own balancing with their values in force.

    Raises AdminError.
    """
    runtime = _get_object(admin, RUNTIME)
    values = {key: not _is(runtime, key, False) for key in OWN_BALANCING}
    return str(runtime.get("clusterName", "")), values


def turn_own_balancing(admin: AdminClient, on: bool) -> None:
    """Turn Pulsar's own balancing on or off in all brokers, and wait until this one knows it.

    Raises AdminError, also when it doesn't know it in time.
    """
    for key in OWN_BALANCING:
        path = f"{DYNAMIC}/{key}/{str(on).lower()}"
        answer = admin.post(path)
        if answer.status not in (200, 204):
            raise admin.refusal("POST", path, answer)
    deadline = time.monotonic() + SETTLE_S
    while set(read_own_balancing(admin)[1].values()) != {on}:
        if time.monotonic() > deadline:
            raise AdminError(
                f"{admin.settings.broker} accepted {', '.join(OWN_BALANCING)} = {str(on).lower()}, but "
                f"has another value after {SETTLE_S:.0f} s"
            )
        time.sleep(STEP_S)


class SettingsGuard:
    """Reads the settings in force of the broker and of the leader.

    The leader sheds, and each broker's file may differ. The heartbeats' thread may call `forget` at
    any time, when the broker doesn't answer.
    """

    def __init__(self, admin: AdminClient, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._admin, self._clock = admin, clock
        self._runtime: dict[str, object] | None = None
        self._read_at = 0.0
        self._active: dict[str, str] | None = None  # key → a broker where it is on
        self._checked_at = 0.0

    def runtime(self) -> dict[str, object]:
        """Return the broker's settings in force, at most MAX_AGE_S old. Raises AdminError."""
        runtime = self._runtime
        if runtime is None or self._clock() - self._read_at >= MAX_AGE_S:
            return self._read_runtime()
        return runtime

    def _read_runtime(self) -> dict[str, object]:
        self._runtime = runtime = _get_object(self._admin, RUNTIME)
        self._read_at = self._clock()
        return runtime

    def dynamic_keys(self) -> frozenset[str]:
        """Return the keys that commands have set in all brokers: no file has their values.

        Raises AdminError.
        """
        return frozenset(_get_object(self._admin, DYNAMIC_VALUES))

    def forget(self) -> None:
        """Drop what was read: the broker may have been restarted."""
        self._runtime = self._active = None

    def active_balancers(self) -> dict[str, str]:
        """Return key → a broker where it is on, of the keys that must be false.

        They were read at most MAX_AGE_S ago. Raises AdminError.
        """
        active = self._active
        if active is None or self._clock() - self._checked_at >= MAX_AGE_S:
            self._active = active = self._read_active_balancers()
            self._checked_at = self._clock()
        return active

    def explain_conflicts(self) -> list[str]:
        """Return a line for each broker where Pulsar's own balancing is on, and how to end that.

        Raises AdminError.
        """
        by_broker = defaultdict[str, list[str]](list)
        for key, where in self.active_balancers().items():
            by_broker[where].append(key)
        return [
            f"Pulsar's own {' and '.join(OWN_BALANCING[key] for key in keys)} "
            f"{'is' if len(keys) == 1 else 'are'} on at {where} "
            f"({', '.join(f'{key} = true' for key in keys)}): to turn it off: "
            f"lbctl agent own-balancing off --admin-url {self._admin.settings.url}"
            for where, keys in by_broker.items()
        ]

    def check(self) -> None:
        """Raise Refused while Pulsar's own balancing is on, with keys and commands.

        Refused also while settings can't be read: a killed leader is replaced after half a minute.
        """
        try:
            if self.active_balancers():
                self._active = None  # it may have been turned off since
            conflicts = self.explain_conflicts()
        except AdminError as error:
            raise Refused(
                f"whether Pulsar itself balances is unknown, so nothing is changed: {error}"
            ) from error
        if conflicts:
            raise Refused("; ".join(conflicts))

    def _read_active_balancers(self) -> dict[str, str]:
        broker = self._admin.settings.broker
        active = {key: broker for key in find_active_balancers(self._read_runtime())}
        leader = self._leader()
        if leader is not None:
            active |= {
                key: leader.settings.broker
                for key in find_active_balancers(_get_object(leader, RUNTIME))
                if key not in active
            }
        return active

    def _leader(self) -> AdminClient | None:
        """Return the leader's admin API; None: only this broker's settings are read.

        That is so when this broker leads, or when it uses TLS and the leader's address does not.
        """
        settings = self._admin.settings
        address = str(_get_object(self._admin, LEADER).get("serviceUrl", ""))
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


def _get_object(admin: AdminClient, path: str) -> dict[str, object]:
    value = admin.get_json(path)
    if not isinstance(value, dict):
        raise AdminError(
            f"GET {admin.settings.url}{path}: expected a JSON object, got {type(value).__name__}"
        )
    return value
