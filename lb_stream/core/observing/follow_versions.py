"""Follows the versions of a cluster's brokers: which profile they imply, and since when."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np

from lb_stream.core.model.followed_profile import FollowedProfile, count_versions, find_oldest
from lb_stream.core.model.view import Brokers

SETTLING_MS = 60_000
"""In a cluster's first minute its profile follows at once: brokers report one after another."""


@dataclass(frozen=True, slots=True)
class FollowingRule:
    """How a profile follows. `delay_ms`: how long after the versions; `at_once`: without a wait."""

    delay_ms: int
    at_once: bool


def may_follow_at_once(first_ms: int | None, now_ms: int) -> bool:
    """Return whether a cluster is new. `first_ms`: time of its first round; None: it has none."""
    # A clock that has stepped back makes no old cluster new.
    return first_ms is None or 0 <= now_ms - first_ms < SETTLING_MS


def follow_versions(
    before: FollowedProfile,
    brokers: Brokers,
    dead: Collection[str],
    now_ms: int,
    rule: FollowingRule,
) -> FollowedProfile:
    """Return the profile that follows from the brokers' versions at a round's time.

    Departed and dead brokers don't count. `dead`: as the last round judged. Without a version that
    can be read, the profile stays.
    """
    counted = ~brokers.left
    if dead:
        gone = frozenset(dead)
        counted &= np.fromiter((name not in gone for name in brokers.names), np.bool_, len(counted))
    if not counted.any():
        return before
    versions = count_versions(compress(brokers.versions, counted.tolist()))
    oldest = find_oldest(versions)
    if oldest is None or oldest.profile in (None, before.profile):
        version = before.version if oldest is None or oldest.profile is None else oldest.text
        return FollowedProfile(before.profile, version, versions, problem=before.problem)
    # After a clock has stepped back the delay begins anew, and is no longer.
    since_ms = min(before.since_ms, now_ms) if before.next_profile == oldest.profile else now_ms
    if rule.at_once or now_ms - since_ms >= rule.delay_ms:
        return FollowedProfile(oldest.profile, oldest.text, versions)
    return replace(
        before,
        versions=versions,
        next_profile=oldest.profile,
        next_version=oldest.text,
        since_ms=since_ms,
    )
