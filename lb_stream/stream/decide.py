"""The deciding stage: all shards of a cluster → its round, as one row of the log, and figures as Parquet files beside it."""

from __future__ import annotations

import json
import traceback
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.decisions import Ownership
from lb_stream.contracts.reports import Ack, SplitAsk
from lb_stream.core.commands.responder import CommandAnswer, Received, refuse_all
from lb_stream.core.commands.settings import take_settings
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.blocks import Shard, from_bytes
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.view import ClusterView, NameOrder, name_order, view_of
from lb_stream.core.observing.outcomes import counting
from lb_stream.core.round.decide import Inbox, Round, decide, seed_of
from lb_stream.stream import figures
from lb_stream.stream.averages import read_shard
from lb_stream.stream.context import BatchContext
from lb_stream.stream.shards.block_files import Blocks
from lb_stream.stream.task.crash import crash_point
from lb_stream.stream.task.deadline import within

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
        ("results", pa.string()),
        ("memory", pa.string()),
        ("inputs", pa.string()),
        ("files", pa.string()),
        ("blocks", pa.string()),
        ("error", pa.string()),
        # Not logged: how many bundles there are, whether there is anything new to see, and whether nothing at all has happened.
        ("bundles", pa.int64()),
        ("sampled", pa.bool_()),
        ("idle", pa.bool_()),
    ]
)
ROUND_DDL = (
    "cluster string, seq bigint, epoch bigint, now_ms bigint, decisions string, outcomes string, ownership string, "
    "refusals string, results string, memory string, inputs string, files string, blocks string, error string, "
    "bundles bigint, sampled boolean, idle boolean"
)


def decide_clusters(batches: Iterable[pa.RecordBatch], context: BatchContext, task: str) -> Iterator[pa.RecordBatch]:
    """The rounds of all clusters of one task, and the files of their figures.

    `batches`: shards as the stateful stage emits them, all of a cluster in one task; `task` names it and its attempt. Yields rows of
    ROUND_SCHEMA.
    """
    given = list(batches)
    if not given:
        return
    shards = pa.Table.from_batches(given).sort_by([("cluster", "ascending"), ("shard", "ascending")])
    clusters = shards["cluster"].to_numpy(zero_copy_only=False)
    begins = [0, *(np.flatnonzero(clusters[1:] != clusters[:-1]) + 1).tolist()]
    taken = figures.FigureFiles(context, task)
    rows = [
        decide_cluster(shards.slice(begin, end - begin), context, taken)
        for begin, end in zip(begins, [*begins[1:], len(shards)], strict=True)
    ]
    taken.write(rows)
    yield from pa.Table.from_pylist(rows, ROUND_SCHEMA).to_batches()


def decide_cluster(rows: pa.Table, context: BatchContext, taken: figures.FigureFiles) -> dict[str, Any]:
    """One cluster's round in one batch. `rows`: its shards in order. Returns one row of ROUND_SCHEMA.

    Whatever goes wrong becomes the row's `error`, with nothing decided and the memory as it was: the other clusters don't notice. A cluster
    that fails again and again is suspended: no round is tried for a while, unless a command comes.
    """
    cluster = rows["cluster"][0].as_py()
    clock = json.loads(rows["clock"][0].as_py())
    now_ms = max(seen["append_ms"] for seen in clock)
    events = [event for block in rows["events"].to_pylist() if block is not None for event in from_bytes(block).to_pylist()]
    asks, commands = asks_of(_of_kind(events, "ask")), _commands(events)
    known = cluster in context.memories
    remembered = context.memories[cluster] if known else Memory(seq=context.first_seq).to_json()
    row: dict[str, Any] = {"cluster": cluster, "seq": 0, "epoch": context.epoch, "now_ms": now_ms, "memory": remembered, "error": None}
    row |= dict.fromkeys(("decisions", "outcomes", "ownership", "refusals", "results"), "[]") | {"files": "{}"}
    given = context.settings.of_cluster(cluster)
    times = {seen["partition"]: seen["append_ms"] for seen in clock if seen["topic"] == context.settings.topics.reports}
    inputs = {"offsets": _offsets(clock), "times": times, "caught_up": context.caught_up, "settings": given}
    inputs |= {"acks": [], "commands": [command.to_dict() for command in commands]}
    inputs["asks"] = [{"broker": broker, "payload": ask.to_json()} for broker, ask in asks]
    row["inputs"] = canonical_json(inputs)
    blocks = list(zip(*(rows[name].to_pylist() for name in ("brokers", "names", "values")), strict=True))
    row |= {"blocks": canonical_json(blocks), "bundles": 0, "sampled": False}
    try:
        taken.rejected(cluster, [*events, *context.unreadable.get(cluster, ())])
        if rows["brokers"].null_count:
            answers = _unanswered(commands, f"the cluster {cluster} has just been forgotten: nothing was heard of it", "unknown_cluster")
            return row | answers | _forgotten(cluster, now_ms, context) | {"idle": answers["idle"] and not known}
        memory = replace(Memory.from_json(remembered), epoch=context.epoch)
        acks, balances = counting(_acks(events), memory), _balances(events, memory)
        inputs |= {"acks": [ack.model_dump(mode="json") for ack in acks], "balances": balances}
        row["inputs"] = canonical_json(inputs)
        row["seq"] = memory.seq if known else 0
        if now_ms < memory.retry_ms and not commands:  # a command may be what mends it
            return row | {"idle": True}
        memory = replace(memory, errors=0, retry_ms=0)
        _raise_trouble(events)
        said = take_settings(memory, commands, given)
        view = cluster_view(context.settings.stream.checkpoint, cluster, blocks, now_ms, said.config, times)
        row["bundles"] = len(view.bundles)
        if not len(view.brokers):
            row |= _unanswered(commands, f"no broker of a cluster {cluster} has reported: is its name right?", "unknown_cluster")
        else:
            inbox = Inbox(acks, context.caught_up, said.commands, said.answers, asks, balances)
            with within(context.settings.stream.round_timeout_ms, "stream.round_timeout_ms"):
                made = decide(view, said.memory, inbox, said.config, now_ms, seed_of(cluster, memory.seq + 1))
            row["sampled"] = bool(view.brokers.sampled.any() or view.bundles.gained.any())
            if row["sampled"]:  # loads are written when there is something new to see
                taken.loads(view, made)
            row |= logged(made)
    except Exception as error:
        row |= _failed(error, remembered, now_ms, context)
        row |= _unanswered(commands, f"the round failed: {row['error'].splitlines()[-1]}", "round_failed")
    crash_point("in_decide")
    row["idle"] = not (row["sampled"] or row["error"]) and _nothing_happened(row, remembered)
    return row


def _forgotten(cluster: str, now_ms: int, context: BatchContext) -> dict[str, Any]:
    """What the log says when a cluster is forgotten: no memory, and that its bundles' ownership records are no more.

    A cluster's rounds are never more than the log's batches, of which this one is `log_seq + 1`: with that as its number, and as the
    least of whoever comes later, no round's number comes twice.
    """
    ends = [
        Ownership(cluster=cluster, bundle=bundle, state="Init", version=version, since_ms=now_ms, epoch=context.epoch)
        for bundle, version in sorted(context.recorded.get(cluster, {}).items())
    ]
    return {"memory": "", "seq": context.log_seq + 1, "blocks": "[]", "ownership": _records(ends)}


def _unanswered(commands: Iterable[Received], text: str, rule: str) -> dict[str, Any]:
    """The answers to a cluster's commands when there is no round."""
    answers = refuse_all(commands, text, rule)
    return {"results": _results(answers), "idle": not answers}


def _results(answers: Iterable[CommandAnswer]) -> str:
    return canonical_json([answer.to_dict() for answer in answers])


def _records(records: Iterable[Ownership]) -> str:
    return canonical_json([record.model_dump(mode="json") for record in records])


def _failed(error: Exception, remembered: str, now_ms: int, context: BatchContext) -> dict[str, Any]:
    """What a round that failed leaves: the error, and a memory that has counted it."""
    stream, text = context.settings.stream, "".join(traceback.format_exception(error)[-3:]).strip()
    try:
        before = Memory.from_json(remembered)
    except Exception:  # whoever wrote that memory: nothing can be added to it
        return {"error": text}
    before = replace(before, missed_ms=now_ms if before.missed_ms is None else before.missed_ms)
    errors = before.errors + 1
    if errors < stream.suspend_after_errors:
        return {"error": text, "memory": replace(before, epoch=context.epoch, errors=errors).to_json()}
    retry_ms = now_ms + stream.suspended_ms
    text += f"\nThe cluster is suspended for {stream.suspended_ms // 1000} s, as {errors} of its rounds have failed in a row."
    return {"error": text, "memory": replace(before, epoch=context.epoch, errors=errors, retry_ms=retry_ms).to_json()}


def cluster_view(
    checkpoint: str, cluster: str, blocks: list[Blocks], now_ms: int, config: ClusterConfig, times: Mapping[int, int]
) -> ClusterView:
    """What a cluster's rounds see of its shards' blocks; `times` as `view_of` has it.

    Raises FileNotFoundError; RuntimeError while a shard that began anew waits for reports.
    """
    shards = [read_shard(checkpoint, references) for references in blocks]
    order = None
    if len(shards) > 1:
        _raise_incomplete(shards, now_ms - config.balancer.report_timeout_ms)
        order = remembered_order(tuple(names for _, names, _ in blocks), [shard.bundles["name"] for shard in shards])
    return view_of(cluster, shards, now_ms, config.balancer.weights, order, times)


def _raise_incomplete(shards: Sequence[Shard], since_ms: int) -> None:
    """A report goes to every shard: one that lacks a broker's began anew since then, and the broker's bundles seem to be nobody's.

    A broker that hasn't been heard since then is not waited for.
    """
    reported = [_reported(shard, since_ms) for shard in shards]
    everywhere = set.intersection(*reported)
    if waiting := sorted(set.union(*reported) - everywhere):
        more = f" and {len(waiting) - 5} others" if len(waiting) > 5 else ""
        raise RuntimeError(
            f"a shard has begun anew, and its bundles are not known before these brokers report: {', '.join(waiting[:5])}{more}"
        )


def _reported(shard: Shard, since_ms: int) -> set[str]:
    brokers = shard.brokers
    return set(brokers["name"].filter(pc.and_(pc.greater(brokers["reported_ms"], 0), pc.greater(brokers["seen_ms"], since_ms))).to_pylist())


_ORDERS: OrderedDict[tuple[str, ...], NameOrder] = OrderedDict()
_ORDERS_KEPT = 4


def remembered_order(blocks: tuple[str, ...], names: list[pa.ChunkedArray]) -> NameOrder:
    """The order of the names in some shards' blocks.

    A worker remembers the last ones: blocks never change, and sorting a million names takes a second.
    """
    order = _ORDERS.pop(blocks, None) or name_order(names)
    _ORDERS[blocks] = order
    while len(_ORDERS) > _ORDERS_KEPT:
        _ORDERS.popitem(last=False)
    return order


def _nothing_happened(row: Mapping[str, Any], remembered: str) -> bool:
    """Nothing was said, and nothing is new to remember but the round's number: no line in the log, the next round takes its number."""
    if any(row[name] != "[]" for name in ("decisions", "outcomes", "ownership", "refusals", "results")):
        return False
    before, after = json.loads(remembered), json.loads(row["memory"])
    return bool(before | {"seq": 0, "epoch": 0} == after | {"seq": 0, "epoch": 0})


def _raise_trouble(events: list[dict[str, Any]]) -> None:
    for event in events:
        if event["kind"] == "error":
            raise RuntimeError(event["payload"])


def _of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The events of that kind, in their order."""
    found = [event for event in events if event["kind"] == kind]
    return sorted(found, key=lambda event: (event["append_ms"], event["partition"], event["offset"]))


def _acks(events: list[dict[str, Any]]) -> list[tuple[str, Ack]]:
    return [(event["broker"], Ack.model_validate_json(event["payload"])) for event in _of_kind(events, "ack")]


def _balances(events: list[dict[str, Any]], memory: Memory) -> dict[str, tuple[str, ...]]:
    """What heartbeats say of who balances by itself: of those who do, and of those who did."""
    beats = (one for one in _of_kind(events, "heartbeat") if one["broker"] in memory.balances or '"balances":["' in one["payload"])
    return {one["broker"]: tuple(json.loads(one["payload"]).get("balances", ())) for one in beats}


def asks_of(given: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, SplitAsk], ...]:
    """Broker and request, from events or from the log."""
    return tuple((one["broker"], SplitAsk.model_validate_json(one["payload"])) for one in given)


def _commands(events: list[dict[str, Any]]) -> tuple[Received, ...]:
    """The operators' commands, in their order."""
    commands = sorted((event for event in events if event["kind"] == "command"), key=lambda event: (event["partition"], event["offset"]))
    contents = [(event["append_ms"], json.loads(event["payload"])) for event in commands]
    return tuple(Received(append_ms, content["record"], content["rejected"]) for append_ms, content in contents)


def _offsets(clock: list[dict[str, Any]]) -> dict[str, dict[str, list[int]]]:
    """Topic → partition → first and last offset that this batch read."""
    read: dict[str, dict[str, list[int]]] = {}
    for seen in clock:
        read.setdefault(seen["topic"], {})[str(seen["partition"])] = [seen["first"], seen["last"]]
    return read


def logged(made: Round) -> dict[str, Any]:
    """A round as it stands in the log: the columns that it fills."""
    return {
        "seq": made.seq,
        "decisions": canonical_json([decision.model_dump(mode="json") for decision in made.decisions]),
        "outcomes": canonical_json([outcome.to_dict() for outcome in made.outcomes]),
        "ownership": _records(made.ownership),
        "refusals": canonical_json([refusal.to_dict() for refusal in made.refusals]),
        "results": _results(made.results),
        "memory": made.memory.to_json(),
    }
