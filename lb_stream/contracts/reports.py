"""What brokers send on `lb-load-reports`: load reports in both documented JSON forms, heartbeats,
acknowledgements, goodbyes.

Units: rates messages/s, throughputs bytes/s, times ms since the epoch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from lb_stream.contracts.base import Count, Millis, NonNegative, OwnRecord, PulsarRecord, Signed
from lb_stream.contracts.keys import KeyModel, key


class ResourceUsage(PulsarRecord):
    """One resource: cpu in percent of a core, memories in MiB, bandwidths in kbit/s.

    Negative means "not known" and counts as it stands.
    """

    usage: Signed = 0.0
    limit: Signed = 0.0


class BundleStats(PulsarRecord):
    """Latest statistics of one bundle."""

    msg_rate_in: NonNegative = 0.0
    msg_throughput_in: NonNegative = 0.0
    msg_rate_out: NonNegative = 0.0
    msg_throughput_out: NonNegative = 0.0
    consumer_count: Count = 0
    producer_count: Count = 0
    topics: Count = 0
    cache_size: Count = 0


class _BrokerIdentity(PulsarRecord):
    web_service_url: str | None = None
    web_service_url_tls: str | None = None
    pulsar_service_url: str | None = None
    pulsar_service_url_tls: str | None = None
    persistent_topics_enabled: bool = True
    non_persistent_topics_enabled: bool = True
    broker_version_string: str | None = None
    protocols: dict[str, Any] = {}
    advertised_listeners: dict[str, Any] = {}
    load_manager_class_name: str | None = None
    start_timestamp: Millis = 0


class ModularLoadReport(_BrokerIdentity):
    """The modular manager's `LocalBrokerData`: resources at the top level, full statistics of every
    owned bundle."""

    cpu: ResourceUsage = ResourceUsage()
    memory: ResourceUsage = ResourceUsage()
    direct_memory: ResourceUsage = ResourceUsage()
    bandwidth_in: ResourceUsage = ResourceUsage()
    bandwidth_out: ResourceUsage = ResourceUsage()
    msg_throughput_in: NonNegative = 0.0
    msg_throughput_out: NonNegative = 0.0
    msg_rate_in: NonNegative = 0.0
    msg_rate_out: NonNegative = 0.0
    last_update: Millis = 0
    last_stats: dict[str, BundleStats] = {}
    num_topics: Count = 0
    num_bundles: Count = 0
    num_consumers: Count = 0
    num_producers: Count = 0
    bundles: list[str] = []
    last_bundle_gains: list[str] = []
    last_bundle_losses: list[str] = []
    max_resource_usage: FiniteFloat | None = Field(None, description="accepted and recomputed")
    load_report_type: Literal["LocalBrokerData"] = "LocalBrokerData"


_UNSET = ResourceUsage(usage=-1.0, limit=-1.0)


class SystemResourceUsage(PulsarRecord):
    """The five resources of a simple report; -1/-1 is "not measured yet" and reads as 0 %."""

    cpu: ResourceUsage = _UNSET
    memory: ResourceUsage = _UNSET
    direct_memory: ResourceUsage = _UNSET
    bandwidth_in: ResourceUsage = _UNSET
    bandwidth_out: ResourceUsage = _UNSET


class SimpleLoadReport(_BrokerIdentity):
    """The simple manager's `LoadReport`: resources nested in `systemResourceUsage`, statistics in
    `bundleStats`."""

    name: str | None = None
    timestamp: Millis = 0
    under_loaded: bool = False
    over_loaded: bool = False
    system_resource_usage: SystemResourceUsage = SystemResourceUsage()
    bundle_stats: dict[str, BundleStats] = {}
    bundle_gains: list[str] = []
    bundle_losses: list[str] = []
    msg_rate_in: NonNegative = 0.0
    msg_rate_out: NonNegative = 0.0
    num_topics: Count = 0
    num_consumers: Count = 0
    num_producers: Count = 0
    num_bundles: Count = 0
    allocated_cpu: FiniteFloat = Field(0.0, alias="allocatedCPU")
    allocated_memory: FiniteFloat = 0.0
    allocated_bandwidth_in: FiniteFloat = 0.0
    allocated_bandwidth_out: FiniteFloat = 0.0
    allocated_msg_rate_in: FiniteFloat = 0.0
    allocated_msg_rate_out: FiniteFloat = 0.0
    pre_allocated_cpu: FiniteFloat = Field(0.0, alias="preAllocatedCPU")
    pre_allocated_memory: FiniteFloat = 0.0
    pre_allocated_bandwidth_in: FiniteFloat = 0.0
    pre_allocated_bandwidth_out: FiniteFloat = 0.0
    pre_allocated_msg_rate_in: FiniteFloat = 0.0
    pre_allocated_msg_rate_out: FiniteFloat = 0.0
    load_report_type: Literal["LoadReport"] = "LoadReport"


class BrokerLoadReport(PulsarRecord):
    """The extensible manager's `BrokerLoadData`: a broker's resources and its smoothed load.

    It names no bundles, unless `bundles` does.
    """

    cpu: ResourceUsage = ResourceUsage()
    memory: ResourceUsage = ResourceUsage()
    direct_memory: ResourceUsage = ResourceUsage()
    bandwidth_in: ResourceUsage = ResourceUsage()
    bandwidth_out: ResourceUsage = ResourceUsage()
    msg_throughput_in: NonNegative = 0.0
    msg_throughput_out: NonNegative = 0.0
    msg_rate_in: NonNegative = 0.0
    msg_rate_out: NonNegative = 0.0
    bundle_count: Count = 0
    topics: Count = 0
    max_resource_usage: FiniteFloat = Field(
        1.0, description="ratio, unweighted, four resources; 1 before the first measurement"
    )
    weighted_max_ema: Signed = Field(
        alias="weightedMaxEMA", description="smoothed ratio, five weighted resources"
    )
    msg_throughput_ema: NonNegative = Field(
        0.0, alias="msgThroughputEMA", description="smoothed bytes/s"
    )
    updated_at: Millis = 0
    reported_at: Millis = 0
    start_timestamp: Millis = Field(0, description="this project's own field")
    bundles: list[str] | None = Field(
        None,
        description="this project's own field: all bundles that are served; Pulsar's brokers don't "
        "say",
    )


class TopBundle(PulsarRecord):
    """One of a broker's heaviest bundles."""

    bundle_name: str
    stats: BundleStats = BundleStats()


class TopBundlesReport(PulsarRecord):
    """The extensible manager's `TopBundlesLoadData`: the heaviest bundles, from the lowest to the
    highest. Others are served as well."""

    top_bundles_load_data: list[TopBundle]


class Heartbeat(OwnRecord):
    """Header `kind` = heartbeat: the broker lives.

    What counts is the record's append time; `sent_ms` is for people.
    """

    sent_ms: Millis = 0
    balances: list[Annotated[str, Field(max_length=100)]] = Field(
        [],
        max_length=10,
        description="settings by which the broker's own cluster balances beside the balancer",
    )
    merges: bool = Field(
        False,
        description="the broker obeys decisions to merge bundles; nobody else is sent any",
        exclude_if=lambda merges: not merges,
    )


class Ack(OwnRecord):
    """Header `kind` = ack: what an agent did with a decision.

    Sent before the report that shows it.
    """

    decision_id: str
    outcome: Literal["released", "acquired", "split", "merged", "refused", "failed"]
    reason: str = ""
    bundle: str | None = Field(
        None,
        description="who owns it changes with this very record (released, acquired); unset: with "
        "the report that shows it",
    )
    sent_ms: Millis = 0


class Goodbye(OwnRecord):
    """Header `kind` = goodbye: the broker leaves on purpose; its bundles need new owners now."""

    sent_ms: Millis = 0


SplitReason = Literal["Topics", "Sessions", "MsgRate", "Bandwidth"]
"""Pulsar's words for the limit that a bundle is above."""


class SplitAsk(OwnRecord):
    """Header `kind` = ask: an extensible manager's broker has found a bundle of its own too large
    in several looks in a row."""

    bundle: str
    reason: SplitReason
    boundaries: list[int] = Field(
        description="where its broker, which knows the topics, would cut it"
    )
    algorithm: str = Field(description="which found them")
    saw: Signed
    limit: Signed
    sent_ms: Millis = 0


REPORT_KINDS: dict[str, type[ModularLoadReport] | type[SimpleLoadReport]] = {
    "modular": ModularLoadReport,
    "simple": SimpleLoadReport,
}
LOAD_DATA_KINDS: dict[str, type[BrokerLoadReport] | type[TopBundlesReport]] = {
    "broker_load": BrokerLoadReport,
    "top_bundles": TopBundlesReport,
}
"""What the extensible manager's brokers write, in two records."""
AGENT_KINDS: dict[str, type[Heartbeat] | type[Ack] | type[Goodbye] | type[SplitAsk]] = {
    "heartbeat": Heartbeat,
    "ack": Ack,
    "goodbye": Goodbye,
    "ask": SplitAsk,
}


def report_kind(fields: dict[str, Any]) -> str | None:
    """Tell which load report a JSON object is, by the first rule that matches.

    Returns one of modular, simple, top_bundles, broker_load, ownership_event, or None when nothing
    matches.
    """
    declared = fields.get("loadReportType")
    rules = (
        ("topBundlesLoadData" in fields, "top_bundles"),
        ("weightedMaxEMA" in fields, "broker_load"),
        ("state" in fields and "versionId" in fields, "ownership_event"),
        (
            declared is not None,
            {"LocalBrokerData": "modular", "LoadReport": "simple"}.get(str(declared)),
        ),
        ("systemResourceUsage" in fields, "simple"),
        ("lastStats" in fields or "cpu" in fields, "modular"),
    )
    return next((kind for matches, kind in rules if matches), None)


class ReportConfig(KeyModel):
    """When a broker's agent writes a report."""

    report_min_interval_ms: int = key(
        5_000,
        "How often the agent checks whether a report is needed.",
        unit="ms",
        pulsar="loadBalancerReportUpdateMinIntervalMillis",
        dynamic=False,
        ge=1,
    )
    report_max_interval_ms: int = key(
        900_000,
        "A report is written after this long even if nothing has changed.",
        unit="ms",
        pulsar="loadBalancerReportUpdateMaxIntervalMinutes",
        factor=60_000,
        ge=0,
    )
    report_threshold_percent: float = key(
        10,
        "A report is written when a figure has changed by more than this: percent of the old "
        "value, for usage percentage points.",
        unit="%",
        pulsar="loadBalancerReportUpdateThresholdPercentage",
        dynamic=False,
        ge=0,
    )
