"""Figures that rounds write beside the log: latest broker loads, clusters of rejected records.

Read from the small files that a batch's rows of the log name (a row for each broker, for each
rejected record); no table is queried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import BROKER_LOADS, REJECTED_REPORTS
from lb_stream.store import Store
from lb_stream.stream.admission import count_records
from lb_stream.stream.ports import Logged, forgotten_clusters
from lb_stream.stream.rows import FigureFile

MemorySource = Callable[[], Mapping[str, str]]
"""Gives each cluster's memory, canonical JSON."""

USAGES = {
    "cpu": "cpu_ratio",
    "memory": "memory_ratio",
    "directMemory": "direct_memory_ratio",
    "bandwidth_in": "bandwidth_in_ratio",
    "bandwidth_out": "bandwidth_out_ratio",
}
"""Pulsar's word in a metric's name → column of `broker_loads`."""

FLOWS = {
    ("throughput_bytes", name): f"latest_throughput_{name}_bytes_per_s" for name in ("in", "out")
} | {("messages", name): f"latest_rate_{name}_msgs_per_s" for name in ("in", "out")}
"""(quantity, direction) → column of `broker_loads`."""

_OWN = ("cluster", "broker", "alive", "active", "usage_ratio", "bundles")
_COLUMNS = [*_OWN, *USAGES.values(), *FLOWS.values()]


class RoundFigures:
    """The latest figures of each cluster.

    `loads`: cluster → its brokers in its last round with a new report, sorted by name.
    """

    def __init__(self, tables: Store) -> None:
        self._tables = tables
        self.loads: dict[str, pa.Table] = {}

    def read_batch(self, logged: Logged) -> Counter[str]:
        """Read a batch's figures, and return the number of rejected records by cluster."""
        rejected = Counter[str]()
        for cluster in forgotten_clusters(logged):
            self.loads.pop(cluster, None)
        for files in logged.files:
            if REJECTED_REPORTS.name in files:
                rows = self._read(REJECTED_REPORTS, files, ["cluster", "broker", "value"])
                for row in rows.to_pylist():
                    rejected[row["cluster"]] += count_records(row["broker"], row["value"])
            if BROKER_LOADS.name in files:
                self.loads |= _by_cluster(self._read(BROKER_LOADS, files, _COLUMNS))
        return rejected

    def _read(
        self, spec: TableSpec, files: Mapping[str, FigureFile], columns: list[str]
    ) -> pa.Table:
        content = self._tables.get(f"{spec.name}/{files[spec.name]['path']}")
        return pq.read_table(pa.BufferReader(content), use_threads=False).select(columns)


def _by_cluster(rows: pa.Table) -> dict[str, pa.Table]:
    rows = rows.sort_by([("cluster", "ascending"), ("broker", "ascending")])
    clusters = rows["cluster"].to_numpy()
    begins = [0, *(np.flatnonzero(clusters[1:] != clusters[:-1]) + 1).tolist()] if len(rows) else []
    return {
        clusters[begin]: rows.slice(begin, end - begin)
        for begin, end in zip(begins, [*begins[1:], len(rows)], strict=True)
    }
