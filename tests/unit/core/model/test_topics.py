"""Topic names, their hashes, and the ring of a namespace's bundles."""

from typing import Any

import numpy as np
import pytest

from lb_stream.core.model.topics import (
    Ring,
    SegmentName,
    equal_boundaries,
    full_topic_name,
    namespace_of_topic,
    topic_hash,
    topic_hashes,
)
from tests.support.vectors import vector
from tests.support.wordings import check_wording

HASHES = vector("hash_topics")
RING = [int(text, 16) for text in HASHES["boundaries"]]


@pytest.mark.parametrize("case", HASHES["topics"], ids=lambda case: case["topic"])
def test_a_topic_has_the_documented_hash_and_bundle(case: dict[str, Any]) -> None:
    assert topic_hash(case["topic"]) == int(case["hash"], 16)
    ring = Ring.from_boundaries(namespace_of_topic(case["topic"]), RING)
    assert ring.bundle_of(case["topic"]).removeprefix(f"{ring.namespace}/") == case["bundle"]


def test_many_topics_are_looked_up_at_once() -> None:
    topics = [case["topic"] for case in HASHES["topics"]]
    assert topic_hashes(topics).tolist() == [int(case["hash"], 16) for case in HASHES["topics"]]
    ring = Ring.from_boundaries("a/b", RING)
    assert [ring.name(row) for row in ring.rows(topic_hashes(topics)).tolist()] == [
        f"a/b/{case['bundle']}" for case in HASHES["topics"]
    ]


@pytest.mark.parametrize("case", HASHES["edges"], ids=lambda case: case["hash"])
def test_a_bundle_begins_at_its_lower_bound_and_the_last_one_has_its_end_too(
    case: dict[str, Any],
) -> None:
    ring = Ring.from_boundaries("a/b", RING)
    assert (
        ring.name(int(ring.rows(np.array([int(case["hash"], 16)]))[0])) == f"a/b/{case['bundle']}"
    )


def test_the_illustration_is_no_hash() -> None:
    """The documents' 0x0000000F stands for nothing: not even the bare word has it."""
    assert (
        topic_hash("my-topic")
        == topic_hash("persistent://public/default/my-topic")
        == int(HASHES["topics"][0]["hash"], 16)
    )


@pytest.mark.parametrize(
    "case", vector("bundle_boundaries")["cases"], ids=lambda case: f"{case['n']} bundles"
)
def test_a_new_namespace_has_equal_bundles(case: dict[str, Any]) -> None:
    assert [f"0x{bound:08x}" for bound in equal_boundaries(case["n"])] == case["boundaries"]
    ring = Ring.new("a/b", case["n"])
    assert (
        len(ring) == case["n"]
        and ring.names[-1].endswith("_0xffffffff")
        and ring.names[0].startswith("a/b/0x00000000_")
    )


@pytest.mark.parametrize("bundles", [0, -1, (1 << 20) + 1])
def test_a_namespace_of_no_or_far_too_many_bundles_is_refused(bundles: int) -> None:
    with pytest.raises(ValueError, match="expected 1 to 1048576"):
        Ring.new("a/b", bundles)


@pytest.mark.parametrize(
    "boundaries", [[], [0], [0, 5], [1, 0xFFFFFFFF], [0, 7, 7, 0xFFFFFFFF], [0, 9, 7, 0xFFFFFFFF]]
)
def test_boundaries_that_leave_gaps_are_refused(boundaries: list[int]) -> None:
    with pytest.raises(ValueError) as error:
        Ring.from_boundaries("a/b", boundaries)
    check_wording(error.value)


@pytest.mark.parametrize(
    ("name", "full", "namespace"),
    [
        ("c", "persistent://public/default/c", "public/default"),
        ("a/b/c", "persistent://a/b/c", "a/b"),
        ("non-persistent://a/b/c", "non-persistent://a/b/c", "a/b"),
        ("persistent://a/cluster/b/c/d", "persistent://a/cluster/b/c/d", "a/cluster/b"),
        (
            "persistent://テナント/名前/ト ピ&ック",
            "persistent://テナント/名前/ト ピ&ック",
            "テナント/名前",
        ),
    ],
)
def test_short_names_are_expanded(name: str, full: str, namespace: str) -> None:
    assert (full_topic_name(name), namespace_of_topic(name)) == (full, namespace)
    assert topic_hash(name) == topic_hash(full)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a/b",
        "a/b/c/d",
        "http://a/b/c",
        "persistent://a/b",
        "persistent://a//c",
        "persistent://a/b/",
    ],
)
def test_what_is_no_topic_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError) as error:
        topic_hash(name)
    check_wording(error.value)


def test_a_partition_is_a_topic_of_its_own() -> None:
    assert topic_hash("persistent://public/default/orders-partition-12") != topic_hash("orders")


ORDERS = SegmentName("topic://scal/ns/orders", 0, 0x3FFF, 0)


def test_a_segment_is_in_the_bundle_where_a_pulsar_broker_was_seen_to_have_it() -> None:
    """Recorded from a cluster of Pulsar 5.0.1 whose namespace has eight bundles."""
    ring = Ring.new("scal/ns", 8)
    seen = {
        "0000-3fff-0": "0xe0000000_0xffffffff",
        "4000-7fff-1": "0xa0000000_0xc0000000",
        "8000-bfff-2": "0x60000000_0x80000000",
        "c000-ffff-3": "0xc0000000_0xe0000000",
    }
    for name, bounds in seen.items():
        assert ring.bundle_of(f"segment://scal/ns/orders/{name}") == f"scal/ns/{bounds}"
    assert ORDERS.full == "segment://scal/ns/orders/0000-3fff-0"


def test_a_split_segment_has_the_halves_that_pulsar_makes_and_their_merge_its_range() -> None:
    low, high = ORDERS.halves(4)
    assert [low.full, high.full] == [
        "segment://scal/ns/orders/0000-1fff-4",
        "segment://scal/ns/orders/2000-3fff-5",
    ]
    assert low.merged(high, 6) == high.merged(low, 6)
    assert low.merged(high, 6).full == "segment://scal/ns/orders/0000-3fff-6"


def test_segments_without_a_hash_to_spare_or_a_common_bound_are_refused() -> None:
    with pytest.raises(ValueError, match="single hash"):
        SegmentName("topic://a/b/c", 7, 7, 0).halves(1)
    with pytest.raises(ValueError, match=r"0 \(0000-3fff\) and 9 \(5000-ffff\) are no neighbours"):
        SegmentName("topic://scal/ns/orders", 0x5000, 0xFFFF, 9).merged(ORDERS, 10)
