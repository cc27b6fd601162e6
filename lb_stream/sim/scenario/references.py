"""What scenario.json says about its own brokers, namespaces and times: events, faults and policies,
checked, as rows of brokers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lb_stream.sim.scenario.document import Document
from lb_stream.sim.scenario.errors import MISSING, ScenarioError
from lb_stream.sim.scenario.scenario import (
    Event,
    Fault,
    ScenarioAntiAffinity,
    ScenarioBrokers,
    ScenarioIsolation,
    ScenarioPolicies,
)

EPSILON_S = 1e-6
AMOUNTS = (
    *("cpu_msgs_per_s", "cpu_bytes_per_s", "bandwidth_in_bytes_per_s", "bandwidth_out_bytes_per_s"),
    *(
        "memory_bytes",
        "memory_base_bytes",
        "direct_memory_bytes",
        "direct_memory_base_bytes",
        "report_phase_s",
    ),
)
"""The columns of brokers that are numbers."""


@dataclass(frozen=True, slots=True)
class References:
    """What events, faults and policies refer to. Its methods raise ScenarioError."""

    path: Path
    document: Document
    rows: dict[str, int]  # broker → row

    @property
    def end_s(self) -> float:
        """When the scenario is over."""
        return self.document.tick_s * self.document.ticks

    def broker(self, field: str, name: str) -> int:
        """The row of a broker that a field names."""
        if name not in self.rows:
            raise ScenarioError(self.path, field, name, "the name of one of the brokers")
        return self.rows[name]

    def brokers(self, field: str, names: Sequence[str]) -> tuple[int, ...]:
        """The rows of brokers that a field lists, each once."""
        once(self.path, field, names)
        return tuple(self.broker(f"{field}[{at}]", name) for at, name in enumerate(names))

    def within(self, field: str, t_s: float) -> float:
        """A moment, which must lie in the scenario."""
        if t_s > self.end_s + EPSILON_S:
            raise ScenarioError(
                self.path, field, t_s, f"{self.end_s:g} or less: the scenario ends then"
            )
        return t_s


def once(path: Path, field: str, values: Iterable[str]) -> None:
    """Each value may be there once. Raises ScenarioError for the first that comes again."""
    seen: set[str] = set()
    for at, value in enumerate(values):
        if value in seen:
            raise ScenarioError(path, f"{field}[{at}]", value, "each of them once")
        seen.add(value)


def brokers_of(path: Path, document: Document) -> ScenarioBrokers:
    """The brokers as columns. Raises ScenarioError for two of one name."""
    names = tuple(broker.name for broker in document.brokers)
    seen: set[str] = set()
    for at, name in enumerate(names):
        if name in seen:
            raise ScenarioError(
                path, f"brokers[{at}].name", name, "a name that no other broker has"
            )
        seen.add(name)
    columns = {
        name: np.array([getattr(broker, name) for broker in document.brokers], np.float64)
        for name in AMOUNTS
    }
    return ScenarioBrokers(
        names=names, up=np.array([broker.up for broker in document.brokers], np.bool_), **columns
    )


def judged_times(within: References) -> None:
    """Judging begins within the scenario, and the disturbance is over after it began."""
    document, last_s = within.document, (within.document.ticks - 1) * within.document.tick_s
    for field, least, most in (
        ("judge_from_s", 0.0, last_s),
        ("settled_from_s", document.judge_from_s, last_s),
    ):
        value = getattr(document, field)
        if not least <= value <= most + EPSILON_S:
            wanted = f"{least:g} or more, and {last_s:g}, the last tick, or less"
            raise ScenarioError(within.path, field, value, wanted)


def events_of(within: References, fields: Sequence[str] = ()) -> tuple[Event, ...]:
    """Events in order of time, each of which changes something.

    `fields`: how errors call each, where it isn't its place in the list.
    """
    up = {broker.name: broker.up for broker in within.document.brokers}
    drained = dict.fromkeys(up, False)
    found: list[Event] = []
    for at, event in enumerate(within.document.events):
        field = fields[at] if fields else f"events[{at}]"
        row = within.broker(f"{field}.broker", event.broker)
        before_s = found[-1].t_s if found else 0.0
        if within.within(f"{field}.t_s", event.t_s) < before_s:
            raise ScenarioError(
                within.path,
                f"{field}.t_s",
                event.t_s,
                f"{before_s:g} or more: events are in order of time",
            )
        _only_with(within.path, f"{field}.factor", event.factor, event.kind, "slow")
        if event.kind in ("crash", "leave") and not up[event.broker]:
            raise ScenarioError(
                within.path,
                f"{field}.kind",
                event.kind,
                f"another kind: {event.broker} is down at {event.t_s:g} s",
            )
        if event.kind == "up" and up[event.broker]:
            raise ScenarioError(
                within.path,
                f"{field}.kind",
                event.kind,
                f"another kind: {event.broker} is up at {event.t_s:g} s",
            )
        if event.kind in ("drain", "undrain") and drained[event.broker] == (event.kind == "drain"):
            state = "drained" if drained[event.broker] else "not drained"
            raise ScenarioError(
                within.path,
                f"{field}.kind",
                event.kind,
                f"another kind: {event.broker} is {state} at {event.t_s:g} s",
            )
        up[event.broker] = event.kind == "up" or (
            up[event.broker] and event.kind not in ("crash", "leave")
        )
        drained[event.broker] = event.kind == "drain" or (
            drained[event.broker] and event.kind != "undrain"
        )
        found.append(
            Event(event.t_s, row, event.kind, 1.0 if event.factor is None else event.factor)
        )
    return tuple(found)


def faults_of(within: References) -> tuple[Fault, ...]:
    """Faults, each with a time that begins within the scenario."""
    found = []
    for at, fault in enumerate(within.document.faults):
        field = f"faults[{at}]"
        rows = within.brokers(f"{field}.brokers", fault.brokers)
        from_s = within.within(f"{field}.from_s", fault.from_s)
        if fault.to_s <= from_s:
            raise ScenarioError(
                within.path, f"{field}.to_s", fault.to_s, f"more than from_s, {from_s:g}"
            )
        _only_with(within.path, f"{field}.delay_s", fault.delay_s, fault.kind, "stale_reports")
        found.append(Fault(fault.kind, rows, from_s, fault.to_s, fault.delay_s or 0.0))
    return tuple(found)


def _only_with(path: Path, field: str, value: float | None, kind: str, wanted_kind: str) -> None:
    """A number that one kind needs and the others lack."""
    if (value is None) == (kind == wanted_kind):
        raise ScenarioError(
            path,
            field,
            MISSING if value is None else value,
            f"it with kind {wanted_kind}, and with no other",
        )


def policies_of(within: References) -> ScenarioPolicies:
    """The rules; a namespace is in one anti-affinity group and has one budget at most."""
    given, path = within.document.policies, within.path
    isolation = []
    for at, policy in enumerate(given.isolation):
        field = f"policies.isolation[{at}]"
        once(path, f"{field}.namespaces", policy.namespaces)
        primary, secondary = (
            within.brokers(f"{field}.primary", policy.primary),
            within.brokers(f"{field}.secondary", policy.secondary),
        )
        isolation.append(
            ScenarioIsolation(
                policy.name, tuple(policy.namespaces), primary, secondary, policy.min_available
            )
        )
    group_of: dict[str, str] = {}
    for at, group in enumerate(given.anti_affinity):
        for number, namespace in enumerate(group.namespaces):
            if namespace in group_of:
                field = f"policies.anti_affinity[{at}].namespaces[{number}]"
                raise ScenarioError(
                    path,
                    field,
                    namespace,
                    f"another namespace: group {group_of[namespace]} has this one",
                )
            group_of[namespace] = group.name
    once(path, "policies.isolation.name", (policy.name for policy in given.isolation))
    once(path, "policies.anti_affinity.name", (group.name for group in given.anti_affinity))
    once(path, "policies.pinned_namespaces", given.pinned_namespaces)
    once(path, "policies.budgets.namespace", (budget.namespace for budget in given.budgets))
    return ScenarioPolicies(
        tuple(isolation),
        tuple(
            ScenarioAntiAffinity(group.name, tuple(group.namespaces))
            for group in given.anti_affinity
        ),
        tuple(given.pinned_namespaces),
        {budget.namespace: budget.moves_per_hour for budget in given.budgets},
    )
