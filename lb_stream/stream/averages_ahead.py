"""Parts of `bundle_averages` that the deciding tasks write while they make rounds.

The round of a large cluster is made in one task, whose shards are in memory anyway. A thread of
that task writes them as the parts that are due, on a core that is idle otherwise. A part is written
ahead if all of its bundles are in one shard. The driver commits what it gets, and has tasks write
the rest while it publishes the batch. A file that no round names is never committed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import pyarrow.compute as pc

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.columns.rounds import RoundRow
from lb_stream.core.model.blocks import Shard
from lb_stream.store import tables_of
from lb_stream.stream.cluster_input import ClusterInput
from lb_stream.stream.context import BatchContext
from lb_stream.stream.figures import require_known_owners, write_part
from lb_stream.stream.rows import FigureFile
from lb_stream.stream.shards.history import next_slot
from lb_stream.stream.shards.slicing import DueShard, is_interval_over, table_part

logger = logging.getLogger(__name__)

Files = dict[str, FigureFile]
"""Table → the file of one part."""


class AveragesAhead:
    """The parts that one task writes. They are begun in order, until the rounds are made."""

    def __init__(self, context: BatchContext, task: str) -> None:
        self._context, self._name = context, f"{context.file_tag}-{task}-ahead"
        self._executor: ThreadPoolExecutor | None = None
        self._written: dict[str, dict[str, Future[Files]]] = {}  # cluster → part →

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def begin(self, cluster_input: ClusterInput, shards: Sequence[Shard]) -> None:
        """Begin to write the parts of a cluster's shards, if the batch is due to write them."""
        last, stream = self._context.last_written, self._context.settings.stream
        cluster, now_ms = cluster_input.cluster, cluster_input.now_ms
        if (
            len(shards) < 2
            or last is None
            or not is_interval_over(last.averages_ms, now_ms, stream.averages_interval_ms)
            or not pc.any(shards[0].brokers["sampled"]).as_py()
        ):
            return
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1)
        slot = next_slot(last.history_ms.get(cluster), now_ms, stream.history_resolution_ms)
        futures = self._written.setdefault(cluster, {})
        for number, (shard, blocks) in enumerate(zip(shards, cluster_input.blocks, strict=True)):
            entry = DueShard(cluster, number, now_ms, blocks, slot)
            part = table_part(cluster, number, len(shards))
            futures[part] = self._executor.submit(self._write, part, entry, shard)

    def name_files(self, rows: Iterable[RoundRow]) -> None:
        """Name in each round its parts that are written by now, and leave out the others."""
        self._end()
        for row in rows:
            # A round without a sample may have less to write.
            if row.sampled and (futures := self._written.get(row.cluster)):
                found = {part: _result(future) for part, future in futures.items()}
                row.part_files = canonical_json(
                    {part: files for part, files in found.items() if files is not None}
                )

    def _end(self) -> None:
        """Begin no further part, and wait for the one that is being written."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def _write(self, part: str, entry: DueShard, shard: Shard) -> Files:
        """Write the files of one part, in the thread."""
        require_known_owners(shard)
        return write_part(
            part, [(entry, shard)], tables_of(self._context.settings.stream), self._name
        )


def _result(future: Future[Files]) -> Files | None:
    """Return the files of a part; None: it was not begun, or failed. Then it is tried again."""
    if future.cancelled():
        return None
    try:
        return future.result()
    except Exception as error:
        logger.warning("a part of bundle_averages could not be written ahead: %s", error)
        return None
