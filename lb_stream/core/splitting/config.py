"""Settings of splitting: when a bundle is too large, where it is cut, how many are cut at a time.

See docs/splitting.md "Splitting".
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from lb_stream.contracts.keys import KeyModel, key, split_text

MIB = 1024 * 1024
INT_MAX = 2**31 - 1
ALGORITHMS = (
    "range_equally_divide",
    "topic_count_equally_divide",
    "specified_positions_divide",
    "flow_or_qps_equally_divide",
)


class SplittingConfig(KeyModel):
    """Settings of all split triggers and algorithms. A bundle above a limit is too large."""

    split_enabled: bool = key(
        True,
        "Whether bundles that have grown too large are split.",
        pulsar="loadBalancerAutoBundleSplitEnabled",
    )
    split_by_limits: Literal["unless_planned", "always"] = key(
        "unless_planned",
        "Whether limits such as bundle_max_topics split bundles where the shedder itself plans "
        "splits, as LeastMoves does.",
    )
    unload_split_bundles: bool = key(
        True,
        "Whether the children of a split bundle are unloaded. Where the shedder plans splits it "
        "moves them itself.",
        pulsar="loadBalancerAutoUnloadSplitBundlesEnabled",
    )
    bundle_max_topics: int = key(
        1000,
        "A bundle with more topics is split.",
        unit="topics",
        pulsar="loadBalancerNamespaceBundleMaxTopics",
        ge=0,
        le=INT_MAX,
    )
    bundle_max_sessions: int = key(
        1000,
        "A bundle with more producers and consumers is split. 0 or less: no limit.",
        unit="sessions",
        pulsar="loadBalancerNamespaceBundleMaxSessions",
        ge=-INT_MAX,
        le=INT_MAX,
    )
    bundle_max_msgs_per_s: int = key(
        30_000,
        "A bundle with a higher message rate, in plus out, is split.",
        unit="msg/s",
        pulsar="loadBalancerNamespaceBundleMaxMsgRate",
        ge=0,
        le=INT_MAX,
    )
    bundle_max_bandwidth_mb: int = key(
        100,
        "A bundle with more traffic, in plus out, is split.",
        unit="MiB/s",
        pulsar="loadBalancerNamespaceBundleMaxBandwidthMbytes",
        ge=0,
        le=INT_MAX,
    )
    namespace_max_bundles: int = key(
        128,
        "A namespace with this many bundles is split no further.",
        unit="bundles",
        pulsar="loadBalancerNamespaceMaximumBundles",
        ge=0,
        le=INT_MAX,
    )
    namespace_default_bundles: int = key(
        4,
        "Bundles of a new namespace.",
        unit="bundles",
        pulsar="defaultNumberOfNamespaceBundles",
        ge=1,
        le=1 << 20,
    )
    split_algorithm: str = key(
        "range_equally_divide",
        "Where a bundle is cut. An unknown name means range_equally_divide.",
        pulsar="defaultNamespaceBundleSplitAlgorithm",
    )
    split_options: Literal["asked_for", "of_default"] = key(
        "asked_for",
        "What a split by an algorithm's name is computed from: what that algorithm needs, or what "
        "the default one needs, as before Pulsar 5.0.",
    )
    supported_split_algorithms: Annotated[tuple[str, ...], BeforeValidator(split_text)] = key(
        ALGORITHMS,
        "Algorithms that an operator's split may ask for.",
        pulsar="supportedNamespaceBundleSplitAlgorithms",
    )
    flow_difference_percent: int = key(
        10,
        "flow_or_qps_equally_divide cuts a bundle that is this far above a limit.",
        unit="%",
        pulsar="flowOrQpsDifferenceThresholdPercentage",
        ge=0,
        le=INT_MAX,
    )
    split_interval_ms: int = key(
        60_000,
        "Extensible manager: time between two checks of a broker's bundles.",
        unit="ms",
        pulsar="loadBalancerSplitIntervalMinutes",
        factor=60_000,
        dynamic=False,
        ge=1,
    )
    max_splits_per_cycle: int = key(
        10,
        "Extensible manager: maximum splits by one broker in one check. 0: no limit.",
        unit="bundles",
        pulsar="loadBalancerMaxNumberOfBundlesToSplitPerCycle",
        ge=0,
        le=INT_MAX,
    )
    split_hit_count: int = key(
        3,
        "Extensible manager: a bundle is split when it is too large in more checks in a row "
        "than this.",
        unit="checks",
        pulsar="loadBalancerNamespaceBundleSplitConditionHitCountThreshold",
        ge=0,
        le=INT_MAX,
    )
    max_splits_in_flight: int = key(
        1_000, "Maximum pending splits in the cluster.", unit="bundles", ge=0
    )
    merge_advice_enabled: bool = key(
        False, "Whether the balancer advises which neighbouring bundles people could merge."
    )
    merge_advice_after_ms: int = key(
        3_600_000,
        "How long two neighbours of one broker must stay, together, under half of every limit.",
        unit="ms",
        ge=1,
    )

    split_at_several_boundaries: bool = key(
        False,
        "Extensible manager: also split where several boundaries are found at once. The "
        "reference's brokers split at exactly one.",
    )
    hex_midpoint: Literal["reference", "exact", "decimal_hex"] = key(
        "reference",
        "The middle of two hashes: as in the reference (flow_or_qps_equally_divide adds 1), exact, "
        "or by the mean of hex digits, as in the documents.",
    )
    flow_duplicate_hash: Literal["last", "sum"] = key(
        "last",
        "How flow_or_qps_equally_divide counts two topics with one hash: twice with the figures of "
        "the last, or once with their sum.",
    )
    bandwidth_limit_32bit: bool = key(
        True, "The bandwidth limit in bytes/s overflows at 2048 MiB/s, as the reference's does."
    )
    split_namespace_match: Literal["prefix", "exact"] = key(
        "prefix",
        "Extensible manager: a pending split blocks its neighbours in all namespaces whose name "
        "begins with its own namespace's, or only in its own.",
    )

    @property
    def max_bandwidth_bytes_per_s(self) -> int:
        """Return the bandwidth limit above which a bundle is split.

        In 32 bits 2048 MiB/s is -2³¹, which every bundle exceeds, and 4096 MiB/s is 0.
        """
        limit = self.bundle_max_bandwidth_mb * MIB
        return (limit + 2**31) % 2**32 - 2**31 if self.bandwidth_limit_32bit else limit
