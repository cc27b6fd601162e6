"""Topic → bundle → broker, from ownership records in any state and order."""

from __future__ import annotations

import pytest

from lb_stream.contracts.decisions import OwnershipState
from lb_stream.core.model.names import bundle_name
from lb_stream.core.model.topics import Ring, topic_hash
from lb_stream.core.ownership.lookup import Route, Routes
from tests.support.wordings import check_wording

TOPIC = "persistent://shop/orders/new"
HASH = topic_hash(TOPIC)


def owned(bundle: str, owner: str, version: int = 1) -> Route:
    """The route of a bundle that somebody serves."""
    return Route.from_record(bundle, "Owned", owner, None, version, 7)


def routes(bundles: int) -> tuple[Routes, Ring]:
    """A namespace whose bundles are served by b0, b1, …"""
    known, ring = Routes(), Ring.new("shop/orders", bundles)
    for row, name in enumerate(ring.names):
        known.take("eu", name, owned(name, f"b{row}:8080"))
    return known, ring


@pytest.mark.parametrize("bundles", [1, 2, 3, 64, 1_000])
def test_a_topic_is_served_by_the_owner_of_the_bundle_that_its_hash_lies_in(bundles: int) -> None:
    known, ring = routes(bundles)
    for name in ("new", "old", "a", "b", "c"):
        topic = f"persistent://shop/orders/{name}"
        found = known.find("eu", "shop/orders", topic_hash(topic))
        assert found is not None
        assert found.bundle == ring.bundle_of(topic)
        assert found.broker == f"b{ring.names.index(found.bundle)}:8080"


@pytest.mark.parametrize(
    ("hashed", "row"), [(0, 0), (0x3FFFFFFF, 0), (0x40000000, 1), (0xFFFFFFFE, 3), (0xFFFFFFFF, 3)]
)
def test_boundaries_belong_to_the_bundle_that_they_begin_and_the_last_hash_to_the_last_one(
    hashed: int, row: int
) -> None:
    known, ring = routes(4)
    found = known.find("eu", "shop/orders", hashed)
    assert found is not None
    assert found.bundle == ring.names[row]


@pytest.mark.parametrize(
    ("state", "broker", "unowned"),
    [
        ("Owned", "a", False),
        ("Splitting", "a", False),
        ("Merging", "a", False),
        ("Assigning", "b", False),
        ("Releasing", "b", False),
        ("Free", "b", True),
    ],
)
def test_who_answers_for_a_bundle_in_each_state(
    state: OwnershipState, broker: str, unowned: bool
) -> None:
    route = Route.from_record(bundle_name("shop/orders", 0, 0xFFFFFFFF), state, "a", "b", 3, 9)
    assert (route.broker, route.unowned, route.version, route.since_ms) == (broker, unowned, 3, 9)


def test_a_bundle_on_its_way_to_nobody_yet_has_no_broker_and_needs_no_asking() -> None:
    route = Route.from_record(
        bundle_name("shop/orders", 0, 0xFFFFFFFF), "Releasing", "a", None, 3, 9
    )
    assert (route.broker, route.unowned) == (None, False)


def test_a_split_bundles_children_answer_as_soon_as_they_exist_and_alone_once_it_is_deleted() -> (
    None
):
    known, ring = routes(1)
    (parent,) = ring.names
    low, high = Ring.new("shop/orders", 2).names
    known.take("eu", parent, Route.from_record(parent, "Splitting", "b0:8080", None, 2, 8))
    known.take("eu", low, owned(low, "c:8080"))
    child, rest = known.find("eu", "shop/orders", 0), known.find("eu", "shop/orders", 0x90000000)
    assert child is not None
    assert rest is not None
    assert (child.bundle, rest.bundle) == (low, parent)
    known.take("eu", parent, Route.from_record(parent, "Deleted", None, None, 3, 9))
    assert known.find("eu", "shop/orders", 0x90000000) is None
    known.take("eu", high, owned(high, "d:8080"))
    last = known.find("eu", "shop/orders", 0xFFFFFFFF)
    assert last is not None
    assert (last.broker, len(known)) == ("d:8080", 2)


def test_what_a_tombstone_takes_away_is_not_found_and_the_cluster_stays_known() -> None:
    known, ring = routes(2)
    for name in ring.names:
        known.take("eu", name, None)
    assert known.find("eu", "shop/orders", HASH) is None
    assert (known.clusters, len(known)) == (["eu"], 0)


def test_clusters_and_namespaces_are_kept_apart() -> None:
    known, _ = routes(4)
    assert known.find("us", "shop/orders", HASH) is None
    assert known.find("eu", "shop/invoices", HASH) is None
    assert known.clusters == ["eu"]


def test_what_is_no_bundles_name_is_refused() -> None:
    with pytest.raises(ValueError) as error:
        Routes().take("eu", "shop/orders/new", None)
    check_wording(error.value)
