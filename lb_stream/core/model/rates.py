"""The four values of a bundle that are averaged, and the settings of their averages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lb_stream.core.model.releases import Release

RATE_COLUMNS = (
    "throughput_in_bytes_per_s",
    "throughput_out_bytes_per_s",
    "rate_in_msgs_per_s",
    "rate_out_msgs_per_s",
)
"""The four values that are averaged, in the reference's order."""

DEFAULT_RATES = (50_000.0, 50_000.0, 50.0, 50.0)
"""A bundle's averages before its first sample, in the order of RATE_COLUMNS: 50,000 bytes/s and
50 msg/s each way."""


@dataclass(frozen=True, slots=True)
class FoldConfig:
    """The settings of the fold."""

    short_samples: int = 10  # samples of a short-term average
    long_samples: int = 1000  # samples of a long-term average
    bundle_retention_ms: int = 300_000  # of bundles that no report names
    broker_retention_ms: int = 86_400_000  # of silent brokers
    # per_report: a new report is a sample of each bundle that it names. reference: a batch with a
    # new report of any broker is a sample of each bundle in the last report of every broker, as in
    # Pulsar.
    sample_mode: Literal["per_report", "reference"] = "per_report"
    # Whose names show which bundles are system bundles. Each bundle is asked once: as it appears.
    release: Release = "any"
