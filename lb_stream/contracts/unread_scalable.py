"""Keys of Pulsar 5.0's scalable topics: they have no effect here, as a topic's brokers read them.

A scalable topic consists of segments. Each segment is a topic, and its load counts in its bundle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lb_stream.contracts.keys import KeyModel, key


def declare_unread(
    name: str, default: object, doc: str, *, unit: str = "", dynamic: bool = False, **limits: Any
) -> Any:
    """Declare a key that has only Pulsar's name; see `keys.key`."""
    return key(default, doc, unit=unit, pulsar=name, dynamic=dynamic, **limits)


def _threshold(name: str, default: float, doc: str, unit: str) -> Any:
    return declare_unread(name, default, doc, unit=unit, dynamic=True, ge=0)


class ScalableTopicKeys(KeyModel):
    """Keys of scalable topics in a broker.conf of Pulsar 5.0."""

    scalableTopicsEnabled: bool = declare_unread(
        "scalableTopicsEnabled", True, "whether the broker serves scalable topics"
    )
    scalableTopicAutoScaleEnabled: bool = declare_unread(
        "scalableTopicAutoScaleEnabled",
        True,
        "whether a scalable topic's hot segments are split, and its cold ones merged",
        dynamic=True,
    )
    scalableTopicAutoScaleIntervalSeconds: int = declare_unread(
        "scalableTopicAutoScaleIntervalSeconds",
        60,
        "how often a scalable topic's load is checked for splits and merges",
        unit="s",
        ge=0,
    )
    scalableTopicMinSegments: int = declare_unread(
        "scalableTopicMinSegments",
        1,
        "with this many segments a topic's segments are no longer merged",
        unit="segments",
        dynamic=True,
        ge=0,
    )
    scalableTopicMaxSegments: int = declare_unread(
        "scalableTopicMaxSegments",
        64,
        "with this many segments a topic's segments are no longer split",
        unit="segments",
        dynamic=True,
        ge=0,
    )
    scalableTopicMaxDagDepth: int = declare_unread(
        "scalableTopicMaxDagDepth",
        10,
        "a segment that so many merges have led to is not merged again",
        unit="merges",
        dynamic=True,
        ge=0,
    )
    scalableTopicSplitMsgRateInThreshold: float = _threshold(
        "scalableTopicSplitMsgRateInThreshold",
        10_000,
        "a segment that receives more messages is split",
        "msg/s",
    )
    scalableTopicSplitMsgRateOutThreshold: float = _threshold(
        "scalableTopicSplitMsgRateOutThreshold",
        50_000,
        "a segment that delivers more messages is split",
        "msg/s",
    )
    scalableTopicSplitBytesRateInThreshold: int = _threshold(
        "scalableTopicSplitBytesRateInThreshold",
        50_000_000,
        "a segment that receives more bytes is split",
        "bytes/s",
    )
    scalableTopicSplitBytesRateOutThreshold: int = _threshold(
        "scalableTopicSplitBytesRateOutThreshold",
        250_000_000,
        "a segment that delivers more bytes is split",
        "bytes/s",
    )
    scalableTopicSplitCooldownSeconds: int = declare_unread(
        "scalableTopicSplitCooldownSeconds",
        60,
        "minimum time between two splits of a topic's segments",
        unit="s",
        dynamic=True,
        ge=0,
    )
    scalableTopicMergeMsgRateInThreshold: float = _threshold(
        "scalableTopicMergeMsgRateInThreshold",
        1_000,
        "a segment below all merge thresholds may be merged: messages received",
        "msg/s",
    )
    scalableTopicMergeMsgRateOutThreshold: float = _threshold(
        "scalableTopicMergeMsgRateOutThreshold",
        5_000,
        "a segment below all merge thresholds may be merged: messages delivered",
        "msg/s",
    )
    scalableTopicMergeBytesRateInThreshold: int = _threshold(
        "scalableTopicMergeBytesRateInThreshold",
        5_000_000,
        "a segment below all merge thresholds may be merged: bytes received",
        "bytes/s",
    )
    scalableTopicMergeBytesRateOutThreshold: int = _threshold(
        "scalableTopicMergeBytesRateOutThreshold",
        25_000_000,
        "a segment below all merge thresholds may be merged: bytes delivered",
        "bytes/s",
    )
    scalableTopicMergeWindowSeconds: int = declare_unread(
        "scalableTopicMergeWindowSeconds",
        300,
        "how long a segment must stay below the merge thresholds before it is merged",
        unit="s",
        dynamic=True,
        ge=0,
    )
    scalableTopicMergeCooldownSeconds: int = declare_unread(
        "scalableTopicMergeCooldownSeconds",
        300,
        "minimum time between two merges of a topic's segments",
        unit="s",
        dynamic=True,
        ge=0,
    )
    scalableTopicLoadReportIntervalSeconds: int = declare_unread(
        "scalableTopicLoadReportIntervalSeconds",
        10,
        "how often a broker measures its segments for splits and merges",
        unit="s",
        ge=0,
    )
    scalableTopicLoadReportRateChangeThreshold: float = declare_unread(
        "scalableTopicLoadReportRateChangeThreshold",
        0.25,
        "a segment's rate is written again when it has changed by this share",
        unit="ratio",
        dynamic=True,
        ge=0,
    )
    scalableTopicEntryBucketBudget: int = declare_unread(
        "scalableTopicEntryBucketBudget",
        4,
        "how many parts of its keys a topic is divided into, over all segments, so that consumers "
        "can share a segment",
        dynamic=True,
        ge=0,
    )
    scalableTopicEntryBucketMaxPerSegment: int = declare_unread(
        "scalableTopicEntryBucketMaxPerSegment",
        1_024,
        "how many parts of its keys a segment is divided into at most",
        dynamic=True,
        ge=0,
    )
    scalableTopicRebucketCooldownSeconds: int = declare_unread(
        "scalableTopicRebucketCooldownSeconds",
        60,
        "minimum time between two divisions of a topic's keys anew",
        unit="s",
        dynamic=True,
        ge=0,
    )
    scalableTopicSplitVsRebucketMinMsgRateInThreshold: float = _threshold(
        "scalableTopicSplitVsRebucketMinMsgRateInThreshold",
        1_000,
        "for more consumers a segment is split if it receives so many messages, else its keys are "
        "divided anew",
        "msg/s",
    )
    scalableTopicConsumerSessionGracePeriodSeconds: int = declare_unread(
        "scalableTopicConsumerSessionGracePeriodSeconds",
        60,
        "how long the segments of a consumer that has disconnected wait for it",
        unit="s",
        ge=0,
    )


_SCALED = "brokers split and merge segments themselves, and the next reports show the load"
_MEASURED = "brokers' reports hold the load of segments, in that of their bundles"
_CONSUMED = "it moves consumers between segments, and no load between brokers"

_OTHER_REASONS = {
    "scalableTopicsEnabled": "a segment is a topic, and its load counts in its bundle",
    "scalableTopicLoadReportIntervalSeconds": _MEASURED,
    "scalableTopicLoadReportRateChangeThreshold": _MEASURED,
    "scalableTopicEntryBucketBudget": _CONSUMED,
    "scalableTopicEntryBucketMaxPerSegment": _CONSUMED,
    "scalableTopicRebucketCooldownSeconds": _CONSUMED,
    "scalableTopicConsumerSessionGracePeriodSeconds": _CONSUMED,
}
WHY_SCALABLE: Mapping[str, str] = {
    name: _OTHER_REASONS.get(name, _SCALED) for name in ScalableTopicKeys.model_fields
}
"""Key of scalable topics → why it has no effect here."""
