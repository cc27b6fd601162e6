"""Keys of Pulsar's load balancer that have no effect here: they are checked, and cause a warning.

Each description says what the key means in Pulsar; `WHY` says why it has no effect here. The keys
have Pulsar's names only, because a name of ours would promise an effect. See
docs/configuration-pulsar.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lb_stream.contracts.keys import GivenSettings, KeyModel, key


def _unread(
    name: str, default: object, doc: str, *, unit: str = "", dynamic: bool = False, **limits: Any
) -> Any:
    return key(default, doc, unit=unit, pulsar=name, dynamic=dynamic, **limits)


class UnreadKeys(KeyModel):
    """Keys that a broker.conf may hold, and that have no effect here."""

    loadBalancerHostUsageCheckIntervalMinutes: float = _unread(
        "loadBalancerHostUsageCheckIntervalMinutes",
        1,
        "how often a broker measures the usage of its host",
        unit="min",
        dynamic=True,
        ge=0,
    )
    loadBalancerOverrideBrokerNicSpeedGbps: float | None = _unread(
        "loadBalancerOverrideBrokerNicSpeedGbps",
        None,
        "the speed that a broker takes its network interfaces to have",
        unit="Gbit/s",
        ge=0,
    )
    loadBalancerResourceQuotaUpdateIntervalMinutes: float = _unread(
        "loadBalancerResourceQuotaUpdateIntervalMinutes",
        15,
        "how often the leader stores its averages",
        unit="min",
        ge=0,
    )
    topicBundleAssignmentStrategy: str = _unread(
        "topicBundleAssignmentStrategy",
        "org.apache.pulsar.common.naming.ConsistentHashingTopicBundleAssigner",
        "the class that says in which bundle a topic is",
    )
    loadBalancerMultiPhaseBundleUnload: bool = _unread(
        "loadBalancerMultiPhaseBundleUnload",
        True,
        "extensible manager: clients stay connected while their bundle is transferred, until its "
        "new owner can be named to them",
    )
    loadBalancerInFlightServiceUnitStateWaitingTimeInMillis: int = _unread(
        "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis",
        30_000,
        "extensible manager: how long an assignment, transfer or split may stay unfinished before "
        "the leader repairs it",
        unit="ms",
        ge=0,
    )
    loadBalancerServiceUnitStateMonitorIntervalInSeconds: float = _unread(
        "loadBalancerServiceUnitStateMonitorIntervalInSeconds",
        60,
        "extensible manager: how often the leader looks for unfinished assignments, transfers and "
        "splits, and for bundles without an owner",
        unit="s",
        ge=0,
    )
    loadBalancerServiceUnitStateMaxConcurrentOverrides: int = _unread(
        "loadBalancerServiceUnitStateMaxConcurrentOverrides",
        64,
        "extensible manager: how many bundles the leader repairs at a time",
        unit="bundles",
        dynamic=True,
        ge=0,
    )
    loadManagerServiceUnitStateTableViewClassName: str = _unread(
        "loadManagerServiceUnitStateTableViewClassName",
        "org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateTableViewImpl",
        "extensible manager: where the ownership records are kept, in a topic or in the metadata "
        "store",
    )
    loadBalancerServiceUnitTableViewSyncer: str = _unread(
        "loadBalancerServiceUnitTableViewSyncer",
        "None",
        "extensible manager: the direction in which ownership records are copied to a new place",
        dynamic=True,
    )


WHY: Mapping[str, str] = {
    "loadBalancerHostUsageCheckIntervalMinutes": "every report is read when it arrives",
    "loadBalancerOverrideBrokerNicSpeedGbps": "a broker's reports hold its limit of bandwidth",
    "loadBalancerResourceQuotaUpdateIntervalMinutes": (
        "the averages are in the stream's state, and each batch that changes them writes table "
        "bundle_averages"
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
}
"""Key → why it has no effect here."""


def describe_unread(values: UnreadKeys, given: GivenSettings) -> tuple[str, ...]:
    """Describe the given keys: a line for each that is not Pulsar's default, one for others."""
    fields = {name: field for name, field in UnreadKeys.model_fields.items() if name in given}
    unchanged = [name for name, field in fields.items() if getattr(values, name) == field.default]
    lines = [
        f"{name} = {getattr(values, name)!r} has no effect here: {WHY[name]} (in Pulsar: "
        f"{field.description})"
        for name, field in fields.items()
        if name not in unchanged
    ]
    if unchanged:
        lines.append(
            f"{', '.join(unchanged)}: Pulsar's default, and without effect here (see lbctl config "
            "explain KEY)"
        )
    return tuple(lines)
