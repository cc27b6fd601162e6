"""A cluster with a bundle that is large enough to be split."""

from collections.abc import Mapping
from typing import Any

from lb_stream.contracts.reports import Ack, BundleStats, SplitAsk
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.commands.responder import Received
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Report, batch_of

PARENT, LEFT, RIGHT = (
    "t/n/0x00000000_0x40000000",
    "t/n/0x00000000_0x20000000",
    "t/n/0x20000000_0x40000000",
)

LARGE, SMALL = BundleStats(topics=1200), BundleStats(topics=5)


class Cluster:
    """Brokers that report what they are told to, and the balancer's memory."""

    def __init__(self, **settings: Any) -> None:
        self.settings = {"dry_run": False, "shedding_enabled": False} | settings
        self.shard, self.memory, self.now_ms = Shard.empty(), Memory(), 1_000_000

    def round(
        self,
        owned: Mapping[str, Mapping[str, BundleStats]],
        acks: tuple[Ack, ...] = (),
        wait_ms: int = 1_000,
        asks: tuple[tuple[str, SplitAsk], ...] = (),
        commands: tuple[Received, ...] = (),
    ) -> Round:
        self.now_ms += wait_ms
        reports = [
            Report(broker, self.now_ms, bundles, offset=self.now_ms + place)
            for place, (broker, bundles) in enumerate(owned.items())
        ]
        config = cluster_config(self.settings)
        self.shard, _ = fold(self.shard, batch_of(reports), self.now_ms, config.fold)
        view = view_of("c", [self.shard], self.now_ms, config.balancer.weights)
        done = decide(view, self.memory, Inbox(acks, asks=asks, commands=commands), config)
        self.memory, self.last = Memory.from_json(done.memory.to_json()), done
        return done
