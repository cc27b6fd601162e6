"""What scenario.json says about its own brokers, namespaces and times: events, faults and policies, checked, as rows of brokers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lb_stream.sim.scenario.document import Document
from lb_stream.sim.scenario.errors import MISSING, ScenarioError
from lb_stream.sim.scenario.scenario import (
    AntiAffinity,
    Event,
    Fault,
    Isolation,
    ScenarioBrokers,
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
    names = tuple(one.name for one in document.brokers)
    seen: set[str] = set()
    for at, name in enumerate(names):
        if name in seen:
            raise ScenarioError(
                path, f"brokers[{at}].name", name, "a name that no other broker has"
            )
        seen.add(name)
    columns = {
        name: np.array([getattr(one, name) for one in document.brokers], np.float64)
        for name in AMOUNTS
    }
    return ScenarioBrokers(
        names=names, up=np.array([one.up for one in document.brokers], np.bool_), **columns
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
    """Events in order of time, each of which changes something. `fields`: how errors call each, where it isn't its place in the list."""
    up = {one.name: one.up for one in within.document.brokers}
    drained = dict.fromkeys(up, False)
    found: list[Event] = []
    for at, one in enumerate(within.document.events):
        field = fields[at] if fields else f"events[{at}]"
        row = within.broker(f"{field}.broker", one.broker)
        before_s = found[-1].t_s if found else 0.0
        if within.within(f"{field}.t_s", one.t_s) < before_s:
            raise ScenarioError(
                within.path,
                f"{field}.t_s",
                one.t_s,
                f"{before_s:g} or more: events are in order of time",
            )
        _only_with(within.path, f"{field}.factor", one.factor, one.kind, "slow")
        if one.kind in ("crash", "leave") and not up[one.broker]:
            raise ScenarioError(
                within.path,
                f"{field}.kind",
                one.kind,
                f"another kind: {one.broker} is down at {one.t_s:g} s",
            )
        if one.kind == "up" and up[one.broker]:
            raise ScenarioError(
                within.path,
                f"{field}.kind",
                one.kind,
                f"another kind: {one.broker} is up at {one.t_s:g} s",
            )
        if one.kind in ("drain", "undrain") and drained[one.broker] == (one.kind == "drain"):
            state = "drained" if drained[one.broker] else "not drained"
            raise ScenarioError(
                within.path,
                f"{field}.kind",
                one.kind,
                f"another kind: {one.broker} is {state} at {one.t_s:g} s",
            )
        up[one.broker] = one.kind == "up" or (up[one.broker] and one.kind not in ("crash", "leave"))
        drained[one.broker] = one.kind == "drain" or (drained[one.broker] and one.kind != "undrain")
        found.append(Event(one.t_s, row, one.kind, 1.0 if one.factor is None else one.factor))
    return tuple(found)


def faults_of(within: References) -> tuple[Fault, ...]:
    """Faults, each with a time that begins within the scenario."""
    found = []
    for at, one in enumerate(within.document.faults):
        field = f"faults[{at}]"
        rows = within.brokers(f"{field}.brokers", one.brokers)
        from_s = within.within(f"{field}.from_s", one.from_s)
        if one.to_s <= from_s:
            raise ScenarioError(
                within.path, f"{field}.to_s", one.to_s, f"more than from_s, {from_s:g}"
            )
        _only_with(within.path, f"{field}.delay_s", one.delay_s, one.kind, "stale_reports")
        found.append(Fault(one.kind, rows, from_s, one.to_s, one.delay_s or 0.0))
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
    for at, one in enumerate(given.isolation):
        field = f"policies.isolation[{at}]"
        once(path, f"{field}.namespaces", one.namespaces)
        primary, secondary = (
            within.brokers(f"{field}.primary", one.primary),
            within.brokers(f"{field}.secondary", one.secondary),
        )
        isolation.append(
            Isolation(one.name, tuple(one.namespaces), primary, secondary, one.min_available)
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
    once(path, "policies.isolation.name", (one.name for one in given.isolation))
    once(path, "policies.anti_affinity.name", (one.name for one in given.anti_affinity))
    once(path, "policies.pinned_namespaces", given.pinned_namespaces)
    once(path, "policies.budgets.namespace", (one.namespace for one in given.budgets))
    return ScenarioPolicies(
        tuple(isolation),
        tuple(AntiAffinity(one.name, tuple(one.namespaces)) for one in given.anti_affinity),
        tuple(given.pinned_namespaces),
        {one.namespace: one.moves_per_hour for one in given.budgets},
    )
