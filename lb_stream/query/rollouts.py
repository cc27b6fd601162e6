"""What the memory and the tables know of rollouts: the one that is on, and those of the past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lb_stream.core.model.names import is_system_bundle
from lb_stream.core.model.rollout import (
    BEGUN,
    BrokerPhase,
    BrokerProgress,
    RolloutOrder,
    RolloutProgress,
)
from lb_stream.io.messages.shown import figure
from lb_stream.io.messages.times import clock
from lb_stream.query.lake import Row, records, run
from lb_stream.query.wording import explain_refusal

if TYPE_CHECKING:
    from lb_stream.core.model.memory import Memory
    from lb_stream.query.cluster_state import ClusterState
    from lb_stream.query.lake import Lake

_OWNED = """
    SELECT owner, bundle FROM bundle_averages
    WHERE cluster = $1 AND list_contains($2, owner) ORDER BY bundle
"""
_BUNDLES = """
    SELECT broker, alive, bundles FROM broker_loads WHERE cluster = $1
    QUALIFY row_number() OVER (PARTITION BY broker ORDER BY log_seq DESC) = 1
"""
_EVENTS = """
    SELECT rollout, cluster, broker, phase, at_ms, text, moves, seq, now_ms FROM rollouts
    WHERE ($1 IS NULL OR cluster = $1) AND ($2 IS NULL OR rollout = $2)
    ORDER BY now_ms, log_seq, broker NULLS FIRST
"""
_LAST = """
    SELECT cluster, rollout, min(at_ms) AS begun_ms, max(at_ms) AS last_ms,
           count(DISTINCT broker) FILTER (WHERE phase = 'done') AS done,
           arg_max(phase, (now_ms, log_seq)) FILTER (WHERE phase IN ('ended', 'aborted')) AS outcome
    FROM rollouts WHERE ($1 IS NULL OR cluster = $1)
    GROUP BY cluster, rollout ORDER BY last_ms DESC, rollout LIMIT $2
"""
_MOVES = """
    SELECT cluster, rollout, sum(moves)::BIGINT AS moves FROM (
        SELECT cluster, rollout, broker, max(moves) AS moves FROM rollouts
        WHERE broker IS NOT NULL GROUP BY cluster, rollout, broker
    ) GROUP BY cluster, rollout
"""
_STARTS = """
    SELECT cluster, id, any_value("by") AS "by", any_value(arguments) AS arguments FROM commands
    WHERE kind = 'rollout-start' AND list_contains($1, id) GROUP BY cluster, id
"""


@dataclass(frozen=True, slots=True)
class RolloutFacts:
    """A rollout that is on, in short. `state`: what it does or waits for, as a text."""

    id: str
    by: str
    brokers: int
    done: int
    away: tuple[str, ...] = ()  # texts: brokers that are draining, empty or down, and since when
    paused: bool = False
    still_ms: int | None = None  # since when it stands still; None: it doesn't
    state: str = ""
    advice: str = ""  # what to do about brokers that hold it up; empty: there are none

    @property
    def text(self) -> str:
        """Return how far it is, and what it does."""
        away = f", {', '.join(self.away)}" if self.away else ""
        return f"{self.done} of {self.brokers} brokers restarted{away}: {self.state}"


def build_rollout_facts(memory: Memory) -> RolloutFacts | None:
    """Return the facts about a cluster's rollout; None: none is on."""
    order = memory.operator_state.rollout
    return None if order is None else describe_rollout(order, memory.rollout)


def describe_rollout(order: RolloutOrder, seen: RolloutProgress | None) -> RolloutFacts | None:
    """Return the facts about a rollout from what memory has of it; None: it has been aborted.

    Whether it stands still is what the last round has noted.
    """
    if order.aborted:
        return None
    progress = progress_of(order, seen)
    return RolloutFacts(
        id=order.id,
        by=order.by,
        brokers=len(order.brokers),
        done=len(progress.in_phases("done")),
        away=tuple(
            f"{name} {progress.brokers[name].phase} since {clock(progress.brokers[name].since_ms)}"
            + (", left out" if order.leaves_out(name, progress.brokers[name]) else "")
            for name in progress.in_phases(*BEGUN)
        ),
        paused=order.paused,
        still_ms=progress.still_ms,
        state=describe_state(order, progress),
        advice=advise(progress),
    )


def advise(progress: RolloutProgress) -> str:
    """Return what an operator can do about the brokers that are begun; empty: none is."""
    verbs: dict[BrokerPhase, str] = {
        "empty": "restart",
        "down": "start",
        "draining": "look at the bundles of",
    }
    parts = [(verb, ", ".join(progress.in_phases(phase))) for phase, verb in verbs.items()]
    return ", ".join(f"{verb} {names}" for verb, names in parts if names)


def progress_of(order: RolloutOrder, progress: RolloutProgress | None) -> RolloutProgress:
    """Return the progress of an order, with all of its brokers; no round may have seen it yet."""
    found = progress if progress is not None and progress.id == order.id else RolloutProgress()
    brokers = {name: found.brokers.get(name, BrokerProgress()) for name in order.brokers}
    return RolloutProgress(
        id=order.id,
        begun_ms=found.begun_ms or order.at_ms,
        brokers=brokers,
        planned=found.planned,
        peak_usage=found.peak_usage,
        expected_usage=found.expected_usage,
        still_ms=found.still_ms,
        levelling_ms=found.levelling_ms,
    )


def describe_state(order: RolloutOrder, progress: RolloutProgress) -> str:
    """Describe what a rollout does, or waits for."""
    phases = {name: broker.phase for name, broker in progress.brokers.items()}
    if progress.still_ms is not None:
        held = [
            name
            for name in progress.in_phases(*BEGUN)
            if not order.leaves_out(name, progress.brokers[name])
        ]
        begun = ", ".join(f"{name} is {phases[name]}" for name in held)
        paused = "is paused, and " if order.paused else ""
        why = begun or "no other broker can be begun"
        return f"{paused}stands still since {clock(progress.still_ms)}: {why}"
    if order.paused:
        return "paused: lbctl rollout resume lets it go on"
    if progress.levelling_ms is not None:
        return "all are back, and loads are evened out"
    if empty := progress.in_phases("empty"):
        text = f"restart {', '.join(empty)} now"
        if untold := [name for name in find_untold(progress) if name in empty]:
            names = ", ".join(untold)
            text += f"; then lbctl rollout settle says so of {names}, whose reports have no start"
        return text
    if draining := progress.in_phases("draining"):
        return f"moves bundles away from {', '.join(draining)}"
    brokers = progress.brokers
    down = [
        name for name in progress.in_phases("down") if not order.leaves_out(name, brokers[name])
    ]
    if down:
        return f"waits until {', '.join(down)} is back"
    others = sum(phase != "waiting" for phase in phases.values())
    if order.wanted <= others < len(phases):
        return "lbctl rollout next begins the next broker"
    return "it goes on"


def find_untold(progress: RolloutProgress) -> tuple[str, ...]:
    """Return the empty brokers, and those that are down, whose reports have shown no start."""
    away = progress.in_phases("empty", "down")
    return tuple(name for name in away if not progress.brokers[name].start_ms)


@dataclass(frozen=True, slots=True)
class RolloutNow:
    """The rollout that is on, for a screen.

    - `rows`: its brokers, in their order, with broker, phase, since_ms, moves, note, place (of a
      waiting one in the order in which they will be begun, from 1; None: not known) and bundles
      (None: not known).
    - `lines`: what it does or waits for, and the usages, as texts.
    """

    cluster: str
    order: RolloutOrder
    progress: RolloutProgress
    rows: tuple[Row, ...]
    lines: tuple[str, ...]

    def to_dict(self) -> Row:
        """Return the fields as JSON can hold them."""
        progress = self.progress
        return {
            "cluster": self.cluster,
            "rollout": asdict(self.order),
            "brokers": list(self.rows),
            "state": list(self.lines),
            "still_ms": progress.still_ms,
            "begun_ms": progress.begun_ms,
            "peak_usage": progress.peak_usage or None,
            "expected_usage": progress.expected_usage or None,
            "levelling_ms": progress.levelling_ms,
        }


def load_rollout(lake: Lake, state: ClusterState) -> RolloutNow | None:
    """Load the rollout of a cluster that is on; None: none is."""
    order = state.operator_state.rollout
    if order is None or order.aborted:
        return None
    progress = progress_of(order, state.memory.rollout)
    bundles = _count_bundles(lake, state.cluster, progress)
    rows = tuple(
        {"broker": name}
        | {field: getattr(broker, field) for field in ("phase", "since_ms", "moves", "note")}
        | {
            "place": progress.planned.index(name) + 1 if name in progress.planned else None,
            "bundles": bundles.get(name),
        }
        for name, broker in progress.brokers.items()
    )
    lines = [f"{describe_state(order, progress)}."]
    if progress.peak_usage or progress.expected_usage:
        peak = figure(progress.peak_usage, "ratio")
        expected = ""
        if progress.expected_usage:
            usage = figure(progress.expected_usage, "ratio")
            expected = f", {usage} expected while a broker is away"
        lines.append(f"Max usage: {peak} so far{expected}.")
    refused = [row for row in state.refusals if str(row["rule"]).startswith("rollout")]
    lines += [f"{explain_refusal(row['rule'])}." for row in refused]
    if progress.still_ms is not None:
        first = f"{advice}; " if (advice := advise(progress)) else ""
        lines.append(
            f"What to do: {first}lbctl rollout resume goes on without brokers that are missing, "
            "lbctl rollout abort ends the rollout."
        )
    return RolloutNow(
        state.cluster, order, progress, rows, tuple(_capitalise(line) for line in lines)
    )


def _capitalise(line: str) -> str:
    return line if line.startswith("lbctl") else line[:1].upper() + line[1:]


def _count_bundles(lake: Lake, cluster: str, progress: RolloutProgress) -> dict[str, int]:
    """Return broker → bundles; without system bundles for those that are draining."""
    counts = {
        row["broker"]: row["bundles"] or 0
        for row in records(run(lake, _BUNDLES, [cluster]))
        if row["alive"]
    }
    draining = list(progress.in_phases("draining"))
    return counts | {name: len(left) for name, left in load_left(lake, cluster, draining).items()}


def load_left(lake: Lake, cluster: str, brokers: Sequence[str]) -> dict[str, list[str]]:
    """Return the bundles that each of these brokers still has, without system bundles."""
    left: dict[str, list[str]] = {name: [] for name in brokers}
    for row in records(run(lake, _OWNED, [cluster, list(brokers)])) if brokers else ():
        if not is_system_bundle(row["bundle"]):
            left[row["owner"]].append(row["bundle"])
    return left


# --- the past ---


def load_last_rollouts(lake: Lake, cluster: str | None, last: int) -> list[Row]:
    """Return the last `last` rollouts, the newest at the end.

    A row has cluster, rollout, by, begun_ms, last_ms (of its last event), done (brokers restarted),
    moves, outcome (ended, aborted, or None: it is on), and arguments (JSON) of its command.
    """
    rows = records(run(lake, _LAST, [cluster, last]))
    moves = {(row["cluster"], row["rollout"]): row["moves"] for row in records(run(lake, _MOVES))}
    ids = [row["rollout"] for row in rows]
    starts = {(row["cluster"], row["id"]): row for row in records(run(lake, _STARTS, [ids]))}
    found = []
    for row in reversed(rows):
        key = row["cluster"], row["rollout"]
        start = starts.get(key, {"by": "", "arguments": "{}"})
        more = {"by": start["by"], "arguments": start["arguments"]}
        found.append(row | {"moves": moves.get(key) or 0} | more)
    return found


def load_rollout_events(
    lake: Lake, cluster: str | None, rollout: str | None = None
) -> Sequence[Row]:
    """Return the events of rollouts in their order, rows of the table without `log_seq`."""
    return records(run(lake, _EVENTS, [cluster, rollout]))
