"""The inputs of one cluster's round from a batch, read from the rows of its shards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from lb_stream.contracts.reports import Ack, SplitAsk
from lb_stream.core.commands.responder import Received
from lb_stream.core.model.blocks import EVENT_SCHEMA, from_bytes, to_bytes
from lb_stream.core.model.memory import Memory
from lb_stream.core.observing.differing_settings import update_differing
from lb_stream.stream.columns.reading import needs_full_report
from lb_stream.stream.context import BatchContext
from lb_stream.stream.rows import ClusterEvent, PartitionClock, ShardRow
from lb_stream.stream.shards.block_files import BlockRefs

_NO_EVENTS = to_bytes(EVENT_SCHEMA.empty_table())
"""The events of most clusters in most batches."""

MAX_MISSING = 100
"""Brokers of a cluster that are asked for rosters at a time: anybody may name unknown ones."""


@dataclass(frozen=True, slots=True)
class ClusterInput:
    """The inputs of one cluster's round from a batch.

    `forgotten`: this batch has forgotten the cluster, as it has no records of it.
    """

    cluster: str
    clock: ReadProgress
    events: list[ClusterEvent]
    commands: tuple[Received, ...]
    blocks: list[BlockRefs]
    forgotten: bool

    @staticmethod
    def from_rows(rows: Sequence[ShardRow]) -> ClusterInput:
        """Return the inputs of one cluster from the rows of its shards, in order."""
        clock = rows[0]["clock"]
        assert clock is not None, "the first shard's row has the clock"
        events: list[ClusterEvent] = []
        blocks: list[BlockRefs] = []
        for row in rows:
            if row["events"] is not None and row["events"] != _NO_EVENTS:
                events += from_bytes(row["events"]).to_pylist()
            if row["brokers"] is not None:
                blocks.append((row["brokers"], row["names"], row["values"]))
        return ClusterInput(
            cluster=rows[0]["cluster"],
            clock=_parse_clock(clock),
            events=events,
            commands=_parse_commands(events),
            blocks=blocks,
            forgotten=len(blocks) < len(rows),
        )

    @property
    def now_ms(self) -> int:
        """The round's time."""
        return self.clock.now_ms

    def logged_inputs(self, context: BatchContext) -> dict[str, object]:
        """Return the log's column `inputs`, without acknowledgements and heartbeats.

        The caller adds those that count in the round.
        """
        inputs: dict[str, object] = {
            "offsets": self.clock.offsets,
            "times": self.clock.times(context.settings.topics.reports),
            "caught_up": context.caught_up,
            "settings": context.settings.of_cluster(self.cluster),
            "acks": [],
            "commands": [command.to_dict() for command in self.commands],
            "asks": [{"broker": broker, "payload": ask.to_json()} for broker, ask in self.asks],
        }
        if shadows := context.settings.shadows_of(self.cluster):
            inputs["shadows"] = shadows
            inputs["shadow_hold_ms"] = context.settings.stream.shadow_hold_ms
        return inputs

    @property
    def asks(self) -> tuple[tuple[str, SplitAsk], ...]:
        """The brokers that ask for splits, with each split."""
        return parse_asks(_events_of_kind(self.events, "ask"))

    @property
    def acks(self) -> list[tuple[str, Ack]]:
        """The brokers that acknowledge decisions, with each acknowledgement."""
        return [
            (event["broker"], Ack.model_validate_json(event["payload"]))
            for event in _events_of_kind(self.events, "ack")
        ]

    def balances(self, memory: Memory) -> dict[str, tuple[str, ...]]:
        """Return broker → settings with which its own load manager balances, from heartbeats.

        Only brokers that balance, or that are in the memory's `balances`. Empty: the broker doesn't
        balance, or its agent doesn't know.
        """
        return {
            beat["broker"]: tuple(json.loads(beat["payload"]).get("balances") or ())
            for beat in _events_of_kind(self.events, "heartbeat")
            if beat["broker"] in memory.balances or '"balances":["' in beat["payload"]
        }

    def differing(self, memory: Memory) -> dict[str, tuple[str, ...]]:
        """Return broker → its settings that differ from the balancer's, from heartbeats.

        Empty when the memory has them all.
        """
        known = {broker for brokers in memory.differing.values() for broker in brokers}
        reported = {
            beat["broker"]: tuple(json.loads(beat["payload"]).get("differing", ()))
            for beat in _events_of_kind(self.events, "heartbeat")
            if beat["broker"] in known or '"differing":["' in beat["payload"]
        }
        if update_differing(memory.differing, reported, ()) == memory.differing:
            return {}
        return reported

    def merging(self, memory: Memory) -> dict[str, bool]:
        """Return broker → whether its agent can merge, if its heartbeat differs from the memory."""
        reported = {
            beat["broker"]: '"merges":true' in beat["payload"]
            for beat in _events_of_kind(self.events, "heartbeat")
        }
        known = set(memory.merging)
        return {
            broker: merges for broker, merges in reported.items() if merges != (broker in known)
        }

    def missing_rosters(self) -> tuple[str, ...]:
        """Return the brokers that must send rosters and full reports again; MAX_MISSING at most.

        Their columnar reports name unknown rosters, or their deltas have no base.
        """
        found = {
            event["broker"]
            for event in _events_of_kind(self.events, "rejected")
            if event["broker"] and needs_full_report(json.loads(event["payload"]))
        }
        return tuple(sorted(found)[:MAX_MISSING])

    def awaited(self, context: BatchContext) -> tuple[str, ...]:
        """Return the brokers for whose rosters the cluster waits."""
        earlier = context.awaited.get(self.cluster, ())
        if earlier is None:
            return ()
        return tuple(sorted({*earlier, *self.missing_rosters()}))

    def raise_fold_error(self) -> None:
        """Raise RuntimeError if the averages could not be folded."""
        for event in self.events:
            if event["kind"] == "error":
                raise RuntimeError(event["payload"])


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """The partitions that a batch has read, and the round's time.

    `offsets`: topic → partition → first and last offset. `now_ms`: the latest append time.
    """

    partitions: list[PartitionClock]
    now_ms: int
    offsets: dict[str, dict[str, list[int]]]

    def times(self, topic: str) -> dict[int, int]:
        """Return partition → latest append time, of one topic."""
        return {
            clock["partition"]: clock["append_ms"]
            for clock in self.partitions
            if clock["topic"] == topic
        }


@lru_cache(maxsize=4)
def _parse_clock(text: str) -> ReadProgress:
    """Return the parsed clock, which all clusters of a batch share: it must not be changed."""
    partitions: list[PartitionClock] = json.loads(text)
    offsets: dict[str, dict[str, list[int]]] = {}
    for clock in partitions:
        by_partition = offsets.setdefault(clock["topic"], {})
        by_partition[str(clock["partition"])] = [clock["first"], clock["last"]]
    now_ms = max(clock["append_ms"] for clock in partitions)
    return ReadProgress(partitions, now_ms, offsets)


def parse_asks(asks: Iterable[Mapping[str, object]]) -> tuple[tuple[str, SplitAsk], ...]:
    """Return broker and split, from events or from the log's column `inputs`."""
    return tuple(
        (str(ask["broker"]), SplitAsk.model_validate_json(str(ask["payload"]))) for ask in asks
    )


def _events_of_kind(events: list[ClusterEvent], kind: str) -> list[ClusterEvent]:
    """Return the events of one kind, by append time, then by partition and offset."""
    found = [event for event in events if event["kind"] == kind]
    return sorted(
        found, key=lambda event: (event["append_ms"], event["partition"], event["offset"])
    )


def _parse_commands(events: list[ClusterEvent]) -> tuple[Received, ...]:
    """Return the operators' commands, by partition and offset."""
    commands = sorted(
        (event for event in events if event["kind"] == "command"),
        key=lambda event: (event["partition"], event["offset"]),
    )
    received = []
    for event in commands:
        content = json.loads(event["payload"])
        # Blocks of batches that began under an older version have neither key nor right.
        received.append(
            Received(
                event["append_ms"],
                content["record"],
                content["rejected"],
                content.get("key_id"),
                content.get("right"),
            )
        )
    return tuple(received)
