"""The stateful stage: one key for each shard of each large cluster, one for all small ones that
Spark has put into a partition.

Brokers and bundles are Arrow blocks in files. A shard's state names its own; those of a cluster's
only shard come named with its rows.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from lb_stream.contracts.base import canonical_json
from lb_stream.core.averages import FoldConfig, fold, fold_together
from lb_stream.core.averages.brokers import has_signs_of_life
from lb_stream.core.model.blocks import (
    BUNDLE_SCHEMA,
    EVENT_SCHEMA,
    NO_EVENTS,
    NO_REPORTS,
    NO_SAMPLES,
    Batch,
    Shard,
    from_bytes,
    to_bytes,
)
from lb_stream.store import Store
from lb_stream.stream.shard_blocks import ALL_CLUSTERS
from lb_stream.stream.shards.block_files import (
    Blocks,
    BlockWriter,
    OpenFiles,
    file_name,
    read_block,
)
from lb_stream.stream.shards.slicing import name_hashes
from lb_stream.stream.task.crash import crash_point
from lb_stream.stream.task.current_task import current_task
from lb_stream.stream.task.processor import KeyState

logger = logging.getLogger(__name__)

SHARD_DDL = (
    "cluster string, shard int, clock string, brokers string, names string, values string, "
    "events binary"
)

TOGETHER = 1 << 16
"""Bundles of small clusters that are folded in one pass, or a few more."""


class Folding:
    """Folds what one task of a micro-batch brings into each shard, and tells where the shard's
    whole view is.

    A cluster that leaves has neither state nor blocks after the batch, unless something is heard of
    it. What a batch doesn't change isn't written again: an idle shard costs a look at its state.
    `settings_tag` names the settings that the averages depend on, so that two runs of one batch
    with different ones don't write different files under one name.
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
        """Before a task's first key."""
        self._state = state
        batch_id, partition, _ = current_task()
        name = file_name(batch_id, self._epoch, f"{partition}-{self._tag}")
        self._clock: list[dict[str, Any]] = []
        self._blocks: dict[str, pa.Table] = {}
        self._files = OpenFiles(self._checkpoint)
        self._values = BlockWriter(self._checkpoint, f"{name}.arrow")
        self._names = BlockWriter(self._checkpoint, f"{name}-names.arrow")

    def fold(self, key: Any, rows: Iterator[Row]) -> Iterator[Row]:
        """All rows of one (cluster, shard) in this batch: one from each task that has read
        something of it.

        Keys come in their order, and with the first one the clock: how far all tasks have read.
        Without one they have read nothing. With it come the clusters of one shard, which need no
        state.
        """
        cluster, given = key[0], list(rows)
        if cluster == ALL_CLUSTERS:
            self._clock = merge_clocks(
                seen for row in given if row.clock is not None for seen in json.loads(row.clock)
            )
            self._told = canonical_json(self._clock)
            self._now_ms = max((seen["append_ms"] for seen in self._clock), default=0)
            if self._clock:
                yield from self._members(given)
        elif self._clock:
            yield self._folded(cluster, given)
        elif any(row.first for row in given):
            raise RuntimeError(
                f"the shard of {cluster} came before the clock: Spark no longer sorts what goes "
                "into a stateful stage"
            )

    def _members(self, given: list[Row]) -> Iterator[Row]:
        """What comes of clusters of one shard: they are folded together, as many at a time as make
        a large shard."""
        rows: dict[str, list[Row]] = {}
        for one in given:
            for member in from_bytes(one.members).to_pylist() if one.members is not None else ():
                rows.setdefault(member["cluster"], []).append(Row(**member, first=one.first))
        works: list[_Work] = []
        bundles = 0
        for cluster in sorted(rows):
            works.append(self._begun(cluster, rows[cluster]))
            bundles += max(len(works[-1].shard.bundles), len(works[-1].batch.samples))
            if bundles >= TOGETHER:
                yield from self._done(works)
                works, bundles = [], 0
        yield from self._done(works)

    def _begun(self, cluster: str, given: list[Row]) -> _Work:
        """A cluster's only shard, read from its blocks."""
        work, blocks = _Work(cluster, 0, _gather(given, self._read)), tuple(given[0].blocks)
        try:
            work.shard, work.trouble = _kept(lambda: read_shard(self._files, blocks))
            work.blocks = blocks if work.trouble is None else None
        except Exception as error:
            work.failed, work.trouble = True, error
        return work

    def _done(self, works: list[_Work]) -> Iterator[Row]:
        """Fold shards of different clusters together.

        If that fails, each is folded by itself: one cluster's trouble stays its own.
        """
        alike: dict[FoldConfig, list[_Work]] = {}
        for work in works:
            if not work.failed:
                alike.setdefault(self._configs.get(work.cluster, self._default), []).append(work)
        for config, some in alike.items():
            try:
                folded = fold_together(
                    [work.shard for work in some],
                    [work.batch for work in some],
                    self._now_ms,
                    config,
                )
            except Exception:
                logger.exception(
                    "%d clusters could not be folded together: each is folded by itself", len(some)
                )
                continue
            for work, one in zip(some, folded, strict=True):
                work.folded = one
        for work in works:
            self._finish(work)
            yield self._row(work)

    def _finish(self, work: _Work) -> None:
        """Fold, unless that is done, and write.

        One cluster's trouble stays its own: its round will be an error round.
        """
        if work.failed:
            return
        try:
            config = self._configs.get(work.cluster, self._default)
            after, refused = work.folded or fold(work.shard, work.batch, self._now_ms, config)
            if work.number == 0 and len(refused):
                work.events = pa.concat_tables([work.events, refused])
            work.blocks = self._written(work.shard, after, work.blocks)
        except Exception as error:
            work.trouble = error

    def _row(self, work: _Work) -> Row:
        """What is told of one shard."""
        events = work.events
        if work.trouble is not None:
            events = pa.concat_tables([events, _trouble(work.trouble, self._now_ms)])
        brokers, names, values = work.blocks or ("", "", "")
        told = work.number == 0
        return Row(
            cluster=work.cluster,
            shard=work.number,
            clock=self._told if told else None,
            brokers=brokers,
            names=names,
            values=values,
            events=_content_of(events) if told or work.trouble is not None else None,
        )

    def _folded(self, cluster: str, given: list[Row]) -> Row:
        """What comes of one shard that has a state."""
        number, shards, before = given[0].shard, given[0].shards, given[0].before
        remembered = self._state.get()
        if (
            remembered is not None and not given[0].known
        ):  # another pipeline has had it since: what was known then says nothing now
            self._state.clear()
            remembered = None
        batch = _gather(given, self._read)
        if given[0].leaving and not has_signs_of_life(batch):
            self._state.clear()
            said = to_bytes(batch.events) if number == 0 else None
            return Row(
                cluster=cluster,
                shard=number,
                clock=self._told,
                brokers=None,
                names=None,
                values=None,
                events=said,
            )
        work = _Work(cluster, number, batch)
        try:
            if before is not None:
                work.shard, work.trouble = _kept(
                    lambda: reshard(self._checkpoint, json.loads(before), number, shards)
                )
            elif remembered is not None and remembered[0] != shards:
                raise RuntimeError(
                    f"the state was written for {remembered[0]} shards, now there are {shards}, "
                    "and nothing was handed over"
                )
            elif remembered is not None:
                work.shard, work.trouble = _kept(lambda: read_shard(self._files, remembered[1:]))
                work.blocks = remembered[1:] if work.trouble is None else None
        except Exception as error:
            work.failed, work.trouble = True, error
        self._finish(work)
        if work.blocks is not None and (
            remembered is None or tuple(remembered) != (shards, *work.blocks)
        ):
            self._state.update((shards, *work.blocks))
        return self._row(work)

    def _read(self, reference: str) -> pa.Table:
        """A block of what one task has decoded for many shards of this partition: it is opened
        once."""
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
        """After the last key, before Spark commits the state: from now on the references are
        good."""
        self._names.close()
        self._values.close()
        crash_point("in_state")


@dataclass(slots=True)
class _Work:
    """One shard in one batch."""

    cluster: str
    number: int
    batch: Batch
    shard: Shard = field(default_factory=Shard.empty)  # as it was before
    blocks: Blocks | None = None  # where it is
    events: pa.Table = field(init=False)
    folded: tuple[Shard, pa.Table] | None = None
    trouble: Exception | None = None  # what the round is told of
    failed: bool = False  # what was before isn't known: nothing can be folded

    def __post_init__(self) -> None:
        self.events = self.batch.events


class BlockLost(RuntimeError):
    """A file of blocks that the state names is gone or damaged."""


def _kept(read: Callable[[], Shard]) -> tuple[Shard, BlockLost | None]:
    """A shard's state.

    If its file can't be read: an empty shard and the reason; the next reports fill it, as after a
    new checkpoint.
    """
    try:
        return read(), None
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        lost = BlockLost(
            f"{error}. This round decides nothing; the shard begins anew, averages and owners come "
            "back with the next full reports"
        )
        logger.warning("%s", lost)
        return Shard.empty(), lost


def read_shard(checkpoint: Store | OpenFiles, blocks: Iterable[str]) -> Shard:
    """A shard's blocks, from their references. Raises FileNotFoundError."""
    brokers, names, values = blocks
    rest = read_block(checkpoint, values)
    return Shard(
        read_block(checkpoint, brokers),
        rest.add_column(0, BUNDLE_SCHEMA.field(0), read_block(checkpoint, names)["name"]),
    )


def names_block(names: pa.ChunkedArray) -> pa.Table:
    """A block of bundle names, each with its hash: a shard that takes bundles over reads the hash
    there."""
    return pa.table({"name": names, "hash": pa.array(name_hashes(names), pa.uint32())})


def reshard(checkpoint: Store, before: list[Blocks], number: int, shards: int) -> Shard:
    """What one of `shards` new shards takes over from the old ones: the bundles whose name's hash
    makes them its own."""
    least = min(
        len(before), shards
    )  # both are powers of two: a bundle's new and old number agree modulo the lesser
    old = [blocks for at, blocks in enumerate(before) if at % least == number % least]
    bundles = []
    for blocks in old:
        own = (
            read_block(checkpoint, blocks[1])["hash"].to_numpy() & np.uint32(shards - 1)
        ) == number
        bundles.append(read_shard(checkpoint, blocks).bundles.filter(pa.array(own)))
    joined = pa.concat_tables(bundles)
    if len(bundles) > 1:
        joined = joined.take(pc.sort_indices(joined["name"]))
    return Shard(read_shard(checkpoint, old[0]).brokers, joined.combine_chunks())


def merge_clocks(seen: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What several tasks have read of each partition, as one entry for each; two tasks may have
    shared one."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for one in seen:
        all_of_it = found.setdefault((one["topic"], one["partition"]), dict(one))
        all_of_it["first"] = min(all_of_it["first"], one["first"])
        for name in ("last", "append_ms"):
            all_of_it[name] = max(all_of_it[name], one[name])
    return [found[place] for place in sorted(found)]


def _gather(rows: list[Row], read: Callable[[str], pa.Table]) -> Batch:
    """One batch from several tasks' blocks, in the order of their first record: arrival order must
    not show."""
    rows = sorted(rows, key=lambda row: row.first)
    reports, samples, events, before = [], [], [], 0
    for row in rows:
        if row.events is not None:
            events.append(from_bytes(row.events))
        if row.reports is not None or row.stored_reports is not None:
            new, some = _content(row, read)
            shifted = pa.array(some["report"].to_numpy() + np.int32(before), pa.int32())
            samples.append(
                some.set_column(1, some.schema.field("report"), shifted) if before else some
            )
            reports.append(new)
            before += len(new)
    return Batch(
        _joined(reports, NO_REPORTS), _joined(samples, NO_SAMPLES), _joined(events, NO_EVENTS)
    )


def _content(row: Row, read: Callable[[str], pa.Table]) -> tuple[pa.Table, pa.Table]:
    """Reports and samples of one row, or of where it says that they are."""
    if row.stored_reports is None:
        return from_bytes(row.reports), from_bytes(row.samples)
    samples = NO_SAMPLES if row.stored_samples is None else _part(row.stored_samples, read)
    return _part(row.stored_reports, read), samples


def _part(place: str, read: Callable[[str], pa.Table]) -> pa.Table:
    reference, begin, rows = place.rsplit(":", 2)
    return read(reference).slice(int(begin), int(rows))


def _joined(tables: list[pa.Table], none: pa.Table) -> pa.Table:
    return (
        pa.concat_tables(tables).combine_chunks()
        if len(tables) > 1
        else tables[0]
        if tables
        else none
    )


_NOTHING_SAID = to_bytes(NO_EVENTS)


def _content_of(events: pa.Table) -> bytes:
    return _NOTHING_SAID if events is NO_EVENTS else to_bytes(events)


def _trouble(error: Exception, now_ms: int) -> pa.Table:
    payload = json.dumps({"stage": "averages", "error": f"{type(error).__name__}: {error}"})
    row = {
        "kind": "error",
        "broker": "",
        "topic": "",
        "partition": 0,
        "offset": 0,
        "append_ms": now_ms,
        "payload": payload,
    }
    return pa.Table.from_pylist([row], EVENT_SCHEMA)
