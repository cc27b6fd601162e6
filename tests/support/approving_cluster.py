"""A cluster whose usage follows from what its brokers own, balanced in mode `approve`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lb_stream.contracts.commands import COMMANDS
from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.commands.responder import CommandAnswer, Received
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory, Proposal
from lb_stream.core.round.decide import Inbox, Round
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Event, Report, batch_of
from tests.support.commanded_round import decide_with

MINUTE_MS, MB = 60_000, 1e6
OVERLOAD = {"shedding_strategy": "OverloadShedder", "overloaded_threshold_percent": 50}


def bundle(number: int) -> str:
    return f"t/n/0x{number:02x}000000_0x{number + 1:02x}000000"


class ApprovingCluster:
    """Brokers whose usage is what their bundles carry, 1 at 100 MB/s.

    Moves are made when a test says so.
    """

    def __init__(self, loads: dict[str, list[float]], **settings: Any) -> None:
        base = {
            "mode": "approve",
            "shedding_interval_ms": MINUTE_MS,
            "split_enabled": False,
            "history_ratio": 0.0,
        }
        self.settings = {**base, **OVERLOAD, **settings}
        numbers = iter(range(250))
        self.owned = {
            name: {bundle(next(numbers)): load for load in some} for name, some in loads.items()
        }
        self.shard, self.memory, self.now_ms, self.sent = (
            Shard.empty(),
            Memory(),
            1_700_000_000_000,
            0,
        )

    def say(self, kind: str, **fields: Any) -> Received:
        self.sent += 1
        return Received.from_command(
            COMMANDS[kind](id=f"c{self.sent}", by="User:ann", **fields), self.now_ms
        )

    def round(self, *commands: Received, after_ms: int = MINUTE_MS) -> Round:
        """Everybody reports, the balancer decides; its memory goes through the log."""
        self.now_ms += after_ms
        reports = [
            Report(
                name,
                self.now_ms,
                {
                    one: BundleStats(msg_throughput_in=load * MB, msg_rate_in=load * 1_000)
                    for one, load in some.items()
                },
                {"cpu": (sum(some.values()), 100.0)},
                offset=self.now_ms + at,
            )
            for at, (name, some) in enumerate(self.owned.items())
        ]
        beats = [
            Event("heartbeat", name, self.now_ms, offset=self.now_ms + 50 + at)
            for at, name in enumerate(self.owned)
        ]
        config = cluster_config(self.settings)
        self.shard, _ = fold(self.shard, batch_of(reports, beats), self.now_ms, config.fold)
        view = view_of("c", [self.shard], self.now_ms, config.balancer.weights)
        made = decide_with(view, self.memory, Inbox(commands=commands), self.settings)
        self.memory = Memory.from_json(made.memory.to_json())
        assert self.memory.to_json() == made.memory.to_json()
        return made

    def approve(
        self, *ids: str, after_ms: int = 1_000, **fields: Any
    ) -> tuple[Round, CommandAnswer]:
        made = self.round(
            self.say("approve-proposals", proposals=list(ids), **fields), after_ms=after_ms
        )
        return made, made.results[0]

    def carry_out(self, decision: Decision) -> None:
        """One move is made."""
        self.owned[str(decision.destination)][decision.bundle] = self.owned[
            str(decision.source)
        ].pop(decision.bundle)

    def obey(self, made: Round) -> None:
        """The moves of a round are made at once, and confirmed."""
        for decision in made.decisions:
            if decision.kind != "assign":
                self.carry_out(decision)
        self.memory = replace(self.memory, pending=(), released=(), reserved={}, moves={})

    @property
    def waiting(self) -> tuple[Proposal, ...]:
        return self.memory.proposals

    @property
    def usage(self) -> dict[str, float]:
        return {name: sum(some.values()) / 100.0 for name, some in self.owned.items()}
