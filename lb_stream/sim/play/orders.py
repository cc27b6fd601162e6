"""What a scenario's operators say to the balancer: its policies at the start, drains later."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lb_stream.contracts.commands import DrainBroker, SetPolicies, UndrainBroker
from lb_stream.contracts.namespaces import NamespaceIsolation
from lb_stream.core.commands.responder import Received
from lb_stream.core.model.policies import host_of
from lb_stream.sim.play.reports import at_ms
from lb_stream.sim.scenario.scenario import Event, Isolation, ScenarioPolicies

NAMED_AT_ONCE = 500
"""Namespaces of one command."""


def settings_of(policies: ScenarioPolicies) -> dict[str, Any]:
    """What the scenario asks of a cluster's settings. Bundles aren't split: the physics has no splits."""
    return {
        "dry_run": False,
        "split_enabled": False,
        "shedding_excluded_namespaces": policies.pinned_namespaces,
    }


def first_orders(policies: ScenarioPolicies, brokers: tuple[str, ...]) -> tuple[Received, ...]:
    """The policies, as commands at the start."""
    commands = [SetPolicies(id=f"isolation:{one.name}", isolation=[_isolation(one, brokers)]) for one in policies.isolation]
    grouped: list[tuple[str, str | None]] = [(name, group.name) for group in policies.anti_affinity for name in group.namespaces]
    for first in range(0, len(grouped), NAMED_AT_ONCE):
        commands.append(SetPolicies(id=f"anti-affinity:{first}", anti_affinity=dict(grouped[first : first + NAMED_AT_ONCE])))
    return tuple(Received.of(command, at_ms(0.0)) for command in commands)


def order_of(event: Event, broker: str, number: int) -> Received:
    """A drain or its end, as a command."""
    make = DrainBroker if event.kind == "drain" else UndrainBroker
    return Received.of(make(id=f"{event.kind}:{number}", broker=broker), at_ms(event.t_s))


def _isolation(policy: Isolation, brokers: tuple[str, ...]) -> NamespaceIsolation:
    return NamespaceIsolation(
        name=policy.name,
        namespaces=_exactly(policy.namespaces),
        primary=_exactly(host_of(brokers[row]) for row in policy.primary),
        secondary=_exactly(host_of(brokers[row]) for row in policy.secondary),
        min_available=policy.min_available,
    )


def _exactly(names: Iterable[str]) -> list[str]:
    return [re.escape(name) for name in names]
