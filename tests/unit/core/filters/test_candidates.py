"""Who may take a bundle: what each filter does at its edges, in which order, and what is undone;
what is placed but not reported yet."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.filters.preallocation import (
    Preallocated,
    Preallocations,
    count,
    counted_assignments,
)
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory, Pending
from lb_stream.core.model.policies import IsolationPolicy, Policies, host_of
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.decide import Inbox, decide
from lb_stream.core.round.state import MAX_CANDIDATES_SHOWN, MIN_REFUSED_SHOWN
from lb_stream.settings.resolve import cluster_config
from tests.conformance.reference_only import add_bundles
from tests.support.build import Event, Report, batch_of
from tests.support.placement_model import Broker, Cluster
from tests.support.placement_view import (
    kept_of,
    place_and_count,
    settings_of,
    state_of,
    view_of_cluster,
)
from tests.support.wordings import check_wording

X, Y, Z = (f"t/n/0x{index}0000000_0x{index + 1}0000000" for index in range(3))


def kept(cluster: Cluster, bundle: str = X) -> set[str]:
    return kept_of(state_of(view_of_cluster(cluster), settings_of(cluster)), bundle)


def brokers(**changes: dict[str, Any]) -> dict[str, Broker]:
    """Named brokers with what is special about each."""
    return {
        f"{name}:1": Broker(**{"usage": {"cpu": (10.0, 100.0)}, **change})
        for name, change in changes.items()
    }


# --- policies ---


@pytest.mark.parametrize(("least", "expected"), [(0, {"a:1"}), (1, {"a:1"}), (2, {"a:1", "b:1"})])
def test_secondaries_help_while_fewer_primaries_than_the_least_are_there(
    least: int, expected: set[str]
) -> None:
    policies = (((r"t/n",), (r"a", r"gone"), (r"[ab]",), least),)
    assert kept(Cluster(brokers(a={}, b={}, c={}), {X: None}, policies)) == expected


def test_the_extensible_manager_counts_only_the_primaries_that_the_other_filters_leave() -> None:
    full = {"manager": "extensible", "topics": 10}
    cluster = Cluster(
        brokers(a=full, b={"manager": "extensible"}),
        {X: None},
        (((r"t/n",), (r"a",), (r"b",), 1),),
        max_topics=10,
        manager="extensible",
    )
    assert kept(cluster) == {"b:1"}
    assert kept(replace(cluster, max_topics=11)) == {"a:1"}


def test_an_expression_must_match_the_whole_name_and_the_first_policy_counts() -> None:
    policies = ((("t",), ("a",), (), 1), (("t/.*",), ("b",), (), 1), (("t/n",), ("c",), (), 1))
    cluster = Cluster(
        brokers(a={}, b={}, c={}, d={}), {X: None, "u/n/0x00000000_0xffffffff": None}, policies
    )
    assert kept(cluster) == {"b:1"}
    assert kept(cluster, "u/n/0x00000000_0xffffffff") == {"d:1"}


def test_a_policy_with_a_wrong_expression_is_refused() -> None:
    with pytest.raises(ValueError) as error:
        IsolationPolicy(("t/.*",), ("a[",)).check()
    check_wording(error.value)


@pytest.mark.parametrize(
    ("broker", "host"), [("b.example:8080", "b.example"), ("[::1]:8080", "[::1]"), ("bare", "bare")]
)
def test_a_host_is_a_broker_without_its_port(broker: str, host: str) -> None:
    assert host_of(broker) == host


def test_groups_are_compared_without_regard_to_case_and_a_blank_one_is_none() -> None:
    policies = Policies(anti_affinity={"t/a": "G", "t/b": "g", "t/c": "h", "t/d": " "})
    assert policies.namespaces_of("g") == ("t/a", "t/b")
    assert [policies.group_of(name) for name in ("t/a", "t/d", "t/e")] == ["g", None, None]


# --- the other filters ---


@pytest.mark.parametrize(
    ("manager", "expected"), [("modular", {"a:1", "b:1"}), ("extensible", {"a:1"})]
)
def test_a_broker_with_as_many_topics_as_allowed_takes_more_only_under_the_modular_manager(
    manager: str, expected: set[str]
) -> None:
    three = brokers(a={"topics": 9}, b={"topics": 10}, c={"topics": 11})
    cluster = Cluster(
        {name: replace(one, manager=manager) for name, one in three.items()},
        {X: None},
        max_topics=10,
        manager=manager,
    )
    assert kept(cluster) == expected


@pytest.mark.parametrize(("manager", "expected"), [("modular", {"a:1"}), ("extensible", set())])
def test_where_all_are_full_the_modular_manager_goes_on_and_the_extensible_one_does_not(
    manager: str, expected: set[str]
) -> None:
    cluster = Cluster(
        brokers(a={"topics": 11, "manager": manager}), {X: None}, max_topics=10, manager=manager
    )
    assert kept(cluster) == expected


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (("modular", "modular"), {"a:1", "b:1"}),
        (("modular", "extensible"), {"a:1"}),
        (("modular", ""), {"a:1"}),
        (("", ""), {"a:1", "b:1"}),  # nobody says what it runs
        (("simple", "other"), {"a:1", "b:1"}),  # nobody is left: undone
    ],
)
def test_brokers_of_another_load_manager_are_left_out(
    classes: tuple[str, str], expected: set[str]
) -> None:
    assert (
        kept(Cluster(brokers(a={"manager": classes[0]}, b={"manager": classes[1]}), {X: None}))
        == expected
    )


@pytest.mark.parametrize("manager", ["modular", "extensible"])
def test_a_wrong_version_undoes_the_modular_managers_filters_and_the_extensible_one_ignores_it(
    manager: str,
) -> None:
    odd = {
        name: replace(one, manager=manager)
        for name, one in brokers(a={}, b={"version": "?"}, c={"topics": 11}).items()
    }
    cluster = Cluster(
        odd, {X: "a:1", Y: None, Z: None}, later_versions=True, max_topics=10, manager=manager
    )
    state = state_of(view_of_cluster(cluster), settings_of(cluster))
    assert (
        kept_of(state, Y)
        == kept_of(state, Z)
        == ({"a:1", "b:1", "c:1"} if manager == "modular" else {"a:1", "b:1"})
    )
    assert [(refusal.rule, refusal.subjects) for refusal in state.refusals] == [
        ("version_unknown", ("b:1",))
    ], "said once in a round"


def test_the_extensible_manager_looks_at_versions_before_groups_and_the_modular_one_after() -> None:
    old = brokers(a={"version": "4.0.6"}, b={}, c={})
    owners: dict[str, str | None] = {X: "b:1", Y: "c:1", "t/m/0x00000000_0xffffffff": None}
    cluster = Cluster(old, owners, groups={"t/n": "g", "t/m": "g"}, later_versions=True)
    assert kept(cluster, "t/m/0x00000000_0xffffffff") == {
        "a:1"
    }  # has none of the group, so it is alone when versions are compared
    extensible = {name: replace(one, manager="extensible") for name, one in old.items()}
    assert kept(
        replace(cluster, brokers=extensible, manager="extensible"), "t/m/0x00000000_0xffffffff"
    ) == {"b:1", "c:1"}


def test_a_group_is_counted_by_namespaces_or_under_the_extensible_manager_by_bundles() -> None:
    owners: dict[str, str | None] = {
        X: "a:1",
        Y: "a:1",
        "t/m/0x00000000_0xffffffff": "b:1",
        "t/o/0x00000000_0xffffffff": None,
    }
    cluster = Cluster(brokers(a={}, b={}), owners, groups=dict.fromkeys(("t/n", "t/m", "t/o"), "g"))
    assert kept(cluster, "t/o/0x00000000_0xffffffff") == {"a:1", "b:1"}
    extensible = {name: replace(one, manager="extensible") for name, one in cluster.brokers.items()}
    assert kept(
        replace(cluster, brokers=extensible, manager="extensible"), "t/o/0x00000000_0xffffffff"
    ) == {"b:1"}


# --- the choice ---

HOT = {"usage": {"cpu": (90.0, 100.0)}}


def test_when_the_modular_managers_choice_is_overloaded_everybody_allowed_is_asked_about() -> None:
    cluster = Cluster(
        brokers(a=HOT, b={}), {X: "b:1", Y: None}
    )  # evenly: a, which has none of the namespace
    state = state_of(view_of_cluster(cluster), settings_of(cluster))
    choice = state.place(1)
    assert choice is not None
    assert [call.candidates.tolist() for call in choice.calls] == [[0], [0, 1]]
    assert [(candidate.broker, candidate.refused_by) for candidate in choice.candidates] == [
        ("b:1", None),
        ("a:1", "overloaded"),
    ]


def test_when_everybody_is_overloaded_chance_decides_among_all() -> None:
    owners: dict[str, str | None] = {
        f"t/n{index:02}/0x00000000_0xffffffff": None for index in range(40)
    }
    cluster = Cluster(brokers(a=HOT, b=HOT), owners)
    state = state_of(view_of_cluster(cluster), settings_of(cluster))
    assert {place_and_count(state, bundle) for bundle in owners} == {"a:1", "b:1"}


@pytest.mark.parametrize("manager", ["simple", "extensible"])
def test_the_other_managers_ask_once(manager: str) -> None:
    hot = brokers(a={**HOT, "manager": manager})
    cluster = Cluster(
        {
            "a:1": replace(
                hot["a:1"],
                usage=dict.fromkeys(
                    ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out"),
                    (90.0, 100.0),
                ),
            )
        },
        {X: None},
        manager=manager,
    )
    choice = state_of(view_of_cluster(cluster), settings_of(cluster)).place(0)
    assert choice is not None
    assert len(choice.calls) == 1


def test_a_decision_shows_the_best_candidates_and_some_of_whom_each_filter_refused() -> None:
    many = {
        f"b{index:03}:1": Broker({"cpu": (10.0, 100.0)}, topics=99 if index % 2 else 0)
        for index in range(100)
    }
    owners: dict[str, str | None] = {
        f"t/n/0x{index:08x}_0x{index + 1:08x}": "b000:1" for index in range(2)
    }
    cluster = Cluster(many, owners | {"t/n/0x00000005_0x00000006": None}, max_topics=50)
    choice = state_of(view_of_cluster(cluster), settings_of(cluster)).place(2)
    assert choice is not None
    shown = [candidate.refused_by for candidate in choice.candidates]
    assert shown == [None] * MAX_CANDIDATES_SHOWN + ["max_topics"] * MIN_REFUSED_SHOWN + [
        "even_distribution"
    ]


# --- preallocated bundles ---


def seen(owner: dict[str, str | None], alive: tuple[bool, bool] = (True, True)) -> ClusterView:
    """Brokers a and b; bundles with 7 msg/s in the long term and 3 topics."""
    cluster = Cluster(brokers(a={"alive": alive[0]}, b={"alive": alive[1]}), owner)
    view = view_of_cluster(cluster)
    seven = np.full(len(owner), 7.0)
    bundles = replace(
        view.bundles,
        long=replace(view.bundles.long, rate_in=seven),
        topics=np.full(len(owner), 3, np.int64),
    )
    return replace(view, bundles=bundles)


GIVEN = Preallocations(
    (Preallocated(X, "a:1", 1.0, 1), Preallocated(Y, "b:1", 1.0, 1)), {X: "a:1", Y: "b:1"}
)
FRESH = Preallocated(X, "a:1", 7.0, 3)


@pytest.mark.parametrize(
    ("owners", "leader_owned", "expected"),
    [
        ({X: None, Y: None}, (), ()),
        ({X: None, Y: None}, (X,), (FRESH,)),
        ({X: "b:1", Y: None}, (X,), (FRESH,)),  # only its own broker's report counts
        ({X: "a:1", Y: None}, (X,), ()),
        (
            {Y: None},
            (X,),
            (Preallocated(X, "a:1", 1.0, 1, followed=False),),
        ),  # its averages are lost, what it counts stays
    ],
)
def test_the_reference_keeps_only_what_its_leader_owns(
    owners: dict[str, str | None], leader_owned: tuple[str, ...], expected: tuple[Preallocated, ...]
) -> None:
    after = GIVEN.updated(seen(owners), "reference", leader_owned)
    assert (after.entries, after.given) == (expected, {})


@pytest.mark.parametrize(
    ("owners", "alive", "expected"),
    [
        ({X: None, Y: None}, (True, True), {X: "a:1", Y: "b:1"}),
        ({X: "a:1", Y: None}, (True, True), {Y: "b:1"}),
        ({X: "b:1", Y: None}, (True, True), {Y: "b:1"}),
        ({X: None, Y: None}, (False, True), {Y: "b:1"}),
    ],
)
def test_on_report_a_bundle_stays_given_until_anybody_reports_it_or_its_broker_dies(
    owners: dict[str, str | None], alive: tuple[bool, bool], expected: dict[str, str]
) -> None:
    after = GIVEN.updated(seen(owners, alive), "on_report")
    assert after.given == expected
    assert {entry.bundle: entry.broker for entry in after.entries} == expected


def test_a_bundle_given_to_its_broker_anew_counts_there_once() -> None:
    cluster = Cluster(brokers(a={}, b={}), {X: None, Y: None})
    state = state_of(seen(cluster.owners), settings_of(cluster))
    old = Preallocations((Preallocated(X, "a:1", 100.0, 9, followed=False),))
    count(old.entries, state.targets, state.candidates)
    after = old.given_to(0, 0, state.targets, state.candidates)
    assert after == Preallocations((FRESH,), {X: "a:1"})
    assert (state.targets.long_rate.tolist(), state.targets.topics.tolist()) == ([7.0, 0.0], [3, 0])
    assert state.candidates.census.of_namespace("t/n").tolist() == [1, 0]


def decided(settings: dict[str, Any]) -> tuple[list[str | None], list[str | None]]:
    """Where two unowned bundles go, one in a round: before the second, c alone has reported
    anew."""
    config = cluster_config(
        {"dry_run": False, "shedding_enabled": False, "distribute_bundles_evenly": False} | settings
    )
    stats = BundleStats(msg_rate_in=10.0)
    reports = [Report(name, 1, {}, content=name) for name in "ab"] + [
        Report("c", 1, {X: stats, Y: stats}),
        Report("c", 2, {Y: stats}),
    ]
    shard, _ = fold(Shard.empty(), batch_of(reports), 2, config.fold)
    first = decide(view_of("k", [shard], 2, config.balancer.weights), Memory(), Inbox(), config)
    shard, _ = fold(shard, batch_of([Report("c", 3, {})]), 3, config.fold)
    second = decide(
        view_of("k", [shard], 3, config.balancer.weights), first.memory, Inbox(), config
    )
    return [decision.destination for decision in first.decisions], [
        decision.destination for decision in second.decisions
    ]


def test_a_decision_counts_until_it_is_confirmed_or_else_as_long_as_preallocation_says() -> None:
    for settings in ({}, {"count_pending_moves": False, "preallocation_release": "on_report"}):
        (first,), (second,) = decided(settings)
        assert {first, second} <= {"a", "b", "c"}
        assert first != second
    # As in the reference: the next report makes it forget, so chance has the same choice again.
    config = {"count_pending_moves": False, "preallocation_release": "reference"}
    view = seen({X: None, Y: None})
    pending = (
        Pending("k:1:0", "assign", X, None, "a:1", 0, 9, 1),
        Pending("k:1:1", "unload", Y, "b:1", "a:1", 0, 9, 1),
    )
    assert counted_assignments(view, pending, "reference") == ()
    assert counted_assignments(
        replace(view, brokers=replace(view.brokers, sampled=np.zeros(2, np.bool_))),
        pending,
        "reference",
    ) == (FRESH,)
    assert counted_assignments(view, pending, "on_report") == (FRESH,)
    assert len(decided(config)[1]) == 1


def test_the_documented_profile_keeps_preallocations_until_they_are_reported() -> None:
    assert cluster_config({}).balancer.preallocation_release == "reference"
    assert cluster_config({"profile": "documented"}).balancer.preallocation_release == "on_report"


# --- samples as the reference's leader takes them ---

AS_THE_LEADER = FoldConfig(sample_mode="reference")


def samples_of(shard: Shard) -> dict[str, tuple[int, float]]:
    """Bundle → (samples, short-term rate in)."""
    return {
        row["name"]: (row["short_samples"], row["short_rate_in_msgs_per_s"])
        for row in shard.bundles.to_pylist()
    }


def test_in_the_references_way_any_new_report_is_a_sample_of_everybodys_bundles() -> None:
    first = [
        Report("a", 1, {X: BundleStats(msg_rate_in=10)}),
        Report("b", 1, {Y: BundleStats(msg_rate_in=30), Z: None}, content="b"),
    ]
    shard, _ = fold(Shard.empty(), batch_of(first), 1, AS_THE_LEADER)
    assert samples_of(shard) == {X: (1, 10.0), Y: (1, 30.0), Z: (0, 50.0)}
    shard, _ = fold(
        shard, batch_of([Report("a", 2, {X: BundleStats(msg_rate_in=20)})]), 2, AS_THE_LEADER
    )
    assert samples_of(shard) == {X: (2, 15.0), Y: (2, 30.0), Z: (0, 50.0)}
    repeated = Report(
        "b", 3, {Y: BundleStats(msg_rate_in=30), Z: None}, content="b", last_update_ms=1
    )
    shard, _ = fold(shard, batch_of([repeated], [Event("heartbeat", "a", 3)]), 3, AS_THE_LEADER)
    assert samples_of(shard) == {X: (2, 15.0), Y: (2, 30.0), Z: (0, 50.0)}, "nothing new was said"


def test_in_the_references_way_a_batch_is_one_look_at_each_brokers_last_report() -> None:
    reports = [
        Report("a", 1, {X: BundleStats(msg_rate_in=10)}),
        Report("a", 2, {X: BundleStats(msg_rate_in=40)}),
    ]
    shard, _ = fold(Shard.empty(), batch_of(reports), 2, AS_THE_LEADER)
    assert samples_of(shard) == {X: (1, 40.0)}


def test_the_bundles_of_a_broker_that_left_are_not_sampled_again() -> None:
    shard, _ = fold(
        Shard.empty(),
        batch_of([Report("a", 1, {X: BundleStats(msg_rate_in=10)})]),
        1,
        AS_THE_LEADER,
    )
    shard, _ = fold(
        shard,
        batch_of([Report("b", 2, {})], [Event("goodbye", "a", 2, offset=3)]),
        2,
        AS_THE_LEADER,
    )
    assert samples_of(shard)[X] == (1, 10.0)


def test_bundles_can_be_known_before_any_report_names_them() -> None:
    shard, _ = fold(
        Shard.empty(),
        batch_of([Report("a", 1, {Y: BundleStats(msg_rate_in=10)})]),
        1,
        FoldConfig(bundle_retention_ms=5),
    )
    shard = add_bundles(shard, [Z, X, Y, X], 2)
    assert samples_of(shard) == {X: (0, 50.0), Y: (1, 10.0), Z: (0, 50.0)}
    view = view_of("k", [shard], 2, {"cpu": 1.0})
    assert view.bundles.owner.tolist() == [-1, 0, -1]
    shard, _ = fold(
        shard,
        batch_of([Report("a", 7, {X: BundleStats(msg_rate_in=20)})]),
        7,
        FoldConfig(bundle_retention_ms=5),
    )
    assert samples_of(shard) == {X: (1, 20.0), Y: (1, 10.0)}, (
        "the first sample replaces the default; who was not named is forgotten"
    )
