"""The deciding stage: all shards of one cluster → its round, as one row of the log, and its figures as Parquet files beside it."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.reports import Ack
from lb_stream.contracts.settings import Settings
from lb_stream.core.blocks import Shard, from_bytes
from lb_stream.core.config import cluster_config
from lb_stream.core.memory import Memory
from lb_stream.core.round import Inbox, Round, decide, seed_of
from lb_stream.core.view import ClusterView, view_of
from lb_stream.stream import figures
from lb_stream.stream.crash import crash_point

ROUND_SCHEMA = pa.schema(
    [
        ("cluster", pa.string()),
        ("seq", pa.int64()),
        ("epoch", pa.int64()),
        ("now_ms", pa.int64()),
        ("decisions", pa.string()),
        ("outcomes", pa.string()),
        ("ownership", pa.string()),
        ("refusals", pa.string()),
        ("memory", pa.string()),
        ("inputs", pa.string()),
        ("files", pa.string()),
        ("error", pa.string()),
    ]
)
ROUND_DDL = (
    "cluster string, seq bigint, epoch bigint, now_ms bigint, decisions string, outcomes string, ownership string, "
    "refusals string, memory string, inputs string, files string, error string"
)


@dataclass(frozen=True, slots=True)
class BatchContext:
    """What a batch's rounds start from, beside their views. `memories` is canonical JSON by cluster."""

    settings: Settings
    file_tag: str  # names this batch's files: a batch that is run again writes the same ones
    log_seq: int
    epoch: int
    caught_up: bool
    memories: Mapping[str, str]


def decide_cluster(rows: pa.Table, context: BatchContext) -> pa.Table:
    """One cluster's round in one batch. `rows`: its shards. Returns one row of ROUND_SCHEMA.

    Whatever goes wrong becomes the row's `error`, with nothing decided and the memory as it was: the other clusters don't notice.
    """
    rows = rows.sort_by("shard")
    cluster = rows["cluster"][0].as_py()
    now_ms = max(rows["now_ms"].to_pylist())
    events = _events(rows)
    remembered = context.memories.get(cluster, Memory().to_json())
    row: dict[str, Any] = {"cluster": cluster, "seq": 0, "epoch": context.epoch, "now_ms": now_ms, "memory": remembered, "error": None}
    row |= dict.fromkeys(("decisions", "outcomes", "ownership", "refusals"), "[]")
    given = context.settings.of_cluster(cluster)
    row["inputs"] = canonical_json({"offsets": _offsets(events), "caught_up": context.caught_up, "settings": given})
    files: dict[str, Any] = {}
    try:
        files["rejected_reports"] = figures.rejected(cluster, events, context)
        memory = replace(Memory.from_json(remembered), epoch=context.epoch)
        row["seq"] = memory.seq
        _raise_trouble(events)
        config = cluster_config(given)
        shards = [Shard(from_bytes(brokers), from_bytes(bundles)) for brokers, bundles in zip(*_binaries(rows), strict=True)]
        view = view_of(cluster, shards, now_ms, config.balancer.weights)
        if len(view.brokers):
            inbox = Inbox(_acks(events), context.caught_up)
            made = decide(view, memory, inbox, config, now_ms, seed_of(cluster, memory.seq + 1))
            files |= _figures(view, shards, made, context)
            row |= _logged(made)
    except Exception as error:
        row["error"] = "".join(traceback.format_exception(error)[-3:]).strip()
    crash_point("in_decide")
    row["files"] = canonical_json({name: file for name, file in files.items() if file is not None})
    return pa.Table.from_pylist([row], ROUND_SCHEMA)


def _binaries(rows: pa.Table) -> tuple[list[bytes], list[bytes]]:
    return rows["brokers"].to_pylist(), rows["bundles"].to_pylist()


def _events(rows: pa.Table) -> list[dict[str, Any]]:
    """The first shard's events, which hold all but the others' troubles."""
    first, *others = (from_bytes(events).to_pylist() for events in rows["events"].to_pylist())
    return first + [event for events in others for event in events if event["kind"] == "error"]


def _raise_trouble(events: list[dict[str, Any]]) -> None:
    for event in events:
        if event["kind"] == "error":
            raise RuntimeError(event["payload"])


def _acks(events: list[dict[str, Any]]) -> tuple[Ack, ...]:
    acks = sorted(
        (event for event in events if event["kind"] == "ack"), key=lambda event: (event["append_ms"], event["partition"], event["offset"])
    )
    return tuple(Ack.model_validate_json(event["payload"]) for event in acks)


def _offsets(events: list[dict[str, Any]]) -> dict[str, dict[str, list[int]]]:
    """Topic → partition → first and last offset that this batch read."""
    read: dict[str, dict[str, list[int]]] = {}
    for event in events:
        if event["kind"] == "clock":
            bounds = json.loads(event["payload"])
            read.setdefault(event["topic"], {})[str(event["partition"])] = [bounds["first"], bounds["last"]]
    return read


def _logged(made: Round) -> dict[str, Any]:
    return {
        "seq": made.seq,
        "decisions": canonical_json([decision.model_dump(mode="json") for decision in made.decisions]),
        "outcomes": canonical_json([outcome.to_dict() for outcome in made.outcomes]),
        "ownership": canonical_json([record.model_dump(mode="json") for record in made.ownership]),
        "refusals": canonical_json([refusal.to_dict() for refusal in made.refusals]),
        "memory": made.memory.to_json(),
    }


def _figures(view: ClusterView, shards: list[Shard], made: Round, context: BatchContext) -> dict[str, Any]:
    """Averages and loads are written when there is something new to see."""
    if not (view.brokers.sampled.any() or view.bundles.gained.any()):
        return {}
    return {
        "bundle_averages": figures.bundle_averages(view, shards, made, context),
        "broker_loads": figures.broker_loads(view, made, context),
    }
