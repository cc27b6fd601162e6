"""The extensible manager's service-unit states: which record may follow which.

See docs/decisions/0008-what-an-ownership-record-may-say.md.

Every writer and every reader applies `accepts`. When two write the next version, the first wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lb_stream.contracts.decisions import OwnershipState

Store = Literal["system_topic", "metadata_store"]

_COMMON: Mapping[OwnershipState, frozenset[OwnershipState]] = {
    "Assigning": frozenset({"Owned"}),
    "Owned": frozenset({"Splitting", "Merging", "Releasing"}),
    "Releasing": frozenset({"Assigning", "Free"}),
    "Splitting": frozenset({"Deleted"}),
    "Merging": frozenset({"Deleted"}),
    "Deleted": frozenset({"Init"}),
}
TRANSITIONS: Mapping[Store, Mapping[OwnershipState, frozenset[OwnershipState]]] = {
    # A compacted topic can hide steps: any state may come first.
    "system_topic": {
        "Init": frozenset(
            {"Free", "Owned", "Assigning", "Releasing", "Splitting", "Merging", "Deleted"}
        ),
        "Free": frozenset({"Assigning", "Init"}),
        **_COMMON,
    },
    "metadata_store": {
        "Init": frozenset({"Assigning"}),
        "Free": frozenset({"Assigning"}),
        **_COMMON,
    },
}
"""Store → state → the states that may follow.

The bundles that a split or merge makes begin as Owned, version 1, in both stores.
"""

FIRST_VERSION = 1
_LAST_VERSION, _WRAPPED_VERSION = 2**63 - 1, -(2**63)


@dataclass(frozen=True, slots=True)
class ServiceUnit:
    """One record of a bundle's ownership.

    `destination` and `source` are both blank only in state Free.
    """

    state: OwnershipState
    destination: str | None
    source: str | None
    version: int
    force: bool = False


def accepts(current: ServiceUnit | None, new: ServiceUnit | None, store: Store) -> bool:
    """Whether `new` may follow `current`.

    None stands for no record: a tombstone as `new`, nothing yet as `current`.
    """
    if new is None:
        return True
    if not _version_follows(current, new, store):
        return False
    if new.force:
        return True
    if current is not None and _skips_versions(current, new):
        # Only a compacted topic gets here. The records between are not known, so none can forbid
        # the new one.
        return True
    before: OwnershipState = "Init" if current is None else current.state
    first_of_child = current is None and new.state == "Owned" and new.version == FIRST_VERSION
    if new.state not in TRANSITIONS[store][before] and not first_of_child:
        return False
    return current is None or _brokers_agree(current, new)


def _version_follows(current: ServiceUnit | None, new: ServiceUnit, store: Store) -> bool:
    """Whether a record's version may follow. In the metadata store it is the next one."""
    if current is None:
        return store == "system_topic" or new.version == FIRST_VERSION
    if current.version == _LAST_VERSION and new.version == _WRAPPED_VERSION:
        return True
    return current.version < new.version and not (
        store == "metadata_store" and _skips_versions(current, new)
    )


def _skips_versions(current: ServiceUnit, new: ServiceUnit) -> bool:
    """Whether the two records had others between them."""
    return current.version < new.version - 1


def _brokers_agree(current: ServiceUnit, new: ServiceUnit) -> bool:
    """Whether source and destination of a record are those that its state requires."""
    same = current.destination == new.destination and current.source == new.source
    match current.state, new.state:
        case "Owned", ("Splitting" | "Merging"):
            return not new.destination and current.destination == new.source
        case "Owned", "Releasing":
            return (
                bool(new.source)
                and current.destination == new.source
                and current.destination != new.destination
            )
        case (
            ("Assigning", "Owned") | ("Releasing", "Free") | (("Splitting" | "Merging"), "Deleted")
        ):
            return same
        case "Releasing", "Assigning":
            return bool(new.destination) and same
        case "Free", "Assigning":
            return not new.source and bool(new.destination)
    return True
