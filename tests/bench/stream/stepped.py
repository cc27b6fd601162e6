"""A job that takes one whole generation of reports in each batch, when it is told to."""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lb_stream.access.signing_keys import AllowedSigner, Signer
from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.settings import (
    KafkaSettings,
    SecuritySettings,
    Settings,
    StreamSettings,
)
from tests.bench.stream.driver import Batch, Driver, wait_for_boundary
from tests.bench.stream.feed import Feed, Offsets, ReportRecord

MOST_TRIES = 5
LONGEST_END_S = 300

BALANCER: dict[str, Any] = {
    "dry_run": False,
    # By usage: by message rates a hot broker from which much has moved is soon the least loaded
    # one, and keeps what it has.
    "placement_strategy": "LeastResourceUsageWithWeight",
    "shedding_interval_ms": 0,  # in every batch with a new report
    "shedding_grace_period_ms": 0,
    "history_ratio": 0.0,  # no smoothing: who is hot is unloaded from at once
    "min_throughput_mb": 0.0,
}
"""A balancer that decides whenever there is something to decide."""

ALL_RECORDS = 1 << 30
"""Small clusters' first ownership records come in the first batch, which does not count."""


def progress(text: str) -> None:
    """One line for whoever waits."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Place:
    """Where benchmarks run: a Kafka, and a folder.

    `keeps`: whether the files of a job stay when it ends; a job of a million bundles leaves 4 GB.
    """

    bootstrap: str
    folder: Path
    partitions: int
    keeps: bool = False

    def end(self, name: str) -> None:
        """Remove the files of a job that has ended, unless they are kept."""
        if not self.keeps:
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def settings(
        self, feed: Feed, trigger_interval_ms: int = 0, security: SecuritySettings | None = None
    ) -> Settings:
        """A job on one feed. Its clock stands still: ticks are what the benchmark sends."""
        return Settings(
            security=security or SecuritySettings(),
            kafka=KafkaSettings(bootstrap_servers=self.bootstrap),
            topics=feed.topics,
            stream=StreamSettings(
                pipeline_id=feed.name,
                tables=str(self.folder / feed.name / "tables"),
                checkpoint=str(self.folder / feed.name / "checkpoint"),
                tick_interval_ms=0,
                trigger_interval_ms=trigger_interval_ms,
                max_offsets_per_trigger=0,
                max_first_records=ALL_RECORDS,
            ),
            balancer=BALANCER,
        )


def _require_signed_reports(folder: Path) -> tuple[Signer, SecuritySettings]:
    """A new key that signs for every broker, and the settings of a job that requires it."""
    private_key = Ed25519PrivateKey.generate()
    line = AllowedSigner("*/*", private_key.public_key().public_bytes_raw())
    signers = folder / "signers"
    signers.write_text(line.format_line() + "\n")
    return Signer(private_key), SecuritySettings(signers=str(signers), reports="signed")


class Reporting(Protocol):
    """Brokers that report, and do what they are told."""

    @property
    def cluster_names(self) -> list[str]:
        """Of all their clusters."""

    def generation(self) -> Sequence[tuple[bytes, bytes] | ReportRecord]:
        """Records with a new report of every broker."""

    def obey(self, decisions: Iterable[Decision]) -> int:
        """Do what is decided. Returns how many decisions there were."""


class Stepped:
    """Fleet, feed and job.

    Batches begin at multiples of an interval that is long enough for a whole generation to be
    appended in it.

    What reads the topic beside the job does so while the job has nothing to do.
    """

    def __init__(
        self,
        place: Place,
        name: str,
        fleet: Reporting,
        view_only: bool,
        cores: int = 0,
        signed: bool = False,
    ) -> None:
        """`cores`: of Spark's executors; 0: as many as the job has by itself. `signed`: all reports
        are signed, and the job requires that."""
        self.name, self._view_only = f"{name} {fleet}", view_only
        self._end = partial(place.end, name)
        self.fleet = fleet
        signer, security = _require_signed_reports(place.folder) if signed else (None, None)
        self.feed = Feed(place.bootstrap, name, place.partitions, signer)
        self.begin: Offsets = self.feed.ends()
        records = self.fleet.generation()
        self.reports, self.bytes = len(records), sum(len(record[1]) for record in records)
        took_s = self.feed.send(records)
        self.end: Offsets = self.feed.ends()
        self._interval_ms = 1_000 * max(1, math.ceil(3 * took_s))
        self._needed_ms = 2_000 * took_s  # of an interval, to append a generation
        progress(
            f"{self.name}: {self.reports} reports, {self.bytes / 1e6:.0f} MB, appended in "
            f"{took_s:.1f} s"
        )
        self._folder, self._settings = (
            place.folder / name,
            place.settings(self.feed, self._interval_ms, security),
        )
        self.tables = self._settings.stream.tables
        self.driver = Driver(
            self._folder, self._settings, self.fleet.cluster_names if view_only else None, cores
        )
        try:
            first = self.driver.read(self.reports)
            self.first_s = sum(batch.seconds for batch in first)
            self.decided = self._finish(first)
        except BaseException:
            self.close()
            raise

    def step(self) -> float:
        """Seconds of the batch that read one new generation.

        Raises RuntimeError when it is never read in one piece.
        """
        for _ in range(MOST_TRIES):
            records = self.fleet.generation()
            wait_for_boundary(self._interval_ms, self._needed_ms)
            self.begin = self.end
            self.feed.send(records)
            self.end = self.feed.ends()
            batches = self.driver.read(len(records))
            self.decided = self._finish(batches)
            if len(batches) == 1:
                return batches[0].seconds
            progress(f"{self.name}: read in {len(batches)} pieces, once more")
        raise RuntimeError(
            f"{self.name}: appending a generation takes longer than the trigger's "
            f"{self._interval_ms} ms; is the machine busy?"
        )

    def tick(self) -> float:
        """Seconds of a batch that read nothing but a tick."""
        wait_for_boundary(self._interval_ms, min(self._needed_ms, 500.0))
        self.feed.tick()
        return sum(batch.seconds for batch in self.driver.read(1))

    def go_on(self, cores: int) -> None:
        """End the job, and start it again where it was, with so many cores for its executors."""
        self.driver.stop(LONGEST_END_S)
        self.driver = Driver(self._folder / f"again-{cores}", self._settings, cores=cores)

    def _finish(self, batches: list[Batch]) -> int:
        decided = 0 if self._view_only else self.fleet.obey(self.feed.decisions())
        for batch in batches:
            progress(
                f"{self.name}: batch {batch.number} {batch}"
                + ("" if self._view_only else f", {decided} decisions")
            )
        return decided

    def close(self) -> None:
        """End the job."""
        self.driver.stop()
        self.feed.close()
        self._end()
