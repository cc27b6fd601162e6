"""Plays a scenario through the real path: reports → the decoder's columns → `fold` → `decide` → the
agents' rules → the model.

Discrete events in order of time; what happens at the same time goes in the order of `Phase`.
docs/simulation.md.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np

from lb_stream.agent.obey import Seen, acknowledgement, addressee, judge
from lb_stream.contracts.commands import Command
from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.reports import Ack
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.commands.responder import CommandAnswer, Received
from lb_stream.core.model.blocks import Batch, Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.settings.overrides import apply_setting_commands
from lb_stream.settings.resolve import resolve
from lb_stream.sim.model import ClusterModel
from lb_stream.sim.scenario.scenario import Event, Scenario
from lb_stream.sim.simulation.commands import command_of, first_commands, settings_of
from lb_stream.sim.simulation.policy import Policy
from lb_stream.sim.simulation.reports import Mailbox, SimulatedReporter, at_ms

OnProgress = Callable[[float], None]


class Phase(IntEnum):
    """What comes first among things that happen at the same time."""

    EVENT = 0
    EFFECT = 1
    REPORT = 2
    ARRIVAL = 3
    ROUND = 4


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What came of it: the trace's lines in order, without a header; id of each order → the
    balancer's last answer."""

    scenario: str
    policy: str
    lines: list[dict[str, Any]]
    rounds: int
    answers: Mapping[str, CommandAnswer]

    @property
    def header(self) -> dict[str, Any]:
        """The trace's first line."""
        return {"event": "header", "format": 1, "scenario": self.scenario, "policy": self.policy}


def run_simulation(
    scenario: Scenario,
    policy: Policy,
    on_progress: OnProgress | None = None,
    orders: Sequence[Command] = (),
) -> SimulationResult:
    """What the policy does in the scenario. The same arguments give the same lines.

    `orders`: commands that come at the beginning, beside the scenario's own. `on_progress` is told
    after each tick what part of the scenario is over, 0..1. Raises SettingError for settings that
    can't be.
    """
    game, told = Simulation(scenario, policy, orders), on_progress or (lambda _part: None)
    game.run(scenario.end_s, told)
    told(1.0)
    return SimulationResult(scenario.name, policy.name, game.lines, game.rounds, game.answers)


@dataclass
class Simulation:
    """A scenario that is being played. `lines` is the trace so far."""

    scenario: Scenario
    policy: Policy
    ordered: Sequence[Command] = ()
    lines: list[dict[str, Any]] = field(default_factory=list)
    rounds: int = 0
    answers: dict[str, CommandAnswer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scenario = self.scenario
        self.balancer = SimulatedBalancer(
            scenario.name, self.policy.values(**settings_of(scenario.policies))
        )
        self.model = ClusterModel(scenario)
        self.row_of = {name: row for row, name in enumerate(scenario.bundles.names)}
        self.broker_of = {name: row for row, name in enumerate(scenario.brokers.names)}
        stale = {
            broker
            for fault in scenario.faults
            if fault.kind == "stale_reports"
            for broker in fault.brokers
        }
        self.reporter = SimulatedReporter(self.model, self.balancer.load_manager, frozenset(stale))
        self.post, self.seen = Mailbox(), Seen()
        self.acks: list[Ack] = []
        self.orders: list[Received] = list(
            first_commands(scenario.policies, scenario.brokers.names, _with_unowned(scenario))
        )
        self.orders += [Received.of(command, at_ms(0.0)) for command in self.ordered]
        self.now_s = 0.0
        self._calendar: list[tuple[float, int, int, Callable[[], None]]] = []
        self._number = self._added = 0
        self._rounds_at: set[float] = set()
        self._changed: set[int] = set()  # brokers whose bundles have changed at this very moment

        for number, event in enumerate(scenario.events):
            self._at(event.t_s, Phase.EVENT, partial(self._happens, event, number))
        for tick in range(scenario.ticks):
            self._at(tick * scenario.tick_s, Phase.REPORT, self._tick)
            self._ask(tick * scenario.tick_s + scenario.report_delay_s)

    def run(self, until_s: float, on_progress: OnProgress) -> None:
        """Go on until that moment, which is still played."""
        tick_s, ticks = self.scenario.tick_s, self.scenario.ticks
        over = int(self.now_s / tick_s)
        while self._calendar and self._calendar[0][0] <= until_s:
            self.now_s, _, _, do = heapq.heappop(self._calendar)
            do()
            if (now_over := int(self.now_s / tick_s)) > over:
                over = now_over
                on_progress(over / ticks)

    def add(self, event: Event) -> None:
        """Let something happen that the scenario doesn't have, now or later."""
        self._added += 1
        self._at(
            event.t_s,
            Phase.EVENT,
            partial(self._happens, event, len(self.scenario.events) + self._added),
        )

    def _at(self, t_s: float, phase: Phase, do: Callable[[], None]) -> None:
        """Put something into the calendar; times are rounded to microseconds, so that equal ones
        are equal."""
        heapq.heappush(self._calendar, (round(t_s, 6), phase, self._number, do))
        self._number += 1

    def _ask(self, t_s: float) -> None:
        """Ask the policy at that moment, once."""
        if (t_s := round(t_s, 6)) not in self._rounds_at:
            self._rounds_at.add(t_s)
            self._at(t_s, Phase.ROUND, self._round)

    # --- events ---

    def _happens(self, event: Event, number: int) -> None:
        name = self.scenario.brokers.names[event.broker]
        if event.kind in ("crash", "leave"):
            self.model.goes_down(event.broker)
            if event.kind == "leave":
                self._at(
                    self._later,
                    Phase.ARRIVAL,
                    lambda: self.post.add_events("goodbye", [name], self.now_s),
                )
        elif event.kind == "up":
            self.model.comes_up(event.broker, self.now_s)
        elif event.kind == "slow":
            self.model.factor[event.broker] = event.factor
        else:
            self.orders.append(command_of(event, name, number))

    @property
    def _later(self) -> float:
        """When something sent now arrives."""
        return self.now_s + self.scenario.report_delay_s

    # --- reports ---

    def _tick(self) -> None:
        """Everybody gives a sign of life; those whose turn it is, and those that have come up,
        report."""
        scenario, t_s = self.scenario, self.now_s
        self.reporter.remember(t_s)
        up = [row for row, is_up in enumerate(self.model.up.tolist()) if is_up]
        since = self.model.up_since_s
        due = [
            row
            for row in up
            if t_s == 0.0 or self._is_due(row, t_s) or t_s - scenario.tick_s < since[row] <= t_s
        ]
        self._report(
            due
        )  # first: a broker is known by its report, and a sign of life from before would not count
        names = [scenario.brokers.names[row] for row in up]
        self._at(
            self._later, Phase.ARRIVAL, lambda: self.post.add_events("heartbeat", names, self.now_s)
        )

    def _is_due(self, broker: int, t_s: float) -> bool:
        interval_s = self.scenario.report_interval_s
        over = (t_s - self.scenario.brokers.report_phase_s[broker]) % interval_s
        return bool(min(over, interval_s - over) < 1e-6)

    def _report(self, brokers: Sequence[int]) -> None:
        """These brokers make their reports, which arrive later."""
        if not brokers:
            return
        stale = {
            row: late for row in brokers if (late := self._fault("stale_reports", row)) is not None
        }
        made = self.reporter.make(brokers, self.now_s, stale)
        self._at(self._later, Phase.ARRIVAL, lambda: self.post.add_reports(made, self.now_s))

    def _fault(self, kind: str, broker: int) -> float | None:
        """The delay of the fault of that kind that a broker suffers from now; None: it suffers from
        none."""
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
        """The balancer reads what has arrived, and decides."""
        self.rounds += 1
        now_ms = at_ms(self.now_s)
        made = self.balancer.ask(
            self.post.take(), Inbox(acks=tuple(self.acks), commands=tuple(self.orders)), now_ms
        )
        self.acks, self.orders = [], []
        self.answers |= {answer.id: answer for answer in made.results}
        for record in made.ownership:
            self.seen.note_record(record.bundle, record, now_ms)
        for decision in made.decisions:
            self._send(decision)

    def _send(self, decision: Decision) -> None:
        scenario, sent_s = self.scenario, self.now_s
        assigns = decision.kind == "assign"
        line = {
            "t": sent_s,
            "event": "decision",
            "id": decision.decision_id,
            "kind": "assign" if assigns else "unload",
        }
        named = {
            "bundle": decision.bundle,
            "source": decision.source,
            "destination": decision.destination,
        }
        line |= {name: value for name, value in named.items() if value is not None}
        self.lines.append(line | {"reason": decision.reason, "rule": decision.rule})
        broker = self.broker_of.get(addressee(decision) or "", -1)
        if (
            broker < 0
            or not self.model.up[broker]
            or self._fault("lost_decisions", broker) is not None
        ):
            return
        self.seen.note_epoch(decision)
        delay_s = scenario.move.acquire_s if assigns else scenario.move.release_s
        self._at(sent_s + delay_s, Phase.EFFECT, lambda: self._obey(broker, decision, sent_s))

    def _obey(self, broker: int, decision: Decision, sent_s: float) -> None:
        """The broker does what it was told, or refuses.

        One that has been down since knows nothing of it.
        """
        model, now_ms = self.model, at_ms(self.now_s)
        if not model.up[broker] or model.up_since_s[broker] > sent_s:
            return
        name, bundle = self.scenario.brokers.names[broker], self.row_of[decision.bundle]
        verdict = judge(name, self.seen, decision, bool(model.owner[bundle] == broker), now_ms)
        if verdict.action == "ignore":
            return
        self.seen.note_done(name, decision, now_ms)
        acquires = verdict.action == "acquire"
        change = model.acquire if acquires else model.release
        done = verdict.action != "refuse" and change(bundle, broker)
        if done:
            line = {
                "t": self.now_s,
                "event": "acquired" if acquires else "released",
                "bundle": decision.bundle,
                "broker": name,
            }
            self.lines.append(line | {"decision": decision.decision_id})
        if self._fault("lost_acks", broker) is not None:
            return
        ack = acknowledgement(
            decision, verdict.action if done else "refuse", verdict.reason, at_ms(self.now_s)
        )
        self._at(self._later, Phase.ARRIVAL, lambda: self._acknowledged(name, ack))
        if done:
            self._report_at_once(broker)

    def _acknowledged(self, broker: str, ack: Ack) -> None:
        self.post.add_events("ack", [broker], self.now_s, ack.to_json())
        self.acks.append(ack)

    def _report_at_once(self, broker: int) -> None:
        """Once for all that happens to the broker at this moment; the balancer looks at it when it
        comes."""
        if not self._changed:
            self._at(self.now_s, Phase.REPORT, self._report_changes)
        self._changed.add(broker)
        self._ask(self._later)

    def _report_changes(self) -> None:
        brokers, self._changed = sorted(self._changed), set()
        self._report(brokers)


def _with_unowned(scenario: Scenario) -> list[str]:
    """All bundles of the namespaces that have one which nobody owns at the start."""
    wanted = {
        scenario.namespaces[row]
        for row in np.flatnonzero(scenario.bundles.start_owner < 0).tolist()
    }
    return [
        name
        for name, namespace in zip(scenario.bundles.names, scenario.namespaces, strict=True)
        if namespace in wanted
    ]


class SimulatedBalancer:
    """One cluster's averages and memory, from round to round."""

    def __init__(self, cluster: str, settings: Mapping[str, Any]) -> None:
        """Begin before the first report. `settings`: the cluster's, under our names or Pulsar's."""
        self.cluster, self.settings = cluster, settings
        config = resolve(settings).config
        self.fold_config, self.load_manager = config.fold, config.balancer.load_manager
        self.shard, self.memory = Shard.empty(), Memory(epoch=1)

    def ask(self, batch: Batch, inbox: Inbox, now_ms: int) -> Round:
        """Fold what has arrived, and decide. Raises RuntimeError for a report that is refused: the model makes none that can be."""
        self.shard, refused = fold(self.shard, batch, now_ms, self.fold_config)
        if len(refused):
            raise RuntimeError(f"a report was taken for an old one: {refused.to_pylist()[0]}")
        begin = apply_setting_commands(self.settings, self.memory, inbox)
        view = view_of(self.cluster, [self.shard], now_ms, begin.config.balancer.weights)
        made = decide(view, begin.memory, begin.inbox, begin.config)
        self.memory = made.memory
        return made
