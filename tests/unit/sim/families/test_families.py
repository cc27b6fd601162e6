"""Each family makes a valid scenario, the same each time, and what its name promises is in it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from pydantic import BaseModel

from lb_stream.sim.families import (
    TEMPLATE,
    Spec,
    build_from_file,
    build_from_spec,
    families,
    load_scenario,
    preset,
)
from lb_stream.sim.families.loads import resource_demand
from lb_stream.sim.families.spec import (
    BackgroundSpec,
    BudgetSpec,
    Diurnal,
    DriftingHot,
    EventSpec,
    FaultSpec,
    FlashCrowd,
    Growth,
    IsolationSpec,
    KindSpec,
    LargestSpec,
    LimitSpec,
    RolloutSpec,
    SplitSpec,
)
from lb_stream.sim.scenario import Scenario, ScenarioError, read_scenario, write_scenario
from tests.support.scenarios import same

BANDWIDTH = 2.5e9 / 8
FAMILIES = [*families(), TEMPLATE]


def made(family: str, *sets: str) -> Scenario:
    return build_from_file(None, family, sets)


def cpu_at_start(scenario: Scenario) -> np.ndarray:
    """Of each broker, a machine of size 1."""
    return np.bincount(
        scenario.bundles.start_owner,
        resource_demand(scenario.loads_at(0), BANDWIDTH)[0],
        len(scenario.brokers),
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_is_valid_and_the_same_each_time(family: str, tmp_path: Path) -> None:
    scenario = made(family)
    write_scenario(scenario, tmp_path)
    assert same(read_scenario(tmp_path), scenario)
    assert same(made(family), scenario)
    assert not same(made(family, "seed=2"), scenario)
    if family != TEMPLATE:
        assert (scenario.name, scenario.why) == (family, families()[family])


def test_another_purpose_of_chance_disturbs_no_other() -> None:
    one, other = made("drain"), made("drain", "noise.cpu=0.0", "shapes=[{kind='diurnal'}]")
    assert other.broker_noise is None
    assert same(one.noise, other.noise)
    assert same(one.bundles, other.bundles)
    assert one.events == other.events


def test_the_template_names_every_key_with_its_default() -> None:
    text = preset(TEMPLATE)
    given = tomllib.loads(text)
    default = Spec()
    assert Spec.model_validate(given) == default
    assert build_from_spec(default).settled_from_s == 1800.0
    parts: list[type[BaseModel]] = [
        Spec,
        BudgetSpec,
        Diurnal,
        DriftingHot,
        EventSpec,
        FaultSpec,
        FlashCrowd,
        Growth,
        IsolationSpec,
        KindSpec,
        LargestSpec,
        BackgroundSpec,
        LimitSpec,
        RolloutSpec,
        SplitSpec,
    ]
    parts += [
        type(value)
        for name in Spec.model_fields
        if isinstance(value := getattr(default, name), BaseModel)
    ]
    tables = (
        "move",
        "cluster",
        "load",
        "start",
        "noise",
        "policies",
        "shapes",
        "events",
        "faults",
        "kinds",
        "largest",
        "isolation",
        "budgets",
        "split",
        "limits",
        "background",
        "rollout",
    )
    missing = [
        f"{part.__name__}.{name}"
        for part in parts
        for name in part.model_fields
        if name not in tables and f"{name} = " not in text
    ]
    assert missing == []
    assert [name for name in tables if f"{name}]" not in text] == []


def test_what_the_template_shows_as_comments_is_valid_too() -> None:
    shown = "\n".join(
        line.removeprefix("# ")
        if line.startswith("# [") or (line.startswith("# ") and "=" in line)
        else ""
        for line in _examples()
    )
    spec = Spec.model_validate(tomllib.loads(shown.replace('kind = "crash"', 'kind = "slow"')))
    assert [shape.kind for shape in spec.shapes] == [
        "diurnal",
        "flash_crowd",
        "drifting_hot",
        "growth",
    ]
    assert (
        len(spec.events),
        len(spec.faults),
        len(spec.policies.isolation),
        len(spec.policies.budgets),
    ) == (1, 1, 1, 1)
    assert len(spec.load.largest) == len(spec.limits) == len(spec.background) == 1
    assert spec.split == SplitSpec()
    assert spec.rollout == RolloutSpec()
    scenario = build_from_spec(spec)
    assert scenario.policies.isolation[0].name == "tenant-1"


def _examples() -> list[str]:
    lines = preset(TEMPLATE).splitlines()
    return lines[next(at for at, line in enumerate(lines) if line.startswith("# [[")) :]


def test_a_balanced_start_is_even_and_hot_brokers_carry_more() -> None:
    even = cpu_at_start(made("template", "load.jitter=0.0"))
    assert even == pytest.approx(np.full(12, 0.45), rel=0.01)
    skewed = np.sort(cpu_at_start(made("steady_skewed")))
    assert skewed[8:] == pytest.approx(np.full(4, 2.2 * skewed[0]), rel=0.02)


def test_usage_is_that_of_the_dearest_resource() -> None:
    scenario = made("multi_resource", "load.jitter=0.0")
    assert (
        resource_demand(scenario.loads_at(0), 125e6).sum(axis=1) / len(scenario.brokers)
    ).max() == pytest.approx(0.45, rel=1e-3)
    assert scenario.brokers.bandwidth_in_bytes_per_s.tolist() == [125e6] * 11


def test_the_largest_bundle_is_as_large_as_was_asked() -> None:
    scenario = made("huge_bundle")
    need = resource_demand(scenario.loads_at(0), BANDWIDTH).max(axis=0)
    assert need.max() / (need.sum() / len(scenario.brokers)) == pytest.approx(1.6, rel=1e-3)


def test_machines_of_several_sizes_hold_the_same_number_of_bundles() -> None:
    scenario = made("heterogeneous")
    assert set(np.bincount(scenario.bundles.start_owner).tolist()) == {40}
    assert scenario.brokers.memory_bytes[:3].tolist() == [4 * 2**33, 2 * 2**33, 2**33]


def test_a_flash_crowd_comes_and_goes() -> None:
    scenario = made("flash_crowd", "load.jitter=0.0")
    totals = scenario.loads.sum(axis=(0, 1))
    steps = {at_s: int(at_s // 30) for at_s in (870, 900, 1770, 1800)}
    assert totals[steps[870]] == pytest.approx(totals[steps[1800]], rel=1e-3)
    assert totals[steps[900]] == pytest.approx(totals[steps[1770]], rel=1e-3)
    assert totals[steps[900]] > 1.2 * totals[0]
    hot = np.flatnonzero(scenario.loads[0, :, steps[900]] > 2 * scenario.loads[0, :, 0])
    assert len({scenario.namespaces[row] for row in hot}) == 3


def test_other_bundles_are_hot_every_ten_minutes() -> None:
    rate = made("drifting_hot", "load.jitter=0.0").loads[0]
    hot = rate > 5 * rate.min(axis=1, keepdims=True)
    assert set(hot.sum(axis=0).tolist()) == {20}
    assert np.array_equal(hot[:, 0], hot[:, 19])
    assert not np.array_equal(hot[:, 19], hot[:, 20])


def test_each_tenant_has_its_own_hour() -> None:
    scenario = made("diurnal", "load.jitter=0.0")
    by_tenant = {
        tenant: scenario.loads[
            0, [row for row, name in enumerate(scenario.namespaces) if name.startswith(tenant)]
        ].sum(axis=0)
        for tenant in ("tenant-1", "tenant-2")
    }
    assert abs(
        int(by_tenant["tenant-1"].argmax()) - int(by_tenant["tenant-2"].argmax())
    ) == pytest.approx(24, abs=1)  # a fifth of 120 steps


def test_loads_of_growing_brokers_grow() -> None:
    scenario = made("stale_reports", "load.jitter=0.0")
    grown = scenario.loads[0, :, -1] / scenario.loads[0, :, 0]
    growing = np.isin(scenario.bundles.start_owner, [1, 4, 8])
    assert grown[growing] == pytest.approx(1.3, rel=1e-3)
    assert grown[~growing] == pytest.approx(1.0)
    assert scenario.faults[0].brokers == (1, 4, 8)


def test_brokers_that_come_are_down_at_the_start_and_hold_nothing() -> None:
    scenario = made("new_broker")
    coming = [event.broker for event in scenario.events if event.kind == "up"]
    assert np.flatnonzero(~scenario.brokers.up).tolist() == coming
    assert not np.isin(scenario.bundles.start_owner, coming).any()
    assert len(scenario.bundles) == 8 * 50


def test_a_restart_goes_round_all_brokers() -> None:
    scenario = made("rolling_restart")
    assert [(event.t_s, event.kind) for event in scenario.events[:4]] == [
        (300.0, "leave"),
        (390.0, "up"),
        (480.0, "leave"),
        (570.0, "up"),
    ]
    assert sorted(event.broker for event in scenario.events if event.kind == "leave") == list(
        range(9)
    )


def test_what_outlasts_the_scenario_is_not_undone() -> None:
    assert [event.kind for event in made("crash_return", "events.0.for_s=9000.0").events] == [
        "crash"
    ]


def test_a_slow_broker_has_its_whole_cpu_again() -> None:
    assert [(event.kind, event.factor) for event in made("slow_broker").events] == [
        ("slow", 0.5)
    ] * 2 + [("slow", 1.0)] * 2


def test_a_broker_stays_slow_and_others_take_turns() -> None:
    assert [(event.kind, event.factor) for event in made("slow_for_good").events] == [
        ("slow", 0.25)
    ]
    turns = made("slow_in_turn").events
    assert [event.t_s for event in turns] == [600.0, 1500.0, 1500.0, 2400.0, 2400.0, 3300.0]
    assert [event.factor for event in turns] == [0.5, 1.0] * 3
    assert len({event.broker for event in turns}) == 3


def test_networks_and_machines_are_drawn_apart_from_each_other() -> None:
    brokers = made("unlike_networks").brokers
    assert sorted(brokers.bandwidth_in_bytes_per_s.tolist()) == [125e6] * 2 + [1.25e9] * 5
    assert set(brokers.cpu_msgs_per_s.tolist()) == {320e3}
    places = {
        tuple(made("unlike_networks", f"seed={seed}").brokers.bandwidth_in_bytes_per_s.tolist())
        for seed in range(1, 5)
    }
    assert len(places) > 1
    brokers = made("background_cpu", "cluster.bandwidths_gbit_per_s=[10.0,1.0]").brokers
    ratio = brokers.bandwidth_out_bytes_per_s / brokers.cpu_msgs_per_s
    assert sorted(ratio) == pytest.approx([125e6 / 320e3] * 3 + [1.25e9 / 320e3] * 3)
    assert sorted(brokers.cpu_msgs_per_s.tolist()) == [80e3] * 3 + [160e3] + [320e3] * 2


def test_nine_bundles_of_ten_are_idle() -> None:
    scenario = made("idle_thousands")
    need = resource_demand(scenario.loads_at(0), BANDWIDTH).max(axis=0)
    busy = need > 1e-3
    assert busy.mean() == pytest.approx(0.1, abs=0.03)
    assert need[busy].sum() > 0.998 * need.sum()


def test_errors_of_cpu_last_where_those_of_loads_do_not() -> None:
    scenario = made("background_cpu", "ticks=2000")
    assert scenario.noise is not None
    assert scenario.broker_noise is not None

    def persistence(noise: np.ndarray) -> float:
        return float(np.corrcoef(noise[:, :-1].ravel(), noise[:, 1:].ravel())[0, 1])

    assert persistence(scenario.broker_noise) == pytest.approx(np.exp(-30 / 480), abs=0.03)
    assert persistence(scenario.noise) == pytest.approx(0.0, abs=0.03)


def test_only_what_needs_it_is_of_format_2() -> None:
    newer = {family for family in families() if made(family).format == 2}
    assert newer == {
        *("huge_splittable", "blind_split", "zipf_topics", "hot_topic"),
        *("unknown_limits", "false_limits", "busy_hosts", "busy_later"),
        *("rollout_10", "rollout_3", "rollout_spare"),
    }


def topic_parts(scenario: Scenario, bundle: int) -> np.ndarray:
    assert scenario.topics is not None
    return scenario.topics.of(bundle)[1]


def test_a_huge_bundle_has_as_many_topics_as_was_asked() -> None:
    scenario = made("huge_splittable", "load.largest.0.topics=33", "load.largest.0.size=2.5")
    need = resource_demand(scenario.loads_at(0), BANDWIDTH).max(axis=0)
    huge = int(need.argmax())
    assert scenario.bundles.topics[huge] == 33
    assert need[huge] == pytest.approx(2.5 * need.sum() / len(scenario.brokers), rel=0.05)
    parts = topic_parts(scenario, huge)
    assert len(parts) == 33
    assert parts.max() < 0.3


def test_a_hot_topic_is_nearly_all_of_its_bundle() -> None:
    scenario = made("hot_topic")
    need = resource_demand(scenario.loads_at(0), BANDWIDTH).max(axis=0)
    first, second = np.argsort(-need)[:2].tolist()
    assert topic_parts(scenario, first).max() == pytest.approx(0.97)
    assert len(topic_parts(scenario, first)) == 21
    assert topic_parts(scenario, second).tolist() == [1.0]


def test_shares_of_topics_follow_the_law_that_was_asked_for() -> None:
    zipf = made("zipf_topics", "cluster.topics_per_bundle=30.0")
    for bundle in range(5):
        parts = np.sort(topic_parts(zipf, bundle))[::-1]
        assert parts * np.arange(1, len(parts) + 1) == pytest.approx(parts[0], rel=1e-4)
    equal = made("huge_splittable", "split.sizes='equal'")
    for bundle in range(5):
        parts = topic_parts(equal, bundle)
        assert parts == pytest.approx(1 / len(parts))


def test_no_broker_reports_topics_of_a_blind_split() -> None:
    splits = {family: made(family).splits for family in ("blind_split", "huge_splittable")}
    assert {family: split and split.detailed_bundles for family, split in splits.items()} == {
        "blind_split": 0,
        "huge_splittable": 10,
    }


def test_limits_are_unknown_or_false() -> None:
    brokers = made("unknown_limits").brokers
    assert sorted(brokers.stated_limit("bandwidth_in").tolist()) == [0.0] * 4 + [BANDWIDTH] * 4
    assert set(brokers.bandwidth_in_bytes_per_s.tolist()) == {BANDWIDTH}
    assert set(brokers.stated) == {"bandwidth_in", "bandwidth_out"}
    brokers = made("false_limits").brokers
    pairs = zip(
        brokers.bandwidth_out_bytes_per_s.tolist(),
        brokers.stated_limit("bandwidth_out").tolist(),
        strict=True,
    )
    assert sorted(pairs) == [(62.5e6, 1.25e9)] * 4 + [(1.25e9, 12.5e6)] * 2 + [(1.25e9, 1.25e9)] * 6


def test_hosts_are_busy_always_or_for_a_while() -> None:
    always = made("busy_hosts")
    assert always.background is None
    assert always.brokers.cpu_base is not None
    assert sorted(always.brokers.cpu_base.tolist()) == [0.0] * 5 + [0.33] * 5
    later = made("busy_later")
    assert later.brokers.cpu_base is not None
    assert set(later.brokers.cpu_base.tolist()) == {0.02}
    assert later.background is not None
    busy = later.background.max(axis=1) > 0
    assert busy.sum() == 2
    during = later.background[busy] > 0
    assert np.flatnonzero(during.all(axis=0)).tolist() == list(range(30, 90))
    assert np.array_equal(during.any(axis=0), during.all(axis=0))


def test_background_goes_round_and_changes() -> None:
    scenario = made(
        "busy_hosts",
        "background=[{brokers=2, cpu=0.3, from_s=600.0, for_s=300.0, every_s=900.0, jitter=0.2}]",
    )
    assert scenario.background is not None
    times_s = [np.flatnonzero(row > 0) * 30 for row in scenario.background if row.any()]
    assert [(int(times.min()), int(times.max())) for times in times_s] == [(600, 870), (1500, 1770)]
    assert scenario.background[scenario.background > 0].std() > 0.01


def test_a_rollout_has_an_order_and_a_spare_broker_none_of_it() -> None:
    scenario = made("rollout_spare")
    spare = scenario.events[0].broker
    assert scenario.rollout is not None
    assert scenario.rollout.in_order
    assert sorted(scenario.rollout.brokers) == [row for row in range(9) if row != spare]
    assert list(scenario.rollout.brokers) != sorted(scenario.rollout.brokers)
    every = made("rollout_10").rollout
    assert every is not None
    assert (every.brokers, every.restart_s, every.in_order) == (tuple(range(10)), 90.0, False)
    listed = "rollout.brokers=['broker-0003:8080', 'broker-0001:8080']"
    given = made("rollout_3", listed).rollout
    assert given is not None
    assert given.brokers == (2, 0)


def test_strays_disturb_a_balanced_start_and_never_the_largest() -> None:
    even, uneven = made("hot_topic", "start.strays=0.0"), made("hot_topic")
    need = resource_demand(even.loads_at(0), BANDWIDTH).max(axis=0)
    largest = np.argsort(-need)[:2]
    owners = [scenario.bundles.start_owner for scenario in (even, uneven)]
    assert [np.bincount(owner)[owner[largest]].min() for owner in owners] == [1, 8]
    assert len(set(owners[1][largest].tolist())) == 2


def test_walls_hold_at_the_start() -> None:
    scenario = made("isolation")
    rules = scenario.policies
    assert [one.name for one in rules.isolation] == ["tenant-1", "tenant-2"]
    own = {row for one in rules.isolation for row in one.primary}
    assert len(own) == 7
    for namespace, owner in zip(
        scenario.namespaces, scenario.bundles.start_owner.tolist(), strict=True
    ):
        policy = next((one for one in rules.isolation if namespace in one.namespaces), None)
        assert owner in policy.primary if policy else owner not in own
    (group,) = rules.anti_affinity
    homes = {
        namespace: {
            *scenario.bundles.start_owner[[at == namespace for at in scenario.namespaces]].tolist()
        }
        for namespace in group.namespaces
    }
    assert all(len(home) == 1 for home in homes.values())
    assert len(set.union(*homes.values())) == 4


def test_budgets_are_of_each_namespace_of_a_tenant() -> None:
    scenario = made("budgets")
    by_tenant = {
        tenant: {
            most for name, most in scenario.policies.budgets.items() if name.startswith(tenant)
        }
        for tenant in ("tenant-1", "tenant-2")
    }
    assert by_tenant == {"tenant-1": {0}, "tenant-2": {2}}
    assert {name.partition("/")[0] for name in scenario.policies.budgets} == {
        "tenant-1",
        "tenant-2",
        "tenant-3",
    }


def test_noise_is_as_loud_and_lasts_as_long_as_was_asked() -> None:
    noise = made("noisy").noise
    assert noise is not None
    factors = noise * 0.005
    assert factors.std() == pytest.approx(0.25, rel=0.05)
    assert np.corrcoef(factors[:, :-1].ravel(), factors[:, 1:].ravel())[0, 1] == pytest.approx(
        np.exp(-30 / 240), abs=0.03
    )


def test_noise_never_makes_a_load_negative(tmp_path: Path) -> None:
    write_scenario(made("noisy", "noise.bundles=1.5", "noise_unit=0.02"), tmp_path)
    noise = read_scenario(tmp_path).noise
    assert noise is not None
    assert noise.min() == -50


def test_loads_that_never_change_have_one_step() -> None:
    scenario = made("steady_skewed")
    assert (scenario.load_step_ticks, scenario.loads.shape[2]) == (300, 1)


def test_a_scenario_is_named_by_its_folder_or_as_a_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert same(load_scenario(Path("zipf")), made("zipf"))
    write_scenario(made("drain"), Path("zipf"))
    assert same(load_scenario(Path("zipf")), made("drain")), (
        "a folder of that name is what is meant"
    )
    with pytest.raises(ScenarioError):
        load_scenario(Path("no-such-family"))
