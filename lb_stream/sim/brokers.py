"""An agent's adapter for one simulated broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from lb_stream.agent.adapter import BrokerError, Refused
from lb_stream.agent.load_data import BrokerLoad
from lb_stream.contracts.reports import BundleStats
from lb_stream.core.model.names import parse_bundle
from lb_stream.core.splitting import Topics
from lb_stream.sim.cluster import SimCluster
from lb_stream.sim.reports import ReportForm, ReportJson, bundle_stats, make_load_data, make_report


def wall_clock_ms() -> int:
    """Return the time now, ms since the epoch."""
    return time.time_ns() // 1_000_000


class SimBroker:
    """Adapter for one broker of a `SimCluster`; see `lb_stream.agent.BrokerAdapter`."""

    def __init__(
        self,
        cluster: SimCluster,
        name: str,
        form: ReportForm = "modular",
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """Adapt broker `name`. `clock` returns the time, ms since the epoch."""
        self._cluster, self._name, self._form, self._clock = cluster, name, form, clock
        self._load = BrokerLoad()
        self._is_to_run = True

    @property
    def name(self) -> str:
        """Return the broker's name, host:port."""
        return self._name

    def stop(self) -> None:
        """End the broker's process: its next report is none. It may be called by any thread."""
        self._is_to_run = False

    def start(self) -> None:
        """Start the broker's process again, with its next report. It may be called by any thread."""
        self._is_to_run = True

    @property
    def is_up(self) -> bool:
        """Whether the broker's process runs; one that is to stop does so until its next report."""
        return self._cluster.is_up(self._name)

    def alive(self) -> bool:
        """Return whether the broker answers: whether it runs, and is to run."""
        return self._is_to_run and self.is_up

    def report(self) -> ReportJson | list[ReportJson]:
        """Build the load report now; for the extensible manager, both of its records.

        Raises BrokerError while the broker is stopped.
        """
        self._follow_process()
        if self._form == "extensible":
            records, self._load = make_load_data(
                self._cluster, self._name, self._clock(), self._load
            )
            return records
        return make_report(self._cluster, self._name, self._clock(), self._form)

    def _follow_process(self) -> None:
        """Stop or start the process. The agent's thread does this, as it does all other changes."""
        if not self._is_to_run:
            if self.is_up:
                self._cluster.take_down(self._name)
            raise BrokerError("it is stopped")
        if not self.is_up:
            self._load = BrokerLoad()
            self._cluster.bring_up(self._name, self._clock())

    def stats(self) -> dict[str, BundleStats]:
        """Return the latest statistics of every bundle that is served here."""
        return bundle_stats(self._cluster, self._name, self._clock())

    def topics(self, bundle: str) -> Topics:
        """Return a bundle's topics: evenly spread over its range, with equal traffic."""
        _, lower, upper = parse_bundle(bundle)
        count = int(self._cluster.model.topics[self._cluster.row(bundle)])
        load = self._cluster.bundle_load(bundle, self._clock())
        hashes = lower + (upper - lower) * (2 * np.arange(count, dtype=np.int64) + 1) // (
            2 * max(count, 1)
        )
        rate = np.full(count, load.rate_msgs_per_s / max(count, 1))
        throughput = np.full(count, load.throughput_bytes_per_s / max(count, 1))
        return Topics(hashes, rate, throughput, np.ones(count, np.bool_))

    def owns(self, bundle: str) -> bool:
        """Return whether the bundle is served here."""
        return self._cluster.owns(self._name, bundle)

    def release(self, bundle: str) -> None:
        """Stop serving a bundle. Raises KeyError when it is not served here."""
        self._cluster.release(self._name, bundle)

    def acquire(self, bundle: str) -> None:
        """Serve a bundle.

        Raises KeyError when the cluster lacks the bundle, Refused when another broker serves it, or
        this one is stopped.
        """
        if not self.alive():
            raise Refused(f"{self._name} is stopped")
        if not self._cluster.acquire(self._name, bundle) and not self.owns(bundle):
            raise Refused(f"{bundle} is served by another broker")

    def give_up(self, bundle: str) -> None:
        """Stop serving a bundle that another broker owns now, or that was split or merged.

        Raises KeyError when it is not served here.
        """
        self._cluster.release(self._name, bundle)

    def split(
        self,
        bundle: str,
        boundaries: Sequence[int],
        _algorithm: str,
        _unload_children: bool = False,
    ) -> None:
        """Serve a bundle's children instead of it; without boundaries its halves.

        Raises KeyError for a bundle that is not served here, ValueError for wrong boundaries.
        """
        self._cluster.split(self._name, bundle, boundaries)

    def merge(self, bundles: Sequence[str], merged: str) -> None:
        """Serve one bundle instead of these neighbours.

        Raises KeyError for a bundle that is not served here, ValueError for the wrong neighbours.
        """
        self._cluster.merge(self._name, bundles, merged)
