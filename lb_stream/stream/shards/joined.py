"""Columns of the bundles or brokers of several shards, one shard behind another.

To make a column takes as long for a hundred rows as for thousands, so small clusters share theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lb_stream.core.model.blocks import Shard


def owner_names(shards: Sequence[Shard], owner: NDArray[np.int32]) -> pa.StringArray:
    """Return the owners of all shards' bundles by name; null: unassigned.

    `owner`: of each bundle, the row of its broker within its shard.
    """
    names = [chunk for shard in shards for chunk in shard.brokers["name"].chunks]
    brokers = [len(shard.brokers) for shard in shards]
    begins = np.cumsum([0, *brokers[:-1]])
    row = owner + np.repeat(begins, [len(shard.bundles) for shard in shards])
    return pa.DictionaryArray.from_arrays(
        pa.array(row, mask=owner < 0), pa.chunked_array(names, pa.string()).combine_chunks()
    ).cast(pa.string())


def repeated_names(names: Sequence[str], counts: Sequence[int]) -> pa.StringArray:
    """Return each name as often as its count says."""
    places = pa.array(np.repeat(np.arange(len(names)), counts))
    return pa.DictionaryArray.from_arrays(places, pa.array(names, pa.string())).cast(pa.string())


def repeated_times(times: Sequence[int], counts: Sequence[int]) -> NDArray[np.int64]:
    """Return each time (ms) as often as its count says."""
    return np.repeat(np.array(times, np.int64), counts)
