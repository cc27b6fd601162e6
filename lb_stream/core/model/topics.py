"""From topic to bundle: topic names, hashes, and the ring of a namespace's bundles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from lb_stream.core.model.names import FULL_RANGE_END, bundle_name
from lb_stream.core.model.releases import NAME_RULES, NameRules

Ints = NDArray[np.int64]

HASHES = 1 << 32
MOST_BUNDLES = 1 << 20
"""The most bundles of one namespace, which is more than a whole cluster should have."""

_FULL = re.compile(r"([^:/]+)://([^/]+)/([^/]+)/(.+)", re.DOTALL)
_SEGMENT = re.compile(r"(.+)/0*([0-9a-fA-F]{1,4})-0*([0-9a-fA-F]{1,4})-([0-9]+)", re.DOTALL)
MAX_SEGMENT_ID = (1 << 63) - 1
SCALABLE, SEGMENT = "topic://", "segment://"
"""Domains of scalable topics, and of their segments."""
LAST_KEY_HASH = 0xFFFF
"""Keys of a scalable topic's messages are hashed to 0..0xffff."""
ANY = NAME_RULES["any"]


def full_topic_name(topic: str, rules: NameRules = ANY) -> str:
    """Return a topic's name with its domain, tenant and namespace, as brokers hash it.

    `a/b/c` is `persistent://a/b/c`; `c` is `persistent://public/default/c`. The hashes of a
    segment get four digits in lower case. Raises ValueError for another name without a domain.
    """
    if "://" in topic:
        return "{}://{}/{}".format(*_parts(topic, rules))
    parts = topic.split("/")
    if rules.with_cluster:  # Pulsar 4.0 passes over stray slashes
        parts = [part for part in parts if part]
    if not all(parts) or len(parts) not in (1, 3):
        raise ValueError(
            f"not a topic name: {topic!r}; expected <topic>, <tenant>/<namespace>/<topic>, or "
            "persistent://<tenant>/<namespace>/<topic>"
        )
    full = "persistent://" + (topic if len(parts) == 3 else f"public/default/{parts[0]}")
    _parts(full, rules)
    return full


def namespace_of_topic(topic: str, rules: NameRules = ANY) -> str:
    """Return the namespace of a topic. Raises ValueError.

    It is `<tenant>/<namespace>`; in old names `<tenant>/<cluster>/<namespace>`.
    """
    return _parts(full_topic_name(topic, rules), rules)[1]


def _parts(full: str, rules: NameRules) -> tuple[str, str, str]:
    """Return (domain, namespace, the topic's own name). Raises ValueError."""
    found = _FULL.fullmatch(full)
    if found is None or found[1] not in rules.domains:
        raise ValueError(
            f"not a topic name: {full!r}; expected <domain>://<tenant>/<namespace>/<topic>, the "
            f"domain one of {', '.join(rules.domains)}"
        )
    domain, namespace, name = found[1], f"{found[2]}/{found[3]}", found[4]
    if domain == "segment":
        name = _segment_name(full, name)
    elif domain != "topic" and "/" in name:
        cluster_namespace, _, name = name.partition("/")
        namespace = f"{namespace}/{cluster_namespace}"
    if not name.strip() or not rules.is_namespace(namespace):
        raise ValueError(
            f"not a topic name: {full!r}; expected {domain}://<tenant>/<namespace>/<topic>, "
            f"{rules.describe_namespace()}"
        )
    return domain, namespace, name


def _segment_name(full: str, name: str) -> str:
    """Return <topic>/<first hash>-<last hash>-<id> of a segment as brokers write it."""
    found = _SEGMENT.fullmatch(name)
    if found is not None:
        first, last, segment = int(found[2], 16), int(found[3], 16), int(found[4])
        if found[1].strip() and first <= last and segment <= MAX_SEGMENT_ID:
            return f"{found[1]}/{first:04x}-{last:04x}-{segment}"
    raise ValueError(
        f"not a segment's name: {full!r}; expected "
        "segment://<tenant>/<namespace>/<topic>/<first hash>-<last hash>-<id>"
    )


def is_scalable(topic: str) -> bool:
    """Return whether a name is that of a scalable topic, which is in no bundle of its own."""
    return topic.startswith(SCALABLE)


@dataclass(frozen=True, slots=True)
class SegmentName:
    """The name of a segment: its scalable topic, and the range of its keys' hashes, both included.

    A segment is a topic of the bundle that its full name hashes into.
    """

    topic: str  # full name: topic://<tenant>/<namespace>/<name>
    first: int
    last: int
    id: int

    @property
    def full(self) -> str:
        """The segment's full name, as brokers hash it."""
        own = self.topic.removeprefix(SCALABLE)
        return f"{SEGMENT}{own}/{self.first:04x}-{self.last:04x}-{self.id}"

    def halves(self, next_id: int) -> tuple[SegmentName, SegmentName]:
        """Return the segments into which Pulsar splits this one, with the next two ids.

        Raises ValueError for a segment with a single hash.
        """
        if self.first >= self.last:
            raise ValueError(f"{self.full} has a single hash of keys: it can't be split")
        middle = self.first + (self.last - self.first) // 2
        return (
            SegmentName(self.topic, self.first, middle, next_id),
            SegmentName(self.topic, middle + 1, self.last, next_id + 1),
        )

    def merged(self, other: SegmentName, next_id: int) -> SegmentName:
        """Return the segment into which Pulsar merges two, with the next id.

        Raises ValueError unless their hashes touch.
        """
        low, high = sorted((self, other), key=lambda segment: segment.first)
        if low.last + 1 != high.first:
            raise ValueError(
                f"segments {low.id} ({low.range_text}) and {high.id} ({high.range_text}) are no "
                "neighbours: the hashes of one must begin where the other's end"
            )
        return SegmentName(self.topic, low.first, high.last, next_id)

    @property
    def range_text(self) -> str:
        """The hashes as in the name: four hexadecimal digits, a dash, four more."""
        return f"{self.first:04x}-{self.last:04x}"


def topic_hash(topic: str, rules: NameRules = ANY) -> int:
    """Return the CRC-32 of the full name's UTF-8 bytes, 0..2³²-1. Raises ValueError."""
    return crc32(full_topic_name(topic, rules).encode(errors="replace"))


def topic_hashes(topics: Iterable[str]) -> Ints:
    """Return the hashes of topics, in their order. Raises ValueError."""
    return np.fromiter((topic_hash(topic) for topic in topics), np.int64)


def equal_boundaries(bundles: int) -> Ints:
    """Return the boundaries of `bundles` equal ranges, the last up to 0xffffffff.

    Raises ValueError.
    """
    if not 1 <= bundles <= MOST_BUNDLES:
        raise ValueError(f"bundles = {bundles}: expected 1 to {MOST_BUNDLES}")
    return np.append(np.arange(bundles, dtype=np.int64) * (HASHES // bundles), FULL_RANGE_END)


@dataclass(frozen=True, slots=True)
class Ring:
    """All bundles of one namespace: n + 1 ascending boundaries, from 0 to 0xffffffff."""

    namespace: str
    boundaries: Ints

    @staticmethod
    def new(namespace: str, bundles: int) -> Ring:
        """Return the ring of a new namespace of equal bundles. Raises ValueError."""
        return Ring(namespace, equal_boundaries(bundles))

    @staticmethod
    def from_boundaries(namespace: str, boundaries: Sequence[int]) -> Ring:
        """Return the ring with these boundaries.

        Raises ValueError unless every hash is in one bundle, and every bundle has a hash.
        """
        if (
            len(boundaries) < 2
            or boundaries[0] != 0
            or boundaries[-1] != FULL_RANGE_END
            or any(a >= b for a, b in pairwise(boundaries))
        ):
            raise ValueError(
                f"boundaries of {namespace}: expected an ascending list from 0x00000000 to "
                f"0xffffffff, got {list(boundaries)}"
            )
        return Ring(namespace, np.array(boundaries, np.int64))

    def __len__(self) -> int:
        return len(self.boundaries) - 1

    def name(self, row: int) -> str:
        """Return the name of the bundle in one row."""
        return bundle_name(self.namespace, int(self.boundaries[row]), int(self.boundaries[row + 1]))

    @property
    def names(self) -> list[str]:
        """Return the names of the bundles in the order of their ranges."""
        return [
            bundle_name(self.namespace, lower, upper)
            for lower, upper in pairwise(self.boundaries.tolist())
        ]

    def rows(self, hashes: Ints) -> Ints:
        """Return the row of the bundle of each hash. O(log n) each.

        A bundle begins at its lower boundary; 0xffffffff is in the last bundle.
        """
        found: Ints = np.searchsorted(self.boundaries, hashes, side="right").astype(np.int64) - 1
        return np.minimum(found, len(self) - 1)

    def bundle_of(self, topic: str) -> str:
        """Return the bundle of a topic. Raises ValueError for an invalid name."""
        return self.name(int(self.rows(np.array([topic_hash(topic)]))[0]))
