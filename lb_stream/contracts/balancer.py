"""The balancer's own settings, one set for each cluster.

Strategies add theirs beside their code (`core/shedding`, `core/placement`).

Every key: docs/configuration.md.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from lb_stream.contracts.keys import KeyModel, key, split_text

MANAGER_CLASSES = {
    "ModularLoadManagerImpl": "modular",
    "SimpleLoadManagerImpl": "simple",
    "ExtensibleLoadManagerImpl": "extensible",
}
"""Simple name of a load manager's class → our name of that manager."""


def _short_name(value: Any) -> Any:
    return MANAGER_CLASSES.get(value.rpartition(".")[2], value) if isinstance(value, str) else value


def _split_at_semicolons(value: Any) -> Any:
    return (
        tuple(text.strip() for text in value.split(";") if text.strip())
        if isinstance(value, str)
        else value
    )


Texts = Annotated[tuple[str, ...], BeforeValidator(_split_at_semicolons)]


def _windows() -> Any:
    return key(
        (),
        "balancing moves bundles only while one of these is open: cron, length, time zone, as '0 "
        "22 * * Mon-Fri 7h Europe/Berlin'; "
        "a list, or text with semicolons between; none: always",
    )


def _freezes() -> Any:
    return key(
        (),
        "balancing moves nothing from begin to end: begin, end, time zone, why, as '2026-12-20 "
        "2027-01-02 UTC holidays'",
    )


def _freeze() -> Any:
    return key("", "why balancing moves nothing until further notice; empty: it may")


class BalancerConfig(KeyModel):
    """When rounds happen, what a broker's usage is, and how far a round may go."""

    profile: Literal["default", "pulsar-4.0", "documented"] = key(
        "default",
        "whose behaviour: Pulsar 4.0's without what harms its operators, Pulsar 4.0's to the "
        "letter, or what its documents say",
    )
    load_manager: Annotated[
        Literal["modular", "simple", "extensible"], BeforeValidator(_short_name)
    ] = key(
        "modular",
        "which of Pulsar's load managers to be; the short name or Pulsar's class name",
        pulsar="loadManagerClassName",
    )
    dynamic_bad_manager: Literal["reject", "fallback"] = key(
        "reject",
        "a command that names an unknown load manager or shedder is refused, or leads to the "
        "simple manager",
    )
    enabled: bool = key(
        True,
        "shed and split by itself; else orders are obeyed and bundles without an owner get one, no "
        "more",
        pulsar="loadBalancerEnabled",
        dynamic=False,
    )
    mode: Literal["observe", "approve", "act"] = key(
        "observe",
        "what becomes of decisions: logged only (a dry run), or those that balancing wants wait "
        "for an operator's approval, or "
        "published; `dry_run` true and false are observe and act",
    )
    proposal_expires_ms: int = key(
        1_800_000, "how long a proposal waits for approval", unit="ms", ge=1_000
    )
    max_proposals: int = key(100, "proposals that wait for approval at one time", ge=1, le=1_000)
    auto_approve: Texts = key(
        (),
        "what needs nobody's approval: rules of kind, reason, max_mb, hours, zone and per_hour, as "
        "'kind=move max_mb=5 per_hour=20'; "
        "a list, or text with semicolons between",
    )
    shedding_enabled: bool = key(
        True, "unload bundles from hot brokers", pulsar="loadBalancerSheddingEnabled"
    )
    shedding_interval_ms: int = key(
        60_000,
        "least time between shedding passes; 0: in every batch with a new report",
        unit="ms",
        pulsar="loadBalancerSheddingIntervalMinutes",
        factor=60_000,
        ge=0,
    )
    shedding_grace_period_ms: int = key(
        1_800_000,
        "a bundle that was unloaded is left alone for this long",
        unit="ms",
        pulsar="loadBalancerSheddingGracePeriodMinutes",
        factor=60_000,
        ge=0,
    )
    shedding_excluded_namespaces: Annotated[tuple[str, ...], BeforeValidator(split_text)] = key(
        (),
        "namespaces that are never shed from: a list, or text with commas between",
        pulsar="loadBalancerSheddingExcludedNamespaces",
    )
    shedding_strategy: str = key(
        "ThresholdShedder",
        "which shedder; the simple name or Pulsar's class name",
        pulsar="loadBalancerLoadSheddingStrategy",
    )
    placement_strategy: str = key(
        "LeastLongTermMessageRate",
        "which placement strategy; the simple name or Pulsar's class name",
        pulsar="loadBalancerLoadPlacementStrategy",
    )
    simple_placement_strategy: str = key(
        "leastLoadedServer",
        "the simple manager's: leastLoadedServer, leastMsgPerSecond; weightedRandomSelection, "
        "which any other name stands for",
        pulsar="loadBalancerPlacementStrategy",
        dynamic=False,
    )
    overloaded_threshold_percent: float = key(
        85,
        "a broker above this usage takes no new bundle",
        unit="%",
        pulsar="loadBalancerBrokerOverloadedThresholdPercentage",
        ge=0,
        le=100,
    )
    distribute_bundles_evenly: bool = key(
        True,
        "prefer the brokers with the fewest bundles of the namespace",
        pulsar="loadBalancerDistributeBundlesEvenlyEnabled",
    )
    broker_max_topics: int = key(
        50_000,
        "a broker with more topics takes no new bundle",
        unit="topics",
        pulsar="loadBalancerBrokerMaxTopics",
        ge=0,
    )
    failure_domains_enabled: bool = key(
        False,
        "spread an anti-affinity group over failure domains before brokers",
        pulsar="failureDomainsEnabled",
    )
    anti_affinity_counts: Literal["others", "group"] = key(
        "others",
        "what of an anti-affinity group counts against a broker: the other namespaces, "
        "or a bundle's own too, as in Pulsar",
    )
    anti_affinity_repair: bool = key(
        True,
        "each shedding pass moves bundles apart that share a broker or failure domain with "
        "another namespace of their anti-affinity group, where one without any may have them",
    )
    prefer_later_versions: bool = key(
        False, "place on the brokers with the latest version only", pulsar="preferLaterVersions"
    )
    count_pending_moves: bool = key(
        True,
        "what was decided and no report has confirmed counts in every load figure; who is being "
        "relieved is spared in that round, no move "
        "only shifts the overload; else it counts only in placement's, by preallocation_release",
    )
    preallocation_release: Literal["reference", "on_report"] = key(
        "reference",
        "how long a placed bundle counts at its destination when count_pending_moves is off: until "
        "the next report of "
        "anybody, or until it is reported or its destination dies",
    )

    usage_profile: Literal["4.0", "2.x"] = key(
        "4.0", "resources in a broker's usage: four of them, or heap memory too and every weight 1"
    )
    cpu_weight: float = key(
        1.0, "weight of cpu in a broker's usage", pulsar="loadBalancerCPUResourceWeight", ge=0
    )
    memory_weight: float | None = key(
        None,
        "weight of heap memory, read only under usage_profile 2.x; unset: 1",
        pulsar="loadBalancerMemoryResourceWeight",
        ge=0,
    )
    direct_memory_weight: float | None = key(
        None,
        "weight of direct memory; unset: 0, under usage_profile 2.x 1",
        pulsar="loadBalancerDirectMemoryResourceWeight",
        ge=0,
    )
    bandwidth_in_weight: float = key(
        1.0, "weight of inbound bandwidth", pulsar="loadBalancerBandwidthInResourceWeight", ge=0
    )
    bandwidth_out_weight: float = key(
        1.0, "weight of outbound bandwidth", pulsar="loadBalancerBandwidthOutResourceWeight", ge=0
    )

    modular_preselect_destination: bool = key(
        True,
        "choose the destination together with the unload; else when the bundle has been released",
    )
    assign_unowned: Literal["eager", "on_lookup"] = key(
        "eager", "give every unowned bundle an owner at once, or leave it to the brokers' lookups"
    )
    unloading_timeout_ms: int = key(
        60_000,
        "a decision that no report has confirmed by then is made anew",
        unit="ms",
        pulsar="namespaceBundleUnloadingTimeoutMs",
        ge=1,
    )
    tombstone_delay_ms: int = key(
        3_600_000,
        "the record of a bundle that nobody serves, or that was split, is deleted after this long",
        unit="ms",
        pulsar="loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds",
        factor=1_000,
        dynamic=False,
        ge=0,
    )
    min_brokers: int = key(
        1, "a new cluster's first assignments wait for this many brokers, 10 s at most", ge=1
    )

    sample_mode: Literal["per_report", "reference"] = key(
        "per_report",
        "a broker's new report is a sample of its own bundles, or of every broker's",
        dynamic=False,
    )
    short_samples: int = key(
        10, "samples in the short-term average", dynamic=False, ge=1, le=2**31 - 1
    )
    long_samples: int = key(
        1000, "samples in the long-term average", dynamic=False, ge=1, le=2**31 - 1
    )
    broker_retention_ms: int = key(
        86_400_000, "a silent broker is forgotten after this long", unit="ms", dynamic=False, ge=1
    )
    bundle_retention_ms: int = key(
        300_000,
        "a bundle that no report names is remembered this long; 0: not at all, as in Pulsar, for "
        "comparisons: its ownership record stays",
        unit="ms",
        dynamic=False,
        ge=0,
    )
    heartbeat_timeout_ms: int = key(
        30_000, "a broker that sends heartbeats is dead after this much silence", unit="ms", ge=1
    )
    report_timeout_ms: int = key(
        1_800_000,
        "a broker that sends none is dead after this much silence; unset: two "
        "report_max_interval_ms",
        unit="ms",
        ge=1,
    )
    silent_after_ms: int = key(
        12_000,
        "a broker that sends heartbeats is given no bundle after this much silence: two of its "
        "agent's heartbeats",
        unit="ms",
        ge=1,
    )
    mass_disappearance_wait_ms: int = key(
        180_000,
        "when many brokers vanish at once while others speak, nothing is decided for this long; "
        "then they are dead. 0: at once",
        unit="ms",
        ge=0,
    )
    max_assignments_per_minute: int = key(
        10_000,
        "bundles that nobody has and nobody released get an owner at this rate: a failover's, most "
        "of all",
        unit="bundles",
        ge=1,
    )
    max_moves_in_flight: int = key(5_000, "unconfirmed moves in the cluster at one time", ge=0)
    max_moves_in_flight_per_broker: int = key(
        100, "unconfirmed moves out of one broker at one time", ge=0
    )
    max_moves_per_minute: int = key(
        10_000, "moves in the cluster within a minute", unit="moves", ge=0
    )
    max_moved_mb_per_minute: float | None = key(
        None,
        "traffic (short-term, MB/s) of the bundles that are moved within a minute; unset: no limit",
        unit="MB/s",
        ge=0,
    )
    min_dwell_ms: int = key(
        0, "a bundle that came to its broker less than this ago is not shed", unit="ms", ge=0
    )

    disruption_windows: Texts = _windows()
    freezes: Texts = _freezes()
    freeze: str = _freeze()

    @property
    def dry_run(self) -> bool:
        """Whether decisions are only logged."""
        return self.mode == "observe"

    @property
    def weights(self) -> dict[str, float]:
        """Resource → weight in a broker's maximum usage."""
        whole = self.usage_profile == "2.x"
        weights = {
            "cpu": self.cpu_weight,
            "direct_memory": float(whole)
            if self.direct_memory_weight is None
            else self.direct_memory_weight,
            "bandwidth_in": self.bandwidth_in_weight,
            "bandwidth_out": self.bandwidth_out_weight,
        }
        if whole:
            weights["memory"] = 1.0 if self.memory_weight is None else self.memory_weight
        return weights


class NamespaceConfig(KeyModel):
    """How much balancing may disturb the clients of one namespace.

    Failovers, and moves out of drained brokers, it never holds up.
    """

    moves_per_hour: int | None = key(
        None,
        "most of its bundles' moves in any hour; operators' own unloads count too, but are never "
        "refused; unset: no limit",
        unit="moves",
        ge=0,
        le=100_000,
    )
    disruption_weight: float = key(
        1.0,
        "factor on what moving one of its bundles costs, for strategies that weigh that",
        gt=0,
        le=1_000_000,
    )
    disruption_windows: Texts = _windows()
    freezes: Texts = _freezes()
    freeze: str = _freeze()


PROFILES: dict[str, dict[str, object]] = {
    "default": {},
    "pulsar-4.0": {
        "uniform_need_allowance": 1000,
        "unload_idle_bundles": True,
        "count_system_bundles": True,
        "anti_affinity_counts": "group",
        "anti_affinity_repair": False,
    },
    "documented": {
        "uniform_need_allowance": 1000,
        "usage_profile": "2.x",
        "modular_preselect_destination": False,
        "threshold_target": "below_average",
        "placement_weighting": "documented",
        "hex_midpoint": "exact",
        "bandwidth_limit_32bit": False,
        "flow_duplicate_hash": "sum",
        "split_namespace_match": "exact",
        "preallocation_release": "on_report",
        "transfer_swap_gain": "always",
        "avg_target_key": "name",
        "uniform_need_overflow": False,
        "dynamic_bad_manager": "fallback",
    },
}
"""What a profile sets: above a key's default, below whatever the user gives."""

SHEDDER_PROFILES: dict[str, dict[str, dict[str, object]]] = {
    "documented": {"AvgShedder": {"max_unload_ratio": 0.5}}
}
"""What a profile sets when one shedder runs: profile → shedder → key → value."""
