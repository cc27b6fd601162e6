"""The whole name of a bundle or the id of a decision, out of what was given of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lb_stream.query import QueryError
from lb_stream.query.cluster_state import require_cluster
from lb_stream.query.lake import records, run

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

MOST_NAMED = 6
"""Names in a message."""
_NEAR = 0.8
"""Names less alike than this (Jaro-Winkler, 0 to 1) are not named as nearest."""

_LIVE = "SELECT bundle AS name FROM bundle_averages WHERE ($2 IS NULL OR cluster = $2)"
_BUNDLES = f"""
    {_LIVE}
    UNION SELECT bundle FROM decisions WHERE ($2 IS NULL OR cluster = $2)
    UNION SELECT neighbour FROM decisions
    WHERE neighbour IS NOT NULL AND ($2 IS NULL OR cluster = $2)
    UNION SELECT bundle FROM ownership WHERE ($2 IS NULL OR cluster = $2)
"""
_DECISIONS = "SELECT decision_id AS name FROM decisions WHERE ($2 IS NULL OR cluster = $2)"
_COMMANDS = "SELECT id AS name FROM commands WHERE ($2 IS NULL OR cluster = $2)"


def find_bundle(lake: Lake, given: str, cluster: str | None, *, live: bool = False) -> str:
    """The bundle that a whole name, a namespace with one bundle, or the begin of a name stands for.

    `live`: only among bundles that reports name now, unless `given` is a whole name.
    Raises QueryError (exit code 2) for an unknown cluster or name, and for one that fits several.
    """
    require_cluster(lake, cluster)
    given = given.removeprefix("persistent://")
    if _names(lake, _BUNDLES, "name = $1", given, cluster):
        return given
    found = fitting_bundles(lake, given, cluster, live=live)
    if len(found) == 1:
        return found[0]
    if found:
        raise QueryError(f"bundle {given}: expected one of those that it fits: {_listed(found)}", 2)
    select = 'lbctl sql "select bundle from bundle_averages" lists those that are known'
    near = similar_namespaces(lake, given, cluster)
    raise QueryError(f"no report names {given}{_of(cluster)}: {select}{near}", 2)


def fitting_bundles(lake: Lake, given: str, cluster: str | None, *, live: bool) -> list[str]:
    """The bundles of a namespace of that name, or else those whose names begin so."""
    known = _LIVE if live else _BUNDLES
    namespace = given.removesuffix("/")
    found = _names(lake, known, "regexp_replace(name, '/[^/]*$', '') = $1", namespace, cluster)
    return found or _names(lake, known, "starts_with(name, $1)", given, cluster)


def find_decision(lake: Lake, given: str, cluster: str | None) -> str:
    """The decision that a whole id, or the begin of one id, stands for.

    Raises QueryError (exit code 2) for an unknown cluster or id, and for one that fits several.
    """
    require_cluster(lake, cluster)
    if _names(lake, _DECISIONS, "name = $1", given, cluster):
        return given
    if elsewhere := _names(lake, _DECISIONS, "name = $1", given, None):
        whose = given.rpartition(":")[0].rpartition(":")[0]
        raise QueryError(f"{elsewhere[0]} is of {whose}, not of {cluster}", 2)
    found = _names(lake, _DECISIONS, "starts_with(name, $1)", f"{given.rstrip(':')}:", cluster)
    if len(found) == 1:
        return found[0]
    if found:
        expected = f"expected one of those that it fits: {_listed(found)}"
        raise QueryError(f"decision {given}: {expected}", 2)
    hint = "lbctl decisions shows the last ones, their ids with --json"
    near = _similar(lake, _DECISIONS, given, cluster)
    raise QueryError(f"there is no decision {given}{_of(cluster)}: {hint}{near}", 2)


def similar_ids(lake: Lake, given: str, cluster: str | None) -> str:
    """The ids of decisions and commands that are like `given`, for the end of a message."""
    return _similar(lake, f"{_DECISIONS} UNION {_COMMANDS}", given, cluster)


def similar_commands(lake: Lake, given: str, cluster: str | None) -> str:
    """The ids of commands that are like `given`, for the end of a message."""
    return _similar(lake, _COMMANDS, given, cluster)


def similar_namespaces(lake: Lake, given: str, cluster: str | None) -> str:
    """The namespaces that are like `given`, or else the first ones, for the end of a message."""
    namespaces = f"SELECT DISTINCT regexp_replace(name, '/[^/]*$', '') AS name FROM ({_LIVE})"
    near = _similar(lake, namespaces, given, cluster)
    first = _listed(_names(lake, namespaces, "$1 <> ''", given, cluster))
    return near or (f"; namespaces are {first}" if first else "")


def _similar(lake: Lake, known: str, given: str, cluster: str | None) -> str:
    """Names that begin as `given` does, or else those most like it."""
    found = _names(lake, known, "starts_with(name, $1)", given, cluster)
    near = _listed(found) if found else _nearest(lake, known, given, cluster)
    return f"; nearest are {near}" if near else ""


def _of(cluster: str | None) -> str:
    return f" of {cluster}" if cluster else ""


def _names(lake: Lake, known: str, condition: str, given: str, cluster: str | None) -> list[str]:
    query = f"SELECT DISTINCT name FROM ({known}) WHERE {condition} ORDER BY name"
    return [str(row["name"]) for row in records(run(lake, query, [given, cluster]))]


def _nearest(lake: Lake, known: str, given: str, cluster: str | None) -> str:
    query = f"""
        SELECT DISTINCT name, jaro_winkler_similarity(name, $1) AS alike FROM ({known})
        WHERE alike >= {_NEAR} ORDER BY alike DESC, name LIMIT 3"""
    return ", ".join(str(row["name"]) for row in records(run(lake, query, [given, cluster])))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
