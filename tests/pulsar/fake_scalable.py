"""Scalable topics of the small cluster, as Pulsar 5.0.1 was seen to answer for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from lb_stream.core.model.topics import SegmentName, topic_hash
from tests.pulsar.fake_cluster import NAMESPACE, Call, FakeCluster, Reply

TOPIC = f"topic://{NAMESPACE}/clicks"


@dataclass
class FakeScalable:
    """One scalable topic with `count` equal segments, each a topic of its bundle.

    Every call leads to the controller's broker, the last. `lost`: the next split or merge is made,
    and its answer doesn't come. `race`: what happens just before it.
    """

    cluster: FakeCluster
    count: int = 2
    epoch: int = 0
    segments: dict[int, dict[str, Any]] = field(default_factory=dict)
    lost: bool = False
    race: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        size = 0x10000 // self.count
        for number in range(self.count):
            self._add(number * size, number * size + size - 1, [])
        self.cluster.before = self.answer

    def answer(self, call: Call) -> Reply | None:
        parts = call.path.strip("/").split("/")[2:]
        if parts[0] != "scalable":
            return None
        if len(parts) == 3:
            return 200, [TOPIC] if parts[1:] == NAMESPACE.split("/") else [], {}
        if parts[3] != "clicks":
            return 404, {"reason": f"Scalable topic not found: topic://{'/'.join(parts[1:])}"}, {}
        if call.method == "GET" and len(parts) == 4:
            return 200, self._content(), {}
        controller = len(self.cluster.servers) - 1
        if call.broker != controller:
            return self.cluster._to(controller, call)
        if parts[4] == "stats":
            policy = {
                "enabled": True,
                "splitMsgRateInThreshold": 10000.0,
                "mergeMsgRateInThreshold": 1000.0,
                "mergeWindowSeconds": 300,
            }
            return 200, {"autoScale": {"policy": policy}}, {}
        for ids in [*self.race, tuple(map(int, parts[5:]))]:
            if (reason := self._change(ids)) is not None:
                text = f"\n --- An unexpected error occurred in the server ---\n\nMessage: {reason}"
                return 500, {"reason": f"{text}\n\nStacktrace:\n\njava.lang.X: {reason}"}, {}
        self.race = []
        if self.lost:
            self.lost = False
            raise ConnectionResetError
        return 204, b"", {}

    def _change(self, ids: tuple[int, ...]) -> str | None:
        """Split or merge; return why not."""
        parents = [self.segments[number] for number in ids if number in self.segments]
        if len(parents) < len(ids):
            return f"Segment not found: {ids}"
        if any(parent["state"] != "ACTIVE" for parent in parents):
            return f"Cannot split non-active segment: {ids[0]}"
        low = min(parent["hashRange"]["start"] for parent in parents)
        high = max(parent["hashRange"]["end"] for parent in parents)
        middle = low + (high - low) // 2
        ranges = [(low, middle), (middle + 1, high)] if len(ids) == 1 else [(low, high)]
        children = [self._add(first, last, list(ids)) for first, last in ranges]
        for parent in parents:
            parent |= {"state": "SEALED", "childIds": children}
        self.epoch += 1
        return None

    def _add(self, first: int, last: int, parents: list[int]) -> int:
        number = len(self.segments)
        self.segments[number] = {
            "segmentId": number,
            "hashRange": {"start": first, "end": last},
            "state": "ACTIVE",
            "parentIds": parents,
            "childIds": [],
        }
        name = SegmentName(TOPIC, first, last, number).full
        for bounds, (low, high) in zip(
            self.cluster.ranges, pairwise(self.cluster.boundaries), strict=True
        ):
            if low <= topic_hash(name) < high:
                self.cluster.segments.setdefault(bounds, []).append(name)
        return number

    def _content(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "nextSegmentId": len(self.segments),
            "segments": {str(number): fields for number, fields in self.segments.items()},
            "properties": {},
        }
