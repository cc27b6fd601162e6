"""The settings and operators' state of each cluster, from the memory of its last logged round."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lb_stream.query import QueryError
from lb_stream.query.lake import Row, open_lake, records, run

if TYPE_CHECKING:
    from lb_stream.core.config.cluster_config import ClusterConfig
    from lb_stream.core.model.memory import Memory
    from lb_stream.core.model.operator_state import OperatorState
    from lb_stream.query.lake import Lake
    from lb_stream.settings.move_limits import MoveLimits
    from lb_stream.store import Store


@dataclass(frozen=True, slots=True)
class ClusterState:
    """One cluster after its last logged round. `given`: the job's own settings for it."""

    cluster: str
    now_ms: int
    memory: Memory
    given: Mapping[str, object]
    seq: int = 0
    error: str | None = None
    refusals: Sequence[Row] = ()

    @property
    def operator_state(self) -> OperatorState:
        """Return the state that operators' commands have set."""
        return self.memory.operator_state

    @property
    def limits(self) -> MoveLimits:
        """Return the settings in force that limit moves. Raises SettingError."""
        from lb_stream.settings.move_limits import resolve_move_limits

        return resolve_move_limits(self.given, self.operator_state.settings)

    @property
    def config(self) -> ClusterConfig:
        """Return the settings in force. Imports every strategy.

        Raises SettingError for settings that contradict each other.
        """
        from lb_stream.settings.overrides import resolve_in_force

        return resolve_in_force(self.given, self.memory)


def require_cluster(lake: Lake, cluster: str | None) -> None:
    """Raise QueryError (exit code 2) if no table has a cluster of this name; None: no check."""
    if cluster is None:
        return
    names = list_known_clusters(lake)
    if cluster not in names:
        raise QueryError(describe_unknown_cluster(cluster, names), 2)


CLUSTER_TABLES = ("rounds", "broker_loads", "decisions")
"""Tables that know clusters: upkeep keeps their rows for different times."""


def list_known_clusters(lake: Lake) -> list[str]:
    """Return the clusters of all tables, sorted."""
    known = " UNION ".join(f"SELECT DISTINCT cluster FROM {table}" for table in CLUSTER_TABLES)
    return [row["cluster"] for row in records(run(lake, f"{known} ORDER BY cluster"))]


def describe_unknown_cluster(cluster: str, known: Sequence[str]) -> str:
    """Return the message about a cluster that no table has."""
    others = f"there are {', '.join(known)}" if known else "none has had a round yet"
    return f"there is no cluster {cluster}: {others}"


def list_clusters(tables: Store) -> list[str]:
    """Return the clusters with a round that were not forgotten; empty if there are no tables."""
    try:
        lake = open_lake(tables)
    except QueryError:
        return []
    last = (
        "SELECT cluster, arg_max(memory, log_seq) AS memory FROM rounds WHERE seq > 0 GROUP BY "
        "cluster ORDER BY cluster"
    )
    return [row["cluster"] for row in records(run(lake, last)) if row["memory"]]


def load_cluster_states(tables: Store, cluster: str | None = None) -> list[ClusterState]:
    """Return all clusters or the named one, without those that had no round or were forgotten.

    Raises QueryError if there are no tables.
    """
    return read_cluster_states(open_lake(tables), cluster)


def read_cluster_states(lake: Lake, cluster: str | None = None) -> list[ClusterState]:
    """Return the result of `load_cluster_states`, from open tables."""
    last = records(
        run(
            lake,
            """SELECT cluster, max(log_seq) AS n FROM rounds
               WHERE (seq > 0 OR error IS NOT NULL) AND ($1 IS NULL OR cluster = $1)
               GROUP BY cluster""",
            [cluster],
        )
    )
    if not last:
        return []
    from lb_stream.core.model.memory import Memory

    # Rows of the log are long: by their numbers, DuckDB reads only these.
    numbers = ", ".join(sorted({str(row["n"]) for row in last}))
    columns = "cluster, log_seq, now_ms, memory, inputs, seq, error, refusals"
    rows = records(
        run(lake, f"SELECT {columns} FROM rounds WHERE log_seq IN ({numbers}) ORDER BY cluster")
    )
    wanted = {(row["cluster"], row["n"]) for row in last}
    return [
        ClusterState(
            row["cluster"],
            row["now_ms"],
            Memory.from_json(row["memory"]),
            json.loads(row["inputs"])["settings"],
            row["seq"],
            row["error"],
            json.loads(row["refusals"] or "[]"),
        )
        for row in rows
        # A cluster without a memory has been forgotten.
        if (row["cluster"], row["log_seq"]) in wanted and row["memory"]
    ]


def require_single_cluster(tables: Store, cluster: str | None) -> ClusterState:
    """Return the named cluster, or the only one.

    Raises QueryError if there is none, or if there are several and none is named.
    """
    return require_single_cluster_in(open_lake(tables), cluster)


def require_single_cluster_in(lake: Lake, cluster: str | None) -> ClusterState:
    """Return the result of `require_single_cluster`, from open tables."""
    found = read_cluster_states(lake, cluster)
    if not found:
        require_cluster(lake, cluster)
        which = f"a cluster {cluster}" if cluster else "any cluster"
        raise QueryError(f"no round of {which} has been logged yet")
    if len(found) > 1:
        names = ", ".join(state.cluster for state in found)
        raise QueryError(f"--cluster: expected one of {names}", 2)
    return found[0]
