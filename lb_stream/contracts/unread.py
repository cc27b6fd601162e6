"""Keys of Pulsar's load balancer that have nothing to do here: they are understood, checked, and
told of instead of obeyed.

Each description says what the key means to Pulsar; the reason why that has no effect here is in
`WHY`. A key of this page is named as Pulsar names it: one of ours would promise something. See
docs/configuration-pulsar.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lb_stream.contracts.keys import KeyModel, key


def _unread(
    name: str, default: Any, doc: str, *, unit: str = "", dynamic: bool = False, **limits: Any
) -> Any:
    return key(default, doc, unit=unit, pulsar=name, dynamic=dynamic, **limits)


class UnreadKeys(KeyModel):
    """What a broker.conf may hold without any effect here."""

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
        "how often the leader writes its averages down",
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
        "the leader puts it right",
        unit="ms",
        ge=0,
    )
    loadBalancerServiceUnitStateMonitorIntervalInSeconds: float = _unread(
        "loadBalancerServiceUnitStateMonitorIntervalInSeconds",
        60,
        "extensible manager: how often the leader looks for unfinished ones and for bundles "
        "without an owner",
        unit="s",
        ge=0,
    )
    loadBalancerServiceUnitStateMaxConcurrentOverrides: int = _unread(
        "loadBalancerServiceUnitStateMaxConcurrentOverrides",
        64,
        "extensible manager: how many bundles the leader puts right at a time",
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
        "extensible manager: which way ownership records are copied while that place is changed",
        dynamic=True,
    )


WHY: Mapping[str, str] = {
    "loadBalancerHostUsageCheckIntervalMinutes": "its reports are taken as they come",
    "loadBalancerOverrideBrokerNicSpeedGbps": "a broker's reports say what its bandwidth is "
    "limited to",
    "loadBalancerResourceQuotaUpdateIntervalMinutes": (
        "the averages are in the stream's state, and table bundle_averages follows with every "
        "batch that changes them"
    ),
    "topicBundleAssignmentStrategy": "the CRC-32 of a topic's name says it, as with Pulsar's "
    "default",
    "loadBalancerMultiPhaseBundleUnload": "how a decision is carried out towards clients is up to "
    "the broker",
    "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis": "a decision that no report confirms "
    "is made anew after "
    "unloading_timeout_ms",
    "loadBalancerServiceUnitStateMonitorIntervalInSeconds": "every micro-batch looks, at least one "
    "in each stream.tick_interval_ms",
    "loadBalancerServiceUnitStateMaxConcurrentOverrides": "the bundles of a dead broker are all "
    "placed in the batch that finds it dead",
    "loadManagerServiceUnitStateTableViewClassName": "ownership records are in the table ownership "
    "and on the topic of topics.ownership",
    "loadBalancerServiceUnitTableViewSyncer": "there is one place for ownership records, so "
    "nothing is copied",
}
"""Key → why it has no effect here."""


def describe_unread(values: UnreadKeys, given: Mapping[str, Any]) -> tuple[str, ...]:
    """What is said of those that were given: a line for each that wants something else than
    Pulsar's default, one line for all others."""
    fields = {name: field for name, field in UnreadKeys.model_fields.items() if name in given}
    usual = [name for name, field in fields.items() if getattr(values, name) == field.default]
    lines = [
        f"{name} = {getattr(values, name)!r} has no effect here: {WHY[name]} (in Pulsar: "
        f"{field.description})"
        for name, field in fields.items()
        if name not in usual
    ]
    if usual:
        lines.append(
            f"{', '.join(usual)}: Pulsar's default, and without effect here (lbctl config explain "
            "KEY says why)"
        )
    return tuple(lines)
