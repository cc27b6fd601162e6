"""Brokers by short names: what somebody gives of a name is taken for the one broker that it
fits."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from lb_stream.cli.shared.output import CommandError

if TYPE_CHECKING:
    from lb_stream.cli.shared.options import CliSettings
    from lb_stream.store import Store

MOST_NAMED = 6
"""Names in a message."""
_KNOWN = "SELECT DISTINCT broker FROM broker_loads WHERE $1 IS NULL OR cluster = $1 ORDER BY broker"


def require_broker_name(settings: CliSettings, cluster: str | None, given: str) -> str:
    """The whole name (host:port) of a broker of a cluster (None: of any), which may be given as its
    host or the host's first label.

    A name with a port is taken as it is: the tables may not know it yet. Raises CommandError (2)
    where none fits, or several do.
    """
    from lb_stream.core.commands.base import broker_of

    name = broker_of(given)
    return name if has_port(name) else match_broker(name, _known(settings.tables, cluster))


def has_port(name: str) -> bool:
    """Whether a name says a port, as whole names do."""
    _, colon, port = name.rpartition(":")
    return bool(colon) and port.isdigit()


def match_broker(name: str, known: Sequence[str]) -> str:
    """The one of the known brokers that a short name fits: by its whole name, else its host, else
    its host's first label.

    Raises CommandError (2) where none does, or several do.
    """
    parts = {one: _parts(one) for one in known}
    for number in range(3):
        fit = [one for one in known if parts[one][number] == name]
        if len(fit) == 1:
            return fit[0]
        if fit:
            raise CommandError(
                f"broker {name}: expected one of those that it fits: {_named(fit)}", 2
            )
    if not known:
        raise CommandError(
            f"broker {name}: expected host:port: no tables tell here which brokers there are", 2
        )
    shorts = {short: one for one in reversed(known) for short in parts[one][1:]}
    near = list(dict.fromkeys(shorts[one] for one in get_close_matches(name, shorts, n=3)))
    raise CommandError(
        f"broker {name}: expected a broker's name, or its host without domain and port; nearest: "
        f"{_named(near or known)}",
        2,
    )


def _parts(whole: str) -> tuple[str, str, str]:
    """A broker's whole name, its host, its host's first label."""
    from lb_stream.core.model.policies import host_of

    host = host_of(whole)
    return whole, host, host.partition(".")[0]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _known(tables: Store, cluster: str | None) -> list[str]:
    from lb_stream.query import NoTables
    from lb_stream.query.cluster_state import require_cluster
    from lb_stream.query.lake import open_lake, records, run

    try:
        with open_lake(tables, require_columns=False) as lake:
            require_cluster(lake, cluster)
            return [row["broker"] for row in records(run(lake, _KNOWN, [cluster]))]
    except NoTables:
        return []
