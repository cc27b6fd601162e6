"""Plays a recorded span in the simulator with several policies, and the present with LeastMoves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lb_stream.core.model.refusals import Refusal
from lb_stream.core.round.decide import Round
from lb_stream.io.messages.shown import figure
from lb_stream.query.wording import explain_refusal, place_of_rule
from lb_stream.sim.measures import TraceMeasures, judge_trace, measure_trace
from lb_stream.sim.measures.bound import lower_bound
from lb_stream.sim.measures.moves import gap_clients, gap_throughputs
from lb_stream.sim.measures.rules import Rules
from lb_stream.sim.measures.state import BrokerState, Demand, broker_usage
from lb_stream.sim.scenario.bundle_tree import BundleTree
from lb_stream.sim.scenario.present import SETTLED
from lb_stream.sim.scenario.scenario import Scenario
from lb_stream.sim.simulation import Policy
from lb_stream.sim.simulation.runner import OnProgress, Simulation

NO_MOVES = "no moves"
"""The policy that only gives bundles of dead brokers to others."""
MOST_POINTS = 200
MOST_REASONS = 3
_PLACES = ("strategy", "limits", "policies", "suspension", "operators")
"""Places of the rules that say why a round made no move."""


@dataclass(frozen=True, slots=True)
class Play:
    """What a policy did with the span. Usages are demand ÷ capacity, ratios."""

    policy: str
    moves: int
    clients_disturbed: int
    client_seconds_lost: float
    moved_bytes_per_s: float
    max_usage_end: float
    over_bound_median: float | None  # max usage ÷ the least possible, in the last quarter
    balanced_share: float | None  # of the time
    balanced_after_s: float | None  # None: not within the span
    overload_s: float  # broker-seconds above 85 %
    rules_broken: int
    verdict: str
    reasons: tuple[str, ...]  # why rounds moved nothing, the most frequent first
    over_bound: tuple[float, ...]  # at `t_s`
    t_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A move that LeastMoves would make. `client_seconds`: that its clients lose, summed."""

    t_s: float
    bundle: str
    source: str
    destination: str | None
    clients: int
    bytes_per_s: float
    client_seconds: float


@dataclass(frozen=True, slots=True)
class Bound:
    """How uneven the best assignment must stay. Usages are demand ÷ capacity, ratios."""

    max_usage: float  # now
    mean_usage: float
    bound: float  # no allowed assignment has a lower max usage
    bound_without_exclusions: float  # if no namespace were excluded from shedding
    largest_bundle: str
    largest_usage: float  # of the broker that suits it best, if it served that bundle alone


def prolong(scenario: Scenario, minutes: float) -> Scenario:
    """Return a scenario of at least `minutes`, in which the last loads go on."""
    ticks = max(scenario.ticks, math.ceil(minutes * 60 / scenario.tick_s))
    missing = math.ceil(ticks / scenario.load_step_ticks) - scenario.loads.shape[2]
    loads = scenario.loads
    if missing > 0:
        loads = np.concatenate([loads, np.repeat(loads[:, :, -1:], missing, axis=2)], axis=2)
    settled_s = math.floor(SETTLED * ticks) * scenario.tick_s
    return replace(scenario, ticks=ticks, loads=loads, settled_from_s=settled_s)


def play(
    scenario: Scenario, policy: Policy, on_progress: OnProgress
) -> tuple[Play, tuple[Move, ...]]:
    """Run a policy in a scenario. Also returns its moves, in order of time."""
    refusals: Counter[str] = Counter()
    last: dict[str, Refusal] = {}

    def note_round(made: Round) -> None:
        for refusal in made.refusals:
            if place_of_rule(refusal.rule) in _PLACES:
                refusals[refusal.rule] += 1
                last[refusal.rule] = refusal

    simulation = Simulation(scenario, policy, on_round=note_round)
    if policy.name != NO_MOVES or scenario.events:  # else nothing happens
        simulation.run(scenario.end_s, on_progress)
    measured = measure_trace(scenario, simulation.lines)
    figures, series = measured.figures, measured.series
    moves = tuple(_list_moves(measured))
    step = math.ceil(scenario.ticks / MOST_POINTS)
    shown = measured.shown_over[::step].tolist()
    reasons = (_describe(last[rule], count) for rule, count in refusals.most_common(MOST_REASONS))
    return (
        Play(
            policy=policy.name,
            moves=int(figures["moves"]),
            clients_disturbed=sum(move.clients for move in moves),
            client_seconds_lost=round(sum(move.client_seconds for move in moves), 3),
            moved_bytes_per_s=sum(move.bytes_per_s for move in moves),
            max_usage_end=float(series.max_usage[-1]),
            over_bound_median=measured.over_median,
            balanced_share=figures["balanced_share"],
            balanced_after_s=measured.time_to_balance_s,
            overload_s=float(figures["overload_s_85"]),
            rules_broken=int(figures["violation_count"]),
            verdict=str(judge_trace(measured)),
            reasons=tuple(reasons),
            over_bound=tuple(round(value, 4) for value in shown),
            t_s=tuple(series.t_s[::step].tolist()),
        ),
        moves,
    )


def _describe(refusal: Refusal, count: int) -> str:
    parts = [
        f"{name} {figure(value, refusal.unit)}"
        for name, value in (("saw", refusal.greatest), ("limit", refusal.limit))
        if value is not None
    ]
    figures = f" ({', '.join(parts)})" if parts else ""
    return f"{explain_refusal(refusal.rule)}{figures}, {count} times"


def _list_moves(measured: TraceMeasures) -> Iterator[Move]:
    gaps, tree = measured.gaps.where(measured.gaps.moved), measured.history.tree
    names, clients = measured.scenario.brokers.names, gap_clients(tree, gaps)
    lost = clients * (gaps.length_s + measured.scenario.move.reconnect_s)
    columns = (gaps.since_s, gaps.bundle, gaps.source, gaps.destination, clients)
    more = (gap_throughputs(tree, gaps), lost)
    for t_s, row, source, to, count, bytes_per_s, lost_s in zip(
        *(column.tolist() for column in (*columns, *more)), strict=True
    ):
        destination = names[to] if to >= 0 else None
        bundle = tree.names[row]
        yield Move(t_s, bundle, names[source], destination, int(count), bytes_per_s, lost_s)


def find_bound(scenario: Scenario) -> Bound:
    """Find how uneven the best assignment of a scenario's beginning must stay."""
    demand, rules = Demand.at_tick(BundleTree(scenario), 0), Rules.from_scenario(scenario)
    state = BrokerState.at_start(scenario)
    state.until(0.0)
    free = Rules.from_scenario(
        replace(scenario, policies=replace(scenario.policies, pinned_namespaces=()))
    )
    owner = scenario.bundles.start_owner
    usage = broker_usage(scenario.brokers, owner, demand, state.factor)[state.available]
    brokers = scenario.brokers
    alone = np.min(
        [
            np.maximum.reduce(
                [
                    demand.rate / brokers.cpu_msgs_per_s[row]
                    + (demand.bytes_in + demand.bytes_out) / brokers.cpu_bytes_per_s[row],
                    demand.bytes_in / brokers.bandwidth_in_bytes_per_s[row],
                    demand.bytes_out / brokers.bandwidth_out_bytes_per_s[row],
                ]
            )
            for row in _unlike_brokers(scenario)
        ],
        axis=0,
    )
    largest = int(np.argmax(alone))
    return Bound(
        max_usage=float(usage.max(initial=0.0)),
        mean_usage=float(usage.mean()) if len(usage) else 0.0,
        bound=lower_bound(scenario, rules, demand, state),
        bound_without_exclusions=lower_bound(scenario, free, demand, state),
        largest_bundle=scenario.bundles.names[largest],
        largest_usage=float(alone[largest]),
    )


def _unlike_brokers(scenario: Scenario) -> Sequence[int]:
    """Return one row of each kind of brokers: those with the same capacities."""
    brokers = scenario.brokers
    kinds = np.column_stack(
        [
            brokers.cpu_msgs_per_s,
            brokers.cpu_bytes_per_s,
            brokers.bandwidth_in_bytes_per_s,
            brokers.bandwidth_out_bytes_per_s,
        ]
    )
    first: list[int] = np.unique(kinds, axis=0, return_index=True)[1].tolist()
    return first[:: math.ceil(len(first) / MOST_POINTS)]


def list_plays(policies: Mapping[str, Mapping[str, object]]) -> list[Policy]:
    """Return policies by name → settings. Raises SettingError for settings that are wrong."""
    found = [Policy(name, values) for name, values in policies.items()]
    for policy in found:
        policy.resolve()
    return found
