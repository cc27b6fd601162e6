"""The balancer's own settings, one set for each cluster.

Strategies declare theirs beside their code (`core/shedding`, `core/placement`). See
docs/configuration-balancer.md.
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
"""Simple name of a load manager's class → our name of the manager."""


def _to_short_name(value: object) -> object:
    """Return our name of a load manager's class; other values stay as they are."""
    return MANAGER_CLASSES.get(value.rpartition(".")[2], value) if isinstance(value, str) else value


def _split_at_semicolons(value: object) -> object:
    """Split a text at its semicolons; other values stay as they are."""
    if not isinstance(value, str):
        return value
    return tuple(text.strip() for text in value.split(";") if text.strip())


Texts = Annotated[tuple[str, ...], BeforeValidator(_split_at_semicolons)]


def _windows() -> Any:
    return key(
        (),
        "Balancing moves bundles only while one of these windows is open: cron, length, time zone, "
        "as '0 22 * * Mon-Fri 7h Europe/Berlin'. A list, or text with semicolons between. Empty: "
        "always.",
    )


def _freezes() -> Any:
    return key(
        (),
        "Times in which balancing moves nothing: begin, end, time zone, reason, as '2026-12-20 "
        "2027-01-02 UTC holidays'. A list, or text with semicolons between.",
    )


def _freeze() -> Any:
    return key("", "Reason why balancing moves nothing until this is empty again.")


class BalancerConfig(KeyModel):
    """When balancing happens, how usage is computed, and how much a round may do."""

    profile: Literal["default", "pulsar-4.0", "pulsar-4.2", "pulsar-5.0", "documented"] = key(
        "default",
        "Whose behaviour to follow: Pulsar's without what harms its operators (default), that of "
        "a release exactly, or what Pulsar's documentation says. Unset: the release that the "
        "brokers report; default where none is known.",
    )
    profile_change_delay_ms: int = key(
        1_800_000,
        "When the brokers' versions imply another profile, and no setting names one: how long it "
        "is announced before it counts.",
        unit="ms",
        ge=0,
    )
    load_manager: Annotated[
        Literal["modular", "simple", "extensible"], BeforeValidator(_to_short_name)
    ] = key(
        "modular",
        "Which of Pulsar's load managers to be: the short name or Pulsar's class name.",
        pulsar="loadManagerClassName",
    )
    dynamic_bad_manager: Literal["reject", "fallback"] = key(
        "reject",
        "A command that names an unknown load manager or shedder is refused, or leads to the "
        "simple manager.",
    )
    pulsar_names: Literal["any", "4.0", "4.2", "5.0"] = key(
        "any",
        "Whose names of topics and of brokers' own namespaces count; any: those of every release.",
        dynamic=False,
    )
    bad_strategies: Literal["simple", "refuse", "replace"] = key(
        "simple",
        "What happens to strategies in Pulsar's words that Pulsar has not, or that do not go "
        "together. simple: the simple load manager runs, as in Pulsar 4.0. refuse: they are an "
        "error, as in 4.2. replace: a placement strategy that does not fit is replaced by "
        "LeastLongTermMessageRate, and others are an error, as in 5.0.",
        dynamic=False,
    )
    enabled: bool = key(
        True,
        "Whether the balancer sheds and splits without commands. When off, it still obeys "
        "commands and assigns unassigned bundles.",
        pulsar="loadBalancerEnabled",
        dynamic=False,
    )
    mode: Literal["observe", "approve", "act"] = key(
        "observe",
        "What happens to decisions. observe: they are only logged (a dry run). approve: those "
        "of balancing wait for an operator's approval. act: they are published. `dry_run` "
        "true and false mean observe and act.",
    )
    proposal_expires_ms: int = key(
        1_800_000, "How long a proposal waits for approval.", unit="ms", ge=1_000
    )
    max_proposals: int = key(
        100, "Maximum proposals that wait for approval at one time.", ge=1, le=1_000
    )
    auto_approve: Texts = key(
        (),
        "Rules for proposals that need no approval, of kind, reason, max_mb, hours, zone and "
        "per_hour, as 'kind=move max_mb=5 per_hour=20'. A list, or text with semicolons "
        "between.",
    )
    shedding_enabled: bool = key(
        True, "Whether hot brokers unload bundles.", pulsar="loadBalancerSheddingEnabled"
    )
    shedding_interval_ms: int = key(
        60_000,
        "Minimum time between shedding passes. 0: a pass in every batch with a new report.",
        unit="ms",
        pulsar="loadBalancerSheddingIntervalMinutes",
        factor=60_000,
        ge=0,
    )
    shedding_grace_period_ms: int = key(
        1_800_000,
        "A bundle that was unloaded is not shed again for this long.",
        unit="ms",
        pulsar="loadBalancerSheddingGracePeriodMinutes",
        factor=60_000,
        ge=0,
    )
    shedding_excluded_namespaces: Annotated[tuple[str, ...], BeforeValidator(split_text)] = key(
        (),
        "Namespaces whose bundles are never shed: a list, or text with commas between.",
        pulsar="loadBalancerSheddingExcludedNamespaces",
    )
    excluded_still_count: bool = key(
        False,
        "Bundles of excluded namespaces are passed over after the shedder has chosen, as in "
        "Pulsar 4.2: they count towards what is to move, and no other bundle moves instead. Else "
        "the shedder chooses among the others.",
    )
    excluded_placement: Literal["strategy", "round_robin"] = key(
        "strategy",
        "Who finds a broker for a bundle of an excluded namespace: the placement strategy, or the "
        "candidates take turns, as in Pulsar 4.2.",
    )
    shedding_strategy: str = key(
        "ThresholdShedder",
        "Which shedder runs: the simple name or Pulsar's class name.",
        pulsar="loadBalancerLoadSheddingStrategy",
    )
    placement_strategy: str = key(
        "LeastLongTermMessageRate",
        "Which placement strategy runs: the simple name or Pulsar's class name.",
        pulsar="loadBalancerLoadPlacementStrategy",
    )
    simple_placement_strategy: str = key(
        "leastLoadedServer",
        "The simple manager's placement: leastLoadedServer or leastMsgPerSecond. Any other "
        "name means weightedRandomSelection.",
        pulsar="loadBalancerPlacementStrategy",
        dynamic=False,
    )
    overloaded_threshold_percent: float = key(
        85,
        "A broker above this usage gets no new bundle.",
        unit="%",
        pulsar="loadBalancerBrokerOverloadedThresholdPercentage",
        ge=0,
        le=100,
    )
    distribute_bundles_evenly: bool = key(
        True,
        "Prefer the brokers with the fewest bundles of the namespace.",
        pulsar="loadBalancerDistributeBundlesEvenlyEnabled",
    )
    broker_max_topics: int = key(
        50_000,
        "A broker with more topics gets no new bundle.",
        unit="topics",
        pulsar="loadBalancerBrokerMaxTopics",
        ge=0,
    )
    isolation_by_port: bool = key(
        True,
        "An isolation policy's expression with a colon is also matched against a broker's "
        "host:port, as in Pulsar 5.0; else only against its host.",
    )
    failure_domains_enabled: bool = key(
        False,
        "Spread an anti-affinity group over failure domains first, then over brokers.",
        pulsar="failureDomainsEnabled",
    )
    anti_affinity_counts: Literal["others", "group"] = key(
        "others",
        "What of an anti-affinity group counts against a broker: the other namespaces, or the "
        "bundle's own namespace too, as in Pulsar.",
    )
    anti_affinity_repair: bool = key(
        True,
        "Each shedding pass moves bundles apart that share a broker or failure domain with "
        "another namespace of their anti-affinity group, when a broker without one can take "
        "them.",
    )
    prefer_later_versions: bool = key(
        False,
        "Place bundles only on the brokers with the latest version.",
        pulsar="preferLaterVersions",
    )
    count_pending_moves: bool = key(
        True,
        "Pending moves count in every load figure, and a broker that is being relieved is not "
        "relieved again. When off, they count only in placement, by preallocation_release.",
    )
    preallocation_release: Literal["reference", "on_report"] = key(
        "reference",
        "How long a placed bundle counts at its destination when count_pending_moves is off: "
        "until the next report of any broker, or until it is reported or its destination "
        "dies.",
    )

    usage_profile: Literal["4.0", "2.x"] = key(
        "4.0", "Resources in a broker's usage: four of them, or heap memory too and every weight 1."
    )
    cpu_weight: float = key(
        1.0, "Weight of CPU in a broker's usage.", pulsar="loadBalancerCPUResourceWeight", ge=0
    )
    memory_weight: float | None = key(
        None,
        "Weight of heap memory, read only under usage_profile 2.x. Unset: 1.",
        pulsar="loadBalancerMemoryResourceWeight",
        ge=0,
    )
    direct_memory_weight: float | None = key(
        None,
        "Weight of direct memory. Unset: 0, and 1 under usage_profile 2.x.",
        pulsar="loadBalancerDirectMemoryResourceWeight",
        ge=0,
    )
    bandwidth_in_weight: float = key(
        1.0, "Weight of inbound bandwidth.", pulsar="loadBalancerBandwidthInResourceWeight", ge=0
    )
    bandwidth_out_weight: float = key(
        1.0, "Weight of outbound bandwidth.", pulsar="loadBalancerBandwidthOutResourceWeight", ge=0
    )

    broker_capacities: Texts = key(
        (),
        "What brokers can carry, in place of the limits that they report: rules of broker (a name, "
        "or a pattern with * and ?; without a port: of hosts), cpu_cores, memory_mib, "
        "direct_memory_mib, bandwidth_in_mbps and bandwidth_out_mbps, as 'broker=broker-1*:8080 "
        "bandwidth_in_mbps=1000'. A list, or text with semicolons between; later rules win. All "
        "strategies see these limits.",
    )
    modular_preselect_destination: bool = key(
        True,
        "The destination is chosen with the unload. When off, it is chosen once the bundle "
        "has been released.",
    )
    assign_unowned: Literal["eager", "on_lookup"] = key(
        "eager", "Every unassigned bundle gets an owner at once, or only when a broker looks it up."
    )
    unloading_timeout_ms: int = key(
        60_000,
        "A decision that no report has confirmed by then expires and is made anew.",
        unit="ms",
        pulsar="namespaceBundleUnloadingTimeoutMs",
        ge=1,
    )
    rollout_back_within_ms: int = key(
        900_000,
        "A rollout stands still when a broker has been away for its restart for this long.",
        unit="ms",
        ge=1,
    )
    tombstone_delay_ms: int = key(
        3_600_000,
        "The record of a bundle that is unassigned or was split is deleted after this long.",
        unit="ms",
        pulsar="loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds",
        factor=1_000,
        dynamic=False,
        ge=0,
    )
    min_brokers: int = key(
        1, "The first assignments of a new cluster wait for this many brokers, at most 10 s.", ge=1
    )

    sample_mode: Literal["per_report", "reference"] = key(
        "per_report",
        "A broker's new report is one sample of its own bundles, or of every broker's.",
        dynamic=False,
    )
    short_samples: int = key(
        10, "Samples in the short-term average.", dynamic=False, ge=1, le=2**31 - 1
    )
    long_samples: int = key(
        1000, "Samples in the long-term average.", dynamic=False, ge=1, le=2**31 - 1
    )
    broker_retention_ms: int = key(
        86_400_000, "A silent broker is forgotten after this long.", unit="ms", dynamic=False, ge=1
    )
    bundle_retention_ms: int = key(
        300_000,
        "A bundle that no report names is remembered for this long. 0: not at all, as in "
        "Pulsar, for comparisons; its ownership record stays.",
        unit="ms",
        dynamic=False,
        ge=0,
    )
    heartbeat_timeout_ms: int = key(
        30_000, "A broker that sends heartbeats is dead after this much silence.", unit="ms", ge=1
    )
    report_timeout_ms: int = key(
        1_800_000,
        "A broker that sends no heartbeats is dead after this much silence. Unset: two "
        "report_max_interval_ms.",
        unit="ms",
        ge=1,
    )
    silent_after_ms: int = key(
        12_000,
        "A broker that sends heartbeats gets no bundle after this much silence, which is two "
        "of its agent's heartbeats.",
        unit="ms",
        ge=1,
    )
    mass_disappearance_wait_ms: int = key(
        180_000,
        "When many brokers disappear at once while others report, nothing is decided for this "
        "long; then they are dead. 0: they are dead at once.",
        unit="ms",
        ge=0,
    )
    max_assignments_per_minute: int = key(
        10_000,
        "Maximum bundles per minute that get an owner without having been released, as in a "
        "failover.",
        unit="bundles",
        ge=1,
    )
    max_moves_in_flight: int = key(5_000, "Maximum pending moves in the cluster.", ge=0)
    max_moves_in_flight_per_broker: int = key(100, "Maximum pending moves out of one broker.", ge=0)
    max_moves_per_minute: int = key(
        10_000, "Maximum moves in the cluster within a minute.", unit="moves", ge=0
    )
    max_commands_per_minute: int = key(
        300,
        "Commands of one sender that are carried out within a minute, lookups' assigns not "
        "counted. Further ones are refused. 0: no limit.",
        unit="commands",
        dynamic=False,
        ge=0,
    )
    max_moved_mb_per_minute: float | None = key(
        None,
        "Maximum short-term traffic of the bundles that move within a minute. Unset: no limit.",
        unit="MB/s",
        ge=0,
    )
    min_dwell_ms: int = key(
        0, "A bundle is not shed for this long after it came to its broker.", unit="ms", ge=0
    )

    disruption_windows: Texts = _windows()
    freezes: Texts = _freezes()
    freeze: str = _freeze()

    @property
    def dry_run(self) -> bool:
        """Return whether decisions are only logged."""
        return self.mode == "observe"

    @property
    def weights(self) -> dict[str, float]:
        """Return resource → its weight in a broker's usage."""
        is_2x = self.usage_profile == "2.x"
        direct_memory = self.direct_memory_weight
        if direct_memory is None:
            direct_memory = 1.0 if is_2x else 0.0
        weights = {
            "cpu": self.cpu_weight,
            "direct_memory": direct_memory,
            "bandwidth_in": self.bandwidth_in_weight,
            "bandwidth_out": self.bandwidth_out_weight,
        }
        if is_2x:
            weights["memory"] = 1.0 if self.memory_weight is None else self.memory_weight
        return weights


class NamespaceConfig(KeyModel):
    """How much balancing may disturb the clients of one namespace.

    It does not limit failovers and moves from draining brokers.
    """

    moves_per_hour: int | None = key(
        None,
        "Maximum moves of its bundles in any hour. Operators' own unloads count too, but are "
        "never refused. Unset: no limit.",
        unit="moves",
        ge=0,
        le=100_000,
    )
    disruption_weight: float = key(
        1.0,
        "Factor on the cost of moving one of its bundles, for strategies that weigh that cost.",
        gt=0,
        le=1_000_000,
    )
    disruption_windows: Texts = _windows()
    freezes: Texts = _freezes()
    freeze: str = _freeze()


_AS_PULSAR_DOES: dict[str, object] = {
    "unload_idle_bundles": True,
    "count_system_bundles": True,
    "anti_affinity_counts": "group",
    "anti_affinity_repair": False,
}
_SINCE_4_2: dict[str, object] = {
    **_AS_PULSAR_DOES,
    "bad_strategies": "refuse",
    "excluded_still_count": True,
    "excluded_placement": "round_robin",
}
PROFILES: dict[str, dict[str, object]] = {
    "default": {},
    "pulsar-4.0": {
        **_AS_PULSAR_DOES,
        "uniform_need_allowance": 1000,
        "isolation_by_port": False,
        "pulsar_names": "4.0",
        "split_options": "of_default",
    },
    "pulsar-4.2": {
        **_SINCE_4_2,
        "isolation_by_port": False,
        "pulsar_names": "4.2",
        "split_options": "of_default",
    },
    "pulsar-5.0": {
        **_SINCE_4_2,
        "bad_strategies": "replace",
        "shedding_strategy": "AvgShedder",
        "placement_strategy": "AvgShedder",
        "avg_target_key": "plan",
        "pulsar_names": "5.0",
        "distribute_bundles_evenly": False,
        "max_unload_ratio": 0.5,
        "namespace_default_bundles": 32,
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
"""Profile → the keys that it sets. They override defaults, and given values override them."""

SHEDDER_PROFILES: dict[str, dict[str, dict[str, object]]] = {
    "documented": {"AvgShedder": {"max_unload_ratio": 0.5}}
}
"""Profile → shedder → the keys that the profile sets when this shedder runs."""
