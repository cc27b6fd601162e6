"""Builds a spec's events, faults and policies as entries of scenario.json.

Brokers and namespaces that the spec counts are drawn here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lb_stream.sim.families.sampling import Sampler, make_rng
from lb_stream.sim.families.spec import RolloutSpec, Spec
from lb_stream.sim.scenario.errors import ScenarioError

_UNDONE_BY = {"crash": "up", "leave": "up", "drain": "undrain", "slow": "slow"}
Entry = dict[str, Any]


def build_event_entries(
    file: str | Path, spec: Spec, brokers: tuple[str, ...]
) -> tuple[list[Entry], list[str]]:
    """Build the events ordered by time, and each one's name in messages. Raises ScenarioError."""
    sampler = Sampler(file, brokers, "brokers without an event", spec.seed)
    found: list[tuple[Entry, str]] = []
    for at, event in enumerate(spec.events):
        field = f"events[{at}]"
        if event.for_s > 0 and event.kind not in _UNDONE_BY:
            raise ScenarioError(
                file,
                f"{field}.for_s",
                event.for_s,
                f"none with kind {event.kind}: only {', '.join(_UNDONE_BY)} are undone",
            )
        for turn, broker in enumerate(sampler.choose(f"{field}.brokers", event.brokers)):
            t_s = event.t_s + turn * event.every_s
            factor = {} if event.factor is None else {"factor": event.factor}
            found.append(({"t_s": t_s, "broker": broker, "kind": event.kind, **factor}, field))
            if 0 < event.for_s <= spec.ticks * spec.tick_s - t_s:
                undone = {"factor": 1.0} if event.kind == "slow" else {}
                found.append(
                    (
                        {
                            "t_s": t_s + event.for_s,
                            "broker": broker,
                            "kind": _UNDONE_BY[event.kind],
                            **undone,
                        },
                        field,
                    )
                )
    if spec.rollout is not None:
        down = find_brokers_down_at_start([entry for entry, _ in found])
        up = tuple(broker for broker in brokers if broker not in down)
        found.append((_rollout(file, spec.rollout, up, spec.seed), "rollout"))
    found.sort(key=lambda pair: float(pair[0]["t_s"]))
    return [entry for entry, _ in found], [field for _, field in found]


def _rollout(file: str | Path, rollout: RolloutSpec, up: tuple[str, ...], seed: int) -> Entry:
    """Build the entry of a rollout. `up`: the brokers that are up at the start."""
    sampler = Sampler(file, up, "brokers that are up at the start", seed)
    names = sampler.choose("rollout.brokers", rollout.brokers)
    if rollout.order == "given" and not isinstance(rollout.brokers, list):
        order = make_rng(seed, "rollout order").permutation(len(names)).tolist()
        names = [names[number] for number in order]
    return {
        "t_s": rollout.t_s,
        "kind": "rollout",
        "restart_s": rollout.restart_s,
        "at_most": rollout.at_most,
        "brokers": names,
        "order": rollout.order,
    }


def find_brokers_down_at_start(events: list[Entry]) -> set[str]:
    """Find the brokers whose first event is that they come up."""
    first: dict[str, str] = {}
    for event in events:
        if event["kind"] in ("crash", "leave", "up"):
            first.setdefault(event["broker"], event["kind"])
    return {broker for broker, kind in first.items() if kind == "up"}


def build_fault_entries(file: str | Path, spec: Spec, brokers: tuple[str, ...]) -> list[Entry]:
    """Build the faults. Raises ScenarioError."""
    sampler = Sampler(file, brokers, "brokers without a fault", spec.seed)
    return [
        {
            "kind": fault.kind,
            "brokers": sampler.choose(f"faults[{at}].brokers", fault.brokers),
            "from_s": fault.from_s,
            "to_s": spec.ticks * spec.tick_s if fault.to_s is None else fault.to_s,
            **({} if fault.delay_s is None else {"delay_s": fault.delay_s}),
        }
        for at, fault in enumerate(spec.faults)
    ]


def build_policy_entries(
    file: str | Path, spec: Spec, brokers: tuple[str, ...], namespaces: list[str]
) -> Entry:
    """Build the policies. Raises ScenarioError."""
    given = spec.policies
    isolated = Sampler(file, brokers, "brokers without isolation", spec.seed)
    free = Sampler(file, namespaces, "namespaces without a rule", spec.seed)
    isolation: list[Entry] = []
    for at, policy in enumerate(given.isolation):
        field = f"policies.isolation[{at}]"
        names = free.choose(
            f"{field}.tenant", _of_tenant(file, f"{field}.tenant", policy.tenant, namespaces)
        )
        primary = isolated.choose(f"{field}.primary", policy.primary)
        secondary = isolated.choose(f"{field}.secondary", policy.secondary)
        isolation.append(
            {"name": policy.tenant, "namespaces": names, "primary": primary, "secondary": secondary}
        )
        isolation[-1]["min_available"] = policy.min_available
    groups = [
        free.choose(f"policies.anti_affinity[{at}]", many)
        for at, many in enumerate(given.anti_affinity)
    ]
    return {
        "isolation": isolation,
        "anti_affinity": [
            {"name": f"group-{at + 1}", "namespaces": names} for at, names in enumerate(groups)
        ],
        "pinned_namespaces": free.choose("policies.pinned_namespaces", given.pinned_namespaces),
        "budgets": [
            {"namespace": name, "moves_per_hour": budget.moves_per_hour}
            for at, budget in enumerate(given.budgets)
            for name in _of_tenant(
                file, f"policies.budgets[{at}].tenant", budget.tenant, namespaces
            )
        ],
    }


def _of_tenant(file: str | Path, field: str, tenant: str, namespaces: list[str]) -> list[str]:
    found = [name for name in namespaces if name.startswith(f"{tenant}/")]
    if not found:
        raise ScenarioError(
            file,
            field,
            tenant,
            "a tenant: tenant-1, tenant-2 and so on, as many as cluster.tenants",
        )
    return found
