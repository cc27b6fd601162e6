"""The stateful stage: folds a batch's records into the averages of each shard.

Each shard of a large cluster is a key of Spark's state. All small clusters in one partition of
Spark are one key. Brokers and bundles are Arrow blocks in files. The state of a shard has
references to its blocks. A cluster's only shard has no state: the references come with its rows.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import Row

from lb_stream.contracts.base import canonical_json
from lb_stream.core.averages import FoldConfig, fold, fold_together
from lb_stream.core.averages.brokers import LastBrokers, has_signs_of_life
from lb_stream.core.averages.copies import drop_copies
from lb_stream.core.model.blocks import (
    EVENT_SCHEMA,
    NO_EVENTS,
    Batch,
    Shard,
    from_bytes,
    to_bytes,
)
from lb_stream.store import Store
from lb_stream.stream.gathering import (
    MemberRow,
    TaskRow,
    count_samples,
    gather_batch,
    gather_batches,
)
from lb_stream.stream.rows import ClusterEvent, PartitionClock
from lb_stream.stream.shard_blocks import ALL_CLUSTERS
from lb_stream.stream.shards.block_files import BlockRefs, OpenFiles, file_name, read_block
from lb_stream.stream.shards.changed_rows import is_small
from lb_stream.stream.shards.shard_files import ShardChange, ShardWriter, read_shard, reshard
from lb_stream.stream.task.crash import crash_point
from lb_stream.stream.task.current_task import current_task
from lb_stream.stream.task.memory import return_memory
from lb_stream.stream.task.processor import KeyState

logger = logging.getLogger(__name__)

SHARD_DDL = (
    "cluster string, shard int, clock string, brokers string, names string, values string, "
    "events binary"
)

FOLDED_BUNDLES = 1 << 16
"""Small clusters are folded in one pass until they have this many bundles together."""


class Folding:
    """Folds a batch's records into the shards of one task, and emits references to their blocks.

    A leaving cluster has neither state nor blocks after a batch without records of it. Unchanged
    blocks are not written again, so an idle shard costs one read of its state. `settings_tag`: a
    part of the files' names, which differs for other settings of averages, so that a batch that
    runs again with other settings writes other files.
    """

    def __init__(
        self,
        configs: Mapping[str, FoldConfig],
        default: FoldConfig,
        checkpoint: Store,
        settings_tag: str,
        epoch: int,
    ) -> None:
        self._configs, self._default = configs, default
        self._checkpoint, self._tag, self._epoch = checkpoint, settings_tag, epoch

    def begin(self, state: KeyState) -> None:
        """Prepare for a task's first key."""
        self._state = state
        batch_id, partition, _ = current_task()
        name = file_name(batch_id, self._epoch, f"{partition}-{self._tag}")
        self._clock: list[PartitionClock] = []
        self._blocks: dict[str, pa.Table] = {}
        self._brokers = LastBrokers()
        self._files = OpenFiles(self._checkpoint)
        self._writer = ShardWriter(self._files, name)

    def fold(self, key: tuple[str, int], rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the shards of one key (cluster, slot). `rows`: one of each decoding task.

        Keys come in their order. The first key, of all clusters, has the clock, which is the
        offsets that all tasks have read; without a clock they have read nothing. It also has the
        clusters of one shard, which need no state.
        """
        cluster, given = key[0], list(rows)
        if cluster == ALL_CLUSTERS:
            self._clock = merge_clocks(
                clock for row in given if row.clock is not None for clock in json.loads(row.clock)
            )
            self._clock_json = canonical_json(self._clock)
            self._now_ms = max((clock["append_ms"] for clock in self._clock), default=0)
            if self._clock:
                yield from self._fold_members(given)
        elif self._clock:
            yield self._fold_key(cluster, given)
        elif any(row.first for row in given):
            raise RuntimeError(
                f"the shard of {cluster} came before the clock: Spark no longer sorts the rows of "
                "a stateful stage"
            )

    def _fold_members(self, given: list[Row]) -> Iterator[Row]:
        """Yield the clusters of one shard, folded together about FOLDED_BUNDLES at a time."""
        rows: dict[str, list[MemberRow]] = {}
        for row in given:
            members = from_bytes(row.members).to_pylist() if row.members is not None else ()
            first = row.first
            for member in members:
                rows.setdefault(member["cluster"], []).append(MemberRow(**member, first=first))
        works: list[_ShardWork] = []
        bundles = 0
        for cluster in sorted(rows):
            work = self._begin_member(cluster, rows[cluster])
            works.append(work)
            bundles += max(len(work.shard.bundles), count_samples(work.rows))
            if bundles >= FOLDED_BUNDLES:
                yield from self._fold_together(works)
                works, bundles = [], 0
        yield from self._fold_together(works)

    def _begin_member(self, cluster: str, given: list[MemberRow]) -> _ShardWork:
        """Return the work on a cluster's only shard, read from its blocks; it has no batch yet."""
        work = _ShardWork(cluster, 0, given)
        brokers, names, values = given[0].blocks
        blocks = (brokers, names, values)
        try:
            work.shard, work.error = _read_or_begin_anew(lambda: read_shard(self._files, blocks))
            work.blocks = blocks if work.error is None else None
        except Exception as error:
            work.failed, work.error = True, error
        return work

    def _fold_together(self, works: list[_ShardWork]) -> Iterator[Row]:
        """Fold shards of different clusters in one pass, write them, and yield their rows.

        If a pass fails, each is folded separately, so that only the cluster that fails is affected.
        """
        batches = gather_batches([work.rows for work in works], self._read_once)
        for work, batch in zip(works, batches, strict=True):
            work.add_batch(batch)
        by_config: dict[FoldConfig, list[_ShardWork]] = {}
        for work in works:
            if not work.failed:
                config = self._configs.get(work.cluster, self._default)
                by_config.setdefault(config, []).append(work)
        for config, some in by_config.items():
            try:
                folded = fold_together(
                    [work.shard for work in some],
                    [work.batch for work in some],
                    self._now_ms,
                    config,
                )
            except Exception:
                logger.exception(
                    "%d clusters could not be folded together: each is folded separately", len(some)
                )
                continue
            for work, result in zip(some, folded, strict=True):
                work.take(result)
        for work in works:
            self._fold_alone(work)
        self._write_together([work for work in works if work.is_small()])
        for work in works:
            if not work.is_small():
                self._write_alone(work)
        yield from map(self._row, works)

    def _fold_alone(self, work: _ShardWork) -> None:
        """Fold the shard, unless that is done.

        An error is kept for the cluster's round, and other clusters are not affected.
        """
        if work.failed or work.folded is not None:
            return
        try:
            config = self._configs.get(work.cluster, self._default)
            work.take(fold(work.shard, work.batch, self._now_ms, config, self._brokers))
        except Exception as error:
            work.error = error

    def _write_together(self, works: Sequence[_ShardWork]) -> None:
        """Write small shards that are folded. If that fails, each is written separately.

        Where the store or the memory fails, the task fails, and Spark runs it again: so a task that
        succeeds has always written the same bytes.
        """
        try:
            blocks = self._writer.write_together([work.change() for work in works])
        except (OSError, MemoryError):
            raise
        except Exception:
            logger.exception(
                "%d clusters could not be written together: each is written separately", len(works)
            )
            for work in works:
                self._write_alone(work)
            return
        for work, references in zip(works, blocks, strict=True):
            work.blocks = references

    def _write_alone(self, work: _ShardWork) -> None:
        """Write the shard, if it is folded. An error is kept for the cluster's round."""
        if work.folded is None:
            return
        try:
            work.blocks = self._writer.write(work.change())
        except Exception as error:
            work.error = error

    def _row(self, work: _ShardWork) -> Row:
        """Return one shard's row. Only shard 0 has the clock and events; any may have an error."""
        events = work.events
        if work.error is not None:
            events = pa.concat_tables([events, _error_event(work.error, self._now_ms)])
        brokers, names, values = work.blocks or ("", "", "")
        is_first = work.number == 0
        has_events = is_first or work.error is not None
        return Row(
            cluster=work.cluster,
            shard=work.number,
            clock=self._clock_json if is_first else None,
            brokers=brokers,
            names=names,
            values=values,
            events=_encode_events(events) if has_events else None,
        )

    def _fold_key(self, cluster: str, given: list[Row]) -> Row:
        """Return the row of a shard that has a state."""
        number, shards, inherited = given[0].shard, given[0].shards, given[0].inherited
        # Drop the state of a cluster that is new to this pipeline: another one has balanced it.
        state = self._state.get()
        if state is not None and not given[0].known:
            self._state.clear()
            state = None
        # Forget a leaving cluster without records.
        batch = gather_batch(given, self._read_once)
        if given[0].leaving and not has_signs_of_life(batch):
            self._state.clear()
            return Row(
                cluster=cluster,
                shard=number,
                clock=self._clock_json,
                brokers=None,
                names=None,
                values=None,
                events=to_bytes(batch.events) if number == 0 else None,
            )
        # The shard before the batch: inherited from other shards' blocks, or read from its own.
        work = _ShardWork(cluster, number, given)
        try:
            if inherited is not None:
                work.shard, work.error = _read_or_begin_anew(
                    lambda: reshard(self._checkpoint, json.loads(inherited), number, shards)
                )
            elif state is not None and state[0] != shards:
                raise RuntimeError(
                    f"the state was written for {state[0]} shards, now there are {shards}, "
                    "and no blocks are inherited"
                )
            elif state is not None:
                work.shard, work.error = _read_or_begin_anew(
                    lambda: read_shard(self._files, state[1:])
                )
                work.blocks = state[1:] if work.error is None else None
        except Exception as error:
            work.failed, work.error = True, error
        work.add_batch(batch)
        # The shard after the batch.
        self._fold_alone(work)
        self._write_alone(work)
        if work.blocks is not None:
            after = (shards, *work.blocks)
            if state is None or tuple(state) != after:
                self._state.update(after)
        return self._row(work)

    def _read_once(self, reference: str) -> pa.Table:
        """Return a decoding task's block, which has rows of many shards. It is read only once."""
        if reference not in self._blocks:
            self._blocks[reference] = read_block(self._checkpoint, reference)
        return self._blocks[reference]

    def close(self) -> None:
        """Finish the files, so that references are valid when Spark commits the state."""
        self._writer.close()
        self._blocks.clear()
        return_memory()
        crash_point("in_state")


@dataclass(slots=True)
class _ShardWork:
    """The work on one shard in one batch.

    `rows`: those of decoding tasks. `batch`: what is in them, without copies of signed records.
    `shard`: before the batch. `blocks`: references to it. `folded`: the shard after the batch, and
    the rejected reports. `error`: of reading or folding, for the round. `failed`: the shard before
    the batch can't be read, and nothing is folded.
    """

    cluster: str
    number: int
    rows: Sequence[TaskRow]
    batch: Batch = field(default_factory=Batch.empty)
    shard: Shard = field(default_factory=Shard.empty)
    blocks: BlockRefs | None = None
    events: pa.Table = field(default_factory=lambda: NO_EVENTS)
    folded: tuple[Shard, pa.Table] | None = None
    error: Exception | None = None
    failed: bool = False

    def add_batch(self, batch: Batch) -> None:
        """Add the batch. Copies of signed records are dropped from it, and become events."""
        self.batch, self.events = batch, batch.events
        if self.failed:
            return
        try:
            self.batch, copies = drop_copies(self.shard.brokers, batch)
        except Exception as error:
            self.failed, self.error = True, error
            return
        if len(copies):
            self.events = pa.concat_tables([self.batch.events, copies])

    def take(self, folded: tuple[Shard, pa.Table]) -> None:
        """Take what the fold returns. Of a cluster's shards, 0 has rejected reports as events."""
        self.folded = folded
        if self.number == 0 and len(folded[1]):
            self.events = pa.concat_tables([self.events, folded[1]])

    def is_small(self) -> bool:
        """Return whether the shard is folded, and may share blocks."""
        return self.folded is not None and is_small(len(self.folded[0].bundles))

    def change(self) -> ShardChange:
        """Return the shard before and after the batch, once it is folded."""
        assert self.folded is not None
        return ShardChange(self.shard, self.folded[0], self.blocks)


class BlockLost(RuntimeError):
    """A file of blocks that the state refers to is missing or damaged."""


def _read_or_begin_anew(read: Callable[[], Shard]) -> tuple[Shard, BlockLost | None]:
    """Return the shard that is read; if its file can't be read, an empty shard and the reason.

    The next reports fill an empty shard, as after a new checkpoint.
    """
    try:
        return read(), None
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        lost = BlockLost(
            f"{error}. This round decides nothing. The shard begins anew: averages and owners come "
            "back with the next full reports"
        )
        logger.warning("%s", lost)
        return Shard.empty(), lost


def merge_clocks(clocks: Iterable[PartitionClock]) -> list[PartitionClock]:
    """Return one entry for each Kafka partition; several tasks may have read parts of it."""
    found: dict[tuple[str, int], PartitionClock] = {}
    for clock in clocks:
        merged = found.setdefault((clock["topic"], clock["partition"]), clock.copy())
        merged["first"] = min(merged["first"], clock["first"])
        merged["last"] = max(merged["last"], clock["last"])
        merged["append_ms"] = max(merged["append_ms"], clock["append_ms"])
    return [found[partition] for partition in sorted(found)]


_NO_EVENTS = to_bytes(NO_EVENTS)


def _encode_events(events: pa.Table) -> bytes:
    return _NO_EVENTS if events is NO_EVENTS else to_bytes(events)


def _error_event(error: Exception, now_ms: int) -> pa.Table:
    """Return an event for a shard's error, as a table of one row."""
    text = f"{type(error).__name__}: {error}"
    event: ClusterEvent = {
        "kind": "error",
        "broker": "",
        "topic": "",
        "partition": 0,
        "offset": 0,
        "append_ms": now_ms,
        "payload": json.dumps({"stage": "averages", "error": text}),
    }
    return pa.Table.from_pylist([event], EVENT_SCHEMA)
