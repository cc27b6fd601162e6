"""Brokers whose own settings differ from the balancer's, as their agents' heartbeats say.

The memory groups the brokers by the keys that differ, which are mostly the same for all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

Grouped = Mapping[str, tuple[str, ...]]
"""Keys, with commas between → the brokers where these differ, sorted."""


def update_differing(
    known: Grouped, reported: Mapping[str, tuple[str, ...]], dead: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return the brokers by the keys that differ. `reported`: broker → its keys; none: no more.

    `dead`: brokers of which nothing is known any more, unless they have reported.
    """
    if not known and not reported:
        return {}
    keys_of = {broker: keys for keys, brokers in known.items() for broker in brokers}
    keys_of = {broker: keys for broker, keys in keys_of.items() if broker not in dead}
    keys_of |= {broker: ",".join(sorted(keys)) for broker, keys in reported.items()}
    grouped: dict[str, list[str]] = {}
    for broker in sorted(keys_of):
        if keys_of[broker]:
            grouped.setdefault(keys_of[broker], []).append(broker)
    return {keys: tuple(grouped[keys]) for keys in sorted(grouped)}
