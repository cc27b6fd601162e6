"""An operator's split: what is asked for, what is meant, what comes of it."""

import re
from typing import Any

import numpy as np
import pytest

from lb_stream.core.model.topics import Ring, topic_hash
from lb_stream.core.splitting import NamespaceBundles, SplitRequest, Topics, manual_split
from lb_stream.core.splitting.manual import Accepted, Manager, NoChange, Rejected
from lb_stream.settings.resolve import cluster_config

NAMES = [
    "t/n/0x00000000_0x40000000",
    "t/n/0x40000000_0x80000000",
    "t/n/0x80000000_0xc0000000",
    "t/n/0xc0000000_0xffffffff",
]
RANGES = [name.rpartition("/")[2] for name in NAMES]
POSITIONS = "specified_positions_divide"


def bundles(
    topics: list[int] | None = None, throughput: list[float] | None = None, **changes: Any
) -> NamespaceBundles:
    given: dict[str, Any] = {
        "names": NAMES,
        "topics": np.array(topics or [3, 7, 7, 0]),
        "long_throughput": np.array(throughput or [50.0, 10.0, 20.0, 900.0]),
        "owned": np.array([True, True, True, False]),
        "system": np.zeros(len(changes.get("names", NAMES)), np.bool_),
    }
    return NamespaceBundles(**(given | changes))


def asked(
    given: NamespaceBundles | None = None, manager: Manager = "modular", **request: Any
) -> Accepted | NoChange | Rejected:
    settings = request.pop("settings", {})
    config = cluster_config(settings)
    return manual_split(
        SplitRequest("t/n", **request),
        given or bundles(),
        config.splitting,
        config.split_algorithms,
        manager,
    )


@pytest.mark.parametrize(
    ("manager", "wanted", "row"),
    [
        ("modular", "LARGEST", 1),
        ("modular", "HOT", 0),
        ("simple", "HOT", 1),
        ("extensible", "HOT", 1),
        ("extensible", "LARGEST", 1),
    ],
)
@pytest.mark.parametrize("form", ["bundle", "bundle_type"])
def test_the_largest_has_most_topics_and_the_hot_one_most_traffic_of_those_with_topics(
    manager: Manager, wanted: str, row: int, form: str
) -> None:
    done = asked(manager=manager, **{form: wanted})
    assert isinstance(done, Accepted)
    assert done.cut.children[0].startswith(NAMES[row][:14])
    assert (len(done.cut.children), done.algorithm, done.unload) == (
        2,
        "range_equally_divide",
        False,
    )


@pytest.mark.parametrize("wanted", ["LARGEST", "HOT"])
def test_a_namespace_without_topics_has_no_largest(wanted: str) -> None:
    done = asked(bundles(topics=[0, 0, 0, 0]), bundle=wanted)
    assert isinstance(done, Rejected) and done.status == 404


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        (
            {"bundle": RANGES[0], "algorithm": "thirds"},
            412,
            "not supported; expected one of range_equally_divide",
        ),
        ({"bundle": RANGES[0], "algorithm": POSITIONS}, 412, "needs the boundaries"),
        ({"bundle": "0x0_0x4"}, 412, "expected .* LARGEST, or HOT"),
        ({"bundle": "0x00000000_0x80000000"}, 404, "has no bundle"),
        ({}, 400, "either a bundle or a bundle type"),
        ({"bundle": "HOT", "bundle_type": "HOT"}, 400, "either a bundle or a bundle type"),
        ({"bundle_type": "COLD"}, 400, "expected LARGEST or HOT"),
        ({"bundle": RANGES[0], "algorithm": POSITIONS, "boundaries": (5, 5)}, 412, "given twice"),
    ],
)
def test_what_cannot_be_done_is_rejected_with_the_documented_status(
    request_: dict[str, Any], status: int, words: str
) -> None:
    done = asked(**request_)
    assert isinstance(done, Rejected) and done.status == status
    assert re.search(words, done.detail)


def test_an_algorithm_that_is_switched_off_is_rejected() -> None:
    done = asked(
        bundle=RANGES[0],
        algorithm=POSITIONS,
        settings={"supportedNamespaceBundleSplitAlgorithms": "range_equally_divide"},
    )
    assert isinstance(done, Rejected) and done.status == 412


def test_positions_strictly_inside_are_taken_others_dropped_and_none_left_is_no_change() -> None:
    done = asked(
        bundle=RANGES[0],
        algorithm=POSITIONS,
        boundaries=(0x30000000, 0x10000000, 0x50000000),
        unload=True,
    )
    assert isinstance(done, Accepted) and done.unload
    assert done.cut.boundaries == (0x10000000, 0x30000000)
    assert isinstance(
        asked(bundle=RANGES[0], algorithm=POSITIONS, boundaries=(0x50000000,)), NoChange
    )


def test_a_bundle_with_one_topic_is_not_cut_at_positions_but_in_halves() -> None:
    one = bundles(topics=[1, 0, 0, 0])
    assert isinstance(asked(one, bundle=RANGES[0], algorithm=POSITIONS, boundaries=(5,)), NoChange)
    assert isinstance(asked(one, bundle=RANGES[0]), Accepted)


def test_the_documented_command_cuts_the_largest_bundle_by_topics() -> None:
    ring = Ring.new("t/n", 4)
    inside = [
        topic
        for topic in (f"t/n/{index}" for index in range(40))
        if ring.bundle_of(topic) == NAMES[1]
    ]
    done = asked(
        bundles(topics_of=lambda _name: Topics.from_names(inside)),
        bundle="LARGEST",
        algorithm="topic_count_equally_divide",
        unload=True,
    )
    assert isinstance(done, Accepted) and done.unload
    left = sum(topic_hash(topic) < done.cut.boundaries[0] for topic in inside)
    assert len(inside) > 3 and left == len(inside) // 2
    unknown = asked(bundle="LARGEST", algorithm="topic_count_equally_divide", unload=True)
    assert isinstance(unknown, Accepted) and unknown.unload
    assert (unknown.cut.boundaries, unknown.cut.children, unknown.algorithm) == (
        (),
        (),
        "topic_count_equally_divide",
    )


def test_thresholds_and_the_maximum_of_the_namespace_do_not_count() -> None:
    assert isinstance(
        asked(bundle=RANGES[0], settings={"namespace_max_bundles": 1, "split_enabled": False}),
        Accepted,
    )


@pytest.mark.parametrize(
    ("manager", "kind"), [("modular", Accepted), ("simple", Accepted), ("extensible", Rejected)]
)
def test_only_the_extensible_manager_refuses_a_bundle_that_nobody_owns(
    manager: Manager, kind: type
) -> None:
    assert isinstance(asked(manager=manager, bundle=RANGES[3]), kind)


def test_heartbeat_bundles_are_left_alone() -> None:
    config = cluster_config({})
    own = bundles(
        names=["pulsar/c/b:8080/0x00000000_0xffffffff"],
        topics=[5],
        throughput=[1.0],
        owned=np.array([True]),
        system=np.array([True]),
    )
    request = SplitRequest("pulsar/c/b:8080", bundle="0x00000000_0xffffffff")
    done = manual_split(request, own, config.splitting, config.split_algorithms, "modular")
    assert isinstance(done, NoChange) and "heartbeat" in done.detail
