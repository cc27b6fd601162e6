"""List bundles, namespaces and tenants of a cluster or a broker by their short-term averages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lb_stream.query.lake import Row, build_loaded_bundles_query, records, run
from lb_stream.query.screens.lists import ListPage, ListRequest, load_page

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

_NAMESPACE = "regexp_replace(bundle, '/[^/]*$', '')"
_TENANT = "regexp_replace(bundle, '/.*$', '')"
_LOADS = f"""
    SELECT cluster, bundle, {_NAMESPACE} AS namespace, {_TENANT} AS tenant, owner, owner_since_ms,
           topics, now_ms,
           latest_throughput_in_bytes_per_s + latest_throughput_out_bytes_per_s
               AS latest_bytes_per_s,
           short_throughput_in_bytes_per_s + short_throughput_out_bytes_per_s AS bytes_per_s,
           short_rate_in_msgs_per_s + short_rate_out_msgs_per_s AS msgs_per_s,
           long_throughput_in_bytes_per_s + long_throughput_out_bytes_per_s AS long_bytes_per_s
    FROM {{bundles}}
"""
_SHARE = "bytes_per_s / nullif(sum(bytes_per_s) OVER (), 0) AS share"
BUNDLE_SORTS = {
    "traffic": "bytes_per_s DESC NULLS LAST",
    "bundle": "bundle",
    "messages": "msgs_per_s DESC NULLS LAST",
    "topics": "topics DESC NULLS LAST",
    "since": "owner_since_ms DESC NULLS LAST",
}
GROUP_SORTS = {
    "traffic": "bytes_per_s DESC NULLS LAST",
    "name": "name",
    "messages": "msgs_per_s DESC NULLS LAST",
    "bundles": "bundles DESC",
    "topics": "topics DESC NULLS LAST",
}


def _build_loads_query(lake: Lake, cluster: str) -> str:
    """Return the query for the load of each of a cluster's bundles; the cluster is its $1."""
    return _LOADS.format(bundles=build_loaded_bundles_query(lake, cluster))


def list_bundles(
    lake: Lake,
    cluster: str,
    wanted: ListRequest,
    *,
    owner: str | None = None,
    namespace: str | None = None,
    tenant: str | None = None,
) -> ListPage:
    """Return a page of the bundles that meet all conditions, the heaviest first.

    `share`: of the traffic of all bundles that meet them.
    """
    query = f"""
        SELECT *, {_SHARE} FROM ({_build_loads_query(lake, cluster)})
        WHERE ($2 IS NULL OR owner = $2) AND ($3 IS NULL OR namespace = $3)
          AND ($4 IS NULL OR tenant = $4)"""
    return load_page(
        lake, query, [cluster, owner, namespace, tenant], wanted, "bundle", BUNDLE_SORTS
    )


def list_groups(
    lake: Lake,
    cluster: str,
    by: str,
    wanted: ListRequest,
    *,
    tenant: str | None = None,
    created: Sequence[str] = (),
) -> ListPage:
    """Return a page of a cluster's namespaces or tenants, the heaviest first.

    `by`: namespace or tenant. `share`: of the traffic of all of them. `created`: namespaces that
    are listed also if no bundle of theirs is known.
    """
    if by not in ("namespace", "tenant"):
        raise ValueError(f"by {by!r}: expected namespace or tenant")
    query = f"""
        SELECT *, {_SHARE} FROM (
            SELECT {by} AS name, any_value(tenant) AS tenant, count(bundle) AS bundles,
                   count(DISTINCT owner) AS brokers,
                   sum(topics)::BIGINT AS topics, sum(bytes_per_s) AS bytes_per_s,
                   sum(msgs_per_s) AS msgs_per_s,
                   sum(long_bytes_per_s) AS long_bytes_per_s
            FROM (
                {_build_loads_query(lake, cluster)} UNION ALL BY NAME
                SELECT name AS namespace, split_part(name, '/', 1) AS tenant
                FROM (SELECT unnest($3::VARCHAR[]) AS name)
            )
            WHERE $2 IS NULL OR tenant = $2 GROUP BY {by}
        )"""
    return load_page(lake, query, [cluster, tenant, list(created)], wanted, "name", GROUP_SORTS)


def find_group(
    lake: Lake, cluster: str, *, namespace: str | None = None, tenant: str | None = None
) -> Row | None:
    """Return a namespace's or a tenant's load, and its share of the cluster's traffic.

    None: none of its bundles is known.
    """
    loads = _build_loads_query(lake, cluster)
    query = f"""
        SELECT count(*) AS bundles, count(DISTINCT owner) AS brokers,
               sum(topics)::BIGINT AS topics, sum(bytes_per_s) AS bytes_per_s,
               sum(msgs_per_s) AS msgs_per_s, sum(long_bytes_per_s) AS long_bytes_per_s,
               sum(bytes_per_s) / nullif((SELECT sum(bytes_per_s) FROM ({loads})), 0) AS share
        FROM ({loads}) WHERE ($2 IS NULL OR namespace = $2) AND ($3 IS NULL OR tenant = $3)"""
    (row,) = records(run(lake, query, [cluster, namespace, tenant]))
    return row if row["bundles"] else None


def list_broker_shares(lake: Lake, cluster: str, namespace: str) -> tuple[Row, ...]:
    """Return the brokers that serve a namespace, the one with most of its traffic first.

    A row has the namespace's bundles and traffic there, and its share of the broker's traffic.
    """
    query = f"""
        SELECT owner AS broker, count(*) FILTER (WHERE namespace = $2) AS bundles,
               sum(bytes_per_s) FILTER (WHERE namespace = $2) AS bytes_per_s,
               sum(bytes_per_s) FILTER (WHERE namespace = $2) / nullif(sum(bytes_per_s), 0) AS share
        FROM ({_build_loads_query(lake, cluster)})
        WHERE owner IS NOT NULL GROUP BY owner HAVING bundles > 0
        ORDER BY bytes_per_s DESC NULLS LAST, owner LIMIT 50"""
    return tuple(records(run(lake, query, [cluster, namespace])))


def find_bundle_load(lake: Lake, cluster: str, name: str) -> Row | None:
    """Return a bundle's load now; None: no report names it, or it was split, merged or deleted."""
    query = f"SELECT * FROM ({_build_loads_query(lake, cluster)}) WHERE bundle = $2"
    rows = records(run(lake, query, [cluster, name]))
    return rows[0] if rows else None
