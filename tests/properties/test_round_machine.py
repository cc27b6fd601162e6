"""Brokers come, go, lie and restart, operators send commands of all kinds, in any order: no round
decides what may not be, and in the end every bundle has one owner."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.commands import COMMANDS
from lb_stream.contracts.decisions import MOVES
from lb_stream.core.model.memory import Memory
from lb_stream.core.round.decide import Round
from tests.properties.round_world import (
    BROKERS,
    BUDGET,
    BUDGETED,
    DEAD_MS,
    FREE,
    HALVES,
    HOUR_MS,
    OPERATORS,
    QUARTERS,
    RETENTION_MS,
    SILENT_MS,
    World,
)
from tests.support.commanded_round import decide_with

STRATEGIES: dict[str, dict[str, Any]] = {
    "ThresholdShedder": {},
    "LeastMoves": {"shedding_strategy": "LeastMoves"},
    "TransferShedder": {
        "shedding_strategy": "TransferShedder",
        "load_manager": "extensible",
        "hit_count_threshold": 0,
        "unload_delay_ms": 0,
    },
}
STEP_MS, HEALED_TICKS = 15_000, 60
EXAMPLES = int(os.environ.get("LB_MACHINE_EXAMPLES", "400"))
"""How many lives the long test tries."""

brokers = st.sampled_from(BROKERS)
namespaces = st.sampled_from([BUDGETED, FREE, "t/new"])
bundles = st.sampled_from(
    [*(f"{BUDGETED}/{bounds}" for bounds in QUARTERS), *(f"{FREE}/{bounds}" for bounds in HALVES)]
)
bounds = st.sampled_from([*QUARTERS, *HALVES])
durations_ms = st.sampled_from([30_000, 600_000])
policies = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["p", "q"]),
        "namespaces": st.sampled_from([["t/n"], ["t/m"], ["t/.*"]]),
        "primary": st.sampled_from([["a"], ["a:1", "b"], ["[ab]"], ["c"]]),
        "secondary": st.sampled_from([[], ["d"], ["b", "c"]]),
    }
)


def fields(**some: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(some)


COMMAND_FIELDS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "approve-proposals": fields(proposals=st.just(["c:1:p0"])),  # those that wait take their place
    "assign": fields(namespace=namespaces, bundle=bounds),
    "create-namespace": fields(namespace=st.just("t/new"), bundles=st.integers(1, 3)),
    "declare-dead": fields(broker=st.none() | brokers),
    "delete-config": fields(
        key=st.sampled_from(["max_moves_in_flight", "mode", "shedding_strategy"])
    ),
    "delete-namespace": fields(namespace=namespaces),
    "drain-broker": fields(broker=brokers),
    "dry-run": fields(on=st.booleans()),
    "forget-cluster": fields(),
    "import-namespaces": fields(
        content=st.just({"namespaces": [{"name": "t/new", "boundaries": [0, 0xFFFFFFFF]}]})
    ),
    "merge": fields(namespace=st.just(FREE), bundles=st.just([*HALVES]) | st.just([*QUARTERS[:2]])),
    "pause-cluster": fields(),
    "pin-bundles": fields(bundles=st.lists(bundles, min_size=1, max_size=2), for_ms=durations_ms),
    "reject-proposals": fields(
        proposals=st.just(["c:1:p0"]), why=st.just("no"), for_ms=durations_ms
    ),
    "resume-cluster": fields(),
    "rollout-abort": fields(),
    "rollout-next": fields(broker=brokers),
    "rollout-pause": fields(),
    "rollout-resume": fields(),
    "rollout-settle": fields(broker=brokers),
    "rollout-start": fields(
        of=st.lists(brokers, unique=True, min_size=1, max_size=2), at_most=st.integers(1, 2)
    ),
    "set-capacity": fields(broker=brokers, cpu_cores=st.sampled_from([0.5, 2.0])),
    "set-config": fields(
        values=st.sampled_from(
            [
                {"max_moves_in_flight": 1},
                {"mode": "approve"},
                {"mode": "act"},
                {"shedding_strategy": "OverloadShedder"},
                {f"namespace.{BUDGETED}.freeze": "x"},
            ]
        )
    ),
    "set-policies": fields(isolation=st.lists(policies, min_size=1, max_size=1))
    | fields(remove_isolation=st.just(["p", "q"]))
    | fields(anti_affinity=st.just({BUDGETED: "g", FREE: "g"})),
    "split": fields(namespace=namespaces, bundle=bounds, unload=st.booleans()),
    "undrain-broker": fields(broker=brokers),
    "unload": fields(namespace=namespaces, bundle=bounds, destination=st.none() | brokers)
    | fields(namespace=namespaces),
}


def as_json(made: Round) -> str:
    return canonical_json(
        {
            "decisions": [decision.model_dump(mode="json") for decision in made.decisions],
            "results": [answer.to_dict() for answer in made.results],
            "ownership": [record.model_dump(mode="json") for record in made.ownership],
            "memory": made.memory.to_json(),
        }
    )


class RoundMachine(RuleBasedStateMachine):
    """One life of a cluster."""

    world: World
    waiting: frozenset[str] = frozenset()  # bundles to which the last round gave no broker

    @initialize(strategy=st.sampled_from(sorted(STRATEGIES)))
    def begin(self, strategy: str) -> None:
        self.world = World(**STRATEGIES[strategy])
        self.run(1_000, True)

    # --- what happens ---

    @rule(wait_ms=st.sampled_from([1_000, 6_000, 13_000, 31_000, 90_000]), obeys=st.booleans())
    def later(self, wait_ms: int, obeys: bool) -> None:
        self.run(wait_ms, obeys)

    @rule(times=st.integers(2, 5))
    def calm(self, times: int) -> None:
        for _ in range(times):
            self.run(6_000, True)

    @precondition(lambda self: self.world.has_nothing_pending())
    @rule()
    def later_than_bundles_are_remembered(self) -> None:
        self.run(RETENTION_MS + 1_000, True)

    @rule(given=policies)
    def isolate(self, given: dict[str, Any]) -> None:
        self.world.command("set-policies", isolation=[given])
        self.run(1_000, True)

    @rule(name=brokers, wait_ms=st.sampled_from([1_000, 6_000]))
    def drain(self, name: str, wait_ms: int) -> None:
        self.world.command("drain-broker", broker=name)
        self.run(wait_ms, True)

    @rule(data=st.data(), kind=st.sampled_from(sorted(COMMAND_FIELDS)), at_once=st.booleans())
    def command(self, data: st.DataObject, kind: str, at_once: bool) -> None:
        given = data.draw(COMMAND_FIELDS[kind])
        if "proposals" in given and self.world.memory.proposals:
            ids = [proposal.proposal_id for proposal in self.world.memory.proposals]
            given["proposals"] = [data.draw(st.sampled_from(ids))]
        self.world.command(kind, **given)
        if at_once:
            self.run(1_000, True)

    @rule(name=brokers)
    def crash_and_restart(self, name: str) -> None:
        self.world.restart(name)

    @rule(name=brokers)
    def stop(self, name: str) -> None:
        self.world.restart(name)
        self.world.brokers[name].is_up = False
        self.world.brokers[name].has_left = True

    @rule(name=brokers)
    def start(self, name: str) -> None:
        if not self.world.brokers[name].is_up:
            self.world.restart(name)

    @rule(name=brokers, cut_off=st.booleans())
    def cut_off(self, name: str, cut_off: bool) -> None:
        self.world.brokers[name].is_cut_off = cut_off

    @rule(name=brokers, usage=st.sampled_from([None, 0.0, 55.0, 99.0]))
    def lie_about_usage(self, name: str, usage: float | None) -> None:
        self.world.brokers[name].told_usage = usage

    @rule(name=brokers, claimed=st.lists(bundles, max_size=2))
    def claim(self, name: str, claimed: list[str]) -> None:
        self.world.brokers[name].claimed = set(claimed)
        self.world.has_lied = True

    @rule()
    def restart_job(self) -> None:
        self.world.restart_job()

    # --- what must hold ---

    def run(self, wait_ms: int, obeys: bool) -> None:
        """Make a round, and check it."""
        world = self.world
        caught_up = world.caught_up
        owners = world.owners()
        view, before, inbox, made = world.tick(wait_ms, obeys)
        again = decide_with(view, Memory.from_json(before.to_json()), inbox, world.given)
        assert as_json(again) == as_json(made), "the same log gives the same decisions"
        assert not world.find_unknown(self.waiting, made), "a bundle that waits is forgotten"
        self.waiting = world.find_waiting(made)
        pending = Counter(one.bundle for one in made.memory.pending)
        assert max(pending.values(), default=0) <= 1, "one decision about a bundle at a time"
        assert set(made.memory.operator_state.drained) == world.drained
        for decision in made.decisions:
            destination = decision.destination
            if destination is None:
                continue
            assert destination not in world.drained, f"{decision}: to a drained broker"
            assert not world.is_forbidden(decision.bundle, destination), f"{decision}: forbidden"
            limit_ms = SILENT_MS if decision.kind in ("assign", "unload") else DEAD_MS
            assert not caught_up or not world.is_silent(destination, limit_ms), (
                f"{decision}: to a silent broker"
            )
            if decision.kind == "assign" and not world.has_lied and not decision.dry_run:
                serving = owners.get(decision.bundle, [])
                assert serving in ([], [destination]), f"{decision}: {serving} serves it"
        self.check_truth(made)

    def check_truth(self, made: Round) -> None:
        """Check what has come about."""
        world = self.world
        if not world.has_lied:
            assert not world.twice(), "a bundle with two owners"
        since_ms = world.now_ms - HOUR_MS
        assert sum(at_ms > since_ms for at_ms in world.moved_ms) <= BUDGET, "the budget is kept"
        balancing = [
            one
            for one in made.decisions
            if one.kind in MOVES and one.rule not in OPERATORS and not one.dry_run
        ]
        per_broker = Counter(one.source for one in balancing)
        most = world.given["max_moves_in_flight_per_broker"]
        assert max(per_broker.values(), default=0) <= most

    def teardown(self) -> None:
        """Heal everything: then every bundle gets one owner, and keeps it."""
        world = getattr(self, "world", None)
        if world is None:
            return
        for broker in world.brokers.values():
            broker.claimed, broker.told_usage, broker.is_cut_off = set(), None, False
            if not broker.is_up:
                world.restart(broker.name)
        for kind, given in (
            ("rollout-abort", {}),
            ("resume-cluster", {}),
            ("dry-run", {"on": False}),
            ("set-config", {"values": {"mode": "act"}}),
            ("set-policies", {"remove_isolation": ["p", "q"]}),
            *(("undrain-broker", {"broker": name}) for name in BROKERS),
        ):
            world.command(kind, **given)
        if self.all_is_served(HEALED_TICKS):
            return
        # Some shedders move bundles to and fro. In a pause nothing but a loss leaves a gap.
        world.command("pause-cluster")
        assert self.all_is_served(HEALED_TICKS), "a bundle is lost"

    def all_is_served(self, ticks: int) -> bool:
        """Make so many rounds, or fewer: until every bundle has one owner, and none moves."""
        for _ in range(ticks):
            self.run(STEP_MS, True)
            if not self.world.gaps() and not self.world.memory.pending:
                return True
        return False


def test_every_kind_of_command_is_among_those_that_the_machine_sends() -> None:
    assert set(COMMAND_FIELDS) == set(COMMANDS)


def test_no_order_of_events_brings_about_what_may_not_be() -> None:
    few = settings.default.max_examples <= 15
    run_state_machine_as_test(
        RoundMachine,
        settings=settings(
            max_examples=20 if few else 100,
            stateful_step_count=25,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


@pytest.mark.long
def test_no_long_order_of_events_brings_about_what_may_not_be() -> None:
    run_state_machine_as_test(
        RoundMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=60,
            derandomize=False,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
