"""`python -m tests.bench.directory`: what the directory of clusters costs a batch, by their number;
the last line is one JSON object.

It is written whole once in a batch, and read whole by the driver and by each decoding task; every
tenth batch looks for files that no directory names any more. Medians of wall milliseconds on a
local disk.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from lb_stream.store import Store
from lb_stream.stream.batch import CLEAN_EVERY
from lb_stream.stream.shards.directory import (
    ShardMap,
    delete_directories,
    read_directory,
    write_directory,
)

RUNS = 15


def clusters(count: int, batch: int) -> dict[str, ShardMap]:
    """So many clusters of one shard, all of which have had new blocks in a batch, one with a
    decision under way in ten."""
    file = f"{batch:012d}-e1-3-73a47594"
    asked = {"cluster-00001:123:0": ("broker-1.example:8080", "acme/orders/0x00000000_0x40000000")}
    return {
        f"cluster-{number:05d}": ShardMap(
            1,
            (
                (
                    f"{file}.arrow:{number}:2200",
                    f"{file}-names.arrow:{number}:184",
                    f"{file}.arrow:{number}:1648",
                ),
            ),
            1_700_000_000_000,
            asked=asked if number % 10 == 0 else {},
        )
        for number in range(count)
    }


def timed(call: Callable[..., Any], *arguments: Any) -> float:
    """Milliseconds."""
    begin = time.perf_counter()
    call(*arguments)
    return 1000 * (time.perf_counter() - begin)


def measure(count: int) -> dict[str, float]:
    """Of one number of clusters."""
    with tempfile.TemporaryDirectory() as folder:
        wrote, read, checkpoint = [], [], Store.at(folder)
        for batch in range(RUNS):
            wrote.append(timed(write_directory, checkpoint, batch, 1, clusters(count, batch)))
            read.append(timed(read_directory, checkpoint, batch, 1))
        looked = timed(delete_directories, checkpoint, RUNS - CLEAN_EVERY) / CLEAN_EVERY
    return {
        name: round(value, 2)
        for name, value in (
            ("write", statistics.median(wrote)),
            ("read", statistics.median(read)),
            ("look", looked),
        )
    }


if __name__ == "__main__":
    print(json.dumps({str(count): measure(count) for count in (10, 1_000, 10_000)}))
