"""What holds in every played scenario, whatever happens to its brokers and whichever policy
balances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lb_stream.sim.measures import measure_figures
from lb_stream.sim.scenario.scenario import (
    Event,
    Fault,
    Scenario,
    ScenarioIsolation,
    ScenarioPolicies,
)
from lb_stream.sim.simulation import read_policy
from lb_stream.sim.simulation.runner import Simulation
from tests.unit.sim.simulation.scenes import scene

POLICIES = (
    "none",
    "ThresholdShedder",
    "OverloadShedder",
    "UniformLoadShedder",
    "AvgShedder",
    "TransferShedder",
)
KNOWN_DEAD_S = 60.0
"""A broker that has been down for so long is known to be: heartbeats end 30 s before, and a round
is 10 s away."""
PINNED, WALLED = "t/n0", "t/n1"


class Cluster(RuleBasedStateMachine):
    """Three brokers, some bundles; one is pinned, one has a broker of its own.

    A broker may crash, leave, come back, drain, slow down.
    """

    @initialize(
        policy=st.sampled_from(POLICIES),
        owners=st.lists(st.integers(0, 2), min_size=3, max_size=9),
        rates=st.lists(st.floats(0, 60_000, width=32), min_size=9, max_size=9),
        faults=st.lists(
            st.tuples(
                st.sampled_from(("lost_decisions", "lost_acks", "stale_reports")), st.integers(0, 2)
            ),
            max_size=2,
        ),
    )
    def begin(
        self, policy: str, owners: list[int], rates: list[float], faults: list[tuple[str, int]]
    ) -> None:
        owners[1] = 2  # within its wall
        policies = ScenarioPolicies(
            isolation=(ScenarioIsolation("wall", (WALLED,), (2,), (), 1),),
            pinned_namespaces=(PINNED,),
        )
        given = tuple(Fault(kind, (broker,), 50.0, 200.0, 40.0) for kind, broker in faults)
        self.scenario: Scenario = scene(
            owners, ticks=40, rates=rates[: len(owners)], policies=policies, faults=given
        )
        self.game = Simulation(self.scenario, read_policy(policy))
        self.events: list[Event] = []
        self.down_s: dict[int, float] = {}
        self.drained: set[int] = set()
        self.given_back_s = np.full(3, -np.inf)
        self.seen = 0
        self.t_s = 0.0

    def happens(self, broker: int, kind: str, factor: float = 1.0) -> None:
        event = Event(self.t_s, broker, kind, factor)
        self.events.append(event)
        self.game.add(event)

    @rule(seconds=st.integers(1, 90))
    def time_passes(self, seconds: int) -> None:
        self.t_s = min(self.t_s + seconds, self.scenario.end_s)
        self.game.run(self.t_s, lambda _part: None)

    @precondition(lambda self: self.t_s < 300.0)
    @rule(broker=st.integers(0, 2), kind=st.sampled_from(("crash", "leave")))
    def take_down(self, broker: int, kind: str) -> None:
        if broker not in self.down_s and len(self.down_s) < 2:
            self.down_s[broker] = self.t_s
            self.happens(broker, kind)
            self.time_passes(1)

    @rule(broker=st.integers(0, 2))
    def comes_back(self, broker: int) -> None:
        if self.down_s.pop(broker, None) is not None:
            self.happens(broker, "up")
            self.time_passes(1)

    @rule(broker=st.integers(0, 2))
    def is_drained_or_given_back(self, broker: int) -> None:
        self.happens(broker, "undrain" if broker in self.drained else "drain")
        self.drained ^= {broker}
        self.given_back_s[broker] = self.t_s
        self.time_passes(1)

    @rule(broker=st.integers(0, 2), factor=st.sampled_from((0.5, 1.0, 2.0)))
    def changes_its_speed(self, broker: int, factor: float) -> None:
        self.happens(broker, "slow", factor)
        self.time_passes(1)

    @invariant()
    def each_decision_may_be_made(self) -> None:
        """It asks no broker that is known to be dead, and moves nothing pinned from a broker that
        isn't drained."""
        if not hasattr(self, "game"):
            return
        for line in self.game.lines[self.seen :]:
            if line["event"] == "decision":
                asked = line["destination"] if line["kind"] == "assign" else line["source"]
                broker = self.scenario.brokers.names.index(asked)
                since = self.down_s.get(broker)
                assert since is None or line["t"] - since < KNOWN_DEAD_S, line
                if line["kind"] == "unload" and line["bundle"].startswith(f"{PINNED}/"):
                    assert broker in self.drained or line["t"] <= self.given_back_s[broker] + 1.0, (
                        line
                    )
        self.seen = len(self.game.lines)

    @invariant()
    def load_is_served_once_or_by_nobody(self) -> None:
        if not hasattr(self, "game"):
            return
        model = self.game.model
        loads = model.loads(self.t_s)
        served = model.sums(loads).sum(axis=1)
        assert np.allclose(served + loads[:, model.owner < 0].sum(axis=1), loads.sum(axis=1))
        assert not model.sums(loads)[:, ~model.up].any(), "who is down serves nothing"

    def teardown(self) -> None:
        """The whole of it could have happened, and nobody but its own broker took the bundle behind
        the wall."""
        if not hasattr(self, "game"):
            return
        self.game.run(self.scenario.end_s, lambda _part: None)
        found = measure_figures(replace(self.scenario, events=tuple(self.events)), self.game.lines)
        assert found["violations"]["isolation_placements"] == 0
        assert found["moves"] + found["failovers"] <= found["decisions"]


Cluster.TestCase.settings = settings(
    max_examples=settings.default.max_examples // 3, stateful_step_count=10, deadline=None
)
TestCluster = Cluster.TestCase
