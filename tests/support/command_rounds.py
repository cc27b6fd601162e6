"""Rounds of two brokers that obey operators' commands."""

from typing import Any

from lb_stream.contracts.commands import COMMANDS
from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.commands.responder import (
    Received,
)
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.decide import Inbox, Round
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Event, Report, batch_of
from tests.support.commanded_round import decide_with

GIVEN = {"dry_run": False, "shedding_enabled": False}
FIRST, SECOND = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
OTHER = "t/m/0x00000000_0xffffffff"
LOAD = BundleStats(msg_rate_in=100.0, msg_throughput_in=1e6, topics=5)


def view(now_ms: int = 1000, **owned: list[str]) -> ClusterView:
    """Brokers that report what they own, and have never reported before."""
    return views((now_ms, owned))[-1]


def views(*steps: tuple[int, dict[str, list[str]]]) -> list[ClusterView]:
    """Brokers that report what they own, again and again."""
    shard, found = Shard.empty(), []
    for now_ms, owned in steps:
        shard, seen = _next(shard, now_ms, owned)
        found.append(seen)
    return found


def _next(before: Shard, now_ms: int, owned: dict[str, list[str]]) -> tuple[Shard, ClusterView]:
    reports = [
        Report(name, now_ms, dict.fromkeys(bundles, LOAD), offset=at)
        for at, (name, bundles) in enumerate(owned.items())
    ]
    beats = [Event("heartbeat", name, now_ms, offset=100 + at) for at, name in enumerate(owned)]
    config = cluster_config(GIVEN)
    shard, _ = fold(before, batch_of(reports, beats), now_ms, config.fold)
    return shard, view_of("c", [shard], now_ms, config.balancer.weights)


def command(kind: str, command_id: str = "x", **fields: Any) -> Received:
    return Received.from_command(COMMANDS[kind](id=command_id, by="User:ann", **fields), at_ms=900)


def play(
    seen: ClusterView, memory: Memory, *commands: Received, given: dict[str, Any] = GIVEN
) -> Round:
    """One round."""
    return decide_with(seen, memory, Inbox(commands=commands), given)


TWO = {"a": [FIRST, SECOND], "b": [OTHER]}
