"""Predicts a rollout: simulates it from a cluster's present on, until all brokers are restarted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace

from lb_stream.core.commands.base import named
from lb_stream.core.commands.responder import CommandAnswer
from lb_stream.core.model.refusals import Refusal
from lb_stream.core.model.rollout import RolloutNews
from lb_stream.core.round.decide import Round
from lb_stream.io.messages.times import utc
from lb_stream.operations.rollout_start import RolloutStart
from lb_stream.query.wording import explain_refusal
from lb_stream.sim.measures import measure_trace
from lb_stream.sim.measures.figures import Figures
from lb_stream.sim.scenario.errors import ScenarioError
from lb_stream.sim.scenario.from_history import LoadHistory
from lb_stream.sim.scenario.present import build_present_scenario
from lb_stream.sim.scenario.scenario import Scenario, ScenarioRollout
from lb_stream.sim.simulation.policy import Policy
from lb_stream.sim.simulation.prediction import list_present_settings
from lb_stream.sim.simulation.reports import at_ms
from lb_stream.sim.simulation.runner import OnProgress, Simulation

RESTART_S = 90.0
"""How long a broker is away for its restart, unless another time is given."""
EMPTYING_S = 300.0
"""So long, at most, a broker is given to become empty, and loads to be evened out at the end."""
STEP_S = 60.0
COMMAND_ID = "rollout-plan"


class BrokersNotRecorded(Exception):
    """The history lacks brokers that have reported. The text says until when to wait."""


@dataclass(frozen=True, slots=True)
class BrokerTurn:
    """What happens to one broker, s from now; None: it doesn't. `why`: why it is its turn."""

    broker: str
    begun_s: float
    why: str
    empty_s: float | None = None
    down_s: float | None = None
    back_s: float | None = None
    moves: int = 0


@dataclass(frozen=True, slots=True)
class RolloutPrediction:
    """A predicted rollout: its brokers in the order of their turns, and figures of the whole.

    - `answer`: the balancer's to the command that starts it.
    - `is_done`: all brokers are restarted, within the simulated time.
    - `refusals`: those of the last round that keep brokers from being begun.
    - `figures`: rollout_s, moves, moves_per_bundle, moved_twice (share of bundles), max_usage_now,
      peak_usage and expected_usage (ratios), client_seconds; None where it is not known.
    """

    cluster: str
    answer: CommandAnswer
    turns: tuple[BrokerTurn, ...]
    is_done: bool
    refusals: tuple[Refusal, ...]
    figures: Figures
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Return whether all brokers are restarted, and none is ever more than full."""
        return self.is_done and float(self.figures["peak_usage"] or 0.0) <= 1.0

    @property
    def lines(self) -> list[str]:
        """Describe the whole: time, moves, usage, and what keeps it from its end."""
        figures = self.figures
        lines = []
        if self.is_done:
            minutes = float(figures["rollout_s"] or 0.0) / 60
            lines.append(f"All brokers are restarted after {minutes:.0f} min.")
        else:
            left = "not all brokers are restarted within the simulated time"
            why = "; ".join(
                f"{explain_refusal(refusal.rule)} ({refusal.broker or ', '.join(refusal.subjects)})"
                for refusal in self.refusals
            )
            lines.append(f"It does not end: {why or left}.")
        moves = f"{figures['moves']} moves"
        if figures["moves_per_bundle"] is not None:
            twice = figures["moved_twice"] or 0.0
            moves += f", {figures['moves_per_bundle']:.2f} a bundle; {twice:.0%} move twice"
        if figures["client_seconds"] is not None:
            moves += f"; {figures['client_seconds']:,.0f} client-seconds without a broker"
        lines.append(f"{moves}.")
        now, peak = float(figures["max_usage_now"] or 0.0), float(figures["peak_usage"] or 0.0)
        full = ": more than a broker can carry" if peak > 1.0 else ""
        lines.append(f"Max usage: {now:.0%} now, {peak:.0%} at its peak{full}.")
        return lines

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON can hold them."""
        return {
            "cluster": self.cluster,
            "answer": self.answer.text,
            "brokers": [asdict(turn) for turn in self.turns],
            "done": self.is_done,
            "fits": self.fits,
            "refusals": [
                {"rule": refusal.rule, "broker": refusal.broker} for refusal in self.refusals
            ],
            "figures": dict(self.figures),
            "notes": list(self.notes),
        }


@dataclass(slots=True)
class _Watch:
    """What rounds tell of a rollout."""

    news: list[RolloutNews] = field(default_factory=list)
    refusals: tuple[Refusal, ...] = ()
    expected_usage: float = 0.0
    peak_usage: float = 0.0
    ended_s: float | None = None

    def see(self, made: Round) -> None:
        """Take what one round has told."""
        self.news += made.rollout
        self.refusals = tuple(
            refusal for refusal in made.refusals if refusal.rule.startswith("rollout_")
        )
        progress = made.memory.rollout
        if progress is not None:
            self.expected_usage = max(self.expected_usage, progress.expected_usage)
            self.peak_usage = max(self.peak_usage, progress.peak_usage)
        if any(event.phase in ("ended", "aborted") for event in made.rollout):
            self.ended_s = _seconds(made.now_ms)


def predict_rollout(
    history: LoadHistory,
    command: RolloutStart,
    restart_s: float = RESTART_S,
    on_progress: OnProgress | None = None,
) -> RolloutPrediction:
    """Simulate a rollout of a cluster from its present on, with the settings in force.

    `history` begins at its last slot. `restart_s`: how long each broker is away. The simulated
    balancer begins without memory, publishes its decisions whatever the mode, and begins each
    broker by itself. Raises SettingError, ScenarioError, and BrokersNotRecorded.
    """
    made = build_present_scenario(history, minutes=1.0)
    names = made.scenario.brokers.names
    _require_all_brokers(history, names)
    up = [row for row in range(len(names)) if made.scenario.brokers.up[row]]
    minutes = (len(up) * (restart_s + EMPTYING_S) + 2 * EMPTYING_S) / 60.0
    made = build_present_scenario(history, minutes)
    rollout = ScenarioRollout(0.0, restart_s, command.at_most, tuple(up))
    scenario = replace(made.scenario, format=2, rollout=rollout)
    policy = Policy("rollout", list_present_settings(history))
    policy.resolve()  # before the long part
    watch = _Watch()
    ordered = command.model_copy(update={"id": COMMAND_ID, "continues": True, "sent_ms": 0})
    simulation = Simulation(scenario, policy, rollout_command=ordered, on_round=watch.see)
    count = len(command.in_order) or len(up)
    until_s = _run(simulation, scenario, watch, _report(on_progress, watch, count))
    answer = simulation.answers.get(COMMAND_ID)
    if answer is None:
        raise ScenarioError(made.scenario.name, "rollout", "", "a balancer that answers")
    figures: Figures = {}
    if answer.outcome != "refused":
        figures = _measure(_cut(scenario, until_s), simulation, watch)
    return RolloutPrediction(
        history.cluster,
        answer,
        tuple(_build_turns(watch.news)),
        watch.ended_s is not None,
        watch.refusals if watch.ended_s is None else (),
        figures,
        made.notes,
    )


def _require_all_brokers(history: LoadHistory, names: Sequence[str]) -> None:
    """Raise BrokersNotRecorded if a live broker is not in the history yet.

    A slot has the brokers that had reported when it began. So the first one may lack some, and
    others would get their load.
    """
    alive: dict[str, bool] = {}
    for row in sorted(history.alive.to_pylist(), key=lambda row: int(row["now_ms"])):
        alive[row["broker"]] = row["alive"]
    reported = [broker for broker in alive if alive[broker]]
    missing = sorted(set(reported) - set(names))
    if missing:
        count = f"{len(reported) - len(missing)} of {len(reported)} brokers"
        raise BrokersNotRecorded(
            f"{history.cluster}: the history has {count} so far, not {named(missing)}: wait until "
            f"{utc(history.to_ms)}, then plan again"
        )


def _run(
    simulation: Simulation, scenario: Scenario, watch: _Watch, report: Callable[[float], None]
) -> float:
    """Run until the rollout has ended or the time is over. Returns the time (s)."""
    until_s = 0.0
    while until_s < scenario.end_s and watch.ended_s is None:
        until_s = min(until_s + STEP_S, scenario.end_s)
        simulation.run(until_s, lambda _share: None)
        report(until_s)
        answer = simulation.answers.get(COMMAND_ID)
        if answer is not None and answer.outcome == "refused":
            break
    return until_s


def _report(on_progress: OnProgress | None, watch: _Watch, count: int) -> Callable[[float], None]:
    """Return what reports how many of the brokers are restarted, as a share."""

    def report(_until_s: float) -> None:
        done = sum(event.phase == "done" for event in watch.news)
        if on_progress is not None:
            on_progress(min(done / max(count, 1), 1.0))

    return report


def _cut(scenario: Scenario, until_s: float) -> Scenario:
    """Return the scenario with this end, at a tick."""
    ticks = max(math.ceil(until_s / scenario.tick_s), 1)
    return replace(
        scenario,
        ticks=ticks,
        load_step_ticks=ticks,
        noise_step_ticks=ticks,
        settled_from_s=min(scenario.settled_from_s, ticks * scenario.tick_s),
    )


def _measure(scenario: Scenario, simulation: Simulation, watch: _Watch) -> Figures:
    lines = [line for line in simulation.lines if float(str(line["t"])) < scenario.end_s]
    measured = measure_trace(scenario, lines)
    figures, usage = measured.figures, measured.series.max_usage
    return {
        "rollout_s": watch.ended_s,
        "moves": sum(turn.moves for turn in _build_turns(watch.news)),
        "moves_per_bundle": figures["rollout_moves_per_bundle"],
        "moved_twice": figures["rollout_moved_twice"],
        "client_seconds": figures["rollout_client_s"],
        "max_usage_now": round(float(usage[0]), 4),
        "peak_usage": round(float(usage.max()), 4),
        "expected_usage": round(watch.expected_usage, 4),
        "violation_count": figures["violation_count"],
    }


def _build_turns(news: list[RolloutNews]) -> list[BrokerTurn]:
    """Return the brokers' turns, in the order in which they were begun, or restarted without."""
    turns: dict[str, BrokerTurn] = {}
    for event in news:
        if event.broker is None:
            continue
        at_s = _seconds(event.at_ms)
        turn = turns.get(event.broker)
        if turn is None:
            turn = BrokerTurn(event.broker, at_s, event.text.partition(": ")[2])
        if event.phase == "empty":
            turn = replace(turn, empty_s=at_s)
        elif event.phase == "down":
            turn = replace(turn, down_s=at_s)
        elif event.phase == "done":
            turn = replace(turn, back_s=at_s)
        turns[event.broker] = replace(turn, moves=max(turn.moves, event.moves))
    return list(turns.values())


def _seconds(now_ms: int) -> float:
    return (now_ms - at_ms(0.0)) / 1_000
