"""What a batch brings for one cluster's round, read from its shards' rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lb_stream.contracts.reports import Ack, SplitAsk
from lb_stream.core.commands.responder import Received
from lb_stream.core.model.blocks import EVENT_SCHEMA, from_bytes, to_bytes
from lb_stream.core.model.memory import Memory
from lb_stream.stream.context import BatchContext
from lb_stream.stream.shards.block_files import Blocks

_NO_EVENTS = to_bytes(EVENT_SCHEMA.empty_table())
"""Of most clusters."""


@dataclass(frozen=True, slots=True)
class ClusterInput:
    """What a batch brings for one cluster's round."""

    cluster: str
    clock: ReadProgress
    events: list[dict[str, Any]]
    commands: tuple[Received, ...]
    blocks: list[Blocks]
    heard: bool  # False: the cluster has just been forgotten

    @staticmethod
    def from_rows(rows: Sequence[Mapping[str, Any]]) -> ClusterInput:
        """From the cluster's shards in order."""
        said = (row["events"] for row in rows)
        events = [
            event
            for block in said
            if block is not None and block != _NO_EVENTS
            for event in from_bytes(block).to_pylist()
        ]
        blocks = [(row["brokers"], row["names"], row["values"]) for row in rows]
        heard = all(row["brokers"] is not None for row in rows)
        return ClusterInput(
            rows[0]["cluster"], _clock(rows[0]["clock"]), events, _commands(events), blocks, heard
        )

    @property
    def now_ms(self) -> int:
        """The round's time."""
        return self.clock.now_ms

    def inputs(self, context: BatchContext) -> dict[str, Any]:
        """What the log says that the round was given, beside its memory and its blocks; who
        acknowledged what is added later."""
        asks = [{"broker": broker, "payload": ask.to_json()} for broker, ask in self.asks]
        shadows = context.settings.shadows_of(self.cluster)
        of_shadows = (
            {"shadows": shadows, "shadow_hold_ms": context.settings.stream.shadow_hold_ms}
            if shadows
            else {}
        )
        return of_shadows | {
            "offsets": self.clock.offsets,
            "times": self.clock.times(context.settings.topics.reports),
            "caught_up": context.caught_up,
            "settings": context.settings.of_cluster(self.cluster),
            "acks": [],
            "commands": [command.to_dict() for command in self.commands],
            "asks": asks,
        }

    @property
    def asks(self) -> tuple[tuple[str, SplitAsk], ...]:
        """Which broker asks for which split."""
        return parse_asks(_of_kind(self.events, "ask"))

    @property
    def acks(self) -> list[tuple[str, Ack]]:
        """Who acknowledges what."""
        return [
            (event["broker"], Ack.model_validate_json(event["payload"]))
            for event in _of_kind(self.events, "ack")
        ]

    def balances(self, memory: Memory) -> dict[str, tuple[str, ...]]:
        """What heartbeats say of who balances by itself: of those who do, and of those who did."""
        beats = _of_kind(self.events, "heartbeat")
        telling = (
            beat
            for beat in beats
            if beat["broker"] in memory.balances or '"balances":["' in beat["payload"]
        )
        return {
            one["broker"]: tuple(json.loads(one["payload"]).get("balances", ())) for one in telling
        }

    def merging(self, memory: Memory) -> dict[str, bool]:
        """Whose agents can merge bundles by what heartbeats say, where that is not what is
        remembered."""
        said = {
            one["broker"]: '"merges":true' in one["payload"]
            for one in _of_kind(self.events, "heartbeat")
        }
        known = set(memory.merging)
        return {broker: merges for broker, merges in said.items() if merges != (broker in known)}

    def raise_fold_error(self) -> None:
        """Raise what has gone wrong with the averages."""
        for event in self.events:
            if event["kind"] == "error":
                raise RuntimeError(event["payload"])


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """How far a batch has read each partition, and what follows from that.

    `offsets`: topic → partition → first and last one read.
    """

    seen: list[dict[str, Any]]
    now_ms: int
    offsets: dict[str, dict[str, list[int]]]

    def times(self, topic: str) -> dict[int, int]:
        """Partition → how far its time has come."""
        return {one["partition"]: one["append_ms"] for one in self.seen if one["topic"] == topic}


@lru_cache(maxsize=4)
def _clock(text: str) -> ReadProgress:
    """All clusters of a batch are told the same: it is read once, and changed by nobody."""
    seen: list[dict[str, Any]] = json.loads(text)
    offsets: dict[str, dict[str, list[int]]] = {}
    for one in seen:
        offsets.setdefault(one["topic"], {})[str(one["partition"])] = [one["first"], one["last"]]
    return ReadProgress(seen, max(one["append_ms"] for one in seen), offsets)


def parse_asks(given: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, SplitAsk], ...]:
    """Broker and request, from events or from the log."""
    return tuple((one["broker"], SplitAsk.model_validate_json(one["payload"])) for one in given)


def _of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The events of that kind, in their order."""
    if not events:
        return events
    found = [event for event in events if event["kind"] == kind]
    return sorted(
        found, key=lambda event: (event["append_ms"], event["partition"], event["offset"])
    )


def _commands(events: list[dict[str, Any]]) -> tuple[Received, ...]:
    """The operators' commands, in their order."""
    if not events:
        return ()
    commands = sorted(
        (event for event in events if event["kind"] == "command"),
        key=lambda event: (event["partition"], event["offset"]),
    )
    contents = [(event["append_ms"], json.loads(event["payload"])) for event in commands]
    return tuple(
        Received(append_ms, content["record"], content["rejected"])
        for append_ms, content in contents
    )
