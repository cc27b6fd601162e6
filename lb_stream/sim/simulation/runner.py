"""Runs a scenario through the balancer's own code.

Reports become the decoder's columns, then `fold`, `decide`, the agents' rules, and the model.
Events are discrete and ordered by time, those of one time by `Phase` (docs/simulation.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from lb_stream.agent.obey import AgentMemory, acknowledgement, addressee, judge
from lb_stream.contracts.commands import Command
from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.reports import Ack, SplitAsk
from lb_stream.core.commands.responder import CommandAnswer, Received
from lb_stream.core.round.decide import Inbox, Round
from lb_stream.sim.measures.trace import TraceLine
from lb_stream.sim.scenario.rollout_state import TOLERANCE_S, RolloutState
from lb_stream.sim.scenario.scenario import Event, Format, Scenario, ScenarioRollout
from lb_stream.sim.simulation.balancer import SimulatedBalancer
from lb_stream.sim.simulation.calendar import Calendar, Phase
from lb_stream.sim.simulation.commands import (
    build_drain_command,
    build_first_commands,
    build_rollout_command,
    scenario_settings,
)
from lb_stream.sim.simulation.decisions import (
    can_be_carried_out,
    effect_delay_s,
    trace_decision,
)
from lb_stream.sim.simulation.policy import Policy
from lb_stream.sim.simulation.reports import Mailbox, SimulatedReporter, at_ms
from lb_stream.sim.simulation.split_requests import SplitRequests
from lb_stream.sim.simulation.splits import SplittableModel

RETRY_S = 30.0
"""A broker that has not stopped this long after it was told to restart is told again."""

OnProgress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The trace's lines in order, without its header, and the answers to commands.

    `answers`: a command's id → the balancer's last answer.
    """

    scenario: str
    format: Format
    policy: str
    lines: list[TraceLine]
    rounds: int
    answers: Mapping[str, CommandAnswer]

    @property
    def header(self) -> TraceLine:
        """Return the trace's first line."""
        return {
            "event": "header",
            "format": self.format,
            "scenario": self.scenario,
            "policy": self.policy,
        }


def run_simulation(
    scenario: Scenario,
    policy: Policy,
    on_progress: OnProgress | None = None,
    commands: Sequence[Command] = (),
) -> SimulationResult:
    """Run a scenario with a policy. The same arguments give the same lines.

    `commands` are sent at the beginning, beside the scenario's own. `on_progress` is called after
    each tick with the share of the scenario that is over, 0 to 1. Raises SettingError for wrong
    settings.
    """
    simulation = Simulation(scenario, policy, commands)
    report_progress = on_progress or (lambda _share: None)
    simulation.run(scenario.end_s, report_progress)
    report_progress(1.0)
    return SimulationResult(
        scenario.name,
        scenario.format,
        policy.name,
        simulation.lines,
        simulation.rounds,
        simulation.answers,
    )


@dataclass
class Simulation:
    """A running simulation of a scenario. `lines` is the trace so far."""

    scenario: Scenario
    policy: Policy
    extra_commands: Sequence[Command] = ()
    rollout_command: Command | None = None  # in place of the one of the scenario's rollout
    on_round: Callable[[Round], None] | None = None  # sees each round
    lines: list[TraceLine] = field(default_factory=list)
    rounds: int = 0
    answers: dict[str, CommandAnswer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scenario = self.scenario
        self.balancer = SimulatedBalancer(
            scenario.name, self.policy.values(**scenario_settings(scenario))
        )
        self.model = SplittableModel(scenario)
        self.row_of = {name: row for row, name in enumerate(scenario.bundles.names)}
        self.broker_of = {name: row for row, name in enumerate(scenario.brokers.names)}
        stale = {
            broker
            for fault in scenario.faults
            if fault.kind == "stale_reports"
            for broker in fault.brokers
        }
        self.reporter = SimulatedReporter(self.model, self.balancer.load_manager, frozenset(stale))
        self.mailbox, self.seen = Mailbox(), AgentMemory()
        self.acks: list[Ack] = []
        self.asks: list[tuple[str, SplitAsk]] = []
        self.split_requests = SplitRequests(self.model, self.balancer.config)
        self.commands: list[Received] = list(
            build_first_commands(scenario.policies, scenario.brokers.names, _with_unowned(scenario))
        )
        self.commands += [
            Received.from_command(command, at_ms(0.0)) for command in self.extra_commands
        ]
        self.calendar, self._added = Calendar(), 0
        self.rollout = RolloutState(scenario.rollout)
        self._told: dict[str, float] = {}  # empty broker → when it was told to restart
        self._announced: dict[int, float] = {}  # broker that came up between ticks → when
        self._changed: set[int] = set()  # brokers whose bundles have changed at this time

        for number, event in enumerate(scenario.events):
            self.calendar.add(event.t_s, Phase.EVENT, partial(self._apply_event, event, number))
        if (ordered := scenario.rollout) is not None:
            self.calendar.add(ordered.t_s, Phase.EVENT, partial(self._order_rollout, ordered))
        for tick in range(scenario.ticks):
            self.calendar.add(tick * scenario.tick_s, Phase.REPORT, self._tick)
            self._add_round(tick * scenario.tick_s + scenario.report_delay_s)
        if interval_s := self.split_requests.interval_s:
            for number in range(1, int(scenario.end_s / interval_s)):
                self.calendar.add(number * interval_s, Phase.REPORT, self._ask_for_splits)

    @property
    def now_s(self) -> float:
        """Return the time of what happens now."""
        return self.calendar.now_s

    def run(self, until_s: float, on_progress: OnProgress) -> None:
        """Run until `until_s`, included."""
        tick_s, ticks = self.scenario.tick_s, self.scenario.ticks
        over = int(self.now_s / tick_s)
        while self.calendar.run_next(until_s):
            if (now_over := int(self.now_s / tick_s)) > over:
                over = now_over
                on_progress(over / ticks)

    def add(self, event: Event) -> None:
        """Add an event that the scenario doesn't have, now or later."""
        self._added += 1
        self.calendar.add(
            event.t_s,
            Phase.EVENT,
            partial(self._apply_event, event, len(self.scenario.events) + self._added),
        )

    def _add_round(self, t_s: float) -> None:
        """Have the balancer decide at `t_s`, once."""
        self.calendar.add_round(t_s, self._round)

    # --- events ---

    def _apply_event(self, event: Event, number: int) -> None:
        name = self.scenario.brokers.names[event.broker]
        if event.kind == "crash":
            self.model.take_down(event.broker)
        elif event.kind == "leave":
            self._leave(event.broker)
        elif event.kind == "up":
            self.model.bring_up(event.broker, self.now_s)
        elif event.kind == "slow":
            self.model.factor[event.broker] = event.factor
        else:
            self.commands.append(build_drain_command(event, name, number))

    def _leave(self, broker: int) -> None:
        """Take a broker down, with a goodbye."""
        name = self.scenario.brokers.names[broker]
        self.model.take_down(broker)
        self.calendar.add(
            self._arrival_s,
            Phase.ARRIVAL,
            lambda: self.mailbox.add_events("goodbye", [name], self.now_s),
        )

    @property
    def _arrival_s(self) -> float:
        """Return the time at which a record that is sent now arrives."""
        return self.now_s + self.scenario.report_delay_s

    # --- reports ---

    def _tick(self) -> None:
        """Send heartbeats of all brokers; those that are due or have come up also report."""
        scenario, t_s = self.scenario, self.now_s
        self.reporter.remember(t_s)
        up = [row for row, is_up in enumerate(self.model.up.tolist()) if is_up]
        due = [
            row for row in up if t_s == 0.0 or self._is_due(row, t_s) or self._has_come_up(row, t_s)
        ]
        # Reports first: a heartbeat counts only after the broker's first report.
        self._report(due)
        names = [scenario.brokers.names[row] for row in up]
        self.calendar.add(
            self._arrival_s,
            Phase.ARRIVAL,
            lambda: self.mailbox.add_events("heartbeat", names, self.now_s),
        )

    def _is_due(self, broker: int, t_s: float) -> bool:
        interval_s = self.scenario.report_interval_s
        over = (t_s - self.scenario.brokers.report_phase_s[broker]) % interval_s
        return bool(min(over, interval_s - over) < 1e-6)

    def _has_come_up(self, broker: int, t_s: float) -> bool:
        """Return whether the broker has come up since the last tick, and not reported since."""
        since_s = float(self.model.up_since_s[broker])
        is_new = t_s - self.scenario.tick_s < since_s <= t_s
        return is_new and self._announced.get(broker) != since_s

    def _report(self, brokers: Sequence[int]) -> None:
        """Send reports of these brokers; they arrive later."""
        if not brokers:
            return
        stale = {
            row: delay_s
            for row in brokers
            if (delay_s := self._find_fault("stale_reports", row)) is not None
        }
        made = self.reporter.make(brokers, self.now_s, stale)
        self.calendar.add(
            self._arrival_s, Phase.ARRIVAL, lambda: self.mailbox.add_reports(made, self.now_s)
        )

    def _ask_for_splits(self) -> None:
        """Have agents ask for splits, where the load manager leaves the judgement to them."""
        made = list(self.split_requests.look(self.now_s))
        self.calendar.add(self._arrival_s, Phase.ARRIVAL, lambda: self.asks.extend(made))

    def _find_fault(self, kind: str, broker: int) -> float | None:
        """Find a broker's current fault of a kind. Returns its delay (s); None: there is none."""
        for fault in self.scenario.faults:
            if (
                fault.kind == kind
                and broker in fault.brokers
                and fault.from_s <= self.now_s < fault.to_s
            ):
                return fault.delay_s
        return None

    # --- rounds ---

    def _round(self) -> None:
        """Have the balancer read what has arrived, and decide."""
        self.rounds += 1
        now_ms = at_ms(self.now_s)
        inbox = Inbox(acks=tuple(self.acks), commands=tuple(self.commands), asks=tuple(self.asks))
        made = self.balancer.decide(self.mailbox.take(), inbox, now_ms)
        self.acks, self.commands, self.asks = [], [], []
        self.answers |= {answer.id: answer for answer in made.results}
        for record in made.ownership:
            self.seen.note_record(record.bundle, record, now_ms)
        for decision in made.decisions:
            self._send(decision)
        self._restart_empty_brokers(made)
        if self.on_round is not None:
            self.on_round(made)

    # --- the rollout ---

    def _order_rollout(self, ordered: ScenarioRollout) -> None:
        """Send the command that orders the scenario's rollout."""
        command = build_rollout_command(ordered, self.scenario.brokers.names)
        if self.rollout_command is not None:
            command = Received.from_command(self.rollout_command, at_ms(self.now_s))
        self.commands.append(command)

    def _restart_empty_brokers(self, made: Round) -> None:
        """Have the brokers restart that the round shows as empty, as their operators would.

        One that has not stopped some time after that is told again.
        """
        t_s, progress = self.now_s, made.memory.rollout
        empty = () if progress is None else progress.in_phases("empty")
        self._told = {name: told_s for name, told_s in self._told.items() if name in empty}
        for number, name in enumerate(empty):
            if t_s - self._told.get(name, -RETRY_S) < RETRY_S:
                continue
            self._told[name] = t_s
            broker, identity = self.broker_of[name], f"{made.cluster}:{made.seq}:r{number}"
            line = {"t": t_s, "event": "decision", "id": identity, "kind": "restart"}
            self.lines.append(line | {"broker": name})
            if self.model.up[broker] and self._find_fault("lost_decisions", broker) is None:
                self.calendar.add(
                    t_s + self.scenario.move.release_s,
                    Phase.EFFECT,
                    partial(self._restart, broker, identity, t_s),
                )

    def _restart(self, broker: int, identity: str, sent_s: float) -> None:
        """Have a broker stop, and come back later; or refuse it."""
        model, t_s = self.model, self.now_s
        if not model.up[broker] or model.up_since_s[broker] > sent_s:
            return
        if self.rollout.refusal(broker, t_s, model.up) is not None:
            return
        name = self.scenario.brokers.names[broker]
        line = {"t": t_s, "event": "stopped", "broker": name, "decision": identity}
        self.lines.append(line)
        self._leave(broker)
        back = self.rollout.stop(broker, t_s)
        self.calendar.add(back.t_s, Phase.EVENT, lambda: self._come_back(broker))

    def _come_back(self, broker: int) -> None:
        """Bring a restarted broker up, and have it report; with the tick, if it is one."""
        t_s, tick_s = self.now_s, self.scenario.tick_s
        self.model.bring_up(broker, t_s)
        if min(t_s % tick_s, tick_s - t_s % tick_s) < TOLERANCE_S or t_s >= self.scenario.end_s:
            return
        self._announced[broker] = t_s
        self.reporter.remember(t_s, [broker])
        self.calendar.add(t_s, Phase.REPORT, lambda: self._report([broker]))
        self._add_round(self._arrival_s)

    # --- decisions ---

    def _send(self, decision: Decision) -> None:
        sent_s = self.now_s
        if decision.bundle in self.row_of and can_be_carried_out(self.scenario, decision):
            self.lines.append({"t": sent_s, "event": "decision"} | trace_decision(decision))
        broker = self.broker_of.get(addressee(decision) or "", -1)
        if (
            broker < 0
            or not self.model.up[broker]
            or self._find_fault("lost_decisions", broker) is not None
        ):
            return
        self.seen.note_epoch(decision)
        self.calendar.add(
            sent_s + effect_delay_s(self.scenario, decision),
            Phase.EFFECT,
            lambda: self._carry_out(broker, decision, sent_s),
        )

    def _carry_out(self, broker: int, decision: Decision, sent_s: float) -> None:
        """Have a broker carry out a decision, or refuse it.

        A broker that has been down since it was sent doesn't know the decision.
        """
        model, now_ms = self.model, at_ms(self.now_s)
        if not model.up[broker] or model.up_since_s[broker] > sent_s:
            return
        name, bundle = self.scenario.brokers.names[broker], self.row_of.get(decision.bundle)
        owns = bundle is not None and bool(model.owner[bundle] == broker)
        verdict = judge(name, self.seen, decision, owns, now_ms)
        if verdict.action == "ignore":
            return
        self.seen.note_done(name, decision, now_ms)
        traced = None if bundle is None else self._change(verdict.action, bundle, broker, decision)
        done = traced is not None
        if traced is not None:
            event, more = traced
            line = {"t": self.now_s, "event": event, "bundle": decision.bundle, "broker": name}
            self.lines.append(line | {"decision": decision.decision_id} | more)
        if self._find_fault("lost_acks", broker) is not None:
            return
        ack = acknowledgement(
            decision, verdict.action if done else "refuse", verdict.reason, at_ms(self.now_s)
        )
        self.calendar.add(self._arrival_s, Phase.ARRIVAL, lambda: self._acknowledged(name, ack))
        if done:
            self._report_soon(broker)

    def _change(
        self, action: str, bundle: int, broker: int, decision: Decision
    ) -> tuple[str, dict[str, object]] | None:
        """Have a broker do what it should. Returns the trace's event, and more keys of its line.

        None: it can't.
        """
        model = self.model
        if action == "acquire":
            return ("acquired", {}) if model.acquire(bundle, broker) else None
        if action == "release":
            return ("released", {}) if model.release(bundle, broker) else None
        if action != "split" or decision.algorithm is None:
            return None
        rows = model.split(bundle, broker, decision.algorithm, decision.boundaries, self.now_s)
        if not rows:
            return None
        children = [model.names[row] for row in rows]
        self.row_of |= dict(zip(children, rows, strict=True))
        return "split", {"children": children}

    def _acknowledged(self, broker: str, ack: Ack) -> None:
        self.mailbox.add_events("ack", [broker], self.now_s, ack.to_json())
        self.acks.append(ack)

    def _report_soon(self, broker: int) -> None:
        """Have a broker report once for all its changes at this time; then the balancer decides."""
        if not self._changed:
            self.calendar.add(self.now_s, Phase.REPORT, self._report_changes)
        self._changed.add(broker)
        self._add_round(self._arrival_s)

    def _report_changes(self) -> None:
        brokers, self._changed = sorted(self._changed), set()
        self._report(brokers)


def _with_unowned(scenario: Scenario) -> list[str]:
    """Return all bundles of the namespaces that have an unassigned bundle at the start."""
    wanted = {
        scenario.namespaces[row]
        for row in np.flatnonzero(scenario.bundles.start_owner < 0).tolist()
    }
    return [
        name
        for name, namespace in zip(scenario.bundles.names, scenario.namespaces, strict=True)
        if namespace in wanted
    ]
