"""Keys of Pulsar's load balancer that have no effect here: they are checked, and cause a warning.

Each description says what the key means in Pulsar; `WHY` says why it has no effect here. The keys
have Pulsar's names only, because a name of ours would promise an effect. See
docs/configuration-pulsar.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator

from lb_stream.contracts.keys import GivenSettings, split_text
from lb_stream.contracts.unread_scalable import WHY_SCALABLE, ScalableTopicKeys, declare_unread

MAX_NAMES = 3
"""How many keys at Pulsar's default a warning names."""


class UnreadKeys(ScalableTopicKeys):
    """Keys that a broker.conf may hold, and that have no effect here."""

    loadBalancerHostUsageCheckIntervalMinutes: float = declare_unread(
        "loadBalancerHostUsageCheckIntervalMinutes",
        1,
        "how often a broker measures the usage of its host",
        unit="min",
        dynamic=True,
        ge=0,
    )
    loadBalancerOverrideBrokerNicSpeedGbps: float | None = declare_unread(
        "loadBalancerOverrideBrokerNicSpeedGbps",
        None,
        "the speed that a broker takes its network interfaces to have",
        unit="Gbit/s",
        ge=0,
    )
    loadBalancerOverrideBrokerNics: Annotated[tuple[str, ...], BeforeValidator(split_text)] = (
        declare_unread(
            "loadBalancerOverrideBrokerNics",
            (),
            "since 4.2: the network interfaces whose traffic a broker counts",
        )
    )
    loadBalancerResourceQuotaUpdateIntervalMinutes: float = declare_unread(
        "loadBalancerResourceQuotaUpdateIntervalMinutes",
        15,
        "how often the leader stores its averages",
        unit="min",
        ge=0,
    )
    topicBundleAssignmentStrategy: str = declare_unread(
        "topicBundleAssignmentStrategy",
        "org.apache.pulsar.common.naming.ConsistentHashingTopicBundleAssigner",
        "the class that says in which bundle a topic is",
    )
    loadBalancerMultiPhaseBundleUnload: bool = declare_unread(
        "loadBalancerMultiPhaseBundleUnload",
        True,
        "extensible manager: clients stay connected while their bundle is transferred, until its "
        "new owner can be named to them",
    )
    loadBalancerInFlightServiceUnitStateWaitingTimeInMillis: int = declare_unread(
        "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis",
        30_000,
        "extensible manager: how long an assignment, transfer or split may stay unfinished before "
        "the leader repairs it",
        unit="ms",
        ge=0,
    )
    loadBalancerServiceUnitStateMonitorIntervalInSeconds: float = declare_unread(
        "loadBalancerServiceUnitStateMonitorIntervalInSeconds",
        60,
        "extensible manager: how often the leader looks for unfinished assignments, transfers and "
        "splits, and for bundles without an owner",
        unit="s",
        ge=0,
    )
    loadBalancerServiceUnitStateMaxConcurrentOverrides: int = declare_unread(
        "loadBalancerServiceUnitStateMaxConcurrentOverrides",
        64,
        "extensible manager: how many bundles the leader repairs at a time",
        unit="bundles",
        dynamic=True,
        ge=0,
    )
    loadManagerServiceUnitStateTableViewClassName: str = declare_unread(
        "loadManagerServiceUnitStateTableViewClassName",
        "org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateTableViewImpl",
        "extensible manager: where the ownership records are kept, in a topic or in the metadata "
        "store",
    )
    loadBalancerServiceUnitTableViewSyncer: str = declare_unread(
        "loadBalancerServiceUnitTableViewSyncer",
        "None",
        "extensible manager: the direction in which ownership records are copied to a new place",
        dynamic=True,
    )
    loadManagerMigrationEnabled: bool = declare_unread(
        "loadManagerMigrationEnabled",
        False,
        "since 5.0: lookups go to brokers that run the load manager of the broker started last",
        dynamic=True,
    )
    defaultNumberOfSystemNamespaceBundles: int = declare_unread(
        "defaultNumberOfSystemNamespaceBundles",
        64,
        "since 5.0: with how many bundles pulsar/system is created",
        unit="bundles",
        ge=1,
    )
    brokerCloseInactiveTopicsEnabled: bool = declare_unread(
        "brokerCloseInactiveTopicsEnabled",
        False,
        "since 5.0: idle topics are closed, and loaded again when a client needs them",
        dynamic=True,
    )


WHY: Mapping[str, str] = {
    "loadBalancerHostUsageCheckIntervalMinutes": "every report is read when it arrives",
    "loadBalancerOverrideBrokerNicSpeedGbps": (
        "a broker's reports hold its limit of bandwidth, and broker_capacities overrides it"
    ),
    "loadBalancerOverrideBrokerNics": "a broker's reports hold its traffic",
    "loadBalancerResourceQuotaUpdateIntervalMinutes": (
        "the averages are in the stream's state, and stream.averages_interval_ms says how often "
        "the job writes table bundle_averages"
    ),
    "topicBundleAssignmentStrategy": "the CRC-32 of a topic's name decides, as by Pulsar's default",
    "loadBalancerMultiPhaseBundleUnload": "the broker itself carries a decision out, also "
    "towards its clients",
    "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis": "a decision that no report confirms "
    "is repeated after unloading_timeout_ms",
    "loadBalancerServiceUnitStateMonitorIntervalInSeconds": "every micro-batch looks for them, at "
    "least once in stream.tick_interval_ms",
    "loadBalancerServiceUnitStateMaxConcurrentOverrides": "the bundles of a dead broker are all "
    "placed in the batch that finds it dead",
    "loadManagerServiceUnitStateTableViewClassName": "ownership records are in the table ownership "
    "and on the topic of topics.ownership",
    "loadBalancerServiceUnitTableViewSyncer": "ownership records have one place, so nothing "
    "is copied",
    "loadManagerMigrationEnabled": "the balancer gives bundles to every broker that reports, "
    "whatever its load manager",
    "defaultNumberOfSystemNamespaceBundles": "brokers create pulsar/system themselves, and their "
    "reports name its bundles",
    "brokerCloseInactiveTopicsEnabled": "a bundle that reports no longer name carries no load, and "
    "comes back with the next report that names it",
    **WHY_SCALABLE,
}
"""Key → why it has no effect here."""


def describe_unread(values: UnreadKeys, given: GivenSettings) -> tuple[str, ...]:
    """Describe the given keys: a line for each that is not Pulsar's default, one for others."""
    fields = {name: UnreadKeys.model_fields[name] for name in WHY if name in given}
    unchanged = [name for name, field in fields.items() if getattr(values, name) == field.default]
    lines = [
        f"{name} = {getattr(values, name)!r} has no effect here: {WHY[name]} (in Pulsar: "
        f"{field.description})"
        for name, field in fields.items()
        if name not in unchanged
    ]
    if unchanged:
        others = len(unchanged) - MAX_NAMES
        more = f" and {others} more" if others > 0 else ""
        lines.append(
            f"{', '.join(unchanged[:MAX_NAMES])}{more}: Pulsar's default, and without effect here "
            "(see lbctl config explain KEY)"
        )
    return tuple(lines)
