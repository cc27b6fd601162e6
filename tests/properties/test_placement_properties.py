"""Placement on generated clusters: who is a candidate and whom the simple manager's strategies
take, compared with the scalar model."""

from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.contracts.base import canonical_json
from lb_stream.core.filters.later_version import version_key
from lb_stream.core.model.blocks import RESOURCES
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.view import Rows
from lb_stream.core.placement import extensible_placement, placement, simple_placement
from lb_stream.core.placement.base import PlacementContext, Targets
from lb_stream.core.round.state import RoundInputs, RoundState
from lb_stream.settings.resolve import cluster_config
from tests.support.placement_model import (
    Broker,
    Cluster,
    Policy,
    Quota,
    SimpleManager,
    by_policies,
    candidates,
    namespace_of,
    unload_helps,
)
from tests.support.placement_view import (
    kept_of,
    place_and_count,
    settings_of,
    state_of,
    view_of_cluster,
)

NAMES = ("a1.x:1", "a2.x:1", "b1.x:1", "b2.x:1", "c1.x:1")
NAMESPACES = ("pulsar/system", "t/m", "t/m1", "t/n")
BUNDLES = tuple(
    f"{namespace}/0x{low:08x}_0x{low + (1 << 30):08x}"
    for namespace in NAMESPACES
    for low in range(0, 3 << 30, 1 << 30)
)
CPU_FACTOR = 1 / 32  # exact in binary: the order of additions doesn't show

versions = st.sampled_from(["4.0.7"] * 6 + ["4.0.6", "4.0.7-SNAPSHOT", "4.10.0", "", "4.0"])
hosts = st.lists(
    st.sampled_from([r"a.*", r"b\d\.x", r"c1\.x", r".*2\.x", r"nobody"]), max_size=2, unique=True
).map(tuple)
namespaces = st.lists(
    st.sampled_from([r"t/m", r"t/.*", r"t/m\d", r"t/n", r"x/y"]), min_size=1, max_size=2
).map(tuple)
policies = st.lists(st.tuples(namespaces, hosts, hosts, st.integers(0, 3)), max_size=2).map(tuple)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Up to five brokers and twelve bundles, under any policies and manager."""
    manager = draw(st.sampled_from(["modular", "simple", "extensible"]))
    brokers = {
        name: Broker(
            usage={"cpu": (draw(st.sampled_from([50.0, 84.0, 85.0, 90.0])), 100.0)},
            topics=draw(st.sampled_from([0, 9, 10, 11])),
            persistent=draw(st.integers(0, 4)) > 0,
            non_persistent=draw(st.booleans()),
            version=draw(versions),
            manager=draw(st.sampled_from([manager] * 5 + ["simple", "of its own"])),
            alive=draw(st.integers(0, 4)) > 0,
        )
        for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    }
    owners = {
        bundle: draw(st.sampled_from([None, *sorted(brokers)]))
        for bundle in draw(st.lists(st.sampled_from(BUNDLES), min_size=1, unique=True))
    }
    given_policies: tuple[Policy, ...] = draw(policies)
    return Cluster(
        brokers=brokers,
        owners=dict(sorted(owners.items())),
        policies=given_policies,
        groups=draw(st.dictionaries(st.sampled_from(NAMESPACES), st.sampled_from(["g", "G", "h"]))),
        domains=draw(
            st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["d1", "d2", "default"]))
        ),
        non_persistent=frozenset(draw(st.lists(st.sampled_from(NAMESPACES), max_size=1))),
        domains_enabled=draw(st.booleans()),
        evenly=draw(st.booleans()),
        max_topics=draw(st.sampled_from([0, 10, 50_000])),
        later_versions=draw(st.booleans()),
        manager=manager,
        own_counts=draw(st.booleans()),
    )


@given(clusters())
def test_the_filters_leave_whom_the_specification_leaves_after_every_choice(
    cluster: Cluster,
) -> None:
    state = state_of(view_of_cluster(cluster), settings_of(cluster))
    for bundle in cluster.owners:
        assert kept_of(state, bundle) == candidates(cluster, bundle)
        chosen = place_and_count(state, bundle)
        if chosen is not None:
            cluster.owners[bundle] = chosen


@given(clusters())
def test_everybody_alive_is_ranked_or_refused_by_name_and_a_ranked_one_is_chosen(
    cluster: Cluster,
) -> None:
    state = state_of(view_of_cluster(cluster), settings_of(cluster))
    alive = {name for name, broker in cluster.brokers.items() if broker.alive}
    for row, bundle in enumerate(cluster.owners):
        choice, wanted = state.place(row), candidates(cluster, bundle)
        if choice is None:
            assert not wanted
            continue
        if len(choice.calls) > 1:  # asked again, about all that policies allow
            assert cluster.manager == "modular"
            wanted = by_policies(cluster, bundle, alive)
        assert state.view.brokers.names[choice.destination] in wanted
        shown = {candidate.broker: candidate.refused_by for candidate in choice.candidates}
        assert shown.keys() == alive
        filters = {
            name
            for name, refused_by in shown.items()
            if refused_by not in (None, "overloaded", "no_load_data")
        }
        assert filters == alive - wanted


@given(clusters(), st.sampled_from(NAMES))
def test_an_unload_helps_a_group_when_the_specification_says_so(
    cluster: Cluster, current: str
) -> None:
    cluster = replace(cluster, manager="modular")
    state = state_of(view_of_cluster(cluster), settings_of(cluster))
    names = state.view.brokers.names
    if current in names:
        for row, bundle in enumerate(cluster.owners):
            allowed = state.candidates.allowed(row, state.targets)
            assert state.candidates.unload_helps(
                row, names.index(current), allowed
            ) == unload_helps(cluster, bundle, current)


quotas = st.builds(
    Quota,
    st.sampled_from([0.0, 64.0, 512.0, 4096.0, 32_768.0]),
    st.sampled_from([0.0, 128.0]),
    st.sampled_from([0.0, 128.0 * 64, 128.0 * 1000]),
    st.sampled_from([0.0, 128.0 * 450]),
    st.sampled_from([0.0, 16.0, 64.0, 900.0]),
)


BANDS = (
    [0.0, 0.25, 0.42, 0.46, 0.47, 0.5, 0.52],
    [0.42, 0.46, 0.47, 0.5],
    [0.8, 0.84, 0.86, 0.9, 0.95],
    [0.9, 0.97, 1.0, 1.5],
)
"""Shares of the limit: loads that differ by less, exactly, and more than five points, at the
thresholds and beyond the limit."""


@st.composite
def simple_managers(draw: st.DrawFn) -> SimpleManager:
    """Brokers with and without bundles, and bundles of other namespaces to place, under the simple
    manager."""
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    shares = st.sampled_from(draw(st.sampled_from(BANDS)))
    brokers = {}
    for name in names:
        level, limit = draw(shares), 1024.0 * draw(st.sampled_from([1, 1, 1, 40]))
        pairs = {
            resource: (draw(st.one_of(st.just(level), st.just(level), shares)) * limit, limit)
            for resource in RESOURCES
        }
        pairs |= dict.fromkeys(draw(st.lists(st.sampled_from(RESOURCES), max_size=1)), (1.0, 0.0))
        brokers[name] = Broker(pairs, alive=draw(st.integers(0, 9)) > 0)
    owners: dict[str, str | None] = {
        f"own/n/0x{at:08x}_0x{at + 1:08x}": name
        for at, name in enumerate(names)
        if draw(st.integers(0, 4))
    }
    owners |= {f"new/n{at}/0x00000000_0xffffffff": None for at in range(draw(st.integers(1, 4)))}
    cluster = Cluster(brokers, dict(sorted(owners.items())), manager="simple")
    default = Quota(64.0, 64.0, 1024.0, 2048.0, 16.0)
    return SimpleManager(
        cluster,
        {bundle: draw(quotas) for bundle in cluster.owners},
        default,
        CPU_FACTOR,
        cursor=draw(st.integers(0, 9)),
    )


@given(simple_managers(), st.sampled_from(["leastLoadedServer", "leastMsgPerSecond"]))
def test_the_simple_manager_places_each_unowned_bundle_as_the_specification_does(
    simple: SimpleManager, strategy: str
) -> None:
    cluster = simple.cluster
    config = settings_of(cluster, simple_placement_strategy=strategy)
    memory = Memory(strategies={strategy: {"cursor": simple.cursor}})
    state = RoundState.begin(
        RoundInputs.untouched(view_of_cluster(cluster, simple), config, 1, memory)
    )
    for bundle in [bundle for bundle, owner in cluster.owners.items() if owner is None]:
        chosen = place_and_count(state, bundle)
        assert chosen == simple.place(bundle, strategy)
        # The model counts a choice as preallocated; its filters see it as the core's do.
        if chosen is not None:
            cluster = simple.cluster = _with_promise(cluster, bundle, chosen)
    assert state.strategies_after().get(strategy, {"cursor": simple.cursor}) == {
        "cursor": simple.cursor
    }


def _with_promise(cluster: Cluster, bundle: str, broker: str) -> Cluster:
    """The cluster whose filters count a bundle at a broker that doesn't own it yet."""

    class Promised(Cluster):
        def bundles_of(self, name: str, namespace: str) -> int:
            return cluster.bundles_of(name, namespace) + (
                name == broker and namespace == namespace_of(bundle)
            )

    return Promised(**vars(cluster))


class Drawn(Targets):
    """Loads with a given chance."""

    drawn = 0

    def number(self, subject: str, below: int) -> int:
        return self.drawn


@given(simple_managers())
def test_the_simple_managers_chance_is_weighted_by_room(simple: SimpleManager) -> None:
    view = view_of_cluster(simple.cluster, simple)
    config = settings_of(simple.cluster, simple_placement_strategy="weightedRandomSelection")
    loads = Targets.from_view(view)
    targets = Drawn(view, 1, loads.usage, loads.load, loads.long_rate, loads.topics)
    for row, bundle in enumerate(simple.cluster.owners):
        weights = simple.weights(bundle)
        ranges = sorted(weights, key=lambda name: (weights[name], name))
        ends = list(accumulate(weights[name] for name in ranges))
        rows: Rows = np.array([view.brokers.names.index(name) for name in weights], np.intp)
        for drawn in {one for end in ends for one in (end - 1, end) if 0 <= one < ends[-1]} | {0}:
            Drawn.drawn = drawn
            best, _ = config.placement.function(
                PlacementContext(
                    targets, rows, row, config.placement_config, config.placement.memory({})
                )
            )
            wanted = (
                [name for name, end in zip(ranges, ends, strict=True) if drawn < end][:1]
                if any(ends)
                else list(weights)
            )
            assert [view.brokers.names[at] for at in best.rows] == wanted


STRATEGIES = [
    *({"placement_strategy": name} for name in placement.names if name != "AvgShedder"),
    {"placement_strategy": "AvgShedder", "shedding_strategy": "AvgShedder"},
    *(
        {"load_manager": "simple", "simple_placement_strategy": name}
        for name in simple_placement.names
    ),
    *({"load_manager": "extensible"} for _ in extensible_placement.names),
]


@given(
    clusters(),
    st.sampled_from(STRATEGIES),
    st.integers(0, 3),
    st.lists(st.floats(0, 2), min_size=5, max_size=5),
)
def test_a_strategy_goes_on_from_its_written_memory_as_if_the_round_had_not_ended(
    cluster: Cluster, settings: dict[str, Any], cut: int, loads: list[float]
) -> None:
    config = settings_of(cluster, **settings)
    view = view_of_cluster(cluster)
    view = replace(
        view, brokers=replace(view.brokers, load_ema=np.array(loads[: len(view.brokers)]))
    )
    rows = range(len(cluster.owners))
    whole, first = state_of(view, config), state_of(view, config)
    at_once = [None if (choice := whole.place(row)) is None else choice.destination for row in rows]
    in_parts = [
        None if (choice := first.place(row)) is None else choice.destination for row in rows[:cut]
    ]
    after = first.strategies_after()
    same = replace(view, brokers=replace(view.brokers, names=tuple([*view.brokers.names])))
    second = state_of(same, config, memory=Memory(strategies=after))
    in_parts += [
        None if (choice := second.place(row)) is None else choice.destination for row in rows[cut:]
    ]
    assert in_parts == at_once
    assert canonical_json(second.strategies_after()) == canonical_json(whole.strategies_after())


identifiers = st.text("0123456789abAB-", min_size=1, max_size=4)


@given(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20)), identifiers)
def test_a_pre_release_comes_before_its_release_and_build_metadata_after(
    numbers: tuple[int, int, int], identifier: str
) -> None:
    release = ".".join(map(str, numbers))
    plain, built = version_key(release), version_key(f"{release}+{identifier}")
    assert plain is not None
    assert built is not None
    assert plain < built
    pre = version_key(f"{release}-{identifier}")
    is_number = identifier.isdigit()
    assert (pre is None) == (is_number and len(identifier) > 1 and identifier[0] == "0")
    if pre is not None:
        assert pre < plain
        later = version_key(f"{release}-{identifier}.1")
        assert later is not None
        assert pre < later < plain


def test_versions_are_ordered_by_number_and_not_by_letter() -> None:
    texts = [
        "4.0.6",
        "4.0.7-SNAPSHOT",
        "4.0.7-rc.2",
        "4.0.7-rc.10",
        "4.0.7",
        "4.0.7+1",
        "4.0.10",
        "10.0.0",
    ]
    keys = [version_key(text) for text in texts]
    assert keys == sorted(keys, key=lambda key: key or ())
    assert len(set(keys)) == len(texts)
    assert [
        version_key(text)
        for text in ("", "4.0", "v4.0.7", "4.0.07", "4.0.7-", "4.0.7+", "99999999999.0.0", " 4.0.7")
    ] == [None] * 8


def test_every_strategy_of_pulsars_is_registered() -> None:
    assert {
        "LeastLongTermMessageRate",
        "LeastResourceUsageWithWeight",
        "RoundRobinBrokerSelector",
        "AvgShedder",
    } <= {*placement.names}
    assert set(simple_placement.names) == {
        "leastLoadedServer",
        "leastMsgPerSecond",
        "weightedRandomSelection",
    }
    assert (
        cluster_config(
            {"load_manager": "simple", "loadBalancerPlacementStrategy": "?"}
        ).placement.name
        == "weightedRandomSelection"
    )
