"""Short names of brokers: a part of a name stands for the only broker that has it."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from lb_stream.cli.shared.output import CommandError

if TYPE_CHECKING:
    from lb_stream.cli.shared.options import CliSettings
    from lb_stream.store import Store

MAX_NAMED = 6
"""How many names a message has."""
_BROKERS = (
    "SELECT DISTINCT broker FROM broker_loads WHERE $1 IS NULL OR cluster = $1 ORDER BY broker"
)


def require_broker_name(settings: CliSettings, cluster: str | None, given: str) -> str:
    """Return a broker's whole name (host:port); its host, or the host's first label, may be given.

    `cluster` None: of any cluster. A name with a port is returned unchanged: the tables may not
    have the broker yet. Raises CommandError (2) if no broker has the name, or several have.
    """
    from lb_stream.core.commands.base import broker_of

    name = broker_of(given)
    return name if has_port(name) else match_broker(name, _load_brokers(settings.tables, cluster))


def has_port(name: str) -> bool:
    """Return whether a name has a port, as whole names do."""
    _, colon, port = name.rpartition(":")
    return bool(colon) and port.isdigit()


def match_broker(name: str, known: Sequence[str]) -> str:
    """Return the known broker with this whole name, else this host, else this host's first label.

    Raises CommandError (2) if no broker has it, or several have.
    """
    parts = {broker: _split_name(broker) for broker in known}
    for number in range(3):
        matches = [broker for broker in known if parts[broker][number] == name]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise CommandError(
                f"broker {name}: several have this name, expected one of {_list(matches)}", 2
            )
    if not known:
        raise CommandError(
            f"broker {name}: expected host:port: there are no tables here with brokers' names", 2
        )
    shorts = {short: broker for broker in reversed(known) for short in parts[broker][1:]}
    near = list(dict.fromkeys(shorts[short] for short in get_close_matches(name, shorts, n=3)))
    raise CommandError(
        f"broker {name}: expected a broker's name, or its host without domain and port; nearest: "
        f"{_list(near or known)}",
        2,
    )


def _split_name(whole: str) -> tuple[str, str, str]:
    """Return a broker's whole name, its host, and its host's first label."""
    from lb_stream.core.model.policies import host_of

    host = host_of(whole)
    return whole, host, host.partition(".")[0]


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def _load_brokers(tables: Store, cluster: str | None) -> list[str]:
    from lb_stream.query import NoTables
    from lb_stream.query.cluster_state import require_cluster
    from lb_stream.query.lake import open_lake, records, run

    try:
        with open_lake(tables, require_columns=False) as lake:
            require_cluster(lake, cluster)
            return [row["broker"] for row in records(run(lake, _BROKERS, [cluster]))]
    except NoTables:
        return []
