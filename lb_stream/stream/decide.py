"""The deciding stage: from a cluster's shards to its round, a row of the log, and its figures."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Protocol

import msgspec
import pyarrow as pa
from pydantic import BaseModel

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.columns.rounds import EMPTY, ENTRY_COLUMNS, ROUND_SCHEMA, RoundRow
from lb_stream.contracts.decisions import Ownership
from lb_stream.contracts.settings import StreamSettings
from lb_stream.core.commands.audited import JobChange
from lb_stream.core.commands.proposal_book import ProposalNews
from lb_stream.core.commands.responder import Received, refuse_all
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.rollout import RolloutNews
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.outcomes import select_valid_acks
from lb_stream.core.ownership.ledger import MAX_PUBLISHED
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.core.shadow.evaluate import ShadowInput
from lb_stream.core.splitting.merging import withdraw_advice
from lb_stream.settings.follow import follow_brokers
from lb_stream.settings.overrides import apply_setting_commands
from lb_stream.settings.shadows import resolve_shadow_config
from lb_stream.store import checkpoint_of
from lb_stream.stream.averages_ahead import AveragesAhead
from lb_stream.stream.cluster_input import ClusterInput
from lb_stream.stream.context import BatchContext
from lb_stream.stream.figures import FigureFiles
from lb_stream.stream.shards.block_files import OpenFiles
from lb_stream.stream.task.crash import crash_point
from lb_stream.stream.task.time_limits import ShadowBudget, time_limit
from lb_stream.stream.views import ClusterViews


@dataclass(slots=True)
class RecordAllowance:
    """How many ownership records the next rounds of one task may add to those of their events.

    A round of a new cluster has up to MAX_PUBLISHED, a thousand clusters may be new at once, and
    the decisions of a batch can be read once all of its records are published. Clusters have their
    turn in the order of their names.
    """

    left: int

    @staticmethod
    def of_task(stream: StreamSettings) -> RecordAllowance:
        """Return the allowance of one deciding task, which suffices for one round in any case."""
        return RecordAllowance(
            max(MAX_PUBLISHED, stream.max_first_records // stream.shuffle_partitions)
        )

    def of_next_round(self) -> int | None:
        """Return the limit of the next round, at least 1; None: MAX_PUBLISHED, as of any round."""
        return None if self.left >= MAX_PUBLISHED else max(1, self.left)

    def spend(self, records: int) -> None:
        """Note the ownership records of a round; many are of events, as when a broker dies."""
        self.left -= min(records, MAX_PUBLISHED)


def decide_clusters(
    batches: Iterable[pa.RecordBatch], context: BatchContext, task: str
) -> Iterator[pa.RecordBatch]:
    """Yield the rounds of one task's clusters, rows of ROUND_SCHEMA, and write their figures.

    `batches`: shards as the stateful stage emits them, all of a cluster in one task. `task` names
    the task and its attempt.
    """
    shards = list(batches)
    if not shards:
        return
    rows = (
        pa.Table.from_batches(shards)
        .sort_by([("cluster", "ascending"), ("shard", "ascending")])
        .to_pylist()
    )
    clusters = {cluster: list(own) for cluster, own in groupby(rows, itemgetter("cluster"))}
    context = context.with_memories(clusters)
    figure_files = FigureFiles(context, task)
    allowance = RecordAllowance.of_task(context.settings.stream)
    budget = ShadowBudget.from_percent(context.settings.stream.shadow_time_percent)
    inputs = map(ClusterInput.from_rows, clusters.values())
    blocks = OpenFiles(checkpoint_of(context.settings.stream))
    with AveragesAhead(context, task) as ahead:
        views = ClusterViews(blocks, context.settings.topics.reports, ahead)
        rounds = [
            decide_cluster(own, context, figure_files, views, allowance, budget)
            for own in views.read_ahead(inputs)
        ]
        figure_files.write(rounds)
        ahead.name_files(rounds)
    columns = {name: [getattr(row, name) for row in rounds] for name in ROUND_SCHEMA.names}
    yield from pa.table(columns, ROUND_SCHEMA).to_batches()


def decide_cluster(
    cluster_input: ClusterInput,
    context: BatchContext,
    figure_files: FigureFiles,
    views: ClusterViews,
    allowance: RecordAllowance,
    budget: ShadowBudget | None = None,
) -> RoundRow:
    """Return the row of one cluster's round in one batch.

    An exception becomes the row's `error`: nothing is decided, the memory stays, and other clusters
    are not affected. After several failures in a row the cluster is suspended: it has no round for
    a while, unless a command comes. A logged round is followed by the cluster's shadows, which
    share `budget`. `allowance`: of the task's ownership records.
    """
    begin = time.perf_counter()
    row = _begin_row(cluster_input, context)
    remembered = row.memory
    shadow_input = None
    try:
        poison_events = context.poison_events.get(cluster_input.cluster, ())
        figure_files.add_rejected(cluster_input.cluster, [*cluster_input.events, *poison_events])
        if cluster_input.forgotten:
            row.inputs = canonical_json(cluster_input.logged_inputs(context))
            _forget(row, cluster_input.commands, context)
            return row
        before = Memory.from_json(remembered)
        memory = before if before.epoch == context.epoch else replace(before, epoch=context.epoch)
        if cluster_input.cluster in context.memories:
            row.seq = memory.seq
        took_over = context.took_over if 0 < before.epoch < context.epoch else None
        inbox = _open_inbox(row, cluster_input, memory, context, took_over, allowance)
        # A suspended cluster waits, unless there is a command, which may repair it.
        if row.now_ms < memory.retry_ms and not cluster_input.commands:
            row.idle = True
            return row
        cluster_input.raise_fold_error()
        shadow_input = _make_round(row, cluster_input, memory, inbox, context, figure_files, views)
        if shadow_input is not None:
            allowance.spend(len(shadow_input.made.ownership))
    except Exception as error:
        _fail(row, cluster_input, error, remembered, context)
    crash_point("in_decide")
    row.idle = not (row.sampled or row.error) and _is_unchanged(row, remembered)
    row.waits = row.waits and row.idle
    shadows = context.settings.shadows_of(cluster_input.cluster)
    if shadows and budget is not None and shadow_input is not None and not row.idle:
        budget.earn(time.perf_counter() - begin)
        columns = budget.evaluate(shadow_input, shadows, row.shadow_memory)
        row.shadows, row.shadow_memory = columns.shadows, columns.shadow_memory
    return row


def _begin_row(cluster_input: ClusterInput, context: BatchContext) -> RoundRow:
    """Return the row before the round: without entries, with the memory of the last round."""
    cluster = cluster_input.cluster
    remembered = context.memories.get(cluster)
    row = RoundRow(
        cluster=cluster,
        epoch=context.epoch,
        now_ms=cluster_input.now_ms,
        memory=Memory(seq=context.first_seq).to_json() if remembered is None else remembered,
        inputs="",
        blocks=canonical_json(cluster_input.blocks),
        missing_rosters=canonical_json(cluster_input.missing_rosters()),
    )
    if context.settings.shadows_of(cluster):
        row.shadow_memory = context.shadow_memories.get(cluster, row.shadow_memory)
    return row


def _open_inbox(
    row: RoundRow,
    cluster_input: ClusterInput,
    memory: Memory,
    context: BatchContext,
    took_over: JobChange | None,
    allowance: RecordAllowance,
) -> Inbox:
    """Return the records for the round, and put all of its inputs into the row."""
    acks = select_valid_acks(cluster_input.acks, memory)
    balances = cluster_input.balances(memory)
    merging = cluster_input.merging(memory)
    inputs = cluster_input.logged_inputs(context)
    inputs["acks"] = [ack.model_dump(mode="json") for ack in acks]
    inputs["balances"] = balances
    if merging:
        inputs["merging"] = merging
    differing = cluster_input.differing(memory)
    if differing:
        inputs["differing"] = differing
    if awaited := cluster_input.awaited(context):
        inputs["awaited"] = awaited
    max_published = allowance.of_next_round()
    if max_published is not None:
        inputs["max_published"] = max_published
    if took_over is not None:
        inputs["took_over"] = {"by": took_over.by, "text": took_over.text}
    row.inputs = canonical_json(inputs)
    return Inbox(
        acks,
        context.caught_up,
        cluster_input.commands,
        cluster_input.asks,
        balances,
        merging,
        differing,
        job_changes=() if took_over is None else (took_over,),
        awaited=awaited,
        max_published=max_published,
    )


def _make_round(
    row: RoundRow,
    cluster_input: ClusterInput,
    memory: Memory,
    inbox: Inbox,
    context: BatchContext,
    figure_files: FigureFiles,
    views: ClusterViews,
) -> ShadowInput | None:
    """Make the round and put it into the row.

    Returns the shadows' input; None: no broker of the cluster has reported.
    """
    cluster, settings = cluster_input.cluster, context.settings
    # The settings in force, and the view that they lead to.
    own = settings.of_cluster(cluster)
    begin = apply_setting_commands(own, memory, inbox)
    view = views.complete(cluster_input, begin.config)
    begin = follow_brokers(begin, own, view)
    row.bundles = len(view.bundles)
    row.confirmed = is_confirmed(view, memory)
    if not len(view.brokers):
        text = f"no broker of a cluster {cluster} has reported: is its name right?"
        row.results = _entries_json(refuse_all(inbox.commands, text, "unknown_cluster"))
        return None
    # The round.
    with time_limit(settings.stream.round_timeout_ms, "stream.round_timeout_ms"):
        made = decide(view, without_failures(begin.memory), begin.inbox, begin.config)
    # Its row and its figures.
    row.sampled = bool(view.brokers.sampled.any() or view.bundles.gained.any())
    if row.sampled:
        figure_files.add_loads(view, made)
    row.seq, row.memory = made.seq, made.memory.to_json()
    row.waits = context.caught_up and not made.memory.pending
    for name, entries in encode_entries(made).items():
        setattr(row, name, entries)
    overrides, profile = begin.memory.operator_state.settings, begin.config.balancer.profile
    of_shadow = partial(resolve_shadow_config, own, overrides, profile)
    hold_ms = settings.stream.shadow_hold_ms
    return ShadowInput(view, made, begin.config, of_shadow, context.caught_up, hold_ms)


def is_confirmed(view: ClusterView, memory: Memory) -> bool:
    """Return whether more than one report of one broker has been heard of a cluster.

    Anything that comes after the cluster's first round confirms it.
    """
    if len(view.brokers) != 1 or memory.first_ms is None:
        return len(view.brokers) > 1
    return bool((view.brokers.seen_ms > memory.first_ms).any())


def without_failures(memory: Memory) -> Memory:
    """Return a memory that counts no failed rounds."""
    if not (memory.errors or memory.retry_ms):
        return memory
    return replace(memory, errors=0, retry_ms=0)


def _forget(row: RoundRow, commands: Iterable[Received], context: BatchContext) -> None:
    """Note in the row that a cluster is forgotten: it has no memory any more.

    Its ownership records, merge advice, proposals and rollout end with it. The row's `seq` is the
    number of the batch in the log, from 1: no cluster has had a higher one, as a cluster has at
    most one round in a batch. Later clusters count on from it, so no `seq` comes twice.
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
        for bundle, version in sorted(context.ownership_versions.get(row.cluster, {}).items())
    ]
    known = row.cluster in context.memories
    try:
        memory = Memory.from_json(row.memory)
    except msgspec.DecodeError:
        # A cluster whose memory can't be read is forgotten all the same.
        memory = Memory()
    text = f"the cluster {row.cluster} has just been forgotten, as no broker of it reports any more"
    answers = refuse_all(commands, text, "unknown_cluster")
    row.results = _entries_json(answers)
    row.ownership = _entries_json(ends)
    row.merge_advice = _entries_json(withdraw_advice(memory.mergeable, {}))
    row.proposals = _entries_json(
        ProposalNews(proposal, "withdrawn", why="the cluster has been forgotten")
        for proposal in memory.proposals
    )
    if (order := memory.operator_state.rollout) is not None:
        why = "the cluster has been forgotten"
        row.rollout = _entries_json([RolloutNews(order.id, None, "aborted", row.now_ms, why)])
    row.shadow_memory = "{}"
    row.memory = ""
    row.seq = context.log_seq + 1
    row.blocks = EMPTY
    row.idle = not answers and not known


class _Loggable(Protocol):
    """An entry of a log's column that isn't a pydantic model."""

    def to_dict(self) -> dict[str, object]:
        """Return the fields of the entry as a JSON object."""


def _entries_json(made: Iterable[BaseModel | _Loggable]) -> str:
    """Return entries as a column of the log; most rounds have none."""
    entries = [
        entry.model_dump(mode="json") if isinstance(entry, BaseModel) else entry.to_dict()
        for entry in made
    ]
    return canonical_json(entries) if entries else EMPTY


def _fail(
    row: RoundRow,
    cluster_input: ClusterInput,
    error: Exception,
    remembered: str,
    context: BatchContext,
) -> None:
    """Note in the row that its round has failed, and refuse the round's commands."""
    _count_failure(row, error, remembered, context)
    row.inputs = row.inputs or canonical_json(cluster_input.logged_inputs(context))
    text = f"the round failed: {str(row.error).splitlines()[-1]}"
    row.results = _entries_json(refuse_all(cluster_input.commands, text, "round_failed"))


def _count_failure(row: RoundRow, error: Exception, remembered: str, context: BatchContext) -> None:
    """Note in the row the error, and a memory that counts it; it may suspend the cluster."""
    stream = context.settings.stream
    row.error = "".join(traceback.format_exception(error)[-3:]).strip()
    row.memory = remembered
    try:
        before = Memory.from_json(remembered)
    except Exception:
        # Nothing can be added to a memory that can't be read.
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


def _is_unchanged(row: RoundRow, remembered: str) -> bool:
    """Return whether the round has no entries, and its memory differs at most in seq and epochs.

    Such a round is not logged, and the next one has the same `seq`.
    """
    if any(getattr(row, name) != EMPTY for name in ENTRY_COLUMNS):
        return False
    return _without_numbers(remembered) == _without_numbers(row.memory)


def _without_numbers(memory: str) -> dict[str, object]:
    """Return a memory as an object of JSON, without the numbers of round and job."""
    fields: dict[str, object] = json.loads(memory) | {"seq": 0, "epoch": 0}
    own = fields.get("own_settings")
    return fields | ({"own_settings": own | {"epoch": 0}} if isinstance(own, dict) else {})


def encode_entries(made: Round) -> dict[str, str]:
    """Return the log's columns of entries for a round."""
    return {name: _entries_json(getattr(made, name)) for name in ENTRY_COLUMNS}
