"""Settings under the profile that the brokers imply."""

from __future__ import annotations

from typing import Any

import pytest

from lb_stream.contracts.balancer import PROFILES
from lb_stream.contracts.commands import COMMANDS
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.commands.responder import Received
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.followed_profile import FollowedProfile
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.round.decide import Inbox
from lb_stream.settings.follow import follow_brokers, list_profile_changes
from lb_stream.settings.overrides import RoundArguments, apply_setting_commands
from tests.support.build import Report, batch_of

NOW_MS = 10_000_000
RUNNING = Memory(seq=5, first_ms=0, followed=FollowedProfile("pulsar-4.0", "4.0.7", {"4.0.7": 1}))


def begin(
    own: dict[str, Any], memory: Memory, version: str, *commands: Received, now_ms: int = NOW_MS
) -> RoundArguments:
    """What a round of a cluster with one broker gets."""
    report = Report("a", now_ms, version=version)
    shard, _ = fold(Shard.empty(), batch_of([report]), now_ms, FoldConfig())
    view = view_of("c", [shard], now_ms, {"cpu": 1.0})
    return follow_brokers(apply_setting_commands(own, memory, Inbox(commands=commands)), own, view)


def set_config(**values: Any) -> Received:
    return Received.from_command(COMMANDS["set-config"](id="x", values=values), NOW_MS)


@pytest.mark.parametrize(
    ("version", "profile"),
    [("5.0.1", "pulsar-5.0"), ("4.2.4", "pulsar-4.2"), ("3.3.1", "pulsar-4.0"), ("", "default")],
)
def test_a_new_clusters_settings_are_those_of_its_release(version: str, profile: str) -> None:
    begun = begin({}, Memory(), version)
    assert begun.config.balancer.profile == profile == begun.memory.followed.profile
    shedder = PROFILES[profile].get("shedding_strategy", "ThresholdShedder")
    assert begun.config.shedder.name == shedder


def test_given_settings_precede_those_of_the_followed_profile() -> None:
    begun = begin({"loadBalancerDistributeBundlesEvenlyEnabled": "true"}, Memory(), "5.0.1")
    assert begun.config.balancer.distribute_bundles_evenly
    assert begun.config.shedder.name == "AvgShedder"


@pytest.mark.parametrize("where", ["own", "override", "command"])
def test_a_set_profile_is_in_force_whatever_the_brokers_run(where: str) -> None:
    own = {"profile": "default"} if where == "own" else {}
    overrides = {"profile": "default"} if where == "override" else {}
    memory = Memory(operator_state=OperatorState(settings=overrides))
    commands = [set_config(profile="default")] if where == "command" else []
    begun = begin(own, memory, "5.0.1", *commands)
    assert begun.config.balancer.profile == "default"
    assert begun.memory.followed.profile == "pulsar-5.0", "what counts once it is unset"


def test_a_running_clusters_settings_change_after_the_delay() -> None:
    waits = begin({}, RUNNING, "5.0.1")
    assert waits.config.balancer.profile == "pulsar-4.0"
    due_ms = NOW_MS + waits.config.balancer.profile_change_delay_ms
    assert begin({}, waits.memory, "5.0.1", now_ms=due_ms - 1).config is waits.config
    assert begin({}, waits.memory, "5.0.1", now_ms=due_ms).config.balancer.profile == "pulsar-5.0"
    soon = begin({}, waits.memory, "5.0.1", set_config(profile_change_delay_ms=0))
    assert soon.config.balancer.profile == "pulsar-5.0", "the delay may be changed while it runs"


def test_the_changes_are_listed_with_both_values() -> None:
    waiting = begin({}, RUNNING, "5.0.1").memory.followed
    changes = {found.key: found for found in list_profile_changes({}, {}, waiting)}
    evenly = changes["distribute_bundles_evenly"]
    assert (evenly.before, evenly.after) == (True, False)
    assert changes["shedding_strategy"].after == "AvgShedder" and "profile" not in changes
    own = {"shedding_strategy": "UniformLoadShedder", "max_unload_ratio": 0.3}
    kept = {found.key for found in list_profile_changes(own, {}, waiting)}
    assert not kept & own.keys(), "given values stay"
    assert list_profile_changes({}, {}, RUNNING.followed) == ()


REFUSED_BY_4_2 = {
    "loadBalancerLoadPlacementStrategy": "org.apache.pulsar.broker.loadbalance.impl.AvgShedder",
    "loadBalancerLoadSheddingStrategy": (
        "org.apache.pulsar.broker.loadbalance.impl.ThresholdShedder"
    ),
}


def test_settings_that_the_next_profile_refuses_keep_the_present_one_and_the_round_goes_on() -> (
    None
):
    begun = begin(REFUSED_BY_4_2, RUNNING, "4.2.4", set_config(profile_change_delay_ms=0))
    assert begun.config.balancer.profile == "pulsar-4.0"
    assert "pulsar-4.2 does not count" in begun.memory.followed.problem
    mended = begin({}, begun.memory, "4.2.4")
    assert mended.config.balancer.profile == "pulsar-4.2" and not mended.memory.followed.problem


def test_settings_that_the_profile_in_force_refuses_lead_to_the_default_and_a_problem() -> None:
    on_4_2 = Memory(seq=5, first_ms=0, followed=FollowedProfile("pulsar-4.2", "4.2.4"))
    begun = begin(REFUSED_BY_4_2, on_4_2, "4.2.4")
    assert begun.config.balancer.profile == "default"
    assert "pulsar-4.2 does not count" in begun.memory.followed.problem


def test_a_command_is_checked_under_the_followed_profile() -> None:
    followed = FollowedProfile("pulsar-4.2", "4.2.4", {"4.2.4": 1})
    on_4_2 = Memory(seq=5, first_ms=0, followed=followed)
    begun = begin({}, on_4_2, "4.2.4", set_config(**REFUSED_BY_4_2))
    assert begun.inbox.answers[0].outcome == "refused"
    misfit = begin({}, on_4_2, "4.2.4", set_config(profile="pulsar-5.0"))
    assert misfit.inbox.answers[0].outcome == "done"
    assert "4.2.4" in misfit.inbox.answers[0].text


def test_a_memory_with_a_followed_profile_is_read_as_it_was_written() -> None:
    waits = begin({}, RUNNING, "5.0.1").memory
    assert Memory.from_json(waits.to_json()) == waits
    assert "followed" not in Memory().to_json()
