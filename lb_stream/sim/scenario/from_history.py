"""A scenario out of what a live cluster's tables, or its reports, tell of its past.

What they don't tell is assumed, and said. Bundles that are split or merged have their last form
from the beginning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.policies import NO_POLICIES, Policies
from lb_stream.io.messages.times import utc
from lb_stream.settings.resolve import resolve
from lb_stream.sim.scenario.capacities import capacities, each_once
from lb_stream.sim.scenario.errors import ScenarioError
from lb_stream.sim.scenario.recorded_loads import RecordedLoads, recorded_loads
from lb_stream.sim.scenario.scenario import (
    Bools,
    Event,
    EventKind,
    Ints,
    MoveTimes,
    Scenario,
    ScenarioAntiAffinity,
    ScenarioBrokers,
    ScenarioBundles,
    ScenarioIsolation,
    ScenarioPolicies,
)

REPORT_DELAY_S, RECONNECT_S = 1.0, 2.0
RELEASE_S, ACQUIRE_S, REPORT_INTERVAL_S = 2.0, 3.0, 30.0
SETTLED_S = 1_800.0
"""A policy is given so long to do away with what it finds, or a quarter of the time."""


@dataclass(frozen=True, slots=True)
class LoadHistory:
    """What is known of a cluster's past, as columns. Times ms since the epoch."""

    cluster: str
    from_ms: int
    to_ms: int  # before
    resolution_ms: int
    bundles: pa.Table  # of bundle_history, in order of time: all rows from an hour before on
    brokers: pa.Table  # of broker_history, likewise
    # now_ms, broker, alive, seen_ms: of each broker the first round, and those in which `alive`
    # changed; in order
    alive: pa.Table
    drains: (
        pa.Table
    )  # at_ms, kind (drain-broker, undrain-broker), broker: operators' commands, in order
    memory: str | None = None  # of the first round, as logged
    settings: Mapping[str, Any] = field(default_factory=dict)  # the job's own for this cluster
    report_interval_s: float | None = None  # medians, where anything tells
    release_s: float | None = None  # from a move's decision until its bundle was seen to have left
    acquire_s: float | None = None  # from an assignment until a report confirmed it


@dataclass(frozen=True, slots=True)
class ScenarioWithNotes:
    """The scenario, and a line for each thing that was inferred or assumed."""

    scenario: Scenario
    notes: tuple[str, ...]


def build_scenario(history: LoadHistory, tick_s: float = 10.0) -> ScenarioWithNotes:
    """What the cluster carried, in ticks of so many seconds.

    Raises ScenarioError where there is nothing to make one of, and for a tick that the history's
    resolution is no multiple of.
    """
    where, step_ms, from_ms = (
        f"history of {history.cluster}",
        history.resolution_ms,
        history.from_ms,
    )
    step_ticks, ticks = (
        round(step_ms / 1000 / tick_s),
        math.floor((history.to_ms - from_ms) / 1000 / tick_s),
    )
    if step_ticks < 1 or not math.isclose(step_ticks * tick_s * 1000, step_ms):
        raise ScenarioError(
            where, "tick", tick_s, f"a divisor of the history's resolution, {step_ms / 1000:g} s"
        )
    if ticks < 1 or not len(history.bundles) or not len(history.brokers):
        found = f"{len(history.bundles)} rows of bundles, {len(history.brokers)} of brokers"
        raise ScenarioError(
            where,
            "time",
            f"{utc(from_ms)} to {utc(history.to_ms)}",
            f"a time that rows tell of: there are {found}",
        )
    names = tuple(sorted(set(history.brokers["broker"].to_pylist())))
    loads = recorded_loads(history.bundles, names, from_ms, step_ms, -(-ticks // step_ticks))
    if not loads.names:
        raise ScenarioError(
            where, "bundles", 0, "at least one that is not of the brokers' own namespaces"
        )
    orders, pinned = _orders(history)
    up, events, said = _events(history, names, orders, tick_s, tick_s * ticks)
    brokers, inferred = _brokers(history, names, up, tick_s)
    owner = np.where(np.append(up, False)[loads.owner], loads.owner, -1)
    move, interval_s, assumed = _times(history, tick_s)
    policies, left_out = _policies(orders, pinned, loads, owner, names)
    scenario = Scenario(
        name=history.cluster,
        why=f"What the cluster {history.cluster} carried from {utc(from_ms)} to "
        f"{utc(history.to_ms)}.",
        tick_s=tick_s,
        ticks=ticks,
        load_step_ticks=step_ticks,
        noise_step_ticks=step_ticks,
        noise_unit=0.0,
        report_interval_s=interval_s,
        report_delay_s=REPORT_DELAY_S,
        move=move,
        judge_from_s=0.0,
        settled_from_s=math.floor(min(SETTLED_S, tick_s * ticks / 4) / tick_s) * tick_s,
        brokers=brokers,
        bundles=ScenarioBundles(
            loads.names, owner, **loads.counts, memory_bytes=np.zeros(len(loads.names), np.int64)
        ),
        events=events,
        faults=(),
        policies=policies,
        loads=loads.loads,
    )
    return ScenarioWithNotes(scenario, (*inferred, *assumed, *loads.notes, *said, *left_out))


def _orders(history: LoadHistory) -> tuple[OperatorState, tuple[str, ...]]:
    """What operators had laid down, and the namespaces that are never shed."""
    orders = Memory.from_json(history.memory).orders if history.memory else OperatorState()
    config = resolve(history.settings, orders.settings).config
    return orders, config.balancer.shedding_excluded_namespaces


def _brokers(
    history: LoadHistory, names: Sequence[str], up: Bools, tick_s: float
) -> tuple[ScenarioBrokers, tuple[str, ...]]:
    reports = each_once(history.brokers)
    of = {name: row for row, name in enumerate(names)}
    broker = np.array([of[name] for name in reports["broker"].to_pylist()], np.int64)
    found = capacities(reports, broker, len(names))
    interval_s = history.report_interval_s or REPORT_INTERVAL_S
    last_s = np.zeros(len(names))
    last_s[broker] = (reports["reported_ms"].to_numpy() - history.from_ms) / 1000
    phase_s = np.floor(last_s % interval_s / tick_s) * tick_s
    return ScenarioBrokers(tuple(names), up, **found.columns, report_phase_s=phase_s), found.notes


def _times(history: LoadHistory, tick_s: float) -> tuple[MoveTimes, float, list[str]]:
    """How long things took: as it was, where outcomes tell, less the way of a report."""
    notes = [f"assumed: report_delay_s = {REPORT_DELAY_S:g}, reconnect_s = {RECONNECT_S:g}"]
    took, interval_s = {"release_s": RELEASE_S, "acquire_s": ACQUIRE_S}, REPORT_INTERVAL_S
    measured = {name: getattr(history, name) for name in took if getattr(history, name) is not None}
    took |= {name: round(max(value - REPORT_DELAY_S, 0.0), 3) for name, value in measured.items()}
    if assumed := ", ".join(f"{name} = {took[name]:g}" for name in took if name not in measured):
        notes.append(f"assumed: {assumed}: no outcome of this cluster tells it")
    if known := ", ".join(f"{name} = {took[name]:g}" for name in measured):
        notes.append(f"{known}: medians of the last confirmed decisions, less report_delay_s")
    if history.report_interval_s is None:
        notes.append(f"assumed: report_interval_s = {REPORT_INTERVAL_S:g}")
    else:
        interval_s = max(round(history.report_interval_s / tick_s), 1) * tick_s
        notes.append(f"report_interval_s = {interval_s:g}: the median, in whole ticks")
    return MoveTimes(**took, reconnect_s=RECONNECT_S), interval_s, notes


def _events(
    history: LoadHistory, names: Sequence[str], orders: OperatorState, tick_s: float, end_s: float
) -> tuple[Bools, tuple[Event, ...], list[str]]:
    """Which brokers are up at the start; who goes and comes, and who is drained, in order of time,
    each at a tick."""
    of, from_ms = {name: row for row, name in enumerate(names)}, history.from_ms
    found: list[tuple[float, int, EventKind]] = []

    def happens(at_ms: int, broker: str, kind: EventKind) -> None:
        t_s = math.ceil(max(at_ms - from_ms, 0) / 1000 / tick_s) * tick_s
        if broker in of and t_s < end_s:
            found.append((t_s, of[broker], kind))

    up = np.ones(len(names), np.bool_)
    lives = sorted(history.alive.to_pylist(), key=lambda row: (row["broker"], row["now_ms"]))
    first_ms = min((row["now_ms"] for row in lives), default=from_ms)
    for broker, rows in groupby(lives, key=lambda row: str(row["broker"])):
        for number, row in enumerate(rows):
            if number == 0 and broker in of:
                up[of[broker]] = row["alive"] and row["now_ms"] == first_ms
                if row["alive"] and row["now_ms"] > first_ms:  # new
                    happens(row["now_ms"], broker, "up")
            elif number:
                happens(row["seen_ms"], broker, "up" if row["alive"] else "crash")
    for broker in orders.drained:
        happens(from_ms, broker, "drain")
    for row in history.drains.to_pylist():
        happens(
            row["at_ms"], row["broker"], "undrain" if row["kind"] == "undrain-broker" else "drain"
        )
    notes = [] if lives else ["no round tells who was alive: all brokers are up all the time"]
    return up, tuple(_possible(sorted(found), up.tolist())), notes


def _possible(found: Sequence[tuple[float, int, EventKind]], up: list[bool]) -> list[Event]:
    """Without events that change nothing."""
    drained = [False] * len(up)
    events = []
    for t_s, broker, kind in found:
        state = up if kind in ("up", "crash") else drained
        after = kind in ("up", "drain")
        if state[broker] != after:
            state[broker] = after
            events.append(Event(t_s, broker, kind))
    return events


def _policies(
    orders: OperatorState,
    pinned: Sequence[str],
    loads: RecordedLoads,
    owner: Ints,
    brokers: Sequence[str],
) -> tuple[ScenarioPolicies, list[str]]:
    """Return the operators' rules, in names instead of expressions, and a line for each left out.

    Left out are rules that name nothing of this time, and those that are broken at the start.
    """
    namespace_of = [name.rpartition("/")[0] for name in loads.names]
    namespaces = sorted(set(namespace_of))
    policies = orders.policies(NO_POLICIES)
    isolation, no_match = _isolation(orders, policies, namespaces, brokers)
    groups, broken = _anti_affinity(policies, namespaces, namespace_of, owner)
    kept = tuple(namespace for namespace in pinned if namespace in namespaces)
    return ScenarioPolicies(isolation, groups, kept), no_match + broken


def _isolation(
    orders: OperatorState, policies: Policies, namespaces: Sequence[str], brokers: Sequence[str]
) -> tuple[tuple[ScenarioIsolation, ...], list[str]]:
    found: list[ScenarioIsolation] = []
    notes: list[str] = []
    for name, policy in zip(orders.isolation, policies.isolation, strict=True):
        primary = tuple(row for row, broker in enumerate(brokers) if policy.is_primary(broker))
        secondary = tuple(row for row, broker in enumerate(brokers) if policy.is_secondary(broker))
        named = tuple(namespace for namespace in namespaces if policy.names(namespace))
        if named and primary:
            found.append(ScenarioIsolation(name, named, primary, secondary, policy.min_available))
        else:
            missing = "primary broker" if named else "namespace"
            notes.append(f"left out: the isolation policy {name} names no {missing} of this time")
    return tuple(found), notes


def _anti_affinity(
    policies: Policies, namespaces: Sequence[str], namespace_of: Sequence[str], owner: Ints
) -> tuple[tuple[ScenarioAntiAffinity, ...], list[str]]:
    """Return the groups, without those of which a broker has two namespaces at the start."""
    group_of = {namespace: policies.group_of(namespace) for namespace in namespaces}
    members: dict[str, list[str]] = {}
    for namespace, group in group_of.items():
        if group is not None:
            members.setdefault(group, []).append(namespace)
    # which namespaces of a group a broker has at the start
    together: dict[tuple[str, int], set[str]] = {}
    for namespace, row in zip(namespace_of, owner.tolist(), strict=True):
        group = group_of[namespace]
        if row >= 0 and group is not None:
            together.setdefault((group, row), set()).add(namespace)
    broken = sorted({group for (group, _), names in together.items() if len(names) > 1})
    found = tuple(
        ScenarioAntiAffinity(group, tuple(names))
        for group, names in sorted(members.items())
        if group not in broken
    )
    return found, [
        f"left out: the anti-affinity group {group}, which is broken at the start"
        for group in broken
    ]
