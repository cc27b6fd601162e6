"""Lookups of scalable topics (Pulsar 5.0): the broker of each of their segments.

Ownership records name bundles, not topics, so Pulsar is asked which segments there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lb_stream.core.model.topics import SegmentName, full_topic_name
from lb_stream.io.lookup.client import Lookup, LookupFailed, LookupResult


class TopicSegment(Protocol):
    """One segment of a scalable topic, as Pulsar names it."""

    @property
    def name(self) -> SegmentName:
        """Its topic, hashes and id."""
        ...

    @property
    def topic(self) -> str:
        """The full name of the topic that holds its messages."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether producers send to it; else consumers read it to its end."""
        ...


FindSegments = Callable[[str, str], Sequence[TopicSegment]]
"""(cluster, full name of a scalable topic) → its segments. Raises LookupFailed, UnknownScalable."""


class UnknownScalable(LookupFailed):
    """The cluster has no such scalable topic."""


@dataclass(frozen=True, slots=True)
class SegmentResult:
    """The answer for one segment. `hashes`: of the keys that it holds, such as 0000-3fff."""

    id: int
    hashes: str
    active: bool
    lookup: LookupResult


@dataclass(frozen=True, slots=True)
class ScalableResult:
    """The answer for a scalable topic: one for each of its segments, sealed ones included."""

    cluster: str
    topic: str
    segments: tuple[SegmentResult, ...]

    @property
    def is_served(self) -> bool:
        """Whether every segment to which producers send has a broker."""
        return all(segment.lookup.broker is not None for segment in self.segments if segment.active)


def find_scalable(
    lookup: Lookup, find_segments: FindSegments, topic: str, cluster: str | None = None
) -> ScalableResult:
    """Find the brokers of a scalable topic's segments; request owners for those without.

    Raises ValueError and StaleLookup as `Lookup.find` does, LookupFailed if Pulsar doesn't answer,
    UnknownScalable.
    """
    full, named = full_topic_name(topic), lookup.require_cluster(cluster)
    return ScalableResult(
        named,
        full,
        tuple(
            SegmentResult(
                segment.name.id,
                segment.name.range_text,
                segment.is_active,
                lookup.find(segment.topic, named),
            )
            for segment in find_segments(named, full)
        ),
    )
