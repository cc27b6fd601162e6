"""`python -m tests.bench.ownership`: what a batch pays to put its rows into `ownership`; the last
line is one JSON object.

By how many bundles the table has, and how many of them a batch changes, chosen at random. Medians
of wall milliseconds on a local disk.
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time

import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.tables import OWNERSHIP
from lb_stream.io.tables.delta import open_table
from lb_stream.io.tables.keyed import KeyedTable
from lb_stream.store import Store

RUNS = 9
BUNDLES_OF_A_CLUSTER = 1_000


def table_of(bundles: int) -> pa.Table:
    """The records of so many bundles, in the order of their keys.

    Their ranges are random: names that follow a pattern make small files.
    """
    numbers = random.Random(bundles)
    keys = []
    for number in range(bundles):
        low, high = sorted(numbers.sample(range(1 << 32), 2))
        keys.append(
            (
                f"cluster-{number // BUNDLES_OF_A_CLUSTER:06d}",
                f"tenant/orders/0x{low:08x}_0x{high:08x}",
            )
        )
    keys.sort()
    rows = [
        {
            "cluster": cluster,
            "bundle": bundle,
            "state": "Owned",
            "owner": f"broker-{number % 10}.example:8080",
            "children": [],
            "version": number % 7,
            "force": False,
            "since_ms": 1_700_000_000_000 + number,
            "epoch": 1,
            "log_seq": 0,
        }
        for number, (cluster, bundle) in enumerate(keys)
    ]
    return pa.Table.from_pylist(rows, OWNERSHIP.schema)


def measure(bundles: int, changed: int) -> float:
    """Of one size."""
    rows, took = table_of(bundles), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        table = KeyedTable(open_table(Store.at(folder), OWNERSHIP), OWNERSHIP)
        for number in range(RUNS + 1):
            some = (
                rows.take(sorted(random.Random(number).sample(range(bundles), changed)))
                if number
                else rows
            )
            begin = time.perf_counter()
            table.put(some, pc.equal(some["state"], "Init"), f"{number:03d}", [("bench", number)])
            took.append(1_000 * (time.perf_counter() - begin))
    return round(statistics.median(took[1:]), 1)


if __name__ == "__main__":
    sizes = [(bundles, changed) for bundles in (10_000, 100_000, 1_000_000) for changed in (2, 400)]
    print(
        json.dumps(
            {f"{changed} of {bundles}": measure(bundles, changed) for bundles, changed in sizes}
        )
    )
