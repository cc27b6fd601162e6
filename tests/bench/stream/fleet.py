"""Brokers that report a load of the right shape and size, and do what they are told: quick enough
for a million bundles."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.fast import build_struct
from lb_stream.contracts.reports import BundleStats, ModularLoadReport

HOT_SHARE = 0.01
"""Share of the brokers (one at least) that run hot in a generation of reports; in the next one it
is others."""

NAMESPACE_BUNDLES = 64
GREATEST_RATE = 5_000.0  # messages/s of one bundle: below what makes a balancer split it
MEASURED_TOGETHER = 64  # brokers
MANAGER = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"

_Stats = build_struct(BundleStats)
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Shape:
    """How many clusters, brokers in each, and bundles on each broker to begin with."""

    clusters: int
    brokers: int
    bundles: int

    @property
    def all_bundles(self) -> int:
        return self.clusters * self.brokers * self.bundles

    def __str__(self) -> str:
        return f"{self.clusters}x{self.brokers}x{self.bundles}"


def bundle_names(count: int) -> list[str]:
    """Whole namespaces of 64 bundles each; the last one may lack some."""
    step = 2**32 // NAMESPACE_BUNDLES
    ranges = [
        f"0x{at * step:08x}_0x{min((at + 1) * step, 0xFFFFFFFF):08x}"
        for at in range(NAMESPACE_BUNDLES)
    ]
    return [
        f"acme/n{at // NAMESPACE_BUNDLES:05d}/{ranges[at % NAMESPACE_BUNDLES]}"
        for at in range(count)
    ]


class Fleet:
    """All brokers of one shape.

    `owner` is each bundle's broker, -1 while nobody has it; bundles are counted cluster by cluster.
    """

    def __init__(
        self, shape: Shape, seed: int = 1, prefix: str = "bench", steady: float = 0.0
    ) -> None:
        """`steady`: the part of the bundles whose figures are the same in every report."""
        self.shape, self._prefix = shape, prefix
        self.brokers = shape.clusters * shape.brokers
        self._rng = np.random.default_rng(seed)
        start_ms = time.time_ns() // 1_000_000
        names = {
            "web_service_url": "",
            "pulsar_service_url": "",
            "load_manager_class_name": MANAGER,
        }
        same = ModularLoadReport(**names, broker_version_string="4.0.7", start_timestamp=start_ms)
        self._same = same.model_dump(
            mode="json", by_alias=True, exclude_none=True
        )  # of all reports
        self._generation = 0
        self._in_cluster = shape.brokers * shape.bundles
        self.names = bundle_names(self._in_cluster)
        self._places = {name: at for at, name in enumerate(self.names)}
        count = shape.all_bundles
        placed = [
            self._rng.permutation(
                np.repeat(np.arange(shape.brokers, dtype=np.int32), shape.bundles)
            )
            + cluster * shape.brokers
            for cluster in range(shape.clusters)
        ]
        self.owner = np.concatenate(placed)
        self._reported_in = self._rng.permutation(count)  # a broker names its bundles in no order
        self._rate = np.minimum((self._rng.pareto(1.5, count) + 0.1) * 100.0, GREATEST_RATE)
        self._size = self._rng.uniform(200, 2_000, count)
        self._readers = self._rng.integers(0, 4, count)
        self._topics = self._rng.integers(1, 20, count)
        self._is_steady = self._rng.random(count) < steady

    def __str__(self) -> str:
        return str(self.shape)

    @property
    def cluster_names(self) -> list[str]:
        return [self.cluster_name(at) for at in range(self.shape.clusters)]

    def cluster_name(self, cluster: int) -> str:
        return f"{self._prefix}-{cluster:04d}"

    def broker_name(self, broker: int) -> str:
        return f"broker-{broker % self.shape.brokers:04d}:8080"

    def generation(self) -> list[tuple[bytes, bytes]]:
        """(key, value) of a new report of every broker: other numbers, others of them hot, each in
        a cluster whose others are not."""
        count = max(1, round(self.brokers * HOT_SHARE))
        first = self._generation * count
        clusters, brokers = self.shape.clusters, self.shape.brokers
        hot = {
            at % clusters * brokers + at // clusters % brokers for at in range(first, first + count)
        }
        return self.reports(range(self.brokers), hot)

    def reports(
        self, brokers: Iterable[int], hot: Collection[int] = ()
    ) -> list[tuple[bytes, bytes]]:
        """(key, value) of new reports of some brokers, of which the `hot` ones are at about 60 %
        and the others at about 30 %."""
        self._generation += 1
        order = self._reported_in[np.argsort(self.owner[self._reported_in], kind="stable")]
        begin = np.searchsorted(self.owner[order], np.arange(self.brokers + 1)).tolist()
        chosen, records = list(brokers), list[tuple[bytes, bytes]]()
        for at in range(0, len(chosen), MEASURED_TOGETHER):
            some = [
                (broker, order[begin[broker] : begin[broker + 1]])
                for broker in chosen[at : at + MEASURED_TOGETHER]
            ]
            columns = self._measure(np.concatenate([rows for _, rows in some]))
            end = 0
            for broker, rows in some:
                first, end = end, end + len(rows)
                records.append(
                    self._report(
                        broker,
                        rows,
                        {name: values[first:end] for name, values in columns.items()},
                        broker in hot,
                    )
                )
        return records

    def obey(self, decisions: Iterable[Decision]) -> int:
        """Let go of what shall be unloaded, take what is assigned.

        Returns how many decisions there were.
        """
        count = 0
        for decision in decisions:
            count += 1
            cluster = int(decision.cluster.rpartition("-")[2])
            place = cluster * self._in_cluster + self._places[decision.bundle]
            if decision.kind == "unload":
                self.owner[place] = -1
            elif decision.kind == "assign":
                within = int(str(decision.destination).removeprefix("broker-").partition(":")[0])
                self.owner[place] = cluster * self.shape.brokers + within
            else:
                raise RuntimeError(
                    f"this load leads to unloads and assignments only, not to {decision.kind} of "
                    f"{decision.bundle}"
                )
        return count

    def _report(
        self, broker: int, rows: np.ndarray[Any, Any], columns: Mapping[str, list[Any]], hot: bool
    ) -> tuple[bytes, bytes]:
        """`rows`: its bundles. `columns`: what is measured of each."""
        of_cluster = broker // self.shape.brokers * self._in_cluster
        names = [self.names[row - of_cluster] for row in rows.tolist()]
        stats = [
            _Stats(**dict(zip(columns, values, strict=True)))
            for values in zip(*columns.values(), strict=True)
        ]
        totals = {name: sum(values) for name, values in columns.items()}
        name = self.broker_name(broker)
        cpu, memory, direct = self._rng.random(3).tolist()
        fields = self._same | {
            "webServiceUrl": f"http://{name}",
            "pulsarServiceUrl": f"pulsar://{name.partition(':')[0]}:6650",
            "cpu": {"usage": 800.0 * ((0.58 if hot else 0.28) + 0.04 * cpu), "limit": 800.0},
            "memory": {"usage": 1_000.0 + 1_000.0 * memory, "limit": 4_096.0},
            "directMemory": {"usage": float(int(256 + 768 * direct)), "limit": 8_192.0},
            "bandwidthIn": {
                "usage": totals["msg_throughput_in"] * 8 / 1_000,
                "limit": 25_000_000.0,
            },
            "bandwidthOut": {
                "usage": totals["msg_throughput_out"] * 8 / 1_000,
                "limit": 25_000_000.0,
            },
            "msgThroughputIn": totals["msg_throughput_in"],
            "msgThroughputOut": totals["msg_throughput_out"],
            "msgRateIn": totals["msg_rate_in"],
            "msgRateOut": totals["msg_rate_out"],
            "lastUpdate": time.time_ns() // 1_000_000,
            "numTopics": totals["topics"],
            "numBundles": len(names),
            "numConsumers": totals["consumer_count"],
            "numProducers": totals["producer_count"],
            "lastStats": dict(zip(names, stats, strict=True)),
            "bundles": names,
        }
        return f"{self.cluster_name(broker // self.shape.brokers)}/{name}".encode(), _encode(fields)

    def _measure(self, rows: np.ndarray[Any, Any]) -> dict[str, list[Any]]:
        """A new measurement of some bundles, in the order of the reports' fields."""
        changes = [
            np.where(self._is_steady[rows], 1.0, self._rng.uniform(low, high, len(rows)))
            for low, high in ((0.9, 1.1), (0.99, 1.01), (0.999, 1.0))
        ]
        rate_in = self._rate[rows] * changes[0]
        size = self._size[rows] * changes[1]
        readers = self._readers[rows]
        rate_out = rate_in * readers * changes[2]
        columns = {
            "msg_rate_in": rate_in,
            "msg_throughput_in": rate_in * size,
            "msg_rate_out": rate_out,
            "msg_throughput_out": rate_out * size,
            "consumer_count": readers * self._topics[rows],
            "producer_count": self._topics[rows],
            "topics": self._topics[rows],
            "cache_size": np.where(rate_in > 1_000, rate_in * size / 10, 0.0).astype(np.int64),
        }
        return {name: column.tolist() for name, column in columns.items()}
