"""The profile that follows from the brokers' versions, from round to round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.followed_profile import (
    LONGEST_VERSION,
    MAX_VERSIONS,
    FollowedProfile,
    count_versions,
    describe_doubts,
    describe_versions,
)
from lb_stream.core.model.view import Brokers
from lb_stream.core.observing.follow_versions import (
    SETTLING_MS,
    FollowingRule,
    follow_versions,
    may_follow_at_once,
)
from tests.support.build import Event, Report, batch_of

DELAY_MS = 1_800_000
RUNNING = FollowingRule(DELAY_MS, at_once=False)
NEW = FollowingRule(DELAY_MS, at_once=True)
ON_4_0 = FollowedProfile("pulsar-4.0", "4.0.7", {"4.0.7": 2})


def brokers(left: tuple[str, ...] = (), **versions: str) -> Brokers:
    """Brokers that report these versions; `left`: those that have said goodbye."""
    reports = [
        Report(name, 1_000, version=version, offset=at)
        for at, (name, version) in enumerate(versions.items())
    ]
    goodbyes = [Event("goodbye", name, 2_000, offset=100) for name in left]
    shard, _ = fold(Shard.empty(), batch_of(reports, goodbyes), 2_000, FoldConfig())
    return view_of("c", [shard], 2_000, {"cpu": 1.0}).brokers


def follow(
    before: FollowedProfile, now_ms: int, rule: FollowingRule = RUNNING, **versions: str
) -> FollowedProfile:
    return follow_versions(before, brokers(**versions), (), now_ms, rule)


def test_a_new_cluster_has_its_versions_profile_at_once() -> None:
    found = follow(FollowedProfile(), 0, NEW, a="5.0.1", b="5.0.1")
    assert (found.profile, found.version, found.next_profile) == ("pulsar-5.0", "5.0.1", "")
    assert found.versions == {"5.0.1": 2}


def test_a_cluster_without_versions_is_remembered_as_before() -> None:
    assert follow(FollowedProfile(), 0, NEW, a="", b="") == FollowedProfile()


@pytest.mark.parametrize(
    ("versions", "profile"),
    [
        ({"a": "5.0.1", "b": "4.0.7"}, "pulsar-4.0"),
        ({"a": "5.0.1", "b": "4.2.4", "c": ""}, "pulsar-4.2"),
        ({"a": "4.10.0", "b": "4.2.4"}, "pulsar-4.2"),
        ({"a": "5.0.1", "b": "banana"}, "pulsar-5.0"),
        ({"a": "6.3.0", "b": "7.0.0"}, "pulsar-5.0"),
        ({"a": "banana", "b": ""}, "default"),
    ],
)
def test_of_several_versions_the_oldest_that_can_be_read_counts(
    versions: Mapping[str, str], profile: str
) -> None:
    found = follow(FollowedProfile(), 0, NEW, **versions)
    assert found.profile == profile
    assert sum(found.versions.values()) == len(versions), "each broker is counted"


def test_in_a_running_cluster_a_change_counts_after_the_delay_and_not_before() -> None:
    begun = follow(ON_4_0, 10, a="5.0.1", b="5.0.1")
    assert (begun.profile, begun.next_profile, begun.since_ms) == ("pulsar-4.0", "pulsar-5.0", 10)
    waits = follow(begun, 10 + DELAY_MS - 1, a="5.0.1", b="5.0.1")
    assert waits == begun, "nothing is remembered anew while it waits"
    counts = follow(waits, 10 + DELAY_MS, a="5.0.1", b="5.0.1")
    assert counts == FollowedProfile("pulsar-5.0", "5.0.1", {"5.0.1": 2})


def test_a_change_taken_back_within_the_delay_never_counts_and_another_waits_anew() -> None:
    begun = follow(ON_4_0, 0, a="5.0.1")
    back = follow(begun, 1_000, a="4.0.8")
    assert back == FollowedProfile("pulsar-4.0", "4.0.8", {"4.0.8": 1})
    other = follow(begun, 1_000, a="4.2.4")
    assert (other.next_profile, other.since_ms) == ("pulsar-4.2", 1_000)


def test_an_upgrade_waits_for_the_last_broker() -> None:
    assert follow(ON_4_0, 0, a="5.0.1", b="4.0.7").next_profile == ""
    assert follow(ON_4_0, 0, a="5.0.1", b="5.0.1").next_profile == "pulsar-5.0"


def test_dead_and_departed_brokers_do_not_count() -> None:
    both = {"a": "5.0.1", "b": "4.0.7"}
    dead = follow_versions(FollowedProfile(), brokers(**both), ("b",), 0, NEW)
    left = follow_versions(FollowedProfile(), brokers(left=("b",), **both), (), 0, NEW)
    assert dead == left == FollowedProfile("pulsar-5.0", "5.0.1", {"5.0.1": 1})
    waiting = follow(ON_4_0, 0, a="5.0.1")
    assert follow_versions(waiting, brokers(**both), ("a", "b"), DELAY_MS, RUNNING) == waiting


@pytest.mark.parametrize("given_version", ["", "banana"])
def test_a_version_that_is_no_longer_known_leaves_the_profile(given_version: str) -> None:
    waiting = follow(ON_4_0, 0, a="5.0.1")
    found = follow(waiting, DELAY_MS, a=given_version)
    assert (found.profile, found.next_profile) == ("pulsar-4.0", "")


def test_a_cluster_is_new_for_a_minute() -> None:
    assert may_follow_at_once(None, 10**12) and may_follow_at_once(0, SETTLING_MS - 1)
    assert not may_follow_at_once(0, SETTLING_MS)


def test_a_clock_that_steps_back_makes_no_delay_longer_and_no_old_cluster_new() -> None:
    ahead = follow(ON_4_0, 10 * DELAY_MS, a="5.0.1")
    back = follow(ahead, DELAY_MS, a="5.0.1")
    assert (back.profile, back.since_ms) == ("pulsar-4.0", DELAY_MS)
    assert follow(back, 2 * DELAY_MS - 1, a="5.0.1").profile == "pulsar-4.0"
    assert follow(back, 2 * DELAY_MS, a="5.0.1").profile == "pulsar-5.0"
    assert not may_follow_at_once(first_ms=10 * DELAY_MS, now_ms=DELAY_MS)


def test_what_is_doubtful_is_said_with_versions_and_profiles() -> None:
    mixed = replace(ON_4_0, versions={"4.0.7": 2, "5.0.1": 1, "": 1, "banana": 1})
    doubts = " ".join(describe_doubts(mixed, None))
    assert "2 of 4.0.7, 1 of 5.0.1" in doubts and "banana" in doubts and "1 without" in doubts
    assert describe_doubts(ON_4_0, None) == [] == describe_doubts(ON_4_0, "pulsar-4.0")
    assert describe_doubts(ON_4_0, "default") == [], "it fits every version"
    (misfit,) = describe_doubts(ON_4_0, "pulsar-5.0")
    assert all(word in misfit for word in ("pulsar-5.0", "4.0.7", "pulsar-4.0"))
    assert describe_versions({}) == ""
    assert describe_versions({"4.10.0": 1, "4.2.4": 2}) == "2 of 4.2.4, 1 of 4.10.0", "as in a log"


@given(st.lists(st.one_of(st.text(), st.from_regex(r"[0-9]{1,3}\.[0-9]{1,3}", fullmatch=True))))
def test_the_remembered_versions_are_few_short_and_the_oldest(reported: list[str]) -> None:
    counts = count_versions(reported)
    assert len(counts) <= MAX_VERSIONS and all(len(text) <= LONGEST_VERSION for text in counts)
    assert sum(counts.values()) <= len(reported)
    assert count_versions(reversed(reported)) == counts, "the order of brokers does not count"


def test_white_space_makes_no_other_version() -> None:
    assert count_versions(["5.0.1\n", "5.0.1", " 5.0.1"]) == {"5.0.1": 3}
