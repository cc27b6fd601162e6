"""Checks what events, faults and policies of scenario.json refer to: brokers, namespaces, times.

Names of brokers become rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lb_stream.sim.scenario.document import BrokerEntry, Document, EventEntry, RolloutEntry
from lb_stream.sim.scenario.errors import MISSING, ScenarioError
from lb_stream.sim.scenario.scenario import (
    LIMITS,
    Event,
    Fault,
    Floats,
    ScenarioAntiAffinity,
    ScenarioBrokers,
    ScenarioIsolation,
    ScenarioPolicies,
    ScenarioRollout,
    StatedLimit,
)

EPSILON_S = 1e-6
AMOUNTS = (
    "cpu_msgs_per_s",
    "cpu_bytes_per_s",
    "bandwidth_in_bytes_per_s",
    "bandwidth_out_bytes_per_s",
    "memory_bytes",
    "memory_base_bytes",
    "direct_memory_bytes",
    "direct_memory_base_bytes",
    "report_phase_s",
)
"""Columns of brokers that are numbers."""


@dataclass(frozen=True, slots=True)
class References:
    """What events, faults and policies may refer to. Its methods raise ScenarioError."""

    path: Path
    document: Document
    rows: dict[str, int]  # broker → row

    @property
    def end_s(self) -> float:
        """Return the end of the scenario, seconds."""
        return self.document.tick_s * self.document.ticks

    def broker(self, field: str, name: str) -> int:
        """Return the row of a broker that a field names."""
        if name not in self.rows:
            raise ScenarioError(self.path, field, name, "the name of one of the brokers")
        return self.rows[name]

    def brokers(self, field: str, names: Sequence[str]) -> tuple[int, ...]:
        """Return the rows of brokers that a field lists, each once."""
        require_unique(self.path, field, names)
        return tuple(self.broker(f"{field}[{at}]", name) for at, name in enumerate(names))

    def require_within(self, field: str, t_s: float) -> float:
        """Return a time that must lie within the scenario."""
        if t_s > self.end_s + EPSILON_S:
            raise ScenarioError(
                self.path, field, t_s, f"{self.end_s:g} or less: the scenario ends then"
            )
        return t_s


def require_unique(path: Path, field: str, values: Iterable[str]) -> None:
    """Require that values differ. Raises ScenarioError for the first that comes again."""
    seen: set[str] = set()
    for at, value in enumerate(values):
        if value in seen:
            raise ScenarioError(path, f"{field}[{at}]", value, "each of them once")
        seen.add(value)


def build_brokers(path: Path, document: Document) -> ScenarioBrokers:
    """Build the brokers' columns.

    Raises ScenarioError for two brokers of one name, and for a limit that a broker's reports are to
    leave out and to state.
    """
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
    base = np.array([broker.cpu_base for broker in document.brokers], np.float64)
    return ScenarioBrokers(
        names=names,
        up=np.array([broker.up for broker in document.brokers], np.bool_),
        **columns,
        cpu_base=base if base.any() else None,
        stated=_stated_limits(path, document.brokers),
    )


def _stated_limits(path: Path, brokers: Sequence[BrokerEntry]) -> dict[StatedLimit, Floats]:
    """Return the limits that reports state, where some broker's aren't the true ones."""
    stated: dict[StatedLimit, Floats] = {}
    for at, broker in enumerate(brokers):
        require_unique(path, f"brokers[{at}].unreported", broker.unreported)
        for limit in broker.misreported:
            if limit in broker.unreported:
                wanted = f"a limit that brokers[{at}].unreported doesn't name"
                raise ScenarioError(path, f"brokers[{at}].misreported", limit, wanted)
    for limit, column in LIMITS.items():
        if any(limit in broker.unreported or limit in broker.misreported for broker in brokers):
            stated[limit] = np.array(
                [
                    0.0
                    if limit in broker.unreported
                    else broker.misreported.get(limit, getattr(broker, column))
                    for broker in brokers
                ],
                np.float64,
            )
    return stated


def require_judged_times(references: References) -> None:
    """Require that judging begins within the scenario and the disturbance ends after that."""
    document, last_s = (
        references.document,
        (references.document.ticks - 1) * references.document.tick_s,
    )
    for field, least, most in (
        ("judge_from_s", 0.0, last_s),
        ("settled_from_s", document.judge_from_s, last_s),
    ):
        value = getattr(document, field)
        if not least <= value <= most + EPSILON_S:
            wanted = f"{least:g} or more, and {last_s:g}, the last tick, or less"
            raise ScenarioError(references.path, field, value, wanted)


def build_events(references: References, fields: Sequence[str] = ()) -> tuple[Event, ...]:
    """Build the events. They must be ordered by time, and each must change something.

    `fields`: each event's name in error messages; by default its place in the list.
    """
    up = {broker.name: broker.up for broker in references.document.brokers}
    drained = dict.fromkeys(up, False)
    found: list[Event] = []
    before_s = 0.0
    for at, event in enumerate(references.document.events):
        # time
        field = fields[at] if fields else f"events[{at}]"
        if references.require_within(f"{field}.t_s", event.t_s) < before_s:
            raise ScenarioError(
                references.path,
                f"{field}.t_s",
                event.t_s,
                f"{before_s:g} or more: events are in order of time",
            )
        before_s = event.t_s
        if isinstance(event, RolloutEntry):
            continue
        row = references.broker(f"{field}.broker", event.broker)
        # what the event changes, given the broker's state
        _require_only_with(references.path, f"{field}.factor", event.factor, event.kind, "slow")
        if event.kind in ("crash", "leave") and not up[event.broker]:
            raise ScenarioError(
                references.path,
                f"{field}.kind",
                event.kind,
                f"another kind: {event.broker} is down at {event.t_s:g} s",
            )
        if event.kind == "up" and up[event.broker]:
            raise ScenarioError(
                references.path,
                f"{field}.kind",
                event.kind,
                f"another kind: {event.broker} is up at {event.t_s:g} s",
            )
        if event.kind in ("drain", "undrain") and drained[event.broker] == (event.kind == "drain"):
            state = "drained" if drained[event.broker] else "not drained"
            raise ScenarioError(
                references.path,
                f"{field}.kind",
                event.kind,
                f"another kind: {event.broker} is {state} at {event.t_s:g} s",
            )
        # the state afterwards
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


def build_rollout(
    references: References, events: Sequence[Event], fields: Sequence[str] = ()
) -> ScenarioRollout | None:
    """Build the rollout; None: there is none. `events`: those of the brokers; `fields`: as there.

    Raises ScenarioError for a second rollout, and for one without brokers.
    """
    found: ScenarioRollout | None = None
    for at, entry in enumerate(references.document.events):
        if isinstance(entry, EventEntry):
            continue
        field = fields[at] if fields else f"events[{at}]"
        if found is not None:
            raise ScenarioError(
                references.path, f"{field}.kind", entry.kind, "at most one rollout in a scenario"
            )
        if entry.brokers is None:
            rows = _rows_up_at(references, events, entry.t_s)
            if not rows:
                raise ScenarioError(
                    references.path, f"{field}.brokers", MISSING, "it: no broker is up then"
                )
        else:
            rows = references.brokers(f"{field}.brokers", entry.brokers)
        found = ScenarioRollout(
            entry.t_s, entry.restart_s, entry.at_most, rows, entry.order == "given"
        )
    return found


def _rows_up_at(references: References, events: Sequence[Event], t_s: float) -> tuple[int, ...]:
    up = [broker.up for broker in references.document.brokers]
    for event in events:
        if event.t_s <= t_s and event.kind in ("crash", "leave", "up"):
            up[event.broker] = event.kind == "up"
    return tuple(row for row, is_up in enumerate(up) if is_up)


def build_faults(references: References) -> tuple[Fault, ...]:
    """Build the faults. Each must begin within the scenario."""
    found = []
    for at, fault in enumerate(references.document.faults):
        field = f"faults[{at}]"
        rows = references.brokers(f"{field}.brokers", fault.brokers)
        from_s = references.require_within(f"{field}.from_s", fault.from_s)
        if fault.to_s <= from_s:
            raise ScenarioError(
                references.path, f"{field}.to_s", fault.to_s, f"more than from_s, {from_s:g}"
            )
        _require_only_with(
            references.path, f"{field}.delay_s", fault.delay_s, fault.kind, "stale_reports"
        )
        found.append(Fault(fault.kind, rows, from_s, fault.to_s, fault.delay_s or 0.0))
    return tuple(found)


def _require_only_with(
    path: Path, field: str, value: float | None, kind: str, wanted_kind: str
) -> None:
    """Require a number of one kind, and none of the other kinds."""
    if (value is None) == (kind == wanted_kind):
        raise ScenarioError(
            path,
            field,
            MISSING if value is None else value,
            f"it with kind {wanted_kind}, and with no other",
        )


def build_policies(references: References) -> ScenarioPolicies:
    """Build the rules. A namespace has at most one anti-affinity group and one budget."""
    given, path = references.document.policies, references.path
    isolation = []
    for at, policy in enumerate(given.isolation):
        field = f"policies.isolation[{at}]"
        require_unique(path, f"{field}.namespaces", policy.namespaces)
        primary = references.brokers(f"{field}.primary", policy.primary)
        secondary = references.brokers(f"{field}.secondary", policy.secondary)
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
    require_unique(path, "policies.isolation.name", (policy.name for policy in given.isolation))
    require_unique(
        path, "policies.anti_affinity.name", (group.name for group in given.anti_affinity)
    )
    require_unique(path, "policies.pinned_namespaces", given.pinned_namespaces)
    require_unique(
        path, "policies.budgets.namespace", (budget.namespace for budget in given.budgets)
    )
    return ScenarioPolicies(
        tuple(isolation),
        tuple(
            ScenarioAntiAffinity(group.name, tuple(group.namespaces))
            for group in given.anti_affinity
        ),
        tuple(given.pinned_namespaces),
        {budget.namespace: budget.moves_per_hour for budget in given.budgets},
    )
