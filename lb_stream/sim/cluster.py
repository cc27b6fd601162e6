"""A simulated cluster beside a real Kafka: the model, with names and with times since the epoch.

It has no clock and no chance of its own. The time is an argument (ms since the epoch), and
measurement noise follows from seed and time, so the same calls give the same reports. Rates are
messages/s, throughputs bytes/s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lb_stream.core.model.names import parse_bundle
from lb_stream.core.splitting import SplitRejected, cut
from lb_stream.sim.model import BrokerMeasurements, ClusterModel
from lb_stream.sim.scenario.scenario import Floats, Scenario
from lb_stream.sim.workload import small_scenario

NOISE_RATIO = 0.01
"""Standard deviation of a bundle's measured load, relative to its true load."""


@dataclass(frozen=True, slots=True)
class Load:
    """Traffic of a bundle or a broker."""

    rate_in_msgs_per_s: float = 0.0
    rate_out_msgs_per_s: float = 0.0
    throughput_in_bytes_per_s: float = 0.0
    throughput_out_bytes_per_s: float = 0.0

    @property
    def rate_msgs_per_s(self) -> float:
        """Return the message rate, in and out."""
        return self.rate_in_msgs_per_s + self.rate_out_msgs_per_s

    @property
    def throughput_bytes_per_s(self) -> float:
        """Return the throughput, in and out."""
        return self.throughput_in_bytes_per_s + self.throughput_out_bytes_per_s


class _NoisyModel(ClusterModel):
    """The model with noise at any time; a scenario's noise ends with the scenario."""

    def __init__(self, scenario: Scenario, seed: int, noise_ratio: float) -> None:
        super().__init__(scenario)
        self.seed, self.noise_ratio = seed, noise_ratio

    def noise(self, t_s: float) -> tuple[Floats, Floats]:
        """Return the noise of a millisecond: factors on bundles' loads, 1 for brokers' cpu."""
        drawn = np.random.default_rng([self.seed, round(t_s * 1000)]).normal(
            1.0, self.noise_ratio, len(self.names)
        )
        return np.maximum(drawn, 0.0), np.ones(len(self.up))


class SimCluster:
    """All brokers of one cluster. A bundle has one owner or none."""

    def __init__(
        self, scenario: Scenario, start_ms: int, seed: int = 1, noise_ratio: float = NOISE_RATIO
    ) -> None:
        """Begin as the scenario begins. After its end the load stays as it is."""
        self.model = _NoisyModel(scenario, seed, noise_ratio)
        self.start_ms = start_ms
        self.brokers = scenario.brokers.names
        # Broker → when its process started, ms since the epoch.
        self.started_ms = dict.fromkeys(self.brokers, start_ms)
        self._broker_row = {name: row for row, name in enumerate(self.brokers)}
        self._row = {name: row for row, name in enumerate(self.model.names)}
        self._reported: dict[str, tuple[frozenset[str], int]] = dict.fromkeys(
            self.brokers, (frozenset(), 0)
        )

    @property
    def bundles(self) -> tuple[str, ...]:
        """Return all bundles' names, by row."""
        return tuple(self.model.names)

    def row(self, bundle: str) -> int:
        """Return a bundle's row in the model. Raises KeyError."""
        return self._row[bundle]

    def broker_row(self, broker: str) -> int:
        """Return a broker's row in the model. Raises KeyError."""
        return self._broker_row[broker]

    def rows_of(self, broker: str) -> list[int]:
        """Return the rows of a broker's bundles, in the order of their names."""
        rows = np.flatnonzero(self.model.owner == self._broker_row[broker]).tolist()
        return sorted(rows, key=self.model.names.__getitem__)

    def owned(self, broker: str) -> list[str]:
        """Return the names of a broker's bundles, sorted."""
        return [self.model.names[row] for row in self.rows_of(broker)]

    def is_up(self, broker: str) -> bool:
        """Return whether the broker's process runs."""
        return bool(self.model.up[self._broker_row[broker]])

    def take_down(self, broker: str) -> None:
        """End a broker's process. Its bundles become unassigned."""
        self.model.take_down(self._broker_row[broker])

    def bring_up(self, broker: str, now_ms: int) -> None:
        """Start a broker's process again. It serves nothing."""
        self.model.bring_up(self._broker_row[broker], self.elapsed_s(now_ms))
        self.started_ms[broker] = now_ms

    def owners(self) -> dict[str, str | None]:
        """Return bundle → owner; None while the bundle is unassigned."""
        return {
            name: None if row < 0 else self.brokers[row]
            for name, row in zip(self.bundles, self.model.owner.tolist(), strict=True)
        }

    def owns(self, broker: str, bundle: str) -> bool:
        """Return whether the broker serves the bundle."""
        return (
            bundle in self._row
            and int(self.model.owner[self._row[bundle]]) == self._broker_row[broker]
        )

    def release(self, broker: str, bundle: str) -> None:
        """Have a broker give a bundle up. Raises KeyError when it doesn't serve the bundle."""
        if not self.model.release(self._row[bundle], self._broker_row[broker]):
            raise KeyError(bundle)

    def acquire(self, broker: str, bundle: str) -> bool:
        """Have a broker serve a bundle from now on. False: the bundle has an owner.

        A bundle of a new namespace is added; it has no topic and no traffic. Raises KeyError for an
        unknown bundle that overlaps known ones.
        """
        if bundle not in self._row:
            self._add_idle(bundle)
        return self.model.acquire(self._row[bundle], self._broker_row[broker])

    def _add_idle(self, bundle: str) -> None:
        new = parse_bundle(bundle)
        same = [
            parsed for parsed in map(parse_bundle, self._row) if parsed.namespace == new.namespace
        ]
        if any(old.lower < new.upper and new.lower < old.upper for old in same):
            raise KeyError(bundle)
        self.model.add_idle(bundle)
        self._row = self._row | {bundle: len(self._row)}

    def split(self, broker: str, bundle: str, boundaries: Sequence[int] = ()) -> None:
        """Replace a broker's bundle by its children: cut at the boundaries, or into halves.

        Each child gets a share of the load, topics and clients in proportion to its range. Raises
        KeyError for a bundle that the broker doesn't serve, ValueError for boundaries that are not
        strictly inside it.
        """
        parent = parse_bundle(bundle)
        found = cut(parent, boundaries or (parent.lower + (parent.upper - parent.lower) // 2,))
        if isinstance(found, SplitRejected):
            raise ValueError(found.detail)
        if not self.owns(broker, bundle):
            raise KeyError(bundle)
        edges = np.array([parent.lower, *found.boundaries, parent.upper])
        self.model.replace(
            self._row[bundle],
            found.children,
            (np.diff(edges) / (parent.upper - parent.lower)).tolist(),
        )
        self._row = {name: row for row, name in enumerate(self.model.names)}

    def merge(self, broker: str, bundles: Sequence[str], merged: str) -> None:
        """Replace two neighbours at a broker by one bundle, which carries what both carried.

        Raises KeyError for a bundle that the broker doesn't serve, ValueError for bundles that are
        not the two halves of the merged one.
        """
        (namespace, lower, end), (other, begin, upper) = sorted(map(parse_bundle, bundles))
        if (namespace, end) != (other, begin) or parse_bundle(merged) != (namespace, lower, upper):
            raise ValueError(f"{' and '.join(bundles)} are not the two halves of {merged}")
        for bundle in bundles:
            if not self.owns(broker, bundle):
                raise KeyError(bundle)
        self.model.merge(self._row[bundles[0]], self._row[bundles[1]], merged)
        self._row = {name: row for row, name in enumerate(self.model.names)}

    def bundle_load(self, bundle: str, now_ms: int) -> Load:
        """Return a bundle's true traffic."""
        return Load(*self.model.loads(self.elapsed_s(now_ms))[:, self._row[bundle]].tolist())

    def loads(self, now_ms: int) -> dict[str, Load]:
        """Return broker → its true traffic."""
        sums = self.model.sums(self.model.loads(self.elapsed_s(now_ms))).T.tolist()
        return {name: Load(*own) for name, own in zip(self.brokers, sums, strict=True)}

    def measure(self, now_ms: int) -> BrokerMeasurements:
        """Return what all brokers measure."""
        return self.model.measure(self.elapsed_s(now_ms))

    def elapsed_s(self, now_ms: int) -> float:
        """Return the seconds since the start, 0 or more."""
        return max(0.0, (now_ms - self.start_ms) / 1000)

    def note_report(self, broker: str, now_ms: int) -> tuple[list[str], list[str], int]:
        """Note a broker's report. Returns (bundles gained, bundles lost, the report's time in ms).

        Gains and losses are those since the broker's last report. The time never goes back.
        """
        before, reported_ms = self._reported[broker]
        owned = frozenset(self.owned(broker))
        self._reported[broker] = owned, max(now_ms, reported_ms)
        return sorted(owned - before), sorted(before - owned), max(now_ms, reported_ms)


def max_over_mean(throughputs: Iterable[float]) -> float:
    """Return max ÷ mean throughput of brokers; 1 when all are equal or there is no traffic."""
    values = list(throughputs)
    total = sum(values)
    return max(values) * len(values) / total if total > 0 else 1.0


def build_cluster(
    brokers: int = 6,
    bundles: int = 96,
    workload_name: str = "hot_spot",
    seed: int = 1,
    start_ms: int = 0,
    at_s: float = 0.0,
) -> SimCluster:
    """Build a small cluster; the arguments are those of `workload.small_scenario`."""
    return SimCluster(small_scenario(brokers, bundles, workload_name, seed, at_s), start_ms, seed)
