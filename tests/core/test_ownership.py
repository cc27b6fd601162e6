"""Ownership records: one for each change, their versions growing by one; nothing from a dry run, everything after it."""

import pytest

from lb_stream.contracts.decisions import Ownership
from lb_stream.core import ownership
from tests.core.scenario import Cluster, short_name


def told(cluster: Cluster, *commands: str) -> list[tuple[str, str, str | None, int]]:
    """(bundle, state, owner, version) of the records that the last command's round published, by bundle."""
    for command in commands:
        list(cluster.do(command))
    assert cluster.last is not None
    return [shown(record) for record in sorted(cluster.last.ownership, key=lambda one: (one.bundle, one.version))]


def shown(record: Ownership) -> tuple[str, str, str | None, int]:
    return short_name(record.bundle), record.state, record.owner, record.version


SETUP = (
    "config loadBalancerSheddingIntervalMinutes=0 loadBalancerHistoryResourcePercentage=0",
    "brokers a=0.90 b=0.20",
    "bundles a: t/n/0=60MB t/n/1=40MB",
)


def test_a_move_leads_from_owner_to_owner_version_by_version() -> None:
    cluster = Cluster()
    assert told(cluster, *SETUP, "round") == [("t/n/0", "Owned", "a", 1), ("t/n/0", "Releasing", "a", 2), ("t/n/1", "Owned", "a", 1)]
    assert told(cluster, "brokers a=0.50 b=0.50", "obey", "round") == [("t/n/0", "Free", None, 3), ("t/n/0", "Assigning", None, 4)]
    assert told(cluster, "obey", "round") == [("t/n/0", "Owned", "b", 5)]
    assert told(cluster, "round") == []


def test_what_brokers_do_by_themselves_is_recorded_too() -> None:
    cluster = Cluster()
    told(cluster, *SETUP, "config shedding_enabled=false", "round")
    assert told(cluster, "bundles b: t/n/2=1MB", "round") == [("t/n/2", "Owned", "b", 1)]
    assert told(cluster, "config assign_unowned=on_lookup", "bundles a: t/n/0", "round") == [("t/n/1", "Free", None, 2)]
    assert told(cluster, "bundles b: t/n/1 t/n/2", "round") == [("t/n/1", "Owned", "b", 3)]


def test_after_a_dry_run_everything_is_published_anew() -> None:
    cluster = Cluster()
    told(cluster, *SETUP, "config shedding_enabled=false", "round")
    assert told(cluster, "config dry_run=true", "bundles b: t/n/1", "bundles a: t/n/0", "round") == []
    owners = [(bundle, owner) for bundle, _, owner, _ in told(cluster, "config dry_run=false", "round")]
    assert owners == [("t/n/0", "a"), ("t/n/1", "b")]
    assert told(cluster, "round") == []


def test_a_new_cluster_in_dry_run_publishes_nothing_until_it_is_enabled() -> None:
    cluster = Cluster()
    assert told(cluster, *SETUP, "config dry_run=true", "round", "round") == []
    assert told(cluster, "config dry_run=false shedding_enabled=false", "round") == [("t/n/0", "Owned", "a", 1), ("t/n/1", "Owned", "a", 1)]


def test_many_records_take_several_rounds_and_what_happens_meanwhile_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "MOST_PUBLISHED", 2)
    cluster = Cluster()
    setup = ("brokers a=0.20 b=0.20", "bundles a: t/n/0=1MB t/n/1=1MB t/n/2=1MB t/n/3=1MB", "config shedding_enabled=false")
    assert told(cluster, *setup, "round") == [("t/n/0", "Owned", "a", 1), ("t/n/1", "Owned", "a", 1)]
    moved = told(cluster, "bundles b: t/n/0", "bundles a: t/n/1 t/n/2 t/n/3", "round")
    assert moved == [("t/n/0", "Owned", "b", 1), ("t/n/2", "Owned", "a", 1), ("t/n/3", "Owned", "a", 1)]
    assert told(cluster, "round") == []


def test_very_many_changes_at_once_are_told_as_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "MOST_PUBLISHED", 2)
    cluster = Cluster()
    setup = ("brokers a=0.20 b=0.20", "config shedding_enabled=false", "bundles a: t/n/0=1MB t/n/1=1MB")
    told(cluster, *setup, "round")
    grown = "bundles b: t/n/2=1MB t/n/3=1MB t/n/4=1MB"
    assert [bundle for bundle, *_ in told(cluster, grown, "round")] == ["t/n/0", "t/n/1"]
    assert [bundle for bundle, *_ in told(cluster, "round")] == ["t/n/2", "t/n/3"]
    assert [bundle for bundle, *_ in told(cluster, "round")] == ["t/n/4"]
    assert told(cluster, "round") == []
