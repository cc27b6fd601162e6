"""The stateful stage: one key for each shard of each cluster. Its brokers and bundles are Arrow blocks in files; the state names them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from lb_stream.contracts.base import canonical_json
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.brokers import SIGNS_OF_LIFE
from lb_stream.core.model.blocks import (
    BROKER_SCHEMA,
    BUNDLE_SCHEMA,
    EVENT_SCHEMA,
    REPORT_SCHEMA,
    SAMPLE_SCHEMA,
    Batch,
    Shard,
    from_bytes,
    to_bytes,
    with_all_columns,
)
from lb_stream.store import Store
from lb_stream.stream.shard_blocks import EVERYBODY
from lb_stream.stream.shards.block_files import Blocks, BlockWriter, OpenFiles, file_name, read_block
from lb_stream.stream.shards.slicing import name_hashes
from lb_stream.stream.task.attempt import hush_first_worker, task_of_batch
from lb_stream.stream.task.crash import crash_point
from lb_stream.stream.task.state_socket import leave_closing_to_spark

logger = logging.getLogger(__name__)

STATE_DDL = "shards int, brokers string, names string, values string"
SHARD_DDL = "cluster string, shard int, clock string, brokers string, names string, values string, events binary"


class ShardProcessor(StatefulProcessor):
    """Folds a micro-batch into each shard and emits where the shard's whole view is.

    A cluster that leaves has neither state nor blocks after the batch, unless something is heard of it.
    What a batch doesn't change isn't written again: an idle shard costs a look at its state. `settings_tag` names the settings
    that the averages depend on, so that two runs of one batch with different ones don't write different files under one name.
    """

    def __init__(self, configs: Mapping[str, FoldConfig], default: FoldConfig, checkpoint: Store, settings_tag: str, epoch: int) -> None:
        self._configs, self._default = configs, default
        self._checkpoint, self._tag, self._epoch = checkpoint, settings_tag, epoch

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle in a worker."""
        self.__dict__.update(state)
        hush_first_worker()

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark once for each partition and batch."""
        leave_closing_to_spark(handle)
        self._state = handle.getValueState("shard", STATE_DDL)
        batch_id, partition, _ = task_of_batch()
        name = file_name(batch_id, self._epoch, f"{partition}-{self._tag}")
        self._clock: list[dict[str, Any]] = []
        self._blocks: dict[str, pa.Table] = {}
        self._values = BlockWriter(self._checkpoint, f"{name}.arrow")
        self._names = BlockWriter(self._checkpoint, f"{name}-names.arrow")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """All rows of one (cluster, shard) in this batch: one from each task that has read something of it.

        Keys come in their order, and with the first one the clock: how far all tasks have read. Without one they have read nothing.
        """
        cluster, given = key[0], list(rows)
        if cluster == EVERYBODY:
            self._clock = one_clock(seen for row in given for seen in json.loads(row.clock))
            self._told = canonical_json(self._clock)
        elif self._clock:
            yield self._folded(cluster, given)
        elif any(row.first for row in given):
            raise RuntimeError(f"the shard of {cluster} came before the clock: Spark no longer sorts what goes into a stateful stage")

    def _folded(self, cluster: str, given: list[Row]) -> Row:
        """What comes of one shard."""
        number, shards, before = given[0].shard, given[0].shards, given[0].before
        now_ms = max(seen["append_ms"] for seen in self._clock)
        remembered = self._state.get()
        if remembered is not None and not given[0].known:  # another pipeline has had it since: what was known then says nothing now
            self._state.clear()
            remembered = None
        batch = _gather(given, self._read)
        if given[0].leaving and not _heard(batch):
            self._state.clear()
            said = to_bytes(batch.events) if number == 0 else None
            return Row(cluster=cluster, shard=number, clock=self._told, brokers=None, names=None, values=None, events=said)
        blocks: Blocks | None = None
        events = batch.events
        try:
            if before is not None:
                shard, lost = _kept(lambda: hand_over(self._checkpoint, json.loads(before), number, shards))
            elif remembered is None:
                shard, lost = Shard.empty(), None
            elif remembered[0] != shards:
                raise RuntimeError(f"the state was written for {remembered[0]} shards, now there are {shards}, and nothing was handed over")
            else:
                shard, lost = _kept(lambda: read_shard(self._checkpoint, remembered[1:]))
                blocks = remembered[1:] if lost is None else None
            folded, refused = fold(shard, batch, now_ms, self._configs.get(cluster, self._default))
            if number == 0:
                events = pa.concat_tables([events, refused])
            blocks = self._written(shard, folded, blocks)
            if lost is not None:
                events = pa.concat_tables([events, _trouble(lost, now_ms)])
        except Exception as error:  # one cluster's trouble stays its own: its round will be an error round
            events = pa.concat_tables([events, _trouble(error, now_ms)])
        if blocks is not None and (remembered is None or tuple(remembered) != (shards, *blocks)):
            self._state.update((shards, *blocks))
        brokers, names, values = blocks or ("", "", "")
        return Row(
            cluster=cluster,
            shard=number,
            clock=self._told if number == 0 else None,
            brokers=brokers,
            names=names,
            values=values,
            events=to_bytes(events) if number == 0 or "error" in events["kind"].to_pylist() else None,
        )

    def _read(self, reference: str) -> pa.Table:
        """A block of what one task has decoded for many shards of this partition: it is opened once."""
        if reference not in self._blocks:
            self._blocks[reference] = read_block(self._checkpoint, reference)
        return self._blocks[reference]

    def _written(self, before: Shard, after: Shard, blocks: Blocks | None) -> Blocks:
        """References to a shard's blocks: the old ones where nothing has changed."""
        brokers, names, values = blocks or (None, None, None)
        if brokers is None or after.brokers is not before.brokers:
            brokers = self._values.put(after.brokers)
        if values is None or after.bundles is not before.bundles:
            values = self._values.put(after.bundles.drop_columns("name"))
            if names is None or not after.bundles["name"].equals(before.bundles["name"]):
                names = self._names.put(names_block(after.bundles["name"]))
        return brokers, names or "", values

    def close(self) -> None:
        """After the last key, before Spark commits the state: from now on the references are good."""
        self._names.close()
        self._values.close()
        crash_point("in_state")


class BlockLost(RuntimeError):
    """A file of blocks that the state names is gone or damaged."""


def _kept(read: Callable[[], Shard]) -> tuple[Shard, BlockLost | None]:
    """A shard's state. If its file can't be read: an empty shard and the reason; the next reports fill it, as after a new checkpoint."""
    try:
        return read(), None
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        lost = BlockLost(
            f"{error}. This round decides nothing; the shard begins anew, averages and owners come back with the next full reports"
        )
        logger.warning("%s", lost)
        return Shard.empty(), lost


def read_shard(checkpoint: Store | OpenFiles, blocks: Iterable[str]) -> Shard:
    """A shard's blocks, from their references. Raises FileNotFoundError."""
    brokers, names, values = blocks
    rest = read_block(checkpoint, values)
    known = with_all_columns(read_block(checkpoint, brokers), BROKER_SCHEMA)
    return Shard(known, rest.add_column(0, BUNDLE_SCHEMA.field(0), read_block(checkpoint, names)["name"]))


def names_block(names: pa.ChunkedArray) -> pa.Table:
    """A block of bundle names, each with its hash: a shard that takes bundles over reads the hash there."""
    return pa.table({"name": names, "hash": pa.array(name_hashes(names), pa.uint32())})


def hand_over(checkpoint: Store, before: list[Blocks], number: int, shards: int) -> Shard:
    """What one of `shards` new shards takes over from the old ones: the bundles whose name's hash makes them its own."""
    least = min(len(before), shards)  # both are powers of two: a bundle's new and old number agree modulo the lesser
    old = [blocks for at, blocks in enumerate(before) if at % least == number % least]
    bundles = []
    for blocks in old:
        own = (read_block(checkpoint, blocks[1])["hash"].to_numpy() & np.uint32(shards - 1)) == number
        bundles.append(read_shard(checkpoint, blocks).bundles.filter(pa.array(own)))
    joined = pa.concat_tables(bundles)
    if len(bundles) > 1:
        joined = joined.take(pc.sort_indices(joined["name"]))
    return Shard(read_shard(checkpoint, old[0]).brokers, joined.combine_chunks())


def one_clock(seen: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What several tasks have read of each partition, as one entry for each; two tasks may have shared one."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for one in seen:
        all_of_it = found.setdefault((one["topic"], one["partition"]), dict(one))
        all_of_it["first"] = min(all_of_it["first"], one["first"])
        for name in ("last", "append_ms"):
            all_of_it[name] = max(all_of_it[name], one[name])
    return [found[place] for place in sorted(found)]


def _heard(batch: Batch) -> bool:
    """Whether any broker of the cluster was heard. Every shard gets all reports and signs of life, so all shards agree."""
    return len(batch.reports) > 0 or bool(pc.any(pc.is_in(batch.events["kind"], value_set=pa.array(SIGNS_OF_LIFE))).as_py())


def _gather(rows: list[Row], read: Callable[[str], pa.Table]) -> Batch:
    """One batch from several tasks' blocks, in the order of their first record: arrival order must not show."""
    rows = sorted(rows, key=lambda row: row.first)
    reports, samples, events, before = [], [], [], 0
    for row in rows:
        if row.events is not None:
            events.append(from_bytes(row.events))
        if row.reports is not None or row.stored_reports is not None:
            new, some = _content(row, read)
            shifted = pa.array(some["report"].to_numpy() + np.int32(before), pa.int32())
            samples.append(some.set_column(1, some.schema.field("report"), shifted) if before else some)
            reports.append(new)
            before += len(new)
    return Batch(_joined(reports, REPORT_SCHEMA), _joined(samples, SAMPLE_SCHEMA), _joined(events, EVENT_SCHEMA))


def _content(row: Row, read: Callable[[str], pa.Table]) -> tuple[pa.Table, pa.Table]:
    """Reports and samples of one row, or of where it says that they are."""
    if row.stored_reports is None:
        return from_bytes(row.reports), from_bytes(row.samples)
    samples = SAMPLE_SCHEMA.empty_table() if row.stored_samples is None else _part(row.stored_samples, read)
    return _part(row.stored_reports, read), samples


def _part(place: str, read: Callable[[str], pa.Table]) -> pa.Table:
    reference, begin, rows = place.rsplit(":", 2)
    return read(reference).slice(int(begin), int(rows))


def _joined(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()


def _trouble(error: Exception, now_ms: int) -> pa.Table:
    payload = json.dumps({"stage": "averages", "error": f"{type(error).__name__}: {error}"})
    row = {"kind": "error", "broker": "", "topic": "", "partition": 0, "offset": 0, "append_ms": now_ms, "payload": payload}
    return pa.Table.from_pylist([row], EVENT_SCHEMA)
