"""Generated clusters: what brokers send over some time, cut into batches, and settings that
matter."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.model.blocks import Batch, Shard
from tests.support.build import Event, Report, batch_of

BROKERS = ("b-1:8080", "b-2:8080", "b-10:8080", "ä:8080")
BUNDLES = tuple(
    f"t/{namespace}/0x{lower:08x}_0x{lower + (1 << 29):08x}"
    for namespace in ("m", "n")
    for lower in range(0, 6 << 29, 1 << 29)
)
SYSTEM_BUNDLES = tuple(f"pulsar/{broker}/0x00000000_0xffffffff" for broker in BROKERS[:2])
PARTITION = {broker: zlib.crc32(broker.encode()) % 2 for broker in BROKERS}
SHARD_COUNTS = (1, 2, 4)

Record = Report | Event


def _statistics(random: Random) -> BundleStats:
    """Rates and throughputs over many magnitudes, some of them round numbers, some 0."""
    four = [
        random.choice([0.0, 0.1, 100.0, random.uniform(0, 10) ** random.randint(1, 9)])
        for _ in range(4)
    ]
    return BundleStats(
        msg_rate_in=four[0],
        msg_throughput_in=four[1],
        msg_rate_out=four[2],
        msg_throughput_out=four[3],
        topics=random.choice([0, 1, 60, 5_000]),
        producer_count=random.randint(0, 9),
    )


# Drawn from a pool: a draw for every float would take most of the tests' time.
statistics = st.sampled_from([BundleStats(), *map(_statistics, map(Random, range(24)))])
usages = st.sampled_from([0.0, 10.0, 20.0, 33.3, 50.0, 84.9, 85.0, 90.0, 99.0, 150.0])
gaps_ms = st.sampled_from([0, 0, 1, 100, 999, 1_000, 5_000, 31_000, 40_000, 90_000])


@st.composite
def records(
    draw: st.DrawFn, most: int = 12, bundles: Sequence[str] = BUNDLES[:5], old_ones: bool = True
) -> list[Record]:
    """Reports and signs of life in the order in which they count: append time, partition,
    offset."""
    sent: list[Record] = []
    now_ms = 1_000_000
    for offset in range(draw(st.integers(1, most))):
        now_ms += draw(gaps_ms)
        broker = draw(st.sampled_from(BROKERS))
        place = {"append_ms": now_ms, "partition": PARTITION[broker], "offset": offset}
        kind = draw(st.sampled_from(["report"] * 6 + ["heartbeat", "goodbye", "ack"]))
        if kind != "report":
            sent.append(Event(kind, broker, **place))
            continue
        named = draw(st.lists(st.sampled_from(bundles), unique=True, max_size=len(bundles)))
        late = draw(st.sampled_from([0, 0, 0, 0, 1, 3_599_999, 3_600_000])) if old_ones else 0
        sent.append(
            Report(
                broker,
                bundles={name: draw(st.none() | statistics) for name in named},
                resources={"cpu": (draw(usages), 100.0)},
                last_update_ms=now_ms - late,
                start_timestamp_ms=draw(st.sampled_from([0, 0, 0, 7])) if old_ones else 0,
                content=draw(st.sampled_from([None, None, None, "the same again"])),
                **place,
            )
        )
    return sorted(sent, key=lambda record: (record.append_ms, record.partition, record.at))


@st.composite
def cuts(draw: st.DrawFn, sent: Sequence[Record]) -> list[Sequence[Record]]:
    """The same records in one batch or several, some of them empty."""
    places = sorted(draw(st.lists(st.integers(0, len(sent)), max_size=5)))
    return [sent[begin:end] for begin, end in zip([0, *places], [*places, len(sent)], strict=True)]


fold_configs = st.builds(
    FoldConfig, short_samples=st.integers(1, 4), long_samples=st.integers(1, 6)
)


def block_of(
    batch: Sequence[Record],
    shuffle: Callable[[list[Any]], Any] | None = None,
    keep: Callable[[str], bool] | None = None,
) -> Batch:
    """The columnar form of one batch, its rows in any order."""
    reports: list[Report] = [record for record in batch if isinstance(record, Report)]
    events: list[Event] = [record for record in batch if isinstance(record, Event)]
    if shuffle is not None:
        shuffle(reports)
        shuffle(events)
    return batch_of(reports, events, keep)


@dataclass
class Shards:
    """A cluster's shards, each with the bundles that its number says."""

    count: int
    config: FoldConfig
    shards: list[Shard]
    now_ms: int = 0

    @staticmethod
    def empty(count: int, config: FoldConfig) -> Shards:
        return Shards(count, config, [Shard.empty()] * count)

    def take(
        self,
        batch: Sequence[Record],
        now_ms: int | None = None,
        shuffle: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        """Fold one batch into every shard."""
        self.now_ms = max(
            [self.now_ms if now_ms is None else now_ms, *(record.append_ms for record in batch)]
        )
        for number in range(self.count):

            def mine(name: str, number: int = number) -> bool:
                return zlib.crc32(name.encode()) % self.count == number

            self.shards[number], _ = fold(
                self.shards[number], block_of(batch, shuffle, mine), self.now_ms, self.config
            )
