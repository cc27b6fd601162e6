"""Builds a scenario from a live cluster's past, which its tables or load reports record.

What they don't record is assumed, with a note. Bundles that were split or merged have their last
form from the beginning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import pyarrow as pa

from lb_stream.contracts.keys import GivenSettings
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.names import parse_bundle
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.policies import NO_POLICIES, Policies
from lb_stream.io.messages.times import utc
from lb_stream.settings.move_limits import resolve_move_limits
from lb_stream.sim.scenario.capacities import deduplicate_reports, infer_capacities
from lb_stream.sim.scenario.errors import ScenarioError
from lb_stream.sim.scenario.recorded_loads import RecordedLoads, build_recorded_loads
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
    ScenarioSplits,
    ScenarioTopics,
)

REPORT_DELAY_S, RECONNECT_S = 1.0, 2.0
RELEASE_S, ACQUIRE_S, REPORT_INTERVAL_S = 2.0, 3.0, 30.0
SPLITS = ScenarioSplits(
    split_s=2.0,
    detailed_bundles=10,
    max_rate=30_000.0,
    max_bytes_per_s=100.0 * 2**20,
    difference=0.1,
)
"""How brokers split bundles: assumed, with Pulsar's defaults."""
SETTLED_S = 1_800.0
"""Seconds until the initial imbalance should be gone; at most a quarter of the scenario."""


@dataclass(frozen=True, slots=True)
class LoadHistory:
    """A cluster's recorded past as columns. Times are ms since the epoch."""

    cluster: str
    from_ms: int
    to_ms: int  # excluded
    resolution_ms: int
    # rows of bundle_history and of broker_history from an hour before on, ordered by time
    bundles: pa.Table
    brokers: pa.Table
    # now_ms, broker, alive, seen_ms: each broker's first round, and those in which `alive` changed
    alive: pa.Table
    # operators' commands, ordered by time: at_ms, kind (drain-broker, undrain-broker), broker
    drains: pa.Table
    memory: str | None = None  # of the first round, as logged
    settings: GivenSettings = field(default_factory=dict)  # the job's own for this cluster
    # medians; None: nothing is recorded
    report_interval_s: float | None = None
    release_s: float | None = None  # from a move's decision until a report shows the bundle gone
    acquire_s: float | None = None  # from an assignment until a report confirms it
    # bundle, topic_hashes, topic_shares: as last reported; None or empty: bundles can't be split
    topics: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class ScenarioWithNotes:
    """A scenario, and notes on what was inferred or assumed for it.

    `error`: by how much its usages miss those of reports, a ratio; None: no report shows it.
    """

    scenario: Scenario
    notes: tuple[str, ...]
    error: float | None = None


def build_from_history(
    history: LoadHistory, tick_s: float = 10.0, from_end: bool = False
) -> ScenarioWithNotes:
    """Build the scenario of what a cluster carried, in ticks of `tick_s` seconds.

    `from_end`: its brokers are from the beginning as they are at the history's end.

    Raises ScenarioError for a history without rows, and where the history's resolution is no
    multiple of the tick.
    """
    # times
    where = f"history of {history.cluster}"
    step_ms, from_ms = history.resolution_ms, history.from_ms
    step_ticks = round(step_ms / 1000 / tick_s)
    ticks = math.floor((history.to_ms - from_ms) / 1000 / tick_s)
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
            f"a time that has rows: there are {found}",
        )
    # brokers, bundles, and their loads
    names = tuple(sorted(set(history.brokers["broker"].to_pylist())))
    loads = build_recorded_loads(history.bundles, names, from_ms, step_ms, -(-ticks // step_ticks))
    if not loads.names:
        raise ScenarioError(
            where, "bundles", 0, "at least one that is not of the brokers' own namespaces"
        )
    operator_state, pinned = _load_operator_state(history)
    end_s = math.inf if from_end else tick_s * ticks
    up, events, up_notes = _events(history, names, operator_state, tick_s, end_s)
    if from_end:
        up, events = _settle(up, events)
    brokers, inferred, error = _brokers(history, names, up, tick_s)
    owner = np.where(np.append(up, False)[loads.owner], loads.owner, -1)
    move, interval_s, assumed = _times(history, tick_s)
    counts, topics, splits, topic_notes = _topics(history, loads)
    policies, left_out = _policies(operator_state, pinned, loads, owner, names)
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
            loads.names,
            owner,
            **loads.counts | {"topics": counts},
            memory_bytes=np.zeros(len(loads.names), np.int64),
        ),
        events=events,
        faults=(),
        policies=policies,
        loads=loads.loads,
        format=2 if brokers.stated or brokers.cpu_base is not None or topics is not None else 1,
        topics=topics,
        splits=splits,
    )
    notes = (*inferred, *assumed, *loads.notes, *topic_notes, *up_notes, *left_out)
    return ScenarioWithNotes(scenario, notes, error)


def _topics(
    history: LoadHistory, loads: RecordedLoads
) -> tuple[Ints, ScenarioTopics | None, ScenarioSplits | None, list[str]]:
    """Return each bundle's number of topics, the topics, how brokers split, and notes.

    The topics of bundles without reported shares are assumed to be alike and evenly spaced.
    """
    counts = loads.counts["topics"].copy()
    reported = [] if history.topics is None else history.topics.to_pylist()
    row_of = {name: row for row, name in enumerate(loads.names)}
    known = {
        row_of[entry["bundle"]]: (entry["topic_hashes"], entry["topic_shares"])
        for entry in reported
        if entry["bundle"] in row_of
    }
    if not known:
        return counts, None, None, []
    hashes, shares = [], []
    for row, name in enumerate(loads.names):
        if row in known:
            own = np.array(known[row][0], np.int64)
            share = np.array(known[row][1], np.float64)
        else:
            _, lower, upper = parse_bundle(name)
            many = max(int(counts[row]), 1)
            own = lower + (upper - lower) * np.arange(many) // many
            share = np.ones(many)
        order = np.argsort(own, kind="stable")
        hashes.append(own[order])
        shares.append(share[order])
        counts[row] = len(own)
    topics = ScenarioTopics(
        np.repeat(np.arange(len(counts)), counts),
        np.concatenate(hashes),
        np.concatenate(shares).astype(np.float32),
    )
    note = (
        f"topics of {len(known)} bundles have the shares of load that were reported last; those of "
        f"the other {len(counts) - len(known)} are assumed to be alike"
    )
    return counts, topics, SPLITS, [note]


def _load_operator_state(history: LoadHistory) -> tuple[OperatorState, tuple[str, ...]]:
    """Return the operators' state at the beginning, and the namespaces that are never shed."""
    operator_state = (
        Memory.from_json(history.memory).operator_state if history.memory else OperatorState()
    )
    limits = resolve_move_limits(history.settings, operator_state.settings)
    return operator_state, limits.shedding_excluded_namespaces


def _brokers(
    history: LoadHistory, names: Sequence[str], up: Bools, tick_s: float
) -> tuple[ScenarioBrokers, tuple[str, ...], float | None]:
    """Return the brokers, notes, and by how much their usages miss those of reports."""
    reports = deduplicate_reports(history.brokers)
    row_of = {name: row for row, name in enumerate(names)}
    broker = np.array([row_of[name] for name in reports["broker"].to_pylist()], np.int64)
    found = infer_capacities(reports, broker, len(names))
    interval_s = history.report_interval_s or REPORT_INTERVAL_S
    last_s = np.zeros(len(names))
    last_s[broker] = (reports["reported_ms"].to_numpy() - history.from_ms) / 1000
    phase_s = np.floor(last_s % interval_s / tick_s) * tick_s
    brokers = ScenarioBrokers(
        tuple(names),
        up,
        **found.columns,
        report_phase_s=phase_s,
        cpu_base=found.cpu_base,
        stated=found.stated,
    )
    return brokers, found.notes, found.error


def _times(history: LoadHistory, tick_s: float) -> tuple[MoveTimes, float, list[str]]:
    """Return how long moves took, the interval of reports (s), and notes.

    Recorded times include a report's delay, which is subtracted. Others are assumed.
    """
    notes = [f"assumed: report_delay_s = {REPORT_DELAY_S:g}, reconnect_s = {RECONNECT_S:g}"]
    took = {"release_s": RELEASE_S, "acquire_s": ACQUIRE_S}
    interval_s = REPORT_INTERVAL_S
    measured = {name: getattr(history, name) for name in took if getattr(history, name) is not None}
    took |= {name: round(max(value - REPORT_DELAY_S, 0.0), 3) for name, value in measured.items()}
    if assumed := ", ".join(f"{name} = {took[name]:g}" for name in took if name not in measured):
        notes.append(f"assumed: {assumed}: no outcome of this cluster shows it")
    if known := ", ".join(f"{name} = {took[name]:g}" for name in measured):
        notes.append(f"{known}: medians of the last confirmed decisions, less report_delay_s")
    if history.report_interval_s is None:
        notes.append(f"assumed: report_interval_s = {REPORT_INTERVAL_S:g}")
    else:
        interval_s = max(round(history.report_interval_s / tick_s), 1) * tick_s
        notes.append(f"report_interval_s = {interval_s:g}: the median, in whole ticks")
    return MoveTimes(**took, reconnect_s=RECONNECT_S), interval_s, notes


def _events(
    history: LoadHistory,
    names: Sequence[str],
    operator_state: OperatorState,
    tick_s: float,
    end_s: float,
) -> tuple[Bools, tuple[Event, ...], list[str]]:
    """Return which brokers are up at the start, the events ordered by time, and notes.

    Each event is at a tick.
    """
    row_of = {name: row for row, name in enumerate(names)}
    from_ms = history.from_ms
    found: list[tuple[float, int, EventKind]] = []

    def add_event(at_ms: int, broker: str, kind: EventKind) -> None:
        t_s = math.ceil(max(at_ms - from_ms, 0) / 1000 / tick_s) * tick_s
        if broker in row_of and t_s < end_s:
            found.append((t_s, row_of[broker], kind))

    up = np.ones(len(names), np.bool_)
    rounds = sorted(history.alive.to_pylist(), key=lambda row: (row["broker"], row["now_ms"]))
    first_ms = min((row["now_ms"] for row in rounds), default=from_ms)
    for broker, rows in groupby(rounds, key=lambda row: str(row["broker"])):
        for number, row in enumerate(rows):
            if number == 0 and broker in row_of:
                up[row_of[broker]] = row["alive"] and row["now_ms"] == first_ms
                if row["alive"] and row["now_ms"] > first_ms:  # new
                    add_event(row["now_ms"], broker, "up")
            elif number:
                add_event(row["seen_ms"], broker, "up" if row["alive"] else "crash")
    for broker in operator_state.drained:
        add_event(from_ms, broker, "drain")
    for row in history.drains.to_pylist():
        add_event(
            row["at_ms"], row["broker"], "undrain" if row["kind"] == "undrain-broker" else "drain"
        )
    notes = (
        []
        if rounds
        else ["no round says which brokers were alive: all brokers are up all the time"]
    )
    return up, tuple(_possible(sorted(found), up.tolist())), notes


def _settle(up: Bools, events: Sequence[Event]) -> tuple[Bools, tuple[Event, ...]]:
    """Return which brokers are up after these events, and the drains that are in force then."""
    after, drained = up.copy(), set[int]()
    for event in events:
        if event.kind in ("up", "crash"):
            after[event.broker] = event.kind == "up"
        elif event.kind == "drain":
            drained.add(event.broker)
        else:
            drained.discard(event.broker)
    return after, tuple(Event(0.0, broker, "drain") for broker in sorted(drained))


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
    operator_state: OperatorState,
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
    policies = operator_state.policies(NO_POLICIES)
    isolation, no_match = _isolation(operator_state, policies, namespaces, brokers)
    groups, broken = _anti_affinity(policies, namespaces, namespace_of, owner)
    kept = tuple(namespace for namespace in pinned if namespace in namespaces)
    return ScenarioPolicies(isolation, groups, kept), no_match + broken


def _isolation(
    operator_state: OperatorState,
    policies: Policies,
    namespaces: Sequence[str],
    brokers: Sequence[str],
) -> tuple[tuple[ScenarioIsolation, ...], list[str]]:
    found: list[ScenarioIsolation] = []
    notes: list[str] = []
    for name, policy in zip(operator_state.isolation, policies.isolation, strict=True):
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
