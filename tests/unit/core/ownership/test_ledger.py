"""Ownership records: one for each change, their versions growing by one; nothing from a dry run,
everything after it."""

from dataclasses import replace

import pytest

from lb_stream.contracts.decisions import Ownership
from lb_stream.core.model.policies import NO_POLICIES
from lb_stream.core.ownership import ledger
from tests.support.scenario import Cluster, bundle_name, short_name


def told(cluster: Cluster, *commands: str) -> list[tuple[str, str, str | None, int]]:
    """(bundle, state, owner, version) of the records that the last command's round published, by
    bundle."""
    for command in commands:
        list(cluster.do(command))
    assert cluster.last is not None
    return [
        shown(record)
        for record in sorted(cluster.last.ownership, key=lambda one: (one.bundle, one.version))
    ]


def shown(record: Ownership) -> tuple[str, str, str | None, int]:
    return short_name(record.bundle), record.state, record.owner, record.version


SETUP = (
    "config loadBalancerSheddingIntervalMinutes=0 loadBalancerHistoryResourcePercentage=0",
    "brokers a=0.90 b=0.20",
    "bundles a: t/n/0=60MB t/n/1=40MB",
)


def test_a_move_leads_from_owner_to_owner_version_by_version() -> None:
    cluster = Cluster()
    assert told(cluster, *SETUP, "round") == [
        ("t/n/0", "Owned", "a", 1),
        ("t/n/0", "Releasing", "a", 2),
        ("t/n/1", "Owned", "a", 1),
    ]
    assert told(cluster, "brokers a=0.50 b=0.50", "obey", "round") == [
        ("t/n/0", "Assigning", None, 3)
    ]
    assert told(cluster, "obey", "round") == [("t/n/0", "Owned", "b", 4)]
    assert told(cluster, "round") == []


def test_what_brokers_do_by_themselves_is_recorded_too() -> None:
    cluster = Cluster()
    told(cluster, *SETUP, "config shedding_enabled=false", "round")
    assert told(cluster, "bundles b: t/n/2=1MB", "round") == [("t/n/2", "Owned", "b", 1)]
    assert told(cluster, "config assign_unowned=on_lookup", "bundles a: t/n/0", "round") == [
        ("t/n/1", "Free", None, 2)
    ]
    assert told(cluster, "bundles b: t/n/1 t/n/2", "round") == [("t/n/1", "Owned", "b", 3)]


def test_what_has_changed_in_a_dry_run_is_told_after_it() -> None:
    cluster = Cluster()
    told(cluster, *SETUP, "config shedding_enabled=false assign_unowned=on_lookup", "round")
    assert (
        told(cluster, "config dry_run=true", "bundles b: t/n/1", "bundles a: none", "round") == []
    )
    assert told(cluster, "config dry_run=false", "round") == [
        ("t/n/0", "Free", None, 2),
        ("t/n/1", "Owned", "b", 2),
    ]
    assert told(cluster, "round") == []


def test_a_move_from_before_a_dry_run_is_followed_to_its_end_in_it_and_nothing_else_is() -> None:
    cluster = Cluster()
    told(cluster, *SETUP, "round")
    quiet = "config dry_run=true shedding_enabled=false"
    assert told(cluster, quiet, "obey", "round") == [("t/n/0", "Free", None, 3)]
    assert told(cluster, "bundles b: t/n/0", "round") == [("t/n/0", "Owned", "b", 4)]
    assert told(cluster, "bundles b: t/n/0 t/n/1", "bundles a: none", "round") == []
    assert told(cluster, "bundles b: t/n/1", "bundles a: t/n/0", "round") == []
    assert told(cluster, "config dry_run=false", "round") == [
        ("t/n/0", "Owned", "a", 5),
        ("t/n/1", "Owned", "b", 2),
    ]


def test_an_assignment_from_before_a_dry_run_tells_a_broker_that_returns_who_has_its_bundle() -> (
    None
):
    cluster = Cluster()
    told(cluster, *CALM, *OF_A, "round", "config dry_run=true")
    assert told(cluster, "obey", "round") == [("t/n/0", "Owned", "c", 3)]
    assert told(cluster, "round") == []


def test_a_split_from_before_a_dry_run_is_recorded_with_its_children() -> None:
    cluster = Cluster()
    told(
        cluster,
        "config shedding_enabled=false unload_split_bundles=false",
        "brokers a=0.50 b=0.40",
        "bundles a: t/n/0-3=1MB,1200topics",
        "round",
        "config dry_run=true",
    )
    assert told(cluster, "obey", "round") == [
        ("t/n/0-1", "Owned", "a", 1),
        ("t/n/0-3", "Deleted", None, 3),
        ("t/n/2-3", "Owned", "a", 1),
    ]


def test_a_broker_that_returns_with_a_bundle_that_was_split_meanwhile_is_told_to_give_it_up() -> (
    None
):
    cluster = Cluster()
    told(
        cluster,
        "config shedding_enabled=false unload_split_bundles=false",
        "brokers a=0.50 b=0.40 c=0.60",
        "bundles a: t/n/0-3=1MB",
        "round",
        "silent a",
        "wait 31s",
        "round",
        "obey",
        "round",
        "bundles b: t/n/0-3=1MB,1200topics",
        "round",
        "obey",
    )
    split = [record for record in told(cluster, "round") if record[0] == "t/n/0-3"]
    assert split == [("t/n/0-3", "Deleted", None, 5)]
    told(cluster, "speaks a", "bundles a: t/n/0-3")
    assert told(cluster, "round") == [("t/n/0-3", "Deleted", None, 6)]
    assert told(cluster, "wait 3600s", "round") == [], "it is remembered while a broker serves it"
    told(cluster, "bundles b: none")
    assert ("t/n/0-3", "Owned", "a", 7) in told(cluster, "round"), "others serve it no more"


def test_a_new_cluster_in_dry_run_publishes_nothing_until_it_is_enabled() -> None:
    cluster = Cluster()
    assert told(cluster, *SETUP, "config dry_run=true", "round", "round") == []
    assert told(cluster, "config dry_run=false shedding_enabled=false", "round") == [
        ("t/n/0", "Owned", "a", 1),
        ("t/n/1", "Owned", "a", 1),
    ]


def test_many_records_take_several_rounds_and_what_happens_meanwhile_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "MAX_PUBLISHED", 2)
    cluster = Cluster()
    setup = (
        "brokers a=0.20 b=0.20",
        "bundles a: t/n/0=1MB t/n/1=1MB t/n/2=1MB t/n/3=1MB",
        "config shedding_enabled=false",
    )
    assert told(cluster, *setup, "round") == [
        ("t/n/0", "Owned", "a", 1),
        ("t/n/1", "Owned", "a", 1),
    ]
    moved = told(cluster, "bundles b: t/n/0", "bundles a: t/n/1 t/n/2 t/n/3", "round")
    assert moved == [
        ("t/n/0", "Owned", "b", 2),
        ("t/n/2", "Owned", "a", 1),
        ("t/n/3", "Owned", "a", 1),
    ]
    assert told(cluster, "round") == []


def test_very_many_changes_at_once_are_told_as_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "MAX_PUBLISHED", 2)
    cluster = Cluster()
    setup = (
        "brokers a=0.20 b=0.20",
        "config shedding_enabled=false",
        "bundles a: t/n/0=1MB t/n/1=1MB",
    )
    told(cluster, *setup, "round")
    grown = "bundles b: t/n/2=1MB t/n/3=1MB t/n/4=1MB"
    assert [bundle for bundle, *_ in told(cluster, grown, "round")] == ["t/n/0", "t/n/1"]
    assert [bundle for bundle, *_ in told(cluster, "round")] == ["t/n/2", "t/n/3"]
    assert [bundle for bundle, *_ in told(cluster, "round")] == ["t/n/4"]
    assert told(cluster, "round") == []


def forced(cluster: Cluster, *commands: str) -> list[tuple[str, str, str | None, str | None, bool]]:
    """(bundle, state, source, destination, force) of the same records."""
    told(cluster, *commands)
    assert cluster.last is not None
    return [
        (short_name(one.bundle), one.state, one.source, one.destination, one.force)
        for one in cluster.last.ownership
    ]


CALM = (
    "config shedding_enabled=false",
    "brokers a=0.50 b=0.40 c=0.30 d=0.20",
    "bundles a: t/n/0=1MB",
    "bundles b: t/n/1=1MB",
    "round",
)
OF_A = "goodbye a", "bundles a: none"


def test_a_dead_brokers_bundle_is_taken_from_it_and_given_to_another_at_once() -> None:
    cluster = Cluster()
    told(cluster, *CALM)
    assert forced(cluster, *OF_A, "round") == [("t/n/0", "Assigning", "a", "c", True)]
    assert forced(cluster, "obey", "round") == [("t/n/0", "Owned", "a", "c", False)]


def test_an_orphan_without_a_candidate_is_free_and_assigned_when_there_is_one_again() -> None:
    cluster = Cluster()
    told(cluster, *CALM, "isolate t/n primary=x")
    assert forced(cluster, *OF_A, "round") == [("t/n/0", "Free", "a", None, True)]
    cluster.policies = NO_POLICIES
    assert forced(cluster, "round") == [("t/n/0", "Assigning", None, "c", False)]


def test_an_assignment_whose_destination_dies_goes_to_another_broker() -> None:
    cluster = Cluster()
    told(cluster, *CALM, *OF_A, "round")
    assert forced(cluster, "goodbye c", "round") == [("t/n/0", "Assigning", "a", "d", True)]


def test_a_release_whose_source_dies_goes_on_to_its_destination() -> None:
    cluster = Cluster()
    told(cluster, *SETUP, "brokers c=0.20", "round")
    assert cluster.last is not None and cluster.last.decisions[0].destination == "c"
    assert forced(cluster, "config shedding_enabled=false", "goodbye a", "round") == [
        ("t/n/0", "Assigning", "a", "c", False),
        ("t/n/1", "Assigning", "a", "b", True),
    ]


def test_a_release_whose_destination_dies_goes_elsewhere() -> None:
    cluster = Cluster()
    told(cluster, *SETUP, "brokers c=0.20", "round")
    assert forced(cluster, "config shedding_enabled=false", "goodbye c", "obey", "round") == [
        ("t/n/0", "Assigning", "a", "b", True)
    ]


def test_a_bundle_that_was_being_split_when_its_broker_died_goes_whole_to_another_one() -> None:
    cluster = Cluster()
    told(
        cluster,
        "config shedding_enabled=false",
        "brokers a=0.50 b=0.40",
        "bundles a: t/n/0-3=1MB,1200topics",
        "round",
    )
    assert forced(cluster, "goodbye a", "round") == [("t/n/0-3", "Assigning", "a", "b", True)]
    done = forced(cluster, "brokers c=0.10", "bundles a: none", "obey", "round")
    assert done[:2] == [
        ("t/n/0-3", "Owned", "a", "b", False),
        ("t/n/0-3", "Splitting", "b", None, False),
    ], "its new owner splits it"


def test_what_came_to_nothing_is_its_owners_again() -> None:
    cluster = Cluster()
    told(cluster, *SETUP, "round")
    told(cluster, "config shedding_enabled=false", "refuse t/n/0 no")
    assert forced(cluster, "round") == [("t/n/0", "Owned", None, "a", True)]


def test_a_broker_that_comes_back_before_anybody_has_its_bundles_has_them_again() -> None:
    cluster = Cluster()
    told(cluster, *CALM, "config assign_unowned=on_lookup")
    assert told(cluster, "silent a", "wait 31s", "round") == [("t/n/0", "Free", None, 2)]
    assert told(cluster, "speaks a", "round") == [("t/n/0", "Owned", "a", 3)]
    assert told(cluster, "round") == []


def test_when_all_brokers_have_left_their_bundles_are_free_and_the_first_that_comes_gets_them() -> (
    None
):
    cluster = Cluster()
    told(cluster, *CALM)
    states = [(bundle, state) for bundle, state, *_ in told(cluster, "goodbye a b c d", "round")]
    assert states == [("t/n/0", "Free"), ("t/n/1", "Free")]
    taken = forced(cluster, "brokers e=0.10", "round")
    assert taken == [
        ("t/n/0", "Assigning", None, "e", False),
        ("t/n/1", "Assigning", None, "e", False),
    ]


def test_the_record_of_a_split_names_the_children_and_is_deleted_after_the_delay() -> None:
    cluster = Cluster()
    told(
        cluster,
        "config shedding_enabled=false unload_split_bundles=false",
        "brokers a=0.50 b=0.40",
        "bundles a: t/n/0-3=1MB,1200topics",
        "round",
    )
    assert cluster.last is not None
    assert [short_name(name) for name in cluster.last.ownership[-1].children] == [
        "t/n/0-1",
        "t/n/2-3",
    ]
    told(cluster, "obey", "round")
    assert cluster.memory.unserved.keys() == {bundle_name("t/n/0-3")}
    assert told(cluster, "wait 3599s", "round") == []
    assert told(cluster, "wait 1s", "round") == [("t/n/0-3", "Init", None, 3)]
    assert not cluster.memory.unserved and not cluster.memory.versions, (
        "nothing is remembered of it"
    )


def test_a_bundle_that_nobody_names_for_long_is_no_more_and_begins_anew_if_it_comes_back() -> None:
    cluster = Cluster()
    told(cluster, *CALM, "config assign_unowned=on_lookup")
    assert told(cluster, "bundles a: none", "round") == [("t/n/0", "Free", None, 2)]
    assert told(cluster, "wait 3600s", "round")[-1] == ("t/n/0", "Init", None, 2)
    assert told(cluster, "bundles a: t/n/0", "round") == [("t/n/0", "Owned", "a", 1)]


def test_a_bundle_whose_record_waits_for_its_turn_is_told_before_it_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "MAX_PUBLISHED", 1)
    cluster = Cluster()
    assert told(cluster, *SETUP[:2], "bundles a: t/n/0=40MB t/n/1=60MB", "round") == [
        ("t/n/0", "Owned", "a", 1),
        ("t/n/1", "Owned", "a", 1),
        ("t/n/1", "Releasing", "a", 2),
    ]
    assert told(cluster, "config shedding_enabled=false", "round") == []


def test_what_changed_while_rounds_failed_is_told_by_the_next_one_that_does_not() -> None:
    cluster = Cluster()
    told(cluster, *CALM, "config assign_unowned=on_lookup")
    before = cluster.memory
    failed_ms = cluster.now_ms + 100_000
    told(
        cluster,
        "wait 100s",
        "bundles a: none",
        "bundles b: t/n/0 t/n/2=1MB",
        "round",
        "wait 5s",
        "bundles b: t/n/2",
        "round",
    )
    cluster.memory = replace(before, missed_ms=failed_ms)  # as if neither round had been
    assert told(cluster, "round") == [
        ("t/n/0", "Free", None, 2),
        ("t/n/1", "Free", None, 2),
        ("t/n/2", "Owned", "b", 2),
    ]
    assert cluster.memory.missed_ms is None and told(cluster, "round") == []
