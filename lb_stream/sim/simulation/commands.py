"""Builds the commands of a scenario's operators: its policies at the start, its drains later."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lb_stream.contracts.namespaces import (
    RING_END,
    ClusterNamespaces,
    Namespace,
    NamespaceIsolation,
)
from lb_stream.core.commands.responder import Received
from lb_stream.core.model.names import parse_bundle
from lb_stream.operations.drain_broker import DrainBroker
from lb_stream.operations.import_namespaces import ImportNamespaces
from lb_stream.operations.rollout_start import RolloutStart
from lb_stream.operations.set_policies import SetPolicies
from lb_stream.operations.undrain_broker import UndrainBroker
from lb_stream.settings.spelling import PREFIX
from lb_stream.sim.scenario.scenario import (
    Event,
    Scenario,
    ScenarioIsolation,
    ScenarioPolicies,
    ScenarioRollout,
)
from lb_stream.sim.simulation.reports import at_ms

NAMESPACES_PER_COMMAND = 500


def scenario_settings(scenario: Scenario) -> dict[str, object]:
    """Return the settings that a scenario's policies need: pinned namespaces, budgets.

    Splits are off where the scenario has no topics: its bundles can't be split.
    """
    policies = scenario.policies
    return {
        "mode": "act",
        **({"split_enabled": False} if scenario.topics is None else {}),
        "shedding_excluded_namespaces": policies.pinned_namespaces,
        **{
            f"{PREFIX}{namespace}.moves_per_hour": most
            for namespace, most in policies.budgets.items()
        },
    }


def build_first_commands(
    policies: ScenarioPolicies, brokers: tuple[str, ...], unowned: Iterable[str] = ()
) -> tuple[Received, ...]:
    """Build the commands at the start: the policies, and imports of namespaces.

    `unowned`: all bundles of the namespaces with unassigned bundles, which no report names. A
    namespace whose bundles leave a gap can't be imported.
    """
    commands = [
        SetPolicies(id=f"isolation:{policy.name}", isolation=[_isolation(policy, brokers)])
        for policy in policies.isolation
    ]
    grouped: list[tuple[str, str | None]] = [
        (name, group.name) for group in policies.anti_affinity for name in group.namespaces
    ]
    for first in range(0, len(grouped), NAMESPACES_PER_COMMAND):
        commands.append(
            SetPolicies(
                id=f"anti-affinity:{first}",
                anti_affinity=dict(grouped[first : first + NAMESPACES_PER_COMMAND]),
            )
        )
    whole = list(_whole_namespaces(unowned))
    imports = (
        [ImportNamespaces(id="namespaces", content=ClusterNamespaces(namespaces=whole))]
        if whole
        else []
    )
    return tuple(Received.from_command(command, at_ms(0.0)) for command in (*imports, *commands))


def _whole_namespaces(bundles: Iterable[str]) -> Iterator[Namespace]:
    """Yield the namespaces whose bundles cover the whole hash range."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for namespace, lower, upper in map(parse_bundle, bundles):
        ranges.setdefault(namespace, []).append((lower, upper))
    for namespace, own in ranges.items():
        lowers, uppers = zip(*sorted(own), strict=True)
        if lowers == (0, *uppers[:-1]) and uppers[-1] == RING_END:
            yield Namespace(name=namespace, boundaries=[0, *uppers])


def build_drain_command(event: Event, broker: str, number: int) -> Received:
    """Build the command of a drain or of its end. `number` makes its id unique."""
    make = DrainBroker if event.kind == "drain" else UndrainBroker
    return Received.from_command(make(id=f"{event.kind}:{number}", broker=broker), at_ms(event.t_s))


def build_rollout_command(ordered: ScenarioRollout, brokers: tuple[str, ...]) -> Received:
    """Build the command of a rollout's event: it goes on by itself. `brokers`: the scenario's."""
    names = [brokers[row] for row in ordered.brokers]
    command = RolloutStart(
        id="rollout",
        in_order=names if ordered.in_order else [],
        of=[] if ordered.in_order else _exact_patterns(names),
        at_most=ordered.at_most,
        continues=True,
    )
    return Received.from_command(command, at_ms(ordered.t_s))


def _isolation(policy: ScenarioIsolation, brokers: tuple[str, ...]) -> NamespaceIsolation:
    return NamespaceIsolation(
        name=policy.name,
        namespaces=_exact_patterns(policy.namespaces),
        primary=_exact_patterns(brokers[row] for row in policy.primary),
        secondary=_exact_patterns(brokers[row] for row in policy.secondary),
        min_available=policy.min_available,
    )


def _exact_patterns(names: Iterable[str]) -> list[str]:
    return [re.escape(name) for name in names]
