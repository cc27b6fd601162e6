"""Columns of the bundles or brokers of several shards, one shard behind another.

To make a column takes as long for a hundred rows as for thousands, so small clusters share theirs.
Each row's shard is its number in the sequence of shards.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.view import Ints


def shard_numbers(tables: Sequence[pa.Table]) -> Ints:
    """Return the shard of each row of the shards' tables, one behind another."""
    return np.repeat(np.arange(len(tables)), [len(table) for table in tables])


def owner_names(
    shards: Sequence[Shard], of_shard: Ints, owner: NDArray[np.int32]
) -> pa.StringArray:
    """Return the owners of bundles by name; null: unassigned.

    `of_shard`: each bundle's shard. `owner`: the row of its broker within that shard.
    """
    names = [chunk for shard in shards for chunk in shard.brokers["name"].chunks]
    begins = np.cumsum([0, *(len(shard.brokers) for shard in shards)])
    return pa.DictionaryArray.from_arrays(
        pa.array(owner + begins[of_shard], mask=owner < 0),
        pa.chunked_array(names, pa.string()).combine_chunks(),
    ).cast(pa.string())


def cluster_names(clusters: Sequence[str], of_shard: Ints) -> pa.StringArray:
    """Return the cluster of each row. `clusters`: of each shard."""
    return pa.DictionaryArray.from_arrays(pa.array(of_shard), pa.array(clusters, pa.string())).cast(
        pa.string()
    )


def times_of(times: Sequence[int], of_shard: Ints) -> Ints:
    """Return the time (ms) of each row. `times`: of each shard."""
    return np.array(times, np.int64)[of_shard]
