"""What clusters remember, on its way to the tasks that decide: each task reads what its own
clusters remember, and nothing else.

With the function it would go to every task, through every process in between. Little of it goes
that way all the same: a file costs more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from lb_stream.store import Store
from lb_stream.stream.shards.block_files import BlockWriter, memory_file, read_block
from lb_stream.stream.shards.partition_keys import deciding_task

STORED_CHARACTERS = 128 << 10
"""Of all clusters together. What is more goes into a file."""


class BatchMemories(NamedTuple):
    """Canonical JSON by cluster: what the balancer remembers, and what the cluster's shadows do.

    `stored`: each task's block of them, if they are in a file.
    """

    balancer: Mapping[str, str]
    shadows: Mapping[str, str]
    stored: tuple[str, ...] = ()


def distribute_memories(
    balancer: Mapping[str, str],
    shadows: Mapping[str, str],
    checkpoint: Store,
    batch_id: int,
    epoch: int,
    tasks: int,
) -> BatchMemories:
    """The memories as a batch's tasks are given them: in a file, a block for each task, unless they
    are small."""
    if sum(map(len, balancer.values())) + sum(map(len, shadows.values())) <= STORED_CHARACTERS:
        return BatchMemories(dict(balancer), dict(shadows))
    clusters: list[list[str]] = [[] for _ in range(tasks)]
    for cluster in balancer:
        clusters[deciding_task(cluster, tasks)].append(cluster)
    writer = BlockWriter(checkpoint, memory_file(batch_id, epoch), durable=False)
    columns = (
        [own, [balancer[name] for name in own], [shadows.get(name) for name in own]]
        for own in clusters
    )
    stored = tuple(writer.put(pa.table(each, schema=_SCHEMA)) for each in columns)
    writer.close()
    return BatchMemories({}, {}, stored)


_SCHEMA = pa.schema(
    [("cluster", pa.string()), ("balancer", pa.large_string()), ("shadows", pa.large_string())]
)


def read_memories(
    checkpoint: Store, stored: tuple[str, ...], clusters: Iterable[str]
) -> BatchMemories:
    """What some clusters remember: of those that Spark brings to one task it is in one block."""
    wanted = sorted({deciding_task(cluster, len(stored)) for cluster in clusters})
    rows = [row for task in wanted for row in read_block(checkpoint, stored[task]).to_pylist()]
    shadows = {row["cluster"]: row["shadows"] for row in rows if row["shadows"] is not None}
    return BatchMemories({row["cluster"]: row["balancer"] for row in rows}, shadows)
