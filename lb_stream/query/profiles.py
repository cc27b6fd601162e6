"""Which profile a cluster has, why, and which one is to follow it: for all screens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from lb_stream.contracts.keys import SettingError
from lb_stream.core.model.followed_profile import UNKNOWN, describe_doubts
from lb_stream.io.messages.missing_packages import MODULES
from lb_stream.settings.move_limits import find_set_profile

if TYPE_CHECKING:
    from lb_stream.query.cluster_state import ClusterState
    from lb_stream.store import Store

MOST_CHANGES = 4
"""Settings that a line names; `lbctl config explain` lists all."""


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting that another profile changes. Values are as TOML shows them."""

    key: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """Return the change as `key: before → after`."""
        return f"{self.key}: {self.before} → {self.after}"


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """A cluster's profile after its last logged round.

    `versions`: version → brokers that report it; empty: no broker reports a version. `doubts`:
    sentences about versions and settings that do not go together. `next`: the profile that is to
    follow at `next_ms` (ms since the epoch), and the settings that it changes; empty: none is.
    """

    name: str = UNKNOWN
    is_set: bool = False
    version: str = ""  # that it follows; empty: it is set, or none is known
    versions: Mapping[str, int] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    next: str = ""
    next_version: str = ""
    next_ms: int = 0
    changes: tuple[SettingChange, ...] = ()

    @property
    def text(self) -> str:
        """Return the profile, and where it comes from."""
        if self.is_set:
            return f"{self.name} (set)"
        return f"{self.name} ({self.version})" if self.version else self.name


def load_states_if_any(tables: Store, cluster: str | None = None) -> list[ClusterState]:
    """Return the clusters of the tables, or the named one.

    None where there are no tables, or where the packages that read them are not installed.
    """
    if any(find_spec(module) is None for module in MODULES["cli"]):
        return []
    from lb_stream.query import QueryError
    from lb_stream.query.cluster_state import load_cluster_states

    try:
        return load_cluster_states(tables, cluster)
    except QueryError:
        return []


def build_profile_facts(state: ClusterState) -> ProfileFacts:
    """Return the facts about a cluster's profile."""
    followed, overrides = state.memory.followed, state.operator_state.settings
    chosen = find_set_profile(state.given, overrides)
    doubts = tuple(describe_doubts(followed, chosen))
    if chosen is not None:
        return ProfileFacts(chosen, True, versions=followed.versions, doubts=doubts)
    facts = ProfileFacts(
        followed.profile, version=followed.version, versions=followed.versions, doubts=doubts
    )
    if not followed.next_profile or followed.problem:
        return facts
    return ProfileFacts(
        facts.name,
        version=facts.version,
        versions=facts.versions,
        doubts=doubts,
        next=followed.next_profile,
        next_version=followed.next_version,
        next_ms=followed.since_ms + state.limits.profile_change_delay_ms,
        changes=_list_changes(state),
    )


def _list_changes(state: ClusterState) -> tuple[SettingChange, ...]:
    """Return what the next profile changes. Imports every strategy."""
    from lb_stream.settings.follow import list_profile_changes

    try:
        changes = list_profile_changes(
            state.given, state.operator_state.settings, state.memory.followed
        )
    except SettingError as error:
        return (SettingChange(error.key, repr(error.value), f"refused: expected {error.expected}"),)
    return tuple(
        SettingChange(change.key, _show(change.before), _show(change.after)) for change in changes
    )


def _show(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "not set" if value is None else str(value)


def describe_next(cluster: str, facts: ProfileFacts, when: str) -> str:
    """Describe the profile that is to follow, with the first settings that it changes."""
    shown = [change.text for change in facts.changes[:MOST_CHANGES]]
    if len(facts.changes) > MOST_CHANGES:
        shown.append(f"{len(facts.changes) - MOST_CHANGES} more")
    return (
        f"{cluster}: profile {facts.next} follows {facts.name} at {when}, as its brokers run "
        f"{facts.next_version}: {', '.join(shown) or 'no setting changes'}"
    )
