"""Reads a trace, decisions and their effects as JSON lines, and follows it through its scenario.

The result is the history of owners. A trace that can't have happened is an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lb_stream.sim.measures.rules import Rules
from lb_stream.sim.measures.state import TOLERANCE, BrokerState, ticks_at
from lb_stream.sim.scenario.bundle_tree import SPLIT_ALGORITHMS, BundleTree
from lb_stream.sim.scenario.rollout_state import RolloutState
from lb_stream.sim.scenario.scenario import Bools, Event, Floats, Ints, Scenario

RELEASED, ACQUIRED, LOST, SPLIT, BORN = range(5)
"""Causes of a change of owner: an unload, an assignment, the broker went down, or a split, of which
the parent ends and each child is born."""
_DECISION_OF = {
    "released": "unload",
    "acquired": "assign",
    "split": "split",
    "stopped": "restart",
}
"""An effect → the kind of its decision."""

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
    leaving: Bools  # released by a broker that had yet to be restarted in the rollout

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
    """Changes of owners, numbers of decisions and violations that follow from a trace.

    Bundles are rows of `tree`. `events`: the scenario's, and restarts of its rollout.
    """

    tree: BundleTree
    events: tuple[Event, ...]
    changes: Changes
    decisions: int
    decisions_lost: int  # sent to a broker during its fault `lost_decisions`
    violations: tuple[Violation, ...]
    last_owner: Ints  # each bundle's broker at the scenario's end, -1: unassigned
    splits: tuple[tuple[int, tuple[int, ...]], ...]  # each parent and its children
    restarts: Mapping[int, float]  # broker that the rollout has stopped → when (s)

    @property
    def exists(self) -> Bools:
        """Return which bundles there are at the end."""
        exists = np.ones(len(self.tree), np.bool_)
        exists[[parent for parent, _ in self.splits]] = False
        return exists


def read_trace(path: Path) -> Iterator[dict[str, object]]:
    """Read a file's lines. Raises TraceError, which names the line that is no JSON object."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    entry = json.loads(line)
                except (ValueError, RecursionError):
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


def _join_or(words: Sequence[str]) -> str:
    """Join words as in `a, b or c`."""
    return f"{', '.join(words[:-1])} or {words[-1]}"


class _Decision(NamedTuple):
    t_s: float
    kind: str
    bundle: int  # -1: it is about the broker
    broker: int  # to which it is sent
    algorithm: str = ""
    boundaries: Sequence[int] = ()


class _TraceFollower:
    """Follows the lines of a trace, and the scenario's events between them."""

    def __init__(self, scenario: Scenario, rules: Rules) -> None:
        self._scenario, self._rules, self._state = scenario, rules, BrokerState.at_start(scenario)
        self._broker_row = {name: row for row, name in enumerate(scenario.brokers.names)}
        self._tree = BundleTree(scenario)
        self._bundle_row = {name: row for row, name in enumerate(self._tree.names)}
        self._owner = scenario.bundles.start_owner.copy()
        self._up_since = np.full(len(scenario.brokers), -np.inf)
        self._now = 0.0
        self._decisions: dict[str, _Decision | None] = {}  # None: it has had its effect
        self._changes: list[tuple[float, int, int, int, int, bool, bool]] = []
        self._splits: dict[int, tuple[int, ...]] = {}
        self._rollout = RolloutState(scenario.rollout)
        self._effects = [
            *("released", "acquired"),
            *(() if scenario.topics is None else ("split",)),
            *(() if scenario.rollout is None else ("stopped",)),
        ]
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
        event, about_broker = line.get("event"), self._is_about_broker(line)
        bundle = -1 if about_broker else self._require_row(line, "bundle", self._bundle_row)
        if event == "decision":
            self._note_decision(line, bundle)
            return
        if event not in self._effects:
            raise self._impossible(
                f"event is {event!r}, expected {_join_or(['decision', *self._effects])}"
            )
        assert isinstance(event, str)
        broker = self._require_row(line, "broker", self._broker_row)
        decision = self._require_decision(line, event, bundle, broker)
        match event:
            case "released":
                self._release(bundle, broker)
            case "acquired":
                self._acquire(bundle, broker)
            case "split":
                self._split(line, bundle, broker, decision)
            case "stopped":
                self._stop(broker)

    def _is_about_broker(self, line: TraceLine) -> bool:
        """Return whether a line is about a broker's restart, and so names no bundle."""
        event, kind = line.get("event"), line.get("kind")
        return self._scenario.rollout is not None and (
            event == "stopped" or (event == "decision" and kind == "restart")
        )

    def finish(self) -> OwnershipHistory:
        """Apply events until the scenario's end, and return the history."""
        self._advance(self._scenario.end_s)
        columns = zip(*self._changes, strict=True) if self._changes else ((),) * 7
        t_s, bundle, old, new, cause, drained, leaving = columns
        changes = Changes(
            t_s=np.array(t_s, np.float64),
            bundle=np.array(bundle, np.int64),
            old=np.array(old, np.int64),
            new=np.array(new, np.int64),
            cause=np.array(cause, np.int64),
            drained=np.array(drained, np.bool_),
            leaving=np.array(leaving, np.bool_),
        )
        events = sorted(
            (*self._scenario.events, *self._rollout.events), key=lambda event: event.t_s
        )
        return OwnershipHistory(
            self._tree,
            tuple(events),
            changes,
            len(self._decisions),
            self._lost,
            tuple(self._violations),
            self._owner,
            tuple(self._splits.items()),
            self._rollout.stopped,
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
                self._lose_bundles(event.broker, event.t_s)

    def _lose_bundles(self, broker: int, t_s: float) -> None:
        left = np.flatnonzero(self._owner == broker)
        self._changes += [(t_s, bundle, broker, -1, LOST, False, False) for bundle in left.tolist()]
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
        if kind == "unload":
            if line.get("destination") is not None:
                self._require_row(line, "destination", self._broker_row)
            broker = self._require_row(line, "source", self._broker_row)
        elif kind == "assign":
            broker = self._require_row(line, "destination", self._broker_row)
        elif kind in ("split", "restart") and kind in map(_DECISION_OF.get, self._effects):
            broker = self._require_row(line, "broker", self._broker_row)
        else:
            wanted = _join_or([_DECISION_OF[effect] for effect in self._effects])
            raise self._impossible(f"kind of decision {identity} is {kind!r}, expected {wanted}")
        assert isinstance(kind, str)
        how = self._read_split(line, identity) if kind == "split" else ("", ())
        self._decisions[identity] = _Decision(self._now, kind, bundle, broker, *how)
        self._lost += self._is_lost(broker, self._now)

    def _read_split(self, line: TraceLine, identity: str) -> tuple[str, Sequence[int]]:
        """Return the algorithm and the positions of a decision to split."""
        algorithm, boundaries = line.get("algorithm"), line.get("boundaries") or []
        if not isinstance(algorithm, str) or algorithm not in SPLIT_ALGORITHMS:
            raise self._impossible(
                f"algorithm of decision {identity} is {algorithm!r}, expected one of "
                f"{', '.join(SPLIT_ALGORITHMS)}"
            )
        if not isinstance(boundaries, list) or not all(
            isinstance(at, int) and not isinstance(at, bool) for at in boundaries
        ):
            raise self._impossible(
                f"boundaries of decision {identity} are {boundaries!r}, expected whole numbers"
            )
        return algorithm, boundaries

    def _is_lost(self, broker: int, t_s: float) -> bool:
        """Return whether a decision that is sent to the broker at `t_s` gets lost."""
        return any(
            broker in fault.brokers and fault.from_s <= t_s < fault.to_s
            for fault in self._lost_decisions
        )

    def _require_decision(self, line: TraceLine, event: str, bundle: int, broker: int) -> _Decision:
        """Return the decision behind an effect: it reached the broker, and had time to act."""
        identity = line.get("decision")
        decision = self._decisions.get(identity) if isinstance(identity, str) else None
        if decision is None:
            raise self._impossible(
                f"{event} with decision {identity!r}, expected the id of one that has had no "
                "effect yet"
            )
        assert isinstance(identity, str)
        self._decisions[identity] = None
        name = self._scenario.brokers.names[broker]
        # the decision must say just this
        decided = (decision.kind, decision.bundle, decision.broker)
        if decided != (_DECISION_OF[event], bundle, broker):
            of = f" of {self._tree.names[bundle]}" if bundle >= 0 else ""
            raise self._impossible(f"{event}{of} by {name} is not what decision {identity} says")
        # it must have had the time that it takes
        delay = self._delay_s(event)
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
        return decision

    def _delay_s(self, event: str) -> float:
        """Return the seconds that pass from a decision to its effect."""
        move, splits = self._scenario.move, self._scenario.splits
        if event == "split" and splits is not None:
            return splits.split_s
        return move.acquire_s if event == "acquired" else move.release_s

    def _require_owner(self, event: str, bundle: int, broker: int) -> None:
        if self._owner[bundle] != broker:
            raise self._impossible(
                f"{self._scenario.brokers.names[broker]} {event} "
                f"{self._tree.names[bundle]}, which it does not own"
            )

    def _release(self, bundle: int, broker: int) -> None:
        self._require_owner("releases", bundle, broker)
        drained = bool(self._state.drained[broker])
        leaving = self._rollout.has_yet_to_stop(broker, self._now)
        self._change(bundle, broker, -1, RELEASED, drained, leaving)
        if self._rules.pinned[bundle] and not drained and not leaving:
            self._note_violation("pinned_moves", bundle, broker)

    def _split(self, line: TraceLine, bundle: int, broker: int, decision: _Decision) -> None:
        self._require_owner("splits", bundle, broker)
        tree, scenario, name = self._tree, self._scenario, self._tree.names[bundle]
        tick = int(ticks_at(scenario, np.array([self._now]))[0])
        loads = tree.of_roots(scenario.loads_at(tick))
        positions = tree.find_positions(bundle, decision.algorithm, decision.boundaries, loads)
        if not positions:
            raise self._impossible(f"{name} can't be split by {decision.algorithm}")
        rows = tree.split(bundle, positions)
        names = [tree.names[row] for row in rows]
        if line.get("children") != names:
            raise self._impossible(
                f"{name} becomes {', '.join(names)}, not {line.get('children')!r}"
            )
        self._bundle_row |= dict(zip(names, rows, strict=True))
        self._splits[bundle] = tuple(rows)
        self._owner = np.append(self._owner, np.full(len(rows), -1))
        self._rules = self._rules.of_bundles(
            np.append(np.arange(rows[0]), np.full(len(rows), bundle))
        )
        group = int(self._rules.group[bundle])
        if group >= 0:
            self._groups[group] = np.append(self._groups[group], rows)
        self._change(bundle, broker, -1, SPLIT)
        for row in rows:
            self._change(row, -1, broker, BORN)

    def _stop(self, broker: int) -> None:
        refusal = self._rollout.refusal(broker, self._now, self._state.up)
        if refusal is not None:
            raise self._impossible(f"{self._scenario.brokers.names[broker]} stops, but {refusal}")
        self._state.up[broker] = False
        self._lose_bundles(broker, self._now)
        self._state.add(self._rollout.stop(broker, self._now))

    def _acquire(self, bundle: int, broker: int) -> None:
        names, owner = self._scenario.brokers.names, int(self._owner[bundle])
        if bundle in self._splits:
            raise self._impossible(
                f"{names[broker]} acquires {self._tree.names[bundle]}, which has been split"
            )
        if owner >= 0:
            raise self._impossible(
                f"{names[broker]} acquires {self._tree.names[bundle]}, which {names[owner]} owns"
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
        self._change(bundle, -1, broker, ACQUIRED)

    def _change(
        self,
        bundle: int,
        old: int,
        new: int,
        cause: int,
        drained: bool = False,
        leaving: bool = False,
    ) -> None:
        self._owner[bundle] = new
        self._changes.append((self._now, bundle, old, new, cause, drained, leaving))

    def _note_violation(self, rule: str, bundle: int, broker: int) -> None:
        self._violations.append(Violation(self._now, rule, bundle, broker))

    def _impossible(self, text: str) -> TraceError:
        return TraceError(f"impossible trace at {self._now:g} s: {text}")
