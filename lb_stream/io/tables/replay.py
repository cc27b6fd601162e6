"""Decides logged rounds once more, and compares the results with the log.

A round's inputs are in the log: settings, acknowledgements, the memory of the round before. Only
the blocks of its view are not; they stay beside the checkpoint for `stream.keep_views` batches.
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
from lb_stream.core.commands.audited import TAKE_OVER, JobChange
from lb_stream.core.commands.responder import Received
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.decide import Inbox, decide
from lb_stream.core.shadow.evaluate import REAL, ShadowInput
from lb_stream.core.shadow.evaluate_all import replay_shadows
from lb_stream.io.kafka.checkpoint import checkpoint_uuid
from lb_stream.io.tables.delta import dataset, open_table
from lb_stream.settings.follow import follow_brokers
from lb_stream.settings.overrides import apply_setting_commands
from lb_stream.settings.shadows import resolve_shadow_config
from lb_stream.store import Store, checkpoint_of, tables_of
from lb_stream.stream.cluster_input import parse_asks
from lb_stream.stream.decide import encode_entries, without_failures
from lb_stream.stream.views import cluster_view, read_shards

Result = Literal["equal", "different", "view gone", "failed then"]
Remembered = tuple[str, str]
"""The memory of a cluster and that of its shadows, canonical JSON."""
Row = dict[str, Any]
"""A row of the log: column → value."""
Before = tuple[Row, Remembered, Store | None]
"""A row of the log, the memories before its round, and the checkpoint that may have its view.

None: the view was made with another checkpoint.
"""


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    """The result of deciding one logged round again.

    `differences`: column → its value in the log and its value now, where they differ.
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
    """What a logged round began with, after its commands about settings.

    `own`: the job's settings for the cluster; `inputs`: the round's inputs as logged.
    """

    view: ClusterView
    memory: Memory
    inbox: Inbox
    config: ClusterConfig
    own: dict[str, object]
    inputs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RoundFilter:
    """Which rounds are replayed: those that meet all conditions that are set.

    `since_ms`, `until_ms`: from this time on, and before that one, ms since the epoch.
    """

    batch_id: int | None = None
    since_ms: int | None = None
    cluster: str | None = None
    until_ms: int | None = None

    def filter(self) -> pc.Expression:
        """Return the conditions as a filter on the log."""
        condition = pc.scalar(True)
        if self.batch_id is not None:
            condition &= pc.field("batch_id") == self.batch_id
        if self.since_ms is not None:
            condition &= pc.field("now_ms") >= self.since_ms
        if self.until_ms is not None:
            condition &= pc.field("now_ms") < self.until_ms
        if self.cluster is not None:
            condition &= pc.field("cluster") == self.cluster
        return condition


def replay(stream: StreamSettings, wanted: RoundFilter) -> tuple[int, Iterator[ReplayedRound]]:
    """Return the number of rounds, and the result of each, in the order of the log."""
    total, rounds = _find_rounds(stream, wanted)
    return total, (_replay_round(*before) for before in rounds)


def load_round_starts(
    stream: StreamSettings, wanted: RoundFilter
) -> tuple[int, Iterator[tuple[Row, RoundStart | None]]]:
    """Return the number of rounds, and of each its row and what it began with, in the log's order.

    None: its view is gone, it has failed, or it knew no broker.
    """
    total, rounds = _find_rounds(stream, wanted)
    return total, ((before[0], _find_start(*before)) for before in rounds)


def _find_rounds(stream: StreamSettings, wanted: RoundFilter) -> tuple[int, Iterator[Before]]:
    log = dataset(open_table(tables_of(stream), ROUNDS))
    rows = (
        log.to_table(filter=wanted.filter())
        .sort_by([("log_seq", "ascending"), ("cluster", "ascending")])
        .to_pylist()
    )
    return sum(row["memory"] != "" for row in rows), _with_memories(
        log, rows, checkpoint_of(stream)
    )


def _with_memories(log: Dataset, rows: list[Row], checkpoint: Store) -> Iterator[Before]:
    """Yield each row with the memories before it. Rows of forgotten clusters are left out."""
    own = checkpoint_uuid(checkpoint)
    memories: dict[str, Remembered] = {}
    for row in rows:
        cluster = row["cluster"]
        memory, shadow_memory = memories.get(cluster) or _memory_before(log, row)
        memories[cluster] = row["memory"], row["shadow_memory"]
        if not row["memory"]:
            continue
        before = memory or Memory(seq=max(row["seq"] - 1, 0)).to_json(), shadow_memory
        is_own = row["app"].rpartition("/")[2] == own
        yield row, before, checkpoint if is_own else None


def _memory_before(log: Dataset, row: Row) -> Remembered:
    """Return the memories in the cluster's row before this one.

    The cluster's own is empty if there is no such row, or if the cluster was forgotten there.
    """
    before = (pc.field("cluster") == row["cluster"]) & (pc.field("log_seq") < row["log_seq"])
    found = log.to_table(["log_seq", "memory", "shadow_memory"], before).sort_by("log_seq")
    if not len(found):
        return "", "{}"
    last = found.slice(len(found) - 1).to_pylist()[0]
    return last["memory"], last["shadow_memory"]


def _replay_round(row: Row, remembered: Remembered, checkpoint: Store | None) -> ReplayedRound:
    result: Result
    differences: dict[str, tuple[str, str]] = {}
    if row["error"] is not None:
        result = "failed then"
    elif checkpoint is None:
        result = "view gone"
    else:
        try:
            now = _decide(row, remembered, checkpoint)
            differences = {name: (row[name], now[name]) for name in now if now[name] != row[name]}
            result = "different" if differences else "equal"
        except FileNotFoundError:
            result = "view gone"
    return ReplayedRound(
        row["cluster"],
        row["seq"],
        row["batch_id"],
        row["log_seq"],
        row["now_ms"],
        decisions=len(json.loads(row["decisions"])),
        result=result,
        differences=differences,
    )


def _find_start(row: Row, remembered: Remembered, checkpoint: Store | None) -> RoundStart | None:
    if row["error"] is not None or checkpoint is None:
        return None
    try:
        start = _load_start(row, remembered, checkpoint)
    except FileNotFoundError:
        return None
    return start if len(start.view.brokers) else None


def _load_start(row: Row, remembered: Remembered, checkpoint: Store) -> RoundStart:
    """Load what a round began with. Raises FileNotFoundError if its view is gone."""
    inputs = json.loads(row["inputs"])

    # What the round received, and the memory before it.
    inbox = Inbox(
        tuple(Ack.model_validate(ack) for ack in inputs["acks"]),
        inputs["caught_up"],
        tuple(Received(**command) for command in inputs["commands"]),
        parse_asks(inputs.get("asks", ())),
        {broker: tuple(keys) for broker, keys in inputs["balances"].items()},
        inputs.get("merging", {}),
        {broker: tuple(keys) for broker, keys in inputs.get("differing", {}).items()},
        job_changes=_parse_job_changes(inputs),
        awaited=tuple(inputs.get("awaited", ())),
        max_published=inputs.get("max_published"),
    )
    memory = without_failures(replace(Memory.from_json(remembered[0]), epoch=row["epoch"]))
    own = inputs["settings"]
    begin = apply_setting_commands(own, memory, inbox)

    # The view is made with the settings that are in force then.
    blocks = [(brokers, names, values) for brokers, names, values in json.loads(row["blocks"])]
    times = {int(partition): append_ms for partition, append_ms in inputs.get("times", {}).items()}
    shards = read_shards(checkpoint, blocks)
    weights = begin.config.balancer.weights
    view = cluster_view(row["cluster"], shards, blocks, row["now_ms"], weights, times)
    begin = follow_brokers(begin, own, view)
    return RoundStart(view, begin.memory, begin.inbox, begin.config, own, inputs)


def _parse_job_changes(inputs: dict[str, Any]) -> tuple[JobChange, ...]:
    given = inputs.get("took_over")
    return () if given is None else (JobChange(TAKE_OVER, given["by"], given["text"]),)


def _decide(row: Row, remembered: Remembered, checkpoint: Store) -> dict[str, str]:
    """Decide a round, and return the columns of the log; those of shadows if they evaluated it.

    Raises FileNotFoundError if its view is gone.
    """
    start = _load_start(row, remembered, checkpoint)
    if not len(start.view.brokers):
        return dict.fromkeys(ENTRY_COLUMNS, EMPTY) | {
            "memory": remembered[0],
            "results": row["results"],
        }
    result = decide(start.view, start.memory, start.inbox, start.config)
    columns = encode_entries(result) | {"memory": result.memory.to_json()}
    if any(entry["policy"] == REAL for entry in json.loads(row["shadows"])):
        overrides = start.memory.operator_state.settings
        profile = start.config.balancer.profile
        config_of = partial(resolve_shadow_config, start.own, overrides, profile)
        hold_ms = start.inputs["shadow_hold_ms"]
        given = ShadowInput(
            start.view, result, start.config, config_of, start.inbox.caught_up, hold_ms
        )
        shadows = replay_shadows(given, start.inputs["shadows"], remembered[1], row["shadows"])
        columns |= asdict(shadows)
    return columns
