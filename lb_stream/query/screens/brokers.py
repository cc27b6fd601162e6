"""List brokers by usage, as the last round with a report saw them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lb_stream.contracts.base import RESOURCES
from lb_stream.query.lake import Row, build_last_loads_query, records, run
from lb_stream.query.screens.lists import ListPage, ListRequest, load_page

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

SORTS = {
    "usage": "alive DESC, usage_ratio DESC NULLS LAST",
    "broker": "broker",
    "bundles": "bundles DESC NULLS LAST",
    "traffic": "bytes_per_s DESC NULLS LAST",
    "messages": "msgs_per_s DESC NULLS LAST",
    **{name: f"{name}_ratio DESC NULLS LAST" for name in RESOURCES},
}
_COLUMNS = f"""
    cluster, seq, now_ms, broker, alive, seen_ms, reported_ms, usage_ratio,
    {", ".join(f"{name}_ratio" for name in RESOURCES)}, bundles, topics,
    latest_throughput_in_bytes_per_s + latest_throughput_out_bytes_per_s AS bytes_per_s,
    latest_rate_in_msgs_per_s + latest_rate_out_msgs_per_s AS msgs_per_s,
    long_throughput_in_bytes_per_s + long_throughput_out_bytes_per_s AS long_bytes_per_s
"""
_LAST = f"""
    SELECT {_COLUMNS} FROM {{rows}} WHERE cluster = $1 AND broker = $2
    ORDER BY log_seq DESC LIMIT 1
"""
_LIMITS = f"""
    SELECT {", ".join(f"{name}_limit" for name in RESOURCES)}
    FROM broker_history WHERE cluster = $1 AND broker = $2
    ORDER BY slot_ms DESC LIMIT 1
"""


def list_brokers(lake: Lake, cluster: str, wanted: ListRequest) -> ListPage:
    """Return a page of a cluster's brokers, the hottest first.

    Usages are ratios of each resource's limit, traffic is in bytes/s and msgs/s.
    """
    query = f"SELECT {_COLUMNS} FROM {build_last_loads_query(lake, cluster)}"
    return load_page(lake, query, [cluster], wanted, "broker", SORTS)


def list_alive_brokers(lake: Lake, cluster: str) -> tuple[str, ...]:
    """Return the names of a cluster's alive brokers."""
    last_loads = build_last_loads_query(lake, cluster)
    query = f"SELECT broker FROM {last_loads} WHERE alive ORDER BY broker"
    return tuple(row["broker"] for row in records(run(lake, query, [cluster])))


def find_broker(lake: Lake, cluster: str, name: str) -> Row | None:
    """Return a broker's last load and its limits; None: no round has seen it.

    Limits are as reported: cpu in percent of a core, memory in MiB, bandwidth in kbit/s. A limit
    is None where it isn't known.
    """
    last_round = build_last_loads_query(lake, cluster)
    for loads in (last_round, "broker_loads"):  # a broker that has departed is in earlier rounds
        rows = records(run(lake, _LAST.format(rows=loads), [cluster, name]))
        if rows:
            break
    else:
        return None
    limits = records(run(lake, _LIMITS, [cluster, name]))
    unknown: Row = dict.fromkeys(f"{resource}_limit" for resource in RESOURCES)
    return rows[0] | (limits[0] if limits else unknown)
