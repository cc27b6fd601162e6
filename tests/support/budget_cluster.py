"""A cluster whose namespaces have budgets of moves."""

from typing import Any

from lb_stream.contracts.reports import Ack, BundleStats
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.commands.responder import Received
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.disruption.budgets import build_budgets
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.round.decide import Inbox, Round
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Event, Report, batch_of
from tests.support.commanded_round import decide_with

NOW_MS, TIMEOUT_MS = 1_700_000_000_000, 60_000
HEAVY = [f"t/heavy/0x{number}0000000_0x{number + 1}0000000" for number in range(6)]
LIGHT = [f"t/light/0x{number}0000000_0x{number + 1}0000000" for number in range(6)]
SETTINGS = {
    "dry_run": False,
    "shedding_strategy": "OverloadShedder",
    "overloaded_threshold_percent": 60,
    "shedding_interval_ms": 0,
    "split_enabled": False,
}


class Cluster:
    """Two brokers; the first is overloaded. What is decided is obeyed when a test says so."""

    def __init__(self, **settings: Any) -> None:
        self.settings = {**SETTINGS, **settings}
        self.shard, self.memory, self.now_ms = Shard.empty(), Memory(), NOW_MS
        self.owned = {"a": [*HEAVY, *LIGHT], "b": list[str]()}
        self.usage = {"a": 99.0, "b": 10.0}

    @property
    def config(self) -> ClusterConfig:
        return cluster_config(self.settings)

    def round(
        self,
        after_ms: int = 10_000,
        *,
        acks: tuple[Ack, ...] = (),
        commands: tuple[Received, ...] = (),
    ) -> Round:
        """Both brokers report what they serve, and the balancer decides.

        Its memory goes through the log.
        """
        self.now_ms += after_ms
        reports = [
            Report(
                broker,
                self.now_ms,
                {
                    name: BundleStats(
                        msg_throughput_in=9e6 if name in HEAVY else 1e6, msg_rate_in=10.0
                    )
                    for name in names
                },
                {"cpu": (self.usage[broker], 100.0)},
                offset=self.now_ms + at,
            )
            for at, (broker, names) in enumerate(self.owned.items())
        ]
        beats = [
            Event("heartbeat", broker, self.now_ms, offset=self.now_ms + 5 + at)
            for at, broker in enumerate(self.owned)
        ]
        self.shard, _ = fold(self.shard, batch_of(reports, beats), self.now_ms, self.config.fold)
        view = view_of("c", [self.shard], self.now_ms, self.config.balancer.weights)
        inbox = Inbox(acks=acks, commands=commands)
        made = decide_with(view, self.memory, inbox, self.settings)
        self.memory = Memory.from_json(made.memory.to_json())
        return made

    def obey(self, made: Round) -> None:
        """The brokers do what the round has decided."""
        for decision in made.decisions:
            if decision.kind == "assign":
                self.owned[str(decision.destination)].append(decision.bundle)
            elif decision.source is not None:
                self.owned[decision.source].remove(decision.bundle)

    def used(self) -> int:
        """How many moves count."""
        return len(
            build_budgets(self.config.namespaces, self.memory, (), self.now_ms)["t/heavy"].until_ms
        )
