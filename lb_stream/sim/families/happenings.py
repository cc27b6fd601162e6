"""Events, faults and policies of a spec, as scenario.json has them: counted brokers and namespaces are chosen here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lb_stream.sim.families.choosing import Chooser
from lb_stream.sim.families.spec import Spec
from lb_stream.sim.scenario.errors import ScenarioError

_UNDONE_BY = {"crash": "up", "leave": "up", "drain": "undrain", "slow": "slow"}
Entry = dict[str, Any]


def event_entries(
    file: str | Path, spec: Spec, brokers: tuple[str, ...]
) -> tuple[list[Entry], list[str]]:
    """Events in order of time, and what errors call each. Raises ScenarioError."""
    chooser = Chooser(file, brokers, "brokers without an event", spec.seed)
    found: list[tuple[Entry, str]] = []
    for at, one in enumerate(spec.events):
        field = f"events[{at}]"
        if one.for_s > 0 and one.kind not in _UNDONE_BY:
            raise ScenarioError(
                file,
                f"{field}.for_s",
                one.for_s,
                f"none with kind {one.kind}: only {', '.join(_UNDONE_BY)} are undone",
            )
        for turn, broker in enumerate(chooser.choose(f"{field}.brokers", one.brokers)):
            t_s = one.t_s + turn * one.every_s
            factor = {} if one.factor is None else {"factor": one.factor}
            found.append(({"t_s": t_s, "broker": broker, "kind": one.kind, **factor}, field))
            if 0 < one.for_s <= spec.ticks * spec.tick_s - t_s:
                undone = {"factor": 1.0} if one.kind == "slow" else {}
                found.append(
                    (
                        {
                            "t_s": t_s + one.for_s,
                            "broker": broker,
                            "kind": _UNDONE_BY[one.kind],
                            **undone,
                        },
                        field,
                    )
                )
    found.sort(key=lambda pair: float(pair[0]["t_s"]))
    return [entry for entry, _ in found], [field for _, field in found]


def starts_down(events: list[Entry]) -> set[str]:
    """The brokers that come before they ever go."""
    first: dict[str, str] = {}
    for one in events:
        if one["kind"] in ("crash", "leave", "up"):
            first.setdefault(one["broker"], one["kind"])
    return {broker for broker, kind in first.items() if kind == "up"}


def fault_entries(file: str | Path, spec: Spec, brokers: tuple[str, ...]) -> list[Entry]:
    """Faults with their brokers. Raises ScenarioError."""
    chooser = Chooser(file, brokers, "brokers without a fault", spec.seed)
    return [
        {
            "kind": one.kind,
            "brokers": chooser.choose(f"faults[{at}].brokers", one.brokers),
            "from_s": one.from_s,
            "to_s": spec.ticks * spec.tick_s if one.to_s is None else one.to_s,
            **({} if one.delay_s is None else {"delay_s": one.delay_s}),
        }
        for at, one in enumerate(spec.faults)
    ]


def policy_entries(
    file: str | Path, spec: Spec, brokers: tuple[str, ...], namespaces: list[str]
) -> Entry:
    """The rules with their brokers and namespaces. Raises ScenarioError."""
    given = spec.policies
    walls = Chooser(file, brokers, "brokers without isolation", spec.seed)
    free = Chooser(file, namespaces, "namespaces without a rule", spec.seed)
    isolation: list[Entry] = []
    for at, one in enumerate(given.isolation):
        field = f"policies.isolation[{at}]"
        names = free.choose(
            f"{field}.tenant", _of_tenant(file, f"{field}.tenant", one.tenant, namespaces)
        )
        primary, secondary = (
            walls.choose(f"{field}.primary", one.primary),
            walls.choose(f"{field}.secondary", one.secondary),
        )
        isolation.append(
            {"name": one.tenant, "namespaces": names, "primary": primary, "secondary": secondary}
        )
        isolation[-1]["min_available"] = one.min_available
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
            {"namespace": name, "moves_per_hour": one.moves_per_hour}
            for at, one in enumerate(given.budgets)
            for name in _of_tenant(file, f"policies.budgets[{at}].tenant", one.tenant, namespaces)
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
