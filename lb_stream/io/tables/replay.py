"""Replay: decides rounds once more from the inputs in the log, and compares the result with the
decisions in the log.

A round's input is all in the log (settings, acknowledgements, the memory of the round before) but
for its view, whose blocks stay beside the checkpoint for `stream.keep_views` batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import pyarrow.compute as pc
from pyarrow.dataset import Dataset

from lb_stream.contracts.columns.rounds import EMPTY, ENTRY_COLUMNS
from lb_stream.contracts.reports import Ack
from lb_stream.contracts.settings import StreamSettings
from lb_stream.contracts.tables import ROUNDS
from lb_stream.core.commands.responder import Received
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.decide import Inbox, decide
from lb_stream.core.shadow.evaluate import REAL, ShadowInput
from lb_stream.core.shadow.evaluate_all import replay_shadows
from lb_stream.io.kafka.checkpoint import checkpoint_uuid
from lb_stream.io.tables.delta import dataset, open_table
from lb_stream.settings.overrides import apply_setting_commands
from lb_stream.settings.shadows import resolve_shadow_config
from lb_stream.store import Store, checkpoint_of, tables_of
from lb_stream.stream.cluster_input import parse_asks
from lb_stream.stream.decide import cluster_view, encode_entries, read_shards

Result = Literal["equal", "different", "view gone", "failed then"]
Remembered = tuple[str, str]
"""The memory of a cluster and that of its shadows, canonical JSON."""
Before = tuple[dict[str, Any], Remembered, Store | None]
"""A row of the log, what was remembered before its round, and the checkpoint beside which its view
may still be; None: another one."""


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    """What became of one logged round.

    `differences`: column → what the log says and what came out now, where they differ.
    """

    cluster: str
    seq: int
    batch_id: int
    log_seq: int
    now_ms: int
    decisions: int
    result: Result
    differences: dict[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class RoundStart:
    """What a logged round began with, once its commands about settings were done.

    `own`: the job's settings for the cluster; `inputs`: as logged.
    """

    view: ClusterView
    memory: Memory
    inbox: Inbox
    config: ClusterConfig
    own: dict[str, Any]
    inputs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RoundFilter:
    """Which rounds are replayed: all of these that are set."""

    batch_id: int | None = None
    since_ms: int | None = None
    cluster: str | None = None
    until_ms: int | None = None  # before

    def filter(self) -> pc.Expression:
        """As a filter on the log."""
        parts = [pc.scalar(True)]
        parts += [pc.field("batch_id") == self.batch_id] if self.batch_id is not None else []
        parts += [pc.field("now_ms") >= self.since_ms] if self.since_ms is not None else []
        parts += [pc.field("now_ms") < self.until_ms] if self.until_ms is not None else []
        parts += [pc.field("cluster") == self.cluster] if self.cluster is not None else []
        result = parts[0]
        for part in parts[1:]:
            result = result & part
        return result


def replay(stream: StreamSettings, wanted: RoundFilter) -> tuple[int, Iterator[ReplayedRound]]:
    """The number of rounds, and what becomes of each, in the order of the log."""
    total, rows = _wanted(stream, wanted)
    return total, (_replayed(*each) for each in rows)


def load_round_starts(
    stream: StreamSettings, wanted: RoundFilter
) -> tuple[int, Iterator[tuple[dict[str, Any], RoundStart | None]]]:
    """The number of rounds, and of each, in the order of the log, its row and what it began with.

    None: its view is gone, it has failed, or it knew no broker.
    """
    total, rows = _wanted(stream, wanted)
    return total, ((each[0], _known_start(*each)) for each in rows)


def _wanted(stream: StreamSettings, wanted: RoundFilter) -> tuple[int, Iterator[Before]]:
    log = dataset(open_table(tables_of(stream), ROUNDS))
    rows = (
        log.to_table(filter=wanted.filter())
        .sort_by([("log_seq", "ascending"), ("cluster", "ascending")])
        .to_pylist()
    )
    return sum(row["memory"] != "" for row in rows), _rows(log, rows, checkpoint_of(stream))


def _rows(log: Dataset, rows: list[dict[str, Any]], checkpoint: Store) -> Iterator[Before]:
    own = checkpoint_uuid(checkpoint)
    memories: dict[str, Remembered] = {}
    for row in rows:
        memory, of_shadows = (
            memories.pop(row["cluster"]) if row["cluster"] in memories else _memory_before(log, row)
        )
        memories[row["cluster"]] = row["memory"], row["shadow_memory"]
        if not row["memory"]:
            continue  # the cluster was forgotten
        before = memory or Memory(seq=max(row["seq"] - 1, 0)).to_json(), of_shadows
        here = row["app"].rpartition("/")[2] == own
        yield row, before, checkpoint if here else None


def _memory_before(log: Dataset, row: dict[str, Any]) -> Remembered:
    """The memory in the cluster's row before this one; "" where there is none, or where that row
    says that the cluster was forgotten."""
    before = (pc.field("cluster") == row["cluster"]) & (pc.field("log_seq") < row["log_seq"])
    found = log.to_table(["log_seq", "memory", "shadow_memory"], before).sort_by("log_seq")
    if not len(found):
        return "", "{}"
    last = found.slice(len(found) - 1).to_pylist()[0]
    return last["memory"], last["shadow_memory"]


def _replayed(
    row: dict[str, Any], remembered: Remembered, checkpoint: Store | None
) -> ReplayedRound:
    result: Result
    differences: dict[str, tuple[str, str]] = {}
    if row["error"] is not None:
        result = "failed then"
    elif checkpoint is None:
        result = "view gone"
    else:
        try:
            now = _decided(row, remembered, checkpoint)
            differences = {name: (row[name], now[name]) for name in now if now[name] != row[name]}
            result = "different" if differences else "equal"
        except FileNotFoundError:
            result = "view gone"
    known = {name: row[name] for name in ("cluster", "seq", "batch_id", "log_seq", "now_ms")}
    return ReplayedRound(
        **known, decisions=len(json.loads(row["decisions"])), result=result, differences=differences
    )


def _balances(inputs: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {broker: tuple(keys) for broker, keys in inputs["balances"].items()}


def _known_start(
    row: dict[str, Any], remembered: Remembered, checkpoint: Store | None
) -> RoundStart | None:
    if row["error"] is not None or checkpoint is None:
        return None
    try:
        start = _start(row, remembered, checkpoint)
    except FileNotFoundError:
        return None
    return start if len(start.view.brokers) else None


def _start(row: dict[str, Any], remembered: Remembered, checkpoint: Store) -> RoundStart:
    """Raises FileNotFoundError when the view is gone."""
    inputs = json.loads(row["inputs"])
    blocks = [(brokers, names, values) for brokers, names, values in json.loads(row["blocks"])]
    memory = replace(Memory.from_json(remembered[0]), epoch=row["epoch"])
    times = {int(partition): append_ms for partition, append_ms in inputs.get("times", {}).items()}
    acks, asks = (
        tuple(Ack.model_validate(ack) for ack in inputs["acks"]),
        parse_asks(inputs.get("asks", ())),
    )
    commands = tuple(Received(**command) for command in inputs["commands"])
    inbox = Inbox(
        acks, inputs["caught_up"], commands, asks, _balances(inputs), inputs.get("merging", {})
    )
    own = inputs["settings"]
    begin = apply_setting_commands(own, memory, inbox)
    weights, shards = begin.config.balancer.weights, read_shards(checkpoint, blocks)
    view = cluster_view(row["cluster"], shards, blocks, row["now_ms"], weights, times)
    return RoundStart(view, begin.memory, begin.inbox, begin.config, own, inputs)


def _decided(row: dict[str, Any], remembered: Remembered, checkpoint: Store) -> dict[str, Any]:
    """The columns of the log, decided now; those of shadows where they looked at the round."""
    start = _start(row, remembered, checkpoint)
    if not len(start.view.brokers):
        return dict.fromkeys(ENTRY_COLUMNS, EMPTY) | {
            "memory": remembered[0],
            "results": row["results"],
        }
    made = decide(start.view, start.memory, start.inbox, start.config)
    now = encode_entries(made) | {"memory": made.memory.to_json()}
    if any(entry["policy"] == REAL for entry in json.loads(row["shadows"])):
        of_shadow = partial(resolve_shadow_config, start.own, start.memory.operator_state.settings)
        hold_ms = start.inputs["shadow_hold_ms"]
        looked = ShadowInput(
            start.view, made, start.config, of_shadow, start.inbox.caught_up, hold_ms
        )
        seen = replay_shadows(looked, start.inputs["shadows"], remembered[1], row["shadows"])
        now |= asdict(seen)
    return now
