"""Records of `lb-load-reports`: load reports, heartbeats, acknowledgements, goodbyes.

Units: rates messages/s, throughputs bytes/s, times ms since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat, WithJsonSchema

from lb_stream.contracts.base import Count, Millis, NonNegative, OwnRecord, PulsarRecord, Signed
from lb_stream.contracts.keys import KeyModel, key


class ResourceUsage(PulsarRecord):
    """One resource: cpu in percent of a core, memories in MiB, bandwidths in kbit/s.

    A negative value means unknown, and counts as it is.
    """

    usage: Signed = 0.0
    limit: Signed = 0.0


class BundleStats(PulsarRecord):
    """The latest statistics of one bundle."""

    msg_rate_in: NonNegative = 0.0
    msg_throughput_in: NonNegative = 0.0
    msg_rate_out: NonNegative = 0.0
    msg_throughput_out: NonNegative = 0.0
    consumer_count: Count = 0
    producer_count: Count = 0
    topics: Count = 0
    cache_size: Count = 0


TopicSharesField = Annotated[
    object,
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "type": "object",
                    "additionalProperties": {
                        "type": "array",
                        "items": {
                            "type": "array",
                            "prefixItems": [
                                {"type": "integer", "minimum": 0, "maximum": 0xFFFFFFFF},
                                {"type": "number", "minimum": 0},
                            ],
                            "minItems": 2,
                            "maxItems": 2,
                        },
                    },
                },
                {"type": "null"},
            ]
        }
    ),
]
"""A field that is checked bundle by bundle when it is read: a wrong one costs no report."""


def _topic_shares() -> Any:
    """Return the field with shares of topics."""
    return Field(
        None,
        description="this project's own field: bundle → [hash, share] of its topics, the share as "
        "part of the bundle's load; of the broker's heaviest bundles only",
    )


class _BrokerIdentity(PulsarRecord):
    """The fields of a load report that identify the broker and its process."""

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
    """The modular manager's `LocalBrokerData`: resources, and statistics of every owned bundle."""

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
    max_resource_usage: FiniteFloat | None = Field(None, description="ignored: it is computed anew")
    topic_shares: TopicSharesField = _topic_shares()
    load_report_type: Literal["LocalBrokerData"] = "LocalBrokerData"


_UNSET = ResourceUsage(usage=-1.0, limit=-1.0)


class SystemResourceUsage(PulsarRecord):
    """The five resources of a simple report. Usage and limit -1 mean not measured yet: 0 %."""

    cpu: ResourceUsage = _UNSET
    memory: ResourceUsage = _UNSET
    direct_memory: ResourceUsage = _UNSET
    bandwidth_in: ResourceUsage = _UNSET
    bandwidth_out: ResourceUsage = _UNSET


class SimpleLoadReport(_BrokerIdentity):
    """The simple manager's `LoadReport`: `systemResourceUsage`, and statistics in `bundleStats`."""

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
    topic_shares: TopicSharesField = _topic_shares()
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
    broker_version_string: str | None = Field(
        None, description="this project's own field: as modular brokers report it, such as 5.0.1"
    )
    bundles: list[str] | None = Field(
        None,
        description="this project's own field: all bundles that the broker serves; Pulsar's "
        "brokers leave it out",
    )
    topic_shares: TopicSharesField = _topic_shares()


class TopBundle(PulsarRecord):
    """One of a broker's busiest bundles."""

    bundle_name: str
    stats: BundleStats = BundleStats()


class TopBundlesReport(PulsarRecord):
    """The extensible manager's `TopBundlesLoadData`: the busiest bundles, the busiest last."""

    top_bundles_load_data: list[TopBundle]


class Heartbeat(OwnRecord):
    """Header `kind` = heartbeat: the broker is alive.

    The record's append time counts; `sent_ms` is for people.
    """

    sent_ms: Millis = 0
    balances: (
        Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=10)] | None
    ) = Field(
        [],
        description="settings by which the broker's own cluster balances too; null: not known",
    )
    differing: list[Annotated[str, Field(max_length=100)]] = Field(
        [],
        max_length=100,
        description="Pulsar's keys that have other values in the broker than its agent was given",
        exclude_if=lambda keys: not keys,
    )
    merges: bool = Field(
        False,
        description="whether the broker can merge bundles; only such brokers get merges",
        exclude_if=lambda merges: not merges,
    )


class Ack(OwnRecord):
    """Header `kind` = ack: what an agent did about a decision.

    It is sent before the report that shows the effect.
    """

    decision_id: str
    outcome: Literal["released", "acquired", "split", "merged", "refused", "failed"]
    reason: str = Field(
        "",
        description="why it was refused or has failed; with released: the detour that the bundle "
        "made to its destination, which the decision's outcome repeats",
    )
    bundle: str | None = Field(
        None,
        description="the bundle whose owner changes with this record (released, acquired); null: "
        "it changes with the report that shows it",
    )
    sent_ms: Millis = 0


class Goodbye(OwnRecord):
    """Header `kind` = goodbye: the broker leaves on purpose; its bundles need owners at once."""

    sent_ms: Millis = 0


SplitReason = Literal["Topics", "Sessions", "MsgRate", "Bandwidth"]
"""Pulsar's name of the limit that a bundle exceeds."""


class SplitAsk(OwnRecord):
    """Header `kind` = ask: a broker of the extensible manager asks for a split of its bundle.

    It has found the bundle too large several times in a row.
    """

    bundle: str
    reason: SplitReason
    boundaries: list[int] = Field(description="hashes at which to cut it, found among its topics")
    algorithm: str = Field(description="the algorithm that found the boundaries")
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
"""Kind of record of the extensible manager's brokers → its model."""
AGENT_KINDS: dict[str, type[Heartbeat] | type[Ack] | type[Goodbye] | type[SplitAsk]] = {
    "heartbeat": Heartbeat,
    "ack": Ack,
    "goodbye": Goodbye,
    "ask": SplitAsk,
}


def find_report_kind(fields: Mapping[str, object]) -> str | None:
    """Find the kind of load report that a JSON object is; None: it is none.

    The first rule that matches gives it: top_bundles, broker_load, ownership_event, modular or
    simple.
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
    """When a broker's agent sends a load report."""

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
        "A report is sent after this long even if nothing has changed.",
        unit="ms",
        pulsar="loadBalancerReportUpdateMaxIntervalMinutes",
        factor=60_000,
        ge=0,
    )
    report_threshold_percent: float = key(
        10,
        "A report is sent when a figure has changed by more than this: percent of the old "
        "value, for usage percentage points.",
        unit="%",
        pulsar="loadBalancerReportUpdateThresholdPercentage",
        dynamic=False,
        ge=0,
    )
    report_columns_bundles: int = key(
        200,
        "A report of at least this many bundles is sent as columns, once the job has said that it "
        "reads them. 0: all reports are JSON.",
        unit="bundles",
        dynamic=False,
        ge=0,
    )
