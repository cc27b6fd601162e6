"""Reads a trace, decisions and their effects as JSON lines, and follows it through its scenario.

The result is the history of owners. A trace that can't have happened is an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lb_stream.sim.measures.rules import Rules
from lb_stream.sim.measures.state import TOLERANCE, BrokerState
from lb_stream.sim.scenario.scenario import Bools, Floats, Ints, Scenario

RELEASED, ACQUIRED, LOST = range(3)
"""Causes of a change of owner: an unload, an assignment, or the broker went down."""


TraceLine = Mapping[str, object]
"""A line of a trace: a JSON object, which nothing has checked yet."""


class TraceError(ValueError):
    """A file that is no trace, or a trace that can't have happened. The message is one line."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of owners as columns, by time. `old`, `new`: brokers' rows, -1: unassigned."""

    t_s: Floats
    bundle: Ints
    old: Ints
    new: Ints
    cause: Ints
    drained: Bools  # released by a broker that was being drained

    def __len__(self) -> int:
        return len(self.t_s)


class Violation(NamedTuple):
    """A decision whose effect broke one of the scenario's rules."""

    t_s: float
    rule: str  # a key of the measure `violations`
    bundle: int
    broker: int


@dataclass(frozen=True, slots=True)
class OwnershipHistory:
    """Changes of owners, numbers of decisions and violations that follow from a trace."""

    changes: Changes
    decisions: int
    decisions_lost: int  # sent to a broker during its fault `lost_decisions`
    violations: tuple[Violation, ...]
    last_owner: Ints  # each bundle's broker at the scenario's end, -1: unassigned


def read_trace(path: Path) -> Iterator[dict[str, object]]:
    """Read a file's lines. Raises TraceError, which names the line that is no JSON object."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    entry = json.loads(line)
                except ValueError:
                    raise TraceError(f"{path}: line {number} is no JSON") from None
                if not isinstance(entry, dict):
                    raise TraceError(
                        f"{path}: line {number} is {type(entry).__name__}, expected an object"
                    )
                yield entry
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TraceError(f"{path}: expected text in UTF-8") from None


def follow_trace(scenario: Scenario, rules: Rules, lines: Iterable[TraceLine]) -> OwnershipHistory:
    """Follow a trace through its scenario. Raises TraceError for what can't have happened."""
    follower = _TraceFollower(scenario, rules)
    for line in lines:
        if line.get("event") != "header":
            follower.follow(line)
    return follower.finish()


class _Decision(NamedTuple):
    t_s: float
    kind: str
    bundle: int
    source: int
    destination: int


class _TraceFollower:
    """Follows the lines of a trace, and the scenario's events between them."""

    def __init__(self, scenario: Scenario, rules: Rules) -> None:
        self._scenario, self._rules, self._state = scenario, rules, BrokerState.at_start(scenario)
        self._broker_row = {name: row for row, name in enumerate(scenario.brokers.names)}
        self._bundle_row = {name: row for row, name in enumerate(scenario.bundles.names)}
        self._owner = scenario.bundles.start_owner.copy()
        self._up_since = np.full(len(scenario.brokers), -np.inf)
        self._now = 0.0
        self._decisions: dict[str, _Decision | None] = {}  # None: it has had its effect
        self._changes: list[tuple[float, int, int, int, int, bool]] = []
        self._lost = 0
        self._violations: list[Violation] = []
        self._lost_decisions = [
            fault for fault in scenario.faults if fault.kind == "lost_decisions"
        ]
        # rows of each anti-affinity group's bundles, which every acquisition looks at
        self._groups = {
            group: np.flatnonzero(rules.group == group)
            for group in np.unique(rules.group[rules.group >= 0]).tolist()
        }

    def follow(self, line: TraceLine) -> None:
        """Follow one line of the trace. Raises TraceError."""
        self._advance(self._require_time(line))
        bundle = self._require_row(line, "bundle", self._bundle_row)
        match line.get("event"):
            case "decision":
                self._note_decision(line, bundle)
            case "released" | "acquired" as event:
                broker = self._require_row(line, "broker", self._broker_row)
                self._require_decision(line, event, bundle, broker)
                if event == "released":
                    self._release(bundle, broker)
                else:
                    self._acquire(bundle, broker)
            case event:
                raise self._impossible(
                    f"event is {event!r}, expected decision, released or acquired"
                )

    def finish(self) -> OwnershipHistory:
        """Apply events until the scenario's end, and return the history."""
        self._advance(self._scenario.end_s)
        columns = zip(*self._changes, strict=True) if self._changes else ((),) * 6
        t_s, bundle, old, new, cause, drained = columns
        changes = Changes(
            t_s=np.array(t_s, np.float64),
            bundle=np.array(bundle, np.int64),
            old=np.array(old, np.int64),
            new=np.array(new, np.int64),
            cause=np.array(cause, np.int64),
            drained=np.array(drained, np.bool_),
        )
        return OwnershipHistory(
            changes, len(self._decisions), self._lost, tuple(self._violations), self._owner
        )

    def _require_time(self, line: TraceLine) -> float:
        t_s = line.get("t")
        if isinstance(t_s, bool) or not isinstance(t_s, int | float) or not math.isfinite(t_s):
            raise self._impossible(
                f"the line after it has t {t_s!r}, expected seconds since the scenario's start"
            )
        if t_s < self._now - TOLERANCE:
            raise self._impossible(f"time goes back to {t_s:g} s")
        if t_s > self._scenario.end_s + TOLERANCE:
            raise self._impossible(
                f"a line of {t_s:g} s lies behind the scenario's end, {self._scenario.end_s:g} s"
            )
        return float(t_s)

    def _advance(self, t_s: float) -> None:
        self._now = t_s
        while event := self._state.next_until(t_s):
            if event.kind == "up":
                self._up_since[event.broker] = event.t_s
            elif event.kind in ("crash", "leave"):
                left = np.flatnonzero(self._owner == event.broker)
                self._changes += [
                    (event.t_s, bundle, event.broker, -1, LOST, False) for bundle in left.tolist()
                ]
                self._owner[left] = -1

    def _require_row(self, line: TraceLine, key: str, rows: Mapping[str, int]) -> int:
        name = line.get(key)
        if not isinstance(name, str) or name not in rows:
            raise self._impossible(f"{key} is {name!r}, expected a name of the scenario's")
        return rows[name]

    def _note_decision(self, line: TraceLine, bundle: int) -> None:
        identity, kind = line.get("id"), line.get("kind")
        if not isinstance(identity, str) or identity in self._decisions:
            raise self._impossible(
                f"id of a decision is {identity!r}, expected one that no other has"
            )
        if kind not in ("unload", "assign"):
            raise self._impossible(
                f"kind of decision {identity} is {kind!r}, expected unload or assign"
            )
        source = self._require_row(line, "source", self._broker_row) if kind == "unload" else -1
        undirected = kind == "unload" and line.get("destination") is None
        destination = -1 if undirected else self._require_row(line, "destination", self._broker_row)
        self._decisions[identity] = _Decision(self._now, kind, bundle, source, destination)
        self._lost += self._is_lost(source if kind == "unload" else destination, self._now)

    def _is_lost(self, broker: int, t_s: float) -> bool:
        """Return whether a decision that is sent to the broker at `t_s` gets lost."""
        return any(
            broker in fault.brokers and fault.from_s <= t_s < fault.to_s
            for fault in self._lost_decisions
        )

    def _require_decision(self, line: TraceLine, event: str, bundle: int, broker: int) -> None:
        """Require the decision behind an effect: it reached the broker, and had time to act."""
        identity = line.get("decision")
        decision = self._decisions.get(identity) if isinstance(identity, str) else None
        if decision is None:
            raise self._impossible(
                f"{event} with decision {identity!r}, expected the id of one that has had no "
                "effect yet"
            )
        assert isinstance(identity, str)
        self._decisions[identity] = None
        move, name = self._scenario.move, self._scenario.brokers.names[broker]
        # the decision must say just this
        kind, addressee, delay = (
            ("unload", decision.source, move.release_s)
            if event == "released"
            else ("assign", decision.destination, move.acquire_s)
        )
        if (decision.kind, decision.bundle, addressee) != (kind, bundle, broker):
            raise self._impossible(
                f"{event} of {self._scenario.bundles.names[bundle]} by {name} is not what decision "
                f"{identity} says"
            )
        # it must have had the time that it takes
        if self._now < decision.t_s + delay - TOLERANCE:
            raise self._impossible(
                f"{event} {self._now - decision.t_s:g} s after decision {identity}, expected "
                f"{delay:g} s or more"
            )
        # it must have reached the broker, which has been up since
        if self._is_lost(broker, decision.t_s):
            raise self._impossible(
                f"decision {identity} never reached {name}, and has an effect there"
            )
        if not self._state.up[broker] or decision.t_s < self._up_since[broker] - TOLERANCE:
            raise self._impossible(
                f"{name} is down, or has been since decision {identity}, which has an effect there"
            )

    def _release(self, bundle: int, broker: int) -> None:
        if self._owner[bundle] != broker:
            raise self._impossible(
                f"{self._scenario.brokers.names[broker]} releases "
                f"{self._scenario.bundles.names[bundle]}, which it does not own"
            )
        drained = bool(self._state.drained[broker])
        self._change(bundle, broker, -1, RELEASED, drained)
        if self._rules.pinned[bundle] and not drained:
            self._note_violation("pinned_moves", bundle, broker)

    def _acquire(self, bundle: int, broker: int) -> None:
        names, owner = self._scenario.brokers.names, int(self._owner[bundle])
        if owner >= 0:
            raise self._impossible(
                f"{names[broker]} acquires {self._scenario.bundles.names[bundle]}, which "
                f"{names[owner]} owns"
            )
        rules = self._rules
        if rules.isolation and not rules.allowed(self._state.up)[rules.policy[bundle], broker]:
            self._note_violation("isolation_placements", bundle, broker)
        if self._state.drained[broker]:
            self._note_violation("drained_placements", bundle, broker)
        if (group := int(rules.group[bundle])) >= 0:
            there = self._groups[group][self._owner[self._groups[group]] == broker]
            if (rules.namespace[there] != rules.namespace[bundle]).any():
                self._note_violation("anti_affinity_placements", bundle, broker)
        self._change(bundle, -1, broker, ACQUIRED, False)

    def _change(self, bundle: int, old: int, new: int, cause: int, drained: bool) -> None:
        self._owner[bundle] = new
        self._changes.append((self._now, bundle, old, new, cause, drained))

    def _note_violation(self, rule: str, bundle: int, broker: int) -> None:
        self._violations.append(Violation(self._now, rule, bundle, broker))

    def _impossible(self, text: str) -> TraceError:
        return TraceError(f"impossible trace at {self._now:g} s: {text}")
