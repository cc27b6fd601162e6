"""What the shell offers for names and ids: those of the tables, and contexts.

A shell asks while somebody types. So whatever goes wrong offers nothing and says nothing, and what
takes too long is given up.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Collection
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from threading import Thread
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

LIMIT_S = 2.0
"""Longest wait for the tables."""
MAX_NAMES = 200
"""How many names are offered, at most; more letters lead to the others."""
MAX_IDS = 50
"""How many ids are offered, at most: the newest."""


@dataclass(frozen=True, slots=True)
class Names:
    """Where names come from: a query with columns `name` and `place`, and the table that it reads.

    The cluster that is given, or NULL, is its $3. `most`: how many are offered; ids are those with
    the highest `place`.
    """

    query: str
    table: str
    most: int = MAX_NAMES

    @property
    def text(self) -> str:
        """Return the query for the names that begin with $1, $2 at most."""
        order = "name" if self.most == MAX_NAMES else "place DESC, name"
        return (
            f"SELECT name, max(place) AS place FROM ({self.query}) WHERE starts_with(name, $1) "
            f"GROUP BY name ORDER BY {order} LIMIT $2"
        )


_HERE = "WHERE ($3 IS NULL OR cluster = $3)"
_AVERAGES = "bundle_averages"
_BROKERS = Names(f"SELECT broker AS name, 0 AS place FROM broker_loads {_HERE}", "broker_loads")
_BUNDLES = Names(f"SELECT bundle AS name, 0 AS place FROM bundle_averages {_HERE}", _AVERAGES)
_NAMESPACES = Names(
    f"SELECT regexp_replace(bundle, '/[^/]*$', '') AS name, 0 AS place FROM bundle_averages {_HERE}",
    _AVERAGES,
)
_RANGES = Names(
    "SELECT regexp_replace(bundle, '^.*/', '') AS name, 0 AS place "
    f"FROM bundle_averages {_HERE} AND regexp_replace(bundle, '/[^/]*$', '') = $4",
    _AVERAGES,
)
_DECISIONS = Names(
    f"SELECT decision_id AS name, issued_ms AS place FROM decisions {_HERE}", "decisions", MAX_IDS
)
_COMMANDS = Names(f"SELECT id AS name, at_ms AS place FROM commands {_HERE}", "commands", MAX_IDS)
_ROUNDS = Names(
    f"SELECT cluster || ':' || seq AS name, log_seq AS place FROM rounds {_HERE} AND seq > 0",
    "rounds",
    MAX_IDS,
)
_ROLLOUTS = Names(
    f"SELECT rollout AS name, at_ms AS place FROM rollouts {_HERE}", "rollouts", MAX_IDS
)
_WAITING = f"""
    SELECT * FROM (
        FROM proposals {_HERE}
        QUALIFY row_number() OVER (PARTITION BY cluster, proposal_id ORDER BY log_seq DESC) = 1
    ) WHERE state = 'waiting'
"""
_PROPOSALS = Names(
    f"SELECT proposal_id AS name, proposed_ms AS place FROM ({_WAITING})", "proposals", MAX_IDS
)
_PLANS = Names(
    f"SELECT plan AS name, proposed_ms AS place FROM ({_WAITING}) WHERE plan IS NOT NULL",
    "proposals",
    MAX_IDS,
)


def complete_contexts(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the contexts of the user that begin so."""
    from lb_stream.cli.shared.contexts import load_contexts

    return _offer(lambda: sorted(load_contexts().known), incomplete)


def complete_clusters(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the clusters of the tables that begin so."""
    from lb_stream.query.cluster_state import CLUSTER_TABLES, list_known_clusters

    return _offer(lambda: list_known_clusters(_open(ctx, CLUSTER_TABLES)), incomplete)


def complete_brokers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the brokers that begin so, of the cluster that is already given, else of all."""
    return _find(ctx, _BROKERS, incomplete)


def complete_bundles(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the bundles that begin so, of the cluster that is already given, else of all."""
    return _find(ctx, _BUNDLES, incomplete)


def complete_brokers_and_bundles(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the brokers and bundles that begin so."""
    return [*complete_brokers(ctx, incomplete), *complete_bundles(ctx, incomplete)]


def complete_namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the namespaces that begin so."""
    return _find(ctx, _NAMESPACES, incomplete)


def complete_ranges(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the ranges of the bundles of the namespace that is already given."""
    # Where an option's value is completed, arguments are left unparsed.
    namespace = ctx.params.get("namespace") or next(iter(ctx.args), None)
    return _find(ctx, _RANGES, incomplete, namespace) if namespace else []


def complete_decisions(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the newest decisions that begin so."""
    return _find(ctx, _DECISIONS, incomplete)


def complete_commands(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the newest commands that begin so."""
    return _find(ctx, _COMMANDS, incomplete)


def complete_decisions_and_commands(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the newest decisions and commands that begin so."""
    return [*complete_decisions(ctx, incomplete), *complete_commands(ctx, incomplete)]


def complete_rounds(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the newest rounds that begin so."""
    return _find(ctx, _ROUNDS, incomplete)


def complete_rollouts(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the newest rollouts that begin so."""
    return _find(ctx, _ROLLOUTS, incomplete)


def complete_proposals(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the newest proposals that wait and begin so."""
    return _find(ctx, _PROPOSALS, incomplete)


def complete_plans(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the newest plans with proposals that wait, as far as they begin so."""
    return _find(ctx, _PLANS, incomplete)


def _open(ctx: typer.Context, tables: Collection[str]) -> Lake:
    """Open the tables that the options before name, else those of the context.

    lbctl itself gives the function that reads settings: options offer names, and not the reverse.
    """
    from lb_stream.query.lake import open_lake

    given = ctx.params
    settings = ctx.obj(given.get("config"), given.get("broker_conf"), given.get("set_"))
    return open_lake(settings.tables, only=tables)


def _find(ctx: typer.Context, names: Names, begin: str, *more: str) -> list[str]:
    """Return the names that begin so; `more`: parameters of their query after $3."""

    def find() -> list[str]:
        from lb_stream.query.lake import records, run

        lake = _open(ctx, (names.table,))
        parameters = [begin, names.most, ctx.params.get("cluster"), *more]
        return [row["name"] for row in records(run(lake, names.text, parameters))]

    return _offer(find, begin)


def _end_without(thread: Thread) -> None:
    """End the process at once if the thread still runs: Python would abort where it is."""
    if thread.is_alive():
        sys.stdout.flush()
        os._exit(0)


def _offer(find: Callable[[], list[str]], begin: str) -> list[str]:
    """Return what `find` gives within LIMIT_S, as far as it begins so and a shell can show it.

    The thread isn't waited for any longer, nor at the process's end: it may be within DuckDB.
    """
    found: list[str] = []

    def work() -> None:
        try:
            found.extend(find())
        except Exception:  # a shell that completes a word has no place for a message
            return

    with redirect_stderr(StringIO()):
        thread = Thread(target=work, daemon=True)
        thread.start()
        thread.join(LIMIT_S)
    if thread.is_alive():
        atexit.register(_end_without, thread)
    names = [name for name in found if name.startswith(begin) and name.isprintable()]
    return names[:MAX_NAMES]
