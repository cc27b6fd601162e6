"""The profile that a cluster's brokers imply, laid under its settings before each round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lb_stream.contracts.keys import GivenSettings, SettingError
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.followed_profile import FollowedProfile
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.follow_versions import (
    FollowingRule,
    follow_versions,
    may_follow_at_once,
)
from lb_stream.settings.move_limits import find_set_profile
from lb_stream.settings.overrides import RoundArguments
from lb_stream.settings.resolve import resolve


def follow_brokers(begin: RoundArguments, own: GivenSettings, view: ClusterView) -> RoundArguments:
    """Return a round's arguments under the profile that its brokers' versions imply.

    `own`: the job's settings for the cluster. Settings that don't go with a profile keep it from
    counting; they never end the round.
    """
    memory, overrides = begin.memory, begin.memory.operator_state.settings
    before, is_set = memory.followed, find_set_profile(own, overrides) is not None
    rule = FollowingRule(
        begin.config.balancer.profile_change_delay_ms,
        is_set or may_follow_at_once(memory.first_ms, view.now_ms),
    )
    after = follow_versions(before, view.brokers, memory.dead, view.now_ms, rule)
    config = begin.config
    if not is_set:
        config, after = _lay_under(begin, own, after)
    if after == before and config is begin.config:
        return begin
    return replace(begin, config=config, memory=replace(memory, followed=after))


def _lay_under(
    begin: RoundArguments, own: GivenSettings, after: FollowedProfile
) -> tuple[ClusterConfig, FollowedProfile]:
    """Return the settings under the profile `after`, and that profile.

    If they don't go together: the settings and the profile of before, with the problem.
    """
    before = begin.memory.followed
    try:
        config = resolve(own, begin.memory.operator_state.settings, after.profile).config
    except SettingError as error:
        problem = f"profile {after.profile} does not count: {error}"
        if after.profile == before.profile:
            return begin.config, replace(after, problem=problem)
        # It is due in every round until the settings go with it.
        kept = replace(
            before,
            versions=after.versions,
            next_profile=after.profile,
            next_version=after.version,
            problem=problem,
        )
        return begin.config, kept
    return config, replace(after, problem="")


# --- what a change changes ---


@dataclass(frozen=True, slots=True)
class ChangedSetting:
    """A setting that has another value under another profile."""

    key: str
    before: object
    after: object


def list_profile_changes(
    own: GivenSettings, overrides: GivenSettings, followed: FollowedProfile
) -> tuple[ChangedSetting, ...]:
    """Return the settings that will change when the next profile counts; none without one.

    Strategies come first. Raises SettingError when the settings don't go with it.
    """
    if not followed.next_profile:
        return ()
    now, then = (
        resolve(own, overrides, profile).values
        for profile in (followed.profile, followed.next_profile)
    )
    return tuple(_compare(now, then))


def _compare(now: Mapping[str, object], then: Mapping[str, object]) -> Iterator[ChangedSetting]:
    keys = now.keys() & then.keys() - {"profile"}
    for key in sorted(keys, key=lambda key: (not key.endswith("_strategy"), key)):
        if now[key] != then[key]:
            yield ChangedSetting(key, now[key], then[key])
