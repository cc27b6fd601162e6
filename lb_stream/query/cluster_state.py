"""What is in force in each cluster, as the memory of its last logged round has it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lb_stream.query import QueryError
from lb_stream.query.lake import open_lake, records, run

if TYPE_CHECKING:
    import duckdb

    from lb_stream.core.config.cluster_config import ClusterConfig
    from lb_stream.core.model.memory import Memory
    from lb_stream.core.model.operator_state import OperatorState
    from lb_stream.settings.move_limits import MoveLimits
    from lb_stream.store import Store


@dataclass(frozen=True, slots=True)
class ClusterState:
    """One cluster: what it remembers, and the job's own settings for it."""

    cluster: str
    now_ms: int
    memory: Memory
    given: Mapping[str, Any]
    seq: int = 0
    error: str | None = None
    refusals: Sequence[Mapping[str, Any]] = ()

    @property
    def operator_state(self) -> OperatorState:
        """What operators' commands have set."""
        return self.memory.operator_state

    @property
    def limits(self) -> MoveLimits:
        """Of the settings in force those that say when bundles may move. Raises SettingError."""
        from lb_stream.settings.move_limits import move_limits

        return move_limits(self.given, self.operator_state.settings)

    @property
    def config(self) -> ClusterConfig:
        """The settings in force; imports every strategy.

        Raises SettingError when they don't go together.
        """
        from lb_stream.settings.resolve import resolve

        return resolve(self.given, self.operator_state.settings).config


def require_cluster(lake: duckdb.DuckDBPyConnection, cluster: str | None) -> None:
    """Raises QueryError (exit code 2) for a cluster that the tables don't know; None means all of
    them."""
    if cluster is None:
        return
    names = cluster_names(lake)
    if cluster not in names:
        raise QueryError(describe_unknown_cluster(cluster, names), 2)


def cluster_names(lake: duckdb.DuckDBPyConnection) -> list[str]:
    """Every cluster that some table knows, by name."""
    tables = ("rounds", "broker_loads", "decisions")  # upkeep keeps them for different times
    known = " UNION ".join(f"SELECT DISTINCT cluster FROM {table}" for table in tables)
    return [row["cluster"] for row in records(run(lake, f"{known} ORDER BY cluster"))]


def describe_unknown_cluster(cluster: str, known: Sequence[str]) -> str:
    """The error for a cluster that the tables don't know."""
    return f"there is no cluster {cluster}: " + (
        f"there are {', '.join(known)}" if known else "none has had a round yet"
    )


def list_clusters(tables: Store) -> list[str]:
    """The clusters that have had a round, and that have not been forgotten since; none where there
    are no tables here."""
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
    """Every cluster or the named one, without those that had no round or were forgotten.

    Raises QueryError where there are no tables.
    """
    return read_cluster_states(open_lake(tables), cluster)


def read_cluster_states(
    lake: duckdb.DuckDBPyConnection, cluster: str | None = None
) -> list[ClusterState]:
    """The same, from tables that are open already."""
    last = records(
        run(
            lake,
            """SELECT cluster, max(log_seq) AS n FROM rounds
               WHERE (seq > 0 OR error IS NOT NULL) AND ($1 IS NULL OR cluster = $1) GROUP BY cluster""",
            [cluster],
        )
    )
    if not last:
        return []
    from lb_stream.core.model.memory import Memory

    numbers = ", ".join(
        sorted({str(row["n"]) for row in last})
    )  # of the log's long rows only these are read
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
        if (row["cluster"], row["log_seq"]) in wanted
        and row["memory"]  # without one: it has been forgotten
    ]


def require_single_cluster(tables: Store, cluster: str | None) -> ClusterState:
    """The cluster that is meant.

    Raises QueryError when there is none, or when there are several and none was named.
    """
    return require_single_cluster_in(open_lake(tables), cluster)


def require_single_cluster_in(lake: duckdb.DuckDBPyConnection, cluster: str | None) -> ClusterState:
    """The same, from tables that are open already."""
    found = read_cluster_states(lake, cluster)
    if not found:
        require_cluster(lake, cluster)
        raise QueryError(
            f"no round of {f'a cluster {cluster}' if cluster else 'any cluster'} has been logged "
            "yet"
        )
    if len(found) > 1:
        raise QueryError(
            f"which cluster? --cluster one of {', '.join(state.cluster for state in found)}", 2
        )
    return found[0]
