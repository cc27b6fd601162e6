"""Gives the deciding tasks the memories of their clusters.

Small memories are part of the pickled function, which every task gets: that costs less than a file.
Large ones go into a file, from which each task reads those of its own clusters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from lb_stream.store import Store
from lb_stream.stream.shards.block_files import BlockWriter, memory_file, read_block
from lb_stream.stream.shards.partition_keys import deciding_task

STORED_CHARACTERS = 128 << 10
"""The memories of all clusters go into a file if they are longer than this together."""


class BatchMemories(NamedTuple):
    """The memories with which a batch begins, as canonical JSON by cluster.

    `balancer`: of the balancer itself. `shadows`: of each cluster's shadows. `stored`: references
    to a block for each task; if there are any, the other two are empty.
    """

    balancer: Mapping[str, str]
    shadows: Mapping[str, str]
    stored: tuple[str, ...] = ()


_SCHEMA = pa.schema(
    [("cluster", pa.string()), ("balancer", pa.large_string()), ("shadows", pa.large_string())]
)


def distribute_memories(
    balancer: Mapping[str, str],
    shadows: Mapping[str, str],
    checkpoint: Store,
    batch_id: int,
    epoch: int,
    tasks: int,
) -> BatchMemories:
    """Return the memories for a batch's tasks; large ones are written to a file, by task."""
    if sum(map(len, balancer.values())) + sum(map(len, shadows.values())) <= STORED_CHARACTERS:
        return BatchMemories(dict(balancer), dict(shadows))
    clusters: list[list[str]] = [[] for _ in range(tasks)]
    for cluster in balancer:
        clusters[deciding_task(cluster, tasks)].append(cluster)
    writer = BlockWriter(checkpoint, memory_file(batch_id, epoch), durable=False)
    columns = (
        [names, [balancer[name] for name in names], [shadows.get(name) for name in names]]
        for names in clusters
    )
    stored = tuple(writer.put(pa.table(task_columns, schema=_SCHEMA)) for task_columns in columns)
    writer.close()
    return BatchMemories({}, {}, stored)


def read_memories(
    checkpoint: Store, stored: tuple[str, ...], clusters: Iterable[str]
) -> BatchMemories:
    """Return the stored memories of some clusters. A block has those of one task's clusters."""
    wanted = sorted({deciding_task(cluster, len(stored)) for cluster in clusters})
    rows = [row for task in wanted for row in read_block(checkpoint, stored[task]).to_pylist()]
    balancer = {row["cluster"]: row["balancer"] for row in rows}
    shadows = {row["cluster"]: row["shadows"] for row in rows if row["shadows"] is not None}
    return BatchMemories(balancer, shadows)
