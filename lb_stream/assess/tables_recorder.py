"""Records load reports from the history in a job's tables.

A report is made of each broker's row in a slot, with the bundles that it then had. What history
leaves out, such as versions of brokers, the reports leave out too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pydantic.alias_generators import to_camel

from lb_stream.agent.pulsar.namespaces import NAMESPACES
from lb_stream.agent.pulsar.recorder import line_aside
from lb_stream.contracts.base import RESOURCES
from lb_stream.contracts.namespaces import (
    RING_END,
    ClusterNamespaces,
    Namespace,
    NamespaceIsolation,
)
from lb_stream.contracts.tables import BUNDLE_HISTORY
from lb_stream.core.model.memory import Memory
from lb_stream.io.local.report_lines import format_line
from lb_stream.io.tables.delta import existing_table
from lb_stream.query import QueryError
from lb_stream.query.lake import Row, open_lake
from lb_stream.query.past.tables import (
    build_lake_query,
    load_history,
    load_recorded_times,
    require_recorded_cluster,
)
from lb_stream.store import Store

MOST_ENTRIES = 1_000_000
"""Bundles in all reports together. Of longer spans, or larger clusters, slots are left out."""
_LOADS = {
    "rate_in_msgs_per_s": "msgRateIn",
    "rate_out_msgs_per_s": "msgRateOut",
    "throughput_in_bytes_per_s": "msgThroughputIn",
    "throughput_out_bytes_per_s": "msgThroughputOut",
}
_STATS = {**_LOADS, "topics": "topics", "producers": "producerCount", "consumers": "consumerCount"}
"""Column of bundle_history → field of a bundle's statistics."""


def record_tables(
    folder: Store, cluster: str | None, span_ms: int, write: Callable[[str], object]
) -> str:
    """Give the reports of the history's last `span_ms` to `write`; return the cluster's name.

    `cluster` None: the only one. Raises QueryError (exit code 2) where there is no history.
    """
    if existing_table(folder, BUNDLE_HISTORY) is None:
        raise QueryError(
            f"{folder} has no bundle_history: expected the folder of a job's tables, as in "
            "stream.tables",
            2,
        )
    with open_lake(folder, require_columns=False) as lake:
        ask = build_lake_query(lake)
        name = require_recorded_cluster(ask, cluster)
        first_ms, last_ms = load_recorded_times(ask)[name]
        past = load_history(ask, name, max(first_ms, last_ms - span_ms))
    if past["memory"]:
        rules = _find_rules(Memory.from_json(past["memory"]))
        write(line_aside(NAMESPACES, rules.model_dump(mode="json")))
    written = 0
    for at_ms, broker, report in _list_reports(past):
        write(format_line(broker, msgspec.json.encode(report), at_ms))
        written += 1
    if not written:
        raise QueryError(f"{folder} has no row of a broker of {name} in that time", 2)
    return name


def _find_rules(memory: Memory) -> ClusterNamespaces:
    state = memory.operator_state
    return ClusterNamespaces(
        namespaces=[
            Namespace(name=name, boundaries=[0, RING_END], anti_affinity_group=group)
            for name, group in state.anti_affinity.items()
        ],
        isolation=[
            NamespaceIsolation.model_validate(policy) for policy in state.isolation.values()
        ],
        failure_domains=dict(state.failure_domains),
    )


def _list_reports(past: Row) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    """Yield time (ms), broker and report, ordered by slot."""
    bundles, brokers = past["bundles"], past["brokers"]
    encoded = bundles["bundle"].combine_chunks().dictionary_encode()
    codes, names = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
    bundle_slots, broker_slots = (table["slot_ms"].to_numpy() for table in (bundles, brokers))
    slots = np.unique(broker_slots[broker_slots >= past["from_ms"]])
    every = -(-len(slots) * len(names) // MOST_ENTRIES) or 1
    last = np.full(len(names), -1)  # each bundle's last row
    read, told = 0, dict[str, int]()
    for slot_ms in slots[::-1][::every][::-1].tolist():
        until = int(np.searchsorted(bundle_slots, slot_ms, "right"))
        last[codes[read:until]] = np.arange(read, until)
        read = until
        served = _group_by_owner(bundles, last[last >= 0], codes, names)
        for row in brokers.filter(pa.array(broker_slots == slot_ms)).to_pylist():
            # a row repeats the last report of a broker that has sent no other since
            if row["left"] or row["reported_ms"] <= told.get(row["broker"], 0):
                continue
            told[row["broker"]] = row["reported_ms"]
            at_ms = min(max(row["reported_ms"], slot_ms), slot_ms + past["resolution_ms"] - 1)
            yield at_ms, row["broker"], _make_report(row, served.get(row["broker"], {}))


def _group_by_owner(
    bundles: pa.Table, rows: Any, codes: Any, names: list[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return owner → bundle → its statistics, of these rows."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    taken = bundles.select(["owner", *_STATS]).take(pa.array(rows))
    owners = taken["owner"].to_pylist()
    columns = [taken[column].fill_null(0).to_pylist() for column in _STATS]
    fields = tuple(_STATS.values())
    for code, owner, *values in zip(codes[rows].tolist(), owners, *columns, strict=True):
        if owner is not None:
            found.setdefault(owner, {})[names[code]] = dict(zip(fields, values, strict=True))
    return found


def _make_report(row: Row, served: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return a report as the modular manager writes it."""
    usages = {
        to_camel(resource): {"usage": row[f"{resource}_usage"], "limit": row[f"{resource}_limit"]}
        for resource in RESOURCES
        if row[f"{resource}_limit"] is not None and row[f"{resource}_usage"] is not None
    }
    loads = {field: row[column] or 0.0 for column, field in _LOADS.items()}
    return {
        "webServiceUrl": f"http://{row['broker']}",
        **usages,
        **loads,
        "lastStats": served,
        "bundles": list(served),
        "numTopics": row["topics"] or 0,
        "numBundles": len(served),
        "lastUpdate": row["reported_ms"],
    }
