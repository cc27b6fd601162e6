"""What the shell offers for names: clusters, brokers and bundles of the tables, and contexts.

A shell asks while somebody types. So whatever goes wrong offers nothing and says nothing, and what
takes too long is given up.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stderr
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

_BEGINS = "starts_with(name, $1) ORDER BY name LIMIT $2"
_BROKERS = f"""
    SELECT name FROM (
        SELECT DISTINCT broker AS name FROM broker_loads WHERE $3 IS NULL OR cluster = $3
    ) WHERE {_BEGINS}
"""
_BUNDLES = f"""
    SELECT name FROM (
        SELECT DISTINCT bundle AS name FROM bundle_averages WHERE $3 IS NULL OR cluster = $3
    ) WHERE {_BEGINS}
"""


def complete_contexts(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the contexts of the user that begin so."""
    from lb_stream.cli.shared.contexts import load_contexts

    return _offer(lambda: sorted(load_contexts().known), incomplete)


def complete_clusters(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the clusters of the tables that begin so."""
    from lb_stream.query.cluster_state import list_known_clusters

    return _offer(lambda: list_known_clusters(_open(ctx)), incomplete)


def complete_brokers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the brokers that begin so, of the cluster that is already given, else of all."""
    return _offer(lambda: _find(ctx, _BROKERS, incomplete), incomplete)


def complete_bundles(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the bundles that begin so, of the cluster that is already given, else of all."""
    return _offer(lambda: _find(ctx, _BUNDLES, incomplete), incomplete)


def complete_brokers_and_bundles(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the brokers and bundles that begin so."""
    return [*complete_brokers(ctx, incomplete), *complete_bundles(ctx, incomplete)]


def _open(ctx: typer.Context) -> Lake:
    """Open the tables that the options before name, else those of the context.

    lbctl itself gives the function that reads settings: options offer names, and not the reverse.
    """
    from lb_stream.query.lake import open_lake

    given = ctx.params
    settings = ctx.obj(given.get("config"), given.get("broker_conf"), given.get("set_"))
    return open_lake(settings.tables)


def _find(ctx: typer.Context, query: str, begin: str) -> list[str]:
    from lb_stream.query.lake import records, run

    lake = _open(ctx)
    rows = records(run(lake, query, [begin, MAX_NAMES, ctx.params.get("cluster")]))
    return [row["name"] for row in rows]


def _offer(find: Callable[[], list[str]], begin: str) -> list[str]:
    """Return what `find` gives within LIMIT_S, as far as it begins so and a shell can show it.

    The thread isn't waited for any longer; it ends with the process.
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
    names = [name for name in found if name.startswith(begin) and name.isprintable()]
    return names[:MAX_NAMES]
