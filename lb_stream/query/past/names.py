"""Find the whole name of a bundle, or a whole id, from the begin of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lb_stream.query import QueryError
from lb_stream.query.cluster_state import require_cluster
from lb_stream.query.lake import records, run

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

MAX_NAMED = 6
"""Names in a message at most."""
_MIN_SIMILARITY = 0.8
"""Similarity (Jaro-Winkler, 0 to 1) from which on a name is suggested."""

_LIVE = "SELECT bundle AS name FROM bundle_averages WHERE ($2 IS NULL OR cluster = $2)"
_BUNDLES = f"""
    {_LIVE}
    UNION SELECT bundle FROM decisions WHERE ($2 IS NULL OR cluster = $2)
    UNION SELECT neighbour FROM decisions
    WHERE neighbour IS NOT NULL AND ($2 IS NULL OR cluster = $2)
    UNION SELECT bundle FROM ownership WHERE ($2 IS NULL OR cluster = $2)
"""
MIN_BEGIN = 4
"""Characters of an id that must be given at least."""
_DECISIONS = "SELECT decision_id AS name FROM decisions WHERE ($2 IS NULL OR cluster = $2)"
_COMMANDS = "SELECT id AS name FROM commands WHERE ($2 IS NULL OR cluster = $2)"
_ROLLOUTS = "SELECT rollout AS name FROM rollouts WHERE ($2 IS NULL OR cluster = $2)"


def find_bundle(lake: Lake, given: str, cluster: str | None, *, live: bool = False) -> str:
    """Return the bundle of a whole name, of a namespace with one bundle, or of the begin of a name.

    `live`: only among bundles that reports name now, unless `given` is a whole name.
    Raises QueryError (exit code 2) for an unknown cluster or name, and for one that fits several.
    """
    require_cluster(lake, cluster)
    given = given.removeprefix("persistent://")
    if _find_names(lake, _BUNDLES, "name = $1", given, cluster):
        return given
    found = find_fitting_bundles(lake, given, cluster, live=live)
    if len(found) == 1:
        return found[0]
    if found:
        raise QueryError(
            f"bundle {given}: expected one of those that it fits: {_list_first(found)}", 2
        )
    select = 'lbctl sql "select bundle from bundle_averages" lists those that are known'
    near = describe_similar_namespaces(lake, given, cluster)
    raise QueryError(f"no report names {given}{_describe_cluster(cluster)}: {select}{near}", 2)


def find_fitting_bundles(lake: Lake, given: str, cluster: str | None, *, live: bool) -> list[str]:
    """Return the bundles of a namespace of that name, or else those whose names begin so."""
    known = _LIVE if live else _BUNDLES
    namespace = given.removesuffix("/")
    found = _find_names(lake, known, "regexp_replace(name, '/[^/]*$', '') = $1", namespace, cluster)
    return found or _find_names(lake, known, "starts_with(name, $1)", given, cluster)


def find_decision(lake: Lake, given: str, cluster: str | None) -> str:
    """Return the decision of a whole id, or of the begin of an id.

    Raises QueryError (exit code 2) for an unknown cluster or id, and for one that fits several.
    """
    require_cluster(lake, cluster)
    if _find_names(lake, _DECISIONS, "name = $1", given, cluster):
        return given
    if elsewhere := _find_names(lake, _DECISIONS, "name = $1", given, None):
        whose = given.rpartition(":")[0].rpartition(":")[0]
        raise QueryError(f"{elsewhere[0]} is of {whose}, not of {cluster}", 2)
    if found := _find_by_begin(lake, _DECISIONS, "decision", given, cluster):
        return found
    hint = "lbctl decisions shows the last ones, their ids with --json"
    near = _describe_similar(lake, _DECISIONS, given, cluster)
    raise QueryError(f"there is no decision {given}{_describe_cluster(cluster)}: {hint}{near}", 2)


def find_command(lake: Lake, given: str, cluster: str | None) -> str | None:
    """Return the command of a whole id, or of the begin of an id; None: there is none.

    Raises QueryError (exit code 2) if several fit.
    """
    return _find_by_begin(lake, _COMMANDS, "command", given, cluster)


def find_decision_or_command(lake: Lake, given: str, cluster: str | None) -> str | None:
    """Return the decision or command of a whole id, or of the begin of one; None: there is none.

    Raises QueryError (exit code 2) if several fit.
    """
    known = f"{_DECISIONS} UNION {_COMMANDS}"
    return _find_by_begin(lake, known, "decision or command", given, cluster)


def find_rollout(lake: Lake, given: str, cluster: str | None) -> str | None:
    """Return the rollout of a whole id, or of the begin of an id; None: there is none.

    Raises QueryError (exit code 2) if several fit.
    """
    return _find_by_begin(lake, _ROLLOUTS, "rollout", given, cluster)


def choose_by_begin(kind: str, given: str, known: Iterable[str]) -> str | None:
    """Return the id that is `given` or that alone begins so; None: none does.

    A number is given whole: eu-1:4 is no begin of eu-1:42:0, while eu-1:42 is. `kind`: what the ids
    are of. Raises QueryError (exit code 2) if several begin so.
    """
    fitting = [name for name in dict.fromkeys(known) if _begins(name, given)]
    if given in fitting:
        return given
    if len(given) < MIN_BEGIN or not fitting:
        return None
    if len(fitting) > 1:
        names = _list_first(fitting)
        raise QueryError(f"{kind} {given}: expected one of those that it fits: {names}", 2)
    return fitting[0]


def _begins(name: str, begin: str) -> bool:
    """Return whether an id begins so, and not within one of its numbers."""
    if not name.startswith(begin):
        return False
    within_number = begin[-1:].isdigit() and name[len(begin) :][:1].isdigit()
    return not (":" in name and within_number)


def _find_by_begin(
    lake: Lake, known: str, kind: str, given: str, cluster: str | None
) -> str | None:
    found = _find_names(lake, known, "starts_with(name, $1)", given, cluster)
    return choose_by_begin(kind, given, found)


def describe_similar_ids(lake: Lake, given: str, cluster: str | None) -> str:
    """Return the end of a message: ids of decisions and commands like `given`."""
    return _describe_similar(lake, f"{_DECISIONS} UNION {_COMMANDS}", given, cluster)


def describe_similar_commands(lake: Lake, given: str, cluster: str | None) -> str:
    """Return the end of a message: ids of commands like `given`."""
    return _describe_similar(lake, _COMMANDS, given, cluster)


def describe_similar_namespaces(lake: Lake, given: str, cluster: str | None) -> str:
    """Return the end of a message: namespaces like `given`, or else the first ones."""
    namespaces = f"SELECT DISTINCT regexp_replace(name, '/[^/]*$', '') AS name FROM ({_LIVE})"
    near = _describe_similar(lake, namespaces, given, cluster)
    first = _list_first(_find_names(lake, namespaces, "$1 <> ''", given, cluster))
    return near or (f"; namespaces are {first}" if first else "")


def _describe_similar(lake: Lake, known: str, given: str, cluster: str | None) -> str:
    """Return the end of a message: names that begin with `given`, or else those most like it."""
    found = _find_names(lake, known, "starts_with(name, $1)", given, cluster)
    near = _list_first(found) if found else _find_nearest(lake, known, given, cluster)
    return f"; nearest are {near}" if near else ""


def _describe_cluster(cluster: str | None) -> str:
    return f" of {cluster}" if cluster else ""


def _find_names(
    lake: Lake, known: str, condition: str, given: str, cluster: str | None
) -> list[str]:
    query = f"SELECT DISTINCT name FROM ({known}) WHERE {condition} ORDER BY name"
    return [str(row["name"]) for row in records(run(lake, query, [given, cluster]))]


def _find_nearest(lake: Lake, known: str, given: str, cluster: str | None) -> str:
    query = f"""
        SELECT DISTINCT name, jaro_winkler_similarity(name, $1) AS alike FROM ({known})
        WHERE alike >= {_MIN_SIMILARITY} ORDER BY alike DESC, name LIMIT 3"""
    return ", ".join(str(row["name"]) for row in records(run(lake, query, [given, cluster])))


def _list_first(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
