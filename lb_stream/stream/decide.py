"""The deciding stage: a cluster's shards → its round, one row of the log, and figures beside it."""

from __future__ import annotations

import json
import time
import traceback
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.columns.rounds import EMPTY, ENTRY_COLUMNS, ROUND_SCHEMA, RoundRow
from lb_stream.contracts.decisions import Ownership
from lb_stream.core.averages.cluster_view import NameOrder, name_order, view_of
from lb_stream.core.commands.proposal_book import ProposalNews
from lb_stream.core.commands.responder import Received, refuse_all
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.outcomes import select_valid_acks
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.core.shadow.evaluate import ShadowInput
from lb_stream.core.splitting.merging import withdraw_advice
from lb_stream.settings.overrides import apply_setting_commands
from lb_stream.settings.shadows import resolve_shadow_config
from lb_stream.store import Store, checkpoint_of
from lb_stream.stream import figures
from lb_stream.stream.averages import read_shard
from lb_stream.stream.cluster_input import ClusterInput
from lb_stream.stream.context import BatchContext
from lb_stream.stream.shards.block_files import Blocks, OpenFiles
from lb_stream.stream.task.crash import crash_point
from lb_stream.stream.task.time_limits import ShadowBudget, time_limit


def decide_clusters(
    batches: Iterable[pa.RecordBatch], context: BatchContext, task: str
) -> Iterator[pa.RecordBatch]:
    """Yield the rounds of one task's clusters, rows of ROUND_SCHEMA, and write their figures.

    `batches`: shards as the stateful stage emits them, all of a cluster in one task. `task` names
    the task and its attempt.
    """
    given = list(batches)
    if not given:
        return
    shards = (
        pa.Table.from_batches(given)
        .sort_by([("cluster", "ascending"), ("shard", "ascending")])
        .to_pylist()
    )
    clusters = {cluster: list(rows) for cluster, rows in groupby(shards, itemgetter("cluster"))}
    context = context.of(clusters)
    taken = figures.FigureFiles(context, task)
    budget = ShadowBudget.from_percent(context.settings.stream.shadow_time_percent)
    blocks = OpenFiles(checkpoint_of(context.settings.stream))
    rounds = [decide_cluster(rows, context, taken, blocks, budget) for rows in clusters.values()]
    taken.write(rounds)
    yield from pa.Table.from_pylist([asdict(row) for row in rounds], ROUND_SCHEMA).to_batches()


def decide_cluster(
    rows: Sequence[Mapping[str, Any]],
    context: BatchContext,
    taken: figures.FigureFiles,
    blocks: OpenFiles,
    budget: ShadowBudget | None = None,
) -> RoundRow:
    """Return one cluster's round in one batch. `rows`: its shards in order.

    Whatever goes wrong becomes the row's `error`, with nothing decided and the memory as it was:
    the other clusters don't notice. A cluster that fails again and again is suspended: no round is
    tried for a while, unless a command comes.

    Once a round has been made that is to be logged, the cluster's shadows look at it, as long as
    `budget` lets them.
    """
    begin = time.perf_counter()
    arrived = ClusterInput.from_rows(rows)
    row = _begin_row(arrived, context)
    remembered = row.memory
    looked = None
    try:
        unreadable = context.poison_events.get(arrived.cluster, ())
        taken.add_rejected(arrived.cluster, [*arrived.events, *unreadable])
        if not arrived.heard:
            row.inputs = canonical_json(arrived.inputs(context))
            _forget(row, arrived.commands, context)
            return row
        memory = _memory(remembered, context.epoch)
        if arrived.cluster in context.memories:
            row.seq = memory.seq
        inbox = _open_inbox(row, arrived, memory, context)
        # A suspended cluster waits, unless there is a command: it may be what mends it.
        if row.now_ms < memory.retry_ms and not arrived.commands:
            row.idle = True
            return row
        arrived.raise_fold_error()
        looked = _make_round(row, arrived, memory, inbox, context, taken, blocks)
    except Exception as error:
        _fail(row, arrived, error, remembered, context)
    crash_point("in_decide")
    row.idle = not (row.sampled or row.error) and _nothing_happened(row, remembered)
    shadows = context.settings.shadows_of(arrived.cluster)
    if shadows and budget is not None and looked is not None and not row.idle:
        budget.earn(time.perf_counter() - begin)
        seen = budget.evaluate(looked, shadows, row.shadow_memory)
        row.shadows, row.shadow_memory = seen.shadows, seen.shadow_memory
    return row


def _begin_row(arrived: ClusterInput, context: BatchContext) -> RoundRow:
    """Return the log's row before the round is made: nothing is done, the memory is as it was."""
    cluster = arrived.cluster
    remembered = context.memories.get(cluster)
    row = RoundRow(
        cluster=cluster,
        epoch=context.epoch,
        now_ms=arrived.now_ms,
        memory=Memory(seq=context.first_seq).to_json() if remembered is None else remembered,
        inputs="",
        blocks=canonical_json(arrived.blocks),
    )
    if context.settings.shadows_of(cluster):
        row.shadow_memory = context.shadow_memories.get(cluster, row.shadow_memory)
    return row


def _memory(remembered: str, epoch: int) -> Memory:
    """Return what a cluster remembers, in the job's epoch."""
    memory = Memory.from_json(remembered)
    return memory if memory.epoch == epoch else replace(memory, epoch=epoch)


def _open_inbox(
    row: RoundRow, arrived: ClusterInput, memory: Memory, context: BatchContext
) -> Inbox:
    """Return what has come for the round, and put into the row what the round is given."""
    acks = select_valid_acks(arrived.acks, memory)
    balances = arrived.balances(memory)
    merging = arrived.merging(memory)
    inputs = arrived.inputs(context)
    inputs["acks"] = [ack.model_dump(mode="json") for ack in acks]
    inputs["balances"] = balances
    if merging:
        inputs["merging"] = merging
    row.inputs = canonical_json(inputs)
    return Inbox(acks, context.caught_up, arrived.commands, arrived.asks, balances, merging)


def _make_round(
    row: RoundRow,
    arrived: ClusterInput,
    memory: Memory,
    inbox: Inbox,
    context: BatchContext,
    taken: figures.FigureFiles,
    blocks: OpenFiles,
) -> ShadowInput | None:
    """Make the round and put it into the row. Return what shadows look at; None without a broker.

    The round starts from a memory without the failures that are counted in it.
    """
    cluster, settings = arrived.cluster, context.settings
    own = settings.of_cluster(cluster)
    begin = apply_setting_commands(own, memory, inbox)
    view = _complete_view(arrived, begin.config, settings.topics.reports, blocks)
    row.bundles = len(view.bundles)
    if not len(view.brokers):
        text = f"no broker of a cluster {cluster} has reported: is its name right?"
        row.results = _entries(refuse_all(inbox.commands, text, "unknown_cluster"))
        return None
    if memory.errors or memory.retry_ms:
        memory = replace(memory, errors=0, retry_ms=0)
    with time_limit(settings.stream.round_timeout_ms, "stream.round_timeout_ms"):
        made = decide(view, begin.memory, begin.inbox, begin.config)
    row.sampled = bool(view.brokers.sampled.any() or view.bundles.gained.any())
    if row.sampled:
        taken.add_loads(view, made)
    row.seq, row.memory = made.seq, made.memory.to_json()
    for name, entries in encode_entries(made).items():
        setattr(row, name, entries)
    of_shadow = partial(resolve_shadow_config, own, begin.memory.operator_state.settings)
    hold_ms = settings.stream.shadow_hold_ms
    return ShadowInput(view, made, begin.config, of_shadow, context.caught_up, hold_ms)


def _forget(row: RoundRow, commands: Iterable[Received], context: BatchContext) -> None:
    """Say in the row that a cluster is forgotten.

    It has no memory then, and its ownership records, merge advice and proposals are no more. A
    cluster's rounds are never more than the log's batches, of which this one is `log_seq + 1`: with
    that as its number, and as the least of whoever comes later, no round's number comes twice.
    """
    ends = [
        Ownership(
            cluster=row.cluster,
            bundle=bundle,
            state="Init",
            version=version,
            since_ms=row.now_ms,
            epoch=context.epoch,
        )
        for bundle, version in sorted(context.recorded.get(row.cluster, {}).items())
    ]
    known = row.cluster in context.memories
    try:
        memory = Memory.from_json(row.memory)
    except msgspec.DecodeError:  # what can't be read is forgotten all the same
        memory = Memory()
    text = f"the cluster {row.cluster} has just been forgotten: nothing was heard of it"
    answers = refuse_all(commands, text, "unknown_cluster")
    row.results, row.ownership = _entries(answers), _entries(ends)
    row.merge_advice = _entries(withdraw_advice(memory.mergeable, {}))
    row.proposals = _entries(
        ProposalNews(proposal, "withdrawn", why="the cluster has been forgotten")
        for proposal in memory.proposals
    )
    row.shadow_memory = "{}"
    row.memory, row.seq, row.blocks = "", context.log_seq + 1, EMPTY
    row.idle = not answers and not known


def _entries(made: Iterable[Any]) -> str:
    """Return the canonical JSON of a column of entries: in most rounds there are none."""
    entries = [
        entry.model_dump(mode="json") if isinstance(entry, BaseModel) else entry.to_dict()
        for entry in made
    ]
    return canonical_json(entries) if entries else EMPTY


def _fail(
    row: RoundRow, arrived: ClusterInput, error: Exception, remembered: str, context: BatchContext
) -> None:
    """Put into the row that its round failed, with a memory that has counted it."""
    _count_failure(row, error, remembered, context)
    row.inputs = row.inputs or canonical_json(arrived.inputs(context))
    text = f"the round failed: {str(row.error).splitlines()[-1]}"
    row.results = _entries(refuse_all(arrived.commands, text, "round_failed"))


def _count_failure(row: RoundRow, error: Exception, remembered: str, context: BatchContext) -> None:
    """Put into the row the error and a memory that has counted it; it may suspend the cluster."""
    stream = context.settings.stream
    row.error = "".join(traceback.format_exception(error)[-3:]).strip()
    row.memory = remembered
    try:
        before = Memory.from_json(remembered)
    except Exception:  # whoever wrote that memory: nothing can be added to it
        return
    errors = before.errors + 1
    after = replace(
        before,
        epoch=context.epoch,
        missed_ms=row.now_ms if before.missed_ms is None else before.missed_ms,
        errors=errors,
    )
    if errors >= stream.suspend_after_errors:
        after = replace(after, retry_ms=row.now_ms + stream.suspension_ms)
        row.error += (
            f"\nThe cluster is suspended for {stream.suspension_ms // 1000} s, "
            f"as {errors} of its rounds have failed in a row."
        )
    row.memory = after.to_json()


def _complete_view(
    arrived: ClusterInput, config: ClusterConfig, topic: str, blocks: OpenFiles
) -> ClusterView:
    """The cluster's view, once no shard waits for reports. `config`: the settings in force."""
    shards = read_shards(blocks, arrived.blocks)
    require_complete(shards, arrived.now_ms - config.balancer.report_timeout_ms)
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
    """Return what a round sees of its cluster's shards and of the blocks that they were read from.

    `weights`: those in force.
    """
    order = None
    if len(shards) > 1:
        order = cached_order(
            tuple(names for _, names, _ in blocks), [shard.bundles["name"] for shard in shards]
        )
    return view_of(cluster, shards, now_ms, weights, order, times)


def require_complete(shards: Sequence[Shard], since_ms: int) -> None:
    """Raise RuntimeError while a shard lacks the report of a broker that was heard since then.

    A report goes to every shard: one that lacks a broker's began anew, and the broker's bundles
    seem to have no owner.
    """
    if len(shards) < 2:
        return
    reported = [_reported(shard, since_ms) for shard in shards]
    everywhere = set.intersection(*reported)
    if waiting := sorted(set.union(*reported) - everywhere):
        more = f" and {len(waiting) - 5} others" if len(waiting) > 5 else ""
        raise RuntimeError(
            "a shard has begun anew, and its bundles are not known before these brokers report: "
            f"{', '.join(waiting[:5])}{more}"
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


def cached_order(blocks: tuple[str, ...], names: list[pa.ChunkedArray]) -> NameOrder:
    """Return the order of the names in some shards' blocks.

    A worker remembers the last ones: blocks never change, and sorting a million names takes a
    second.
    """
    order = _ORDERS.pop(blocks, None) or name_order(names)
    _ORDERS[blocks] = order
    while len(_ORDERS) > _ORDERS_KEPT:
        _ORDERS.popitem(last=False)
    return order


def _nothing_happened(row: RoundRow, remembered: str) -> bool:
    """Return whether nothing was said and nothing but the round's number is new to remember.

    Such a round has no line in the log, and the next one takes its number.
    """
    if any(getattr(row, name) != EMPTY for name in ENTRY_COLUMNS):
        return False
    before, after = json.loads(remembered), json.loads(row.memory)
    return bool(before | {"seq": 0, "epoch": 0} == after | {"seq": 0, "epoch": 0})


def encode_entries(made: Round) -> dict[str, str]:
    """Return what a round has made, as the log's columns of entries have it."""
    return {name: _entries(getattr(made, name)) for name in ENTRY_COLUMNS}
