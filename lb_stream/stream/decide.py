"""The deciding stage: all shards of a cluster → its round, as one row of the log, and figures as Parquet files beside it."""

from __future__ import annotations

import json
import time
import traceback
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.decisions import Ownership
from lb_stream.core.averages.cluster_view import NameOrder, name_order, view_of
from lb_stream.core.commands.proposal_book import ProposalNews
from lb_stream.core.commands.responder import CommandAnswer, Received, refuse_all
from lb_stream.core.commands.settings import config_before, config_of
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory, Mergeable, Proposal
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.outcomes import counting
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.core.shadow.every import NOTHING
from lb_stream.core.shadow.look_on import Looked
from lb_stream.core.splitting.merging import withdrawn
from lb_stream.store import Store, checkpoint_of
from lb_stream.stream import figures
from lb_stream.stream.arrived import Arrived
from lb_stream.stream.averages import read_shard
from lb_stream.stream.context import BatchContext
from lb_stream.stream.shards.block_files import Blocks, OpenFiles
from lb_stream.stream.task.allowance import Allowance, within
from lb_stream.stream.task.crash import crash_point

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
        ("shadows", pa.string()),
        ("shadow_memory", pa.string()),
        ("merge_advice", pa.string()),
        ("proposals", pa.string()),
        # Not logged: how many bundles there are, whether there is anything new to see, and whether nothing at all has happened.
        ("bundles", pa.int64()),
        ("sampled", pa.bool_()),
        ("idle", pa.bool_()),
    ]
)
ROUND_DDL = (
    "cluster string, seq bigint, epoch bigint, now_ms bigint, decisions string, outcomes string, ownership string, "
    "refusals string, results string, memory string, inputs string, files string, blocks string, error string, "
    "shadows string, shadow_memory string, merge_advice string, proposals string, bundles bigint, sampled boolean, idle boolean"
)


def decide_clusters(
    batches: Iterable[pa.RecordBatch], context: BatchContext, task: str
) -> Iterator[pa.RecordBatch]:
    """The rounds of all clusters of one task, and the files of their figures.

    `batches`: shards as the stateful stage emits them, all of a cluster in one task; `task` names it and its attempt. Yields rows of
    ROUND_SCHEMA.
    """
    given = list(batches)
    if not given:
        return
    shards = (
        pa.Table.from_batches(given)
        .sort_by([("cluster", "ascending"), ("shard", "ascending")])
        .to_pylist()
    )
    clusters = {cluster: list(some) for cluster, some in groupby(shards, itemgetter("cluster"))}
    context = context.of(clusters)
    taken, allowance = (
        figures.FigureFiles(context, task),
        Allowance.of(context.settings.stream.shadow_share_percent),
    )
    blocks = OpenFiles(checkpoint_of(context.settings.stream))
    rows = [decide_cluster(some, context, taken, blocks, allowance) for some in clusters.values()]
    taken.write(rows)
    yield from pa.Table.from_pylist(rows, ROUND_SCHEMA).to_batches()


def decide_cluster(
    rows: Sequence[Mapping[str, Any]],
    context: BatchContext,
    taken: figures.FigureFiles,
    blocks: OpenFiles,
    allowance: Allowance | None = None,
) -> dict[str, Any]:
    """One cluster's round in one batch. `rows`: its shards in order. Returns one row of ROUND_SCHEMA.

    Whatever goes wrong becomes the row's `error`, with nothing decided and the memory as it was: the other clusters don't notice. A cluster
    that fails again and again is suspended: no round is tried for a while, unless a command comes.

    Once a round has been made that is to be logged, the cluster's shadows look at it, as long as `allowance` lets them.
    """
    begin = time.perf_counter()
    arrived = Arrived.of(rows)
    cluster, now_ms = arrived.cluster, arrived.now_ms
    known = cluster in context.memories
    remembered = context.memories[cluster] if known else Memory(seq=context.first_seq).to_json()
    inputs = arrived.inputs(context)
    row: dict[str, Any] = {
        "cluster": cluster,
        "seq": 0,
        "epoch": context.epoch,
        "now_ms": now_ms,
        "memory": remembered,
        "error": None,
    }
    row |= _NOTHING_DONE | {"inputs": None, "blocks": canonical_json(arrived.blocks)}
    if shadows := context.settings.shadows_of(cluster):
        row["shadow_memory"] = context.shadow_memories.get(cluster, row["shadow_memory"])
    looked = None
    try:
        taken.rejected(cluster, [*arrived.events, *context.unreadable.get(cluster, ())])
        if not arrived.heard:
            text = f"the cluster {cluster} has just been forgotten: nothing was heard of it"
            answers = _unanswered(arrived.commands, text, "unknown_cluster") | {
                "inputs": canonical_json(inputs)
            }
            return (
                row
                | answers
                | _forgotten(cluster, now_ms, context)
                | {"idle": answers["idle"] and not known}
            )
        memory = _memory(remembered, context.epoch)
        acks, balances, merging = (
            counting(arrived.acks, memory),
            arrived.balances(memory),
            arrived.merging(memory),
        )
        more = {"acks": [ack.model_dump(mode="json") for ack in acks], "balances": balances} | (
            {"merging": merging} if merging else {}
        )
        row |= {"inputs": canonical_json(inputs | more), "seq": memory.seq if known else 0}
        if now_ms < memory.retry_ms and not arrived.commands:  # a command may be what mends it
            return row | {"idle": True}
        arrived.raise_trouble()
        inbox = Inbox(acks, context.caught_up, arrived.commands, arrived.asks, balances, merging)
        memory = (
            replace(memory, errors=0, retry_ms=0) if memory.errors or memory.retry_ms else memory
        )
        looked = _decide(row, arrived, memory, inbox, context, taken, blocks)
    except Exception as error:
        row |= {"inputs": row["inputs"] or canonical_json(inputs)} | _failed(
            error, remembered, now_ms, context
        )
        row |= _unanswered(
            arrived.commands, f"the round failed: {row['error'].splitlines()[-1]}", "round_failed"
        )
    crash_point("in_decide")
    row["idle"] = not (row["sampled"] or row["error"]) and _nothing_happened(row, remembered)
    if shadows and allowance is not None and looked is not None and not row["idle"]:
        allowance.earn(time.perf_counter() - begin)
        row |= allowance.look(looked, shadows, row["shadow_memory"])
    return row


def _memory(remembered: str, epoch: int) -> Memory:
    """What a cluster remembers, in the job's epoch."""
    memory = Memory.from_json(remembered)
    return memory if memory.epoch == epoch else replace(memory, epoch=epoch)


_NOTHING_DONE = (
    dict.fromkeys(
        ("decisions", "outcomes", "ownership", "refusals", "results", "merge_advice", "proposals"),
        "[]",
    )
    | {"files": "{}", "bundles": 0, "sampled": False}
    | NOTHING
)
"""What the log says of a round before it is made."""


def _decide(
    row: dict[str, Any],
    arrived: Arrived,
    memory: Memory,
    inbox: Inbox,
    context: BatchContext,
    taken: figures.FigureFiles,
    blocks: OpenFiles,
) -> Looked | None:
    """Make the round and put it into the log's row. Returns what shadows look at; None without a broker."""
    cluster, settings = arrived.cluster, context.settings
    config = config_of(settings.of_cluster(cluster))
    view = _complete_view(arrived, config_before(memory, config), settings.topics.reports, blocks)
    row["bundles"] = len(view.bundles)
    if not len(view.brokers):
        row |= _unanswered(
            inbox.commands,
            f"no broker of a cluster {cluster} has reported: is its name right?",
            "unknown_cluster",
        )
        return None
    with within(settings.stream.round_timeout_ms, "stream.round_timeout_ms"):
        made = decide(view, memory, inbox, config)
    row["sampled"] = bool(view.brokers.sampled.any() or view.bundles.gained.any())
    if row["sampled"]:  # loads are written when there is something new to see
        taken.loads(view, made)
    row |= logged(made)
    return Looked(view, made, config, context.caught_up, settings.stream.shadow_hold_ms)


def _forgotten(cluster: str, now_ms: int, context: BatchContext) -> dict[str, Any]:
    """What the log says when a cluster is forgotten: no memory, and that its ownership records, merge advice and proposals are no more.

    A cluster's rounds are never more than the log's batches, of which this one is `log_seq + 1`: with that as its number, and as the
    least of whoever comes later, no round's number comes twice.
    """
    ends = [
        Ownership(
            cluster=cluster,
            bundle=bundle,
            state="Init",
            version=version,
            since_ms=now_ms,
            epoch=context.epoch,
        )
        for bundle, version in sorted(context.recorded.get(cluster, {}).items())
    ]
    mergeable: dict[str, Mergeable] = {}
    news: list[ProposalNews] = []
    with suppress(
        ValueError, TypeError, KeyError
    ):  # whose memory can't be read is forgotten all the same
        memory = json.loads(context.memories.get(cluster, "{}"))
        mergeable = {bundle: Mergeable(*row) for bundle, row in memory.get("mergeable", {}).items()}
        waiting = map(Proposal.of, memory.get("proposals", ()))
        news = [
            ProposalNews(proposal, "withdrawn", why="the cluster has been forgotten")
            for proposal in waiting
        ]
    advice = withdrawn(mergeable, {})
    said = {"ownership": _records(ends), "merge_advice": _list(one.to_dict() for one in advice)}
    said |= {"proposals": _list(one.to_dict() for one in news)}
    return NOTHING | said | {"memory": "", "seq": context.log_seq + 1, "blocks": "[]"}


def _unanswered(commands: Iterable[Received], text: str, rule: str) -> dict[str, Any]:
    """The answers to a cluster's commands when there is no round."""
    answers = refuse_all(commands, text, rule)
    return {"results": _results(answers), "idle": not answers}


def _results(answers: Iterable[CommandAnswer]) -> str:
    return _list(answer.to_dict() for answer in answers)


def _records(records: Iterable[Ownership]) -> str:
    return _list(record.model_dump(mode="json") for record in records)


def _list(entries: Iterable[dict[str, Any]]) -> str:
    """Their JSON: of most there is nothing to say in most rounds."""
    every = list(entries)
    return canonical_json(every) if every else "[]"


def _failed(
    error: Exception, remembered: str, now_ms: int, context: BatchContext
) -> dict[str, Any]:
    """What a round that failed leaves: the error, and a memory that has counted it."""
    stream, text = context.settings.stream, "".join(traceback.format_exception(error)[-3:]).strip()
    try:
        before = Memory.from_json(remembered)
    except Exception:  # whoever wrote that memory: nothing can be added to it
        return {"error": text}
    before = replace(before, missed_ms=now_ms if before.missed_ms is None else before.missed_ms)
    errors = before.errors + 1
    if errors < stream.suspend_after_errors:
        return {
            "error": text,
            "memory": replace(before, epoch=context.epoch, errors=errors).to_json(),
        }
    retry_ms = now_ms + stream.suspended_ms
    text += f"\nThe cluster is suspended for {stream.suspended_ms // 1000} s, as {errors} of its rounds have failed in a row."
    return {
        "error": text,
        "memory": replace(before, epoch=context.epoch, errors=errors, retry_ms=retry_ms).to_json(),
    }


def _complete_view(
    arrived: Arrived, config: ClusterConfig, topic: str, blocks: OpenFiles
) -> ClusterView:
    """The cluster's view, once no shard waits for reports. `config`: the settings before the round's commands."""
    shards = read_shards(blocks, arrived.blocks)
    raise_incomplete(shards, arrived.now_ms - config.balancer.report_timeout_ms)
    times = arrived.clock.times(topic)
    return cluster_view(
        arrived.cluster, shards, arrived.blocks, arrived.now_ms, config.balancer.weights, times
    )


def read_shards(checkpoint: Store | OpenFiles, blocks: Iterable[Blocks]) -> list[Shard]:
    """A cluster's shards. Raises FileNotFoundError."""
    return [read_shard(checkpoint, references) for references in blocks]


def cluster_view(
    cluster: str,
    shards: Sequence[Shard],
    blocks: Iterable[Blocks],
    now_ms: int,
    weights: Mapping[str, float],
    times: Mapping[int, int],
) -> ClusterView:
    """What a round sees of its cluster's shards, and of the blocks that they were read from; `times` as `view_of` has it.

    `weights`: those before the round's commands. A round whose commands change them weighs the usages anew.
    """
    order = None
    if len(shards) > 1:
        order = remembered_order(
            tuple(names for _, names, _ in blocks), [shard.bundles["name"] for shard in shards]
        )
    return view_of(cluster, shards, now_ms, weights, order, times)


def raise_incomplete(shards: Sequence[Shard], since_ms: int) -> None:
    """A report goes to every shard: one that lacks a broker's began anew since then, and the broker's bundles seem to be nobody's.

    A broker that hasn't been heard since then is not waited for. Raises RuntimeError while there is such a shard.
    """
    if len(shards) < 2:
        return
    reported = [_reported(shard, since_ms) for shard in shards]
    everywhere = set.intersection(*reported)
    if waiting := sorted(set.union(*reported) - everywhere):
        more = f" and {len(waiting) - 5} others" if len(waiting) > 5 else ""
        raise RuntimeError(
            f"a shard has begun anew, and its bundles are not known before these brokers report: {', '.join(waiting[:5])}{more}"
        )


def _reported(shard: Shard, since_ms: int) -> set[str]:
    brokers = shard.brokers
    return set(
        brokers["name"]
        .filter(
            pc.and_(pc.greater(brokers["reported_ms"], 0), pc.greater(brokers["seen_ms"], since_ms))
        )
        .to_pylist()
    )


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
    if any(
        row[name] != "[]" for name in ("decisions", "outcomes", "ownership", "refusals", "results")
    ):
        return False
    before, after = json.loads(remembered), json.loads(row["memory"])
    return bool(before | {"seq": 0, "epoch": 0} == after | {"seq": 0, "epoch": 0})


def logged(made: Round) -> dict[str, Any]:
    """A round as it stands in the log: the columns that it fills."""
    return {
        "seq": made.seq,
        "decisions": _list(decision.model_dump(mode="json") for decision in made.decisions),
        "outcomes": _list(outcome.to_dict() for outcome in made.outcomes),
        "ownership": _records(made.ownership),
        "refusals": _list(refusal.to_dict() for refusal in made.refusals),
        "results": _results(made.results),
        "memory": made.memory.to_json(),
        "merge_advice": _list(advice.to_dict() for advice in made.merge_advice),
        "proposals": _list(proposal.to_dict() for proposal in made.proposals),
    }
