"""Load reports of a cluster with a hot scalable topic, whose hottest segment Pulsar splits every
minute: the segment is sealed, and its halves are topics of other bundles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.model.topics import Ring, SegmentName
from tests.support.build import Report

BROKERS = ("a:1", "b:1", "c:1")
REPORT_MS = 15_000
SPLIT_MS = 60_000
SEALED_MS = 60_000
"""How long a sealed segment stays a topic of its bundle."""
TOPIC = "topic://shop/orders/clicks"
BYTES_PER_MSG = 100.0


@dataclass
class ScalingStream:
    """The stream of `minutes`; the topic has `rate` messages/s in, other bundles 100 to 300 each.

    Noise: each figure differs by a few per cent from report to report. `splits` False: the same
    without any split.
    """

    minutes: int
    rate: float = 40_000.0
    splits: bool = True
    seed: int = 1
    segments: dict[SegmentName, int | None] = field(default_factory=dict)  # sealed at, ms
    ring: Ring = field(default_factory=lambda: Ring.new("shop/orders", 12))

    def __post_init__(self) -> None:
        self.segments[SegmentName(TOPIC, 0, 0xFFFF, 0)] = None
        self._random = Random(self.seed)
        self._base = {name: 100.0 + 200.0 * self._random.random() for name in self.ring.names}

    @property
    def owner(self) -> dict[str, str]:
        """Bundle → its broker, which stays."""
        return {name: BROKERS[row % 3] for row, name in enumerate(self.ring.names)}

    def split(self, now_ms: int) -> tuple[str, list[str]]:
        """Split the hottest segment; return its bundle, and those of the halves."""
        active = [segment for segment, sealed in self.segments.items() if sealed is None]
        hottest = max(active, key=lambda segment: (segment.last - segment.first, -segment.id))
        halves = hottest.halves(len(self.segments))
        self.segments[hottest] = now_ms
        self.segments |= dict.fromkeys(halves)
        return self.bundle_of(hottest), [self.bundle_of(half) for half in halves]

    def bundle_of(self, segment: SegmentName) -> str:
        """The bundle that a segment's name hashes into."""
        return self.ring.bundle_of(segment.full)

    def load_of(self, bundle: str, now_ms: int) -> BundleStats:
        """What a bundle carries now, without noise."""
        rate, topics = self._base[bundle], 3
        for segment, sealed in self.segments.items():
            if self.bundle_of(segment) != bundle:
                continue
            if sealed is None:
                rate += self.rate * (segment.last - segment.first + 1) / 0x10000
            topics += sealed is None or now_ms - sealed < SEALED_MS
        return BundleStats(msg_rate_in=rate, msg_throughput_in=rate * BYTES_PER_MSG, topics=topics)

    def batches(self) -> Iterator[tuple[int, list[Report]]]:
        """Yield each step's time and reports."""
        for now_ms in range(REPORT_MS, self.minutes * 60_000 + 1, REPORT_MS):
            if self.splits and now_ms % SPLIT_MS == 0:
                self.split(now_ms)
            yield now_ms, [self._report(broker, now_ms) for broker in BROKERS]

    def _report(self, broker: str, now_ms: int) -> Report:
        mine = [bundle for bundle, owner in self.owner.items() if owner == broker]
        found = {}
        for bundle in mine:
            exact, noise = self.load_of(bundle, now_ms), self._random.gauss(1.0, 0.03)
            found[bundle] = exact.model_copy(
                update={
                    "msg_rate_in": exact.msg_rate_in * noise,
                    "msg_throughput_in": exact.msg_throughput_in * noise,
                }
            )
        carried = sum(stats.msg_rate_in for stats in found.values())
        return Report(broker, now_ms, found, {"cpu": (carried / 600.0, 100.0)})
