"""Where bundles are cut, when, and by whose order: the specification's worked examples and the
edges around them."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lb_stream.contracts.keys import SettingError
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.names import BundleRange, parse_bundle
from lb_stream.core.model.rules import Refuses
from lb_stream.core.splitting import (
    Boundaries,
    Cut,
    OwnBundles,
    Range,
    SplitMemory,
    SplitRejected,
    Topics,
    cut,
    split_strategy,
)
from lb_stream.core.splitting.config import MIB
from lb_stream.core.splitting.modular import split_task
from lb_stream.core.splitting.simple import split_simple
from lb_stream.settings.resolve import cluster_config, resolve
from tests.support.split_cases import FLOW, flow_bundle, limits, loads, number, task, topics_at
from tests.support.vectors import PROFILES, vector
from tests.support.wordings import check_wording

FULL = 0xFFFFFFFF
SMALL = "t/n/0x00000000_0x40000000"


def boundaries(algorithm: str, bundle: Range, **settings: Any) -> Boundaries:
    config = cluster_config(settings)
    return config.split_algorithms.boundaries(config.split_algorithms.named(algorithm), bundle)


# --- algorithms ---


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("case", vector("split_range")["cases"])
def test_range_equally_divide_cuts_in_the_middle_unless_the_range_is_too_narrow(
    profile: str, case: dict[str, Any]
) -> None:
    lower, upper = (int(bound, 16) for bound in case["range"])
    found = boundaries("range_equally_divide", Range(lower, upper, topics_at([])), profile=profile)
    done = cut(BundleRange("t/n", lower, upper), found.positions)
    if case["expected"] is None:
        assert isinstance(done, SplitRejected) and done.why == "range_too_narrow"
    else:
        assert isinstance(done, Cut) and done.boundaries == (number(case["expected"]),)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, "referenceBoundary"),
        ({"profile": "documented"}, "referenceBoundary"),
        ({"hex_midpoint": "decimal_hex"}, "documentedBoundary"),
    ],
)
def test_topic_count_equally_divide_halves_the_number_of_topics_whatever_the_digits(
    settings: dict[str, Any], field: str
) -> None:
    given = vector("split_topic_count")
    hashes = [int(text, 16) for text in given["hashes"]]
    found = boundaries(
        "topic_count_equally_divide",
        Range(*map(number, given["range"]), topics_at(hashes)),
        **settings,
    )
    assert found.positions == (number(given[field]),)
    assert [
        sum(one < found.positions[0] for one in hashes),
        sum(one >= found.positions[0] for one in hashes),
    ] == given["topicsEachSide"]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("case", vector("split_topic_count")["more"])
def test_the_boundary_lies_between_the_two_middle_topics(
    profile: str, case: dict[str, Any]
) -> None:
    found = boundaries(
        "topic_count_equally_divide",
        Range(0, FULL, topics_at([int(text, 16) for text in case["hashes"]])),
        profile=profile,
    )
    assert found.positions == (None if case["expected"] is None else (number(case["expected"]),))


def test_middle_topics_with_one_hash_may_put_the_boundary_where_it_is_refused() -> None:
    found = boundaries(
        "topic_count_equally_divide", Range.from_bundle(SMALL, topics_at([0, 0, 0, 7]))
    )
    assert found.positions == (0,)
    done = cut(parse_bundle(SMALL), found.positions)
    assert isinstance(done, SplitRejected) and done.why == "boundary_outside"


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("case", vector("split_specified")["cases"])
def test_specified_positions_divide_cuts_where_the_positions_lie_strictly_inside(
    profile: str, case: dict[str, Any]
) -> None:
    bundle = Range(
        *map(number, case["range"]),
        topics_at([int(text, 16) for text in case["topics"]]),
        tuple(map(number, case["positions"])),
    )
    found = boundaries("specified_positions_divide", bundle, profile=profile)
    if case["expected"] == "error":
        assert found.wrong and found.why == "no_position_given"
    else:
        assert not found.wrong
        assert found.positions == (
            None if case["expected"] is None else tuple(map(number, case["expected"]))
        )


def test_forced_positions_count_without_topics() -> None:
    assert boundaries(
        "specified_positions_divide", Range(0, 100, topics_at([]), (7,), force=True)
    ).positions == (7,)
    assert (
        boundaries("specified_positions_divide", Range(0, 100, topics_at([]), (7,))).why
        == "too_few_topics"
    )


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"profile": "pulsar-4.0"}, "referencePositions"),
        ({"profile": "documented"}, "exactMidpoints"),
        ({"profile": "documented", "hex_midpoint": "decimal_hex"}, "documentedPositions"),
    ],
)
@pytest.mark.parametrize("case", FLOW["cases"], ids=lambda case: f"case {case['case']}")
def test_flow_or_qps_equally_divide_keeps_pieces_within_the_limits_on_rate_and_bandwidth(
    case: dict[str, Any], settings: dict[str, Any], field: str
) -> None:
    found = boundaries("flow_or_qps_equally_divide", flow_bundle(), **limits(case), **settings)
    assert found.positions == tuple(map(number, case[field]))
    hashes = {one["name"]: int(one["hash"], 16) for one in FLOW["topics"]}
    for position, (before, after) in zip(found.positions, case["splitBetween"], strict=True):
        assert hashes[before] < position <= hashes[after]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_bundle_within_the_difference_of_the_limits_is_not_cut(profile: str) -> None:
    found = boundaries(
        "flow_or_qps_equally_divide", flow_bundle(), profile=profile, **limits(FLOW["noSplit"])
    )
    assert (found.positions, found.why) == (None, "below_limits")


def test_topics_without_load_or_statistics_count_nowhere() -> None:
    loaded = Topics(
        np.array([5, 1, 9]),
        np.array([900.0, 0.0, 0.0]),
        np.array([0.0, 0.0, 900.0]),
        np.array([True, True, False]),
    )
    assert (
        boundaries("flow_or_qps_equally_divide", Range(0, 100, loaded), bundle_max_msgs_per_s=1).why
        == "too_few_topics"
    )


def test_a_bundle_exactly_at_its_limits_has_nothing_to_separate() -> None:
    settings = {"bundle_max_msgs_per_s": 100, "flow_difference_percent": 0}
    found = boundaries(
        "flow_or_qps_equally_divide", Range(0, 100, topics_at([1, 9], [50.0, 50.0])), **settings
    )
    assert (found.positions, found.why) == ((), "nothing_to_separate")
    assert cut(BundleRange("t/n", 0, 100), found.positions) == SplitRejected(
        Refuses.NO_BOUNDARY, "no boundary was found in t/n/0x00000000_0x00000064"
    )


@pytest.mark.parametrize(("option", "expected"), [("last", (16, 17)), ("sum", (11, 17))])
def test_topics_with_one_hash_count_as_the_last_of_them_or_as_their_sum(
    option: str, expected: tuple[int, ...]
) -> None:
    """`last`: 10, 60, 60 again, 95; `sum`: 10, 130, 95."""
    topics = topics_at([5, 15, 15, 17], [10.0, 70.0, 60.0, 95.0])
    settings = {"flow_duplicate_hash": option, "bundle_max_msgs_per_s": 100}
    assert (
        boundaries("flow_or_qps_equally_divide", Range(0, 100, topics), **settings).positions
        == expected
    )


def test_two_topics_with_one_hash_alone_cannot_be_separated() -> None:
    topics = topics_at([7, 7], [500.0, 500.0])
    assert (
        boundaries("flow_or_qps_equally_divide", Range(0, 100, topics), bundle_max_msgs_per_s=1).why
        == "too_few_topics"
    )


def test_digits_that_are_not_decimal_are_averaged_exactly() -> None:
    topics = topics_at([0xA0000000, 0xB0000000])
    found = boundaries(
        "topic_count_equally_divide", Range(0, FULL, topics), hex_midpoint="decimal_hex"
    )
    assert found.positions == (0xA8000000,)


@pytest.mark.parametrize("asked", ["nonsense", None, "org.example.flow_or_qps_equally_divide"])
def test_an_unknown_algorithm_gives_way_to_the_default_and_that_to_halves(
    asked: str | None,
) -> None:
    known = cluster_config(
        {"defaultNamespaceBundleSplitAlgorithm": "topic_count_equally_divide"}
    ).split_algorithms
    unknown = cluster_config({"defaultNamespaceBundleSplitAlgorithm": "thirds"}).split_algorithms
    if asked and "flow" in asked:
        assert known.named(asked).name == unknown.named(asked).name == "flow_or_qps_equally_divide"
    else:
        assert (known.named(asked).name, unknown.named(asked).name) == (
            "topic_count_equally_divide",
            "range_equally_divide",
        )


def test_an_unknown_default_is_told_with_those_there_are() -> None:
    (warning,) = resolve({"split_algorithm": "thirds"}).warnings
    assert warning.startswith(
        "split_algorithm = 'thirds': expected one of flow_or_qps_equally_divide, "
        "range_equally_divide, "
    )
    assert warning.endswith("; range_equally_divide is used instead")
    assert resolve({"split_algorithm": "topic_count_equally_divide"}).warnings == ()


def test_settings_take_pulsars_forms_and_say_what_is_wrong() -> None:
    config = cluster_config(
        {"supportedNamespaceBundleSplitAlgorithms": "a, b", "loadBalancerSplitIntervalMinutes": 2}
    ).splitting
    assert (config.supported_split_algorithms, config.split_interval_ms) == (("a", "b"), 120_000)
    with pytest.raises(SettingError) as error:
        cluster_config({"loadBalancerNamespaceBundleMaxTopics": -1})
    check_wording(error.value)


@pytest.mark.parametrize(
    ("mb", "reference", "documented"),
    [
        (100, 104_857_600, 104_857_600),
        (2048, -(2**31), 2**31),
        (4096, 0, 2**32),
        (2047, 2**31 - MIB, 2**31 - MIB),
    ],
)
def test_the_bandwidth_limit_overflows_as_the_profile_says(
    mb: int, reference: int, documented: int
) -> None:
    for profile, limit in zip(PROFILES, (reference, documented), strict=True):
        config = cluster_config(
            {"profile": profile, "loadBalancerNamespaceBundleMaxBandwidthMbytes": mb}
        ).splitting
        assert config.max_bandwidth_bytes_per_s == limit


# --- performing a split ---


def test_the_documented_partition_gets_its_boundary() -> None:
    given = vector("split_range")["partition"]
    done = cut(
        BundleRange("t/n", *map(number, given["target"])),
        [int(text, 16) for text in given["split"]],
    )
    assert not isinstance(done, SplitRejected)
    after = sorted([*(int(text, 16) for text in given["boundaries"]), *done.boundaries])
    assert after == [int(text, 16) for text in given["expected"]]
    assert [f"[0x{low:04x},0x{high:04x}" for low, high in pairwise(after)] == [
        text.rstrip(")]").lower() for text in given["expectedRanges"]
    ]


@pytest.mark.parametrize(
    ("bundle", "positions", "why"),
    [
        ("t/n/0x00000000_0x00000001", [0], "range_too_narrow"),
        (SMALL, [], "no_boundary"),
        (SMALL, None, "no_boundary"),
        (SMALL, [0], "boundary_outside"),
        (SMALL, [5, 0x40000000], "boundary_outside"),
        (SMALL, [5, 7, 5], "empty_child"),
    ],
)
def test_a_split_that_cannot_be_performed_says_why(
    bundle: str, positions: list[int] | None, why: str
) -> None:
    done = cut(parse_bundle(bundle), positions)
    assert isinstance(done, SplitRejected) and done.why == why and done.detail


# --- triggers ---


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    "case", [one for one in vector("split_trigger")["cases"] if one.get("brokers", 2) > 1]
)
def test_a_bundle_above_a_limit_is_split(profile: str, case: dict[str, Any]) -> None:
    given = loads(
        topics=case["topics"],
        sessions=case["sessions"],
        rate=float(case["longRate"]),
        throughput=float(case["longBandwidthMiB"] * MIB),
    )
    assert task(given, case.get("namespaceBundles", 4), profile=profile) == (
        [case["reason"]] if case["split"] else []
    )


def test_the_first_limit_in_order_is_the_reason() -> None:
    most = {"topics": 5000, "sessions": 5000, "rate": 1e6, "throughput": 1e9}
    for skipped, expected in enumerate(["Topics", "Sessions", "MsgRate", "Bandwidth"]):
        assert task(loads(**dict(list(most.items())[skipped:]))) == [expected]


@pytest.mark.parametrize("limit", [0, -1])
def test_sessions_have_no_limit_when_it_is_not_positive(limit: int) -> None:
    assert task(loads(sessions=10**6), loadBalancerNamespaceBundleMaxSessions=limit) == []


def test_a_limit_that_overflows_in_32_bits_is_exceeded_by_everything() -> None:
    assert task(loads(), bundle_max_bandwidth_mb=2048) == ["Bandwidth"]
    assert task(loads(), bundle_max_bandwidth_mb=2048, bandwidth_limit_32bit=False) == []


def test_the_last_places_of_a_namespace_go_to_the_first_rows() -> None:
    config = cluster_config({"namespace_max_bundles": 6}).splitting
    namespaces = np.array([0, 1, 0, 1, 0, 1])
    given = loads(topics=[5000, 5000, 5000, 5000, 3, 5000])
    found = split_task(
        given, np.ones(6, np.bool_), lambda rows: (namespaces[rows], np.array([5, 4])), config
    )
    assert (found.rows.tolist(), found.full.tolist()) == ([0, 1, 3], [2, 5])


def test_the_simple_manager_looks_at_the_maximum_before_the_look_only() -> None:
    config = cluster_config({"namespace_max_bundles": 5}).splitting
    given, everybody = loads(topics=[5000, 5000, 1]), np.ones(3, np.bool_)
    assert split_simple(
        given, everybody, lambda rows: (np.zeros(len(rows), np.int64), np.array([4])), config
    ).rows.tolist() == [0, 1]
    full = split_simple(
        given, everybody, lambda rows: (np.zeros(len(rows), np.int64), np.array([5])), config
    )
    assert (full.rows.tolist(), full.full.tolist()) == ([], [0, 1])


def own(names: list[str], **changes: Any) -> OwnBundles:
    given: dict[str, Any] = {
        "names": pa.array(names, pa.string()),
        "loads": loads(topics=[5000] * len(names)),
        "owned": np.ones(len(names), np.bool_),
        "bundle_counts": {},
        "splitting": (),
        "topics_of": lambda _name: topics_at([]),
    }
    return OwnBundles(**(given | changes))


def looks(
    given: OwnBundles,
    count: int,
    config: ClusterConfig | None = None,
    hits: dict[str, int] | None = None,
) -> tuple[list[int], SplitMemory]:
    """How many bundles each of some looks decides to split, and the memory afterwards, which each
    look reads as it was written."""
    config, memory, decided = config or cluster_config({}), SplitMemory(hits or {}), []
    for _ in range(count):
        look, memory = split_strategy(
            given, config.splitting, config.split_algorithms, SplitMemory.read(memory.to_dict())
        )
        decided.append(len(look.choices))
    return decided, memory


def test_a_broker_splits_its_bundle_at_the_documented_look() -> None:
    given = vector("split_trigger")["extensible"]
    decided, memory = looks(
        own([SMALL]), 5, cluster_config({"split_hit_count": given["hitThreshold"]})
    )
    assert decided.index(1) + 1 == given["firesAtConsecutiveCycle"]
    assert memory.hits == {SMALL: 1}


def test_hits_are_lost_by_a_quiet_look_and_kept_by_one_that_is_not_judged() -> None:
    quiet = own([SMALL], loads=loads(topics=[2]))
    assert looks(quiet, 1, hits={SMALL: 3})[1].hits == {}
    for kept in (own([SMALL], owned=np.zeros(1, np.bool_)), own([SMALL], loads=loads(topics=[1]))):
        assert looks(kept, 1, hits={SMALL: 3})[1].hits == {SMALL: 3}
    assert looks(own(["t/n/0x40000000_0x80000000"]), 1, hits={SMALL: 3})[1].hits == {
        "t/n/0x40000000_0x80000000": 1
    }


def test_a_look_stops_at_its_maximum_and_leaves_the_rest_as_it_was() -> None:
    names = [f"t/n/0x{low:08x}_0x{low + 16:08x}" for low in range(0, 64, 16)]
    hits = dict.fromkeys(names, 5)
    decided, memory = looks(own(names), 1, cluster_config({"max_splits_per_cycle": 2}), hits)
    assert decided == [2] and memory.hits == dict.fromkeys(names[2:], 5)
    assert looks(own(names), 1, cluster_config({"max_splits_per_cycle": 0}), hits)[0] == [4]


@pytest.mark.parametrize(
    ("splitting", "match", "blocked"),
    [
        ("t/n/0x00000000_0x20000000", "exact", True),
        ("t/n/0x20000000_0x40000000", "exact", True),
        ("t/n/0x20000000_0x30000000", "exact", False),
        ("t/n2/0x00000000_0x20000000", "exact", False),
        ("t/n2/0x00000000_0x20000000", "prefix", True),
        ("t/m/0x00000000_0x20000000", "prefix", False),
    ],
)
def test_a_split_next_door_is_waited_for(splitting: str, match: str, blocked: bool) -> None:
    config = cluster_config({"split_hit_count": 0, "split_namespace_match": match})
    decided, memory = looks(own([SMALL], splitting=(parse_bundle(splitting),)), 1, config)
    assert decided == [0 if blocked else 1]
    assert memory.hits == ({SMALL: 1} if blocked else {})


@pytest.mark.parametrize(
    ("algorithm", "topics", "decided"),
    [
        ("range_equally_divide", topics_at([]), 1),
        ("topic_count_equally_divide", topics_at([1, 100]), 1),
        ("topic_count_equally_divide", topics_at([1]), 0),
        ("specified_positions_divide", topics_at([1, 100]), 0),
        ("flow_or_qps_equally_divide", topics_at([1, 100], 20_000.0), 1),
        ("flow_or_qps_equally_divide", topics_at([1, 100, 200], 20_000.0), 0),
        ("nonsense", topics_at([]), 1),
    ],
)
def test_a_broker_splits_only_at_exactly_one_boundary(
    algorithm: str, topics: Topics, decided: int
) -> None:
    config = cluster_config({"split_hit_count": 0, "split_algorithm": algorithm})
    assert looks(own([SMALL], topics_of=lambda _name: topics), 1, config)[0] == [decided]


def test_flow_or_qps_splits_automatically_under_the_extensible_manager_at_one_boundary_or_where_that_is_chosen_at_several() -> (
    None
):
    topics = topics_at([0x5, 0x15, 0x25], 20_000.0)
    given = own(
        [SMALL, "t/n/0x40000000_0x80000000"],
        topics_of=lambda name: topics if name == SMALL else topics_at([1, 2]),
    )
    settings = {"split_hit_count": 0, "split_algorithm": "flow_or_qps_equally_divide"}
    found, memory = {}, SplitMemory()
    for several in (False, True):
        config = cluster_config(settings | {"split_at_several_boundaries": several})
        found[several], _ = split_strategy(given, config.splitting, config.split_algorithms, memory)
    other = ("t/n/0x40000000_0x80000000", "too_few_topics")
    assert (found[False].choices, found[False].refused) == (
        (),
        ((SMALL, "several_boundaries"), other),
    )
    (choice,) = found[True].choices
    assert (choice.cut.boundaries, len(choice.cut.children), found[True].refused) == (
        (0xE, 0x1E),
        3,
        (other,),
    )
    config = cluster_config(
        settings | {"split_at_several_boundaries": True, "namespace_max_bundles": 3}
    )
    full, _ = split_strategy(
        replace(given, bundle_counts={"t/n": 2}), config.splitting, config.split_algorithms, memory
    )
    assert full.refused[0] == (SMALL, "namespace_max_bundles"), (
        "there is place for one more, not for two"
    )
